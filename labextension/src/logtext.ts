/**
 * Bytes that a job printed -> lines to show. Pure. Decoded leniently across parts, so that neither a cut
 * character nor a bad byte hides anything; what a progress bar wrote over and over is shown once; what steers
 * a terminal is left out. Only the end of a long log is kept.
 */

/** So many lines are kept; the whole log is one click away as a file. */
export const MOST_LINES = 5000;
/** A longer line is cut: a browser that wraps five megabytes stands still. */
export const MOST_CHARACTERS = 4000;

// Colours, titles, cursor moves: whole sequences as ECMA-48 has them.
const SEQUENCE =
  // eslint-disable-next-line no-control-regex
  /\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-Z\\^-~]/g;
// eslint-disable-next-line no-control-regex
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** The reader of one attempt's log: bytes go in as they come, lines come out. */
export class LogText {
  /** The lines that are complete, the oldest first. */
  get lines(): readonly string[] {
    return this._lines;
  }

  /** The line that is not complete yet, as far as it goes: what a progress bar shows now. */
  get unfinished(): string {
    return shown(this._held, this._cut);
  }

  /** How many lines are no longer kept. */
  get dropped(): number {
    return this._dropped;
  }

  /** Take the next bytes. */
  push(data: Uint8Array): void {
    const text = this._held + this._decoder.decode(data, { stream: true });
    const parts = text.split('\n');
    const held = parts.pop() ?? '';
    for (const part of parts) {
      this._lines.push(shown(part, this._cutOf(part)));
      this._cut = 0;
    }
    this._cut = this._cutOf(held);
    this._held = lastWritten(held);
    if (this._held.length > 16 * MOST_CHARACTERS) {
      // Nobody reads on; its end may still matter to a carriage return.
      this._cut += this._held.length - 2 * MOST_CHARACTERS;
      this._held = this._held.slice(0, MOST_CHARACTERS) + this._held.slice(-MOST_CHARACTERS);
    }
    this._bound();
  }

  /** How much was cut out of a line before; nothing where a carriage return has written over it since. */
  private _cutOf(line: string): number {
    return this._cut && isWrittenOver(line) ? 0 : this._cut;
  }

  private _bound(): void {
    const surplus = this._lines.length - MOST_LINES;
    if (surplus > 0) {
      this._lines.splice(0, surplus);
      this._dropped += surplus;
    }
  }

  /** Nothing more comes: what is held is the last line. */
  finish(): void {
    const rest = this._held + this._decoder.decode();
    this._held = '';
    if (rest) {
      this._lines.push(shown(rest, this._cutOf(rest)));
    }
    this._cut = 0;
  }

  private _decoder = new TextDecoder('utf-8');
  private _held = '';
  /** So many characters in the middle of what is held are left out. */
  private _cut = 0;
  private _lines: string[] = [];
  private _dropped = 0;
}

/** What stood in a line last: a carriage return writes over it. */
function lastWritten(line: string): string {
  if (!line.includes('\r')) {
    return line;
  }
  // One at the end may be half of a line end, or announce the next drawing, which is not there yet.
  const ending = line.endsWith('\r') ? '\r' : '';
  const parts = line.split('\r').filter(part => part);
  return (parts[parts.length - 1] ?? '') + ending;
}

/** Whether what a line began with is gone. */
function isWrittenOver(line: string): boolean {
  return /\r[^\r]/.test(line);
}

function shown(line: string, cut: number): string {
  const plain = lastWritten(line).replace(SEQUENCE, '').replace(CONTROL, '');
  return plain.length > MOST_CHARACTERS
    ? `${plain.slice(0, MOST_CHARACTERS)} … ${plain.length - MOST_CHARACTERS + cut} more characters`
    : plain;
}
