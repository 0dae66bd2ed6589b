/** What can be done with GPUs, as commands: every button, menu and palette entry starts one of these. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { MainAreaWidget } from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import { KernelAPI } from '@jupyterlab/services';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { Acts, type IFace } from './acts';
import { span } from './coming';
import { length, plural, sentence, title, waitText } from './format';
import { gpuIcon } from './icons';
import { reserveLater } from './later';
import { logDocument, type LogView } from './logview';
import type { IGpuModel } from './model';
import { tellTrouble } from './notify';
import { nameOf } from './kernels';
import type { IServer } from './releasing';
import type { Restarts } from './restarts';
import { kernelOf, reservationOf } from './select';
import type { ServerApi } from './server';
import type { Settings } from './settings';
import { canRun, sendJob } from './submit';
import type { FileJobView, KernelAsk, PinAnswer, WorkloadView } from './types';
import { plainText } from './words';

const HOUR = 3600;
const READ_MS = 5000;
const LONGEST_NAME = 80;

/** What the commands ask of their surroundings. */
export interface ISurroundings {
  readonly app: JupyterFrontEnd;
  readonly model: IGpuModel;
  readonly settings: Settings;
  readonly restarts: Restarts;
  /** Whether several documents stand beside each other. */
  readonly isLab: boolean;
  /** The kernel of the notebook in front. */
  readonly kernel: () => string | null;
  /** The file that is chosen in the file browser. */
  readonly file: () => string | null;
}

interface IAround extends ISurroundings {
  readonly acts: Acts<ServerApi>;
}

type Args = ReadonlyPartialJSONObject;

/** Asks and tells as JupyterLab does. */
const FACE: IFace = {
  confirm: ({ title: question, body, yes, no }) => confirm(question, body, yes, no),
  say: said => {
    Notification.success(said, { autoClose: READ_MS });
  },
  tell: tellTrouble
};

/** Add all commands but the one that opens the panel, which is the panel's. */
export function addCommands(surroundings: ISurroundings): void {
  const around = { ...surroundings, acts: new Acts(surroundings.model, FACE) };
  addReserving(around);
  addReservingForLater(around);
  addWork(around);
  addRecurring(around);
  addFiles(around);
  addLog(around);
}

function addReserving(around: IAround): void {
  const { app, model, acts } = around;
  const kernelIn = (args: Args): string | null => text(args.kernel) ?? around.kernel();

  app.commands.addCommand('gpu:reserve', {
    icon: args => (args.kernel ? undefined : gpuIcon),
    label: args => {
      const ask = askIn(args, around.settings);
      return `Reserve ${plural(ask.devices, 'GPU')} for ${length(ask.duration_seconds)}`;
    },
    caption: 'Reserve GPUs for the kernel of this notebook',
    isEnabled: args => kernelIn(args) !== null,
    execute: args => {
      const kernel = kernelIn(args);
      return acts.guarded(async () => {
        if (kernel === null) {
          throw new Error('A reservation belongs to a kernel. Open a notebook first.');
        }
        const it = await model.api.reserve(kernel, askIn(args, around.settings));
        model.note(it);
        if (it.state === 'queued') {
          Notification.info(plainText(waitText(it, model.now())), { autoClose: READ_MS });
        }
        return it;
      });
    }
  });

  app.commands.addCommand('gpu:without-kernel', {
    label: 'Start a kernel to reserve a GPU for it',
    isEnabled: () => false,
    execute: () => undefined
  });

  app.commands.addCommand('gpu:pin', {
    label: 'Restart to use the GPU',
    caption: 'Let the kernel see the GPUs that it was granted, by a restart where that is needed',
    isEnabled: args => kernelIn(args) !== null,
    execute: args => {
      const kernel = kernelIn(args);
      return acts.guarded(() => pin(around, kernel, args.sure === true));
    }
  });

  app.commands.addCommand('gpu:release', {
    label: args => (isWaiting(find(around, args)) ? 'Leave the line' : 'Release the GPU'),
    caption: 'Give reserved GPUs back, or leave the line',
    isEnabled: args => find(around, args) !== null,
    execute: args => release(around, args)
  });

  app.commands.addCommand('gpu:restart-kernel', {
    label: 'Restart a kernel that holds memory on its GPU',
    isVisible: () => false,
    execute: args =>
      acts.guarded(async () => {
        const kernel = text(args.kernel) ?? '';
        const about = kernelOf(model.state, kernel);
        const name = about ? nameOf(about) : 'the kernel';
        const what = 'Its variables are lost, and its memory on the GPU is free. It keeps its GPU.';
        if (
          (args.sure === true || (await confirm(`Restart ${name}?`, what, 'Restart'))) &&
          !(await around.restarts.restart(kernel))
        ) {
          await KernelAPI.restartKernel(kernel, app.serviceManager.serverSettings);
        }
      })
  });

  app.commands.addCommand('gpu:stop-kernel', {
    label: 'Shut down a kernel that holds GPUs',
    isVisible: () => false,
    execute: args =>
      acts.guarded(async () => {
        const kernel = text(args.kernel) ?? '';
        const about = kernelOf(model.state, kernel);
        const name = about ? nameOf(about) : 'the kernel';
        if (
          args.sure === true ||
          (await confirm(`Shut down ${name}?`, 'Its variables are lost.', 'Shut down'))
        ) {
          await shutDown(app, kernel);
        }
      })
  });
}

function addReservingForLater({ app, model, acts, settings }: IAround): void {
  app.commands.addCommand('gpu:reserve-later', {
    icon: gpuIcon,
    label: 'Reserve GPUs for later …',
    caption: 'Have GPUs promised from a day and a time on',
    execute: () =>
      acts.guarded(async () => {
        const it = await reserveLater(model, settings.choices);
        if (it === null) {
          return null;
        }
        model.note(it);
        const from = it.not_before ?? model.now();
        const time = span({ from, until: from + (it.ask.duration_seconds ?? 0) }, model.now());
        const what = plural(it.ask.devices ?? 1, 'GPU');
        Notification.success(`${what} reserved for you: ${time}.`, { autoClose: READ_MS });
        return it;
      })
  });
}

async function pin(
  { model, restarts }: IAround,
  kernel: string | null,
  isSure: boolean
): Promise<PinAnswer | null> {
  if (kernel === null) {
    throw new Error('There is no kernel here. Open a notebook first.');
  }
  const answer = await model.api.pin(kernel, false);
  if (answer.state === 'pinned') {
    return answer;
  }
  if (answer.state !== 'restart-needed') {
    const said = sentence(answer.reason ?? 'The kernel has no GPU to see yet');
    Notification.warning(plainText(said), { autoClose: READ_MS });
    return answer;
  }
  const why = plainText(sentence(answer.reason ?? ''));
  if (
    !isSure &&
    !(await confirm('Restart the kernel?', `${why} Its variables are lost.`, 'Restart'))
  ) {
    return null;
  }
  return (await restarts.restart(kernel)) ? answer : model.api.pin(kernel, true);
}

function release(around: IAround, args: Args): Promise<WorkloadView | null> {
  const { api, state } = around.model;
  const it = find(around, args);
  const how = { isSure: args.sure === true, here: serverHere() };
  const kernel = it?.holder?.kind === 'kernel' ? kernelOf(state, it.holder.name) : null;
  if (kernel === null) {
    return around.acts.release(it, how);
  }
  const { restarts } = around;
  const giveBack = async (): Promise<WorkloadView> => {
    const answer = await api.giveBack(kernel.kernel_id, restarts.shows(kernel.kernel_id));
    if (answer.state === 'active') {
      await restarts.restart(kernel.kernel_id);
    }
    return answer;
  };
  return around.acts.release(it, { ...how, giveBack });
}

function addWork(around: IAround): void {
  const { app, model, acts } = around;

  app.commands.addCommand('gpu:cancel', {
    label: 'Cancel GPU work',
    isVisible: args => args.workload !== undefined,
    execute: args => acts.cancel(Number(args.workload), args.sure === true)
  });

  app.commands.addCommand('gpu:cancel-array', {
    label: 'Cancel an array of GPU jobs',
    isVisible: args => args.array !== undefined,
    execute: args => acts.cancelArray(Number(args.array), args.sure === true)
  });

  app.commands.addCommand('gpu:unchain', {
    label: 'Let a job start without waiting for other work',
    isVisible: args => args.workload !== undefined,
    execute: args => acts.unchain(Number(args.workload), args.sure === true)
  });

  app.commands.addCommand('gpu:extend', {
    label: args => `Extend by ${length(Number(args.seconds ?? HOUR))}`,
    isEnabled: args => args.workload !== undefined,
    execute: args => acts.extend(Number(args.workload), Number(args.seconds ?? HOUR))
  });

  app.commands.addCommand('gpu:keep', {
    label: 'Keep a GPU although it is idle',
    isVisible: args => args.workload !== undefined,
    execute: args => acts.keep(Number(args.workload))
  });

  app.commands.addCommand('gpu:clear-ended', {
    label: 'Clear the list of ended GPU work',
    execute: () => {
      model.clearEnded();
    }
  });

  app.commands.addCommand('gpu:dismiss-alert', {
    label: 'Put a GPU alert away until it changes',
    isVisible: args => args.key !== undefined,
    execute: args => {
      model.dismiss(text(args.key) ?? '');
    }
  });

  app.commands.addCommand('gpu:let-go', {
    label: 'Let a paused job go',
    isVisible: args => args.workload !== undefined,
    execute: args => acts.letGo(Number(args.workload))
  });
}

function addRecurring({ app, acts }: IAround): void {
  const addCommand = (
    id: string,
    label: string,
    act: (it: number, args: Args) => unknown
  ): void => {
    app.commands.addCommand(id, {
      label,
      isVisible: args => args.recurring !== undefined,
      execute: args => act(Number(args.recurring), args)
    });
  };
  addCommand('gpu:pause-recurring', 'Pause a recurring job', it => acts.pauseRecurring(it));
  addCommand('gpu:let-go-recurring', 'Let a paused recurring job go', it =>
    acts.letGoRecurring(it)
  );
  addCommand('gpu:fire-recurring', 'Run a recurring job now', it => acts.fireRecurring(it));
  addCommand('gpu:remove-recurring', 'Remove a recurring job', (it, args) =>
    acts.removeRecurring(it, args.sure === true)
  );
}

function addFiles(around: IAround): void {
  const { app, model, acts, settings } = around;
  const pathIn = (args: Args): string | null => text(args.path) ?? around.file();

  app.commands.addCommand('gpu:submit-file', {
    label: args => (args.kept === true ? 'Run as GPU job: output is kept' : 'Run as GPU job'),
    caption: 'Send a script or a notebook to the queue; it goes on when this page is closed',
    icon: gpuIcon,
    isVisible: args => canRun(pathIn(args) ?? ''),
    execute: args =>
      acts.guarded(async () => {
        const path = pathIn(args);
        if (path === null || !canRun(path)) {
          throw new Error('Choose a Python script, a shell script or a notebook.');
        }
        const it = await sendJob(model, path, settings.choices);
        if (it === null) {
          return null;
        }
        model.note(it);
        if (!(await isMeant(around, it))) {
          return null;
        }
        Notification.success(`Job ${it.id} (${brief(title(it))}) is in queue ${it.queue}.`, {
          autoClose: READ_MS,
          actions: [
            {
              label: 'Show log',
              callback: () => void app.commands.execute('gpu:show-log', { workload: it.id })
            }
          ]
        });
        return it;
      })
  });
}

/** Say what of a job may not be as it was meant, and take it back where it is not; a toast has no room for it. */
async function isMeant({ acts }: IAround, it: FileJobView): Promise<boolean> {
  const { notes = [] } = it;
  if (notes.length) {
    const { button } = await showDialog({
      title: `Job ${it.id} is in queue ${it.queue}`,
      body: notes.map(note => plainText(sentence(note))).join(' '),
      buttons: [
        Dialog.cancelButton({ label: 'Cancel the job' }),
        Dialog.okButton({ label: 'Let it run' })
      ]
    });
    if (!button.accept) {
      await acts.cancel(it.id, true);
      return false;
    }
  }
  return true;
}

/** As much of a name as a toast has room for. */
function brief(name: string): string {
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;
}

function addLog(around: IAround): void {
  const { app, model } = around;
  const open = new Map<number, MainAreaWidget<LogView>>();

  app.commands.addCommand('gpu:show-log', {
    label: 'Show the log of a GPU job',
    isVisible: args => args.workload !== undefined,
    execute: args => {
      const id = Number(args.workload);
      const widget = open.get(id) ?? logDocument(model, id);
      if (!open.has(id)) {
        widget.disposed.connect(() => open.delete(id));
        // Notebook shows one document a page. In Lab a second log joins the first as a tab.
        const [beside] = open.values();
        const where = beside
          ? { mode: 'tab-after' as const, ref: beside.id }
          : { mode: 'split-bottom' as const };
        app.shell.add(widget, around.isLab ? 'main' : 'down', where);
        open.set(id, widget);
      }
      app.shell.activateById(widget.id);
    }
  });
}

/** The reservation that a command is about: by number, by kernel, or that of the notebook in front. */
function find(around: IAround, args: Args): WorkloadView | null {
  const { state } = around.model;
  if (args.workload !== undefined) {
    return state.status?.workloads.find(it => it.id === Number(args.workload)) ?? null;
  }
  const kernel = text(args.kernel) ?? around.kernel();
  return kernel === null ? null : reservationOf(state, kernel);
}

/** The server of this page, where a hub started it; a server that is shared is its owner's. */
function serverHere(): IServer | null {
  const user = PageConfig.getOption('hubServerUser') || PageConfig.getOption('hubUser');
  return user ? { user, name: PageConfig.getOption('hubServerName') } : null;
}

function isWaiting(it: WorkloadView | null): boolean {
  return it?.state === 'queued';
}

function askIn(args: Args, settings: Settings): KernelAsk & { devices: number } {
  const { devices, hours } = settings.choices;
  const memory = Number(args.memory_bytes ?? 0);
  return {
    devices: Number(args.devices ?? devices),
    duration_seconds: Number(args.duration_seconds ?? Math.round(hours * HOUR)),
    ...(text(args.device_class) ? { device_class: text(args.device_class) } : {}),
    ...(memory > 0 ? { memory_bytes: memory } : {})
  };
}

function text(value: unknown): string | null {
  return typeof value === 'string' && value ? value : null;
}

async function shutDown(app: JupyterFrontEnd, kernel: string): Promise<void> {
  const { sessions, kernels } = app.serviceManager;
  await sessions.refreshRunning();
  const session = Array.from(sessions.running()).find(it => it.kernel?.id === kernel);
  await (session ? sessions.shutdown(session.id) : kernels.shutdown(kernel));
}

async function confirm(question: string, body: string, yes: string, no = 'Keep'): Promise<boolean> {
  const { button } = await showDialog({
    title: question,
    body,
    buttons: [Dialog.cancelButton({ label: no }), Dialog.warnButton({ label: yes })],
    // What is lost is lost: Enter alone must not do it.
    defaultButton: 0
  });
  return button.accept;
}
