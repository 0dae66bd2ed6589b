/**
 * What can be done with one's work: which request it is, what is asked first, what is said after. Knows nothing of
 * JupyterLab; how to ask and to tell is the face's to know.
 */
import type { Api } from './api';
import { title, when } from './format';
import type { IGpuModel, ISource } from './model';
import { type IQuestion, type IServer, releaseQuestion } from './releasing';
import type { WorkloadView } from './types';

/** How a face asks and tells. */
export interface IFace {
  confirm(asked: IQuestion): Promise<boolean>;
  /** It is done. */
  say(text: string): void;
  /** It did not work. */
  tell(error: unknown): void;
}

/** How devices are given back, where that is not a request alone. */
export interface IReleasing {
  readonly isSure?: boolean;
  /** The server that serves this page, if a hub started one. */
  readonly here?: IServer | null;
  readonly giveBack?: () => Promise<WorkloadView>;
}

/** What a person does with their own work, by one face. */
export class Acts<A extends Api & ISource> {
  constructor(
    private readonly _model: IGpuModel<A>,
    private readonly _face: IFace
  ) {}

  /** Do something; where it fails, say why and what now. */
  async guarded<T>(act: () => Promise<T>): Promise<T | null> {
    try {
      return await act();
    } catch (error) {
      this._face.tell(error);
      return null;
    }
  }

  /** End work, wherever it stands. */
  cancel(id: number, isSure = false): Promise<WorkloadView | null> {
    return this.guarded(async () => {
      const asked = cancelQuestion(this._find(id));
      const isMeant = isSure || asked === null || (await this._face.confirm(asked));
      return isMeant ? this._model.api.cancel(id) : null;
    });
  }

  /** Give a reservation's devices back, or leave the line. */
  release(it: WorkloadView | number | null, how: IReleasing = {}): Promise<WorkloadView | null> {
    return this.guarded(async () => {
      const { api, state } = this._model;
      const known = typeof it === 'number' ? this._find(it) : it;
      if (known === null) {
        throw new Error('Nothing is reserved here.');
      }
      if (known.state === 'queued') {
        return api.cancel(known.id);
      }
      const asked = releaseQuestion(known, state, how.here ?? null);
      const isMeant = how.isSure === true || (await this._face.confirm(asked));
      return isMeant ? (how.giveBack?.() ?? api.release(known.id)) : null;
    });
  }

  extend(id: number, seconds: number): Promise<WorkloadView | null> {
    return this.guarded(async () => {
      const it = await this._model.api.extend(id, seconds);
      const until = when(it.ends_at, this._model.now());
      this._face.say(`${title(it)} has its GPU until ${until} now.`);
      return it;
    });
  }

  keep(id: number): Promise<WorkloadView | null> {
    return this.guarded(() => this._model.api.keep(id));
  }

  letGo(id: number): Promise<WorkloadView | null> {
    return this.guarded(() => this._model.api.letGo(id));
  }

  private _find(id: number): WorkloadView | null {
    return this._model.state.status?.workloads.find(it => it.id === id) ?? null;
  }
}

/** What to ask before work is cancelled; null where nothing is lost that would not be easy to have again. */
export function cancelQuestion(it: WorkloadView | null): IQuestion | null {
  if (it === null || (it.is_mine && it.state === 'queued')) {
    return null;
  }
  const whose = it.is_mine ? '' : ` of ${it.owner ?? 'somebody else'}`;
  return {
    title: `Cancel ${title(it)}${whose}?`,
    body: loss(it),
    yes: 'Cancel it',
    no: 'Keep it'
  };
}

function loss(it: WorkloadView): string {
  if (it.state === 'queued') {
    return 'It leaves the line, and does not come back.';
  }
  if (it.kind === 'job') {
    return 'It runs, and does not come back.';
  }
  return it.holder?.kind === 'server'
    ? 'The server that has its GPUs ends, with all its notebooks and terminals.'
    : 'What runs on its GPUs is ended.';
}
