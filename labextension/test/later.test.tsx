import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { Api } from '../src/api';
import { LaterFields, laterFlaw, laterOf, laterText } from '../src/laterform';
import { ReserveForm } from '../src/reserve';
import { device, NOON, state, status } from './builders';

const HOUR = 3600;
const run = (): void => undefined;
const typed = {
  ...laterText({ devices: 1, hours: 2 }, NOON),
  from: '2026-11-26T09:30',
  deviceClass: 'a100'
};
const shown = (more: Partial<Parameters<typeof LaterFields>[0]> = {}): string =>
  renderToStaticMarkup(
    <LaterFields status={status()} now={NOON} begin={typed} refusal="" onTyped={run} {...more} />
  );

describe('a reservation for later', () => {
  it('begins with the next full hour and with what the settings say', () => {
    const begin = laterText({ devices: 2, hours: 1.5 }, NOON + 61);
    assert.deepEqual(begin, {
      devices: '2',
      from: '2026-11-25T13:00',
      hours: '1.5',
      deviceClass: ''
    });
    assert.equal(laterText({ devices: 2, hours: 1 }, NOON + 11.9 * HOUR).from, '2026-11-26T00:00');
  });

  it('asks for what was typed, from then on by the clock on the wall', () => {
    assert.deepEqual(laterOf(typed), {
      kind: 'reservation',
      ask: { devices: 1, duration_seconds: 2 * HOUR, device_class: 'a100' },
      not_before: NOON + 21.5 * HOUR
    });
    assert.deepEqual(laterOf({ ...typed, deviceClass: '' }).ask, {
      devices: 1,
      duration_seconds: 2 * HOUR
    });
  });

  it('says what cannot be meant', () => {
    const wrong = (more: Partial<typeof typed>): string =>
      laterFlaw({ ...typed, ...more }, status(), NOON);
    assert.equal(wrong({}), '');
    assert.match(wrong({ devices: '0' }), /^GPUs: a whole number/);
    assert.match(wrong({ hours: '' }), /^Hours:/);
    assert.equal(wrong({ from: '' }), 'From: a day and a time.');
    assert.equal(wrong({ from: '2026-11-25T12:00' }), 'From: a time that is still to come.');
    assert.notEqual(wrong({ devices: '3' }), '', 'there are two');
  });

  it('says from when to when, and offers a class where there are several', () => {
    assert.match(shown(), /Tomorrow 09:30 to 11:30\. Until then others may use the GPUs/);
    assert.doesNotMatch(shown(), /later-class/);
    const devices = [device(0), device(1, { device_class: 'h100' })];
    assert.match(shown({ status: status({ devices }) }), /later-class.*<option>h100<\/option>/);
  });

  it('comes again with what was typed and why it was refused', () => {
    const html = shown({ refusal: '1 GPU can be had at 14:00.' });
    assert.match(html, /role="alert"[^>]*>1 GPU can be had at 14:00\.</);
    assert.match(html, /value="2026-11-26T09:30"/);
  });

  it('is offered beside the form, also where no notebook is open', () => {
    const form = (
      <ReserveForm
        state={state()}
        status={status()}
        targets={[]}
        defaults={{ devices: 1, hours: 2 }}
        now={NOON}
        run={run}
      />
    );
    assert.match(renderToStaticMarkup(form), /data-gpu="reserve-later"[^>]*>Reserve for later …</);
  });

  it('is one request to the broker', async () => {
    const sent: [string, RequestInit | undefined][] = [];
    const api = new Api((path, init) => {
      sent.push([path, init]);
      return Promise.resolve(new Response('{"id": 7}'));
    }, 'api/v1/');
    assert.equal((await api.submitAsk(laterOf(typed))).id, 7);
    assert.deepEqual(sent, [
      ['api/v1/workloads', { method: 'POST', body: JSON.stringify(laterOf(typed)) }]
    ]);
  });
});
