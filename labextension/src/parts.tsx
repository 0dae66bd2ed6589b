/** Small things that all parts of the panel are made of. */
import * as React from 'react';

import { share } from './format';

/** Start a command; every button does nothing else. */
export type Run = (
  command: string,
  args?: Readonly<Record<string, string | number | boolean>>
) => void;

/** What every part of the panel is given. */
export interface IPartProps {
  readonly now: number;
  readonly run: Run;
}

/** A part of the panel under its heading. */
export function Section(props: {
  title: string;
  aside?: React.ReactNode;
  children: React.ReactNode;
}): React.JSX.Element {
  const id = `jp-Gpu-${props.title.toLowerCase().replace(/\W+/g, '-')}`;
  return (
    <section className="jp-Gpu-section" aria-labelledby={id}>
      <div className="jp-Gpu-heading">
        <h2 id={id}>{props.title}</h2>
        {props.aside !== undefined && <span className="jp-Gpu-aside">{props.aside}</span>}
      </div>
      {props.children}
    </section>
  );
}

/** A sentence of the broker: what stands between backticks is to be typed. */
export function Sentence(props: { text: string }): React.JSX.Element {
  const parts = props.text.split(/`([^`]*)`/);
  return (
    <>{parts.map((part, place) => (place % 2 === 1 ? <code key={place}>{part}</code> : part))}</>
  );
}

/** How a word is coloured; the word says the same without its colour. */
export type Tone = 'plain' | 'good' | 'busy' | 'warn' | 'bad' | 'mine';

/** A word in a coloured frame. */
export function Badge(props: {
  tone: Tone;
  children: React.ReactNode;
  title?: string;
  gpu?: string;
}): React.JSX.Element {
  return (
    <span className={`jp-Gpu-badge jp-mod-${props.tone}`} title={props.title} data-gpu={props.gpu}>
      {props.children}
    </span>
  );
}

/** A button that names what it is about to those who hear it instead of seeing where it stands. */
export function Button(props: {
  label: string;
  about?: string;
  gpu: string;
  onClick: () => void;
  tone?: 'accept' | 'warn';
  title?: string;
}): React.JSX.Element {
  return (
    <button
      type="button"
      className={`jp-Gpu-button${props.tone ? ` jp-mod-${props.tone}` : ''}`}
      data-gpu={props.gpu}
      title={props.title}
      aria-label={props.about ? `${props.label}: ${props.about}` : undefined}
      onClick={props.onClick}
    >
      {props.label}
    </button>
  );
}

/** A part of a whole as a bar. Nothing where either is not known: an empty bar would be a measurement. */
export function Meter(props: {
  label: string;
  text: string;
  part: number | null;
  tone?: Tone;
  /** Whether it comes to an end when it is full. */
  isProgress?: boolean;
}): React.JSX.Element | null {
  if (props.part === null) {
    return null;
  }
  return (
    <div
      className={`jp-Gpu-meter jp-mod-${props.tone ?? 'busy'}`}
      role={props.isProgress ? 'progressbar' : 'meter'}
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(100 * props.part)}
      aria-valuetext={props.text}
    >
      <div style={{ width: `${(100 * props.part).toFixed(1)}%` }} />
    </div>
  );
}

const WIDTH = 64;
const HEIGHT = 16;

/** From the lowest to the highest that a curve has room for. */
export type Range = readonly [low: number, high: number];

const PERCENT: Range = [0, 100];

/** The points of a curve; a value that is not known breaks it, and one that never moves stands in the middle. */
export function curve(
  values: readonly (number | null)[],
  most: number,
  [low, high]: Range = PERCENT
): string {
  const step = WIDTH / Math.max(1, most - 1);
  const begin = WIDTH - (values.length - 1) * step;
  let pen = 'M';
  return values
    .map((value, place) => {
      const part = value === null ? null : low === high ? 0.5 : share(value - low, high - low);
      if (part === null) {
        pen = 'M';
        return '';
      }
      const y = HEIGHT - 1 - part * (HEIGHT - 2);
      const word = `${pen}${(begin + place * step).toFixed(1)} ${y.toFixed(1)}`;
      pen = 'L';
      return word;
    })
    .join('');
}

/** A small curve, for the eye only: the number stands beside it. A wide one takes a line of its own. */
export function Sparkline(props: {
  values: readonly (number | null)[];
  most: number;
  range?: Range;
  isWide?: boolean;
}): React.JSX.Element | null {
  const { isWide = false } = props;
  const path = curve(props.values, props.most, props.range);
  if (!path.includes('L')) {
    return null;
  }
  return (
    <svg
      className={isWide ? 'jp-Gpu-sparkline jp-mod-wide' : 'jp-Gpu-sparkline'}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      width={isWide ? '100%' : WIDTH}
      height={HEIGHT}
      // All of a wide one is seen; of the other, where there is little room, the newest.
      preserveAspectRatio={isWide ? 'none' : 'xMaxYMid slice'}
      aria-hidden="true"
    >
      <path d={path} vectorEffect="non-scaling-stroke" />
    </svg>
  );
}
