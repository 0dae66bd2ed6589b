/** The fields of the dialog that reserves for later, what is wrong with what was typed, and the ask that it makes. */
import * as React from 'react';

import { span } from './coming';
import { Field, flaw } from './reserve';
import { classes, lack } from './select';
import type { Status, SubmitBody } from './types';

const HOUR = 3600;

/** What is typed into the dialog. */
export interface ILaterText {
  readonly devices: string;
  /** A day and a time on the browser's clock, as its own field writes them: "2026-12-24T09:00". */
  readonly from: string;
  readonly hours: string;
  readonly deviceClass: string;
}

/** What the dialog begins with: the next full hour. */
export function laterText(choices: { devices: number; hours: number }, now: number): ILaterText {
  const begin = new Date(now * 1000);
  begin.setHours(begin.getHours() + 1, 0, 0, 0);
  return {
    devices: String(choices.devices),
    from: fieldText(begin),
    hours: String(choices.hours),
    deviceClass: ''
  };
}

/** The ask that was typed. */
export function laterOf(typed: ILaterText): SubmitBody {
  return {
    kind: 'reservation',
    ask: {
      devices: Number(typed.devices),
      duration_seconds: Math.round(Number(typed.hours) * HOUR),
      ...(typed.deviceClass ? { device_class: typed.deviceClass } : {})
    },
    not_before: instant(typed)
  };
}

/** What is wrong with what was typed; empty where nothing is. Whether it can be kept is the broker's to say. */
export function laterFlaw(typed: ILaterText, status: Status, now: number): string {
  const begin = instant(typed);
  const wanted = {
    count: Number(typed.devices),
    deviceClass: typed.deviceClass || null,
    memory: 0
  };
  const wrong = flaw(typed.devices, typed.hours);
  if (wrong) {
    return wrong;
  }
  if (!Number.isFinite(begin)) {
    return 'From: a day and a time.';
  }
  return begin <= now ? 'From: a time that is still to come.' : lack(status, wanted);
}

/**
 * The fields. The dialog disables its button while a field is invalid as the browser sees it, so the bounds stand in
 * the fields; the sentence says what is wrong.
 */
export function LaterFields(props: {
  status: Status;
  now: number;
  begin: ILaterText;
  refusal: string;
  onTyped: (typed: ILaterText) => void;
}): React.JSX.Element {
  const { status, now } = props;
  const kinds = classes(status);
  const [typed, setTyped] = React.useState(props.begin);
  const [refusal, setRefusal] = React.useState(props.refusal);
  const set = (more: Partial<ILaterText>): void => {
    const next = { ...typed, ...more };
    setTyped(next);
    setRefusal('');
    props.onTyped(next);
  };
  const wrong = laterFlaw(typed, status, now);
  return (
    <div className="jp-Gpu-form" data-gpu="later-form">
      <Field label="GPUs">
        <input
          data-gpu="later-devices"
          type="number"
          required
          min={1}
          max={Math.max(1, status.devices.length)}
          step={1}
          value={typed.devices}
          onChange={event => {
            set({ devices: event.target.value });
          }}
        />
      </Field>
      <Field label="Hours">
        <input
          data-gpu="later-hours"
          type="number"
          required
          min={0.25}
          step={0.25}
          value={typed.hours}
          onChange={event => {
            set({ hours: event.target.value });
          }}
        />
      </Field>
      <Field label="From" isWide>
        <input
          data-gpu="later-from"
          type="datetime-local"
          required
          value={typed.from}
          onChange={event => {
            set({ from: event.target.value });
          }}
        />
      </Field>
      {kinds.length > 1 && (
        <Field label="Class" isWide>
          <select
            data-gpu="later-class"
            value={typed.deviceClass}
            onChange={event => {
              set({ deviceClass: event.target.value });
            }}
          >
            <option value="">any</option>
            {kinds.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </Field>
      )}
      <p className="jp-Gpu-wide jp-Gpu-flaw" role="alert" data-gpu="later-flaw">
        {refusal || wrong}
      </p>
      <p className="jp-Gpu-wide jp-Gpu-muted" data-gpu="later-says">
        {!wrong && `${timeText(typed, now)} `}Until then others may use the GPUs. A notice comes
        before it begins, and once they wait for you.
      </p>
    </div>
  );
}

/** From when to when: "Tomorrow 09:00 to 11:00." */
function timeText(typed: ILaterText, now: number): string {
  const from = instant(typed);
  const text = span({ from, until: from + Math.round(Number(typed.hours) * HOUR) }, now);
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/** Unix seconds; not a number where there is no such time. */
function instant(typed: ILaterText): number {
  return new Date(typed.from).getTime() / 1000;
}

function fieldText(at: Date): string {
  const two = (number: number): string => String(number).padStart(2, '0');
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day}T${two(at.getHours())}:${two(at.getMinutes())}`;
}
