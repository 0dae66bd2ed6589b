/** What JupyterLab loads: one plugin that knows, and one for each place where it shows. */
import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { IFileBrowserFactory } from '@jupyterlab/filebrowser';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { Token } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';

import { addCommands } from './commands';
import { gpuIcon } from './icons';
import { GpuModel } from './model';
import { notify } from './notify';
import type { Run } from './parts';
import type { ITarget } from './reserve';
import { Restarts } from './restarts';
import { addRunning } from './running';
import { ServerApi } from './server';
import { Settings } from './settings';
import { GpuPanel } from './sidebar';
import { StatusItem } from './statusbar';
import { IGpuModel } from './token';
import { KernelItem } from './toolbar';

const CATEGORY = 'GPU';

/** The choices of this person, for the other plugins. */
const IGpuSettings = new Token<Settings>('jupyter-gpu:IGpuSettings');

function runner(app: JupyterFrontEnd): Run {
  return (command, args) =>
    void app.commands.execute(command, args).catch((error: unknown) => {
      console.error(command, error);
    });
}

/** Knows: one stream and one state for the page. */
const model: JupyterFrontEndPlugin<IGpuModel> = {
  id: 'jupyter-gpu:model',
  description: 'Provides the GPUs of this server as the page knows them.',
  autoStart: true,
  provides: IGpuModel,
  activate: app =>
    new GpuModel(new ServerApi(app.serviceManager.serverSettings), window.localStorage)
};

/** Chooses: the settings. */
const settings: JupyterFrontEndPlugin<Settings> = {
  id: 'jupyter-gpu:plugin',
  description: 'Provides the settings of the GPU extension.',
  autoStart: true,
  provides: IGpuSettings,
  optional: [ISettingRegistry],
  activate: (_, registry: ISettingRegistry | null) => {
    const found = new Settings();
    registry
      ?.load(settings.id)
      .then(loaded => {
        found.follow(loaded);
      })
      .catch((error: unknown) => {
        console.error('jupyter-gpu: the settings could not be read', error);
      });
    return found;
  }
};

/** Acts: the commands, and notices with buttons. */
const commands: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu:commands',
  description: 'Reserve, release, extend, send to the queue, show logs; tell what should be known.',
  autoStart: true,
  requires: [IGpuModel, IGpuSettings],
  optional: [INotebookTracker, IFileBrowserFactory, ICommandPalette, ILabShell],
  activate: (
    app,
    gpu: IGpuModel,
    chosen: Settings,
    notebooks: INotebookTracker | null,
    files: IFileBrowserFactory | null,
    palette: ICommandPalette | null,
    lab: ILabShell | null
  ) => {
    const restarts = new Restarts(notebooks);
    restarts.follow(gpu);
    addCommands({
      app,
      model: gpu,
      settings: chosen,
      restarts,
      isLab: lab !== null,
      kernel: () => inFront(notebooks),
      file: () => {
        const [first, second] = files?.tracker.currentWidget?.selectedItems() ?? [];
        return first && !second ? first.path : null;
      }
    });
    for (const command of [
      'gpu:reserve',
      'gpu:reserve-later',
      'gpu:release',
      'gpu:pin',
      'gpu:submit-file'
    ]) {
      palette?.addItem({ command, category: CATEGORY });
    }
    notify(gpu, chosen, runner(app));
  }
};

/** Shows: the panel on the left. */
const panel: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu:panel',
  description: 'A panel with devices, own work, a form to reserve, and quota.',
  autoStart: true,
  requires: [IGpuModel, IGpuSettings],
  optional: [INotebookTracker, ICommandPalette, ILayoutRestorer],
  activate: (
    app,
    gpu: IGpuModel,
    chosen: Settings,
    notebooks: INotebookTracker | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    const widget = new GpuPanel({
      model: gpu,
      run: runner(app),
      targets: () => (notebooks ? targets(notebooks) : []),
      defaults: () => chosen.choices
    });
    onFront(notebooks, () => {
      widget.refresh();
    });
    app.shell.add(widget, 'left', { rank: 600 });
    restorer?.add(widget, widget.id);
    app.commands.addCommand('gpu:open-panel', {
      label: 'Show the GPUs',
      icon: gpuIcon,
      execute: () => {
        app.shell.activateById(widget.id);
      }
    });
    palette?.addItem({ command: 'gpu:open-panel', category: CATEGORY });
  }
};

/** The kernel of the notebook in front. */
function inFront(notebooks: INotebookTracker | null): string | null {
  return notebooks?.currentWidget?.sessionContext.session?.kernel?.id ?? null;
}

/** Act when another notebook is in front, or a notebook has another kernel. */
function onFront(notebooks: INotebookTracker | null, act: () => void): void {
  notebooks?.currentChanged.connect(act);
  notebooks?.widgetAdded.connect((_, added) => {
    added.sessionContext.kernelChanged.connect(act);
  });
}

/** The kernels of open notebooks, that of the current one first. */
function targets(notebooks: INotebookTracker): readonly ITarget[] {
  const found: ITarget[] = [];
  const add = (it: NotebookPanel | null): void => {
    const kernel = it?.sessionContext.session?.kernel?.id;
    if (it && kernel && !found.some(known => known.kernel === kernel)) {
      const name = it.title.label;
      // A second one of the same name is told apart by its path.
      found.push({
        kernel,
        name: found.some(known => known.name === name) ? it.context.path : name
      });
    }
  };
  add(notebooks.currentWidget);
  notebooks.forEach(add);
  return found;
}

/** Shows: one's lease in the status bar. */
const statusBar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu:status-bar',
  description: 'One’s own lease, or what is free, in the status bar.',
  autoStart: true,
  requires: [IGpuModel, IGpuSettings],
  optional: [IStatusBar, INotebookTracker],
  activate: (
    app,
    gpu: IGpuModel,
    chosen: Settings,
    bar: IStatusBar | null,
    notebooks: INotebookTracker | null
  ) => {
    const item = new StatusItem(gpu, runner(app), () => inFront(notebooks));
    onFront(notebooks, () => {
      item.refresh();
    });
    const activeStateChanged = new Signal<Settings, void>(chosen);
    chosen.changed.connect(() => {
      activeStateChanged.emit();
    });
    bar?.registerStatusItem('jupyter-gpu:status', {
      item,
      align: 'left',
      rank: 90,
      isActive: () => chosen.choices.showStatusBar,
      activeStateChanged
    });
  }
};

/** Shows: the GPU of each notebook's kernel in its toolbar; schema/plugin.json says where. */
const toolbar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu:toolbar',
  description: 'The GPU of a notebook’s kernel in its toolbar.',
  autoStart: true,
  requires: [IGpuModel],
  optional: [IToolbarWidgetRegistry],
  activate: (app, gpu: IGpuModel, registry: IToolbarWidgetRegistry | null) => {
    registry?.addFactory<NotebookPanel>(
      'Notebook',
      'gpu',
      it => new KernelItem(gpu, it.sessionContext, app.commands)
    );
  }
};

/** Shows: one's own work among what runs. */
const running: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu:running',
  description: 'One’s own GPU work in the list of running sessions.',
  autoStart: true,
  requires: [IGpuModel],
  optional: [IRunningSessionManagers],
  activate: (app, gpu: IGpuModel, managers: IRunningSessionManagers | null) => {
    if (managers) {
      addRunning(managers, gpu, runner(app));
    }
  }
};

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  model,
  settings,
  commands,
  panel,
  statusBar,
  toolbar,
  running
];

export default plugins;
export { IGpuModel };
