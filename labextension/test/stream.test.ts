import assert from 'node:assert/strict';
import { beforeEach, describe, it, mock } from 'node:test';

import type { Link, Trouble } from '../src/fold';
import {
  FIRST_PAUSE_MS,
  type ISocket,
  LONGEST_PAUSE_MS,
  pauseMs,
  reasonOf,
  Stream
} from '../src/stream';
import type { Frame } from '../src/types';

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

  async break(): Promise<void> {
    this.onclose?.({} as CloseEvent);
    // The reason is asked for before the next try is planned.
    for (let turn = 0; turn < 5; turn += 1) {
      await Promise.resolve();
    }
  }
}

const KERNELS: Frame = { type: 'kernels', kernels: [] };

describe('the stream', () => {
  let sockets: Socket[];
  let frames: Frame[];
  let links: Link[];
  let reason: { link: Link; trouble: Trouble };
  let stream: Stream;

  beforeEach(() => {
    mock.timers.reset();
    mock.timers.enable({ apis: ['setTimeout'] });
    [sockets, frames, links] = [[], [], []];
    reason = { link: 'lost', trouble: { message: 'gone', hint: null } };
    stream = new Stream({
      frameOf: text => (text === '{}' ? null : (JSON.parse(text) as Frame)),
      connect: () => {
        sockets.push(new Socket());
        return sockets[sockets.length - 1];
      },
      diagnose: () => Promise.resolve(reason),
      onFrame: frame => frames.push(frame),
      onTrouble: link => links.push(link),
      random: () => 1
    });
    stream.start();
  });

  it('hands on what it hears', () => {
    sockets[0].say(KERNELS);
    assert.deepEqual(frames, [KERNELS]);
  });

  it('is one socket, however often it is started', () => {
    stream.start();
    stream.start();
    assert.equal(sockets.length, 1);
  });

  it('tries again after pauses that grow, and begins anew once it heard something', async () => {
    await sockets[0].break();
    assert.deepEqual(links, ['lost']);
    mock.timers.tick(FIRST_PAUSE_MS - 1);
    assert.equal(sockets.length, 1);
    mock.timers.tick(1);
    assert.equal(sockets.length, 2);
    await sockets[1].break();
    mock.timers.tick(2 * FIRST_PAUSE_MS - 1);
    assert.equal(sockets.length, 2);
    mock.timers.tick(1);
    assert.equal(sockets.length, 3);
    sockets[2].say(KERNELS);
    await sockets[2].break();
    mock.timers.tick(FIRST_PAUSE_MS);
    assert.equal(sockets.length, 4);
  });

  it('does not try again where only a reload helps', async () => {
    for (const link of ['expired', 'missing'] as const) {
      reason = { link, trouble: { message: '', hint: null } };
      stream.start();
      const before = sockets.length;
      await sockets[before - 1].break();
      mock.timers.tick(10 * LONGEST_PAUSE_MS);
      assert.equal(sockets.length, before);
    }
    assert.deepEqual(links, ['expired', 'missing']);
  });

  it('closes when it is stopped, and says nothing of it', async () => {
    const [socket] = sockets;
    stream.stop();
    assert.equal(socket.isClosed, true);
    socket.say(KERNELS);
    await socket.break();
    mock.timers.tick(LONGEST_PAUSE_MS);
    assert.equal(sockets.length, 1);
    assert.deepEqual([frames, links], [[], []]);
    stream.start();
    assert.equal(sockets.length, 2);
  });

  it('opens at once when it is started within a pause', async () => {
    await sockets[0].break();
    stream.start();
    assert.equal(sockets.length, 2);
    mock.timers.tick(LONGEST_PAUSE_MS);
    assert.equal(sockets.length, 2);
  });

  it('takes a new socket after a sleep; a late word of the old one counts for nothing', () => {
    const [old] = sockets;
    stream.renew();
    assert.equal(old.isClosed, true);
    assert.equal(sockets.length, 2);
    old.say(KERNELS);
    assert.deepEqual(frames, []);
  });
});

describe('a pause', () => {
  it('doubles up to a most, and half of it is by chance', () => {
    assert.equal(pauseMs(0, 1), FIRST_PAUSE_MS);
    assert.equal(pauseMs(0, 0), FIRST_PAUSE_MS / 2);
    assert.equal(pauseMs(3, 1), 8 * FIRST_PAUSE_MS);
    assert.equal(pauseMs(1000, 1), LONGEST_PAUSE_MS);
  });
});

describe('the reason of a stream that cannot be opened', () => {
  it('is a login that is over, or a server without our part: there trying again is no use', () => {
    assert.equal(reasonOf(403, true).link, 'expired');
    assert.equal(reasonOf(401, true).link, 'expired');
    assert.equal(reasonOf(404, true).link, 'missing');
  });

  it('is a server that is not reached where a proxy knows no way to it, and is tried again', () => {
    // So it is while a hub restarts: its proxy has no routes yet, and answers 404 for every server.
    assert.equal(reasonOf(404, false).link, 'lost');
    assert.equal(reasonOf(0, false).link, 'lost');
    assert.equal(reasonOf(503, true).link, 'lost');
  });
});
