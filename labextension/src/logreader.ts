/**
 * Follows the log of a job by offset. The offset moves only with bytes that arrived, so that after a broken
 * connection nothing is missing and nothing comes twice. Knows nothing of JupyterLab.
 */
import type { ILogPart } from './api';
import { LogText } from './logtext';

/** How much of the end of a long log is shown at first, and how much comes at once. */
export const TAIL_BYTES = 256 * 1024;
export const PART_BYTES = 1024 * 1024;
export const LARGE_PART_BYTES = 8 * PART_BYTES;

/** What a reader asks for. */
export interface ILogQuery {
  readonly attempt?: number;
  readonly offset: number;
  readonly limit: number;
}

/** The reader of one job's log, one attempt at a time. */
export class LogReader {
  constructor(private readonly _fetch: (query: ILogQuery) => Promise<ILogPart>) {}

  /** What has been read of the present attempt. */
  get text(): LogText {
    return this._text;
  }

  /** The present attempt; null before the first answer. */
  get attempt(): number | null {
    return this._attempt;
  }

  /** Whether the beginning was left out, the log being long. */
  get isTail(): boolean {
    return this._isTail;
  }

  /** Whether nothing more will come of this attempt. */
  get isComplete(): boolean {
    return this._isComplete;
  }

  /** Take the next part. Answers whether there was one, and whether the next is there already. */
  async read(): Promise<'nothing' | 'some' | 'more'> {
    if (this._isComplete) {
      return 'nothing';
    }
    const isFirst = this._offset === null;
    const part = await this._fetch({
      ...(this._attempt === null ? {} : { attempt: this._attempt }),
      offset: this._offset ?? -TAIL_BYTES,
      limit: PART_BYTES
    });
    this._attempt = part.attempt;
    let { data } = part;
    if (isFirst && part.next > data.length) {
      // The tail begins within a line.
      this._isTail = true;
      data = data.subarray(data.indexOf(NEWLINE) + 1);
    }
    this._offset = part.next;
    this._text.push(data);
    this._isComplete = part.isComplete;
    if (part.isComplete) {
      this._text.finish();
    }
    if (!part.isComplete && part.data.length === PART_BYTES) {
      return 'more';
    }
    return part.data.length ? 'some' : 'nothing';
  }

  /** Go on with another attempt, from its beginning. */
  begin(attempt: number): void {
    this._attempt = attempt;
    this._offset = 0;
    this._isTail = this._isComplete = false;
    this._text = new LogText();
  }

  private _text = new LogText();
  private _attempt: number | null = null;
  private _offset: number | null = null;
  private _isTail = false;
  private _isComplete = false;
}

/** All of an attempt's log as it is now, byte for byte, to save it. */
export async function readWhole(
  fetch: (query: ILogQuery) => Promise<ILogPart>,
  attempt: number | null
): Promise<readonly Uint8Array[]> {
  const parts: Uint8Array[] = [];
  const which = attempt === null ? {} : { attempt };
  for (let offset = 0; ;) {
    const part = await fetch({ ...which, offset, limit: LARGE_PART_BYTES });
    if (!part.data.length) {
      return parts;
    }
    parts.push(part.data);
    offset = part.next;
  }
}

const NEWLINE = 10;
