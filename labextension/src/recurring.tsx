/** The caller's recurring jobs: when each comes next, what became of the last time, and what can be done about it. */
import * as React from 'react';

import { isKnown, sentence, when } from './format';
import { Badge, Button, type IPartProps, Section, Sentence } from './parts';
import type { RecurringView } from './types';
import { endWord } from './words';

/** The list; nothing where there is none. */
export function RecurringJobs(
  props: IPartProps & { items: readonly RecurringView[] }
): React.JSX.Element | null {
  const { items, now, run } = props;
  if (!items.length) {
    return null;
  }
  return (
    <Section title="Recurring jobs">
      <ul className="jp-Gpu-list" data-gpu="recurring-jobs">
        {items.map(it => (
          <RecurringRow key={it.id} it={it} now={now} run={run} />
        ))}
      </ul>
    </Section>
  );
}

/** One of them. */
export function RecurringRow(props: IPartProps & { it: RecurringView }): React.JSX.Element {
  const { it, now, run } = props;
  const name = nameOf(it);
  const args = { recurring: it.id };
  const last = it.last_workload;
  const choices = [
    it.paused
      ? { gpu: 'recurring-let-go', label: 'Let go', command: 'gpu:let-go-recurring' }
      : { gpu: 'recurring-pause', label: 'Pause', command: 'gpu:pause-recurring' },
    { gpu: 'recurring-fire', label: 'Run now', command: 'gpu:fire-recurring' },
    { gpu: 'recurring-remove', label: 'Remove', command: 'gpu:remove-recurring' }
  ];
  return (
    <li className="jp-Gpu-row" data-gpu="recurring" data-id={it.id}>
      <div className="jp-Gpu-line">
        <span className="jp-Gpu-name" title={it.command || name}>
          <span className="jp-Gpu-ellipsis">{name}</span>
        </span>
        {it.paused && (
          <Badge tone="warn" gpu="recurring-state">
            {nextText(it, now)}
          </Badge>
        )}
      </div>
      <div className="jp-Gpu-muted">
        <span title={`In the time zone ${it.timezone}`}>{it.cron}</span>
        {!it.paused && (
          <>
            {' · '}
            <span data-gpu="recurring-state">{nextText(it, now)}</span>
          </>
        )}
      </div>
      <div className="jp-Gpu-muted" data-gpu="recurring-last">
        {lastText(it, now)}
      </div>
      {it.last_detail && (
        <div className="jp-Gpu-why">
          <Sentence text={sentence(it.last_detail)} />
        </div>
      )}
      <div className="jp-Gpu-actions">
        {isKnown(last) && (it.last_state !== 'queued' || it.last_end) && (
          <Button
            gpu="log-open"
            label="Last log"
            about={name}
            onClick={() => {
              run('gpu:show-log', { workload: last });
            }}
          />
        )}
        {choices.map(({ gpu, label, command }) => (
          <Button
            key={gpu}
            gpu={gpu}
            label={label}
            about={name}
            onClick={() => {
              run(command, args);
            }}
          />
        ))}
      </div>
    </li>
  );
}

/** What it is called. */
export function nameOf(it: RecurringView): string {
  return it.name || it.command || `Recurring job ${it.id}`;
}

/** When it comes next, on the reader's own clock. */
export function nextText(it: RecurringView, now: number): string {
  if (it.paused) {
    return 'paused';
  }
  return isKnown(it.next_at) ? `next ${when(it.next_at, now)}` : 'never again';
}

/** What became of the last time. */
export function lastText(it: RecurringView, now: number): string {
  return isKnown(it.last_at)
    ? `Last ${when(it.last_at, now)}: ${lastJob(it)}.`
    : 'It has not come yet.';
}

function lastJob(it: RecurringView): string {
  if (!isKnown(it.last_workload)) {
    return 'no job';
  }
  const stands = { queued: 'waits', active: 'runs', yielding: 'makes room', ended: 'is over' };
  const how = it.last_end
    ? endWord(it.last_end)
    : it.last_state
      ? stands[it.last_state]
      : 'not known any more';
  return `job ${it.last_workload}, ${how}`;
}
