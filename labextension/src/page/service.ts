/** Requests to the service of a hub, by the cookie that its login gave. */
import { Api, Refusal } from '../api';
import type { Link, Trouble } from '../fold';
import type { ISource } from '../model';
import type { Change, Frame } from '../types';
import { LineSocket } from './lines';

/** What the page was served with. */
export interface IPageData {
  /** Where the API is. */
  readonly api: string;
  /** By what the service knows that it is its page that asks: the cookie alone is not enough. */
  readonly xsrf: string;
  readonly caller: string;
  readonly scopes: readonly string[];
  /** The hub's home, and where a server is started. */
  readonly hub: string;
  readonly spawn: string;
  readonly version: string;
}

const ANSWERS: { link: Link; trouble: Trouble } = {
  link: 'lost',
  trouble: { message: 'The stream broke off.', hint: 'Trying again.' }
};

/** The service as the page asks it. */
export class ServiceApi extends Api implements ISource {
  constructor(data: Pick<IPageData, 'api' | 'xsrf'>) {
    super((path, init = {}) =>
      fetch(`${data.api}/${path}`, {
        ...init,
        headers: {
          'X-XSRFToken': data.xsrf,
          ...(init.body ? { 'Content-Type': 'application/json' } : {})
        },
        cache: 'no-store',
        credentials: 'same-origin',
        // An answer of ours never leads elsewhere.
        redirect: 'error'
      })
    );
  }

  connect(): LineSocket {
    return new LineSocket({
      open: signal => this.request('stream', { signal }),
      ask: async signal => {
        const response = await this.request('status', { signal });
        return `{"status":${await response.text()}}`;
      }
    });
  }

  /** A line of the stream; an empty one says that the broker lives. */
  frameOf(text: string): Frame | null {
    const change = JSON.parse(text) as Change;
    if (!Object.keys(change).length) {
      return null;
    }
    return change.status ? { type: 'status', status: change.status } : { type: 'change', change };
  }

  async diagnose(): Promise<{ link: Link; trouble: Trouble }> {
    try {
      await this.json('broker');
      return ANSWERS;
    } catch (error) {
      return troubleOf(error);
    }
  }
}

/** What a refusal says of the connection: the login is over, or the service is away. */
export function troubleOf(error: unknown): { link: Link; trouble: Trouble } {
  if (isLoginOver(error)) {
    return {
      link: 'expired',
      trouble: { message: error.message, hint: error.hint ?? 'Reload the page.' }
    };
  }
  // What has our code is the broker's own word; without one it is a proxy's.
  const said = error instanceof Refusal && error.code ? error.message : '';
  const message = said || 'The GPU service does not answer.';
  return { link: 'lost', trouble: { message, hint: 'Trying again.' } };
}

/** Whether the visitor is not known any more, or may not look any more. */
export function isLoginOver(error: unknown): error is Refusal {
  return error instanceof Refusal && (error.status === 401 || error.status === 403);
}
