/** Whether work is kept from GPUs that are not its own, as was found by trying to open them. */
import * as React from 'react';

import { sentence } from './format';
import { Badge } from './parts';
import type { IsolationView } from './types';

/** The word, and on what evidence; `kept` and `told` say what it means where it is enforced and where not. */
function Verdict(props: {
  it: IsolationView;
  gpu: string;
  kept: string;
  told: string;
}): React.JSX.Element {
  const { it } = props;
  const by = it.by ? ` (${it.by})` : '';
  return (
    <Badge
      tone={it.enforced ? 'good' : 'warn'}
      gpu={props.gpu}
      title={`${it.enforced ? props.kept : props.told}${by}. ${sentence(it.detail ?? '')}`.trim()}
    >
      <span className="jp-Gpu-hidden">Isolation:</span>
      {it.enforced ? 'enforced' : 'advisory'}
    </Badge>
  );
}

/** Of jobs, by the broker's word. */
export function Isolation(props: {
  it: IsolationView | null | undefined;
}): React.JSX.Element | null {
  return props.it ? (
    <Verdict
      it={props.it}
      gpu="isolation"
      kept="Jobs can open no GPU but their own"
      told="Jobs are told which GPUs are theirs, and not kept from others"
    />
  ) : null;
}

/** Of the Jupyter server, by its own word: a line of its own, for it is about this server and not about jobs. */
export function OwnIsolation(props: { it: IsolationView | null }): React.JSX.Element | null {
  return (
    props.it && (
      <p className="jp-Gpu-text">
        This server:{' '}
        <Verdict
          it={props.it}
          gpu="own-isolation"
          kept="What runs in this server can open no GPU but its own"
          told="What runs in this server is told which GPUs are its own, and not surely kept from others"
        />
      </p>
    )
  );
}
