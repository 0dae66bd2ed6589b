/**
 * What a person should be told without looking, and which button helps. Pure: each notice has a key, and who
 * shows them remembers the keys, so that each is told once.
 */
import {
  areOf,
  endText,
  gpus,
  isBadEnd,
  isKnown,
  length,
  sentence,
  stateWord,
  title,
  when
} from './format';
import type { GpuState } from './fold';
import { isOfIdleness, kernelOf, markOf, openAlerts } from './select';
import type { AlertView, EvictionReason, WorkloadView } from './types';
import { endWord, plainText } from './words';

/** A button of a notice. */
export type Action = 'restart' | 'later' | 'extend' | 'keep' | 'release' | 'log' | 'panel';

/** One thing to tell. */
export interface Notice {
  readonly key: string;
  /** When it happened; null for what holds still, which is told again after a reload and taken back once over. */
  readonly at: number | null;
  readonly tone: 'info' | 'success' | 'warning' | 'error';
  readonly message: string;
  readonly actions: readonly Action[];
  readonly workload: number;
  /** The kernel that the buttons are about, if it is one's. */
  readonly kernel: string | null;
  /** Of trouble that lasts: which one, so that another under the same key is told too; empty for whatever it is. */
  readonly mark?: string;
  /** Whether it goes by itself although it is no good news: there is nothing to be done. */
  readonly fades?: boolean;
  /** Of a job of an array: which, and what happened in a word, so that all of them are told in one notice. */
  readonly array?: {
    readonly array: number;
    readonly name: string;
    readonly of: number;
    readonly what: string;
    readonly isEnd: boolean;
  };
}

/** The last minutes of a lease in which a warning goes out, the earlier first. */
export const WARN_SECONDS = [600, 120] as const;
/** A grant that took longer than this is told. */
const WAITED_SECONDS = 5;

/** All that is to be told of a state; the same as long as the state is. */
export function notices(state: GpuState, now: number): readonly Notice[] {
  const mine = state.status?.workloads.filter(it => it.is_mine) ?? [];
  const live = mine.flatMap(it => [
    ...[liveNotice(it, state, now)].filter(found => found !== null),
    ...troubleNotices(it, state)
  ]);
  const over = state.recent.filter(it => it.detail !== `cancelled by ${state.status?.caller}`);
  return [...live, ...over.map(it => endNotice(it, state.status?.caller ?? null))];
}

/** Whether it tells that a job went well, which may be told of several at once. */
export function isWellEnded(notice: Notice): boolean {
  return notice.tone === 'success' && notice.key.endsWith(' ended');
}

/** One notice for several jobs that went well, in place of the first's. */
export function together(first: Notice, count: number): Notice {
  return { ...first, message: `${count} jobs ended: all succeeded.`, actions: ['panel'] };
}

function liveNotice(it: WorkloadView, state: GpuState, now: number): Notice | null {
  if (it.kind === 'job') {
    // A job yields by itself and comes back; nobody has to do anything, and it is told when it has.
    return it.state === 'queued' ? againNotice(it, state) : null;
  }
  const kernel = it.holder?.kind === 'kernel' ? it.holder.name : null;
  const about = { at: null, workload: it.id, kernel };
  const names = gpus(it.devices ?? [], state.status?.devices ?? []);
  if (it.notice) {
    const by = when(it.notice.yield_by, now);
    const { reason, detail } = it.notice;
    // An operator's own words say more: who drained it, and why.
    const why = reason === 'drained' && detail ? detail : endWord(reason);
    return {
      key: `${it.id} notice ${reason}`,
      tone: 'warning',
      message: `${title(it)} must leave ${names} by ${by} (${why}). Save what is on the GPU.`,
      actions: ['release'],
      ...about
    };
  }
  if (it.state !== 'active') {
    return null;
  }
  const restart = kernel === null ? null : kernelOf(state, kernel)?.restart_needed;
  if (restart) {
    return {
      key: `${it.id} restart ${it.granted_at}`,
      tone: 'info',
      message: `${names} ${areOf(it.devices)} yours for ${title(it)}. ${plainText(sentence(restart))}`,
      actions: ['restart', 'later'],
      ...about
    };
  }
  return endingNotice(it, names, now, about) ?? grantNotice(it, names, now, about);
}

const PANEL: readonly Action[] = ['panel'];
const KEEP: readonly Action[] = ['keep', 'release'];

type About = Pick<Notice, 'at' | 'workload' | 'kernel'>;

/**
 * What the broker found of one's own work, in its words; else what it told the kernel. The latter says the same, and
 * comes and goes a few seconds apart from it, so both are one notice.
 */
function troubleNotices(it: WorkloadView, state: GpuState): readonly Notice[] {
  const kernel = it.holder?.kind === 'kernel' ? it.holder.name : null;
  const isAbout = (alert: AlertView): boolean =>
    isKnown(alert.workload)
      ? alert.workload === it.id
      : Boolean(alert.device && it.devices?.includes(alert.device));
  const found = openAlerts(state)
    .filter(isAbout)
    .map(alert => ({
      mark: markOf(alert),
      message: sentence(alert.text),
      actions: isOfIdleness(alert) ? KEEP : PANEL
    }));
  const told = kernel === null ? null : kernelOf(state, kernel)?.told;
  const all =
    found.length || !told
      ? found
      : [{ mark: '', message: `${title(it)}: ${sentence(told)}`, actions: PANEL }];
  return all.map((trouble, place) => ({
    ...trouble,
    key: `${it.id} trouble ${place}`,
    tone: 'warning',
    message: plainText(trouble.message),
    at: null,
    workload: it.id,
    kernel
  }));
}

/** Who had to wait has looked away. */
function grantNotice(it: WorkloadView, names: string, now: number, about: About): Notice | null {
  if (!isKnown(it.granted_at) || it.granted_at - it.submitted_at < WAITED_SECONDS) {
    return null;
  }
  return {
    ...about,
    key: `${it.id} granted ${it.granted_at}`,
    tone: 'success',
    message: `${names} ${areOf(it.devices)} yours for ${title(it)}, until ${when(it.ends_at, now)}.`,
    actions: [],
    at: it.granted_at
  };
}

function endingNotice(it: WorkloadView, names: string, now: number, about: About): Notice | null {
  if (!isKnown(it.ends_at)) {
    return null;
  }
  const rest = it.ends_at - now;
  const bought = it.ends_at - (it.granted_at ?? 0);
  // Who reserved five minutes knows that ten are not left.
  const warned = WARN_SECONDS.filter(seconds => rest <= seconds && bought > 1.5 * seconds).pop();
  if (warned === undefined || rest <= 0) {
    return null;
  }
  return {
    key: `${it.id} ends ${it.ends_at} ${warned}`,
    tone: 'warning',
    message: `${names} ${areOf(it.devices)} yours for ${length(Math.max(60, rest))} more: ${title(it)}.`,
    actions: ['extend', 'release'],
    ...about
  };
}

/** A job is in line again: it made room, or it is tried again. It does so by itself. */
function againNotice(it: WorkloadView, state: GpuState): Notice | null {
  const at = it.outcome?.ended_at;
  if (!it.attempt || !isKnown(at)) {
    return null;
  }
  const left = state.left[it.id];
  const reason = left?.attempt === it.attempt ? left.reason : null;
  const { what, said } = whyAgain(it, reason);
  return {
    key: `${it.id} again ${it.attempt}`,
    at,
    tone: it.paused ? 'warning' : 'info',
    message: `Job ${it.id} (${title(it)}) ${said}`,
    actions: ['log'],
    workload: it.id,
    kernel: null,
    fades: !it.paused,
    ...ofArray(it, what, false)
  };
}

function whyAgain(it: WorkloadView, reason: EvictionReason | null): { what: string; said: string } {
  const detail = it.detail ? `: ${plainText(it.detail).replace(/\.$/, '')}` : '';
  if (it.paused) {
    return { what: 'paused', said: `is paused${detail}.` };
  }
  if (reason === 'preempted') {
    return { what: 'made room', said: 'made room for others, and goes on by itself.' };
  }
  const hasFailed = reason === 'hung' || !(reason ?? it.outcome?.noticed);
  if (!hasFailed) {
    const why = reason === null ? '' : ` (${endWord(reason)})`;
    return { what: 'had to leave', said: `had to leave its GPU${why}, and goes on by itself.` };
  }
  return { what: 'tried again', said: `is tried again by itself${detail}.` };
}

function ofArray(it: WorkloadView, what: string, isEnd: boolean): Pick<Notice, 'array'> {
  return it.member
    ? { array: { array: it.member.array, name: title(it), of: it.member.of, what, isEnd } }
    : {};
}

function endNotice(it: WorkloadView, caller: string | null): Notice {
  const isJob = it.kind === 'job';
  const what = isJob ? `Job ${it.id} (${title(it)})` : `The reservation for ${title(it)}`;
  return {
    key: `${it.id} ended`,
    tone: isBadEnd(it) ? 'error' : it.end === 'succeeded' ? 'success' : 'info',
    message: `${what} ended: ${plainText(endText(it, caller))}.`,
    actions: isJob && (it.attempt ?? 0) > 0 ? ['log'] : [],
    at: it.ended_at ?? null,
    workload: it.id,
    kernel: null,
    ...ofArray(it, stateWord(it), true)
  };
}
