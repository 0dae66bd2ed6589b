/** The commands that buttons of the page start, by the names that they have in JupyterLab. */
import type { Acts } from '../acts';
import type { Mark } from '../api';
import type { GpuModel } from '../model';
import type { Run } from '../parts';
import type { PageFace } from './face';
import type { Roll } from './roll';
import type { ServiceApi } from './service';

type Args = Parameters<Run>[1];
type Command = (args: NonNullable<Args>) => unknown;

/** All commands of the page. */
export function commandsOf(
  model: GpuModel<ServiceApi>,
  acts: Acts<ServiceApi>,
  face: PageFace,
  roll: Roll
): Readonly<Record<string, Command>> {
  const id = (args: NonNullable<Args>): number => Number(args.workload);
  const marking =
    (mark: Mark): Command =>
    args =>
      acts.mark(String(args.device), mark);
  return {
    'gpu:cancel': args => acts.cancel(id(args)),
    'gpu:release': args => acts.release(id(args)),
    'gpu:extend': args => acts.extend(id(args), Number(args.seconds)),
    'gpu:keep': args => acts.keep(id(args)),
    'gpu:let-go': args => acts.letGo(id(args)),
    // Others' waiting work is known to the list alone.
    'gpu:operate-cancel': args =>
      acts.cancel(roll.known.waiting.find(it => it.id === id(args)) ?? id(args)),
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
