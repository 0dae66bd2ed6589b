/**
 * Which notices become one: jobs that end well within a few seconds, and whatever happens to the jobs of one array,
 * however long that takes. Pure but for what it remembers; who shows them asks it.
 */
import { plural } from './format';
import { isWellEnded, type Notice, together } from './notices';

/** Jobs that end well so shortly one after the other are told in one notice. */
export const TOGETHER_MS = 5000;

/** What to show, and whether that takes the place of what is shown under the same group. */
export interface IGathered {
  readonly group: string;
  readonly notice: Notice;
  /** Where what was shown is not there any more, whether it is told anew: not for each of a hundred jobs. */
  readonly isNews: boolean;
}

/** What happened to the jobs of one array. */
interface IOfArray {
  readonly first: Notice;
  readonly counts: Map<string, number>;
  hasFailed: boolean;
  over: number;
}

/** Remembers what was told of which group. */
export class Gatherer {
  /** What becomes of a notice; `at` is the browser's clock in milliseconds. Null where it stands alone. */
  take(notice: Notice, at: number): IGathered | null {
    if (notice.array) {
      return this._ofArray(notice, notice.array);
    }
    return isWellEnded(notice) ? this._wellEnded(notice, at) : null;
  }

  private _wellEnded(notice: Notice, at: number): IGathered {
    const isNext = this._well !== null && at - this._well.at < TOGETHER_MS;
    const { first, count, number } =
      isNext && this._well !== null
        ? { ...this._well, count: this._well.count + 1 }
        : { first: notice, count: 1, number: (this._well?.number ?? 0) + 1 };
    this._well = { first, count, at, number };
    return {
      group: `well ${number}`,
      notice: count > 1 ? together(first, count) : first,
      isNews: true
    };
  }

  private _ofArray(notice: Notice, about: NonNullable<Notice['array']>): IGathered {
    const known = this._arrays.get(about.array) ?? {
      first: notice,
      counts: new Map<string, number>(),
      hasFailed: false,
      over: 0
    };
    this._arrays.set(about.array, known);
    known.counts.set(about.what, (known.counts.get(about.what) ?? 0) + 1);
    known.over += about.isEnd ? 1 : 0;
    const isFirstFailure = notice.tone === 'error' && !known.hasFailed;
    known.hasFailed ||= notice.tone === 'error';
    const isOver = known.over >= about.of;
    const isFirst = known.first === notice;
    return {
      group: `array ${about.array}`,
      notice: isFirst && !isOver ? notice : { ...this._told(known, about), key: known.first.key },
      isNews: isFirst || isFirstFailure || isOver
    };
  }

  private _told(known: IOfArray, about: NonNullable<Notice['array']>): Notice {
    const said = [...known.counts].map(([what, count]) => `${count} ${what}`).join(', ');
    const name = about.name ? ` (${about.name})` : '';
    return {
      ...known.first,
      tone: known.hasFailed ? 'error' : known.over >= about.of ? 'success' : 'info',
      message: `Array ${about.array}${name} of ${plural(about.of, 'job')}: ${said}.`,
      actions: ['panel'],
      fades: !known.hasFailed
    };
  }

  private _well: { first: Notice; count: number; at: number; number: number } | null = null;
  private readonly _arrays = new Map<number, IOfArray>();
}
