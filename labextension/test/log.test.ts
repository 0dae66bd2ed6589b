import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import type { ILogPart } from '../src/api';
import {
  type ILogQuery,
  LARGE_PART_BYTES,
  LogReader,
  PART_BYTES,
  readWhole,
  TAIL_BYTES
} from '../src/logreader';
import { LogText, MOST_CHARACTERS, MOST_LINES } from '../src/logtext';

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

function read(...parts: (string | Uint8Array)[]): LogText {
  const text = new LogText();
  for (const part of parts) {
    text.push(typeof part === 'string' ? encode(part) : part);
  }
  return text;
}

describe('the text of a log', () => {
  it('is the same however its bytes are cut', () => {
    const whole = encode('Grüße 😀\nzwei\r\n\rdrei 100%\nvier');
    const expected = read(whole);
    for (let cut = 0; cut <= whole.length; cut += 1) {
      const text = read(whole.subarray(0, cut), whole.subarray(cut));
      assert.deepEqual(text.lines, expected.lines, `cut at ${cut}`);
      assert.equal(text.unfinished, expected.unfinished);
    }
    assert.deepEqual(expected.lines, ['Grüße 😀', 'zwei', 'drei 100%']);
    assert.equal(expected.unfinished, 'vier');
  });

  it('shows a progress bar once, as it stands (nteract/papermill#765)', () => {
    const text = new LogText();
    for (let step = 1; step <= 200_000; step += 1000) {
      text.push(encode(`\r${step}/200000 it ████`));
    }
    assert.deepEqual(text.lines, []);
    assert.equal(text.unfinished, '199001/200000 it ████');
    text.push(encode('\ndone\n'));
    assert.deepEqual(text.lines, ['199001/200000 it ████', 'done']);
  });

  it('leaves out what steers a terminal, and keeps the words', () => {
    assert.deepEqual(read('\x1b[1;31mred\x1b[0m \x1b]0;title\x07bell\x07\ttab\n').lines, [
      'red bell\ttab'
    ]);
  });

  it('hides nothing for a bad byte', () => {
    assert.deepEqual(read(new Uint8Array([97, 0xff, 98, 10])).lines, ['a\ufffdb']);
  });

  it('keeps the end of what is long', () => {
    const text = read(Array.from({ length: MOST_LINES + 10 }, (_, n) => `${n}\n`).join(''));
    assert.equal(text.lines.length, MOST_LINES);
    assert.equal(text.dropped, 10);
    assert.equal(text.lines[0], '10');
  });

  it('bounds a line of many megabytes', () => {
    const text = new LogText();
    for (let part = 0; part < 20; part += 1) {
      text.push(encode('x'.repeat(500_000)));
      assert.ok(text.unfinished.length < MOST_CHARACTERS + 50);
    }
    text.push(encode('\n'));
    assert.ok(text.lines[0].length < MOST_CHARACTERS + 50);
    assert.match(text.lines[0], /… 9996000 more characters$/);
  });

  it('shows the last state of a progress bar of five megabytes, as a file or as it comes (biorack/metatlas#658)', () => {
    const drawn = encode(
      Array.from({ length: 200_000 }, (_, n) => `\r${n + 1}/200000 it ████`).join('')
    );
    assert.ok(drawn.length > 5_000_000);
    assert.equal(read(drawn).unfinished, '200000/200000 it ████');
    const parts = Array.from({ length: 6 }, (_, n) => drawn.subarray(n << 20, (n + 1) << 20));
    assert.equal(read(...parts).unfinished, '200000/200000 it ████');
    const afterALongLine = read('x'.repeat(100_000), 'y', '\rdone');
    assert.equal(afterALongLine.unfinished, 'done');
  });

  it('has a last line without a line end when nothing more comes', () => {
    const text = read('one\ntwo');
    text.finish();
    assert.deepEqual(text.lines, ['one', 'two']);
    assert.equal(text.unfinished, '');
  });
});

/** A server with one log that grows, and whose connection can break. */
class Server {
  log = encode('');
  isOver = false;
  isBroken = false;
  attempt = 1;
  asked: ILogQuery[] = [];

  answer = (query: ILogQuery): Promise<ILogPart> => {
    this.asked.push(query);
    if (this.isBroken) {
      return Promise.reject(new Error('broken'));
    }
    const begin = query.offset < 0 ? Math.max(0, this.log.length + query.offset) : query.offset;
    const data = this.log.slice(begin, begin + query.limit);
    return Promise.resolve({
      data,
      attempt: this.attempt,
      next: begin + data.length,
      isComplete: this.isOver && begin + data.length === this.log.length
    });
  };

  print(text: string): void {
    this.log = Buffer.concat([this.log, encode(text)]);
  }
}

describe('a reader of a log', () => {
  it('goes on where it was after a broken connection: no gap, no repeat (jupyterlab/jupyterlab#2833)', async () => {
    const server = new Server();
    const reader = new LogReader(server.answer);
    for (let line = 1; line <= 60; line += 1) {
      server.print(`line ${line}\n`);
      server.isBroken = line > 10 && line < 30;
      await reader.read().catch(() => undefined);
    }
    server.isOver = true;
    await reader.read();
    assert.deepEqual(
      reader.text.lines,
      Array.from({ length: 60 }, (_, n) => `line ${n + 1}`)
    );
    assert.equal(reader.isComplete, true);
  });

  it('begins near the end of a long log, with a whole line', async () => {
    const server = new Server();
    server.print('x'.repeat(TAIL_BYTES) + '\nlast\n');
    const reader = new LogReader(server.answer);
    await reader.read();
    assert.equal(reader.isTail, true);
    assert.deepEqual(reader.text.lines, ['last']);
  });

  it('has a short log whole', async () => {
    const server = new Server();
    server.print('first\nlast\n');
    const reader = new LogReader(server.answer);
    await reader.read();
    assert.equal(reader.isTail, false);
    assert.deepEqual(reader.text.lines, ['first', 'last']);
  });

  it('can be saved whole, byte for byte', async () => {
    const server = new Server();
    server.print('z'.repeat(LARGE_PART_BYTES) + 'über');
    const parts = await readWhole(server.answer, 1);
    assert.deepEqual(Buffer.concat(parts), Buffer.from(server.log));
    assert.deepEqual(await readWhole(new Server().answer, null), []);
  });

  it('asks again at once while whole parts come', async () => {
    const server = new Server();
    const reader = new LogReader(server.answer);
    assert.equal(await reader.read(), 'nothing');
    server.print('y'.repeat(PART_BYTES) + '\n');
    assert.equal(await reader.read(), 'more');
    assert.equal(await reader.read(), 'some');
  });

  it('stays with its attempt until that is complete, and asks nothing more then', async () => {
    const server = new Server();
    server.print('one\n');
    const reader = new LogReader(server.answer);
    await reader.read();
    server.isOver = true;
    await reader.read();
    assert.deepEqual(
      server.asked.map(query => query.attempt),
      [undefined, 1]
    );
    await reader.read();
    assert.equal(server.asked.length, 2);
    reader.begin(2);
    await reader.read();
    assert.deepEqual(server.asked[2], { attempt: 2, offset: 0, limit: PART_BYTES });
  });
});
