/** Questions to the state that several faces ask. Pure. */
import { gpus, isKnown, place, plural, timeLeft, title, when } from './format';
import type { GpuState } from './fold';
import type { DeviceView, KernelView, Status, WorkloadView } from './types';

/** The caller's own live work: what needs attention first, then what runs, then what waits in its order of the line. */
export function myWork(status: Status): readonly WorkloadView[] {
  const rank = (it: WorkloadView): number =>
    ({ yielding: 0, active: it.kind === 'reservation' ? 1 : 2, queued: 3, ended: 4 })[it.state];
  return status.workloads.filter(it => it.is_mine).sort((a, b) => rank(a) - rank(b));
}

/** The workloads on a device, as far as they may be seen. */
export function worksOn(device: DeviceView, status: Status): readonly WorkloadView[] {
  return status.workloads.filter(it => it.devices?.includes(device.uuid));
}

/** Whether a device could be granted now. */
export function isFree(device: DeviceView): boolean {
  return !device.cordoned && !device.condition && !device.workloads?.length;
}

/** The device classes that are here, each once. */
export function classes(status: Status): readonly string[] {
  return [...new Set(status.devices.map(it => it.device_class))].sort();
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
    const expected = isKnown(it.expected_start_at)
      ? ` Expected about ${when(it.expected_start_at, now)}.`
      : '';
    return {
      standing: 'waiting',
      label: `Waiting: ${place(it.ahead)}`,
      caption: `This kernel waits for ${plural(it.ask.devices ?? 1, 'GPU')}.${expected}`,
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

/** The memory in use on a kernel's devices, or null where none of them was read. */
export function memoryOf(kernel: KernelView, status: Status | null): number | null {
  const read = (status?.devices ?? [])
    .filter(it => kernel.devices?.includes(it.uuid))
    .map(it => it.memory_used_bytes)
    .filter(isKnown);
  return read.length ? read.reduce((sum, used) => sum + used, 0) : null;
}

function kinOf(status: Status, deviceClass: string | null): readonly DeviceView[] {
  return status.devices.filter(it => deviceClass === null || it.device_class === deviceClass);
}

/** Why there are never so many GPUs of a class here; empty where there are. */
export function lack(status: Status, count: number, deviceClass: string | null): string {
  const kin = kinOf(status, deviceClass).length;
  if (kin >= count) {
    return '';
  }
  const such = deviceClass === null ? 'GPU' : 'such GPU';
  return kin
    ? `There ${kin === 1 ? 'is' : 'are'} only ${plural(kin, such)} here.`
    : `There is no ${such} here.`;
}

/** What asking for so many GPUs of a class would come to, said before it is asked. */
export function outlook(
  status: Status,
  count: number,
  deviceClass: string | null,
  now: number
): string {
  const lacks = lack(status, count, deviceClass);
  if (lacks) {
    return lacks;
  }
  const kin = kinOf(status, deviceClass);
  const free = kin.filter(isFree);
  const line = status.waiting.interactive ?? 0;
  const behind = line ? ` ${plural(line, 'reservation')} in line already.` : '';
  if (free.length >= count) {
    return `${free.length} of ${plural(kin.length, 'GPU')} free now.${behind}`;
  }
  const scarce = free.length ? `Only ${free.length} free now` : 'No GPU is free now';
  const works = new Map(status.workloads.map(it => [it.id, it]));
  const runsJob = (it: DeviceView): boolean =>
    it.workloads?.some(id => works.get(id)?.kind === 'job') ?? false;
  if (kin.some(runsJob)) {
    return `${scarce}; a job may yield for you.${behind}`;
  }
  const ends = kin
    .filter(it => !isFree(it) && isKnown(it.free_at) && it.free_at > now)
    .map(it => it.free_at ?? 0)
    .sort((a, b) => a - b);
  const next = ends[count - free.length - 1];
  return `${scarce}; you would wait${isKnown(next) ? `, about until ${when(next, now)}` : ''}.${behind}`;
}
