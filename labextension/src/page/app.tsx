/** The page: its head, and below it what a person sees of the GPUs, or what an operator sees of them. */
import * as React from 'react';

import { Looking } from '../looking';
import type { GpuModel } from '../model';
import { Panel } from '../panel';
import { type Run, Section } from '../parts';
import { freeText } from '../select';
import type { GpuState } from '../fold';
import type { PageFace } from './face';
import { Operate } from './operate';
import { Overlay } from './overlay';
import type { Roll } from './roll';
import type { IPageData, ServiceApi } from './service';

export const OPERATE = '#operate';

/** What the page is made of. */
export interface IAppOptions {
  readonly data: IPageData;
  readonly model: GpuModel<ServiceApi>;
  readonly face: PageFace;
  readonly roll: Roll;
  readonly run: Run;
}

/** Whether somebody may handle the work of others. */
export function isOperator(data: Pick<IPageData, 'scopes'>): boolean {
  return data.scopes.includes('operate') || data.scopes.includes('admin');
}

/** What the window says of the page: how many are free, if that is known. */
export function pageTitle(state: GpuState): string {
  if (state.status === null) {
    return 'GPUs';
  }
  const { devices } = state.status;
  const word = devices.length ? freeText(devices) : 'none here';
  return `GPUs · ${state.link === 'open' ? word : 'away'}`;
}

/** What is left to show when the login is over: who comes next to this screen need not be who had signed in. */
export function stillShown(state: GpuState): GpuState {
  return state.link === 'expired' ? { ...state, status: null, recent: [], recurring: [] } : state;
}

/** All of the page. */
export function App(props: IAppOptions): React.JSX.Element {
  const { data, model, face, roll, run } = props;
  const state = stillShown(useModel(model));
  const hash = React.useSyncExternalStore(onHash, () => location.hash);
  const title = pageTitle(state);
  React.useEffect(() => {
    document.title = title;
  }, [title]);
  const mayOperate = isOperator(data);
  const isOperating = mayOperate && hash === OPERATE;
  const now = model.now();
  return (
    <div className="jp-Gpu jp-Gpu-page" data-gpu="page">
      <div className="jp-Gpu-top">
        <h1>GPUs</h1>
        {mayOperate && (
          <nav className="jp-Gpu-tabs" aria-label="Views">
            <Tab href="#" gpu="tab-overview" isHere={!isOperating} text="Overview" />
            <Tab href={OPERATE} gpu="tab-operate" isHere={isOperating} text="Operate" />
          </nav>
        )}
        <a className="jp-Gpu-home" href={data.hub}>
          Hub home
        </a>
      </div>
      {isOperating ? (
        <Operate state={state} roll={roll} now={now} run={run} />
      ) : (
        <Looking.Provider value={model.api}>
          <Panel
            state={state}
            now={now}
            run={run}
            ways={{
              reserve: <Start spawn={data.spawn} />,
              begin:
                'Start a server with GPUs, or send a job to the queue from a notebook or a terminal.',
              without: 'Work can still wait in the queue.'
            }}
          />
        </Looking.Provider>
      )}
      {state.link !== 'expired' && <Overlay face={face} model={model} />}
    </div>
  );
}

function Tab(props: {
  href: string;
  gpu: string;
  isHere: boolean;
  text: string;
}): React.JSX.Element {
  return (
    <a
      href={props.href}
      className="jp-Gpu-tab"
      data-gpu={props.gpu}
      aria-current={props.isHere ? 'page' : undefined}
    >
      {props.text}
    </a>
  );
}

/** Here are no kernels to reserve for: a server has them. */
function Start(props: { spawn: string }): React.JSX.Element {
  return (
    <Section title="Reserve">
      <p className="jp-Gpu-text">
        A server of the hub can have GPUs of its own, and each notebook in it can reserve some.
      </p>
      <div className="jp-Gpu-actions">
        <a className="jp-Gpu-button jp-mod-accept" data-gpu="spawn" href={props.spawn}>
          Start a server with GPUs
        </a>
      </div>
    </Section>
  );
}

/** The state, drawn anew when it changes and when time has passed. */
function useModel(model: GpuModel<ServiceApi>): GpuState {
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    const changed = (): void => {
      draw();
    };
    model.changed.connect(changed);
    // What was told before this was made.
    changed();
    return () => {
      model.changed.disconnect(changed);
    };
  }, [model]);
  return model.state;
}

function onHash(listener: () => void): () => void {
  window.addEventListener('hashchange', listener);
  return () => {
    window.removeEventListener('hashchange', listener);
  };
}
