/**
 * A stream of lines, read as it comes, in the place of a socket: the broker's own stream is an answer that never ends,
 * which a page reads by `fetch`, for only that sends the header by which the broker knows its page.
 *
 * Some proxies hold an answer back until it is whole, and a dead connection may look open for minutes. So who hears
 * nothing asks instead, now and then, until the stream speaks again.
 */
import type { ISocket } from '../stream';

/** A stream begins with the whole, so who hears nothing for so long is kept from it. */
export const FIRST_MS = 1500;
/** Later the broker says something at least every 15 s. */
export const SILENT_MS = 20_000;
/** Between two questions. */
export const ASK_MS = 5000;
/** Between two tries to open a stream that stays silent. */
export const AGAIN_MS = 60_000;

/** How a stream meets the service. */
export interface ILines {
  /** Open the stream; throws what was refused. */
  readonly open: (signal: AbortSignal) => Promise<Response>;
  /** Ask for what the first line of the stream would be. */
  readonly ask: (signal: AbortSignal) => Promise<string>;
}

/** One stream. A line is a message; it closes when the answer ends, breaks off, or is refused. */
export class LineSocket implements ISocket {
  onmessage: ISocket['onmessage'] = null;
  onclose: ISocket['onclose'] = null;

  constructor(private readonly _lines: ILines) {
    this._wait(FIRST_MS);
    void this._run();
  }

  close(): void {
    this._isClosed = true;
    clearTimeout(this._timer);
    this._asking.abort();
    this._reading.abort();
  }

  private async _run(): Promise<void> {
    const reading = new AbortController();
    this._reading = reading;
    this._openedAt = Date.now();
    try {
      const { body } = await this._lines.open(reading.signal);
      await this._read(body, reading.signal);
    } catch (error) {
      // Who asked for the stream finds out why; one that was given up ends like this, too.
      console.debug('jupyter-gpu: the stream broke off', error);
    }
    if (!reading.signal.aborted) {
      this._end();
    }
  }

  private async _read(body: ReadableStream<Uint8Array> | null, signal: AbortSignal): Promise<void> {
    const reader = body?.getReader();
    const decoder = new TextDecoder();
    let held = '';
    for (;;) {
      const part = await reader?.read();
      if (part === undefined || part.done || signal.aborted) {
        return;
      }
      this._asking.abort();
      this._wait(SILENT_MS);
      const [rest = '', ...lines] = decoder.decode(part.value, { stream: true }).split('\n');
      held += rest;
      for (const line of lines) {
        this._say(held);
        held = line;
      }
    }
  }

  private _say(line: string): void {
    if (line.trim() && !this._isClosed) {
      this.onmessage?.(new MessageEvent('message', { data: line }));
    }
  }

  private _wait(pause: number): void {
    clearTimeout(this._timer);
    if (!this._isClosed) {
      this._timer = setTimeout(() => void this._ask(), pause);
    }
  }

  private async _ask(): Promise<void> {
    const asking = new AbortController();
    this._asking = asking;
    if (Date.now() - this._openedAt >= AGAIN_MS) {
      this._reading.abort();
      void this._run();
    }
    try {
      const line = await this._lines.ask(asking.signal);
      // The stream has spoken meanwhile, and what it said is newer.
      if (!asking.signal.aborted) {
        this._say(line);
        this._wait(ASK_MS);
      }
    } catch {
      if (!asking.signal.aborted) {
        this._end();
      }
    }
  }

  private _end(): void {
    if (!this._isClosed) {
      this.close();
      this.onclose?.(new Event('close') as CloseEvent);
    }
  }

  private _reading = new AbortController();
  private _asking = new AbortController();
  private _openedAt = 0;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _isClosed = false;
}
