import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import { fold, type GpuState } from '../src/fold';
import { isWellEnded, type Notice, notices, together } from '../src/notices';
import { Gatherer } from '../src/gather';
import type { Frame, WorkloadView } from '../src/types';
import { kernel, NOON, reservation, state, work } from './builders';

function ended(it_: WorkloadView): GpuState {
  return fold(state(), { type: 'change', change: { revision: 11, changes: [it_] } }, NOON);
}

describe('time that runs out', () => {
  const told = (rest: number, bought = 7200): readonly string[] => {
    const it_ = reservation(1, { granted_at: NOON + rest - bought, ends_at: NOON + rest });
    const early = { ...it_, submitted_at: it_.granted_at ?? 0 };
    return notices(state({ workloads: [early] }), NOON).map(notice => notice.key);
  };

  it('is told ten minutes and two minutes before, under two keys', () => {
    assert.deepEqual(told(700), []);
    assert.deepEqual(told(600), [`1 ends ${NOON + 600} 600`]);
    assert.deepEqual(told(121), [`1 ends ${NOON + 121} 600`]);
    assert.deepEqual(told(120), [`1 ends ${NOON + 120} 120`]);
    assert.deepEqual(told(0), []);
  });

  it('is not told ten minutes before to who bought ten', () => {
    assert.deepEqual(told(590, 600), []);
    assert.deepEqual(told(100, 600), [`1 ends ${NOON + 100} 120`]);
    assert.deepEqual(told(100, 120), []);
  });

  it('offers to extend or to release', () => {
    const it_ = reservation(1, {
      granted_at: NOON - 7000,
      submitted_at: NOON - 7000,
      ends_at: NOON + 300
    });
    const [notice] = notices(state({ workloads: [it_] }), NOON);
    assert.deepEqual(notice.actions, ['extend', 'release']);
    assert.equal(notice.message, 'GPU 0 is yours for 5 min more: a.ipynb.');
  });
});

describe('a grant', () => {
  it('is told to who had to wait, as of when it was', () => {
    const waited = reservation(1, { submitted_at: NOON - 600, granted_at: NOON });
    const [notice] = notices(state({ workloads: [waited] }), NOON);
    assert.equal(notice.message, 'GPU 0 is yours for a.ipynb, until 14:00.');
    assert.equal(notice.at, NOON);
    const atOnce = reservation(1, { submitted_at: NOON - 1, granted_at: NOON });
    assert.deepEqual(notices(state({ workloads: [atOnce] }), NOON), []);
  });

  it('of several GPUs is told in the plural', () => {
    const two = { devices: ['GPU-0', 'GPU-1'], submitted_at: NOON - 600, granted_at: NOON };
    const [notice] = notices(state({ workloads: [reservation(1, two)] }), NOON);
    assert.equal(notice.message, 'GPU 0, 1 are yours for a.ipynb, until 14:00.');
  });

  it('that needs a restart says why, offers it, and holds until it is done', () => {
    const needs = kernel({ workload: 1, restart_needed: 'CUDA is loaded already' });
    const [notice] = notices(state({ workloads: [reservation(1)] }, [needs]), NOON);
    assert.deepEqual(notice.actions, ['restart', 'later']);
    assert.equal(notice.kernel, 'k1');
    assert.equal(notice.at, null);
    assert.equal(notice.message, 'GPU 0 is yours for a.ipynb. CUDA is loaded already.');
  });
});

describe('a notice to leave', () => {
  const notice = { reason: 'expired', yield_by: NOON + 60, detail: '' } as const;

  it('reaches who holds a reservation', () => {
    const it_ = reservation(1, { state: 'yielding', notice });
    const [told] = notices(state({ workloads: [it_] }), NOON);
    assert.equal(told.tone, 'warning');
    assert.equal(
      told.message,
      'a.ipynb must leave GPU 0 by 12:01 (time is over). Save what is on the GPU.'
    );
  });

  it('has the words of the operator who drains the GPU', () => {
    const detail = 'drained by grace: node maintenance';
    const drained = { ...notice, reason: 'drained', detail } as const;
    const [told] = notices(
      state({ workloads: [reservation(1, { state: 'yielding', notice: drained })] }),
      NOON
    );
    assert.equal(
      told.message,
      `a.ipynb must leave GPU 0 by 12:01 (${detail}). Save what is on the GPU.`
    );
  });

  it('to a job bothers nobody: it yields and resumes by itself', () => {
    const it_ = work(1, { state: 'yielding', notice: { ...notice, reason: 'preempted' } });
    assert.deepEqual(notices(state({ workloads: [it_] }), NOON), []);
  });

  it('to others’ work bothers nobody', () => {
    const it_ = reservation(1, { state: 'yielding', notice, is_mine: false });
    assert.deepEqual(notices(state({ workloads: [it_] }), NOON), []);
  });
});

describe('a job that comes back by itself', () => {
  const over = { end: 'failed', ended_at: NOON } as const;
  const again = (more: Partial<WorkloadView>): Notice => {
    const [told] = notices(
      state({ workloads: [work(1, { state: 'queued', attempt: 1, outcome: over, ...more })] }),
      NOON
    );
    return told;
  };

  it('because others came first says so, as of when it left', () => {
    const notice = { reason: 'preempted', yield_by: NOON + 60, detail: '' } as const;
    const leaves = work(1, { state: 'yielding', attempt: 1, notice });
    const outcome = { ...over, noticed: true };
    const waits = work(1, { state: 'queued', attempt: 1, preemptions: 1, outcome });
    const line = (it_: WorkloadView): Frame => ({
      type: 'change',
      change: { revision: 11, changes: [it_] }
    });
    const now = fold(fold(state({ workloads: [leaves] }), line(leaves), NOON), line(waits), NOON);
    const [told] = notices(now, NOON);
    assert.equal(told.message, 'Job 1 (digits) made room for others, and goes on by itself.');
    assert.deepEqual([told.at, told.tone, told.fades], [NOON, 'info', true]);
    const ended = { ...waits, state: 'ended', end: 'succeeded' } as const;
    assert.deepEqual(fold(now, line(ended), NOON).left, {});
  });

  it('of which this page did not see why it left says no more than it knows', () => {
    const told = again({ preemptions: 1, outcome: { ...over, noticed: true } });
    assert.equal(told.message, 'Job 1 (digits) had to leave its GPU, and goes on by itself.');
  });

  it('after a failure says what failed', () => {
    const told = again({ failures: 1, detail: 'exit code 3' });
    assert.equal(told.message, 'Job 1 (digits) is tried again by itself: exit code 3.');
    assert.deepEqual(told.actions, ['log']);
  });

  it('and does not, being paused, is a warning that stays', () => {
    const told = again({ paused: true, detail: 'the folder is gone. It is paused' });
    assert.deepEqual([told.tone, told.fades], ['warning', false]);
  });

  it('is told once an attempt, and not before it ever ran', () => {
    assert.equal(again({ attempt: 4 }).key, '1 again 4');
    assert.equal(again({ attempt: 0, outcome: null }), undefined);
  });
});

describe('an array of a hundred jobs', () => {
  const member = (index: number, more: Partial<WorkloadView>): Notice => {
    const it_ = work(100 + index, {
      state: 'ended',
      attempt: 1,
      ended_at: NOON,
      member: { array: 101, index, of: 100 },
      ...more
    });
    return notices(ended(it_), NOON)[0];
  };

  it('is told in one notice, whatever becomes of each and however long that takes', () => {
    const gatherer = new Gatherer();
    let news = 0;
    let last = '';
    for (let index = 1; index <= 100; index += 1) {
      const end = index % 10 === 0 ? 'failed' : 'succeeded';
      const found = gatherer.take(member(index, { end }), index * 60_000);
      assert.equal(found?.group, 'array 101');
      news += found.isNews ? 1 : 0;
      last = `${found.notice.tone} ${found.notice.message}`;
    }
    assert.equal(news, 3, 'the first end, the first failure, and that all are over');
    assert.equal(last, 'error Array 101 (digits) of 100 jobs: 90 succeeded, 10 failed.');
  });

  it('tells the first by itself, and goes by itself as long as nothing failed', () => {
    const gatherer = new Gatherer();
    const first = gatherer.take(member(1, { end: 'succeeded' }), 0);
    assert.equal(first?.notice.message, 'Job 101 (digits) ended: succeeded.');
    const second = gatherer.take(member(2, { end: 'succeeded' }), 0);
    assert.deepEqual([second?.notice.tone, second?.notice.fades], ['info', true]);
  });

  it('of other jobs leaves each failure to itself, and those that went well together', () => {
    const gatherer = new Gatherer();
    const alone = (id: number, end: 'failed' | 'succeeded'): Notice =>
      notices(ended(work(id, { state: 'ended', end, ended_at: NOON })), NOON)[0];
    assert.equal(gatherer.take(alone(1, 'failed'), 0), null);
    const first = gatherer.take(alone(2, 'succeeded'), 0);
    const second = gatherer.take(alone(3, 'succeeded'), 1000);
    const later = gatherer.take(alone(4, 'succeeded'), 60_000);
    assert.equal(first?.group, second?.group);
    assert.notEqual(second?.group, later?.group);
    assert.equal(second?.notice.message, '2 jobs ended: all succeeded.');
  });
});

describe('an end', () => {
  it('of a job is told with its log', () => {
    const it_ = work(1, { state: 'ended', end: 'succeeded', attempt: 1, ended_at: NOON });
    const [told] = notices(ended(it_), NOON);
    assert.deepEqual([told.tone, told.message], ['success', 'Job 1 (digits) ended: succeeded.']);
    assert.deepEqual([told.actions, told.at], [['log'], NOON]);
  });

  it('that went well can be told together with others, and a bad one cannot', () => {
    const of = (end: 'succeeded' | 'failed' | 'cancelled'): Notice =>
      notices(ended(work(1, { state: 'ended', end, attempt: 1, ended_at: NOON })), NOON)[0];
    assert.deepEqual((['succeeded', 'failed', 'cancelled'] as const).map(of).map(isWellEnded), [
      true,
      false,
      false
    ]);
    const all = together(of('succeeded'), 4);
    assert.deepEqual([all.message, all.actions], ['4 jobs ended: all succeeded.', ['panel']]);
    const waited = reservation(1, { submitted_at: NOON - 600, granted_at: NOON });
    assert.equal(isWellEnded(notices(state({ workloads: [waited] }), NOON)[0]), false);
  });

  it('that is bad is told as such, with its evidence', () => {
    const it_ = work(1, { state: 'ended', end: 'gpu-oom', detail: 'peak 79 GiB' });
    const [told] = notices(ended(it_), NOON);
    assert.deepEqual([told.tone, told.actions], ['error', []]);
    assert.equal(told.message, 'Job 1 (digits) ended: GPU out of memory (peak 79 GiB).');
  });

  it('that one made oneself is not told, and one that another made is', () => {
    const by = (name: string): WorkloadView =>
      work(1, { state: 'ended', end: 'cancelled', detail: `cancelled by ${name}` });
    assert.deepEqual(notices(ended(by('ada')), NOON), []);
    const [told] = notices(ended(by('root')), NOON);
    assert.equal(told.message, 'Job 1 (digits) ended: cancelled by root.');
  });

  it('of a reservation that was given back is neither told nor listed', () => {
    for (const end of ['cancelled', 'released'] as const) {
      const after = ended(reservation(1, { state: 'ended', end }));
      assert.deepEqual([after.recent, notices(after, NOON)], [[], []]);
    }
  });

  it('of a reservation is told where nobody gave it back', () => {
    const [told] = notices(ended(reservation(1, { state: 'ended', end: 'expired' })), NOON);
    assert.equal(told.message, 'The reservation for a.ipynb ended: time is over.');
  });
});
