/** The caller's own work in the list of what runs. */
import type { IRunningSessionManagers, IRunningSessions } from '@jupyterlab/running';
import type { LabIcon } from '@jupyterlab/ui-components';
import { Signal } from '@lumino/signaling';

import { facts, stateWord, title } from './format';
import { gpuIcon } from './icons';
import type { IGpuModel } from './model';
import type { Run } from './parts';
import { myWork } from './select';
import type { WorkloadView } from './types';

/** Add the section. */
export function addRunning(managers: IRunningSessionManagers, model: IGpuModel, run: Run): void {
  const runningChanged = new Signal<IGpuModel, void>(model);
  let shown: unknown;
  model.changed.connect(() => {
    // Not for each sample: only where the work itself changed.
    if (model.state.status?.workloads !== shown) {
      shown = model.state.status?.workloads;
      runningChanged.emit();
    }
  });
  const work = (): readonly WorkloadView[] =>
    model.state.status ? myWork(model.state.status) : [];
  managers.add({
    name: 'GPU work',
    running: () => work().map(it => item(it, model, run)),
    shutdownAll: () => {
      work().forEach(it => {
        // A server that ends with its GPUs is not meant by this, and is asked for by itself.
        run(ending(it), { workload: it.id, sure: it.holder?.kind !== 'server' });
      });
    },
    refreshRunning: () => undefined,
    runningChanged,
    shutdownLabel: 'Cancel or release',
    shutdownAllLabel: 'Cancel and Release All',
    shutdownAllConfirmationText: 'Cancel all of your GPU jobs and release all of your GPUs?'
  });
}

function ending(it: WorkloadView): string {
  return it.kind === 'job' ? 'gpu:cancel' : 'gpu:release';
}

function item(it: WorkloadView, model: IGpuModel, run: Run): IRunningSessions.IRunningItem {
  const says = (): string => facts(it, model.state.status?.devices ?? [], model.now()).join(' · ');
  return {
    icon: (): LabIcon => gpuIcon,
    label: () => title(it),
    labelTitle: () => `${stateWord(it)} · ${says()}`,
    detail: () => stateWord(it),
    open: () => {
      run(it.kind === 'job' ? 'gpu:show-log' : 'gpu:open-panel', { workload: it.id });
    },
    shutdown: () => {
      run(ending(it), { workload: it.id });
    }
  };
}
