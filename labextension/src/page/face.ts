/** How the page asks and tells: one question at a time, and words that stay until they are read. Draws nothing. */
import { Refusal } from '../api';
import type { IQuestion } from '../releasing';
import { troubleText } from '../trouble';
import type { IOperatorFace, IReasonQuestion } from './operating';

/** What went well goes by itself. */
export const READ_MS = 8000;
/** More would cover the page. */
const MOST_SHOWN = 4;

/** Something that was said. */
export interface ISaid {
  readonly key: number;
  readonly text: string;
  readonly isTrouble: boolean;
}

/** All that the page asks and says now. */
export interface IShown {
  readonly asked: IQuestion | IReasonQuestion | null;
  readonly said: readonly ISaid[];
  /** The job whose log is shown. */
  readonly log: number | null;
}

/** The face of a page; `onLoginOver` is told when a request was refused because nobody is signed in. */
export class PageFace implements IOperatorFace {
  constructor(private readonly _onLoginOver: () => void) {}

  get shown(): IShown {
    return this._shown;
  }

  /** Be told when something else is to be shown; answers how to hear no more. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  };

  async confirm(asked: IQuestion): Promise<boolean> {
    return (await this._ask(asked)) !== null;
  }

  why(asked: IReasonQuestion): Promise<string | null> {
    return this._ask(asked);
  }

  /** The question is answered: with a reason, which may be empty, or null for no. */
  answer(reason: string | null): void {
    const answer = this._answer;
    this._answer = null;
    this._show({ asked: null });
    answer?.(reason);
  }

  say(text: string): void {
    const key = this._add(text, false);
    setTimeout(() => {
      this.putAway(key);
    }, READ_MS);
  }

  tell(error: unknown): void {
    this._add(troubleText(error), true);
    if (error instanceof Refusal && error.status === 401) {
      this._onLoginOver();
    }
  }

  putAway(key: number): void {
    this._show({ said: this._shown.said.filter(it => it.key !== key) });
  }

  /** Show the log of a job; null closes it. */
  showLog(id: number | null): void {
    this._show({ log: id });
  }

  /** One after the other: a second question over the first would be answered in its place. */
  private _ask(asked: IQuestion): Promise<string | null> {
    const answer = this._last.then(
      () =>
        new Promise<string | null>(resolve => {
          this._answer = resolve;
          this._show({ asked });
        })
    );
    this._last = answer;
    return answer;
  }

  private _add(text: string, isTrouble: boolean): number {
    this._key += 1;
    const said = this._shown.said.filter(it => it.text !== text);
    this._show({ said: [...said, { key: this._key, text, isTrouble }].slice(-MOST_SHOWN) });
    return this._key;
  }

  private _show(change: Partial<IShown>): void {
    this._shown = { ...this._shown, ...change };
    this._listeners.forEach(listener => {
      listener();
    });
  }

  private _shown: IShown = { asked: null, said: [], log: null };
  private _listeners = new Set<() => void>();
  private _last: Promise<unknown> = Promise.resolve();
  private _answer: ((reason: string | null) => void) | null = null;
  private _key = 0;
}
