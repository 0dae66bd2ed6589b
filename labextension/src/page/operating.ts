/** What an operator does with others' work and with devices: what is asked first, and what is said after. */
import type { Acts, IFace } from '../acts';
import { cancelQuestion } from '../acts';
import type { Api, Mark } from '../api';
import { nameOf, troubleOf } from '../devicewords';
import { sentence, title } from '../format';
import type { IGpuModel, ISource } from '../model';
import type { IQuestion } from '../releasing';
import { worksOn } from '../select';
import type { DeviceView, Status, WorkloadView } from '../types';
import type { Roll } from './roll';

/** A question that may be answered with a reason, too. */
export interface IReasonQuestion extends IQuestion {
  /** Who is told the reason. */
  readonly reasonFor: string;
}

/** A face that can ask why. */
export interface IOperatorFace extends IFace {
  /** The reason, which may be empty; null where it is not to be done. */
  why(asked: IReasonQuestion): Promise<string | null>;
}

/** The acts of an operator. */
export class Operating<A extends Api & ISource> {
  constructor(
    private readonly _model: IGpuModel<A>,
    private readonly _acts: Acts<A>,
    private readonly _face: IOperatorFace,
    private readonly _roll: Pick<Roll, 'known'>
  ) {}

  /** End anybody's work. */
  cancel(id: number): Promise<WorkloadView | null> {
    const it = this._find(id);
    if (it === null || it.is_mine) {
      return this._acts.cancel(id);
    }
    return this._acts.guarded(async () => {
      const asked = cancelQuestion(it);
      const reasonFor = `Told to ${it.owner ?? 'its owner'}`;
      const reason = asked && (await this._face.why({ ...asked, reasonFor }));
      if (reason === null) {
        return null;
      }
      const answer = await this._model.api.cancel(id, reason);
      this._face.say(`${title(it)} of ${it.owner ?? 'its owner'} is cancelled.`);
      return answer;
    });
  }

  /** Take a device out of service, with or without what runs there, or into it again. */
  mark(uuid: string, mark: Mark): Promise<DeviceView | null> {
    return this._acts.guarded(async () => {
      const { status } = this._model.state;
      const device = status?.devices.find(it => it.uuid === uuid);
      const asked = status && device ? markQuestion(device, status, mark) : null;
      const reason = asked ? await this._face.why(asked) : '';
      if (reason === null) {
        return null;
      }
      const answer = await this._model.api.mark(uuid, mark, reason);
      this._face.say(markText(answer, mark));
      return answer;
    });
  }

  private _find(id: number): WorkloadView | null {
    const known = [...(this._model.state.status?.workloads ?? []), ...this._roll.known.waiting];
    return known.find(it => it.id === id) ?? null;
  }
}

/** What to ask before a device is taken out of service: who has to leave it, and why. */
export function markQuestion(
  device: DeviceView,
  status: Status,
  mark: Mark
): IReasonQuestion | null {
  const name = nameOf(device);
  if (mark === 'uncordon') {
    return null;
  }
  if (mark === 'cordon') {
    return {
      title: `Cordon ${name}?`,
      body: 'It gets no new work. What runs there runs on.',
      reasonFor: 'Shown with it',
      yes: 'Cordon it',
      no: 'Leave it'
    };
  }
  const who = worksOn(device, status).map(it =>
    it.is_mine ? title(it) : `${title(it)} of ${it.owner ?? 'others'}`
  );
  const leave = who.length
    ? `Told to save and to leave it: ${who.join(', ')}. Jobs go back to their line and resume; reservations end.`
    : 'Nobody has it now.';
  return {
    title: `Drain ${name}?`,
    body: `It gets no new work. ${leave}`,
    reasonFor: 'Shown with it, and told to those who must leave',
    yes: 'Drain it',
    no: 'Leave it'
  };
}

/** What has become of a device. */
export function markText(device: DeviceView, mark: Mark): string {
  const name = nameOf(device);
  switch (mark) {
    case 'cordon':
      return `${name} is cordoned: it gets no new work, and what runs there runs on.`;
    case 'drain':
      return `${name} is drained: it gets no new work, and what runs there leaves it.`;
    case 'uncordon': {
      const trouble = troubleOf(device);
      return trouble === null
        ? `${name} is in service again.`
        : `${name} is cordoned no more, but still ${trouble.word}. ${sentence(trouble.meaning)}`;
    }
  }
}
