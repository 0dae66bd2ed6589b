/** The form that asks for GPUs for a notebook, says beforehand what would come of it, and has the way to later ones. */
import * as React from 'react';

import { plural } from './format';
import { Button, Section, type Run } from './parts';
import type { GpuState } from './fold';
import { classes, lack, outlook, reservationOf } from './select';
import type { Status } from './types';

const GIB = 1024 ** 3;
const HOUR = 3600;
const SHORTEST_HOURS = 0.25;

/** A kernel that a reservation can be for. */
export interface ITarget {
  readonly kernel: string;
  readonly name: string;
}

/** What is wrong with what was typed; empty where nothing is. */
export function flaw(devices: string, hours: string, memory = ''): string {
  const count = Number(devices);
  const seconds = Math.round(Number(hours) * HOUR);
  if (!devices.trim() || !Number.isInteger(count) || count < 1) {
    return 'GPUs: a whole number, 1 or more.';
  }
  if (!hours.trim() || !(seconds >= SHORTEST_HOURS * HOUR)) {
    return `Hours: ${SHORTEST_HOURS} or more.`;
  }
  return memory.trim() && !(Number(memory) > 0) ? 'GiB of each: more than 0, or empty.' : '';
}

/** The form. `targets` are the kernels of open notebooks, the current one first. */
export function ReserveForm(props: {
  state: GpuState;
  status: Status;
  targets: readonly ITarget[];
  defaults: { devices: number; hours: number };
  now: number;
  run: Run;
}): React.JSX.Element {
  const { state, status, targets, now, run } = props;
  const [devices, setDevices] = React.useState(String(props.defaults.devices));
  const [hours, setHours] = React.useState(String(props.defaults.hours));
  const [deviceClass, setDeviceClass] = React.useState('');
  const [memory, setMemory] = React.useState('');
  const [chosen, setChosen] = React.useState('');
  const kinds = classes(status);
  const target = targets.find(it => it.kernel === chosen) ?? targets[0];
  const count = Number(devices);
  const seconds = Math.round(Number(hours) * HOUR);
  const mayShare = status.devices.some(
    it => it.shareable && (!deviceClass || it.device_class === deviceClass)
  );
  const part = mayShare ? memory : '';
  const wanted = {
    count,
    deviceClass: deviceClass || null,
    memory: Math.round(Number(part) * GIB)
  };
  const wrong = flaw(devices, hours, part) || lack(status, wanted);
  const has = target ? reservationOf(state, target.kernel) : null;

  const submit = (event: React.FormEvent): void => {
    event.preventDefault();
    if (target && !wrong && has === null) {
      run('gpu:reserve', {
        kernel: target.kernel,
        devices: count,
        duration_seconds: seconds,
        ...(deviceClass ? { device_class: deviceClass } : {}),
        ...(wanted.memory > 0 ? { memory_bytes: wanted.memory } : {})
      });
    }
  };

  return (
    <Section title="Reserve for a notebook">
      {target === undefined ? (
        <div className="jp-Gpu-text">
          A reservation belongs to a notebook’s kernel. Open a notebook, and reserve for it here.
          <div className="jp-Gpu-actions">
            <Button
              gpu="new-notebook"
              label="New notebook"
              onClick={() => {
                run('notebook:create-new');
              }}
            />
          </div>
        </div>
      ) : (
        <form className="jp-Gpu-form" data-gpu="reserve-form" onSubmit={submit}>
          <Field label="Notebook" isWide>
            <select
              data-gpu="reserve-target"
              value={target.kernel}
              onChange={event => {
                setChosen(event.target.value);
              }}
            >
              {targets.map(it => (
                <option key={it.kernel} value={it.kernel}>
                  {it.name}
                </option>
              ))}
            </select>
          </Field>
          <Field label="GPUs">
            <input
              data-gpu="reserve-devices"
              type="number"
              min={1}
              max={Math.max(1, status.devices.length)}
              step={1}
              required
              value={devices}
              onChange={event => {
                setDevices(event.target.value);
              }}
            />
          </Field>
          <Field label="Hours">
            <input
              data-gpu="reserve-hours"
              type="number"
              min={SHORTEST_HOURS}
              step={0.25}
              required
              value={hours}
              onChange={event => {
                setHours(event.target.value);
              }}
            />
          </Field>
          {kinds.length > 1 && (
            <Field label="Class" isWide>
              <select
                data-gpu="reserve-class"
                value={deviceClass}
                onChange={event => {
                  setDeviceClass(event.target.value);
                }}
              >
                <option value="">any</option>
                {kinds.map(({ name, text }) => (
                  <option key={name} value={name}>
                    {name} ({text})
                  </option>
                ))}
              </select>
            </Field>
          )}
          {mayShare && (
            <Field label="GiB of each" hint="A part of a shared GPU; empty for whole GPUs" isWide>
              <input
                data-gpu="reserve-memory"
                type="number"
                min={0}
                step="any"
                placeholder="whole GPUs"
                value={memory}
                onChange={event => {
                  setMemory(event.target.value);
                }}
              />
            </Field>
          )}
          <div className="jp-Gpu-wide jp-Gpu-line">
            <span className="jp-Gpu-muted" aria-live="polite" data-gpu="reserve-outlook">
              {has !== null
                ? `It ${has.state === 'queued' ? 'is in line' : 'has its GPUs'} already.`
                : wrong || outlook(status, wanted, now)}
            </span>
            <button
              type="submit"
              className="jp-Gpu-button jp-mod-accept"
              data-gpu="reserve-submit"
              disabled={has !== null || wrong !== ''}
              title={wrong || `Reserve ${plural(count, 'GPU')} for ${target.name}`}
            >
              Reserve
            </button>
          </div>
        </form>
      )}
      <div className="jp-Gpu-actions">
        <Button
          gpu="reserve-later"
          label="Reserve for later …"
          title="For a day and a time, and for whichever notebook you have then"
          onClick={() => {
            run('gpu:reserve-later');
          }}
        />
      </div>
    </Section>
  );
}

/** A labelled field. */
export function Field(props: {
  label: string;
  isWide?: boolean;
  hint?: string;
  children: React.ReactNode;
}): React.JSX.Element {
  return (
    <label className={`jp-Gpu-field${props.isWide ? ' jp-Gpu-wide' : ''}`} title={props.hint}>
      <span>{props.label}</span>
      {props.children}
    </label>
  );
}
