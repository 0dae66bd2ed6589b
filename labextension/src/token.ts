/** By what the plugins, ours and others', find the model. */
import { Token } from '@lumino/coreutils';

import type { IGpuModel as IModel } from './model';

export type IGpuModel = IModel;

export const IGpuModel = new Token<IGpuModel>(
  'jupyter-gpu:IGpuModel',
  'The GPUs of this server as this page knows them: devices, own work, quota, kernels.'
);
