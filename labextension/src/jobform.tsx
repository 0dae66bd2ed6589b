/** The fields of the dialog for a job, what is wrong with what was typed, and the job it makes. */
import * as React from 'react';

import { sentence } from './format';
import { kindOf, notesOf, pairsOf, type Typed } from './parameters';
import { Sentence } from './parts';
import { Field } from './reserve';
import { lack } from './select';
import type { FileJob, NotebookView, Status } from './types';
import { splitWords } from './words';

/** What is typed into the dialog. */
export interface IJobText {
  readonly devices: string;
  readonly hours: string;
  readonly queue: string;
  readonly name: string;
  readonly words: string;
  /** The values of the notebook's parameters, by name. */
  readonly parameters: Typed;
  /** Parameters that the notebook tells nothing of, as `name=value`. */
  readonly more: string;
}

/** The job that was typed; what was left empty is left to the broker. */
export function jobOf(path: string, typed: IJobText): FileJob {
  const hours = Number(typed.hours);
  return {
    path,
    devices: Number(typed.devices),
    ...(hours > 0 ? { duration_seconds: Math.max(1, Math.round(hours * 3600)) } : {}),
    ...(typed.queue ? { queue: typed.queue } : {}),
    ...(typed.name.trim() ? { name: typed.name.trim() } : {}),
    ...(typed.words.trim() ? { arguments: splitWords(typed.words) } : {})
  };
}

/** The parameters that were typed, of a notebook. */
export function parametersOf(typed: IJobText, notebook: NotebookView | null): Typed {
  return notebook === null ? {} : { ...pairsOf(typed.more), ...typed.parameters };
}

/** What is wrong with what was typed; empty where nothing is. */
export function jobFlaw(
  typed: IJobText,
  status: Status | null,
  notebook: NotebookView | null = null
): string {
  const count = Number(typed.devices);
  if (!typed.devices.trim() || !Number.isInteger(count) || count < 0) {
    return 'GPUs: a whole number, 0 or more.';
  }
  if (!(Number(typed.hours) >= 0)) {
    return 'Hours at most: more than 0, or empty for no limit.';
  }
  if (notebook !== null && pairsOf(typed.more) === null) {
    return 'Parameters: each as NAME=VALUE, such as lr=0.1.';
  }
  // Without any device work may wait for one.
  return status?.devices.length ? lack(status, { count, deviceClass: null, memory: 0 }) : '';
}

/**
 * The fields of the dialog. The dialog disables its button while a field is invalid as the browser sees it, so the
 * bounds stand in the fields; the sentence says what is wrong.
 */
export function JobFields(props: {
  isNotebook: boolean;
  notebook: NotebookView | null;
  queues: readonly string[];
  status: Status | null;
  begin: IJobText;
  refusal: string;
  onTyped: (typed: IJobText) => void;
}): React.JSX.Element {
  const { isNotebook, notebook, queues, status } = props;
  const most = status?.devices.length ?? 0;
  const [typed, setTyped] = React.useState(props.begin);
  const [refusal, setRefusal] = React.useState(props.refusal);
  const set = (more: Partial<IJobText>): void => {
    const next = { ...typed, ...more };
    setTyped(next);
    setRefusal('');
    props.onTyped(next);
  };
  const wrong = refusal || jobFlaw(typed, status, notebook);
  return (
    <div className="jp-Gpu-form" data-gpu="submit-form">
      <Field label="GPUs">
        <input
          data-gpu="submit-devices"
          type="number"
          required
          min={0}
          max={most > 0 ? most : undefined}
          step={1}
          value={typed.devices}
          onChange={event => {
            set({ devices: event.target.value });
          }}
        />
      </Field>
      <Field label="Hours at most">
        <input
          data-gpu="submit-hours"
          type="number"
          min={0}
          step="any"
          placeholder="no limit"
          value={typed.hours}
          onChange={event => {
            set({ hours: event.target.value });
          }}
        />
      </Field>
      {queues.length > 0 && (
        <Field label="Queue" isWide>
          <select
            data-gpu="submit-queue"
            value={typed.queue}
            onChange={event => {
              set({ queue: event.target.value });
            }}
          >
            <option value="">usual one</option>
            {queues.map(queue => (
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
          value={typed.name}
          onChange={event => {
            set({ name: event.target.value });
          }}
        />
      </Field>
      {!isNotebook && (
        <Field label="Arguments" isWide>
          <input
            data-gpu="submit-arguments"
            type="text"
            placeholder="none"
            spellCheck={false}
            value={typed.words}
            onChange={event => {
              set({ words: event.target.value });
            }}
          />
        </Field>
      )}
      {notebook !== null && <Parameters notebook={notebook} typed={typed} set={set} />}
      <p className="jp-Gpu-wide jp-Gpu-flaw" role="alert" data-gpu="submit-flaw">
        {wrong}
      </p>
      <p className="jp-Gpu-wide jp-Gpu-muted">
        {isNotebook
          ? 'The notebook runs from top to bottom; what it shows is kept in a copy beside it.'
          : 'It runs as it is now: a later edit does not change a job that waits.'}{' '}
        It goes on when this page is closed.
      </p>
    </div>
  );
}

/** A field for each parameter that the notebook tells of; of one that tells of none a line for all. */
function Parameters(props: {
  notebook: NotebookView;
  typed: IJobText;
  set: (more: Partial<IJobText>) => void;
}): React.JSX.Element {
  const { notebook, typed, set } = props;
  const { parameters } = notebook;
  return (
    <fieldset className="jp-Gpu-wide jp-Gpu-parameters" data-gpu="submit-parameters">
      <legend>Parameters</legend>
      {parameters.map(({ name, default: usual, type, help }) => {
        const text = typed.parameters[name] ?? '';
        const named = type ? `${name}: ${type}` : name;
        return (
          <Field
            key={name}
            // What it means stands in a line that is there already: a dialog does not grow with what is typed.
            label={text.trim() ? `${named} (${kindOf(text)})` : named}
            hint={help}
            isWide
          >
            <input
              data-gpu="submit-parameter"
              data-name={name}
              type="text"
              spellCheck={false}
              placeholder={usual}
              value={text}
              onChange={event => {
                set({ parameters: { ...typed.parameters, [name]: event.target.value } });
              }}
            />
          </Field>
        );
      })}
      {!parameters.length && (
        <Field label="As NAME=VALUE" isWide>
          <input
            data-gpu="submit-more"
            type="text"
            spellCheck={false}
            placeholder="none"
            value={typed.more}
            onChange={event => {
              set({ more: event.target.value });
            }}
          />
        </Field>
      )}
      {notesOf(notebook).map(note => (
        <p key={note} className="jp-Gpu-why jp-mod-warn" data-gpu="submit-note">
          <Sentence text={sentence(note)} />
        </p>
      ))}
    </fieldset>
  );
}
