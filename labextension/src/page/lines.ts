/**
 * A stream of lines, read as it comes, in the place of a socket: the broker's own stream is an answer that never ends,
 * which a page reads by `fetch`, for only that sends the header by which the broker knows its page.
 */
import type { ISocket } from '../stream';

/** The broker says something every 15 s. Who heard nothing for so long has a dead connection that looks open. */
export const SILENT_MS = 50_000;

/** One stream. A line is a message; it ends when the answer ends, breaks off, was refused or fell silent. */
export class LineSocket implements ISocket {
  onmessage: ISocket['onmessage'] = null;
  onclose: ISocket['onclose'] = null;

  constructor(open: (signal: AbortSignal) => Promise<Response>) {
    void this._run(open);
  }

  close(): void {
    this._isClosed = true;
    clearTimeout(this._watch);
    this._abort.abort();
  }

  private async _run(open: (signal: AbortSignal) => Promise<Response>): Promise<void> {
    try {
      this._wait();
      const { body } = await open(this._abort.signal);
      await this._read(body);
    } catch (error) {
      // Who asked for the stream finds out why; a closed one ends like this, too.
      console.debug('jupyter-gpu: the stream broke off', error);
    }
    if (!this._isClosed) {
      this.close();
      this.onclose?.(new Event('close') as CloseEvent);
    }
  }

  private async _read(body: ReadableStream<Uint8Array> | null): Promise<void> {
    const reader = body?.getReader();
    const decoder = new TextDecoder();
    let held = '';
    for (;;) {
      const part = await reader?.read();
      if (part === undefined || part.done || this._isClosed) {
        return;
      }
      this._wait();
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

  private _wait(): void {
    clearTimeout(this._watch);
    this._watch = setTimeout(() => {
      this._abort.abort();
    }, SILENT_MS);
  }

  private readonly _abort = new AbortController();
  private _watch: ReturnType<typeof setTimeout> | undefined;
  private _isClosed = false;
}
