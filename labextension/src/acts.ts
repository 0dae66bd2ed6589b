/**
 * What can be done with one's work: which request it is, what is asked first, what is said after. Knows nothing of
 * JupyterLab; how to ask and to tell is the face's to know.
 */
import type { Api } from './api';
import { plural, title, when } from './format';
import { arrayLoss, entriesOf, type IArray } from './jobwords';
import type { IGpuModel, ISource } from './model';
import { type IQuestion, type IServer, releaseQuestion } from './releasing';
import { nameOf } from './recurring';
import { isForLater } from './select';
import type { RecurringView, WorkloadView } from './types';

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

  /** End what lives of an array. */
  cancelArray(array: number, isSure = false): Promise<readonly WorkloadView[] | null> {
    return this.guarded(async () => {
      const it = this._array(array);
      const first = it?.members[0];
      if (!it || !first) {
        throw new Error(`Nothing of array ${array} waits or runs any more.`);
      }
      const called = `array ${array}${it.name ? ` (${it.name})` : ''}`;
      const asked = {
        title: `Cancel ${called}?`,
        body: arrayLoss(it),
        yes: 'Cancel all',
        no: 'Keep it'
      };
      if (!isSure && !(await this._face.confirm(asked))) {
        return null;
      }
      const done = await this._model.api.cancelArray(first.id);
      this._face.say(`${plural(done.length, 'job')} of ${called} cancelled.`);
      return done;
    });
  }

  /** Let a job that comes after others start without them. */
  unchain(id: number, isSure = false): Promise<WorkloadView | null> {
    return this.guarded(async () => {
      const it = this._find(id);
      const asked = {
        title: `Let ${it === null ? `job ${id}` : title(it)} start without waiting for other work?`,
        body: 'It may find that what it needs of that work is not there yet.',
        yes: 'Do not wait',
        no: 'Wait'
      };
      const isMeant = isSure || (await this._face.confirm(asked));
      return isMeant ? this._model.api.unchain(id) : null;
    });
  }

  pauseRecurring(id: number): Promise<RecurringView | null> {
    return this._changed(() => this._model.api.pauseRecurring(id));
  }

  letGoRecurring(id: number): Promise<RecurringView | null> {
    return this._changed(() => this._model.api.letGoRecurring(id));
  }

  /** Run a recurring job once more, now. */
  fireRecurring(id: number): Promise<WorkloadView | null> {
    return this._changed(async () => {
      const it = await this._model.api.fireRecurring(id);
      this._model.note(it);
      this._face.say(`Job ${it.id} (${title(it)}) is in queue ${it.queue}.`);
      return it;
    });
  }

  removeRecurring(id: number, isSure = false): Promise<RecurringView | null> {
    return this._changed(async () => {
      const it = this._model.state.recurring.find(known => known.id === id);
      const asked = {
        title: `Remove ${it ? nameOf(it) : `recurring job ${id}`}?`,
        body: 'It does not come again. Jobs that it has led to stay.',
        yes: 'Remove',
        no: 'Keep it'
      };
      const isMeant = isSure || (await this._face.confirm(asked));
      return isMeant ? this._model.api.removeRecurring(id) : null;
    });
  }

  /** Do something with a recurring job, and look what became of it. */
  private async _changed<T>(act: () => Promise<T>): Promise<T | null> {
    const done = await this.guarded(act);
    this._model.refresh();
    return done;
  }

  private _array(array: number): IArray | null {
    const all = entriesOf(this._model.state.status?.workloads.filter(it => it.is_mine) ?? []);
    return all.find(entry => entry.array?.array === array)?.array ?? null;
  }

  private _find(id: number): WorkloadView | null {
    return this._model.state.status?.workloads.find(it => it.id === id) ?? null;
  }
}

/** What to ask before work is cancelled; null where nothing is lost that would not be easy to have again. */
export function cancelQuestion(it: WorkloadView | null): IQuestion | null {
  if (it === null || (it.is_mine && it.state === 'queued' && !isForLater(it))) {
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
  if (isForLater(it)) {
    return 'Its time goes to others, and may not be there to be had again.';
  }
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
