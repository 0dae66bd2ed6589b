/** The dialog before a file of the file browser goes to the queue. */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { IGpuModel } from './model';
import { Field } from './reserve';
import { jobQueues } from './select';
import type { IChoices } from './settings';
import type { FileJob } from './types';
import { splitWords } from './words';

/** Which files can run as a job. */
export function canRun(path: string): boolean {
  return /\.(py|sh|ipynb)$/i.test(path);
}

/** Ask how a file should run; null if it should not. */
export async function askForJob(
  model: IGpuModel,
  path: string,
  choices: IChoices
): Promise<FileJob | null> {
  const name = path.split('/').pop() ?? path;
  const form = new JobForm(path, model.state.status ? jobQueues(model.state.status) : [], choices);
  const { button, value } = await showDialog({
    title: `Run ${name} as a GPU job`,
    body: form,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Send to queue' })],
    focusNodeSelector: 'input'
  });
  return button.accept ? value : null;
}

/** The fields of the dialog. */
class JobForm extends ReactWidget {
  constructor(
    private readonly _path: string,
    private readonly _queues: readonly string[],
    choices: IChoices
  ) {
    super();
    this.addClass('jp-Gpu-dialog');
    this._devices = String(choices.devices);
    this._hours = choices.jobHours ? String(choices.jobHours) : '';
    this._queue = this._queues.includes(choices.jobQueue) ? choices.jobQueue : '';
  }

  /** What was chosen; what was left empty is left to the broker. */
  getValue(): FileJob {
    const hours = Number(this._hours);
    const count = Math.floor(Number(this._devices));
    return {
      path: this._path,
      devices: Number.isFinite(count) && count >= 0 ? count : 1,
      ...(hours > 0 ? { duration_seconds: Math.max(1, Math.round(hours * 3600)) } : {}),
      ...(this._queue ? { queue: this._queue } : {}),
      ...(this._name.trim() ? { name: this._name.trim() } : {}),
      ...(this._words.trim() ? { arguments: splitWords(this._words) } : {})
    };
  }

  protected override render(): React.JSX.Element {
    const isNotebook = /\.ipynb$/i.test(this._path);
    return (
      <div className="jp-Gpu-form" data-gpu="submit-form">
        <Field label="GPUs">
          <input
            data-gpu="submit-devices"
            type="number"
            min={0}
            defaultValue={this._devices}
            onChange={event => (this._devices = event.target.value)}
          />
        </Field>
        <Field label="Hours at most">
          <input
            data-gpu="submit-hours"
            type="number"
            min={0}
            step="any"
            placeholder="no limit"
            defaultValue={this._hours}
            onChange={event => (this._hours = event.target.value)}
          />
        </Field>
        {this._queues.length > 0 && (
          <Field label="Queue" isWide>
            <select
              data-gpu="submit-queue"
              defaultValue={this._queue}
              onChange={event => (this._queue = event.target.value)}
            >
              <option value="">usual one</option>
              {this._queues.map(queue => (
                <option key={queue}>{queue}</option>
              ))}
            </select>
          </Field>
        )}
        <Field label="Name" isWide>
          <input
            data-gpu="submit-name"
            type="text"
            placeholder="the file’s name"
            onChange={event => (this._name = event.target.value)}
          />
        </Field>
        {!isNotebook && (
          <Field label="Arguments" isWide>
            <input
              data-gpu="submit-arguments"
              type="text"
              placeholder="none"
              spellCheck={false}
              onChange={event => (this._words = event.target.value)}
            />
          </Field>
        )}
        <p className="jp-Gpu-wide jp-Gpu-muted">
          {isNotebook
            ? 'The notebook runs from top to bottom; what it shows is kept in a copy beside it.'
            : 'It runs as it is now: a later edit does not change a job that waits.'}{' '}
          It goes on when this page is closed.
        </p>
      </div>
    );
  }

  private _devices: string;
  private _hours: string;
  private _queue: string;
  private _name = '';
  private _words = '';
}
