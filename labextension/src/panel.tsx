/** The panel: devices, own work, the way to more, kernels with GPUs, quota. Knows nothing of JupyterLab. */
import * as React from 'react';

import { Alerts } from './alerts';
import { Coming } from './coming';
import { Devices } from './devices';
import { Ended } from './ended';
import type { GpuState } from './fold';
import { Kernels } from './kernels';
import { Button, type Run, Sentence } from './parts';
import { Quotas } from './quota';
import { Work } from './queue';
import { RecurringJobs } from './recurring';

/** How one comes to GPUs from where one is. */
export interface IWays {
  /** How to reserve; shown where there are devices. */
  readonly reserve: React.ReactNode;
  /** What to do who has nothing yet. */
  readonly begin: string;
  /** What can be done without any device. */
  readonly without: string;
}

/** What the panel shows of a state. */
export function Panel(props: {
  state: GpuState;
  now: number;
  run: Run;
  ways: IWays;
}): React.JSX.Element {
  const { state, now, run, ways } = props;
  const { status } = state;
  return (
    <div className="jp-Gpu-panel">
      <Banner state={state} run={run} />
      {status === null ? (
        state.trouble === null && <p className="jp-Gpu-text">Looking for the GPUs …</p>
      ) : (
        <>
          <Alerts state={state} now={now} run={run} />
          <div className="jp-Gpu-columns">
            <Devices status={status} history={state.history} now={now} without={ways.without} />
            <div className="jp-Gpu-side">
              <Work state={state} status={status} begin={ways.begin} now={now} run={run} />
              <Coming status={status} now={now} run={run} />
              <RecurringJobs items={state.recurring} now={now} run={run} />
              {status.devices.length > 0 && ways.reserve}
              <Ended recent={state.recent} caller={status.caller} now={now} run={run} />
              <Kernels state={state} now={now} run={run} />
              <Quotas quotas={status.quotas} now={now} />
              <p className="jp-Gpu-text">
                You are <b>{status.caller}</b> here.
              </p>
            </div>
          </div>
        </>
      )}
    </div>
  );
}

/** What is wrong with the connection, and what the broker warns of. */
export function Banner(props: { state: GpuState; run: Run }): React.JSX.Element {
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
