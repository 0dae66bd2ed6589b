/** The dialog before a file of the file browser goes to the queue. */
import * as React from 'react';

import { Refusal } from './api';
import { askAndSend } from './dialog';
import { type IJobText, JobFields, jobFlaw, jobOf, parametersOf } from './jobform';
import type { IGpuModel } from './model';
import { jobQueues } from './select';
import type { IChoices } from './settings';
import type { FileJobView, NotebookView } from './types';

/** Which files can run as a job. */
export function canRun(path: string): boolean {
  return /\.(py|sh|ipynb)$/i.test(path);
}

/** Ask how a file should run, and send it; null if it should not. */
export async function sendJob(
  model: IGpuModel,
  path: string,
  choices: IChoices
): Promise<FileJobView | null> {
  const { status } = model.state;
  const notebook = isNotebook(path) ? await lookAt(model, path) : null;
  const queues = status ? jobQueues(status) : [];
  const about = { isNotebook: isNotebook(path), notebook, queues, status };
  return askAndSend<IJobText, FileJobView>(
    {
      title: `Run ${path.split('/').pop() ?? path} as a GPU job`,
      yes: 'Send to queue',
      fields: (begin, refusal, onTyped) => (
        <JobFields {...about} begin={begin} refusal={refusal} onTyped={onTyped} />
      ),
      flaw: typed => jobFlaw(typed, status, notebook),
      send: typed => model.api.submit(jobOf(path, typed), parametersOf(typed, notebook))
    },
    {
      devices: String(choices.devices),
      hours: choices.jobHours ? String(choices.jobHours) : '',
      queue: queues.includes(choices.jobQueue) ? choices.jobQueue : '',
      name: '',
      words: '',
      parameters: {},
      more: ''
    }
  );
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
