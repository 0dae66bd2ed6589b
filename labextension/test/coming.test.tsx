import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { Coming, coming, span } from '../src/coming';
import type { HoldView } from '../src/types';
import { NOON, reservation, status } from './builders';

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
    assert.equal(renderToStaticMarkup(<Coming status={status({})} now={NOON} />), '');
  });

  it('says what is under way until when, for whom, and what is in the way', () => {
    const holds = [
      hold({ from_at: NOON - HOUR, is_mine: true, warnings: ['3 of 4 GPUs are there.'] }),
      hold({ id: 16, name: 'works', teams: [], maintenance: true, named: true, devices: ['GPU-0'] })
    ];
    const shown = renderToStaticMarkup(<Coming status={status({ holds })} now={NOON} />);
    const text = shown.replace(/<[^>]*>/g, ' ').replace(/\s+/g, ' ');
    assert.match(text, /ml101, for you now 4 GPUs · until 16:00 3 of 4 GPUs are there\./);
    assert.match(text, /works, maintenance not yet 1 GPU · 14:00 to 16:00/);
  });
});
