/**
 * Requests to the broker, each as one function. Knows nothing of JupyterLab: which way leads to the broker, through a
 * Jupyter server or straight to the service of a hub, is its transport's to know.
 */
import type {
  AttemptPage,
  AttemptView,
  DeviceView,
  Error as Refused,
  Progress,
  ProgressPage,
  RecurringPage,
  RecurringView,
  State,
  SubmitBody,
  WorkloadView
} from './types';

/** Send a request; `path` is what stands below the transport's own root. */
export type Send = (path: string, init?: RequestInit) => Promise<Response>;

/** What was refused, with what to do now. */
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

/** A part of a list; `next` is where it goes on. */
export interface IPage {
  readonly items: readonly WorkloadView[];
  readonly next: number | null;
}

/** Whose work alone, by name, and of which queue. */
export interface IOnly {
  readonly owner?: string;
  readonly queue?: string;
}

/** What an operator does with a device. */
export type Mark = 'cordon' | 'uncordon' | 'drain';

/** The broker's own doors; `root` is what a transport has before their paths. */
export class Api {
  constructor(
    private readonly _send: Send,
    private readonly _root = ''
  ) {}

  /** The caller's jobs that ended last, newest first. */
  async lately(): Promise<readonly WorkloadView[]> {
    const path = 'workloads?mine=true&kind=job&state=ended&limit=5';
    return (await this.json<{ items: readonly WorkloadView[] }>(this._root + path)).items;
  }

  /** A page of the live work of everybody, newest first; `after` is the `next` of the page before. */
  live(state: State, limit: number, after: number | null = null, only: IOnly = {}): Promise<IPage> {
    const words = new URLSearchParams({ ended: 'false', state, limit: String(limit) });
    for (const [name, value] of Object.entries({ after, ...only })) {
      if (value !== null) {
        words.set(name, String(value));
      }
    }
    return this.json<IPage>(`${this._root}workloads?${words}`);
  }

  /** Bring an ask that is no file's: the broker decides at once, and says what is not to be had. */
  submitAsk(body: SubmitBody): Promise<WorkloadView> {
    return this.json<WorkloadView>(`${this._root}workloads`, body);
  }

  workload(id: number): Promise<WorkloadView> {
    return this.json<WorkloadView>(this._of(id));
  }

  /** End work; its owner is told the reason. */
  cancel(id: number, reason = ''): Promise<WorkloadView> {
    return this.json<WorkloadView>(this._of(id, '/cancel'), reason ? { reason } : {});
  }

  /** End all of an array, named by one of its jobs, in one step; answers what has been ended. */
  async cancelArray(id: number): Promise<readonly WorkloadView[]> {
    return (await this.json<IPage>(this._of(id, '/cancel?array=true'), {})).items;
  }

  /** A job that comes after others waits for them no more. */
  unchain(id: number): Promise<WorkloadView> {
    return this.json<WorkloadView>(this._of(id, '/chain'), { after: [] });
  }

  /** The curve of a job's newest attempt, by what it said itself, oldest first. */
  async progress(id: number): Promise<readonly Progress[]> {
    return (await this.json<ProgressPage>(this._of(id, '/progress'))).items;
  }

  async attempts(id: number): Promise<readonly AttemptView[]> {
    return (await this.json<AttemptPage>(this._of(id, '/attempts'))).items;
  }

  /** The recurring jobs that the caller may see: an operator sees all. */
  async recurring(): Promise<readonly RecurringView[]> {
    return (await this.json<RecurringPage>(`${this._root}recurring`)).items;
  }

  pauseRecurring(id: number): Promise<RecurringView> {
    return this.json<RecurringView>(`${this._root}recurring/${id}/pause`, {});
  }

  letGoRecurring(id: number): Promise<RecurringView> {
    return this.json<RecurringView>(`${this._root}recurring/${id}/let-go`, {});
  }

  /** Once more now; answers the job. */
  fireRecurring(id: number): Promise<WorkloadView> {
    return this.json<WorkloadView>(`${this._root}recurring/${id}/fire`, {});
  }

  removeRecurring(id: number): Promise<RecurringView> {
    return this.json<RecurringView>(`${this._root}recurring/${id}`, undefined, 'DELETE');
  }

  release(id: number): Promise<WorkloadView> {
    return this.json<WorkloadView>(this._of(id, '/release'), {});
  }

  extend(id: number, seconds: number): Promise<WorkloadView> {
    return this.json<WorkloadView>(this._of(id, '/extend'), { seconds });
  }

  /** An idle reservation is wanted: its idle time begins anew. */
  keep(id: number): Promise<WorkloadView> {
    return this.json<WorkloadView>(this._of(id, '/keep'), {});
  }

  letGo(id: number): Promise<WorkloadView> {
    return this.json<WorkloadView>(this._of(id, '/let-go'), {});
  }

  /** Take a device out of service, with or without what runs there, or into it again. */
  mark(uuid: string, mark: Mark, reason = ''): Promise<DeviceView> {
    const path = `${this._root}devices/${encodeURIComponent(uuid)}/${mark}`;
    return this.json<DeviceView>(path, reason ? { reason } : {});
  }

  /** A part of an attempt's log; a negative offset counts from the end. */
  async log(
    id: number,
    query: { attempt?: number; offset: number; limit: number }
  ): Promise<ILogPart> {
    const words = new URLSearchParams(
      Object.entries(query).map(([name, value]) => [name, String(value)])
    );
    const response = await this.request(this._of(id, `/log?${words}`));
    const header = (name: string): string => response.headers.get(name) ?? '';
    const data = new Uint8Array(await response.arrayBuffer());
    return {
      data,
      attempt: Number(header('X-Attempt')) || 1,
      next: Number(header('X-Next-Offset')) || Math.max(0, query.offset) + data.length,
      isComplete: header('X-Log-Complete') === 'true'
    };
  }

  protected async json<T>(
    path: string,
    body?: unknown,
    method = body ? 'POST' : 'GET'
  ): Promise<T> {
    const response = await this.request(path, {
      method,
      ...(body ? { body: JSON.stringify(body) } : {})
    });
    return (await response.json()) as T;
  }

  /** Send, and throw what was refused. */
  protected async request(path: string, init: RequestInit = {}): Promise<Response> {
    const response = await this._send(path, init);
    if (!response.ok) {
      throw await refusal(response);
    }
    return response;
  }

  private _of(id: number, rest = ''): string {
    return `${this._root}workloads/${id}${rest}`;
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
