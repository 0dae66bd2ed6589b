import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';

import type { Api, IOnly, IPage } from '../src/api';
import type { GpuState } from '../src/fold';
import type { IGpuModel, ISource } from '../src/model';
import { askedFor, countWaiting, PAGE, PAUSE_MS, Roll, TYPING_MS } from '../src/page/roll';
import { state, status, work } from './builders';

async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) {
    await Promise.resolve();
  }
}

describe('who waits', () => {
  let asked: (number | null)[];
  let sought: IOnly[];
  let answer: (after: number | null) => IPage;
  let known: GpuState;
  let roll: Roll;
  let changed: (() => void) | null;
  let end: () => void;

  const tell = async (
    revision: number,
    training = 3,
    more: Partial<GpuState> = {}
  ): Promise<void> => {
    known = { ...state({ revision, waiting: { interactive: 0, training } }), ...more };
    changed?.();
    mock.timers.tick(0);
    await settle();
  };
  const pass = async (ms: number): Promise<void> => {
    mock.timers.tick(ms);
    await settle();
  };

  beforeEach(async () => {
    mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 1_000_000 });
    asked = [];
    sought = [];
    changed = null;
    answer = () => ({ items: [work(1, { state: 'queued' })], next: null });
    const model = {
      get state(): GpuState {
        return known;
      },
      api: {
        live: (_: string, limit: number, after: number | null, only?: IOnly): Promise<IPage> => {
          assert.equal(limit, PAGE);
          if (only) {
            sought.push(only);
            return Promise.resolve({ items: [work(7, { owner: only.owner })], next: null });
          }
          asked.push(after);
          return Promise.resolve(answer(after));
        }
      },
      changed: {
        connect: (act: () => void, of: object) => (changed = act.bind(of)),
        disconnect: () => (changed = null)
      }
    } as unknown as IGpuModel<Api & ISource>;
    known = state({ waiting: { interactive: 0, training: 3 } });
    roll = new Roll(model);
    end = roll.subscribe(() => undefined);
    await pass(0);
  });

  afterEach(() => {
    end();
    mock.timers.reset();
  });

  it('finds by owner and queue also what is not read yet, once a word is typed', async () => {
    roll.seek('ben');
    await pass(TYPING_MS);
    // All of them are read already, so there is nobody else to find.
    assert.deepEqual(sought, []);
    answer = () => ({ items: [work(1, { state: 'queued' })], next: 1 });
    await pass(PAUSE_MS);
    await tell(12);
    await pass(PAUSE_MS);
    sought = [];
    roll.seek('b');
    roll.seek('be');
    roll.seek('ben training');
    await pass(TYPING_MS);
    assert.deepEqual(sought, [{ owner: 'ben', queue: 'training' }]);
    assert.deepEqual(
      roll.known.waiting.map(it_ => it_.id),
      [1, 7]
    );
    roll.seek('');
    await pass(TYPING_MS);
    assert.deepEqual(
      roll.known.waiting.map(it_ => it_.id),
      [1]
    );
  });

  it('asks for what a broker can find', () => {
    const queues = ['training', 'deferred'];
    assert.deepEqual(askedFor('  ', queues), []);
    assert.deepEqual(askedFor('training', queues), [{ queue: 'training' }]);
    assert.deepEqual(askedFor('ada ada ben', queues), [{ owner: 'ada' }, { owner: 'ben' }]);
    assert.equal(askedFor('a b c d e', queues).length, 3);
  });

  it('is read when an operator begins to look, and no more once they have gone', async () => {
    assert.deepEqual(asked, [null]);
    assert.deepEqual(
      roll.known.waiting.map(it_ => it_.id),
      [1]
    );
    await tell(11);
    end();
    await pass(10 * PAUSE_MS);
    assert.equal(changed, null);
    assert.equal(asked.length, 1);
  });

  it('is read again when something changed, however often, after a pause', async () => {
    await tell(11);
    await tell(12);
    assert.equal(asked.length, 1);
    await pass(PAUSE_MS);
    assert.equal(asked.length, 2);
    await tell(12);
    await pass(10 * PAUSE_MS);
    assert.equal(asked.length, 2);
  });

  it('is not asked for where nobody waits, or while the service is away', async () => {
    await tell(11, 0);
    await pass(PAUSE_MS);
    assert.deepEqual([asked.length, roll.known.waiting], [1, []]);
    await tell(12, 3, { link: 'lost' });
    await pass(PAUSE_MS);
    assert.equal(asked.length, 1);
  });

  it('comes in pages, as many as were wanted', async () => {
    answer = after => ({
      items: [work(after ?? 300, { state: 'queued' })],
      next: (after ?? 300) - 1
    });
    await roll.more();
    assert.deepEqual(asked, [null, null, 299]);
    assert.equal(roll.known.waiting.length, 2);
    assert.ok(roll.known.hasMore);
    answer = () => ({ items: [], next: null });
    await tell(11);
    await pass(2 * PAUSE_MS);
    assert.deepEqual(asked, [null, null, 299, null]);
    assert.ok(!roll.known.hasMore);
  });

  it('stays as it was where it cannot be read, and says so until it can', async () => {
    const before = answer;
    answer = () => {
      throw new Error('the service is away');
    };
    await tell(11);
    await pass(PAUSE_MS);
    assert.equal(roll.known.trouble, 'The service is away.');
    assert.equal(roll.known.waiting.length, 1);
    answer = before;
    await pass(PAUSE_MS);
    assert.equal(roll.known.trouble, '');
  });

  it('is counted over all queues', () => {
    assert.equal(countWaiting(status({ waiting: { interactive: 2, training: 3 } })), 5);
  });
});
