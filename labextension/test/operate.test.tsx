import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { Acts, cancelQuestion } from '../src/acts';
import { type Mark, Refusal } from '../src/api';
import { cordonText } from '../src/devicewords';
import type { GpuState } from '../src/fold';

import { isOperator, pageTitle, stillShown } from '../src/page/app';
import { PageFace } from '../src/page/face';
import { countText, Marks, WorkTable } from '../src/page/operate';
import { markQuestion, markText, Operating } from '../src/page/operating';
import { devicesText, fits, linesOf, liveWork, timeText, whose } from '../src/page/rows';
import { commandsOf, runner } from '../src/page/run';
import type { GpuModel } from '../src/model';
import type { ServiceApi } from '../src/page/service';
import type { WorkloadView } from '../src/types';
import { device, NOON, reservation, state, status, work } from './builders';

const html = (element: React.ReactElement): string => renderToStaticMarkup(element);
const text = (element: React.ReactElement): string => html(element).replace(/<[^>]*>/g, ' ');
const run = (): void => undefined;

const theirs = (id: number, more: Partial<WorkloadView> = {}): WorkloadView =>
  work(id, { is_mine: false, owner: 'ben', team: 'speech', ...more });

describe('the list of all work', () => {
  it('has what leaves before what has devices, and that before what waits, by priority and age', () => {
    const held = [theirs(1), theirs(2, { state: 'yielding' }), theirs(3)];
    const waits = [9, 8, 7].map(id => theirs(id, { state: 'queued', priority: id === 8 ? 10 : 0 }));
    const rows = liveWork(status({ workloads: held }), waits);
    assert.deepEqual(
      rows.map(it => it.id),
      [2, 1, 3, 8, 7, 9]
    );
  });

  it('believes the stream where it knows more than the list that was read', () => {
    const rows = liveWork(status({ workloads: [theirs(7)] }), [theirs(7, { state: 'queued' })]);
    assert.deepEqual(
      rows.map(it => it.state),
      ['active']
    );
  });

  it('is found by owner, team, queue, state, name and number, each word of what was typed', () => {
    const it_ = theirs(12, {
      name: 'digits',
      queue: 'deferred',
      state: 'queued',
      waiting: 'quota'
    });
    for (const typed of [
      '',
      'ben',
      'SPEECH',
      'deferred',
      'waiting',
      'quota',
      'digi',
      '12',
      ' ben  job '
    ]) {
      assert.ok(fits(it_, typed), typed);
    }
    for (const typed of ['ana', 'ben running', 'training']) {
      assert.ok(!fits(it_, typed), typed);
    }
  });

  it('says whose it is, what it has and since when', () => {
    const held = theirs(1, { devices: ['GPU-0'], granted_at: NOON - 3600, ends_at: NOON + 3600 });
    assert.equal(whose(held), 'ben · speech');
    assert.equal(whose(work(2, { team: null })), 'you');
    assert.equal(whose(theirs(3, { owner: null, team: null })), 'not told');
    assert.equal(devicesText(held, [device(0)]), 'GPU 0');
    assert.equal(timeText(held, NOON), 'since 11:00, until 13:00');
    const waits = theirs(4, { state: 'queued', submitted_at: NOON - 600, ask: { devices: 2 } });
    assert.equal(devicesText(waits, []), 'wants 2 GPUs');
    assert.equal(timeText(waits, NOON), 'waits for 10 min');
    const leaves = theirs(5, {
      state: 'yielding',
      granted_at: NOON - 3600,
      notice: { reason: 'drained', yield_by: NOON + 60, detail: '' }
    });
    assert.equal(timeText(leaves, NOON), 'since 11:00, yields by 12:01');
  });

  it('speaks of others as others: neither are their GPUs yours, nor their quota', () => {
    const rows = [
      reservation(1, { is_mine: false, owner: 'ben' }),
      theirs(2, { state: 'queued', waiting: 'quota' })
    ];
    const said = text(<WorkTable works={rows} status={status()} now={NOON} run={run} />);
    assert.match(said, /in use/);
    assert.match(said, /Their quota is held\./);
    assert.doesNotMatch(said, /\byours?\b/i);
  });

  it('offers a log of what has run, and to cancel what is not about to be over', () => {
    const buttons = (it_: WorkloadView): string[] =>
      [
        ...html(<WorkTable works={[it_]} status={status()} now={NOON} run={run} />).matchAll(
          /data-gpu="all-(log|cancel)"/g
        )
      ].map(found => found[1]);
    assert.deepEqual(buttons(theirs(1, { attempt: 1 })), ['log', 'cancel']);
    assert.deepEqual(buttons(theirs(1, { state: 'queued', attempt: 0 })), ['cancel']);
    assert.deepEqual(buttons(theirs(1, { state: 'yielding', attempt: 1 })), ['log']);
  });

  it('counts what is shown, what fits and what was not read', () => {
    const all = [theirs(1), theirs(2)];
    assert.equal(countText(all, all, 0), '2 workloads');
    assert.equal(countText([all[0]], all, 300), '1 of 2, 300 more wait');
  });

  it('cannot put markup into the page by its words', () => {
    const bad = theirs(1, { name: '<img src=x>', owner: '<b>', queue: '<i>' });
    assert.doesNotMatch(
      html(<WorkTable works={[bad]} status={status()} now={NOON} run={run} />),
      /<img|<b>|<i>/
    );
  });
});

describe('the lines', () => {
  it('are all queues with who waits and who has devices', () => {
    const now = status({
      waiting: { interactive: 0, training: 3 },
      workloads: [theirs(1, { queue: 'training' }), theirs(2, { queue: 'old' })]
    });
    assert.deepEqual(linesOf(now), [
      { queue: 'interactive', waiting: 0, holding: 0 },
      { queue: 'training', waiting: 3, holding: 1 },
      { queue: 'old', waiting: 0, holding: 1 }
    ]);
  });
});

describe('a device, to an operator', () => {
  const marks = (more: object): string[] =>
    [
      ...html(<Marks device={device(0, more)} run={run} />).matchAll(/data-gpu="device-(\w+)"/g)
    ].map(found => found[1]);

  it('can be taken out of service and into it again, as it stands', () => {
    assert.deepEqual(marks({}), ['cordon', 'drain']);
    assert.deepEqual(marks({ cordoned: true }), ['uncordon']);
    assert.deepEqual(marks({ cordoned: true, workloads: [1] }), ['drain', 'uncordon']);
    assert.deepEqual(marks({ condition: 'faulty' }), ['cordon', 'drain', 'uncordon']);
  });

  it('is drained only after it was said who has to leave it', () => {
    const on = { devices: ['GPU-0'] };
    const now = status({ workloads: [theirs(1, { name: 'digits', ...on })] });
    const asked = markQuestion(device(0, { workloads: [1] }), now, 'drain');
    assert.match(asked?.body ?? '', /leave it: digits of ben\./);
    assert.match(markQuestion(device(0), status(), 'drain')?.body ?? '', /Nobody has it/);
    assert.equal(markQuestion(device(0), status(), 'uncordon'), null);
  });

  it('that is not well after all says so', () => {
    assert.equal(markText(device(0), 'uncordon'), 'GPU 0 is in service again.');
    assert.match(markText(device(0, { condition: 'hot' }), 'uncordon'), /but still too hot\./);
  });

  it('says who cordoned it and why, as far as that is known', () => {
    const cordoned = { cordoned: true, cordoned_by: 'olga', cordon_reason: 'new fans' };
    assert.equal(cordonText(device(0, cordoned)), 'Cordoned by olga: new fans');
    assert.equal(cordonText(device(0, { ...cordoned, cordoned_by: null })), 'Cordoned: new fans');
    assert.equal(cordonText(device(0, { cordoned: true })), '');
    assert.equal(cordonText(device(0, { cordon_reason: 'long ago' })), '');
  });
});

/** A broker that writes down what it is told. */
class Broker {
  told: unknown[][] = [];
  refusal: Error | null = null;

  cancel(id: number, reason?: string): Promise<WorkloadView> {
    return this._done(['cancel', id, reason], theirs(id));
  }

  release(id: number): Promise<WorkloadView> {
    return this._done(['release', id], theirs(id));
  }

  extend(id: number, seconds: number): Promise<WorkloadView> {
    return this._done(['extend', id, seconds], theirs(id, { name: 'digits', ends_at: NOON + 60 }));
  }

  keep(id: number): Promise<WorkloadView> {
    return this._done(['keep', id], theirs(id));
  }

  letGo(id: number): Promise<WorkloadView> {
    return this._done(['let-go', id], theirs(id));
  }

  mark(uuid: string, mark: Mark, reason: string): Promise<object> {
    return this._done([mark, uuid, reason], device(0));
  }

  private _done<T>(told: unknown[], answer: T): Promise<T> {
    this.told.push(told);
    return this.refusal ? Promise.reject(this.refusal) : Promise.resolve(answer);
  }
}

describe('the page', () => {
  let broker: Broker;
  let face: PageFace;
  let known: GpuState;
  let start: (command: string, args?: Record<string, string | number>) => void;
  let signedOut: number;
  let own: string[];
  const question = (): string => face.shown.asked?.title ?? '';

  async function settle(): Promise<void> {
    for (let turn = 0; turn < 20; turn += 1) {
      await Promise.resolve();
    }
  }

  beforeEach(() => {
    broker = new Broker();
    [signedOut, own] = [0, []];
    face = new PageFace(() => (signedOut += 1));
    known = state({
      devices: [device(0, { workloads: [1] })],
      workloads: [
        work(1, { name: 'mine', devices: ['GPU-0'] }),
        theirs(2, { name: 'theirs' }),
        reservation(3, { name: 'a.ipynb' }),
        work(4, { state: 'queued' })
      ]
    });
    const model = {
      api: broker,
      state: known,
      now: () => NOON,
      clearEnded: () => own.push('clear'),
      dismiss: (key: string) => own.push(key)
    } as unknown as GpuModel<ServiceApi>;
    const acts = new Acts(model, face);
    const waiting = [theirs(9, { state: 'queued', name: 'waits' })];
    const operating = new Operating(model, acts, face, {
      known: { waiting, hasMore: false, trouble: '' }
    });
    start = runner(commandsOf(model, acts, operating, face));
  });

  it('asks before work that runs is cancelled, and not before one’s own leaves the line', async () => {
    start('gpu:cancel', { workload: 4 });
    await settle();
    assert.deepEqual(broker.told, [['cancel', 4, undefined]]);
    start('gpu:cancel', { workload: 1 });
    await settle();
    assert.equal(question(), 'Cancel mine?');
    face.answer(null);
    await settle();
    assert.equal(broker.told.length, 1);
    assert.equal(face.shown.asked, null);
  });

  it('asks an operator why, and names whose work it is, also of what waits', async () => {
    for (const [id, name] of [
      [2, 'theirs'],
      [9, 'waits']
    ] as const) {
      start('gpu:cancel-any', { workload: id });
      await settle();
      assert.equal(question(), `Cancel ${name} of ben?`);
      face.answer('maintenance');
      await settle();
    }
    assert.deepEqual(broker.told, [
      ['cancel', 2, 'maintenance'],
      ['cancel', 9, 'maintenance']
    ]);
    assert.deepEqual(
      face.shown.said.map(it => it.text),
      ['theirs of ben is cancelled.', 'waits of ben is cancelled.']
    );
  });

  it('drains after a question, and says what has become of it', async () => {
    start('gpu:drain', { device: 'GPU-0' });
    await settle();
    face.answer(null);
    await settle();
    assert.deepEqual(broker.told, []);
    start('gpu:drain', { device: 'GPU-0' });
    await settle();
    face.answer('');
    await settle();
    start('gpu:uncordon', { device: 'GPU-0' });
    await settle();
    assert.deepEqual(broker.told, [
      ['drain', 'GPU-0', ''],
      ['uncordon', 'GPU-0', '']
    ]);
    assert.match(face.shown.said[1].text, /in service again/);
  });

  it('does with one’s own work what JupyterLab does by the same names', async () => {
    start('gpu:extend', { workload: 1, seconds: 3600 });
    start('gpu:keep', { workload: 3 });
    start('gpu:let-go', { workload: 4 });
    start('gpu:release', { workload: 3 });
    await settle();
    face.answer('');
    start('gpu:clear-ended');
    start('gpu:dismiss-alert', { key: 'idle:3' });
    start('gpu:show-log', { workload: 1 });
    await settle();
    assert.deepEqual(broker.told, [
      ['extend', 1, 3600],
      ['keep', 3],
      ['let-go', 4],
      ['release', 3]
    ]);
    assert.deepEqual(own, ['clear', 'idle:3']);
    assert.equal(face.shown.log, 1);
    assert.equal(face.shown.said[0].text, 'digits has its GPU until 12:01 now.');
  });

  it('asks one question after the other', async () => {
    start('gpu:cancel', { workload: 1 });
    start('gpu:release', { workload: 3 });
    await settle();
    assert.equal(question(), 'Cancel mine?');
    face.answer(null);
    await settle();
    assert.match(question(), /^Release /);
    face.answer('');
    await settle();
    assert.deepEqual(broker.told, [['release', 3]]);
  });

  it('says what was refused until it is closed, once, and looks whether the login is over', async () => {
    broker.refusal = new Refusal(401, 'not-allowed', 'You were signed out', 'Reload the page.');
    start('gpu:keep', { workload: 3 });
    start('gpu:keep', { workload: 3 });
    await settle();
    const [said, second] = face.shown.said;
    assert.equal(second, undefined);
    assert.equal(said.text, 'You were signed out. Reload the page.');
    assert.ok(said.isTrouble);
    assert.equal(signedOut, 2);
    face.putAway(said.key);
    assert.deepEqual(face.shown.said, []);
  });
});

describe('a question before work is cancelled', () => {
  const body = (it_: WorkloadView): string => cancelQuestion(it_)?.body ?? '';

  it('says what is lost', () => {
    assert.match(body(work(1)), /It runs, and does not come back/);
    assert.match(body(theirs(1, { state: 'queued' })), /leaves the line/);
    const held = { is_mine: false, holder: { kind: 'server', name: 'ben/' } };
    assert.match(body(reservation(1, held)), /The server that has its GPUs ends/);
    assert.equal(cancelQuestion(work(1, { state: 'queued' })), null);
  });
});

describe('the head of the page', () => {
  it('says in the window’s title how many are free', () => {
    assert.equal(pageTitle(state({ devices: [device(0), device(1)] })), 'GPUs · 2 of 2 free');
    assert.equal(pageTitle({ ...state({ devices: [device(0)] }), link: 'lost' }), 'GPUs · away');
    assert.equal(pageTitle({ ...state(), status: null }), 'GPUs');
  });

  it('shows nothing of who was here once their login is over, and why', () => {
    const trouble = { message: 'You were signed out.', hint: 'Reload the page.' };
    const known = { ...state({ devices: [device(0)] }), recent: [work(1)], trouble };
    assert.equal(stillShown({ ...known, link: 'lost' }).status, known.status);
    const left = stillShown({ ...known, link: 'expired' });
    assert.deepEqual([left.status, left.recent, left.trouble], [null, [], trouble]);
    assert.equal(pageTitle(left), 'GPUs');
  });

  it('has the operator’s view for those who may operate', () => {
    assert.ok(isOperator({ scopes: ['read', 'operate'] }));
    assert.ok(isOperator({ scopes: ['admin'] }));
    assert.ok(!isOperator({ scopes: ['read', 'reserve', 'submit', 'logs'] }));
  });
});
