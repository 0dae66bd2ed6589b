/** What somebody should know now: of one's own work, and for operators of the devices. Each can be put away. */
import * as React from 'react';

import { ago, sentence } from './format';
import type { GpuState } from './fold';
import { Button, type IPartProps, Sentence } from './parts';
import { isOfIdleness, markOf, openAlerts } from './select';
import type { AlertView } from './types';
import { plainText } from './words';

/** The list. What is new in it is read out once, not each time a figure in it moves. */
export function Alerts(props: IPartProps & { state: GpuState }): React.JSX.Element {
  const { state, now, run } = props;
  const open = openAlerts(state);
  return (
    <>
      <Spoken alerts={open} />
      {open.length > 0 && (
        <ul className="jp-Gpu-list jp-Gpu-alerts" aria-label="Alerts">
          {open.map(it => (
            <AlertRow key={it.key} it={it} now={now} run={run} />
          ))}
        </ul>
      )}
    </>
  );
}

function AlertRow(props: IPartProps & { it: AlertView }): React.JSX.Element {
  const { it, now, run } = props;
  const text = sentence(it.text);
  return (
    <li className="jp-Gpu-banner jp-mod-warn jp-Gpu-alert" data-gpu="alert" data-key={it.key}>
      <div>
        <Sentence text={text} />
        <div className="jp-Gpu-muted">{ago(it.since, now)}</div>
        {isOfIdleness(it) && (
          <Button
            gpu="keep"
            label="Keep"
            about={plainText(text)}
            onClick={() => {
              run('gpu:keep', { workload: it.workload ?? 0 });
            }}
          />
        )}
      </div>
      <button
        type="button"
        className="jp-Gpu-dismiss"
        data-gpu="alert-dismiss"
        title="Put it away until it changes"
        aria-label={`Put away: ${plainText(text)}`}
        onClick={() => {
          run('gpu:dismiss-alert', { key: it.key });
        }}
      >
        ×
      </button>
    </li>
  );
}

function Spoken(props: { alerts: readonly AlertView[] }): React.JSX.Element {
  const said = React.useRef(new Map<string, string>());
  for (const it of props.alerts) {
    const mark = markOf(it);
    if (!said.current.has(mark)) {
      said.current.set(mark, plainText(sentence(it.text)));
    }
  }
  return (
    <div className="jp-Gpu-hidden" role="status" aria-atomic="false" aria-relevant="additions">
      {props.alerts.map(it => (
        <div key={markOf(it)}>{said.current.get(markOf(it))}</div>
      ))}
    </div>
  );
}
