/** The panel on the left: devices, own work, the reserve form, kernels with GPUs, quota. */
import { ReactWidget } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import * as React from 'react';

import { Alerts } from './alerts';
import { Devices } from './devices';
import { Ended } from './ended';
import type { GpuState } from './fold';
import { gpuIcon } from './icons';
import { Kernels } from './kernels';
import type { IGpuModel } from './model';
import { Button, type Run, Sentence } from './parts';
import { Quotas } from './quota';
import { Work } from './queue';
import { type ITarget, ReserveForm } from './reserve';

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
    return (
      <Panel
        state={model.state}
        now={model.now()}
        run={run}
        targets={targets()}
        defaults={defaults()}
      />
    );
  }
}

/** What the panel shows of a state. */
export function Panel(props: {
  state: GpuState;
  now: number;
  run: Run;
  targets: readonly ITarget[];
  defaults: { devices: number; hours: number };
}): React.JSX.Element {
  const { state, now, run } = props;
  const { status } = state;
  return (
    <div className="jp-Gpu-panel">
      <Banner state={state} run={run} />
      {status === null ? (
        state.trouble === null && <p className="jp-Gpu-text">Looking for the GPUs …</p>
      ) : (
        <>
          <Alerts state={state} now={now} run={run} />
          <Devices status={status} history={state.history} now={now} />
          <Work state={state} status={status} now={now} run={run} />
          {status.devices.length > 0 && (
            <ReserveForm
              state={state}
              status={status}
              targets={props.targets}
              defaults={props.defaults}
              now={now}
              run={run}
            />
          )}
          <Ended recent={state.recent} caller={status.caller} now={now} run={run} />
          <Kernels state={state} now={now} run={run} />
          <Quotas quotas={status.quotas} now={now} />
          <p className="jp-Gpu-text">
            You are <b>{status.caller}</b> here.
          </p>
        </>
      )}
    </div>
  );
}

function Banner(props: { state: GpuState; run: Run }): React.JSX.Element {
  const { link, trouble, status } = props.state;
  return (
    <div role="status">
      {trouble && (
        <div className="jp-Gpu-banner jp-mod-bad" data-gpu="trouble">
          <div>
            <Sentence text={trouble.message} />
          </div>
          {trouble.hint && (
            <div className="jp-Gpu-muted">
              <Sentence text={trouble.hint} />
            </div>
          )}
          {status && (
            <div className="jp-Gpu-muted">What stands below is the last that is known.</div>
          )}
          {link === 'expired' && (
            <div className="jp-Gpu-actions">
              <Button
                gpu="reload"
                label="Reload"
                tone="accept"
                onClick={() => {
                  location.reload();
                }}
              />
            </div>
          )}
        </div>
      )}
      {status?.warnings?.map(text => (
        <div key={text} className="jp-Gpu-banner jp-mod-warn" data-gpu="warning">
          <Sentence text={text} />
        </div>
      ))}
    </div>
  );
}
