/** Shows the notices of the state as notifications of JupyterLab, each once, with buttons that help. */
import { Notification } from '@jupyterlab/apputils';

import { length } from './format';
import { Gatherer, type IGathered } from './gather';
import type { IGpuModel } from './model';
import { type Action, type Notice, notices } from './notices';
import type { Run } from './parts';
import type { Settings } from './settings';
import { troubleText } from './trouble';

const HOUR = 3600;
/** What is good news goes by itself. */
const READ_MS = 10_000;

/** Show notices as long as the page lives. */
export function notify(model: IGpuModel, settings: Settings, run: Run): void {
  const opened = Date.now() / 1000;
  const told = new Map<string, string>();
  const marks = new Map<string, string>();
  const tell = teller(run);

  const look = (): void => {
    const now = model.now();
    const since = opened + model.state.skew;
    const found = settings.choices.notify ? notices(model.state, now) : [];
    const fresh: Notice[] = [];
    for (const notice of found) {
      // What happened before the page opened is no news; what still holds is.
      if (!told.has(notice.key) && (notice.at === null || notice.at >= since)) {
        fresh.push(notice);
      } else if (notice.mark && notice.mark !== marks.get(notice.key)) {
        // Other trouble than before: in the place of the first, also where that was closed.
        const id = told.get(notice.key) ?? '';
        if (!Notification.update({ id, message: notice.message, ...options(notice, run) })) {
          told.set(notice.key, show(notice, run));
        }
      }
      if (notice.mark !== undefined) {
        marks.set(notice.key, notice.mark || (marks.get(notice.key) ?? ''));
      }
    }
    for (const [notice, id] of tell(fresh)) {
      // Only what holds still can be over; what happened stays told.
      told.set(notice.key, notice.at === null ? id : '');
    }
    const keys = new Set(found.map(it => it.key));
    for (const [key, id] of told) {
      if (id && !keys.has(key)) {
        // Extended, restarted, released: the warning is of no more use.
        Notification.dismiss(id);
        if (marks.delete(key)) {
          told.delete(key); // it may begin anew
        } else {
          told.set(key, '');
        }
      }
    }
  };
  model.changed.connect(look);
  settings.changed.connect(look);
  look();
}

/** Shows notices, several that belong together as one; gives the notification of each. */
function teller(run: Run): (fresh: readonly Notice[]) => (readonly [Notice, string])[] {
  const gatherer = new Gatherer();
  const shown = new Map<string, { id: string; goesAt: number }>();

  const place = ({ group, notice, isNews }: IGathered, now: number): string => {
    const known = shown.get(group);
    // What has gone by itself would come back with each change; what somebody put away would be told again.
    const isGone = known !== undefined && known.goesAt < now;
    if (known !== undefined && isGone && !isNews) {
      return known.id;
    }
    const { message, tone: type } = notice;
    const isUpdated =
      known !== undefined &&
      Notification.update({ id: known.id, message, type, ...options(notice, run) });
    const id = known !== undefined && (isUpdated || !isNews) ? known.id : show(notice, run);
    shown.set(group, { id, goesAt: goesByItself(notice) ? now + READ_MS : Infinity });
    return id;
  };

  return fresh => {
    const now = Date.now();
    const told: (readonly [Notice, string])[] = [];
    // What comes together is shown once: a notification that was made a moment ago takes no other words yet.
    const groups = new Map<string, { gathered: IGathered; of: Notice[] }>();
    for (const notice of fresh) {
      const gathered = gatherer.take(notice, now);
      if (gathered === null) {
        told.push([notice, show(notice, run)]);
        continue;
      }
      const before = groups.get(gathered.group);
      const isNews = gathered.isNews || (before?.gathered.isNews ?? false);
      groups.set(gathered.group, {
        gathered: { ...gathered, isNews },
        of: [...(before?.of ?? []), notice]
      });
    }
    for (const { gathered, of } of groups.values()) {
      const id = place(gathered, now);
      told.push(...of.map(notice => [notice, id] as const));
    }
    return told;
  };
}

function goesByItself(notice: Notice): boolean {
  return notice.fades ?? notice.tone === 'success';
}

function show(notice: Notice, run: Run): string {
  return Notification.emit(notice.message, notice.tone, options(notice, run));
}

function options(
  notice: Notice,
  run: Run
): Pick<Notification.IOptions<never>, 'actions' | 'autoClose'> {
  return {
    autoClose: goesByItself(notice) ? READ_MS : false,
    actions: notice.actions.map(action => button(action, notice, run))
  };
}

function button(action: Action, notice: Notice, run: Run): Notification.IAction {
  const args = { workload: notice.workload };
  switch (action) {
    case 'restart':
      return {
        label: 'Restart now',
        displayType: 'accent',
        callback: () => {
          run('gpu:pin', { kernel: notice.kernel ?? '', sure: true });
        }
      };
    case 'later':
      return { label: 'Later', callback: () => undefined };
    case 'extend':
      return {
        label: `Extend ${length(HOUR)}`,
        displayType: 'accent',
        callback: () => {
          run('gpu:extend', { ...args, seconds: HOUR });
        }
      };
    case 'keep':
      return {
        label: 'Keep',
        displayType: 'accent',
        callback: () => {
          run('gpu:keep', args);
        }
      };
    case 'release':
      return {
        label: 'Release',
        callback: () => {
          run('gpu:release', args);
        }
      };
    case 'panel':
      return {
        label: 'Show the GPUs',
        callback: () => {
          run('gpu:open-panel');
        }
      };
    case 'log':
      return {
        label: 'Show log',
        displayType: 'accent',
        callback: () => {
          run('gpu:show-log', args);
        }
      };
  }
}

/** Say it. */
export function tellTrouble(error: unknown): void {
  Notification.error(troubleText(error), { autoClose: 10_000 });
}
