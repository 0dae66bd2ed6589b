import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import * as format from '../src/format';
import { device, GIB, NOON, reservation, work } from './builders';

const DAY = 86_400;

describe('what is not known', () => {
  it('reads n/a, never 0', () => {
    for (const missing of [null, undefined, NaN, Infinity]) {
      assert.equal(format.bytes(missing), 'n/a');
      assert.equal(format.length(missing), 'n/a');
      assert.equal(format.when(missing, NOON), 'n/a');
      assert.equal(format.ago(missing, NOON), 'n/a');
      assert.equal(format.share(missing, 10), null);
      assert.equal(format.share(10, missing), null);
    }
    assert.equal(format.memory(device(0, { memory_used_bytes: null })), 'n/a / 80 GiB');
    assert.equal(
      format.memory(device(0, { memory_used_bytes: null, memory_total_bytes: null })),
      'n/a'
    );
  });

  it('is told apart from zero', () => {
    assert.equal(format.bytes(0), '0 B');
    assert.equal(format.length(0), '0 s');
    assert.equal(format.share(0, 10), 0);
    assert.equal(format.memory(device(0, { memory_used_bytes: 0 })), '0 / 80 GiB');
  });
});

describe('bytes', () => {
  it('uses the largest binary unit and one decimal', () => {
    assert.equal(format.bytes(512), '512 B');
    assert.equal(format.bytes(1536), '1.5 KiB');
    assert.equal(format.bytes(7.6 * GIB), '7.6 GiB');
    assert.equal(format.bytes(80 * GIB), '80 GiB');
  });

  it('never reads 1024 of a unit', () => {
    assert.equal(format.bytes(GIB - 1), '1 GiB');
    assert.equal(format.bytes(1023.96 * 1024), '1 MiB');
  });

  it('gives used and total memory in one unit', () => {
    const it_ = device(0, { memory_used_bytes: 512 * 1024 ** 2 });
    assert.equal(format.memory(it_), '0.5 / 80 GiB');
    assert.equal(format.memory(device(0, { memory_total_bytes: null })), '8 GiB');
  });
});

describe('lengths of time', () => {
  it('show their two largest units', () => {
    const cases: [number, string][] = [
      [45, '45 s'],
      [60, '1 min'],
      [3599, '59 min'],
      [3600, '1 h'],
      [4320, '1 h 12 min'],
      [DAY, '1 d'],
      [2 * DAY + 3 * 3600 + 59, '2 d 3 h'],
      [-5, '0 s']
    ];
    for (const [seconds, words] of cases) {
      assert.equal(format.length(seconds), words);
    }
  });

  it('that are left do not read a minute short of what was bought', () => {
    assert.equal(format.timeLeft(NOON + 7200, NOON), '2 h');
    assert.equal(format.timeLeft(NOON + 7195, NOON), '2 h');
    assert.equal(format.timeLeft(NOON + 7209, NOON), '2 h');
    assert.equal(format.timeLeft(NOON + 59, NOON), 'less than a minute');
    assert.equal(format.timeLeft(NOON, NOON), 'time is over');
    assert.equal(format.timeLeft(null, NOON), 'no end');
  });

  it('that are past say how long ago', () => {
    assert.equal(format.ago(NOON - 5, NOON), 'just now');
    assert.equal(format.ago(NOON + 5, NOON), 'just now');
    assert.equal(format.ago(NOON - 1500, NOON), '25 min ago');
  });
});

describe('instants', () => {
  it('are said as people say them', () => {
    assert.equal(format.when(NOON + 7500, NOON), '14:05');
    assert.equal(format.when(NOON - 3 * 3600, NOON), '09:00');
    assert.equal(format.when(NOON + DAY, NOON), 'tomorrow 12:00');
    assert.equal(format.when(NOON - DAY, NOON), 'yesterday 12:00');
    assert.equal(format.when(NOON + 13 * 3600, NOON), 'tomorrow 01:00');
    assert.equal(format.when(NOON + 3 * DAY, NOON), 'Sat 12:00');
    assert.equal(format.when(NOON + 6 * DAY, NOON), 'Tue 12:00');
    assert.equal(format.when(NOON + 7 * DAY, NOON), '2026-12-02 12:00');
    assert.equal(format.when(NOON - 2 * DAY, NOON), '2026-11-23 12:00');
  });
});

describe('places in line', () => {
  it('count from one', () => {
    assert.equal(format.place(0), '1st in line');
    assert.equal(format.place(1), '2nd in line');
    assert.equal(format.place(2), '3rd in line');
    assert.equal(format.place(10), '11th in line');
    assert.equal(format.place(11), '12th in line');
    assert.equal(format.place(20), '21st in line');
    assert.equal(format.place(110), '111th in line');
    assert.equal(format.place(null), 'in line');
  });
});

describe('names', () => {
  it('of devices are numbers, and UUIDs where a device is not here', () => {
    const devices = [device(0), device(2)];
    assert.equal(format.gpus(['GPU-0', 'GPU-2'], devices), 'GPU 0, 2');
    assert.equal(format.gpus(['GPU-2', 'MIG-x'], devices), 'GPU 2, MIG-x');
    assert.equal(format.gpus([], devices), 'no GPU');
    const part = device(7, { uuid: 'MIG-1', number: '0:1', card: 'GPU-9' });
    assert.equal(format.gpus(['MIG-1', 'GPU-2'], [...devices, part]), 'GPU 0:1, 2');
  });

  it('of work fall back to what it runs, then to its number', () => {
    assert.equal(format.title(work(7)), 'digits');
    assert.equal(format.title(work(7, { name: '', command: 'train.py' })), 'train.py');
    assert.equal(format.title(work(7, { name: null })), 'Job 7');
    assert.equal(format.title(reservation(8, { name: '' })), 'Reservation 8');
  });
});

describe('how work stands', () => {
  it('is one word', () => {
    assert.equal(format.stateWord(work(1)), 'starting');
    assert.equal(format.stateWord(work(1, { started_at: NOON })), 'running');
    assert.equal(format.stateWord(reservation(1)), 'yours');
    assert.equal(format.stateWord(work(1, { state: 'queued' })), 'waiting');
    assert.equal(format.stateWord(work(1, { state: 'queued', paused: true })), 'paused');
    assert.equal(format.stateWord(work(1, { state: 'yielding' })), 'clearing');
    const notice = { reason: 'preempted', yield_by: NOON, detail: '' } as const;
    assert.equal(format.stateWord(work(1, { state: 'yielding', notice })), 'yielding');
    assert.equal(
      format.stateWord(work(1, { state: 'ended', end: 'gpu-oom' })),
      'GPU out of memory'
    );
  });

  it('is said in the broker’s sentence, without commands of the terminal that are buttons here', () => {
    const reason =
      'No GPU is free: GPU 0 is reserved by ada until 14:05. You are first in queue interactive. ' +
      'Expected by about 14:05. Leave the line with `jupyter gpu cancel 7`.';
    assert.equal(
      format.why(work(7, { state: 'queued', reason })),
      'No GPU is free: GPU 0 is reserved by ada until 14:05. You are first in queue interactive. ' +
        'Expected by about 14:05.'
    );
    const ofAnArray =
      'No GPU is free. Leave the line with `jupyter gpu cancel 7` (with `--array` all of array 5).';
    assert.equal(format.why(work(7, { state: 'queued', reason: ofAnArray })), 'No GPU is free.');
    const paused = 'It is paused and keeps its place. Let it go with `jupyter gpu let-go 7`.';
    assert.equal(
      format.why(work(7, { state: 'queued', reason: paused })),
      'It is paused and keeps its place.'
    );
  });

  it('names the day of a range once, and no end that nobody knows', () => {
    const range = (from: number, until: number | null): string =>
      format.expected(
        work(7, { expected_start_from: NOON + from, expected_start_until: until && NOON + until }),
        NOON
      );
    assert.equal(range(86400, 2 * 86400), 'tomorrow 12:00 to Fri 12:00');
    assert.equal(range(86400, 90000), 'tomorrow 12:00 to 13:00');
    assert.equal(range(3600, 3600), 'about 13:00');
    assert.equal(range(3600, null), '');
  });

  it('is said once and short enough for a toast when one has to wait', () => {
    const said = (reason: string): string =>
      format.waitText(work(7, { state: 'queued', ahead: 0, reason }), NOON);
    const where = 'You are first in queue interactive. Expected by about 14:05.';
    assert.equal(
      said(`No GPU is free: ada has 0.5 of it. ${where}`),
      'You are 1st in line. No GPU is free: ada has 0.5 of it.'
    );
    assert.equal(said(where), 'You are 1st in line.');
    assert.equal(said(`${'long '.repeat(30)}. ${where}`), 'You are 1st in line.');
  });

  it('keeps a command that has no button here', () => {
    const reason = 'No GPU can be read; `jupyter gpu doctor` says why.';
    assert.equal(format.why(work(7, { state: 'queued', reason })), reason);
  });

  it('has words of its own where the broker sent none', () => {
    assert.equal(format.why(work(7, { state: 'queued', waiting: 'quota' })), 'Your quota is held.');
    assert.equal(format.why(work(7, { state: 'queued', paused: true })), 'Paused.');
    assert.equal(format.why(work(7)), '');
    assert.equal(
      format.why(work(7, { state: 'ended', end: 'failed', detail: 'exit code 3' })),
      'Failed (exit code 3).'
    );
  });

  it('says an end once', () => {
    const end = (more: object): string => format.endText(work(1, { state: 'ended', ...more }));
    assert.equal(end({ end: 'succeeded', detail: 'exit code 0' }), 'succeeded');
    assert.equal(end({ end: 'cancelled', detail: 'cancelled by ada.' }), 'cancelled by ada');
    assert.equal(end({ end: 'gpu-oom', detail: 'peak 79 GiB' }), 'GPU out of memory (peak 79 GiB)');
    assert.equal(end({}), 'ended');
    const own = work(1, { state: 'ended', end: 'cancelled', detail: 'cancelled by ada.' });
    assert.equal(format.endText(own, 'ada'), 'cancelled by you');
    assert.equal(format.endText(own, 'da'), 'cancelled by ada');
  });

  it('knows good ends from bad ones', () => {
    for (const end of ['succeeded', 'released', 'cancelled', 'expired'] as const) {
      assert.equal(format.isBadEnd(work(1, { end })), false);
    }
    for (const end of ['failed', 'gpu-oom', 'lost', 'abandoned'] as const) {
      assert.equal(format.isBadEnd(work(1, { end })), true);
    }
  });
});

describe('the facts under a workload', () => {
  const devices = [device(0), device(1)];

  it('are devices and time of what holds some', () => {
    assert.deepEqual(format.facts(reservation(1), devices, NOON), [
      'GPU 0',
      '2 h left, until 14:00'
    ]);
    assert.deepEqual(format.facts(work(1, { devices: ['GPU-1'], attempt: 2 }), devices, NOON), [
      'GPU 1',
      'attempt 2'
    ]);
    assert.deepEqual(format.facts(reservation(1, { overtime: true }), devices, NOON), [
      'GPU 0',
      'overtime'
    ]);
    const notice = { reason: 'preempted', yield_by: NOON + 120, detail: '' } as const;
    assert.deepEqual(format.facts(reservation(1, { state: 'yielding', notice }), devices, NOON), [
      'GPU 0',
      'yields by 12:02'
    ]);
  });

  it('are the ask, the place and the expected start of what waits', () => {
    const it_ = work(1, {
      state: 'queued',
      ask: { devices: 2 },
      ahead: 1,
      expected_start_at: NOON + 1800
    });
    assert.deepEqual(format.facts(it_, devices, NOON), ['2 GPUs', '2nd in line', 'about 12:30']);
    const range = { ...it_, expected_start_from: NOON + 600, expected_start_until: NOON + 3600 };
    assert.deepEqual(format.facts(range, devices, NOON), [
      '2 GPUs',
      '2nd in line',
      '12:10 to 13:00'
    ]);
    assert.deepEqual(format.facts(work(1, { state: 'queued' }), devices, NOON), ['1 GPU']);
  });

  it('are the end of what is over', () => {
    const it_ = work(1, { state: 'ended', ended_at: NOON - 60 });
    assert.deepEqual(format.facts(it_, devices, NOON), ['ended 11:59']);
  });
});

describe('a quota', () => {
  it('says what is held and what is left', () => {
    const quota = { rule: 'you', devices_held: 1, devices_allowed: 2 };
    assert.deepEqual(format.bounds(quota, NOON), [
      { label: 'you', text: '1 of 2 GPUs', left: '1 left', part: 0.5 }
    ]);
  });

  it('says hours of a window, and when there are more', () => {
    const quota = {
      rule: 'a week',
      used_ms: 81 * 3_600_000,
      allowed_ms: 80 * 3_600_000,
      available_again_at: NOON + 3600
    };
    assert.deepEqual(format.bounds(quota, NOON), [
      { label: 'a week', text: '81 of 80 GPU h', left: '0 h left, more at 13:00', part: 1 }
    ]);
  });

  it('of nothing at all divides by nothing', () => {
    const [bound] = format.bounds({ rule: 'none', devices_allowed: 0 }, NOON);
    assert.equal(bound.part, null);
    assert.equal(bound.text, '0 of 0 GPUs');
  });
});
