/** Requests to the server extension, each as one function. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { Link, Trouble } from './fold';
import { reasonOf } from './stream';
import type { FileJob, Error as Refused, Hello, KernelAsk, PinAnswer, WorkloadView } from './types';

const ROOT = 'jupyter-gpu';

/** What the server refused, with what to do now. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string | null
  ) {
    super(message);
    this.name = 'Refusal';
  }
}

/** A part of a log. */
export interface ILogPart {
  readonly data: Uint8Array;
  readonly attempt: number;
  readonly next: number;
  readonly isComplete: boolean;
}

/** The server extension of one Jupyter server. */
export class Api {
  constructor(readonly settings: ServerConnection.ISettings) {}

  hello(): Promise<Hello> {
    return this._json<Hello>('hello');
  }

  /** The caller's jobs that ended last, newest first. */
  async lately(): Promise<readonly WorkloadView[]> {
    const path = 'api/v1/workloads?mine=true&kind=job&state=ended&limit=5';
    return (await this._json<{ items: readonly WorkloadView[] }>(path)).items;
  }

  workload(id: number): Promise<WorkloadView> {
    return this._json<WorkloadView>(`api/v1/workloads/${id}`);
  }

  cancel(id: number): Promise<WorkloadView> {
    return this._json<WorkloadView>(`api/v1/workloads/${id}/cancel`, {});
  }

  release(id: number): Promise<WorkloadView> {
    return this._json<WorkloadView>(`api/v1/workloads/${id}/release`, {});
  }

  extend(id: number, seconds: number): Promise<WorkloadView> {
    return this._json<WorkloadView>(`api/v1/workloads/${id}/extend`, { seconds });
  }

  /** An idle reservation is wanted: its idle time begins anew. */
  keep(id: number): Promise<WorkloadView> {
    return this._json<WorkloadView>(`api/v1/workloads/${id}/keep`, {});
  }

  letGo(id: number): Promise<WorkloadView> {
    return this._json<WorkloadView>(`api/v1/workloads/${id}/let-go`, {});
  }

  /** Ask for GPUs for a kernel. */
  reserve(kernel: string, ask: KernelAsk): Promise<WorkloadView> {
    return this._json<WorkloadView>(`kernels/${encodeURIComponent(kernel)}/reservation`, ask);
  }

  /**
   * Give a kernel's GPUs back, or leave the line. Where `byPage`, and the answer is still active, the page is to
   * restart the kernel, which gives them back; else the server has done it.
   */
  giveBack(kernel: string, byPage: boolean): Promise<WorkloadView> {
    const words = byPage ? '?restart=page' : '';
    const path = `kernels/${encodeURIComponent(kernel)}/reservation${words}`;
    return this._json<WorkloadView>(path, undefined, 'DELETE');
  }

  /** Whether it is for this page to make the restart that the server asked for. */
  async claim(kernel: string): Promise<boolean> {
    try {
      await this._request(`kernels/${encodeURIComponent(kernel)}/claim`, { method: 'POST' });
      return true;
    } catch (error) {
      if (error instanceof Refusal && error.status === 409) {
        return false;
      }
      throw error;
    }
  }

  /** Let a kernel see what it was granted; where it must be restarted for that, only if `restart` says so. */
  pin(kernel: string, restart: boolean): Promise<PinAnswer> {
    return this._json<PinAnswer>(`kernels/${encodeURIComponent(kernel)}/pin`, { restart });
  }

  submit(job: FileJob): Promise<WorkloadView> {
    return this._json<WorkloadView>('jobs', job);
  }

  /** A part of an attempt's log; a negative offset counts from the end. */
  async log(
    id: number,
    query: { attempt?: number; offset: number; limit: number }
  ): Promise<ILogPart> {
    const words = new URLSearchParams(
      Object.entries(query).map(([name, value]) => [name, String(value)])
    );
    const response = await this._request(`api/v1/workloads/${id}/log?${words}`);
    const header = (name: string): string => response.headers.get(name) ?? '';
    const data = new Uint8Array(await response.arrayBuffer());
    return {
      data,
      attempt: Number(header('X-Attempt')) || 1,
      next: Number(header('X-Next-Offset')) || Math.max(0, query.offset) + data.length,
      isComplete: header('X-Log-Complete') === 'true'
    };
  }

  /** The socket of the stream. Browsers send no headers with one, so a token goes into its address. */
  connect(): WebSocket {
    const { wsUrl, token, appendToken, WebSocket } = this.settings;
    const words = appendToken && token ? `?token=${encodeURIComponent(token)}` : '';
    return new WebSocket(URLExt.join(wsUrl, ROOT, 'stream') + words);
  }

  /** Find out why the stream could not be opened. */
  async diagnose(): Promise<{ link: Link; trouble: Trouble }> {
    try {
      await this.hello();
    } catch (error) {
      const status = error instanceof Refusal ? error.status : 0;
      return reasonOf(status, status === 404 ? await this._isThere() : status !== 0);
    }
    return reasonOf(200, true);
  }

  /** Whether it is the Jupyter server that answers, and not a proxy before it. */
  private async _isThere(): Promise<boolean> {
    try {
      const address = URLExt.join(this.settings.baseUrl, 'api');
      return (await ServerConnection.makeRequest(address, {}, this.settings)).ok;
    } catch {
      return false;
    }
  }

  private async _json<T>(path: string, body?: unknown, method = body ? 'POST' : 'GET'): Promise<T> {
    const response = await this._request(path, {
      method,
      ...(body ? { body: JSON.stringify(body) } : {})
    });
    return (await response.json()) as T;
  }

  private async _request(path: string, init: RequestInit = {}): Promise<Response> {
    // Also adds the XSRF header, which the server asks of a page that is known by its cookie.
    const response = await ServerConnection.makeRequest(this._url(path), init, this.settings);
    if (!response.ok) {
      throw await refusal(response);
    }
    return response;
  }

  private _url(path: string): string {
    return URLExt.join(this.settings.baseUrl, ROOT, path);
  }
}

async function refusal(response: Response): Promise<Refusal> {
  let said: Partial<Refused> = {};
  try {
    said = (await response.json()) as Partial<Refused>;
  } catch {
    // A proxy's page, not our words.
  }
  const message = said.message || `The server answered ${response.status} ${response.statusText}.`;
  const isLogin = response.status === 403 && !said.code;
  return new Refusal(
    response.status,
    said.code ?? '',
    message,
    said.hint ?? (isLogin ? 'Reload the page: your login may be over.' : null)
  );
}
