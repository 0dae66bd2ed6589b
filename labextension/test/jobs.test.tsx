import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { Acts } from '../src/acts';
import { Far } from '../src/details';
import { Ended } from '../src/ended';
import { facts, why } from '../src/format';
import {
  arrayLoss,
  arrayText,
  attemptText,
  curvesOf,
  endsText,
  entriesOf,
  farOf,
  figure,
  type IArray,
  leftText,
  memberText
} from '../src/jobwords';
import { Work } from '../src/queue';
import { lastText, nextText, RecurringJobs } from '../src/recurring';
import type { Api } from '../src/api';
import type { IGpuModel, ISource } from '../src/model';
import type { IQuestion } from '../src/releasing';
import type { Progress, RecurringView, WorkloadView } from '../src/types';
import { device, NOON, reservation, state, status, work } from './builders';

const run = (): void => undefined;
const html = (element: React.ReactElement): string => renderToStaticMarkup(element);
const text = (element: React.ReactElement): string => html(element).replace(/<[^>]*>/g, ' ');

function report(step: number, more: Partial<Progress> = {}): Progress {
  return { at: NOON, attempt: 1, step, of: 50, ...more };
}

function training(more: Partial<WorkloadView> = {}): WorkloadView {
  return work(1, {
    attempt: 1,
    started_at: NOON - 120,
    progress: report(12, { numbers: { loss: 0.3141, lr: 1e-5, more: 3 } }),
    ...more
  });
}

/** A job of an array of ten. */
function member(index: number, more: Partial<WorkloadView> = {}): WorkloadView {
  return work(11 + index, {
    state: 'queued',
    member: { array: 12, index, of: 10, parameters: { lr: '0.1', seed: String(index) } },
    ...more
  });
}

describe('the progress of a job', () => {
  it('is a step, a part, the rest by its rate, and the first numbers', () => {
    const far = farOf(training(), NOON);
    assert.deepEqual(far, {
      step: 'step 12 of 50, 24 %',
      part: 0.24,
      left: 'about 6 min left',
      numbers: ['loss 0.314', 'lr 0.00001']
    });
  });

  it('says no rest that nobody can know', () => {
    const left = (more: Partial<WorkloadView>, now = NOON): string | undefined =>
      farOf(training(more), now)?.left;
    // Where an attempt before this one got to is not known.
    assert.equal(left({ attempt: 2, progress: report(12, { attempt: 2 }) }), '');
    assert.equal(left({ progress: report(12, { of: null }) }), '');
    assert.equal(left({ progress: report(0) }), '');
    assert.equal(left({ progress: report(50) }), '');
    assert.equal(left({ state: 'yielding' }), '');
    assert.equal(
      left({}, NOON + 3600),
      '',
      'it has stood still for longer than the rest would take'
    );
  });

  it('of another attempt than the present one is not shown', () => {
    assert.equal(farOf(training({ attempt: 2 }), NOON), null);
    assert.equal(farOf(training({ state: 'queued' }), NOON), null);
    assert.equal(farOf(work(1, { attempt: 1 }), NOON), null);
  });

  it('is a bar that those hear who do not see it', () => {
    const found = html(<Far it={training()} now={NOON} />);
    assert.match(found, /role="progressbar"/);
    assert.match(found, /aria-label="Progress of digits"/);
    assert.match(found, /aria-valuenow="24"/);
    assert.match(found, /aria-valuetext="step 12 of 50, 24 %"/);
    assert.match(found, /loss 0\.314/);
  });

  it('without an end is words, and no bar that would be a measurement', () => {
    const found = html(<Far it={training({ progress: report(12, { of: null }) })} now={NOON} />);
    assert.match(found, /step 12</);
    assert.doesNotMatch(found, /progressbar/);
  });

  it('writes numbers to three digits, and n/a where a loss was none', () => {
    assert.deepEqual([0.31415, 1.5e-7, 12, 123456, 1e9, -0.5].map(figure), [
      '0.314', '1.5e-7', '12', '123456', '1000000000', '-0.5'
    ]); // prettier-ignore
    assert.equal(figure(null), 'n/a');
  });
});

describe('the curves of a job', () => {
  const items = [
    report(1, { at: NOON - 40, numbers: { loss: 2.3 } }),
    report(2, { at: NOON - 30, numbers: { loss: null, accuracy: 0.5 } }),
    report(3, { at: NOON - 20, numbers: { loss: 0.28, accuracy: 0.7 } }),
    report(5, { numbers: { loss: 0.31 } })
  ];

  it('are one a number, with gaps where it was none', () => {
    const [loss, accuracy] = curvesOf(items);
    assert.deepEqual(loss.values, [2.3, null, 0.28, 0.31]);
    assert.equal(loss.text, '0.31 (0.28 to 2.3)');
    assert.deepEqual([accuracy.low, accuracy.high], [0.5, 0.7]);
    assert.equal(accuracy.text, '0.7 (0.5 to 0.7)');
    assert.deepEqual(curvesOf([report(1, { numbers: { nan: null } })]), []);
    assert.equal(curvesOf([report(1, { numbers: { lr: 3 } })])[0].text, '3');
  });

  it('give the rate of an attempt that did not begin at the beginning', () => {
    assert.equal(leftText(items[0], items[3], NOON), 'about 8 min left');
    assert.equal(leftText(items[3], items[3], NOON), '');
  });
});

describe('the attempts of a job', () => {
  it('are summed up where there was more than one', () => {
    const again = training({ attempt: 3, preemptions: 2, failures: 1, repeated_seconds: 250 });
    assert.equal(
      facts({ ...again, devices: ['GPU-0'] }, [device(0)], NOON)[1],
      'attempt 3, 2 preemptions, 1 failure, 4 min of work repeated'
    );
    assert.deepEqual(facts(training({ devices: ['GPU-0'] }), [device(0)], NOON), ['GPU 0']);
    assert.deepEqual(facts(work(1, { state: 'queued', attempt: 1, preemptions: 1 }), [], NOON), [
      '1 GPU',
      '1 attempt so far, 1 preemption'
    ]);
  });

  it('are a line each', () => {
    const begun = { attempt: 1, started_at: NOON - 600, devices: ['GPU-0'] };
    const said = (more: object): string => attemptText({ ...begun, ...more }, [device(0)], NOON);
    assert.equal(said({}), 'since 11:50 on GPU 0');
    const preempted = { ended_at: NOON, eviction: 'preempted', evicted_for: 21 };
    assert.equal(said(preempted), '11:50, for 10 min on GPU 0, preempted (number 21 came first)');
    const failed = { ended_at: NOON, outcome: { end: 'gpu-oom' }, repeated_seconds: 61 };
    assert.equal(
      said(failed),
      '11:50, for 10 min on GPU 0, GPU out of memory, 1 min of work repeated'
    );
  });
});

describe('an array', () => {
  const ten = [
    ...[1, 2].map(index => member(index, { state: 'active', attempt: 1 })),
    ...[3, 4, 5, 6, 7].map(index => member(index))
  ];
  const array = (members: readonly WorkloadView[]): IArray => {
    const [entry] = entriesOf(members);
    assert.ok(entry.array);
    return entry.array;
  };

  it('is one row among other work, where its first job stands', () => {
    const entries = entriesOf([reservation(1), ...ten, work(90)]);
    assert.deepEqual(
      entries.map(it_ => it_.it?.id ?? `array ${it_.array?.array}`),
      [1, 'array 12', 90]
    );
  });

  it('says how many run, wait and are done', () => {
    assert.equal(arrayText(array(ten), true), '2 run, 5 wait, 3 done of 10');
    assert.equal(arrayText(array([member(1, { paused: true })]), true), '1 paused, 9 done of 10');
    // Of two hundred waiting jobs the document leaves out the rest: how many are done is not known.
    assert.equal(arrayText(array(ten), false), '2 run, 5 or more wait of 10');
  });

  it('is drawn folded, with a bar and one button for all of it', () => {
    const many = { workloads: [reservation(1), ...ten] };
    const found = html(
      <Work state={state(many)} status={status(many)} begin="" now={NOON} run={run} />
    );
    assert.match(found, /data-gpu="array" data-id="12"/);
    assert.match(found, /data-gpu="array-text">2 run, 5 wait, 3 done of 10</);
    assert.match(found, /role="progressbar"[^>]*aria-valuenow="30"/);
    assert.match(found, /data-gpu="cancel-array"/);
    assert.equal(found.match(/data-gpu="workload" data-id/g)?.length, 1);
  });

  it('tells its jobs apart by parameters, which are the owner’s, else by their place', () => {
    assert.equal(memberText(member(3)), 'lr 0.1, seed 3');
    const theirs = member(3, { is_mine: false, member: { array: 12, index: 3, of: 10 } });
    assert.equal(memberText(theirs), '3 of 10');
    assert.equal(memberText(work(1)), '');
  });

  it('that ended is one line, with how many ended how', () => {
    const over = (index: number, end: 'succeeded' | 'failed'): WorkloadView =>
      member(index, { state: 'ended', end, ended_at: NOON, attempt: 1 });
    const ended = [over(1, 'succeeded'), over(2, 'failed'), over(3, 'succeeded')];
    assert.equal(endsText(ended), '2 succeeded, 1 failed');
    const found = text(<Ended recent={[...ended, work(90)]} caller="ada" now={NOON} run={run} />);
    assert.match(found, /digits, array 12\s*:\s*2 succeeded, 1 failed/);
  });

  it('is cancelled as a whole, after a question that says what is lost', async () => {
    const asked: IQuestion[] = [];
    const said: string[] = [];
    let cancelled: number[] = [];
    const model = {
      state: state({ workloads: ten }),
      api: {
        cancelArray: (id: number) => {
          cancelled.push(id);
          return Promise.resolve(ten);
        }
      }
    } as unknown as IGpuModel<Api & ISource>;
    let answer = false;
    const acts = new Acts(model, {
      confirm: question => {
        asked.push(question);
        return Promise.resolve(answer);
      },
      say: word => said.push(word),
      tell: error => {
        throw error;
      }
    });
    assert.equal(await acts.cancelArray(12), null);
    assert.deepEqual(cancelled, []);
    assert.equal(asked[0].title, 'Cancel array 12 (digits)?');
    assert.equal(
      asked[0].body,
      'What is left of its 10 jobs ends, 2 of them while running. None comes back.'
    );
    answer = true;
    await acts.cancelArray(12);
    assert.deepEqual(cancelled, [12]);
    assert.deepEqual(said, ['7 jobs of array 12 (digits) cancelled.']);
    assert.equal(
      arrayLoss(array(ten.slice(2))),
      'What is left of its 10 jobs ends. None comes back.'
    );
    cancelled = [];
    await acts.cancelArray(12, true);
    assert.deepEqual([cancelled, asked.length], [[12], 2]);
  });
});

describe('a job that comes after others', () => {
  const waits = work(14, {
    state: 'queued',
    waiting: 'dependency',
    unmet: [12],
    reason:
      'It comes after job 12 (prep), which runs. `jupyter gpu amend 14 --no-after` lets it start all the same, ' +
      '`jupyter gpu cancel 14` ends it.'
  });

  it('says whom it waits for, and has buttons in place of commands', () => {
    assert.equal(why(waits), 'It comes after job 12 (prep), which runs.');
    assert.equal(why({ ...waits, reason: '' }), 'Waits for 12.');
    assert.deepEqual(facts({ ...waits, ahead: 28 }, [], NOON), ['1 GPU']);
    const many = { workloads: [waits] };
    const found = html(
      <Work state={state(many)} status={status(many)} begin="" now={NOON} run={run} />
    );
    assert.match(found, /data-gpu="unchain"[^]*data-gpu="cancel"/);
  });
});

describe('recurring jobs', () => {
  const nightly: RecurringView = {
    id: 5,
    owner: 'ada',
    team: 'lab',
    name: 'nightly',
    command: 'python train.py',
    cron: '30 2 * * *',
    timezone: 'Europe/Amsterdam',
    overlap: 'skip',
    paused: false,
    added_at: NOON - 1000,
    next_at: NOON + 14.5 * 3600,
    last_at: NOON - 9.5 * 3600,
    last_workload: 40,
    last_state: 'ended',
    last_end: 'gpu-oom',
    times: 3
  };

  it('are no section where there is none', () => {
    assert.equal(html(<RecurringJobs items={[]} now={NOON} run={run} />), '');
  });

  it('say when they come next on the reader’s clock, and what became of the last', () => {
    assert.equal(nextText(nightly, NOON), 'next tomorrow 02:30');
    assert.equal(nextText({ ...nightly, paused: true }, NOON), 'paused');
    assert.equal(nextText({ ...nightly, next_at: null }, NOON), 'never again');
    assert.equal(lastText(nightly, NOON), 'Last 02:30: job 40, GPU out of memory.');
    assert.equal(lastText({ ...nightly, last_at: null }, NOON), 'It has not come yet.');
    assert.equal(lastText({ ...nightly, last_workload: null }, NOON), 'Last 02:30: no job.');
    const running = { ...nightly, last_state: 'active', last_end: null } as const;
    assert.equal(lastText(running, NOON), 'Last 02:30: job 40, runs.');
  });

  it('have their calendar, what is to be said of the last time, and what can be done', () => {
    const it_ = { ...nightly, last_detail: 'the last time’s job is not over' };
    const found = html(<RecurringJobs items={[it_]} now={NOON} run={run} />);
    assert.match(found, /title="In the time zone Europe\/Amsterdam">30 2 \* \* \*</);
    assert.match(found, /The last time’s job is not over\./);
    const buttons = [...found.matchAll(/<button[^>]*data-gpu="([^"]*)"/g)].map(one => one[1]);
    assert.deepEqual(buttons, [
      'log-open',
      'recurring-pause',
      'recurring-fire',
      'recurring-remove'
    ]);
    const paused = html(
      <RecurringJobs items={[{ ...nightly, paused: true }]} now={NOON} run={run} />
    );
    assert.match(paused, /recurring-let-go/);
  });
});
