import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import { fold, GAP_SECONDS, MOST_MOMENTS, MOST_RECENT, NOTHING } from '../src/fold';
import type { Frame } from '../src/types';
import { device, GIB, kernel, NOON, reservation, state, status, work } from './builders';

describe('a status', () => {
  it('opens the page and sets its clock by the server’s', () => {
    const after = fold(NOTHING, { type: 'status', status: status({ at: NOON + 90 }) }, NOON);
    assert.equal(after.link, 'open');
    assert.equal(after.skew, 90);
    assert.equal(after.status?.caller, 'ada');
  });

  it('replaces what was known, even by an older revision: a store may be restored', () => {
    const before = state({ revision: 10, workloads: [work(1)] });
    const after = fold(before, { type: 'status', status: status({ revision: 3 }) }, NOON);
    assert.equal(after.status?.revision, 3);
    assert.deepEqual(after.status.workloads, []);
  });

  it('of another store forgets what belonged to the first', () => {
    const ended = work(1, { state: 'ended', end: 'succeeded', ended_at: NOON });
    const change: Frame = { type: 'change', change: { revision: 11, changes: [ended] } };
    const before = fold(state(), change, NOON);
    assert.equal(before.recent.length, 1);
    const same = fold(before, { type: 'status', status: status() }, NOON);
    assert.equal(same.recent.length, 1);
    const other = fold(before, { type: 'status', status: status({ store_id: 'two' }) }, NOON);
    assert.deepEqual(other.recent, []);
  });

  it('comes within a change too, after the reader fell behind', () => {
    const whole = status({ revision: 20 });
    const after = fold(state(), { type: 'change', change: { revision: 20, status: whole } }, NOON);
    assert.equal(after.status, whole);
  });
});

describe('a change', () => {
  it('adds, replaces and removes workloads', () => {
    const before = state({ workloads: [work(1), work(2)] });
    const changes = [
      work(1, { state: 'ended', end: 'succeeded' }),
      work(2, { attempt: 2 }),
      work(3, { state: 'queued' })
    ];
    const after = fold(before, { type: 'change', change: { revision: 11, changes } }, NOON);
    assert.deepEqual(
      after.status?.workloads.map(it => [it.id, it.state, it.attempt]),
      [
        [2, 'active', 2],
        [3, 'queued', undefined]
      ]
    );
    assert.equal(after.status.revision, 11);
  });

  it('shows of others only what holds devices, as the document does', () => {
    const before = state({ workloads: [work(1, { is_mine: false })] });
    const changes = [
      work(1, { is_mine: false, state: 'queued' }),
      work(2, { is_mine: false, state: 'yielding' })
    ];
    const after = fold(before, { type: 'change', change: { revision: 11, changes } }, NOON);
    assert.deepEqual(
      after.status?.workloads.map(it => it.id),
      [2]
    );
    assert.deepEqual(after.recent, []);
  });

  it('older than the whole that came meanwhile changes nothing', () => {
    const before = state({ revision: 10, workloads: [work(1)] });
    const changes = [work(1, { state: 'ended' })];
    const after = fold(before, { type: 'change', change: { revision: 9, changes } }, NOON);
    assert.equal(after, before);
  });

  it('before the first status changes nothing', () => {
    const change: Frame = { type: 'change', change: { revision: 1, changes: [work(1)] } };
    assert.equal(fold(NOTHING, change, NOON), NOTHING);
  });

  it('keeps one’s own work that ended, the newest first, and only the last of it', () => {
    let now = state();
    for (let id = 1; id <= MOST_RECENT + 2; id += 1) {
      const ended = work(id, { state: 'ended', end: 'succeeded', ended_at: NOON + id });
      now = fold(now, { type: 'change', change: { revision: 10 + id, changes: [ended] } }, NOON);
    }
    assert.equal(now.recent.length, MOST_RECENT);
    assert.equal(now.recent[0].id, MOST_RECENT + 2);
  });

  it('of a device keeps a reading that is newer than its own', () => {
    const before = state({
      devices: [device(0, { memory_used_bytes: 9 * GIB, sampled_at: NOON })]
    });
    const old = device(0, { cordoned: true, memory_used_bytes: GIB, sampled_at: NOON - 5 });
    const after = fold(before, { type: 'change', change: { revision: 11, devices: [old] } }, NOON);
    assert.equal(after.status?.devices[0].cordoned, true);
    assert.equal(after.status.devices[0].memory_used_bytes, 9 * GIB);
  });

  it('brings devices that were not there before', () => {
    const change: Frame = { type: 'change', change: { revision: 11, devices: [device(7)] } };
    const after = fold(state(), change, NOON);
    assert.deepEqual(
      after.status?.devices.map(it => it.index),
      [0, 1, 7]
    );
  });

  it('has quotas, lines and warnings whole, and an empty one is left out', () => {
    const quotas = [{ rule: 'you', devices_held: 1, devices_allowed: 2 }];
    const before = state({ quotas, warnings: ['the disk is full'], more_of_mine: 3 });
    const waiting = { interactive: 1 };
    const line: Frame = { type: 'change', change: { revision: 11, waiting } };
    const after = fold(before, line, NOON).status;
    assert.deepEqual(after?.waiting, waiting);
    assert.deepEqual([after.quotas, after.warnings, after.more_of_mine], [[], [], 0]);
    // The answer to a request is no line of the stream.
    const noted = fold(before, { type: 'change', change: { changes: [work(9)] } }, NOON).status;
    assert.deepEqual(noted?.quotas, quotas);
    assert.equal(noted.revision, 10);
  });

  it('keeps what runs in its place, however often it reports', () => {
    const runs = (id: number, step: number): ReturnType<typeof work> =>
      work(id, { attempt: 1, progress: { at: NOON, attempt: 1, step } });
    const before = state({ workloads: [runs(1, 1), runs(2, 1)] });
    const line: Frame = { type: 'change', change: { revision: 10, changes: [runs(1, 2)] } };
    const after = fold(before, line, NOON).status?.workloads;
    assert.deepEqual(
      after?.map(it_ => [it_.id, it_.progress?.step]),
      [
        [1, 2],
        [2, 1]
      ]
    );
  });

  it('gives what waits in the order of the line', () => {
    const queued = (id: number): ReturnType<typeof work> => work(id, { state: 'queued' });
    const before = state({ workloads: [queued(1), queued(2)] });
    const line: Frame = {
      type: 'change',
      change: { revision: 11, changes: [queued(2), queued(1)] }
    };
    assert.deepEqual(
      fold(before, line, NOON).status?.workloads.map(it => it.id),
      [2, 1]
    );
  });

  it('leaves what it is not about as the same objects', () => {
    const before = state({ workloads: [work(1)] });
    const after = fold(
      before,
      { type: 'change', change: { revision: 11, devices: [device(0)] } },
      NOON
    );
    assert.equal(after.status?.workloads, before.status?.workloads);
    assert.equal(after.status?.devices[1], before.status?.devices[1]);
  });
});

describe('a sample', () => {
  const sample = (at: number, more = {}): Frame => ({
    type: 'change',
    change: { samples: [device(0, { sampled_at: at, ...more })] }
  });

  it('changes readings alone: it has no names', () => {
    const held = device(0, { workloads: [1], holders: ['grace'], condition_detail: 'well' });
    const before = state({ devices: [held, device(1)] });
    const after = fold(before, sample(NOON + 1, { memory_used_bytes: 9 * GIB }), NOON);
    const [first, second] = after.status?.devices ?? [];
    assert.equal(first.memory_used_bytes, 9 * GIB);
    assert.deepEqual(first.holders, ['grace']);
    assert.equal(first.condition_detail, 'well');
    assert.equal(second, before.status?.devices[1]);
    assert.equal(after.status?.revision, 10);
  });

  it('that could not read something says so: the old number is no longer true', () => {
    const after = fold(
      state(),
      {
        type: 'change',
        change: {
          samples: [{ ...device(0), utilisation_percent: undefined, sampled_at: NOON + 1 }]
        }
      },
      NOON
    );
    assert.equal(after.status?.devices[0].utilisation_percent, undefined);
    assert.equal(after.history['GPU-0'][1].utilisation, null);
  });

  it('draws a curve of bounded length', () => {
    let now = state();
    for (let second = 1; second <= 2 * MOST_MOMENTS; second += 1) {
      now = fold(now, sample(NOON + second), NOON);
    }
    const moments = now.history['GPU-0'];
    assert.equal(moments.length, MOST_MOMENTS);
    assert.equal(moments[MOST_MOMENTS - 1].at, NOON + 2 * MOST_MOMENTS);
  });

  it('after a gap begins the curve anew, and one that came before is not drawn twice', () => {
    const two = fold(state(), sample(NOON + 1), NOON);
    assert.equal(two.history['GPU-0'].length, 2);
    assert.equal(fold(two, sample(NOON + 1), NOON).history['GPU-0'].length, 2);
    const late = fold(two, sample(NOON + 2 + GAP_SECONDS), NOON);
    assert.equal(late.history['GPU-0'].length, 1);
  });
});

describe('other messages', () => {
  it('bring the kernels whole', () => {
    const after = fold(state({}, [kernel()]), { type: 'kernels', kernels: [] }, NOON);
    assert.deepEqual(after.kernels, []);
  });

  it('say that the broker is away, and keep what was known', () => {
    const before = state({ workloads: [reservation(1)] });
    const away = fold(
      before,
      { type: 'broker', state: 'away', message: 'It stopped.', hint: 'Wait.' },
      NOON
    );
    assert.equal(away.link, 'away');
    assert.deepEqual(away.trouble, { message: 'It stopped.', hint: 'Wait.' });
    assert.equal(away.status, before.status);
    const back = fold(away, { type: 'broker', state: 'back', message: '', hint: null }, NOON);
    assert.equal(back.link, 'open');
    assert.equal(back.trouble, null);
  });

  it('of a newer server change nothing', () => {
    const before = state();
    assert.equal(fold(before, { type: 'weather' } as unknown as Frame, NOON), before);
  });
});
