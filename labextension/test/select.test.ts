import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import { fold, NOTHING } from '../src/fold';
import {
  apart,
  jobQueues,
  kernelGpu,
  kernelsWithGpus,
  memoryOf,
  myWork,
  outlook,
  reservationOf,
  summary,
  type Wanted
} from '../src/select';
import { device, GIB, kernel, NOON, reservation, state, status, work } from './builders';

const ask = (count: number, deviceClass: string | null = null, memory = 0): Wanted => ({
  count,
  deviceClass,
  memory
});

describe('my work', () => {
  it('has what needs attention first and what waits in its order', () => {
    const found = myWork(
      status({
        workloads: [
          work(2, { state: 'queued', ahead: 0 }),
          work(1, { state: 'queued' }),
          work(3),
          reservation(4),
          work(5, { state: 'yielding' }),
          work(6, { is_mine: false })
        ]
      })
    );
    assert.deepEqual(
      found.map(it => it.id),
      [5, 4, 3, 2, 1]
    );
  });
});

describe('the reservation of a kernel', () => {
  it('is the one that the server names, or whose holder the kernel is', () => {
    const both = state({ workloads: [reservation(1, { holder: null }), reservation(2)] }, [
      kernel({ kernel_id: 'k9', workload: 1 })
    ]);
    assert.equal(reservationOf(both, 'k9')?.id, 1);
    assert.equal(reservationOf(both, 'k1')?.id, 2);
    assert.equal(reservationOf(both, 'k2'), null);
  });

  it('is never somebody else’s', () => {
    const others = state({ workloads: [reservation(1, { is_mine: false })] });
    assert.equal(reservationOf(others, 'k1'), null);
  });
});

describe('the toolbar of a notebook says', () => {
  const label = (...args: Parameters<typeof state>): string =>
    kernelGpu(state(...args), 'k1', NOON).label;

  it('that a kernel has no GPU', () => {
    assert.equal(label(), 'No GPU');
    assert.equal(kernelGpu(state(), null, NOON).label, 'No GPU');
  });

  it('its place in line', () => {
    const waits = reservation(1, { state: 'queued', devices: [], ahead: 1 });
    assert.equal(label({ workloads: [waits] }), 'Waiting: 2nd in line');
  });

  it('its GPU and the time left', () => {
    const held = reservation(1, { ends_at: NOON + 4320 });
    assert.equal(
      label({ workloads: [held] }, [kernel({ pinned: true, workload: 1 })]),
      'GPU 0 · 1 h 12 min'
    );
    const over = reservation(1, { overtime: true });
    assert.equal(
      label({ workloads: [over] }, [kernel({ pinned: true, workload: 1 })]),
      'GPU 0 · overtime'
    );
  });

  it('that the GPU is there and the kernel does not see it yet', () => {
    const held = reservation(1, { ends_at: NOON + 4320 });
    const gpu = kernelGpu(state({ workloads: [held] }, [kernel({ workload: 1 })]), 'k1', NOON);
    assert.equal(gpu.standing, 'waiting');
    assert.equal(gpu.label, 'GPU 0 · pinning');
    assert.equal(label({ workloads: [held] }), 'GPU 0 · pinning');
  });

  it('that a restart is needed, and why', () => {
    const needs = kernel({ workload: 1, restart_needed: 'CUDA is loaded.' });
    const gpu = kernelGpu(state({ workloads: [reservation(1)] }, [needs]), 'k1', NOON);
    assert.equal(gpu.standing, 'restart');
    assert.equal(gpu.label, 'Restart to use GPU 0');
    assert.equal(gpu.caption, 'CUDA is loaded.');
  });

  it('to save before the GPU is taken', () => {
    const notice = { reason: 'preempted', yield_by: NOON, detail: '' } as const;
    assert.equal(
      label({ workloads: [reservation(1, { state: 'yielding', notice })] }),
      'GPU 0 · save now'
    );
  });

  it('what the server holds for all its kernels', () => {
    const gpu = kernelGpu(state({}, [kernel({ pinned: true, devices: ['GPU-1'] })]), 'k1', NOON);
    assert.equal(gpu.standing, 'server');
    assert.equal(gpu.label, 'GPU 1');
  });

  it('that nothing is known yet', () => {
    assert.equal(kernelGpu(NOTHING, 'k1', NOON).label, 'GPU n/a');
  });
});

describe('the status bar says', () => {
  it('what is free where one holds nothing', () => {
    const devices = [
      device(0),
      device(1, { workloads: [1] }),
      device(2, { cordoned: true }),
      device(3, { condition: 'lost' })
    ];
    assert.equal(summary(state({ devices }), NOON, null), '1 of 4 GPUs free');
    assert.equal(summary(state({ devices: [] }), NOON, null), 'No GPU');
  });

  it('one’s own lease first, then one’s place', () => {
    const waits = reservation(2, { name: 'b.ipynb', state: 'queued', devices: [], ahead: 0 });
    const both = state({ workloads: [waits, reservation(1)] });
    assert.equal(summary(state({ workloads: [waits] }), NOON, 'k1'), 'GPU: 1st in line');
    assert.equal(summary(state({ workloads: [waits] }), NOON, null), 'b.ipynb: 1st in line');
    assert.equal(summary(both, NOON, null), 'a.ipynb: GPU 0 · 2 h');
    assert.equal(summary(both, NOON, 'k9'), 'a.ipynb: GPU 0 · 2 h');
  });

  it('how the notebook in front stands before any other', () => {
    const other = reservation(2, {
      name: 'b.ipynb',
      devices: ['GPU-1'],
      holder: { kind: 'kernel', name: 'k2' }
    });
    const both = state({ workloads: [reservation(1), other] });
    assert.equal(summary(both, NOON, 'k2'), 'GPU 1 · 2 h');
    assert.equal(summary(both, NOON, 'k1'), 'GPU 0 · 2 h');
  });

  it('that nobody answers', () => {
    assert.equal(summary(NOTHING, NOON, null), 'GPUs');
    const away = fold(state(), { type: 'broker', state: 'away', message: '', hint: null }, NOON);
    assert.equal(summary(away, NOON, null), 'GPUs: away');
  });
});

describe('kernels that hold GPUs', () => {
  it('are those with devices, their tab open or not, and not those that only wait', () => {
    const kernels = [
      kernel(),
      kernel({ kernel_id: 'k2', devices: ['GPU-0'], notebook: null }),
      kernel({ kernel_id: 'k3', workload: 7 }),
      kernel({ kernel_id: 'k4', workload: 8, restart_needed: 'CUDA is loaded.' })
    ];
    const workloads = [reservation(7, { state: 'queued', devices: [] }), reservation(8)];
    const found = kernelsWithGpus(
      state({ workloads: workloads.map(it_ => ({ ...it_, holder: null })) }, kernels)
    );
    assert.deepEqual(
      found.map(it => it.kernel_id),
      ['k2', 'k4']
    );
  });

  it('hold the memory that was read on their devices', () => {
    const devices = [
      device(0, { memory_used_bytes: 7 * GIB }),
      device(1, { memory_used_bytes: null })
    ];
    const two = kernel({ devices: ['GPU-0', 'GPU-1'] });
    assert.equal(memoryOf(two, status({ devices })), 7 * GIB);
    assert.equal(memoryOf(kernel({ devices: ['GPU-1'] }), status({ devices })), null);
    assert.equal(memoryOf(two, null), null);
  });
});

describe('work of one name', () => {
  const two = [reservation(1), reservation(2, { holder: { kind: 'kernel', name: 'k2-and-more' } })];

  it('is told apart by the path, else by the kernel, and only where there is another', () => {
    const kernels = [kernel(), kernel({ kernel_id: 'k2-and-more', notebook: 'x/a.ipynb' })];
    const known = state({ workloads: two }, kernels);
    assert.deepEqual(
      two.map(it_ => apart(it_, known)),
      ['lab/a.ipynb', 'x/a.ipynb']
    );
    const unknown = state({ workloads: two });
    assert.deepEqual(
      two.map(it_ => apart(it_, unknown)),
      ['kernel k1', 'kernel k2-and-m']
    );
    assert.equal(apart(two[0], state({ workloads: [two[0]] }, kernels)), '');
  });
});

describe('the form says beforehand', () => {
  const held = (index: number, free_at: number, id = 90): ReturnType<typeof device> =>
    device(index, { workloads: [id], free_at });

  it('what is free', () => {
    assert.equal(outlook(status(), ask(1, null), NOON), '2 of 2 GPUs free now.');
  });

  it('how long one would wait', () => {
    const devices = [held(0, NOON + 7200), held(1, NOON + 3600)];
    assert.equal(
      outlook(status({ devices }), ask(1, null), NOON),
      'No GPU is free now; you would wait, about until 13:00.'
    );
    assert.equal(
      outlook(status({ devices }), ask(2, null), NOON),
      'No GPU is free now; you would wait, about until 14:00.'
    );
  });

  it('that a training may yield', () => {
    const devices = [held(0, NOON + 7200, 5), device(1)];
    const said = outlook(status({ devices, workloads: [work(5)] }), ask(2, null), NOON);
    assert.equal(said, 'Only 1 free now; a job may yield for you.');
  });

  it('that there are never so many', () => {
    assert.equal(outlook(status(), ask(3, null), NOON), 'There are only 2 GPUs here.');
    assert.equal(outlook(status(), ask(1, 'h100'), NOON), 'There is no such GPU here.');
  });

  it('who is in line already', () => {
    const said = outlook(status({ waiting: { interactive: 2 } }), ask(1, null), NOON);
    assert.equal(said, '2 of 2 GPUs free now. 2 reservations in line already.');
  });
});

describe('the queues of jobs', () => {
  it('are all but the interactive one', () => {
    assert.deepEqual(jobQueues(status({ waiting: { interactive: 0, training: 1, deferred: 0 } })), [
      'training',
      'deferred'
    ]);
  });
});
