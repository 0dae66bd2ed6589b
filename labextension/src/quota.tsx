/** What the caller holds of each bound, and what is left. */
import * as React from 'react';

import { bounds } from './format';
import { Meter, Section } from './parts';
import type { QuotaView } from './types';

/** The bounds; nothing where there are none. */
export function Quotas(props: {
  quotas: readonly QuotaView[];
  now: number;
}): React.JSX.Element | null {
  const found = props.quotas.flatMap(it => bounds(it, props.now));
  if (!found.length) {
    return null;
  }
  return (
    <Section title="Quota">
      <ul className="jp-Gpu-list">
        {found.map(it => (
          <li key={`${it.label} ${it.text}`} className="jp-Gpu-row" data-gpu="quota">
            <div className="jp-Gpu-line">
              <span className="jp-Gpu-name jp-Gpu-wrap">{it.label}</span>
              <span className="jp-Gpu-aside">{it.left}</span>
            </div>
            <Meter
              label={`Quota ${it.label}`}
              text={it.text}
              part={it.part}
              tone={it.part !== null && it.part >= 1 ? 'warn' : 'mine'}
            />
            <div className="jp-Gpu-muted">{it.text}</div>
          </li>
        ))}
      </ul>
    </Section>
  );
}
