/** The devices: live memory, how busy each is, what is wrong, and who holds it until when. */
import * as React from 'react';

import { MOST_MOMENTS, type GpuState, type Moment } from './fold';
import { deviceTrouble, holding, isKnown, memory, MISSING, plural, share } from './format';
import { Badge, Meter, Section, Sparkline } from './parts';
import { isFree, worksOn } from './select';
import type { DeviceView, Status, WorkloadView } from './types';

/** All devices; without one a sentence that still offers the queue. */
export function Devices(props: {
  status: Status;
  history: GpuState['history'];
  now: number;
}): React.JSX.Element {
  const { status, history, now } = props;
  const { devices } = status;
  if (!devices.length) {
    return (
      <Section title="GPUs">
        <p className="jp-Gpu-text" data-gpu="no-devices">
          No GPU on this server. Work can still wait in the queue: right click a script or a
          notebook and choose “Run as GPU job”.
        </p>
      </Section>
    );
  }
  const free = devices.filter(isFree).length;
  return (
    <Section
      title="GPUs"
      aside={
        <>
          {status.simulated && <Badge tone="warn">simulated</Badge>} {free} of {devices.length} free
        </>
      }
    >
      <ul className="jp-Gpu-list" aria-label={plural(devices.length, 'GPU')}>
        {devices.map(device => (
          <DeviceRow
            key={device.uuid}
            device={device}
            moments={history[device.uuid] ?? []}
            works={worksOn(device, status)}
            now={now}
          />
        ))}
      </ul>
    </Section>
  );
}

/** One device. */
export function DeviceRow(props: {
  device: DeviceView;
  moments: readonly Moment[];
  works: readonly WorkloadView[];
  now: number;
}): React.JSX.Element {
  const { device, works, now } = props;
  const isMine = works.some(it => it.is_mine);
  const used = share(device.memory_used_bytes, device.memory_total_bytes);
  const amount = memory(device);
  return (
    <li className="jp-Gpu-row" data-gpu="device" data-uuid={device.uuid}>
      <div className="jp-Gpu-line">
        <span className="jp-Gpu-name" title={`${device.name}\n${device.uuid}`}>
          GPU {device.index}
          <span className="jp-Gpu-muted jp-Gpu-ellipsis">{short(device)}</span>
        </span>
        <Condition device={device} isMine={isMine} />
      </div>
      <Meter
        label={`Memory of GPU ${device.index}`}
        text={amount}
        part={used}
        tone={used !== null && used > 0.95 ? 'warn' : isMine ? 'mine' : 'busy'}
      />
      <div className="jp-Gpu-line jp-Gpu-readings">
        <span data-gpu="device-memory">{amount}</span>
        <span className="jp-Gpu-tiles">
          <Sparkline values={props.moments.map(it => it.utilisation)} most={MOST_MOMENTS} />
          <span className="jp-Gpu-number" title="Utilisation" data-gpu="device-utilisation">
            {isKnown(device.utilisation_percent) ? `${device.utilisation_percent} %` : MISSING}
          </span>
          {isKnown(device.temperature_celsius) && (
            <span className="jp-Gpu-number" title="Temperature">
              {device.temperature_celsius} °C
            </span>
          )}
        </span>
      </div>
      {(device.workloads?.length ?? 0) > 0 && (
        <div className="jp-Gpu-muted" data-gpu="device-holder">
          {holding(device, works, now)}
        </div>
      )}
      {device.condition_detail && <div className="jp-Gpu-muted">{device.condition_detail}</div>}
    </li>
  );
}

/** The maker says nothing that the rest of the name does not. */
function short(device: DeviceView): string {
  return device.name.replace(/^NVIDIA /, '');
}

function Condition(props: { device: DeviceView; isMine: boolean }): React.JSX.Element {
  const { device } = props;
  const trouble = deviceTrouble(device);
  if (trouble) {
    return (
      <Badge tone={device.condition ? 'bad' : 'warn'} title={device.condition_detail}>
        {trouble}
      </Badge>
    );
  }
  if (props.isMine) {
    return <Badge tone="mine">yours</Badge>;
  }
  return isFree(device) ? <Badge tone="good">free</Badge> : <Badge tone="plain">in use</Badge>;
}
