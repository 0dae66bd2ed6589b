/** The operator's view: everybody's live work, each device with what can be done to it, alerts, and how the lines are. */
import * as React from 'react';

import { Alerts } from '../alerts';
import { nameOf } from '../devicewords';
import { Devices } from '../devices';
import type { GpuState } from '../fold';
import { plural, sentence, stateWord, title } from '../format';
import { Banner } from '../panel';
import { Badge, Button, type IPartProps, type Run, Section, Sentence } from '../parts';
import { said, toneOf } from '../queue';
import type { DeviceView, Status, WorkloadView } from '../types';
import { countWaiting, PAGE, type Roll } from './roll';
import { devicesText, fits, linesOf, liveWork, timeText, whose } from './rows';

/** All of it. */
export function Operate(props: IPartProps & { state: GpuState; roll: Roll }): React.JSX.Element {
  const { state, roll, now, run } = props;
  const { status } = state;
  return (
    <div className="jp-Gpu-panel jp-Gpu-operate" data-gpu="operate">
      <Banner state={state} run={run} />
      {status && (
        <>
          <Alerts state={state} now={now} run={run} />
          <div className="jp-Gpu-columns">
            <Devices
              status={status}
              history={state.history}
              now={now}
              without="Nothing can be cordoned."
              actions={device => <Marks device={device} run={run} />}
            />
            <Lines status={status} />
          </div>
          <Everybody status={status} roll={roll} now={now} run={run} />
        </>
      )}
    </div>
  );
}

/** What can be done to a device. */
export function Marks(props: { device: DeviceView; run: Run }): React.JSX.Element {
  const { device, run } = props;
  const isBusy = Boolean(device.workloads?.length);
  const mayBeMended = device.cordoned || Boolean(device.condition);
  const choices = [
    {
      mark: 'cordon',
      label: 'Cordon',
      about: 'No new work; what runs there runs on',
      isOffered: !device.cordoned
    },
    {
      mark: 'drain',
      label: 'Drain',
      about: 'No new work, and what runs there leaves it with grace',
      isOffered: !device.cordoned || isBusy
    },
    {
      mark: 'uncordon',
      label: 'Uncordon',
      about: 'Work again, unless a reading says that it is not well',
      isOffered: mayBeMended
    }
  ].filter(choice => choice.isOffered);
  return (
    <div className="jp-Gpu-actions">
      {choices.map(({ mark, label, about }) => (
        <Button
          key={mark}
          gpu={`device-${mark}`}
          label={label}
          about={nameOf(device)}
          title={about}
          onClick={() => {
            run(`gpu:${mark}`, { device: device.uuid });
          }}
        />
      ))}
    </div>
  );
}

function Lines(props: { status: Status }): React.JSX.Element {
  return (
    <Section title="Queues">
      <table className="jp-Gpu-table" data-gpu="lines">
        <thead>
          <tr>
            <th scope="col">Queue</th>
            <th scope="col">With GPUs</th>
            <th scope="col">Waiting</th>
          </tr>
        </thead>
        <tbody>
          {linesOf(props.status).map(it => (
            <tr key={it.queue} data-gpu="line" data-queue={it.queue}>
              <th scope="row">{it.queue}</th>
              <td>{it.holding}</td>
              <td>{it.waiting}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}

function Everybody(props: IPartProps & { status: Status; roll: Roll }): React.JSX.Element {
  const { status, roll, now, run } = props;
  const { waiting, hasMore, trouble } = React.useSyncExternalStore(
    roll.subscribe,
    () => roll.known
  );
  const [typed, setTyped] = React.useState('');
  const all = liveWork(status, waiting);
  const shown = all.filter(it => fits(it, typed));
  const more = hasMore
    ? Math.max(0, countWaiting(status) - all.filter(it => it.state === 'queued').length)
    : 0;
  return (
    <Section
      title="All work"
      aside={<span data-gpu="all-count">{countText(shown, all, more)}</span>}
    >
      <label className="jp-Gpu-field jp-Gpu-filter">
        <span>Filter by owner, team, queue, state or name</span>
        <input
          type="search"
          data-gpu="all-filter"
          value={typed}
          onChange={event => {
            setTyped(event.target.value);
            roll.seek(event.target.value);
          }}
        />
      </label>
      {trouble && (
        <p className="jp-Gpu-why jp-mod-bad" role="status" data-gpu="all-trouble">
          <Sentence text={`Who waits could not be read. ${trouble}`} />
        </p>
      )}
      {shown.length ? (
        <WorkTable works={shown} status={status} now={now} run={run} />
      ) : (
        <p className="jp-Gpu-text">
          {all.length ? 'Nothing fits.' : 'Nobody uses or waits for a GPU.'}
        </p>
      )}
      {more > 0 && (
        <div className="jp-Gpu-actions">
          <Button
            gpu="all-more"
            label={`Show ${Math.min(PAGE, more)} more`}
            onClick={() => void roll.more()}
          />
          <span className="jp-Gpu-muted">
            {more} more wait, the oldest of all
            {typed.trim() && '; of them those are found whose owner or queue is typed whole'}
          </span>
        </div>
      )}
    </Section>
  );
}

/** "12 of 40 shown, 300 more wait". */
export function countText(
  shown: readonly WorkloadView[],
  all: readonly WorkloadView[],
  more: number
): string {
  const first =
    shown.length === all.length
      ? plural(all.length, 'workload')
      : `${shown.length} of ${all.length}`;
  return more ? `${first}, ${more} more wait` : first;
}

/** The table; on a narrow page each row is a card. */
export function WorkTable(
  props: IPartProps & { works: readonly WorkloadView[]; status: Status }
): React.JSX.Element {
  const { works, status, now, run } = props;
  return (
    <table className="jp-Gpu-table jp-Gpu-works" data-gpu="all-work">
      <thead>
        <tr>
          <th scope="col">Work</th>
          <th scope="col">Owner</th>
          <th scope="col">Queue</th>
          <th scope="col">State</th>
          <th scope="col">GPUs</th>
          <th scope="col">Time</th>
          <th scope="col">
            <span className="jp-Gpu-hidden">What can be done</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {works.map(it => (
          <WorkLine key={it.id} it={it} status={status} now={now} run={run} />
        ))}
      </tbody>
    </table>
  );
}

function WorkLine(props: IPartProps & { it: WorkloadView; status: Status }): React.JSX.Element {
  const { it, status, now, run } = props;
  const about = `${title(it)}, ${whose(it)}`;
  const reason = said(it, status.caller);
  return (
    <tr data-gpu="all-row" data-id={it.id}>
      <th scope="row" title={it.command || undefined}>
        {title(it)}{' '}
        <span className="jp-Gpu-muted">
          {it.kind} {it.id}
        </span>
      </th>
      <td data-label="Owner">{whose(it)}</td>
      <td data-label="Queue">{it.queue}</td>
      <td>
        <Badge tone={toneOf(it)} gpu="all-state">
          {stateWord(it)}
        </Badge>
        {reason && (
          <div className="jp-Gpu-muted">
            <Sentence text={sentence(reason)} />
          </div>
        )}
      </td>
      <td data-label="GPUs">{devicesText(it, status.devices)}</td>
      <td data-label="Time">{timeText(it, now)}</td>
      <td>
        <div className="jp-Gpu-actions">
          {it.kind === 'job' && (it.attempt ?? 0) > 0 && (
            <Button
              gpu="all-log"
              label="Log"
              about={about}
              onClick={() => {
                run('gpu:show-log', { workload: it.id });
              }}
            />
          )}
          {it.state !== 'ended' && !(it.state === 'yielding' && !it.notice) && (
            <Button
              gpu="all-cancel"
              label="Cancel"
              about={about}
              onClick={() => {
                run('gpu:cancel-any', { workload: it.id });
              }}
            />
          )}
        </div>
      </td>
    </tr>
  );
}
