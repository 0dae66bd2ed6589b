/** Shows the notices of the state as notifications of JupyterLab, each once, with buttons that help. */
import { Notification } from '@jupyterlab/apputils';

import { Refusal } from './api';
import { length } from './format';
import type { IGpuModel } from './model';
import { type Action, type Notice, notices } from './notices';
import type { Run } from './parts';
import type { Settings } from './settings';

const HOUR = 3600;

/** Show notices as long as the page lives. */
export function notify(model: IGpuModel, settings: Settings, run: Run): void {
  const opened = Date.now() / 1000;
  const told = new Map<string, string>();

  const look = (): void => {
    const now = model.now();
    const since = opened + model.state.skew;
    const found = settings.choices.notify ? notices(model.state, now) : [];
    for (const notice of found) {
      // What happened before the page opened is no news; what still holds is.
      if (!told.has(notice.key) && (notice.at === null || notice.at >= since)) {
        told.set(notice.key, show(notice, run));
      }
    }
    const keys = new Set(found.map(it => it.key));
    for (const [key, id] of told) {
      if (id && !keys.has(key)) {
        // Extended, restarted, released: the warning is of no more use.
        Notification.dismiss(id);
        told.set(key, '');
      }
    }
  };
  model.changed.connect(look);
  settings.changed.connect(look);
  look();
}

function show(notice: Notice, run: Run): string {
  return Notification.emit(notice.message, notice.tone, {
    autoClose: notice.tone === 'success' && !notice.actions.length ? 5000 : false,
    actions: notice.actions.map(action => button(action, notice, run))
  });
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
    case 'release':
      return {
        label: 'Release',
        callback: () => {
          run('gpu:release', args);
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

/** Why something did not work and what to do now, in the broker's words. */
export function troubleText(error: unknown): string {
  const hint = error instanceof Refusal && error.hint ? ` ${error.hint}` : '';
  return `${error instanceof Error ? error.message : String(error)}${hint}`;
}

/** Say it. */
export function tellTrouble(error: unknown): void {
  Notification.error(troubleText(error), { autoClose: 10_000 });
}
