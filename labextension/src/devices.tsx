/** The devices: live memory, how busy each is, what is wrong, who is on it, and who holds it until when. */
import * as React from 'react';

import {
  cordonText,
  type Group,
  grouped,
  holding,
  memoryDetail,
  nameOf,
  roomIn,
  sharedText,
  short,
  troubleOf,
  processesText,
  processText
} from './devicewords';
import { MOST_MOMENTS, type GpuState, type Moment } from './fold';
import { bytes, isKnown, memory, MISSING, plural, sentence, share } from './format';
import { Isolation } from './isolation';
import { Badge, Meter, Section, Sentence, Sparkline, type Tone } from './parts';
import { freeText, isFree, worksOn } from './select';
import type { CardView, DeviceView, Status, WorkloadView } from './types';

/** All devices; without one a sentence that still offers the queue. */
export function Devices(props: {
  status: Status;
  history: GpuState['history'];
  now: number;
  /** What can be done without any device. */
  without: string;
  /** What can be done with each, for operators. */
  actions?: (it: DeviceView) => React.ReactNode;
}): React.JSX.Element {
  const { status, history, now, actions } = props;
  const { devices, cards = [] } = status;
  if (!devices.length && !cards.length) {
    return (
      <Section title="GPUs">
        <p className="jp-Gpu-text" data-gpu="no-devices">
          No GPU on this server. {props.without}
        </p>
      </Section>
    );
  }
  const row = (device: DeviceView): React.JSX.Element => (
    <DeviceRow
      key={device.uuid}
      device={device}
      moments={history[device.uuid] ?? []}
      works={worksOn(device, status)}
      now={now}
      actions={actions?.(device)}
    />
  );
  return (
    <Section
      title="GPUs"
      aside={
        <>
          {status.simulated && <Badge tone="warn">simulated</Badge>}
          {!status.simulated && <Isolation it={status.isolation} />} {freeText(devices)}
        </>
      }
    >
      <ul className="jp-Gpu-list" data-gpu="devices" aria-label={plural(devices.length, 'GPU')}>
        {grouped(devices, cards).map(group =>
          group.card === null ? (
            group.devices.map(row)
          ) : (
            <CardRow
              key={`card ${group.card.uuid}`}
              group={group}
              card={group.card}
              moments={history[group.card.uuid] ?? []}
              row={row}
            />
          )
        )}
      </ul>
    </Section>
  );
}

/** A GPU in MIG mode, and its MIG devices under it. */
function CardRow(props: {
  group: Group;
  card: CardView;
  moments: readonly Moment[];
  row: (device: DeviceView) => React.JSX.Element;
}): React.JSX.Element {
  const { card } = props;
  const { devices } = props.group;
  return (
    <li className="jp-Gpu-row" data-gpu="card" data-uuid={card.uuid}>
      <div className="jp-Gpu-line">
        <Name name={`GPU ${card.index}`} it={card} />
        <Badge tone="plain" title="Divided into MIG devices, which are reserved one by one">
          MIG
        </Badge>
      </div>
      <Readings name={`GPU ${card.index}`} it={card} tone="busy" moments={props.moments} />
      {devices.length ? (
        <ul
          className="jp-Gpu-list jp-Gpu-parts"
          aria-label={`${plural(devices.length, 'MIG device')} of GPU ${card.index}`}
        >
          {devices.map(props.row)}
        </ul>
      ) : (
        <div className="jp-Gpu-why">
          It is in MIG mode and has no MIG devices, so there is nothing of it to reserve.
        </div>
      )}
    </li>
  );
}

/** One device. */
export function DeviceRow(props: {
  device: DeviceView;
  moments: readonly Moment[];
  works: readonly WorkloadView[];
  now: number;
  actions?: React.ReactNode;
}): React.JSX.Element {
  const { device, works, now } = props;
  const isMine = works.some(it => it.is_mine);
  const shared = sharedText(device);
  return (
    <li className="jp-Gpu-row" data-gpu="device" data-uuid={device.uuid}>
      <div className="jp-Gpu-line">
        <Name name={nameOf(device)} it={device} />
        <Standing device={device} works={works} />
      </div>
      <Readings
        name={nameOf(device)}
        it={device}
        tone={isMine ? 'mine' : 'busy'}
        moments={props.moments}
        detail={memoryDetail(device)}
      />
      {device.shares_host_memory && (
        <div className="jp-Gpu-muted">Its memory is shared with system memory.</div>
      )}
      {shared && (
        <div className="jp-Gpu-muted" data-gpu="device-shared">
          {shared}
        </div>
      )}
      {(device.workloads?.length ?? 0) > 0 && (
        <div className="jp-Gpu-muted" data-gpu="device-holder">
          {holding(device, works, now)}
        </div>
      )}
      <Trouble device={device} works={works} />
      {device.note && (
        <div className="jp-Gpu-muted" data-gpu="device-note">
          {sentence(device.note)}
        </div>
      )}
      <Uses device={device} works={works} />
      {props.actions}
    </li>
  );
}

function Name(props: { name: string; it: DeviceView | CardView }): React.JSX.Element {
  const { name, it } = props;
  return (
    <span className="jp-Gpu-name" title={`${it.name}\n${it.uuid}`}>
      {name}
      <span className="jp-Gpu-muted jp-Gpu-ellipsis">{short(it)}</span>
    </span>
  );
}

/** What was measured; what was not is left out, but for memory and load, which read "n/a". */
function Readings(props: {
  name: string;
  it: DeviceView | CardView;
  tone: Tone;
  moments: readonly Moment[];
  detail?: string;
}): React.JSX.Element {
  const { it } = props;
  const used = share(it.memory_used_bytes, it.memory_total_bytes);
  const amount = memory(it);
  return (
    <>
      <Meter
        label={`Memory of ${props.name}`}
        text={amount}
        part={used}
        tone={used !== null && used > 0.95 ? 'warn' : props.tone}
      />
      <div className="jp-Gpu-line jp-Gpu-readings">
        <span data-gpu="device-memory" title={props.detail}>
          {amount}
        </span>
        <span className="jp-Gpu-tiles">
          <Sparkline values={props.moments.map(it => it.utilisation)} most={MOST_MOMENTS} />
          <Tile
            what="Utilisation"
            gpu="device-utilisation"
            text={isKnown(it.utilisation_percent) ? `${it.utilisation_percent} %` : MISSING}
          />
          {isKnown(it.temperature_celsius) && (
            <Tile what="Temperature" text={`${it.temperature_celsius} °C`} />
          )}
          {isKnown(it.power_watts) && (
            <Tile what="Power" text={`${Math.round(it.power_watts)} W`} />
          )}
        </span>
      </div>
    </>
  );
}

function Tile(props: { what: string; text: string; gpu?: string }): React.JSX.Element {
  return (
    <span className="jp-Gpu-number" title={props.what} data-gpu={props.gpu}>
      {props.text}
    </span>
  );
}

/** What is wrong, what was seen of it, and what it means. */
function Trouble(props: {
  device: DeviceView;
  works: readonly WorkloadView[];
}): React.JSX.Element | null {
  const { device, works } = props;
  const trouble = troubleOf(device, works);
  const cordon = cordonText(device, works);
  if (trouble === null) {
    return null;
  }
  return (
    <div className={`jp-Gpu-why jp-mod-${device.condition ? 'bad' : 'warn'}`} data-gpu="condition">
      {device.condition && device.condition_detail && (
        <div>
          <Sentence text={sentence(device.condition_detail)} />
        </div>
      )}
      <div className="jp-Gpu-muted">{trouble.meaning}</div>
      {cordon && <div data-gpu="cordon">{sentence(cordon)}</div>}
    </div>
  );
}

/** Who is on it, under a fold: a summary and its list, as keyboards and screen readers know them. */
function Uses(props: {
  device: DeviceView;
  works: readonly WorkloadView[];
}): React.JSX.Element | null {
  const { device, works } = props;
  const { uses = [] } = device;
  if (!uses.length) {
    return null;
  }
  return (
    <details className="jp-Gpu-uses" data-gpu="uses">
      <summary>
        <span className="jp-Gpu-hidden">On {nameOf(device)}: </span>
        {processesText(uses)}
      </summary>
      <ul>
        {uses.map(use => (
          <li key={use.pid} className="jp-Gpu-line" data-gpu="use" data-pid={use.pid}>
            <span className="jp-Gpu-wrap">{processText(use, works)}</span>
            {use.foreign && (
              <Badge tone="bad" title="It is on this GPU without a lease of it">
                no lease
              </Badge>
            )}
          </li>
        ))}
      </ul>
    </details>
  );
}

function Standing(props: {
  device: DeviceView;
  works: readonly WorkloadView[];
}): React.JSX.Element {
  const { device, works } = props;
  const trouble = troubleOf(device, works);
  if (trouble !== null) {
    return (
      <Badge tone={device.condition ? 'bad' : 'warn'} title={device.condition_detail}>
        {trouble.word}
      </Badge>
    );
  }
  if (works.some(it => it.is_mine)) {
    return <Badge tone="mine">yours</Badge>;
  }
  if (isFree(device)) {
    return <Badge tone="good">free</Badge>;
  }
  const room = roomIn(device);
  return room ? <Badge tone="good">{bytes(room)} free</Badge> : <Badge tone="plain">in use</Badge>;
}
