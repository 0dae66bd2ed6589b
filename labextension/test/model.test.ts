import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';

import { GpuModel, type ISource, type Memory } from '../src/model';
import { openAlerts } from '../src/select';
import type { ISocket } from '../src/stream';
import type { Frame, RecurringView, WorkloadView } from '../src/types';
import { NOON, status, work } from './builders';

/** A page as far as the model sees it. */
class Page extends EventTarget {
  hidden = false;

  show(isShown: boolean): void {
    this.hidden = !isShown;
    this.dispatchEvent(new Event('visibilitychange'));
  }
}

class Socket implements ISocket {
  onmessage: ISocket['onmessage'] = null;
  onclose: ISocket['onclose'] = null;
  isClosed = false;

  close(): void {
    this.isClosed = true;
  }

  say(frame: Frame): void {
    this.onmessage?.({ data: JSON.stringify(frame) } as MessageEvent);
  }
}

/** The server as far as the model asks it. */
class Server {
  sockets: Socket[] = [];
  ended: WorkloadView[] = [];
  calendars: RecurringView[] = [];
  askedForRecurring = 0;

  connect(): Socket {
    const socket = new Socket();
    this.sockets.push(socket);
    return socket;
  }

  frameOf(text: string): Frame {
    return JSON.parse(text) as Frame;
  }

  diagnose(): Promise<unknown> {
    return Promise.resolve({ link: 'lost', trouble: { message: 'gone', hint: null } });
  }

  lately(): Promise<WorkloadView[]> {
    return Promise.resolve([]);
  }

  recurring(): Promise<RecurringView[]> {
    this.askedForRecurring += 1;
    return Promise.resolve(this.calendars);
  }

  workload(id: number): Promise<WorkloadView | undefined> {
    return Promise.resolve(this.ended.find(known => known.id === id));
  }

  get socket(): Socket {
    return this.sockets[this.sockets.length - 1];
  }
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) {
    await Promise.resolve();
  }
}

describe('the model of a page', () => {
  let page: Page;
  let server: Server;
  let model: GpuModel<ISource>;

  beforeEach(() => {
    mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'], now: NOON * 1000 });
    page = new Page();
    Object.assign(globalThis, { document: page, window: globalThis });
    Object.assign(globalThis, { addEventListener: () => 0, removeEventListener: () => 0 });
    server = new Server();
    model = new GpuModel(server as unknown as ISource);
  });

  afterEach(() => {
    model.dispose();
    mock.timers.reset();
  });

  it('keeps one socket, and tells by one signal', () => {
    const seen: (number | undefined)[] = [];
    model.changed.connect((_, state) => seen.push(state.status?.revision));
    server.socket.say({ type: 'status', status: status({ revision: 7 }) });
    server.socket.say({ type: 'change', change: { revision: 8, waiting: {} } });
    assert.deepEqual(seen, [7, 8]);
    assert.equal(server.sockets.length, 1);
  });

  it('hangs up half a minute after nobody looks, and calls again when somebody does', () => {
    page.show(false);
    mock.timers.tick(29_000);
    assert.equal(server.socket.isClosed, false);
    mock.timers.tick(1000);
    assert.equal(server.socket.isClosed, true);
    page.show(true);
    assert.equal(server.sockets.length, 2);
  });

  it('stays on the line when one only looks away', () => {
    page.show(false);
    mock.timers.tick(20_000);
    page.show(true);
    for (let step = 0; step < 6; step += 1) {
      mock.timers.tick(10_000);
    }
    assert.equal(server.sockets.length, 1);
    assert.equal(server.socket.isClosed, false);
  });

  it('takes a new socket after a sleep', () => {
    mock.timers.tick(10_000);
    assert.equal(server.sockets.length, 1);
    // The clock goes on while the page's timers stand still.
    mock.timers.setTime(Date.now() + 3_600_000);
    mock.timers.tick(10_000);
    assert.equal(server.sockets.length, 2);
  });

  it('learns how one’s work ended that was gone after a sleep', async () => {
    server.socket.say({ type: 'status', status: status({ workloads: [work(1), work(2)] }) });
    await settle();
    server.ended = [work(1, { state: 'ended', end: 'succeeded', ended_at: NOON })];
    server.socket.say({ type: 'status', status: status({ revision: 20, workloads: [work(2)] }) });
    await settle();
    assert.deepEqual(
      model.state.recent.map(ended => [ended.id, ended.end]),
      [[1, 'succeeded']]
    );
  });

  it('takes in an answer ahead of the stream, but never against it', () => {
    server.socket.say({ type: 'status', status: status({ workloads: [work(1, { attempt: 2 })] }) });
    model.note(work(1, { attempt: 1 }));
    model.note(work(2));
    assert.deepEqual(
      model.state.status?.workloads.map(known => [known.id, known.attempt]),
      [
        [1, 2],
        [2, undefined]
      ]
    );
  });

  it('puts an alert away until it changes, also after a reload, and forgets what is over', () => {
    const kept = new Map<string, string>();
    const memory: Memory = {
      getItem: name => kept.get(name) ?? null,
      setItem: (name, value) => kept.set(name, value)
    };
    const say = (of: GpuModel<ISource>, ...keys: string[]): readonly string[] => {
      const alerts = keys.map(key => ({ key, since: NOON, text: 'It is hot' }));
      server.socket.say({ type: 'status', status: status({ alerts }) });
      return openAlerts(of.state).map(alert => alert.key);
    };
    const page_ = new GpuModel(server as unknown as ISource, memory);
    assert.deepEqual(say(page_, 'a', 'b'), ['a', 'b']);
    page_.dismiss('a');
    assert.deepEqual(say(page_, 'a', 'b'), ['b']);
    page_.dispose();
    const again = new GpuModel(server as unknown as ISource, memory);
    assert.deepEqual(say(again, 'a', 'b'), ['b']);
    say(again, 'b');
    again.dismiss('b');
    assert.equal([...kept.values()][0], JSON.stringify(again.state.dismissed));
    assert.equal(again.state.dismissed.length, 1);
    again.dispose();
    kept.set([...kept.keys()][0], 'no JSON');
    const last = new GpuModel(server as unknown as ISource, memory);
    assert.deepEqual(say(last, 'b'), ['b']);
    last.dispose();
  });

  it('keeps for each person who uses the browser what they put away, and nothing of it for the next', async () => {
    const kept = new Map<string, string>();
    const memory: Memory = {
      getItem: name => kept.get(name) ?? null,
      setItem: (name, value) => kept.set(name, value)
    };
    const alerts = [{ key: 'a', since: NOON, text: 'It is hot' }];
    const ended = [work(1, { state: 'ended', end: 'succeeded', ended_at: NOON })];
    server.lately = () => Promise.resolve(ended);
    const shared = new GpuModel(server as unknown as ISource, memory);
    const seenBy = async (caller: string): Promise<[string[], number[]]> => {
      server.socket.say({ type: 'status', status: status({ caller, alerts }) });
      await settle();
      const { state } = shared;
      return [openAlerts(state).map(it => it.key), state.recent.map(it => it.id)];
    };
    assert.deepEqual(await seenBy('ada'), [['a'], [1]]);
    shared.dismiss('a');
    shared.clearEnded();
    assert.deepEqual(await seenBy('ada'), [[], []]);
    assert.deepEqual(await seenBy('ben'), [['a'], [1]]);
    assert.deepEqual(await seenBy('ada'), [[], []]);
    shared.dispose();
  });

  it('passes on that a kernel is to be restarted', () => {
    const asked: string[] = [];
    model.restartAsked.connect((_, frame) => asked.push(frame.kernel_id));
    server.socket.say({ type: 'restart', kernel_id: 'k1', reason: 'Its time is over.' });
    assert.deepEqual(asked, ['k1']);
  });

  it('says the time of the server, in steps that all faces share', () => {
    server.socket.say({ type: 'status', status: status({ at: NOON + 3605 }) });
    assert.equal(model.now(), NOON + 3600);
  });

  it('knows one’s own recurring jobs, the next first, and looks again when one of them led to a job', async () => {
    const calendar = (id: number, next: number | null, owner = 'ada'): RecurringView =>
      ({ id, owner, next_at: next }) as RecurringView;
    server.calendars = [calendar(1, null), calendar(2, 20), calendar(3, 10), calendar(4, 5, 'bob')];
    server.socket.say({ type: 'status', status: status() });
    await settle();
    assert.deepEqual(
      model.state.recurring.map(it_ => it_.id),
      [3, 2, 1]
    );
    const before = server.askedForRecurring;
    server.socket.say({ type: 'change', change: { revision: 11, changes: [work(7)] } });
    await settle();
    assert.equal(server.askedForRecurring, before);
    const changes = [work(8, { recurring: 2 })];
    server.socket.say({ type: 'change', change: { revision: 12, changes } });
    await settle();
    assert.equal(server.askedForRecurring, before + 1);
    mock.timers.tick(60_000);
    await settle();
    assert.equal(server.askedForRecurring, before + 2, 'one may be made in a terminal');
  });
});
