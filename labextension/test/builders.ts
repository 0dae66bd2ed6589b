/** Documents as the broker makes them, with only what a test is about said. */
import { fold, NOTHING, type GpuState } from '../src/fold';
import type { CardView, DeviceView, KernelView, Status, UseView, WorkloadView } from '../src/types';

export const GIB = 1024 ** 3;
/** A Wednesday at noon, on the clock of whoever runs the tests. */
export const NOON = new Date(2026, 10, 25, 12, 0, 0).getTime() / 1000;

export function device(index: number, more: Partial<DeviceView> = {}): DeviceView {
  return {
    uuid: `GPU-${index}`,
    index,
    number: String(index),
    name: 'NVIDIA A100',
    device_class: 'a100',
    pool: 'local',
    simulated: false,
    cordoned: false,
    memory_total_bytes: 80 * GIB,
    memory_used_bytes: 8 * GIB,
    utilisation_percent: 40,
    temperature_celsius: 60,
    sampled_at: NOON,
    ...more
  };
}

/** A GPU in MIG mode, of which NVML says no utilisation. */
export function card(index: number, more: Partial<CardView> = {}): CardView {
  return {
    uuid: `GPU-card-${index}`,
    index,
    name: 'NVIDIA A100',
    memory_total_bytes: 80 * GIB,
    memory_used_bytes: 20 * GIB,
    temperature_celsius: 44,
    power_watts: 120.4,
    sampled_at: NOON,
    ...more
  };
}

/** A MIG device of card 0. */
export function part(index: number, slot: number, more: Partial<DeviceView> = {}): DeviceView {
  return device(index, {
    uuid: `MIG-${slot}`,
    number: `0:${slot}`,
    name: 'NVIDIA A100 MIG 1g.10gb',
    device_class: '1g.10gb',
    card: 'GPU-card-0',
    memory_total_bytes: 10 * GIB,
    memory_used_bytes: GIB,
    utilisation_percent: null,
    temperature_celsius: null,
    ...more
  });
}

/** Somebody's process without a lease. */
export function occupant(pid: number, more: Partial<UseView> = {}): UseView {
  return {
    pid,
    kind: 'user',
    foreign: true,
    memory_bytes: 7.6 * GIB,
    name: 'python',
    user: 'grace',
    ...more
  };
}

export function work(id: number, more: Partial<WorkloadView> = {}): WorkloadView {
  return {
    id,
    kind: 'job',
    state: 'active',
    owner: 'ada',
    team: null,
    queue: 'training',
    name: 'digits',
    ask: {},
    submitted_at: NOON - 60,
    priority: 50,
    is_mine: true,
    ...more
  };
}

export function reservation(id: number, more: Partial<WorkloadView> = {}): WorkloadView {
  return work(id, {
    kind: 'reservation',
    queue: 'interactive',
    name: 'a.ipynb',
    devices: ['GPU-0'],
    submitted_at: NOON - 1,
    granted_at: NOON,
    ends_at: NOON + 7200,
    holder: { kind: 'kernel', name: 'k1' },
    ...more
  });
}

export function kernel(more: Partial<KernelView> = {}): KernelView {
  return {
    kernel_id: 'k1',
    name: 'Python 3',
    notebook: 'lab/a.ipynb',
    pinned: false,
    execution_state: 'idle',
    last_activity: NOON,
    ...more
  };
}

export function status(more: Partial<Status> = {}): Status {
  return {
    revision: 10,
    store_id: 'one',
    at: NOON,
    caller: 'ada',
    simulated: false,
    devices: [device(0), device(1)],
    workloads: [],
    quotas: [],
    waiting: { interactive: 0, training: 0 },
    ...more
  };
}

export function state(more: Partial<Status> = {}, kernels: readonly KernelView[] = []): GpuState {
  const told = fold(NOTHING, { type: 'status', status: status(more) }, NOON);
  return fold(told, { type: 'kernels', kernels }, NOON);
}
