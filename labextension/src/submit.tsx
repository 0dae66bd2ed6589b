/** The dialog before a file of the file browser goes to the queue. */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { type IJobText, JobFields, jobFlaw, jobOf } from './jobform';
import type { IGpuModel } from './model';
import { troubleText } from './trouble';
import { jobQueues } from './select';
import type { IChoices } from './settings';
import type { Status, WorkloadView } from './types';

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
): Promise<WorkloadView | null> {
  const { status } = model.state;
  const queues = status ? jobQueues(status) : [];
  let typed: IJobText = {
    devices: String(choices.devices),
    hours: choices.jobHours ? String(choices.jobHours) : '',
    queue: queues.includes(choices.jobQueue) ? choices.jobQueue : '',
    name: '',
    words: ''
  };
  let refusal = '';
  for (;;) {
    const form = new JobForm(path, queues, status, typed, refusal);
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
    refusal = jobFlaw(typed, status);
    if (!refusal) {
      try {
        return await model.api.submit(jobOf(path, typed));
      } catch (error) {
        refusal = troubleText(error);
      }
    }
  }
}

/** The body of the dialog. */
class JobForm extends ReactWidget {
  constructor(
    private readonly _path: string,
    private readonly _queues: readonly string[],
    private readonly _status: Status | null,
    private _typed: IJobText,
    private readonly _refusal: string
  ) {
    super();
    this.addClass('jp-Gpu-dialog');
  }

  /** What was typed until now. */
  get typed(): IJobText {
    return this._typed;
  }

  protected override render(): React.JSX.Element {
    return (
      <JobFields
        isNotebook={/\.ipynb$/i.test(this._path)}
        queues={this._queues}
        status={this._status}
        begin={this._typed}
        refusal={this._refusal}
        onTyped={typed => {
          this._typed = typed;
        }}
      />
    );
  }
}
