import { LabIcon } from '@jupyterlab/ui-components';

/** A card with its fan: the sign of everything here. */
export const gpuIcon = new LabIcon({
  name: 'jupyter-gpu:card',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3" fill="#616161" fill-rule="evenodd" d="M2 4h1.5A1.5 1.5 0 0 1 5 5.5V6h15.5A1.5 1.5 0 0 1 22 7.5v8a1.5 1.5 0 0 1-1.5 1.5H19v2h-2v-2h-2v2h-2v-2h-2v2H9v-2H5v3H3V6H2zM13.5 7.5a4 4 0 1 0 0 8 4 4 0 0 0 0-8zm0 2a2 2 0 1 1 0 4 2 2 0 0 1 0-4zM7 9v5h1.5V9z"/>
</svg>`
});
