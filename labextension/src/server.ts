/** Requests to the server extension of JupyterLab: the broker's doors behind it, and its own. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { Api, Refusal } from './api';
import type { Link, Trouble } from './fold';
import { bodyOf, type Typed } from './parameters';
import { reasonOf } from './stream';
import type {
  FileJob,
  FileJobView,
  Frame,
  Hello,
  KernelAsk,
  NotebookView,
  PinAnswer,
  WorkloadView
} from './types';

const ROOT = 'jupyter-gpu';

/** The server extension of one Jupyter server. */
export class ServerApi extends Api {
  constructor(readonly settings: ServerConnection.ISettings) {
    // Also adds the XSRF header, which the server asks of a page that is known by its cookie.
    super(
      (path, init = {}) =>
        ServerConnection.makeRequest(URLExt.join(settings.baseUrl, ROOT, path), init, settings),
      'api/v1/'
    );
  }

  hello(): Promise<Hello> {
    return this.json<Hello>('hello');
  }

  /** Ask for GPUs for a kernel. */
  reserve(kernel: string, ask: KernelAsk): Promise<WorkloadView> {
    return this.json<WorkloadView>(`kernels/${encodeURIComponent(kernel)}/reservation`, ask);
  }

  /**
   * Give a kernel's GPUs back, or leave the line. Where `byPage`, and the answer is still active, the page is to
   * restart the kernel, which gives them back; else the server has done it.
   */
  giveBack(kernel: string, byPage: boolean): Promise<WorkloadView> {
    const words = byPage ? '?restart=page' : '';
    const path = `kernels/${encodeURIComponent(kernel)}/reservation${words}`;
    return this.json<WorkloadView>(path, undefined, 'DELETE');
  }

  /** Whether it is for this page to make the restart that the server asked for. */
  async claim(kernel: string): Promise<boolean> {
    try {
      await this.request(`kernels/${encodeURIComponent(kernel)}/claim`, { method: 'POST' });
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
    return this.json<PinAnswer>(`kernels/${encodeURIComponent(kernel)}/pin`, { restart });
  }

  /** What a notebook takes as parameters. */
  notebook(path: string): Promise<NotebookView> {
    return this.json<NotebookView>(`notebook?path=${encodeURIComponent(path)}`);
  }

  /** Send a file to the queue, with parameters as they were typed. */
  async submit(job: FileJob, parameters: Typed = {}): Promise<FileJobView> {
    const body = bodyOf(job, parameters);
    return (await (await this.request('jobs', { method: 'POST', body })).json()) as FileJobView;
  }

  /** The socket of the stream. Browsers send no headers with one, so a token goes into its address. */
  connect(): WebSocket {
    const { wsUrl, token, appendToken, WebSocket } = this.settings;
    const words = appendToken && token ? `?token=${encodeURIComponent(token)}` : '';
    return new WebSocket(URLExt.join(wsUrl, ROOT, 'stream') + words);
  }

  frameOf(text: string): Frame {
    return JSON.parse(text) as Frame;
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
}
