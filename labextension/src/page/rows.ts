/** The rows of an operator's list: all live work, in words. Pure. */
import { gpus, length, plural, stateWord, title, when } from '../format';
import type { DeviceView, Status, WorkloadView } from '../types';

/**
 * All live work: what leaves, what has devices, what waits. `waiting` was read a moment ago; what the stream says since
 * is newer.
 */
export function liveWork(
  status: Status,
  waiting: readonly WorkloadView[]
): readonly WorkloadView[] {
  const known = new Map(waiting.map(it => [it.id, it]));
  for (const it of status.workloads) {
    known.set(it.id, it);
  }
  const rank = { yielding: 0, active: 1, queued: 2, ended: 3 };
  return [...known.values()].sort(
    (a, b) => rank[a.state] - rank[b.state] || b.priority - a.priority || a.id - b.id
  );
}

/** Whether each word that was typed is found in what a row says. */
export function fits(it: WorkloadView, typed: string): boolean {
  const said = [it.owner, it.team, it.queue, it.kind, title(it), stateWord(it), it.waiting, it.id]
    .join(' ')
    .toLowerCase();
  return typed
    .toLowerCase()
    .split(/\s+/)
    .every(word => said.includes(word));
}

/** Whose it is: "ana · vision", and "you" of one's own. */
export function whose(it: WorkloadView): string {
  const owner = it.is_mine ? 'you' : (it.owner ?? 'not told');
  return [owner, it.team].filter(Boolean).join(' · ');
}

/** Which devices it has, or how many it wants. */
export function devicesText(it: WorkloadView, devices: readonly DeviceView[]): string {
  return it.devices?.length
    ? gpus(it.devices, devices)
    : `${it.state === 'queued' ? 'wants ' : ''}${plural(it.ask.devices ?? 1, 'GPU')}`;
}

/** Since when, and until when as far as that is known. */
export function timeText(it: WorkloadView, now: number): string {
  if (it.state === 'queued') {
    return `waits for ${length(Math.max(0, now - it.submitted_at))}`;
  }
  const since = `since ${when(it.granted_at, now)}`;
  if (it.notice) {
    return `${since}, yields by ${when(it.notice.yield_by, now)}`;
  }
  return it.ends_at ? `${since}, until ${when(it.ends_at, now)}` : since;
}

/** A queue, who waits in it and who has devices by it. */
export interface ILine {
  readonly queue: string;
  readonly waiting: number;
  readonly holding: number;
}

/** All queues, in the broker's order. */
export function linesOf(status: Status): readonly ILine[] {
  const holding = status.workloads.filter(it => it.state === 'active' || it.state === 'yielding');
  const names = [...Object.keys(status.waiting), ...holding.map(it => it.queue)];
  return [...new Set(names)].map(queue => ({
    queue,
    waiting: status.waiting[queue] ?? 0,
    holding: holding.filter(it => it.queue === queue).length
  }));
}
