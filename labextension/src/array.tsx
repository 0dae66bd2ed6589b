/** An array: jobs that were submitted as one, in one row, and each by itself when somebody opens it. */
import * as React from 'react';

import { plural } from './format';
import { arrayText, type IArray } from './jobwords';
import { Badge, Button, Meter, type Run } from './parts';
import type { WorkloadView } from './types';

/** So many are drawn; nobody reads a thousand rows. */
const MOST_SHOWN = 50;

/** The row; `row` draws one of its jobs. */
export function ArrayRow(props: {
  array: IArray;
  /** Whether all of it that lives is known here. */
  isWhole: boolean;
  run: Run;
  /** `isQuiet` leaves out why it waits, where another one has said that. */
  row: (it: WorkloadView, isQuiet: boolean) => React.JSX.Element;
}): React.JSX.Element {
  const { array, isWhole, run, row } = props;
  const [isOpen, setOpen] = React.useState(false);
  const { members, of } = array;
  const name = array.name || 'Array';
  const runs = members.some(it => it.state !== 'queued');
  const word = runs ? 'running' : members.every(it => it.paused) ? 'paused' : 'waiting';
  const done = isWhole ? 1 - members.length / of : null;
  const shown = members.slice(0, MOST_SHOWN);
  const said = new Set<string>();
  const isSaid = (it: WorkloadView): boolean => {
    const why = `${it.state} ${it.waiting}`;
    const isAgain = it.state === 'queued' && said.has(why);
    said.add(why);
    return isAgain;
  };
  return (
    <li className="jp-Gpu-row" data-gpu="array" data-id={array.array}>
      <div className="jp-Gpu-line">
        <span className="jp-Gpu-name">
          <span className="jp-Gpu-ellipsis">{name}</span>
          <span className="jp-Gpu-muted jp-Gpu-ellipsis">array {array.array}</span>
        </span>
        <Badge tone={runs ? 'good' : 'plain'}>{word}</Badge>
      </div>
      <Meter
        label={`Jobs of ${name} that are done`}
        text={arrayText(array, isWhole)}
        part={done}
        tone="mine"
        isProgress
      />
      <details
        className="jp-Gpu-uses jp-Gpu-members"
        data-gpu="array-members"
        onToggle={event => {
          setOpen(event.currentTarget.open);
        }}
      >
        <summary>
          <span className="jp-Gpu-hidden">{name}: </span>
          <span data-gpu="array-text">{arrayText(array, isWhole)}</span>
        </summary>
        {isOpen && (
          <>
            <ul className="jp-Gpu-list">{shown.map(it => row(it, isSaid(it)))}</ul>
            {members.length > shown.length && (
              <p className="jp-Gpu-text">and {plural(members.length - shown.length, 'job')} more</p>
            )}
          </>
        )}
      </details>
      <div className="jp-Gpu-actions">
        <Button
          gpu="cancel-array"
          label="Cancel all"
          about={name}
          onClick={() => {
            run('gpu:cancel-array', { array: array.array });
          }}
        />
      </div>
    </li>
  );
}
