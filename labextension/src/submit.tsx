/** The dialog before a file of the file browser goes to the queue. */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import { PromiseDelegate } from '@lumino/coreutils';
import type { Message } from '@lumino/messaging';
import * as React from 'react';

import { Refusal } from './api';
import { type IJobText, JobFields, jobFlaw, jobOf, parametersOf } from './jobform';
import type { IGpuModel } from './model';
import { troubleText } from './trouble';
import { jobQueues } from './select';
import type { IChoices } from './settings';
import type { FileJobView, NotebookView, Status } from './types';

/** Which files can run as a job. */
export function canRun(path: string): boolean {
  return /\.(py|sh|ipynb)$/i.test(path);
}

/**
 * Ask how a file should run, and send it; null if it should not. Where the server refuses, the dialog comes again
 * with the reason and with what was typed.
 */
export async function sendJob(
  model: IGpuModel,
  path: string,
  choices: IChoices
): Promise<FileJobView | null> {
  const { status } = model.state;
  const notebook = isNotebook(path) ? await lookAt(model, path) : null;
  const queues = status ? jobQueues(status) : [];
  let typed: IJobText = {
    devices: String(choices.devices),
    hours: choices.jobHours ? String(choices.jobHours) : '',
    queue: queues.includes(choices.jobQueue) ? choices.jobQueue : '',
    name: '',
    words: '',
    parameters: {},
    more: ''
  };
  let refusal = '';
  for (;;) {
    const form = new JobForm({ path, notebook, queues, status, refusal }, typed);
    const { button } = await showDialog({
      title: `Run ${path.split('/').pop() ?? path} as a GPU job`,
      body: form,
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Send to queue' })],
      focusNodeSelector: 'input'
    });
    if (!button.accept) {
      return null;
    }
    typed = form.typed;
    // What the settings began with may be wrong without a word typed.
    refusal = jobFlaw(typed, status, notebook);
    if (!refusal) {
      try {
        return await model.api.submit(jobOf(path, typed), parametersOf(typed, notebook));
      } catch (error) {
        refusal = troubleText(error);
      }
    }
  }
}

function isNotebook(path: string): boolean {
  return /\.ipynb$/i.test(path);
}

/** What the notebook takes; null of a server that is too old to say. What cannot be read is refused at once. */
async function lookAt(model: IGpuModel, path: string): Promise<NotebookView | null> {
  try {
    return await model.api.notebook(path);
  } catch (error) {
    if (
      error instanceof Refusal &&
      error.code === 'not-found' &&
      error.message.includes('nothing at')
    ) {
      return null;
    }
    throw error;
  }
}

/** What the dialog is about. */
interface IAbout {
  readonly path: string;
  readonly notebook: NotebookView | null;
  readonly queues: readonly string[];
  readonly status: Status | null;
  readonly refusal: string;
}

/** The body of the dialog. */
class JobForm extends ReactWidget {
  constructor(
    private readonly _about: IAbout,
    private _typed: IJobText
  ) {
    super();
    this.addClass('jp-Gpu-dialog');
  }

  /** What was typed until now. */
  get typed(): IJobText {
    return this._typed;
  }

  protected override render(): React.JSX.Element {
    const { path, ...about } = this._about;
    return (
      <>
        <JobFields
          {...about}
          isNotebook={isNotebook(path)}
          begin={this._typed}
          onTyped={typed => {
            this._typed = typed;
          }}
        />
        <Shown
          onShown={() => {
            this._shown.resolve();
          }}
        />
      </>
    );
  }

  /**
   * With this the dialog gives the first field the focus. Lab's own promise waits for an idle moment, and on a busy
   * machine somebody is typing into another field by then: the rest of the words would go into the first.
   */
  protected override onUpdateRequest(message: Message): void {
    super.onUpdateRequest(message);
    this.renderPromise = this._shown.promise;
  }

  private readonly _shown = new PromiseDelegate<void>();
}

/** Tells that what stands before it is in the page. */
function Shown(props: { onShown: () => void }): null {
  const { onShown } = props;
  React.useLayoutEffect(onShown, [onShown]);
  return null;
}
