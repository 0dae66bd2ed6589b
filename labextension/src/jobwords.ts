/** Words about jobs: how far one is, what its curves show, its place in an array. Pure. */
import { gpus, isKnown, length, plural, sentence, share, stateWord, when } from './format';
import type { AttemptView, DeviceView, Progress, WorkloadView } from './types';
import { endWord } from './words';

/** A row has room for so many of the numbers that a job reports. */
const MOST_NUMBERS = 2;
const MINUTE = 60;
const HOUR = 3600;

/** What is written of a number that was none, such as a loss that is not finite. */
const NO_NUMBER = 'n/a';

/** How far an attempt is: in words, and where its end is known as a part of the whole. */
export interface IFar {
  readonly step: string;
  readonly part: number | null;
  /** "about 3 h left"; empty where nobody can know. */
  readonly left: string;
  readonly numbers: readonly string[];
}

/** How far a job that runs says it is; null where it does not say. */
export function farOf(it: WorkloadView, now: number): IFar | null {
  const { progress } = it;
  if (!progress || progress.attempt !== it.attempt || it.state === 'queued') {
    return null;
  }
  // Where an attempt before it got to is not known here, and so not how fast this one is.
  const begun = it.attempt === 1 && it.state === 'active' ? it.started_at : null;
  return {
    step: stepText(progress),
    part: share(progress.step, progress.of),
    left: isKnown(begun) ? leftText({ at: begun, step: 0 }, progress, now) : '',
    numbers: Object.entries(progress.numbers ?? {})
      .slice(0, MOST_NUMBERS)
      .map(([name, value]) => `${name} ${figure(value)}`)
  };
}

/** At which step it is: "step 12 of 50, 24 %". */
export function stepText({ step, of }: Progress): string {
  return of
    ? `step ${step} of ${of}, ${Math.min(100, Math.floor((100 * step) / of))} %`
    : `step ${step}`;
}

/**
 * How long the rest takes at the rate between two reports. Empty where that is no rate, and where the next report is
 * overdue by so much that the rate holds no more.
 */
export function leftText(from: Pick<Progress, 'at' | 'step'>, to: Progress, now: number): string {
  const steps = to.step - from.step;
  const seconds = to.at - from.at;
  if (!to.of || to.step <= 0 || to.step >= to.of || steps <= 0 || seconds <= 0) {
    return '';
  }
  const rest = (seconds * (to.of - to.step)) / steps - Math.max(0, now - to.at);
  return rest > 0 ? `about ${roughly(rest)} left` : '';
}

/** A length that is an estimate, no finer than anybody can know. */
export function roughly(seconds: number): string {
  const step = seconds < MINUTE ? 10 : seconds < 2 * HOUR ? MINUTE : HOUR;
  return length(Math.max(step, Math.round(seconds / step) * step));
}

/** A number to three digits: "0.31", "1.2e-5". */
export function figure(value: number | null | undefined): string {
  if (!isKnown(value)) {
    return NO_NUMBER;
  }
  return Number.isInteger(value) && Math.abs(value) < 1e6
    ? String(value)
    : String(Number(value.toPrecision(3)));
}

/** One of the numbers that a job reports, from the first report to the last. */
export interface ICurve {
  readonly name: string;
  readonly values: readonly (number | null)[];
  readonly low: number;
  readonly high: number;
  /** "0.31 (0.28 to 2.3)". */
  readonly text: string;
}

/** The curves of an attempt, in the order in which it told of them; without what never was a number. */
export function curvesOf(items: readonly Progress[]): readonly ICurve[] {
  const names = new Set(items.flatMap(it => Object.keys(it.numbers ?? {})));
  return [...names].flatMap(name => {
    const values = items.map(it => it.numbers?.[name] ?? null);
    const known = values.filter(isKnown);
    const last = known[known.length - 1];
    if (last === undefined) {
      return [];
    }
    const low = Math.min(...known);
    const high = Math.max(...known);
    const span = low < high ? ` (${figure(low)} to ${figure(high)})` : '';
    return [{ name, values, low, high, text: figure(last) + span }];
  });
}

/** An attempt in a line: when, where, what made it leave or how it ended, what it had to do again. */
export function attemptText(it: AttemptView, devices: readonly DeviceView[], now: number): string {
  const since = when(it.started_at, now);
  const lasted = isKnown(it.ended_at)
    ? `${since}, for ${length(it.ended_at - it.started_at)}`
    : `since ${since}`;
  const repeated = it.repeated_seconds ?? 0;
  return [
    `${lasted} on ${gpus(it.devices ?? [], devices)}`,
    ...(isKnown(it.ended_at) ? [howItLeft(it)] : []),
    ...(repeated >= 1 ? [`${length(repeated)} of work repeated`] : [])
  ].join(', ');
}

function howItLeft(it: AttemptView): string {
  if (it.eviction) {
    const whom = isKnown(it.evicted_for) ? ` (number ${it.evicted_for} came first)` : '';
    return (it.eviction === 'preempted' ? 'preempted' : endWord(it.eviction)) + whom;
  }
  return it.outcome ? endWord(it.outcome.end) : 'over';
}

/** What tells a job of an array from the others: its parameters, which its owner sees, else its place. */
export function memberText(it: WorkloadView): string {
  const { member } = it;
  if (!member) {
    return '';
  }
  const words = Object.entries(member.parameters ?? {}).map(([name, text]) => `${name} ${text}`);
  return words.length ? words.join(', ') : `${member.index} of ${member.of}`;
}

/** The jobs of one array that a page shows. */
export interface IArray {
  readonly array: number;
  readonly name: string;
  readonly of: number;
  readonly members: readonly WorkloadView[];
}

/** A line of a list: a workload by itself, or an array. */
export type Entry =
  | { readonly it: WorkloadView; readonly array: null }
  | { readonly it: null; readonly array: IArray };

/** Fold the jobs of an array into one entry, where the first of them stands. */
export function entriesOf(works: readonly WorkloadView[]): readonly Entry[] {
  const arrays = new Map<number, WorkloadView[]>();
  const found: (WorkloadView | WorkloadView[])[] = [];
  for (const it of works) {
    const known = it.member ? arrays.get(it.member.array) : undefined;
    if (!it.member) {
      found.push(it);
    } else if (known) {
      known.push(it);
    } else {
      const members = [it];
      arrays.set(it.member.array, members);
      found.push(members);
    }
  }
  return found.map(one => (Array.isArray(one) ? arrayEntry(one) : { it: one, array: null }));
}

function arrayEntry(members: readonly WorkloadView[]): Entry {
  const [first] = members;
  const { array = 0, of = 0 } = first?.member ?? {};
  const name = first?.name || first?.command || '';
  const byPlace = [...members].sort((a, b) => a.id - b.id);
  return { it: null, array: { array, of, name, members: byPlace } };
}

/**
 * How an array stands: "2 run, 5 wait, 3 done of 10". `isWhole` tells whether all of it that lives is among its
 * members; else some more wait, and how many are done nobody knows here.
 */
export function arrayText({ members, of }: IArray, isWhole: boolean): string {
  const waits = members.filter(it => it.state === 'queued' && !it.paused).length;
  const paused = members.filter(it => it.state === 'queued' && it.paused).length;
  const runs = members.filter(it => it.state === 'active' || it.state === 'yielding').length;
  const done = of - members.filter(it => it.state !== 'ended').length;
  const parts = [
    ...(runs ? [`${runs} run`] : []),
    ...(waits ? [`${waits}${isWhole ? '' : ' or more'} wait`] : []),
    ...(paused ? [`${paused} paused`] : []),
    ...(done && isWhole ? [`${done} done`] : [])
  ];
  return `${parts.join(', ')} of ${of}`;
}

/** How ended jobs ended, in words: "3 succeeded, 1 failed". */
export function endsText(ended: readonly WorkloadView[]): string {
  const counts = new Map<string, number>();
  for (const it of ended) {
    counts.set(stateWord(it), (counts.get(stateWord(it)) ?? 0) + 1);
  }
  return [...counts].map(([word, count]) => `${count} ${word}`).join(', ');
}

/** What is asked before all of an array is cancelled. */
export function arrayLoss({ members, of }: IArray): string {
  const runs = members.filter(it => it.state === 'active' || it.state === 'yielding').length;
  const live = members.filter(it => it.state !== 'ended').length;
  const which = live < of ? `What is left of its ${plural(of, 'job')} ends` : 'All of it ends';
  return sentence(`${which}${runs ? `, ${runs} of them while running` : ''}. None comes back`);
}
