/** What somebody should know now: of one's own work, and for operators of the devices. Each can be put away. */
import * as React from 'react';

import { ago, isKnown, sentence } from './format';
import type { GpuState } from './fold';
import { type IPartProps, Sentence } from './parts';
import { openAlerts } from './select';

/** The list; what is new in it is read out. */
export function Alerts(props: IPartProps & { state: GpuState }): React.JSX.Element {
  const { state, now, run } = props;
  const open = openAlerts(state);
  return (
    <div role="status">
      {open.length > 0 && (
        <ul className="jp-Gpu-list jp-Gpu-alerts" aria-label="Alerts">
          {open.map(it => (
            <li
              key={it.key}
              className="jp-Gpu-banner jp-mod-warn jp-Gpu-alert"
              data-gpu="alert"
              data-key={it.key}
            >
              <div>
                <Sentence text={sentence(it.text)} />
                {isKnown(it.since) && <div className="jp-Gpu-muted">{ago(it.since, now)}</div>}
              </div>
              <button
                type="button"
                className="jp-Gpu-dismiss"
                data-gpu="alert-dismiss"
                title="Put it away until it changes"
                aria-label={`Put away: ${sentence(it.text)}`}
                onClick={() => {
                  run('gpu:dismiss-alert', { key: it.key });
                }}
              >
                ×
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
