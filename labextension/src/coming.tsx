/** What is withheld and what is reserved for later, by oneself and by others, in the order of time. */
import * as React from 'react';

import { isKnown, plural, title, when } from './format';
import { Badge, Button, type IPartProps, Section } from './parts';
import { isForLater } from './select';
import type { HoldView, Status, WorkloadView } from './types';

/** Of what is others' so much is shown at once. */
export const MOST_SHOWN = 8;

/** One line: from when to when, what, and whose. */
export interface IComing {
  readonly key: string;
  readonly from: number;
  readonly until: number;
  readonly what: string;
  readonly whose: string;
  readonly isMine: boolean;
  /** One's own reservation, which can be given up. */
  readonly workload?: number;
  readonly warnings: readonly string[];
}

/** What comes, the next first; what is over or was given back does not. */
export function coming(status: Status, now: number): readonly IComing[] {
  const held = (status.holds ?? []).filter(it => !it.given_back).map(ofHold);
  const reserved = (status.coming ?? []).map(ofReservation);
  const own = status.workloads.filter(it => it.is_mine && isForLater(it)).map(ofReservation);
  const inTime = (items: readonly (IComing | null)[]): IComing[] =>
    items
      .filter((it): it is IComing => it !== null && it.until > now)
      .sort((a, b) => a.from - b.from);
  return inTime([...inTime([...held, ...reserved]).slice(0, MOST_SHOWN), ...own]);
}

/** The list; nothing where nothing comes. */
export function Coming(props: IPartProps & { status: Status }): React.JSX.Element | null {
  const items = coming(props.status, props.now);
  if (!items.length) {
    return null;
  }
  return (
    <Section title="Coming">
      <ul className="jp-Gpu-list" data-gpu="coming">
        {items.map(it => (
          <li key={it.key} className="jp-Gpu-row" data-gpu="coming-row">
            <div className="jp-Gpu-line">
              <span className="jp-Gpu-name">
                <span className="jp-Gpu-ellipsis">{it.whose}</span>
              </span>
              <Badge tone={it.from <= props.now ? 'warn' : 'plain'} gpu="coming-state">
                {it.from <= props.now ? 'now' : it.isMine ? 'for you' : 'not yet'}
              </Badge>
            </div>
            <div className="jp-Gpu-muted">{`${it.what} · ${span(it, props.now)}`}</div>
            {it.warnings.map(text => (
              <div key={text} className="jp-Gpu-why">
                {text}
              </div>
            ))}
            {it.workload !== undefined && (
              <div className="jp-Gpu-actions">
                <Button
                  gpu="cancel"
                  label="Cancel"
                  about={it.whose}
                  onClick={() => {
                    props.run('gpu:cancel', { workload: it.workload ?? 0 });
                  }}
                />
              </div>
            )}
          </li>
        ))}
      </ul>
    </Section>
  );
}

/** From when to when: "Tue 10:00 to 12:00", "until 12:00" where it has begun. */
export function span(it: Pick<IComing, 'from' | 'until'>, now: number): string {
  const [begin, end] = [when(it.from, now), when(it.until, now)];
  if (it.from <= now) {
    return `until ${end}`;
  }
  const day = (text: string): string => text.slice(0, text.lastIndexOf(' ') + 1);
  return `${begin} to ${day(begin) === day(end) ? end.slice(day(end).length) : end}`;
}

function ofHold(it: HoldView): IComing | null {
  if (!isKnown(it.from_at) || !isKnown(it.until_at)) {
    return null;
  }
  const names = [...(it.teams ?? []), ...(it.users ?? [])].join(', ');
  const whom = it.maintenance ? 'maintenance' : it.is_mine ? 'for you' : `for ${names || 'others'}`;
  return {
    key: `hold ${it.id ?? it.name}`,
    from: it.from_at,
    until: it.until_at,
    what:
      plural(it.named ? (it.devices ?? []).length : (it.count ?? 0), 'GPU') +
      ofClass(it.device_class),
    whose: `${it.name}, ${whom}`,
    isMine: it.is_mine ?? false,
    warnings: it.warnings ?? []
  };
}

function ofClass(name: string | null | undefined): string {
  return name ? ` of class ${name}` : '';
}

function ofReservation(it: WorkloadView): IComing | null {
  if (!isKnown(it.not_before)) {
    return null;
  }
  return {
    key: `reservation ${it.id}`,
    from: it.not_before,
    until: it.not_before + (it.ask.duration_seconds ?? 0),
    what: plural(it.ask.devices ?? 1, 'GPU') + ofClass(it.ask.device_class),
    whose: it.is_mine || !it.owner ? title(it) : `reserved by ${it.owner}`,
    isMine: it.is_mine ?? false,
    ...(it.is_mine ? { workload: it.id } : {}),
    warnings: []
  };
}
