/** Whether this server is kept from other GPUs: its own word, in a line of its own. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as React from 'react';
import { renderToStaticMarkup as html } from 'react-dom/server';

import { fold } from '../src/fold';
import { Kernels } from '../src/kernels';
import type { IsolationView } from '../src/types';
import { kernel, NOON, reservation, state } from './builders';

const run = (): void => undefined;

function shown(isolation: IsolationView | null, hasKernel = false): string {
  const before = hasKernel
    ? state({ workloads: [reservation(1)] }, [kernel({ workload: 1, devices: ['GPU-0'] })])
    : state();
  const now = fold(before, { type: 'server', isolation }, NOON);
  return html(<Kernels state={now} now={NOON} run={run} />);
}

describe('the isolation of this server', () => {
  const kept: IsolationView = { enforced: true, by: 'systemd', detail: 'tried 3 nodes: 3 refused' };

  it('is a line that says whose it is, with the evidence in its title', () => {
    const found = shown(kept);
    assert.match(found, /This server: <span[^>]*data-gpu="own-isolation"/);
    assert.match(
      found,
      /title="What runs in this server can open no GPU but its own \(systemd\)\. Tried 3 nodes: 3 refused\."/
    );
    assert.match(found, />enforced</);
  });

  it('is advisory where another GPU opened, and says which', () => {
    const found = shown({ enforced: false, detail: 'it could open /dev/nvidia1' });
    assert.match(found, /and not surely kept from others\. It could open \/dev\/nvidia1\."/);
    assert.match(found, />advisory</);
    assert.doesNotMatch(found, />enforced</);
  });

  it('stands below the notebooks with GPUs, and of nothing known there is no line', () => {
    assert.match(shown(kept, true), /Notebooks with GPUs[^]*This server/);
    assert.doesNotMatch(shown(null, true), /This server/);
    assert.equal(shown(null), '');
  });

  it('goes when the server says that there is nothing to keep apart', () => {
    const told = fold(state(), { type: 'server', isolation: kept }, NOON);
    assert.deepEqual(told.own, kept);
    assert.equal(fold(told, { type: 'server', isolation: null }, NOON).own, null);
  });
});
