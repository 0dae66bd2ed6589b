import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { cancelQuestion } from '../src/acts';
import { Coming, coming, MOST_SHOWN, span } from '../src/coming';
import { myWork, summary } from '../src/select';
import type { HoldView } from '../src/types';
import { NOON, reservation, state, status } from './builders';

const HOUR = 3600;
const hold = (more: Partial<HoldView> = {}): HoldView => ({
  id: 15,
  name: 'ml101',
  from_at: NOON + 2 * HOUR,
  until_at: NOON + 4 * HOUR,
  count: 4,
  teams: ['ml101'],
  ...more
});
const run = (): void => undefined;
const later = reservation(20, {
  is_mine: false,
  owner: 'grace',
  state: 'queued',
  not_before: NOON + HOUR,
  ask: { devices: 2, duration_seconds: HOUR }
});

describe('what is coming', () => {
  it('stands in the order of time, with whose it is', () => {
    const items = coming(status({ holds: [hold()], coming: [later] }), NOON);
    assert.deepEqual(
      items.map(one => [one.what, one.whose, span(one, NOON)]),
      [
        ['2 GPUs', 'reserved by grace', '13:00 to 14:00'],
        ['4 GPUs', 'ml101, for ml101', '14:00 to 16:00']
      ]
    );
  });

  it('leaves out what is over, was given back, or has no window', () => {
    const holds = [hold({ given_back: true }), hold({ until_at: NOON }), hold({ from_at: null })];
    assert.deepEqual(coming(status({ holds }), NOON), []);
    assert.equal(renderToStaticMarkup(<Coming status={status({})} now={NOON} run={run} />), '');
  });

  it('says what is under way until when, for whom, and what is in the way', () => {
    const holds = [
      hold({ from_at: NOON - HOUR, is_mine: true, warnings: ['3 of 4 GPUs are there.'] }),
      hold({ id: 16, name: 'works', teams: [], maintenance: true, named: true, devices: ['GPU-0'] })
    ];
    const shown = renderToStaticMarkup(<Coming status={status({ holds })} now={NOON} run={run} />);
    const text = shown.replace(/<[^>]*>/g, ' ').replace(/\s+/g, ' ');
    assert.match(text, /ml101, for you now 4 GPUs · until 16:00 3 of 4 GPUs are there\./);
    assert.match(text, /works, maintenance not yet 1 GPU · 14:00 to 16:00/);
  });

  it('has one’s own with a way to give it up, however much others have before it', () => {
    const own = reservation(30, {
      name: '',
      state: 'queued',
      waiting: 'not-before',
      not_before: NOON + 9 * HOUR,
      ask: { devices: 1, duration_seconds: HOUR, device_class: 'a100' }
    });
    const others = Array.from({ length: MOST_SHOWN + 1 }, (_, at) => ({ ...later, id: 40 + at }));
    const told = { coming: others, workloads: [own] };
    const shown = renderToStaticMarkup(<Coming status={status(told)} now={NOON} run={run} />);
    const text = shown.replace(/<[^>]*>/g, ' ').replace(/\s+/g, ' ');
    assert.match(text, /Reservation 30 for you 1 GPU of class a100 · 21:00 to 22:00 Cancel $/);
    assert.equal(shown.split('data-gpu="cancel"').length, 2, 'others’ are not ours to cancel');
    assert.equal(coming(status(told), NOON).length, MOST_SHOWN + 1);
  });

  it('is in no line until its time has come, and is then among one’s work', () => {
    const own = reservation(30, {
      state: 'queued',
      waiting: 'not-before',
      not_before: NOON + HOUR
    });
    assert.deepEqual(myWork(status({ workloads: [own] })), []);
    assert.equal(
      summary({ ...state({ workloads: [own] }), link: 'open' }, NOON, null),
      '2 of 2 GPUs free'
    );
    const due = { ...own, waiting: 'devices' as const };
    assert.deepEqual(myWork(status({ workloads: [due] })), [due]);
    assert.deepEqual(coming(status({ workloads: [due] }), NOON), []);
  });

  it('is given up only when that is meant, since it may not be there to be had again', () => {
    const own = reservation(30, {
      state: 'queued',
      waiting: 'not-before',
      not_before: NOON + HOUR
    });
    assert.match(cancelQuestion(own)?.body ?? '', /may not be there/);
    assert.equal(cancelQuestion({ ...own, waiting: 'devices' }), null);
  });
});
