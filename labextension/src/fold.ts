/**
 * What a page knows, and how each message changes it. Pure: a new state for each change, parts that did not
 * change stay the same objects, so that whoever draws them can tell by identity.
 */
import type {
  CardView,
  Change,
  DeviceView,
  EvictionReason,
  Frame,
  IsolationView,
  KernelView,
  RecurringView,
  Status,
  WorkloadView
} from './types';

/**
 * How the page is connected: not yet; well; the broker is away; the Jupyter server does not answer; the page's
 * login is over; the server has no such extension.
 */
export type Link = 'connecting' | 'open' | 'away' | 'lost' | 'expired' | 'missing';

/** What is wrong, and what to do now. */
export interface Trouble {
  readonly message: string;
  readonly hint: string | null;
}

/** One moment of a device, for the small curve. */
export interface Moment {
  readonly at: number;
  readonly utilisation: number | null;
}

/** In which attempt a job was told to leave, and why. */
export interface ILeft {
  readonly attempt: number;
  readonly reason: EvictionReason;
}

/** Everything that the faces of this page show. */
export interface GpuState {
  readonly link: Link;
  readonly trouble: Trouble | null;
  /** The broker's document, kept up to date; null before the first. */
  readonly status: Status | null;
  readonly kernels: readonly KernelView[];
  /** Whether this server is kept from GPUs that are not its own; null where it says nothing of that. */
  readonly own: IsolationView | null;
  /** The caller's work that ended lately, newest first; reservations that were given back are gone. */
  readonly recent: readonly WorkloadView[];
  /** The caller's recurring jobs, the next to come first; none of a broker that knows nothing of such. */
  readonly recurring: readonly RecurringView[];
  /** Why the caller's live jobs had to leave their devices last, by number, as far as this page has seen it. */
  readonly left: Readonly<Record<number, ILeft>>;
  /** The last moments of each device and of each card of MIG devices, by UUID. */
  readonly history: Readonly<Record<string, readonly Moment[]>>;
  /** The alerts that were put away, by `markOf`: those of the same mark are shown no more. */
  readonly dismissed: readonly string[];
  /** The server's clock minus the browser's, in seconds. */
  readonly skew: number;
}

export const NOTHING: GpuState = {
  link: 'connecting',
  trouble: null,
  status: null,
  kernels: [],
  own: null,
  recent: [],
  recurring: [],
  left: {},
  history: {},
  dismissed: [],
  skew: 0
};

/** A burst of ends, such as that of a whole array, is told whole; the panel shows the newest few. */
export const MOST_RECENT = 200;
export const MOST_MOMENTS = 60;
/** After so long without a reading the curve begins anew: what was in between nobody saw. */
export const GAP_SECONDS = 30;

/** The state after a message; `now` is the browser's clock in Unix seconds. */
export function fold(state: GpuState, frame: Frame, now: number): GpuState {
  switch (frame.type) {
    case 'status':
      return foldStatus(state, frame.status, now);
    case 'change':
      return foldChange(state, frame.change, now);
    case 'kernels':
      return { ...state, kernels: frame.kernels };
    case 'server':
      return { ...state, own: frame.isolation };
    case 'broker':
      return frame.state === 'away'
        ? { ...state, link: 'away', trouble: { message: frame.message, hint: frame.hint ?? null } }
        : { ...state, link: 'open', trouble: null };
    default:
      // A newer server may say more.
      return state;
  }
}

/** Of which store and for whom a document is: what a page or a browser keeps of one is no other’s. */
export function whoseOf(status: Status | null): string {
  return status === null ? '' : `${status.store_id}:${status.caller}`;
}

function foldStatus(state: GpuState, status: Status, now: number): GpuState {
  // Another store has other workloads under the same numbers, and another person has other ones.
  const isSame = state.status === null || whoseOf(state.status) === whoseOf(status);
  const live = new Set(status.workloads.map(it => it.id));
  return {
    ...state,
    link: 'open',
    trouble: null,
    status,
    recent: isSame ? state.recent.filter(it => !live.has(it.id)) : [],
    recurring: isSame ? state.recurring : [],
    left: leaving(isSame ? state.left : {}, status.workloads),
    history: addMoments(isSame ? state.history : {}, [...status.devices, ...(status.cards ?? [])]),
    skew: status.at - now
  };
}

function foldChange(state: GpuState, change: Change, now: number): GpuState {
  if (change.status) {
    return foldStatus(state, change.status, now);
  }
  const { status } = state;
  if (status === null) {
    return state;
  }
  const { samples = [], cards = [] } = change;
  if (samples.length || cards.length) {
    return {
      ...state,
      status: {
        ...status,
        devices: readAll(status.devices, samples),
        // They are all told each time: one that has left MIG mode is none of them.
        cards
      },
      history: addMoments(state.history, [...samples, ...cards])
    };
  }
  if ((change.revision ?? status.revision) < status.revision) {
    // Older than the whole that came meanwhile.
    return state;
  }
  return foldWork(state, status, change);
}

function foldWork(state: GpuState, status: Status, change: Change): GpuState {
  const { changes = [], devices = [] } = change;
  const ended = changes.filter(it => it.state === 'ended' && it.is_mine && !isGivenBack(it));
  const isLine = typeof change.revision === 'number';
  return {
    ...state,
    status: {
      ...status,
      // What a line leaves out is empty; an answer to a request says nothing of these.
      ...(isLine ? { revision: change.revision ?? status.revision, ...wholes(change) } : {}),
      workloads: changes.length ? mergeWork(status.workloads, changes) : status.workloads,
      devices: devices.length ? mergeDevices(status.devices, devices) : status.devices
    },
    recent: ended.length ? addRecent(state.recent, ended) : state.recent,
    left: leaving(state.left, changes)
  };
}

/** Keep in mind why jobs leave: once they wait again they do not say it any more. */
function leaving(before: GpuState['left'], changes: readonly WorkloadView[]): GpuState['left'] {
  const told = changes.filter(it => it.is_mine && it.kind === 'job' && (it.notice ?? it.end));
  if (!told.length) {
    return before;
  }
  const left = new Map(Object.entries(before));
  for (const { id, attempt = 0, notice } of told) {
    if (notice) {
      left.set(String(id), { attempt, reason: notice.reason });
    } else {
      left.delete(String(id));
    }
  }
  return Object.fromEntries(left);
}

/** What each line of the stream has whole. */
function wholes(
  change: Change
): Pick<Status, 'quotas' | 'more_of_mine' | 'waiting' | 'warnings' | 'alerts'> {
  const { quotas = [], more_of_mine = 0, waiting = {}, warnings = [], alerts = [] } = change;
  return { quotas, more_of_mine, waiting, warnings, alerts };
}

/** The document shows one's own live work, and of others what holds devices. */
function mergeWork(
  before: readonly WorkloadView[],
  changes: readonly WorkloadView[]
): readonly WorkloadView[] {
  const merged = new Map(before.map(it => [it.id, it]));
  for (const it of changes) {
    if (it.state === 'queued' || merged.get(it.id)?.state !== it.state) {
      // Set anew, so that what waits stands in the order of the line. What runs keeps its place: it reports often.
      merged.delete(it.id);
    }
    const isShown = it.is_mine ? it.state !== 'ended' : !['ended', 'queued'].includes(it.state);
    if (isShown) {
      merged.set(it.id, it);
    } else {
      merged.delete(it.id);
    }
  }
  return [...merged.values()];
}

function mergeDevices(
  before: readonly DeviceView[],
  changes: readonly DeviceView[]
): readonly DeviceView[] {
  const changed = new Map(changes.map(it => [it.uuid, it]));
  const known = before.map(it => {
    const next = changed.get(it.uuid);
    changed.delete(it.uuid);
    if (!next) {
      return it;
    }
    return (next.sampled_at ?? 0) < (it.sampled_at ?? 0) ? read(next, it) : next;
  });
  return changed.size ? [...known, ...changed.values()] : known;
}

function readAll(
  devices: readonly DeviceView[],
  samples: readonly DeviceView[]
): readonly DeviceView[] {
  const read_ = new Map(samples.map(it => [it.uuid, it]));
  return devices.map(it => {
    const sample = read_.get(it.uuid);
    return sample ? read(it, sample) : it;
  });
}

/** A device with another's reading: a sample has no names and no uses, and what it leaves out could not be read. */
function read(device: DeviceView, sample: DeviceView): DeviceView {
  return {
    ...device,
    memory_total_bytes: sample.memory_total_bytes ?? device.memory_total_bytes,
    memory_used_bytes: sample.memory_used_bytes,
    memory_reserved_bytes: sample.memory_reserved_bytes,
    slowed_by: sample.slowed_by,
    utilisation_percent: sample.utilisation_percent,
    temperature_celsius: sample.temperature_celsius,
    power_watts: sample.power_watts,
    sampled_at: sample.sampled_at
  };
}

function addMoments(
  history: GpuState['history'],
  samples: readonly (DeviceView | CardView)[]
): GpuState['history'] {
  const next: Record<string, readonly Moment[]> = { ...history };
  for (const { uuid, sampled_at: at, utilisation_percent: percent } of samples) {
    if (typeof at !== 'number') {
      continue;
    }
    const before = next[uuid] ?? [];
    const last = before[before.length - 1]?.at ?? at;
    if (before.length && at <= last) {
      continue;
    }
    const kept = at - last > GAP_SECONDS ? [] : before.slice(1 - MOST_MOMENTS);
    next[uuid] = [...kept, { at, utilisation: percent ?? null }];
  }
  return next;
}

/** Whether it was a reservation that somebody gave back: nothing is left of it to look at. */
function isGivenBack(it: WorkloadView): boolean {
  return it.kind === 'reservation' && (it.end === 'cancelled' || it.end === 'released');
}

function addRecent(
  before: readonly WorkloadView[],
  ended: readonly WorkloadView[]
): readonly WorkloadView[] {
  const ids = new Set(ended.map(it => it.id));
  return [...ended, ...before.filter(it => !ids.has(it.id))]
    .sort((a, b) => (b.ended_at ?? 0) - (a.ended_at ?? 0) || b.id - a.id)
    .slice(0, MOST_RECENT);
}
