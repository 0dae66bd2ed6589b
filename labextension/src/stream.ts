/**
 * One socket to the server's stream: opened, opened again with growing pauses when it breaks, closed while
 * nobody looks. Knows nothing of JupyterLab, so that its tests need no browser.
 */
import type { Link, Trouble } from './fold';
import type { Frame } from './types';

/** What a stream uses of a WebSocket. */
export interface ISocket {
  onmessage: ((event: MessageEvent) => unknown) | null;
  onclose: ((event: CloseEvent) => unknown) | null;
  close(): void;
}

/** How a stream meets the world. */
export interface IStreamOptions {
  /** Open a socket. */
  readonly connect: () => ISocket;
  /** Find out why a socket could not be opened: browsers do not tell. */
  readonly diagnose: () => Promise<{ link: Link; trouble: Trouble }>;
  /** What a message says; null where it only shows that the other end lives. */
  readonly frameOf: (text: string) => Frame | null;
  readonly onFrame: (frame: Frame) => void;
  readonly onTrouble: (link: Link, trouble: Trouble) => void;
  /** From 0 to 1; spreads the pages of many users. */
  readonly random?: () => number;
}

export const FIRST_PAUSE_MS = 1000;
export const LONGEST_PAUSE_MS = 30_000;

/** The pause before the next try: doubled each time, half of it by chance. */
export function pauseMs(tries: number, random: number): number {
  const most = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(tries, 10));
  return Math.round(most * (0.5 + random / 2));
}

/**
 * Why the stream could not be opened, by the status of our own route, 0 without an answer. `isThere` says whether the
 * Jupyter server itself answered: under a hub that restarts, its proxy answers 404 for every server.
 */
export function reasonOf(status: number, isThere: boolean): { link: Link; trouble: Trouble } {
  if (status === 401 || status === 403) {
    return {
      link: 'expired',
      trouble: { message: 'Your login to this server is over.', hint: 'Reload the page.' }
    };
  }
  if (status === 404 && isThere) {
    return {
      link: 'missing',
      trouble: {
        message: 'This Jupyter server does not have the server part of jupyter-gpu.',
        hint: 'Install jupyter-gpu where the server runs, and start the server again.'
      }
    };
  }
  const message = isThere ? 'The stream broke off.' : 'The Jupyter server does not answer.';
  return { link: 'lost', trouble: { message, hint: 'Trying again.' } };
}

/** The stream of one page. */
export class Stream {
  constructor(private readonly _options: IStreamOptions) {}

  /** Whether a socket is open or will be. */
  get isRunning(): boolean {
    return this._isRunning;
  }

  /** Begin, or begin again after `stop`; at once, whatever pause was under way. */
  start(): void {
    this._isRunning = true;
    if (this._socket === null) {
      this._clearTimer();
      this._open();
    }
  }

  /** Close, and stay closed until `start`. */
  stop(): void {
    this._isRunning = false;
    this._clearTimer();
    this._drop();
  }

  /** Close and open at once: after a sleep a socket may look open for minutes. */
  renew(): void {
    if (this._isRunning) {
      this._drop();
      this._tries = 0;
      this.start();
    }
  }

  private _open(): void {
    let socket: ISocket;
    try {
      socket = this._options.connect();
    } catch {
      this._schedule();
      return;
    }
    this._socket = socket;
    socket.onmessage = event => {
      this._take(event.data);
    };
    socket.onclose = () => {
      this._closed(socket);
    };
  }

  private _take(data: unknown): void {
    if (typeof data !== 'string') {
      return;
    }
    this._tries = 0;
    const frame = this._options.frameOf(data);
    if (frame !== null) {
      this._options.onFrame(frame);
    }
  }

  private _closed(socket: ISocket): void {
    if (socket === this._socket) {
      this._socket = null;
      void this._options.diagnose().then(({ link, trouble }) => {
        this._fail(link, trouble);
      });
    }
  }

  private _fail(link: Link, trouble: Trouble): void {
    if (!this._isRunning || this._socket !== null) {
      // Stopped, or open again, while the reason was looked for.
      return;
    }
    this._options.onTrouble(link, trouble);
    if (link === 'expired' || link === 'missing') {
      // Trying again would not help; a reload does.
      this._isRunning = false;
    } else {
      this._schedule();
    }
  }

  private _schedule(): void {
    this._clearTimer();
    const pause = pauseMs(this._tries, (this._options.random ?? Math.random)());
    this._tries += 1;
    this._timer = setTimeout(() => {
      this._timer = undefined;
      this.start();
    }, pause);
  }

  private _clearTimer(): void {
    clearTimeout(this._timer);
    this._timer = undefined;
  }

  private _drop(): void {
    const socket = this._socket;
    this._socket = null;
    if (socket !== null) {
      socket.onmessage = socket.onclose = null;
      socket.close();
    }
  }

  private _isRunning = false;
  private _socket: ISocket | null = null;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _tries = 0;
}
