/** Questions to the state that several faces ask. Pure. */
import { roomIn, troubleOf } from './devicewords';
import { bytes, expected, gpus, isKnown, place, plural, timeLeft, title, when } from './format';
import type { GpuState } from './fold';
import type { AlertView, DeviceView, KernelView, Status, WorkloadView } from './types';

/** The caller's own live work: what needs attention first, then what runs, then what waits in its order of the line. */
export function myWork(status: Status): readonly WorkloadView[] {
  const rank = (it: WorkloadView): number =>
    ({ yielding: 0, active: it.kind === 'reservation' ? 1 : 2, queued: 3, ended: 4 })[it.state];
  return status.workloads
    .filter(it => it.is_mine && !isForLater(it))
    .sort((a, b) => rank(a) - rank(b));
}

/** Whether it is a reservation for later whose time has not come: it is in no line. */
export function isForLater(it: WorkloadView): boolean {
  return it.kind === 'reservation' && it.state === 'queued' && it.waiting === 'not-before';
}

/** The workloads on a device, as far as they may be seen. */
export function worksOn(device: DeviceView, status: Status): readonly WorkloadView[] {
  return status.workloads.filter(it => it.devices?.includes(device.uuid));
}

/** Whether a device could be granted whole now. */
export function isFree(device: DeviceView): boolean {
  return troubleOf(device) === null && !device.workloads?.length;
}

/** How many of some devices are free: "2 of 4 free". */
export function freeText(devices: readonly DeviceView[]): string {
  return `${devices.filter(isFree).length} of ${devices.length} free`;
}

/** Whether a device, or of a shared one so much memory, could be granted now. */
function isFreeFor(device: DeviceView, memory: number): boolean {
  return memory ? troubleOf(device) === null && (roomIn(device) ?? 0) >= memory : isFree(device);
}

/** Whether it is a MIG device: CUDA lets a process use one of them, and no more. */
export function isPart(device: DeviceView): boolean {
  return Boolean(device.card) || device.uuid.startsWith('MIG-');
}

/** The alerts that were not put away. */
export function openAlerts(state: GpuState): readonly AlertView[] {
  return (state.status?.alerts ?? []).filter(it => !state.dismissed.includes(markOf(it)));
}

/** What tells an alert from what it becomes: figures alone, such as a temperature that moves, make no other. */
export function markOf(it: AlertView): string {
  return `${it.key} ${it.since} ${it.text.replace(/[\d.]+/g, '#')}`;
}

/** Whether it warns of a reservation that is idle, which can be kept. */
export function isOfIdleness(it: AlertView): boolean {
  return it.key.startsWith('idle:') && isKnown(it.workload);
}

/** A class of devices, and what of it is here. */
export interface ClassHere {
  readonly name: string;
  /** "2 of 4 free". */
  readonly text: string;
  /** It is one of MIG devices, which are reserved one by one. */
  readonly isSingle: boolean;
}

/** The device classes that are here, each once. */
export function classes(status: Status): readonly ClassHere[] {
  const names = [...new Set(status.devices.map(it => it.device_class))].sort();
  return names.map(name => {
    const kin = status.devices.filter(it => it.device_class === name);
    const isSingle = kin.every(isPart);
    const free = freeText(kin);
    return { name, text: isSingle ? `${free}, one at a time` : free, isSingle };
  });
}

/** The queues that jobs may enter, as far as their names tell. */
export function jobQueues(status: Status): readonly string[] {
  return Object.keys(status.waiting).filter(name => name !== 'interactive');
}

/** The live reservation of a kernel: what the server says of it, else what the broker says of its holder. */
export function reservationOf(state: GpuState, kernelId: string): WorkloadView | null {
  const mine = state.status?.workloads.filter(it => it.is_mine && it.kind === 'reservation') ?? [];
  const number = kernelOf(state, kernelId)?.workload;
  const isIts = (it: WorkloadView): boolean =>
    it.id === number || (it.holder?.kind === 'kernel' && it.holder.name === kernelId);
  return mine.find(isIts) ?? null;
}

/** What the server says of a kernel. */
export function kernelOf(state: GpuState, kernelId: string): KernelView | null {
  return state.kernels.find(it => it.kernel_id === kernelId) ?? null;
}

/** How a kernel stands to the GPUs. */
export type Standing = 'none' | 'waiting' | 'pinned' | 'restart' | 'yielding' | 'server' | 'away';

/** The GPU of one kernel in a few words. */
export interface KernelGpu {
  readonly standing: Standing;
  readonly label: string;
  readonly caption: string;
  readonly workload: WorkloadView | null;
}

/** What the toolbar of a notebook says of its kernel. */
export function kernelGpu(state: GpuState, kernelId: string | null, now: number): KernelGpu {
  const it = kernelId === null ? null : reservationOf(state, kernelId);
  const kernel = kernelId === null ? null : kernelOf(state, kernelId);
  const devices = state.status?.devices ?? [];
  if (state.status === null) {
    const caption = state.trouble?.message ?? 'The GPUs of this server are not known yet.';
    return { standing: 'away', label: 'GPU n/a', caption, workload: null };
  }
  if (kernelId === null) {
    const caption = 'No kernel runs here. Start one to reserve a GPU for it.';
    return { standing: 'none', label: 'No GPU', caption, workload: null };
  }
  if (it === null) {
    return unreserved(kernel, devices);
  }
  const names = gpus(it.devices ?? [], devices);
  if (it.state === 'queued') {
    const then = expected(it, now);
    return {
      standing: 'waiting',
      label: `Waiting: ${place(it.ahead)}`,
      caption: `This kernel waits for ${plural(it.ask.devices ?? 1, 'GPU')}.${then && ` Expected ${then}.`}`,
      workload: it
    };
  }
  if (it.state === 'yielding') {
    const label = it.notice ? `${names} · save now` : `${names} · released`;
    return { standing: 'yielding', label, caption: it.reason ?? '', workload: it };
  }
  if (kernel?.restart_needed) {
    return {
      standing: 'restart',
      label: `Restart to use ${names}`,
      caption: kernel.restart_needed,
      workload: it
    };
  }
  if (!kernel?.pinned) {
    // The lease is there a moment before the process is, and before the server has said anything of the kernel: nobody
    // shall start a cell on a GPU it does not see yet.
    return {
      standing: 'waiting',
      label: `${names} · pinning`,
      caption: `${names} is reserved for this kernel, which is about to see it.`,
      workload: it
    };
  }
  const left = it.overtime ? 'overtime' : timeLeft(it.ends_at, now);
  return {
    standing: 'pinned',
    label: `${names} · ${left}`,
    caption: `This kernel sees ${names} only.`,
    workload: it
  };
}

function unreserved(kernel: KernelView | null, devices: readonly DeviceView[]): KernelGpu {
  if (kernel?.pinned && kernel.devices?.length) {
    const names = gpus(kernel.devices, devices);
    return {
      standing: 'server',
      label: names,
      caption: `This kernel sees ${names}, which the server holds.`,
      workload: null
    };
  }
  return {
    standing: 'none',
    label: 'No GPU',
    caption: 'This kernel sees no GPU. Reserve one here.',
    workload: null
  };
}

/**
 * What the status bar says: how the notebook in front stands, else one's own lease and whose it is, then one's place
 * in line, else what is free. `kernelId` is the kernel of the notebook in front.
 */
export function summary(state: GpuState, now: number, kernelId: string | null): string {
  if (state.status === null || state.link !== 'open') {
    return state.link === 'connecting' ? 'GPUs' : 'GPUs: away';
  }
  const { devices } = state.status;
  const front = kernelId === null ? null : reservationOf(state, kernelId);
  if (front) {
    return front.state === 'queued' ? `GPU: ${place(front.ahead)}` : lease(front, devices, now);
  }
  const mine = myWork(state.status).filter(it => it.kind === 'reservation');
  const held = mine.find(it => it.state === 'active' || it.state === 'yielding');
  if (held) {
    return `${title(held)}: ${lease(held, devices, now)}`;
  }
  const waits = mine[0];
  if (waits) {
    return `${title(waits)}: ${place(waits.ahead)}`;
  }
  if (!devices.length) {
    return 'No GPU';
  }
  return `${devices.filter(isFree).length} of ${plural(devices.length, 'GPU')} free`;
}

function lease(it: WorkloadView, devices: readonly DeviceView[], now: number): string {
  return `${gpus(it.devices ?? [], devices)} · ${lasting(it, now)}`;
}

function lasting(it: WorkloadView, now: number): string {
  if (it.notice) {
    return `yields by ${when(it.notice.yield_by, now)}`;
  }
  return it.overtime ? 'overtime' : timeLeft(it.ends_at, now);
}

/** Kernels that hold GPUs; what only waits stands under one's own work. */
export function kernelsWithGpus(state: GpuState): readonly KernelView[] {
  return state.kernels.filter(it => {
    const standing = reservationOf(state, it.kernel_id)?.state ?? 'queued';
    return (it.devices ?? []).length > 0 || standing !== 'queued';
  });
}

/** What tells a reservation from another of the same name: its notebook's path, else its kernel; empty if nothing. */
export function apart(it: WorkloadView, state: GpuState): string {
  const twins = state.status?.workloads.filter(other => other.is_mine && other.name === it.name);
  if (it.holder?.kind !== 'kernel' || (twins?.length ?? 0) < 2) {
    return '';
  }
  const path = (of: WorkloadView): string | null =>
    (of.holder?.kind === 'kernel' && kernelOf(state, of.holder.name)?.notebook) || null;
  const own = path(it);
  const isAlone = !twins?.some(other => other.id !== it.id && path(other) === own);
  return own !== null && isAlone ? own : `kernel ${it.holder.name.slice(0, 8)}`;
}

/**
 * The memory that a kernel holds on its devices: that of its processes, as far as they are known, else all that is in
 * use on what it holds alone. Null where neither is known.
 */
export function memoryOf(kernel: KernelView, status: Status | null): number | null {
  const held = (status?.devices ?? [])
    .filter(it => kernel.devices?.includes(it.uuid))
    .map(it => memoryOn(it, kernel.workload))
    .filter(isKnown);
  return held.length ? held.reduce((sum, used) => sum + used, 0) : null;
}

function memoryOn(device: DeviceView, workload: number | null | undefined): number | null {
  const own = (device.uses ?? []).filter(it => it.kind === 'holder' && it.workload === workload);
  const known = own.map(it => it.memory_bytes).filter(isKnown);
  if (isKnown(workload) && known.length) {
    return known.reduce((sum, used) => sum + used, 0);
  }
  const isAlone = !isKnown(device.memory_leased_bytes) && !device.uses?.some(it => it.foreign);
  return isAlone ? (device.memory_used_bytes ?? null) : null;
}

/** Whether none of a kernel's devices shows load; those of which it is not known show none. */
export function isAtRest(kernel: KernelView, status: Status | null): boolean {
  return !(status?.devices ?? []).some(
    it => kernel.devices?.includes(it.uuid) && (it.utilisation_percent ?? 0) > 0
  );
}

/** What is asked for, as far as it decides which devices may be granted. */
export interface Wanted {
  readonly count: number;
  readonly deviceClass: string | null;
  /** A part of the memory of each; 0 for whole devices. */
  readonly memory: number;
}

/** The devices that could serve an ask, were they free. */
function kinOf(status: Status, wanted: Wanted): readonly DeviceView[] {
  const { count, deviceClass, memory } = wanted;
  return status.devices.filter(
    it =>
      (deviceClass === null || it.device_class === deviceClass) &&
      (count === 1 || !isPart(it)) &&
      (!memory || (it.shareable === true && (it.memory_total_bytes ?? 0) >= memory))
  );
}

/** Why an ask can never be met here; empty where it can. */
export function lack(status: Status, wanted: Wanted): string {
  const { count, deviceClass, memory } = wanted;
  const kin = kinOf(status, wanted).length;
  if (kin >= count) {
    return '';
  }
  if (count > 1 && kinOf(status, { ...wanted, count: 1 }).length >= count) {
    const whole = kin
      ? `, and there ${kin === 1 ? 'is' : 'are'} only ${plural(kin, 'whole GPU')}`
      : '';
    return `A program can use one MIG device at a time${whole}.`;
  }
  const such = deviceClass === null && !memory ? 'GPU' : 'such GPU';
  const shared = memory ? ` that is shared and has ${bytes(memory)}` : '';
  return kin
    ? `There ${kin === 1 ? 'is' : 'are'} only ${plural(kin, such)} here${shared}.`
    : `There is no ${such} here${shared}.`;
}

/** What asking would come to, said before it is asked. */
export function outlook(status: Status, wanted: Wanted, now: number): string {
  const lacks = lack(status, wanted);
  if (lacks) {
    return lacks;
  }
  const { count, memory } = wanted;
  const kin = kinOf(status, wanted);
  const free = kin.filter(it => isFreeFor(it, memory));
  const line = status.waiting.interactive ?? 0;
  const behind = line ? ` ${plural(line, 'reservation')} in line already.` : '';
  if (free.length >= count) {
    const some = `${free.length} of ${plural(kin.length, 'GPU')}`;
    return `${memory ? `${bytes(memory)} free on ${some}` : `${some} free`} now.${behind}`;
  }
  const scarce = free.length ? `Only ${free.length} free now` : 'No GPU is free now';
  const works = new Map(status.workloads.map(it => [it.id, it]));
  const runsJob = (it: DeviceView): boolean =>
    it.workloads?.some(id => works.get(id)?.kind === 'job') ?? false;
  if (kin.some(runsJob)) {
    return `${scarce}; a job may yield for you.${behind}`;
  }
  const ends = kin
    .filter(it => !free.includes(it) && isKnown(it.free_at) && it.free_at > now)
    .map(it => it.free_at ?? 0)
    .sort((a, b) => a - b);
  const next = ends[count - free.length - 1];
  return `${scarce}; you would wait${isKnown(next) ? `, about until ${when(next, now)}` : ''}.${behind}`;
}
