/** The commands that buttons of the page start, by the names that they have in JupyterLab. */
import type { Acts } from '../acts';
import type { Mark } from '../api';
import type { GpuModel } from '../model';
import type { Run } from '../parts';
import type { PageFace } from './face';
import type { Operating } from './operating';
import type { ServiceApi } from './service';

type Args = Parameters<Run>[1];
type Command = (args: NonNullable<Args>) => unknown;

/** All commands of the page. */
export function commandsOf(
  model: GpuModel<ServiceApi>,
  acts: Acts<ServiceApi>,
  operating: Operating<ServiceApi>,
  face: PageFace
): Readonly<Record<string, Command>> {
  const id = (args: NonNullable<Args>): number => Number(args.workload);
  const marking =
    (mark: Mark): Command =>
    args =>
      operating.mark(String(args.device), mark);
  return {
    'gpu:cancel': args => acts.cancel(id(args)),
    'gpu:release': args => acts.release(id(args)),
    'gpu:extend': args => acts.extend(id(args), Number(args.seconds)),
    'gpu:keep': args => acts.keep(id(args)),
    'gpu:let-go': args => acts.letGo(id(args)),
    'gpu:cancel-array': args => acts.cancelArray(Number(args.array)),
    'gpu:unchain': args => acts.unchain(id(args)),
    'gpu:pause-recurring': args => acts.pauseRecurring(Number(args.recurring)),
    'gpu:let-go-recurring': args => acts.letGoRecurring(Number(args.recurring)),
    'gpu:fire-recurring': args => acts.fireRecurring(Number(args.recurring)),
    'gpu:remove-recurring': args => acts.removeRecurring(Number(args.recurring)),
    'gpu:cancel-any': args => operating.cancel(id(args)),
    'gpu:cordon': marking('cordon'),
    'gpu:uncordon': marking('uncordon'),
    'gpu:drain': marking('drain'),
    'gpu:show-log': args => {
      face.showLog(id(args));
    },
    'gpu:clear-ended': () => {
      model.clearEnded();
    },
    'gpu:dismiss-alert': args => {
      model.dismiss(String(args.key));
    }
  };
}

/** What the buttons are given. */
export function runner(commands: Readonly<Record<string, Command>>): Run {
  return (command, args = {}) => {
    const known: Partial<typeof commands> = commands;
    known[command]?.(args);
  };
}
