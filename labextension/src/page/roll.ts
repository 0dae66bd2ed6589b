/**
 * Who waits: the waiting work of everybody, read page by page while an operator looks. The stream tells of others only
 * what has devices, and how many wait in each queue.
 */
import type { Api, IOnly } from '../api';
import type { IGpuModel, ISource } from '../model';
import type { Status, WorkloadView } from '../types';
import { troubleText } from '../trouble';

/** So many are read at once. */
export const PAGE = 100;
/** A list that changes all the time is read no more often than this. */
export const PAUSE_MS = 3000;
/** Who types is left to end the word. */
export const TYPING_MS = 300;
/** So many words of a filter are asked for. */
const MOST_WORDS = 3;

/** What is known of those who wait. */
export interface IRoll {
  /** Newest first. */
  readonly waiting: readonly WorkloadView[];
  readonly hasMore: boolean;
  /** Why it could not be read; empty where it could. */
  readonly trouble: string;
}

const NOBODY: IRoll = { waiting: [], hasMore: false, trouble: '' };

/** How many wait in all queues together. */
export function countWaiting(status: Status): number {
  return Object.values(status.waiting).reduce((sum, count) => sum + count, 0);
}

/** What to ask for what was typed: a word is a queue's name, or else may be an owner's. */
export function askedFor(typed: string, queues: readonly string[]): readonly IOnly[] {
  const words = [...new Set(typed.split(/\s+/).filter(Boolean))];
  const queue = words.find(word => queues.includes(word));
  const owners = words.filter(word => word !== queue).slice(0, MOST_WORDS);
  const of = queue === undefined ? {} : { queue };
  return owners.length ? owners.map(owner => ({ owner, ...of })) : queue === undefined ? [] : [of];
}

/** The reader. It reads from `begin` until `end`. */
export class Roll {
  constructor(private readonly _model: IGpuModel<Api & ISource>) {}

  get known(): IRoll {
    return this._known;
  }

  /** Be told when something else is known; answers how to hear no more. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this._listeners.add(listener);
    if (this._listeners.size === 1) {
      this._model.changed.connect(this._onChanged, this);
      this._onChanged();
    }
    return () => {
      this._listeners.delete(listener);
      if (!this._listeners.size) {
        this._model.changed.disconnect(this._onChanged, this);
        clearTimeout(this._timer);
        clearTimeout(this._typing);
        this._timer = undefined;
      }
    };
  };

  /** Look also among those that are not read yet for what is typed, as far as the broker can: by owner and queue. */
  seek(typed: string): void {
    if (typed === this._typed) {
      return;
    }
    this._typed = typed;
    clearTimeout(this._typing);
    if (this._known.hasMore) {
      this._typing = setTimeout(() => {
        this._revision = null;
        void this._look();
      }, TYPING_MS);
    }
  }

  /** Read another page, now and from now on. */
  async more(): Promise<void> {
    this._pages += 1;
    this._revision = null;
    await this._look();
  }

  private _onChanged(): void {
    const { status, link } = this._model.state;
    if (
      status === null ||
      link !== 'open' ||
      status.revision === this._revision ||
      this._isReading ||
      this._timer !== undefined
    ) {
      return;
    }
    this._timer = setTimeout(
      () => {
        this._timer = undefined;
        void this._look();
      },
      Math.max(0, this._readAt + PAUSE_MS * this._pages - Date.now())
    );
  }

  private async _look(): Promise<void> {
    const { status } = this._model.state;
    if (status === null || this._isReading) {
      return;
    }
    this._isReading = true;
    this._revision = status.revision;
    try {
      this._set(countWaiting(status) ? await this._read() : NOBODY);
    } catch (error) {
      this._revision = null;
      this._set({ ...this._known, trouble: troubleText(error) });
    }
    this._isReading = false;
    this._readAt = Date.now();
    if (this._listeners.size) {
      // What changed meanwhile.
      this._onChanged();
    }
  }

  private async _read(): Promise<IRoll> {
    const waiting: WorkloadView[] = [];
    let next: number | null = null;
    for (let page = 0; page < this._pages; page += 1) {
      const found = await this._model.api.live('queued', PAGE, next);
      waiting.push(...found.items);
      next = found.next;
      if (next === null) {
        break;
      }
    }
    if (next !== null) {
      const known = new Set(waiting.map(it => it.id));
      const queues = Object.keys(this._model.state.status?.waiting ?? {});
      for (const only of askedFor(this._typed, queues)) {
        const found = await this._model.api.live('queued', PAGE, null, only);
        waiting.push(...found.items.filter(it => !known.has(it.id)));
        found.items.forEach(it => known.add(it.id));
      }
    }
    return { waiting, hasMore: next !== null, trouble: '' };
  }

  private _set(known: IRoll): void {
    this._known = known;
    this._listeners.forEach(listener => {
      listener();
    });
  }

  private _known = NOBODY;
  private _typed = '';
  private _typing: ReturnType<typeof setTimeout> | undefined;
  private _listeners = new Set<() => void>();
  private _pages = 1;
  private _revision: number | null = null;
  private _readAt = 0;
  private _isReading = false;
  private _timer: ReturnType<typeof setTimeout> | undefined;
}
