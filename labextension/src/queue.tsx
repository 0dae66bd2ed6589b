/** The caller's own work: how each stands and why, what can be done about it, and how the lines are. */
import * as React from 'react';

import { ArrayRow } from './array';
import { Details, Far } from './details';
import { byYou, facts, isBadEnd, length, plural, sentence, stateWord, title, why } from './format';
import { entriesOf, memberText } from './jobwords';
import { Badge, Button, Section, Sentence, type IPartProps, type Run, type Tone } from './parts';
import { apart, myWork } from './select';
import type { GpuState } from './fold';
import type { DeviceView, Status, WorkloadView } from './types';
import { endWord } from './words';

export const HOUR = 3600;

/** One's own live work, and how many wait in each queue. */
export function Work(
  props: IPartProps & {
    state: GpuState;
    status: Status;
    /** What to do who has nothing yet. */
    begin: string;
  }
): React.JSX.Element {
  const { state, status, now, run } = props;
  const mine = myWork(status);
  const more = status.more_of_mine ?? 0;
  const row = (it: WorkloadView, isQuiet = false): React.JSX.Element => (
    <WorkRow
      key={it.id}
      it={it}
      apart={apart(it, state)}
      caller={status.caller}
      devices={status.devices}
      isQuiet={isQuiet}
      now={now}
      run={run}
    />
  );
  return (
    <Section title="My work" aside={<Lines waiting={status.waiting} />}>
      {mine.length === 0 && (
        <p className="jp-Gpu-text">
          Nothing of yours runs or waits.
          {status.devices.length > 0 && ` ${props.begin}`}
        </p>
      )}
      <ul className="jp-Gpu-list">
        {entriesOf(mine).map(({ it, array }) =>
          it ? (
            row(it)
          ) : (
            <ArrayRow
              key={`array ${array.array}`}
              array={array}
              isWhole={more === 0}
              run={run}
              row={row}
            />
          )
        )}
      </ul>
      {more > 0 && <p className="jp-Gpu-text">and {plural(more, 'waiting job')} more of yours</p>}
      <Waits mine={mine} />
    </Section>
  );
}

/** One workload; `apart` tells it from another of the same name. */
export function WorkRow(
  props: IPartProps & {
    it: WorkloadView;
    apart?: string;
    caller?: string;
    devices: readonly DeviceView[];
    isQuiet?: boolean;
  }
): React.JSX.Element {
  const { it, devices, now, run } = props;
  const word = stateWord(it);
  const text = props.isQuiet ? '' : said(it, props.caller ?? null);
  return (
    <li className="jp-Gpu-row" data-gpu="workload" data-id={it.id}>
      <div className="jp-Gpu-line">
        <span className="jp-Gpu-name" title={it.command || undefined}>
          <span className="jp-Gpu-ellipsis">{memberText(it) || title(it)}</span>
          <span className="jp-Gpu-muted jp-Gpu-ellipsis">
            {it.kind === 'job' ? `job ${it.id}` : props.apart}
          </span>
        </span>
        <Badge tone={toneOf(it)} gpu="workload-state">
          {word}
        </Badge>
      </div>
      <div className="jp-Gpu-muted">{facts(it, devices, now).join(' · ')}</div>
      <Far it={it} now={now} />
      {text && (
        <div className="jp-Gpu-why">
          <Sentence text={text} />
        </div>
      )}
      {it.is_mine && <Details it={it} devices={devices} now={now} />}
      <Actions it={it} run={run} />
    </li>
  );
}

/** What the state and the facts do not say already. */
export function said(it: WorkloadView, caller: string | null): string {
  switch (it.state) {
    case 'queued':
      return why(it);
    case 'active':
      return it.overtime ? why(it) : '';
    case 'yielding':
      return it.notice
        ? sentence(byYou(it.notice.detail, caller) || endWord(it.notice.reason))
        : why(it);
    case 'ended':
      return why(it, caller);
  }
}

function Actions(props: { it: WorkloadView; run: Run }): React.JSX.Element | null {
  const { it, run } = props;
  const isOver = it.state === 'ended' || (it.state === 'yielding' && !it.notice);
  const hasLog = it.kind === 'job' && (it.attempt ?? 0) > 0;
  const holds = it.kind === 'reservation' && it.state !== 'queued';
  const choices = [
    { gpu: 'log-open', label: 'Log', command: 'gpu:show-log', isOffered: hasLog },
    {
      gpu: 'extend',
      label: `Extend ${length(HOUR)}`,
      command: 'gpu:extend',
      more: { seconds: HOUR },
      isOffered: it.state === 'active' && Boolean(it.ends_at)
    },
    {
      gpu: 'unchain',
      label: 'Do not wait',
      command: 'gpu:unchain',
      isOffered: it.state === 'queued' && (it.unmet ?? []).length > 0
    },
    { gpu: 'let-go', label: 'Let go', command: 'gpu:let-go', isOffered: it.paused === true },
    { gpu: 'release', label: 'Release', command: 'gpu:release', isOffered: !isOver && holds },
    { gpu: 'cancel', label: 'Cancel', command: 'gpu:cancel', isOffered: !isOver && !holds }
  ].filter(choice => choice.isOffered);
  if (!choices.length) {
    return null;
  }
  return (
    <div className="jp-Gpu-actions">
      {choices.map(({ gpu, label, command, more }) => (
        <Button
          key={gpu}
          gpu={gpu}
          label={label}
          about={title(it)}
          onClick={() => {
            run(command, { workload: it.id, ...more });
          }}
        />
      ))}
    </div>
  );
}

/** How the word of a state is coloured. */
export function toneOf(it: WorkloadView): Tone {
  switch (it.state) {
    case 'queued':
      return 'plain';
    case 'active':
      return it.overtime ? 'warn' : it.kind === 'job' ? 'good' : it.is_mine ? 'mine' : 'plain';
    case 'yielding':
      return 'warn';
    case 'ended':
      return isBadEnd(it) ? 'bad' : it.end === 'succeeded' ? 'good' : 'plain';
  }
}

function Lines(props: { waiting: Status['waiting'] }): React.JSX.Element {
  const lines = Object.entries(props.waiting).filter(([, count]) => count > 0);
  const text = lines.map(([queue, count]) => `${count} in ${queue}`).join(', ');
  return <span data-gpu="lines">{text ? `waiting: ${text}` : 'nobody waits'}</span>;
}

/** Tells those who do not look that a place in line changed. */
function Waits(props: { mine: readonly WorkloadView[] }): React.JSX.Element {
  const waits = props.mine
    .filter(it => it.state === 'queued' && it.kind === 'reservation')
    .map(it => `${title(it)}: ${facts(it, [], 0).slice(1, 2).join('')}`);
  return (
    <div className="jp-Gpu-hidden" role="status" aria-live="polite">
      {waits.join('. ')}
    </div>
  );
}
