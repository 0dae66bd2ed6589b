/** The panel on the left of JupyterLab, with the form that reserves for its notebooks. */
import { ReactWidget } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import * as React from 'react';

import { gpuIcon } from './icons';
import { Looking } from './looking';
import type { IGpuModel } from './model';
import { Panel } from './panel';
import type { Run } from './parts';
import { type ITarget, ReserveForm } from './reserve';

const WAYS = {
  begin:
    'Reserve a GPU for a notebook below, or right click a script or a notebook and choose “Run as GPU job”.',
  without:
    'Work can still wait in the queue: right click a script or a notebook and choose “Run as GPU job”.'
};

/** What the panel asks of its surroundings. */
export interface IPanelOptions {
  readonly model: IGpuModel;
  readonly run: Run;
  /** The kernels of open notebooks, the current one first. */
  readonly targets: () => readonly ITarget[];
  /** What the form begins with. */
  readonly defaults: () => { devices: number; hours: number };
}

/** The panel; it draws only while it is seen. */
export class GpuPanel extends ReactWidget {
  constructor(private readonly _options: IPanelOptions) {
    super();
    this.id = 'jp-gpu-panel';
    this.addClass('jp-Gpu');
    this.node.dataset.gpu = 'panel';
    this.title.icon = gpuIcon;
    this.title.caption = 'GPUs';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'GPUs');
    _options.model.changed.connect(this.refresh, this);
  }

  /** Draw anew, if anybody looks. */
  refresh(): void {
    if (this.isVisible) {
      this.update();
    }
  }

  protected override onBeforeShow(msg: Message): void {
    super.onBeforeShow(msg);
    this.update();
  }

  protected override render(): React.JSX.Element {
    const { model, run, targets, defaults } = this._options;
    const { state } = model;
    const now = model.now();
    const reserve = state.status && (
      <ReserveForm
        state={state}
        status={state.status}
        targets={targets()}
        defaults={defaults()}
        now={now}
        run={run}
      />
    );
    return (
      <Looking.Provider value={model.api}>
        <Panel state={state} now={now} run={run} ways={{ ...WAYS, reserve }} />
      </Looking.Provider>
    );
  }
}
