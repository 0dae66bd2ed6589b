/** One's own work that ended lately, a line each, under a fold: what is over must not bury what can be done. */
import * as React from 'react';

import { endText, facts, isBadEnd, sentence, stateWord, title } from './format';
import { endsText, entriesOf, type IArray, memberText } from './jobwords';
import { Badge, Button, type IPartProps, type Run } from './parts';
import { toneOf } from './queue';
import type { WorkloadView } from './types';

/** So many are shown. */
const MOST_SHOWN = 5;
/** Of an array so many, those that ended badly first. */
const MOST_MEMBERS = 20;
/** What ended just now is in sight. */
const FRESH_SECONDS = 60;

/** The fold; open where one failed or ended just now, until somebody opens or closes it. */
export function Ended(
  props: IPartProps & { recent: readonly WorkloadView[]; caller: string }
): React.JSX.Element | null {
  const { caller, now, run } = props;
  const entries = entriesOf(props.recent).slice(0, MOST_SHOWN);
  const recent = entries.flatMap(({ it, array }) => (it ? [it] : array.members));
  const newest = props.recent[0]?.id ?? 0;
  const [chosen, setChosen] = React.useState({ newest: 0, isOpen: false });
  if (!recent.length) {
    return null;
  }
  const isFresh = (it: WorkloadView): boolean => now - (it.ended_at ?? 0) < FRESH_SECONDS;
  const isOpen =
    chosen.newest === newest
      ? chosen.isOpen
      : recent.some(it => isBadEnd(it)) || recent.some(isFresh);
  return (
    <details className="jp-Gpu-section" data-gpu="ended" open={isOpen}>
      <summary
        className="jp-Gpu-summary"
        onClick={event => {
          event.preventDefault();
          setChosen({ newest, isOpen: !isOpen });
        }}
      >
        <h2>Ended lately</h2>
        <span className="jp-Gpu-aside">{ends(recent)}</span>
      </summary>
      <ul className="jp-Gpu-list jp-Gpu-endedList">
        {entries.map(({ it, array }) =>
          it ? (
            <EndedRow key={it.id} it={it} caller={caller} now={now} run={run} />
          ) : (
            <EndedArray
              key={`array ${array.array}`}
              array={array}
              caller={caller}
              now={now}
              run={run}
            />
          )
        )}
      </ul>
      <div className="jp-Gpu-actions">
        <Button
          gpu="ended-clear"
          label="Clear"
          title="Show these no more"
          onClick={() => {
            run('gpu:clear-ended');
          }}
        />
      </div>
    </details>
  );
}

/** What the fold says while it is closed: "3, 1 failed". */
function ends(recent: readonly WorkloadView[]): string {
  const bad = recent.filter(isBadEnd).length;
  return bad ? `${recent.length}, ${bad} failed` : String(recent.length);
}

/** The jobs of an array that ended lately: how many ended how, and each by itself when somebody opens it. */
function EndedArray(props: {
  array: IArray;
  caller: string;
  now: number;
  run: Run;
}): React.JSX.Element {
  const { array, ...more } = props;
  const { members } = array;
  const [isOpen, setOpen] = React.useState(false);
  const shown = [...members].sort((a, b) => Number(isBadEnd(b)) - Number(isBadEnd(a)));
  return (
    <li data-gpu="ended-array" data-id={array.array}>
      <details
        className="jp-Gpu-uses jp-Gpu-members"
        onToggle={event => {
          setOpen(event.currentTarget.open);
        }}
      >
        <summary>
          {[array.name, `array ${array.array}`].filter(Boolean).join(', ')}: {endsText(members)}
        </summary>
        {isOpen && (
          <ul className="jp-Gpu-list jp-Gpu-endedList">
            {shown.slice(0, MOST_MEMBERS).map(it => (
              <EndedRow key={it.id} it={it} {...more} />
            ))}
          </ul>
        )}
      </details>
    </li>
  );
}

/** One line: what it was, how it ended, its log. */
export function EndedRow(props: {
  it: WorkloadView;
  caller: string;
  now: number;
  run: Run;
}): React.JSX.Element {
  const { it, caller, now, run } = props;
  const about = [sentence(endText(it, caller)), ...facts(it, [], now).map(sentence)].join(' ');
  return (
    <li className="jp-Gpu-line" data-gpu="workload" data-id={it.id} title={about}>
      <span className="jp-Gpu-name">
        <span className="jp-Gpu-ellipsis">{memberText(it) || title(it)}</span>
        {it.kind === 'job' && <span className="jp-Gpu-muted">{it.id}</span>}
      </span>
      <Badge tone={toneOf(it)} gpu="workload-state">
        {stateWord(it)}
      </Badge>
      {it.kind === 'job' && (it.attempt ?? 0) > 0 && (
        <button
          type="button"
          className="jp-Gpu-link"
          data-gpu="log-open"
          aria-label={`Log: ${title(it)}`}
          onClick={() => {
            run('gpu:show-log', { workload: it.id });
          }}
        >
          Log
        </button>
      )}
    </li>
  );
}
