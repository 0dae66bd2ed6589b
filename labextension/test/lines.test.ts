import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';

import { AGAIN_MS, ASK_MS, FIRST_MS, LineSocket, SILENT_MS } from '../src/page/lines';

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

async function settle(): Promise<void> {
  for (let turn = 0; turn < 50; turn += 1) {
    await Promise.resolve();
  }
}

/** The service: each answer of its stream is written to by hand. */
class Service {
  streams: { say: (data: Uint8Array) => void; end: () => void; signal: AbortSignal }[] = [];
  asked: AbortSignal[] = [];
  refuses = false;
  answer: () => Promise<string> = () => Promise.resolve('{"status":1}');

  open = (signal: AbortSignal): Promise<Response> => {
    if (this.refuses) {
      return Promise.reject(new Error('no'));
    }
    const body = new ReadableStream<Uint8Array>({
      start: controller => {
        signal.addEventListener('abort', () => {
          controller.error(signal.reason);
        });
        this.streams.push({
          say: data => {
            controller.enqueue(data);
          },
          end: () => {
            controller.close();
          },
          signal
        });
      }
    });
    return Promise.resolve(new Response(body));
  };

  ask = (signal: AbortSignal): Promise<string> => {
    this.asked.push(signal);
    return this.answer();
  };
}

describe('a stream of lines', () => {
  let service: Service;
  let heard: unknown[];
  let closes: number;
  let socket: LineSocket;

  const connect = async (): Promise<void> => {
    socket = new LineSocket(service);
    socket.onmessage = event => heard.push(event.data);
    socket.onclose = () => (closes += 1);
    await settle();
  };
  const say = async (data: Uint8Array | string): Promise<void> => {
    service.streams[service.streams.length - 1].say(typeof data === 'string' ? encode(data) : data);
    await settle();
  };
  const pass = async (ms: number): Promise<void> => {
    mock.timers.tick(ms);
    await settle();
  };

  beforeEach(() => {
    mock.timers.enable({ apis: ['setTimeout', 'Date'] });
    service = new Service();
    [heard, closes] = [[], 0];
  });

  afterEach(() => {
    socket.close();
    mock.timers.reset();
  });

  it('is the same however its bytes are cut, also within a character', async () => {
    const whole = encode('{"name":"Grüße 😀"}\n\n{"a":1}\n');
    for (let cut = 1; cut < whole.length; cut += 1) {
      heard = [];
      await connect();
      await say(whole.subarray(0, cut));
      await say(whole.subarray(cut));
      assert.deepEqual(heard, ['{"name":"Grüße 😀"}', '{"a":1}'], `cut at ${cut}`);
      socket.close();
    }
  });

  it('says each line once it is whole, and many that come together one by one', async () => {
    await connect();
    await say('{"a"');
    assert.deepEqual(heard, []);
    await say(':1}\n{"b":2}\n{"c"');
    assert.deepEqual(heard, ['{"a":1}', '{"b":2}']);
  });

  it('closes once when it ends or is refused', async () => {
    await connect();
    service.streams[0].end();
    await settle();
    assert.equal(closes, 1);
    service.refuses = true;
    await connect();
    assert.equal(closes, 2);
    await pass(10 * AGAIN_MS);
    assert.equal(closes, 2);
  });

  it('ends the request when it is closed, and says no more, not even that', async () => {
    await connect();
    socket.close();
    await settle();
    assert.ok(service.streams[0].signal.aborted);
    await pass(10 * SILENT_MS);
    assert.deepEqual([heard, closes, service.asked.length], [[], 0, 0]);
  });

  it('is asked for where a proxy holds it back, until it speaks', async () => {
    await connect();
    await pass(FIRST_MS);
    await pass(ASK_MS);
    assert.deepEqual(heard, ['{"status":1}', '{"status":1}']);
    await say('{"a":1}\n');
    await pass(ASK_MS);
    assert.equal(service.asked.length, 2);
    assert.equal(closes, 0);
  });

  it('is not asked for while it says that it lives', async () => {
    await connect();
    await say('{"a":1}\n');
    for (let beat = 0; beat < 10; beat += 1) {
      await pass(15_000);
      await say('{}\n');
    }
    assert.equal(service.asked.length, 0);
  });

  it('tells no answer that the stream has overtaken', async () => {
    let answer: (line: string) => void = () => undefined;
    service.answer = () => new Promise(resolve => (answer = resolve));
    await connect();
    await pass(FIRST_MS);
    await say('{"a":1}\n');
    assert.ok(service.asked[0].aborted);
    answer('{"status":1}');
    await settle();
    assert.deepEqual(heard, ['{"a":1}']);
  });

  it('that fell silent is opened anew, and closes where nobody answers', async () => {
    await connect();
    await say('{"a":1}\n');
    await pass(SILENT_MS);
    assert.equal(service.asked.length, 1);
    while (service.streams.length === 1) {
      await pass(ASK_MS);
    }
    assert.ok(service.streams[0].signal.aborted);
    assert.equal(closes, 0);
    service.answer = () => Promise.reject(new Error('away'));
    await pass(ASK_MS);
    assert.equal(closes, 1);
    assert.ok(service.streams[1].signal.aborted);
  });
});
