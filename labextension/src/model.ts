/** What this page knows of the GPUs: one socket, one state, one signal, however many faces look at it. */
import type { IDisposable } from '@lumino/disposable';
import { type ISignal, Signal } from '@lumino/signaling';

import { fold, type GpuState, type Link, NOTHING, type Trouble, whoseOf } from './fold';
import { markOf } from './select';
import type { ServerApi } from './server';
import { type ISocket, Stream } from './stream';
import type { Frame, RecurringView, RestartFrame, Status, WorkloadView } from './types';

/** What the model asks of whoever knows. */
export interface ISource {
  /** Open the stream. */
  connect(): ISocket;
  /** What a message of the stream says; null where it only shows that the other end lives. */
  frameOf(text: string): Frame | null;
  /** Find out why the stream could not be opened. */
  diagnose(): Promise<{ link: Link; trouble: Trouble }>;
  /** The caller's jobs that ended last. */
  lately(): Promise<readonly WorkloadView[]>;
  workload(id: number): Promise<WorkloadView>;
  /** The recurring jobs that the caller may see. */
  recurring(): Promise<readonly RecurringView[]>;
}

/** The model of this page; in JupyterLab what it asks is the server extension. */
export interface IGpuModel<A extends ISource = ServerApi> {
  readonly api: A;
  readonly state: GpuState;
  /** Emitted when the state changed, and now and then because time passed. */
  readonly changed: ISignal<IGpuModel<A>, GpuState>;
  /** Emitted when the server wants a kernel restarted, which a page does best. */
  readonly restartAsked: ISignal<IGpuModel<A>, RestartFrame>;
  /** The server's clock in Unix seconds, in steps of ten, so that all faces say the same length of time. */
  now(): number;
  /** Take in the answer to a request, ahead of the stream. */
  note(it: WorkloadView): void;
  /** Ask anew for what the stream does not tell of: the recurring jobs. */
  refresh(): void;
  /** Show no more of what has ended until now, also after a reload. */
  clearEnded(): void;
  /** Put an alert away until it changes, also after a reload. */
  dismiss(key: string): void;
}

/** What the browser keeps for this page. */
export type Memory = Pick<Storage, 'getItem' | 'setItem'>;

/** How often times are drawn anew although nothing else changed. */
const STEP_SECONDS = 10;
const TICK_MS = 1000 * STEP_SECONDS;
/** Of recurring jobs the stream does not tell: one may be made in a terminal. */
const REFRESH_TICKS = 6;
/** A tick that comes so much later has slept through: the socket may be dead without a word. */
const SLEPT_MS = 30_000;
/** A page that nobody sees listens on for so long. */
const HIDDEN_MS = 30_000;

/** The model itself. */
export class GpuModel<A extends ISource> implements IGpuModel<A>, IDisposable {
  constructor(
    readonly api: A,
    private readonly _memory: Memory | null = null
  ) {
    this._stream = new Stream({
      connect: () => api.connect(),
      diagnose: () => api.diagnose(),
      frameOf: text => api.frameOf(text),
      onFrame: frame => {
        this._take(frame);
      },
      onTrouble: (link, trouble) => {
        this._fail(link, trouble);
      }
    });
    document.addEventListener('visibilitychange', this._onVisibility);
    window.addEventListener('online', this._onOnline);
    this._ticker = window.setInterval(() => {
      this._tick();
    }, TICK_MS);
    if (!document.hidden) {
      this._stream.start();
    }
  }

  get state(): GpuState {
    return this._state;
  }

  get changed(): ISignal<this, GpuState> {
    return this._changed;
  }

  get restartAsked(): ISignal<this, RestartFrame> {
    return this._restartAsked;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  now(): number {
    return Math.floor((Date.now() / 1000 + this._state.skew) / STEP_SECONDS) * STEP_SECONDS;
  }

  note(it: WorkloadView): void {
    // Of what is known already the stream tells; an answer that was overtaken on its way must not undo that.
    if (!this._state.status?.workloads.some(known => known.id === it.id)) {
      this._take({ type: 'change', change: { changes: [it] } });
    }
  }

  refresh(): void {
    void this._lookAtRecurring();
  }

  clearEnded(): void {
    const newest = this._state.recent[0]?.ended_at ?? 0;
    if (newest > this._cleared()) {
      this._memory?.setItem(this._key('cleared'), String(newest));
    }
    this._set({ ...this._state, recent: [] });
  }

  dismiss(key: string): void {
    const alerts = this._state.status?.alerts ?? [];
    const open = new Set(alerts.map(markOf));
    // What is over is forgotten, so that the list stays short.
    const dismissed = [
      ...this._state.dismissed.filter(mark => open.has(mark)),
      ...alerts.filter(it => it.key === key).map(markOf)
    ];
    this._memory?.setItem(this._key('dismissed'), JSON.stringify(dismissed));
    this._set({ ...this._state, dismissed });
  }

  /** Open the stream anew: what is known of the connection may not be true any more. */
  renew(): void {
    this._stream.renew();
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    document.removeEventListener('visibilitychange', this._onVisibility);
    window.removeEventListener('online', this._onOnline);
    clearInterval(this._ticker);
    clearTimeout(this._hiding);
    this._stream.stop();
    Signal.clearData(this);
  }

  private _take(frame: Frame): void {
    const before = this._state;
    const after = fold(before, frame, Date.now() / 1000);
    const isOther = whoseOf(after.status) !== whoseOf(before.status);
    this._set(isOther ? { ...after, dismissed: this._dismissed(after.status) } : after);
    if (frame.type === 'change' && frame.change.changes?.some(it => it.is_mine && it.recurring)) {
      this.refresh();
    }
    if (frame.type === 'status') {
      void this._catchUp(before);
      this.refresh();
    } else if (frame.type === 'restart') {
      this._restartAsked.emit(frame);
    }
  }

  private _fail(link: Link, trouble: Trouble): void {
    this._set({ ...this._state, link, trouble });
  }

  private _set(state: GpuState): void {
    if (state !== this._state) {
      this._state = state;
      this._changed.emit(state);
    }
  }

  /** Learn how one's own work ended that was live when the page last heard, and what ended before it opened. */
  private async _catchUp(before: GpuState): Promise<void> {
    const { status } = this._state;
    if (status === null) {
      return;
    }
    try {
      if (before.status === null || whoseOf(before.status) !== whoseOf(status)) {
        this._end(await this.api.lately());
        return;
      }
      const live = new Set(status.workloads.map(it => it.id));
      const gone = before.status.workloads.filter(it => it.is_mine && !live.has(it.id));
      this._end(await Promise.all(gone.map(it => this.api.workload(it.id))));
    } catch (error) {
      // Nice to know, no more: the stream goes on without it.
      console.debug('jupyter-gpu: what ended meanwhile is not known', error);
    }
  }

  private async _lookAtRecurring(): Promise<void> {
    const whose = whoseOf(this._state.status);
    try {
      const found = await this.api.recurring();
      const { status } = this._state;
      if (status !== null && whoseOf(status) === whose) {
        const next = (it: RecurringView): number => it.next_at ?? Infinity;
        const recurring = found
          .filter(it => it.owner === status.caller)
          .sort((a, b) => next(a) - next(b) || a.id - b.id);
        this._set({ ...this._state, recurring });
      }
    } catch (error) {
      // A broker that is away, or one that knows nothing of such.
      console.debug('jupyter-gpu: recurring jobs are not known', error);
    }
  }

  private _end(changes: readonly WorkloadView[]): void {
    const cleared = this._cleared();
    const ended = changes.filter(it => it.state === 'ended' && (it.ended_at ?? 0) > cleared);
    if (ended.length) {
      this._take({ type: 'change', change: { changes: ended } });
    }
  }

  /** Several may use one browser, one after the other: what one puts away, the next has not seen. */
  private _key(what: 'cleared' | 'dismissed', status = this._state.status): string {
    return `jupyter-gpu:${what}:${whoseOf(status)}`;
  }

  private _dismissed(status: Status | null): readonly string[] {
    try {
      const kept: unknown = JSON.parse(
        this._memory?.getItem(this._key('dismissed', status)) ?? '[]'
      );
      return Array.isArray(kept) ? kept.filter(it => typeof it === 'string') : [];
    } catch {
      return [];
    }
  }

  private _cleared(): number {
    return Number(this._memory?.getItem(this._key('cleared')) ?? -1);
  }

  private _tick(): void {
    const now = Date.now();
    if (now - this._ticked > TICK_MS + SLEPT_MS) {
      this._stream.renew();
    }
    this._ticked = now;
    this._ticks += 1;
    if (!document.hidden) {
      if (this._ticks % REFRESH_TICKS === 0 && this._state.link === 'open') {
        this.refresh();
      }
      this._changed.emit(this._state);
    }
  }

  private _onVisibility = (): void => {
    clearTimeout(this._hiding);
    if (document.hidden) {
      this._hiding = window.setTimeout(() => {
        this._stream.stop();
      }, HIDDEN_MS);
    } else if (this._state.link !== 'expired' && this._state.link !== 'missing') {
      this._stream.start();
      this._changed.emit(this._state);
    }
  };

  private _onOnline = (): void => {
    this.renew();
  };

  private _state = NOTHING;
  private _changed = new Signal<this, GpuState>(this);
  private _restartAsked = new Signal<this, RestartFrame>(this);
  private _isDisposed = false;
  private _ticked = Date.now();
  private _ticks = 0;
  private _ticker: number;
  private _hiding: number | undefined;
  private readonly _stream: Stream;
}
