/** Words of a device: its number, what is wrong with it and what that means, who is on it, what of it is free. Pure. */
import { bytes, isKnown, partOf, title, when } from './format';
import type { CardView, Condition, DeviceView, UseKind, UseView, WorkloadView } from './types';

/** What people call it: "GPU 0", and "GPU 0:1" of a MIG device. */
export function nameOf(device: Pick<DeviceView, 'number'>): string {
  return `GPU ${device.number}`;
}

/** The maker says nothing that the rest of the name does not; under its card a MIG device is but its profile. */
export function short(it: Pick<DeviceView, 'name'>): string {
  return it.name.replace(/^NVIDIA /, '').replace(/^.* MIG (?=\d)/, 'MIG ');
}

interface Trouble {
  /** In a word or two. */
  readonly word: string;
  /** What follows from it. */
  readonly meaning: string;
}

const TROUBLES: Readonly<Record<Condition, Trouble>> = {
  lost: {
    word: 'lost',
    meaning: 'What ran there is over. Nobody gets it before it answers again.'
  },
  faulty: {
    word: 'faulty',
    meaning: 'Its hardware has failed. Nobody gets it before an operator says that it is well.'
  },
  'reset-needed': {
    word: 'needs a reset',
    meaning: 'What runs there runs on. It gets no new work before it is reset.'
  },
  prohibited: {
    word: 'closed to CUDA',
    meaning: 'Its compute mode lets no CUDA program in, until an operator changes that.'
  },
  unreadable: {
    word: 'cannot be read',
    meaning: 'Nothing is known of it, so nobody gets it before it can be read again.'
  },
  hot: {
    word: 'too hot',
    meaning: 'What runs there runs on. It gets no new work before it is cool.'
  },
  suspect: {
    word: 'busy with nobody on it',
    meaning: 'It gets no new work as long as it shows load that nobody makes.'
  },
  'not-clear': {
    word: 'not clear',
    meaning: 'It is free again by itself as soon as nothing is left on it.'
  },
  foreign: {
    word: 'used without a lease',
    meaning: 'It is free again by itself as soon as they have left.'
  }
};

const OUT_OF_SERVICE = 'An operator has taken it out of service';

/** Whether what runs on a device has been told to leave it, as far as that is known. */
function isDrained(device: DeviceView, works: readonly WorkloadView[]): boolean {
  return device.cordoned && works.some(it => it.notice?.reason === 'drained');
}

/** What becomes of what runs on a device out of service is said only where that is known. */
function outOfService(device: DeviceView, works: readonly WorkloadView[]): Trouble {
  if (isDrained(device, works)) {
    const who = works.every(it => it.is_mine) ? 'you have' : 'who holds it has';
    return { word: 'drained', meaning: `${OUT_OF_SERVICE}; ${who} been told to leave.` };
  }
  const runsOn = works.some(it => it.state === 'active') ? '; what runs there runs on' : '';
  return { word: 'cordoned', meaning: `${OUT_OF_SERVICE}${runsOn}.` };
}

/** Why nobody new gets a device; null where it is well. `works` are the workloads on it that are known. */
export function troubleOf(device: DeviceView, works: readonly WorkloadView[] = []): Trouble | null {
  if (device.condition) {
    // A newer broker may know more.
    const known: Partial<Record<string, Trouble>> = TROUBLES;
    const it = known[device.condition] ?? {
      word: device.condition,
      meaning: 'It gets no new work.'
    };
    if (isDrained(device, works)) {
      // What has been told to leave does not run on, whatever else is wrong.
      return { ...it, meaning: `${outOfService(device, works).meaning} It gets no new work.` };
    }
    return device.cordoned ? { ...it, meaning: `${it.meaning} It is cordoned, too.` } : it;
  }
  return device.cordoned ? outOfService(device, works) : null;
}

/** Who took it out of service and why, as far as that was said: "Cordoned by olga: new fans"; else empty. */
export function cordonText(device: DeviceView, works: readonly WorkloadView[] = []): string {
  const { cordon_reason: reason, cordoned_by: by } = device;
  if (!device.cordoned || !(reason || by)) {
    return '';
  }
  return `${isDrained(device, works) ? 'Drained' : 'Cordoned'}${by ? ` by ${by}` : ''}${reason ? `: ${reason}` : ''}`;
}

/** What of a shared device may still be leased; null where it is not shared, or that is not known. */
export function roomIn(device: DeviceView): number | null {
  const { memory_total_bytes: total, memory_used_bytes: used } = device;
  const kept = device.memory_reserved_bytes ?? 0;
  const isWhole = device.workloads?.length && !isKnown(device.memory_leased_bytes);
  if (!device.shareable || !isKnown(total) || isWhole) {
    return null;
  }
  const unleased = total - kept - (device.memory_leased_bytes ?? 0);
  return Math.max(0, isKnown(used) ? Math.min(unleased, total - kept - used) : unleased);
}

/** How a shared device is divided: "Shared: 20 of 80 GiB leased, 58.7 GiB free"; empty where it is not. */
export function sharedText(device: DeviceView): string {
  if (!device.shareable || (device.workloads?.length && !isKnown(device.memory_leased_bytes))) {
    return '';
  }
  const { memory_leased_bytes: leased, memory_total_bytes: total } = device;
  const room = roomIn(device);
  const free = room === null ? '' : `, ${bytes(room)} free`;
  return `Shared: ${partOf(leased ?? 0, total)} leased${free}`;
}

/** What stands behind the figure of the memory. */
export function memoryDetail(device: DeviceView): string {
  if (device.shares_host_memory) {
    return 'It has no memory of its own: what it uses is the system’s.';
  }
  const kept = device.memory_reserved_bytes;
  return [
    `${bytes(device.memory_used_bytes)} used`,
    ...(isKnown(kept) ? [`${bytes(kept)} kept by the driver`] : []),
    `${bytes(device.memory_total_bytes)} in all`
  ].join(', ');
}

/**
 * Who holds a device until when: "ada until 14:05"; of one's own work its name. `works` are the workloads on it. The
 * end of a job is but expected.
 */
export function holding(device: DeviceView, works: readonly WorkloadView[], now: number): string {
  if (!device.workloads?.length) {
    return '';
  }
  const mine = works.filter(it => it.is_mine);
  const others = device.holders ?? [];
  const names = mine.length ? mine.map(title) : others.length ? others : ['In use'];
  // What was bought where all of it is known; else when the device is expected back, which includes the grace.
  const ends = works.map(it => it.ends_at).filter(isKnown);
  const isBought = ends.length === works.length;
  const end = isBought && ends.length ? Math.max(...ends) : device.free_at;
  if (!isKnown(end) || end <= now) {
    return names.join(', ');
  }
  return `${names.join(', ')}${isBought ? ' until' : ', expected until'} ${when(end, now)}`;
}

/** How many are on a device, and how many of them have no lease of it: "3 processes, 1 of them without a lease". */
export function processesText(uses: readonly UseView[]): string {
  const foreign = uses.filter(it => it.foreign).length;
  const all = uses.length === 1 ? '1 process' : `${uses.length} processes`;
  if (!foreign) {
    return all;
  }
  return foreign === uses.length
    ? `${all} without a lease`
    : `${all}, ${foreign} of them without a lease`;
}

const WHOSE: Readonly<Record<Exclude<UseKind, 'holder'>, string>> = {
  astray: 'outside its reservation',
  kernel: 'a kernel without a lease',
  container: 'a container without a lease',
  user: 'without a lease',
  system: 'the machine’s own',
  dead: 'has ended, its memory is still counted',
  unknown: 'whose it is cannot be told here'
};

/** By what right a process is on a device, or that it is there by none; `works` are those that the caller may see. */
export function rightOf(use: UseView, works: readonly WorkloadView[]): string {
  const it = works.find(known => known.id === use.workload);
  const work = it?.is_mine ? title(it) : isKnown(use.workload) ? `workload ${use.workload}` : '';
  const places = placesOf(use);
  if (use.kind === 'holder') {
    return [work || 'holds it', ...places].join(', ');
  }
  // Eight characters of a kernel's id tell it from others.
  const where = (use.where ?? '').replace(/^(kernel [\da-f]{8})-[\da-f-]+$/, '$1');
  // A newer broker may know more.
  const known: Partial<Record<string, string>> = WHOSE;
  const found = [work, where, ...places].filter(Boolean).join(', ');
  return [known[use.kind] ?? use.kind, found].filter(Boolean).join(': ');
}

/** Under a hub, where it is. One's usual server is not worth a word; whose it says it is, is its own word. */
function placesOf(use: UseView): readonly string[] {
  return [
    use.server ? `server ${use.server}` : '',
    use.notebook ? `notebook ${use.notebook}` : '',
    use.claim ? `by its own word of ${use.claim}` : ''
  ].filter(Boolean);
}

/** One process in words: "python (4711) · grace · 7.6 GiB · job 12". */
export function processText(use: UseView, works: readonly WorkloadView[]): string {
  const name = use.name ? `${use.name} (${use.pid})` : `process ${use.pid}`;
  const parts = [name, use.owner ?? use.user ?? '', bytes(use.memory_bytes), rightOf(use, works)];
  return parts.filter(Boolean).join(' · ');
}

/** A device by itself, or a card and its MIG devices. */
export interface Group {
  readonly card: CardView | null;
  readonly devices: readonly DeviceView[];
}

/** The devices as people number them, the MIG devices under their cards. */
export function grouped(
  devices: readonly DeviceView[],
  cards: readonly CardView[] = []
): readonly Group[] {
  // A card that has left MIG mode is a device of the same name.
  const whole = new Set(devices.filter(it => it.condition !== 'lost').map(it => it.uuid));
  const shown = cards.filter(it => !whole.has(it.uuid));
  const known = new Set(shown.map(it => it.uuid));
  const groups: (Group & { place: number })[] = [
    ...shown.map(card => ({
      card,
      devices: devices.filter(it => it.card === card.uuid),
      place: card.index
    })),
    ...devices
      .filter(it => !known.has(it.card ?? ''))
      .map(it => ({ card: null, devices: [it], place: Number(it.number.split(':')[0]) }))
  ];
  return groups.sort((a, b) => a.place - b.place);
}
