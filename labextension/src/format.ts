/**
 * Words for people. Pure: the same words for the same arguments, and "now" is an argument.
 *
 * What is not known reads "n/a", never 0, which would be a measurement.
 */
import type { DeviceView, QuotaView, WaitingReason, WorkloadView } from './types';
import { endWord } from './words';

export const MISSING = 'n/a';

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
const WEEKDAYS = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;

const WAITS: Readonly<Record<WaitingReason, string>> = {
  devices: 'no GPU is free',
  quota: 'your quota is held',
  budget: 'your GPU hours are used',
  hold: 'GPUs are on hold',
  paused: 'paused',
  dependency: 'waits for other work',
  'not-before': 'not yet its time',
  'back-off': 'it failed, it tries again',
  clearing: 'a GPU is being made free',
  engine: 'there is no such GPU now',
  driver: 'no GPU can be read'
};
/** What reads otherwise of others' work. */
const THEIR_WAITS: Partial<typeof WAITS> = {
  quota: 'their quota is held',
  budget: 'their GPU hours are used'
};

/** Whether it is a number that was measured. */
export function isKnown(value: number | null | undefined): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** An amount in its largest binary unit, to one decimal: "71.3 GiB". */
export function bytes(size: number | null | undefined): string {
  if (!isKnown(size)) {
    return MISSING;
  }
  const unit = unitOf(size);
  return `${inUnit(size, unit)} ${UNITS[unit]}`;
}

/** Used and total memory in the unit of the total: "61.2 / 80 GiB". */
export function memory(it: Pick<DeviceView, 'memory_used_bytes' | 'memory_total_bytes'>): string {
  return partOf(it.memory_used_bytes, it.memory_total_bytes, ' / ');
}

/** A part and its whole in the unit of the whole: "20 of 80 GiB". */
export function partOf(
  part: number | null | undefined,
  whole: number | null | undefined,
  between = ' of '
): string {
  if (!isKnown(whole)) {
    return bytes(part);
  }
  const unit = unitOf(whole);
  const amount = isKnown(part) ? inUnit(part, unit) : MISSING;
  return `${amount}${between}${inUnit(whole, unit)} ${UNITS[unit]}`;
}

function unitOf(size: number): number {
  let unit = 0;
  // The next unit is due as soon as this one would read 1024.
  while (unit < UNITS.length - 1 && Number((Math.abs(size) / 1024 ** unit).toFixed(1)) >= 1024) {
    unit += 1;
  }
  return unit;
}

function inUnit(size: number, unit: number): string {
  return (size / 1024 ** unit).toFixed(1).replace(/\.0$/, '');
}

/** The part of a whole from 0 to 1, or null where either is unknown. */
export function share(
  part: number | null | undefined,
  whole: number | null | undefined
): number | null {
  if (!isKnown(part) || !isKnown(whole) || whole <= 0) {
    return null;
  }
  return Math.min(1, Math.max(0, part / whole));
}

/** A length of time in its two largest units: "1 h 12 min", "45 s", "2 d 3 h". */
export function length(seconds: number | null | undefined): string {
  if (!isKnown(seconds)) {
    return MISSING;
  }
  const whole = Math.max(0, Math.round(seconds));
  if (whole < MINUTE) {
    return `${whole} s`;
  }
  if (whole < HOUR) {
    return `${Math.floor(whole / MINUTE)} min`;
  }
  if (whole < DAY) {
    return joined(Math.floor(whole / HOUR), 'h', Math.floor((whole % HOUR) / MINUTE), 'min');
  }
  return joined(Math.floor(whole / DAY), 'd', Math.floor((whole % DAY) / HOUR), 'h');
}

function joined(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return `${large} ${largeUnit}` + (small ? ` ${small} ${smallUnit}` : '');
}

/** How long something still lasts: "1 h 12 min", then "less than a minute", then "time is over". */
export function timeLeft(until: number | null | undefined, now: number): string {
  if (!isKnown(until)) {
    return 'no end';
  }
  const rest = until - now;
  if (rest <= 0) {
    return 'time is over';
  }
  return rest < MINUTE ? 'less than a minute' : length(Math.round(rest / MINUTE) * MINUTE);
}

/** How long ago something was: "just now", "12 min ago". */
export function ago(at: number | null | undefined, now: number): string {
  if (!isKnown(at)) {
    return MISSING;
  }
  return now - at < MINUTE ? 'just now' : `${length(now - at)} ago`;
}

/** An instant as people say it now: "14:05", "tomorrow 14:05", "Thu 14:05", "2026-12-24 14:05". */
export function when(at: number | null | undefined, now: number): string {
  if (!isKnown(at)) {
    return MISSING;
  }
  const then = new Date(at * 1000);
  const clock = `${two(then.getHours())}:${two(then.getMinutes())}`;
  const days = Math.round((midnight(then) - midnight(new Date(now * 1000))) / (DAY * 1000));
  if (days === 0) {
    return clock;
  }
  if (days === 1 || days === -1) {
    return `${days === 1 ? 'tomorrow' : 'yesterday'} ${clock}`;
  }
  // The day a week from now would have today's name.
  if (days > 1 && days < WEEKDAYS.length) {
    return `${WEEKDAYS[then.getDay()]} ${clock}`;
  }
  return `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())} ${clock}`;
}

function midnight(date: Date): number {
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}

function two(number: number): string {
  return String(number).padStart(2, '0');
}

/** "1 GPU", "2 GPUs". */
export function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? '' : 's'}`;
}

/** "1st", "2nd", "11th". */
export function ordinal(number: number): string {
  const tens = number % 100;
  const ending = tens > 10 && tens < 14 ? 'th' : (['th', 'st', 'nd', 'rd'][number % 10] ?? 'th');
  return `${number}${ending}`;
}

/** A place in line; `ahead` counts those before: "1st in line". */
export function place(ahead: number | null | undefined): string {
  return isKnown(ahead) ? `${ordinal(ahead + 1)} in line` : 'in line';
}

/** When a wait is expected to end: "14:05 to 16:30", "about 14:05"; empty where nobody knows until when. */
export function expected(it: WorkloadView, now: number): string {
  const [from, until] = [it.expected_start_from, it.expected_start_until];
  if (!isKnown(from) || !isKnown(until)) {
    return isKnown(it.expected_start_at) ? `about ${when(it.expected_start_at, now)}` : '';
  }
  const [first, last] = [when(from, now), when(until, now)];
  if (first === last) {
    return `about ${first}`;
  }
  // The day is said once.
  const day = last.slice(0, last.lastIndexOf(' ') + 1);
  return `${first} to ${day && first.startsWith(day) ? last.slice(day.length) : last}`;
}

/** Devices as people name them, "GPU 0, 2"; one that is not here by its UUID. */
export function gpus(uuids: readonly string[], devices: readonly DeviceView[]): string {
  const numbers = new Map(devices.map(device => [device.uuid, device.number]));
  const known = uuids.filter(uuid => numbers.has(uuid)).map(uuid => numbers.get(uuid));
  const strange = uuids.filter(uuid => !numbers.has(uuid));
  const parts = known.length ? [`GPU ${known.join(', ')}`, ...strange] : strange;
  return parts.join(', ') || 'no GPU';
}

/** "is" or "are", as fits what `gpus` says of so many devices. */
export function areOf(uuids: readonly string[] | undefined): string {
  return (uuids?.length ?? 0) > 1 ? 'are' : 'is';
}

/** What a workload is called: its name, else what it runs, else its kind and number. */
export function title(it: WorkloadView): string {
  return it.name || it.command || `${it.kind === 'job' ? 'Job' : 'Reservation'} ${it.id}`;
}

/** Where a workload stands, in a word. */
export function stateWord(it: WorkloadView): string {
  if (it.state === 'queued') {
    return it.paused ? 'paused' : 'waiting';
  }
  if (it.state === 'active') {
    return it.kind === 'job'
      ? isKnown(it.started_at)
        ? 'running'
        : 'starting'
      : it.is_mine
        ? 'yours'
        : 'in use';
  }
  if (it.state === 'yielding') {
    return it.notice ? 'yielding' : 'clearing';
  }
  return endWord(it.end ?? 'ended');
}

/**
 * A sentence: why it waits or how it stands. The broker's own sentence names commands of the terminal; here
 * buttons stand in their place.
 */
export function why(it: WorkloadView, caller: string | null = null): string {
  const said = (it.reason ?? '').replace(
    / ?(?:(?:Leave the line|Let it go) with `jupyter gpu [^`]*`(?: \([^)]*\))?\.|`jupyter gpu amend [^`]*` lets it start[^.]*\.)/g,
    ''
  );
  if (said.trim()) {
    return sentence(said);
  }
  if (it.state === 'queued') {
    const words = it.is_mine ? WAITS : { ...WAITS, ...THEIR_WAITS };
    if (it.waiting === 'dependency' && !it.paused && it.unmet?.length) {
      // Of a long line only the first are explained in full.
      return sentence(`waits for ${it.unmet.join(', ')}`);
    }
    const waits = it.paused ? words.paused : it.waiting ? words[it.waiting] : 'waits';
    return sentence(waits);
  }
  return it.state === 'ended' ? sentence(endText(it, caller)) : '';
}

/** A toast shows so many characters. */
const TOAST_LENGTH = 140;

/** What is said once of an ask that has to wait: the place, and why as far as a toast has room. */
export function waitText(it: WorkloadView, now: number): string {
  const then = expected(it, now);
  const first = `You are ${place(it.ahead)}${then && `, expected ${then}`}.`;
  // The sentence that says why comes first; the place and the time were just said.
  const [reason = ''] = /^.*?[.](?=\s|$)/.exec(why(it)) ?? [];
  const both = reason.startsWith('You are ') ? first : `${first} ${reason}`.trim();
  return both.length > TOAST_LENGTH ? first : both;
}

/** Begin with a capital and end with a full stop. */
export function sentence(text: string): string {
  const plain = text.trim();
  if (!plain) {
    return '';
  }
  return plain.charAt(0).toUpperCase() + plain.slice(1) + (/[.!?:]$/.test(plain) ? '' : '.');
}

/** Who did it, as the caller reads it: "cancelled by you". */
export function byYou(text: string, caller: string | null): string {
  const said = text.replace(/\.$/, '');
  const isOwn = caller !== null && said.endsWith(`by ${caller}`);
  return isOwn ? `${said.slice(0, -caller.length)}you` : text;
}

/** How it ended and why, said once: "cancelled by ada", "failed (exit code 3)"; `caller` reads "you". */
export function endText(it: WorkloadView, caller: string | null = null): string {
  const end = it.end ?? 'ended';
  const detail = byYou(it.detail ?? '', caller).replace(/\.$/, '');
  if (!detail || detail === end || (end === 'succeeded' && detail === 'exit code 0')) {
    return endWord(end);
  }
  return detail.startsWith(`${end} `) ? detail : `${endWord(end)} (${detail})`;
}

/** Whether an end is one that its owner would rather not have had. */
export function isBadEnd(it: WorkloadView): boolean {
  return !['succeeded', 'released', 'cancelled', 'expired'].includes(it.end ?? '');
}

/** The few facts under a workload: its devices and time, its place and expected start, or when it ended. */
export function facts(
  it: WorkloadView,
  devices: readonly DeviceView[],
  now: number
): readonly string[] {
  if (it.state === 'ended') {
    return [`ended ${when(it.ended_at, now)}`];
  }
  if (it.state === 'queued') {
    const parts = [plural(it.ask.devices ?? 1, 'GPU')];
    // What waits for other work passes nobody by, and nobody passes it by.
    if (isKnown(it.ahead) && !it.paused && it.waiting !== 'dependency') {
      parts.push(place(it.ahead));
    }
    const then = expected(it, now);
    if (then) {
      parts.push(then);
    }
    return [...parts, ...attemptsText(it)];
  }
  const parts = [gpus(it.devices ?? [], devices), ...attemptsText(it)];
  if (it.notice) {
    parts.push(`yields by ${when(it.notice.yield_by, now)}`);
  } else if (it.overtime) {
    parts.push('overtime');
  } else if (it.state === 'active' && isKnown(it.ends_at)) {
    parts.push(`${timeLeft(it.ends_at, now)} left, until ${when(it.ends_at, now)}`);
  }
  return parts;
}

/** What became of a job's attempts, if one is not all: "attempt 3, 2 preemptions, 4 min of work repeated". */
export function attemptsText(it: WorkloadView): readonly string[] {
  const attempt = it.attempt ?? 0;
  const isAgain = it.kind === 'job' && attempt > (it.state === 'queued' ? 0 : 1);
  if (!isAgain) {
    return [];
  }
  const { preemptions = 0, failures = 0, repeated_seconds: repeated = 0 } = it;
  const parts = [
    it.state === 'queued' ? `${plural(attempt, 'attempt')} so far` : `attempt ${attempt}`,
    ...(preemptions ? [plural(preemptions, 'preemption')] : []),
    ...(failures ? [plural(failures, 'failure')] : []),
    ...(repeated >= 1 ? [`${length(repeated)} of work repeated`] : [])
  ];
  return [parts.join(', ')];
}

/** One bound of a quota as words and, where it can be drawn, as a part of the whole. */
export interface Bound {
  readonly label: string;
  readonly text: string;
  readonly left: string;
  readonly part: number | null;
}

/** What is held or used of a quota, and what is left. */
export function bounds(quota: QuotaView, now: number): readonly Bound[] {
  const found: Bound[] = [];
  const again = isKnown(quota.available_again_at)
    ? `, more at ${when(quota.available_again_at, now)}`
    : '';
  if (isKnown(quota.devices_allowed)) {
    const held = quota.devices_held ?? 0;
    found.push({
      label: quota.rule,
      text: `${held} of ${plural(quota.devices_allowed, 'GPU')}`,
      left: `${Math.max(0, quota.devices_allowed - held)} left`,
      part: share(held, quota.devices_allowed)
    });
  }
  if (isKnown(quota.memory_allowed_bytes)) {
    const held = quota.memory_held_bytes ?? 0;
    found.push({
      label: quota.rule,
      text: `${bytes(held)} of ${bytes(quota.memory_allowed_bytes)} of shared GPUs`,
      left: `${bytes(Math.max(0, quota.memory_allowed_bytes - held))} left`,
      part: share(held, quota.memory_allowed_bytes)
    });
  }
  if (isKnown(quota.allowed_ms)) {
    const used = quota.used_ms ?? 0;
    found.push({
      label: quota.rule,
      text: `${hours(used)} of ${hours(quota.allowed_ms)} GPU h`,
      left: `${hours(Math.max(0, quota.allowed_ms - used))} h left${again}`,
      part: share(used, quota.allowed_ms)
    });
  }
  return found;
}

function hours(ms: number): string {
  return (ms / 3_600_000).toFixed(1).replace(/\.0$/, '');
}
