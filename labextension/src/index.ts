import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu:plugin',
  description: 'GPUs of this server: reservations, live memory and the queue.',
  autoStart: true,
  activate: () => undefined
};

export default plugin;
