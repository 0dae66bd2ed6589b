/**
 * Kernels that hold GPUs, also those whose tab is closed: closing a tab stops no kernel, and without this list
 * nobody finds what holds the memory.
 */
import * as React from 'react';

import { ago, bytes, gpus, length, sentence } from './format';
import { OwnIsolation } from './isolation';
import { Badge, Button, Section, Sentence, type IPartProps } from './parts';
import { isAtRest, kernelsWithGpus, memoryOf } from './select';
import type { KernelView, Status } from './types';
import type { GpuState } from './fold';

/** An idle kernel is named so only after a while, and only where it keeps others waiting for something. */
const IDLE_SECONDS = 300;
const IDLE_BYTES = 1024 ** 3;

/** The list, and what keeps all of it from other GPUs. */
export function Kernels(props: IPartProps & { state: GpuState }): React.JSX.Element {
  return (
    <>
      <KernelList {...props} />
      <OwnIsolation it={props.state.own} />
    </>
  );
}

/** The list, and what becomes of outputs; nothing where no kernel has a GPU. */
function KernelList(props: IPartProps & { state: GpuState }): React.JSX.Element | null {
  const { state, now, run } = props;
  const kernels = kernelsWithGpus(state);
  if (!kernels.length) {
    return null;
  }
  return (
    <Section title="Notebooks with GPUs">
      <ul className="jp-Gpu-list">
        {kernels.map(it => (
          <KernelRow key={it.kernel_id} it={it} status={state.status} now={now} run={run} />
        ))}
      </ul>
      <p className="jp-Gpu-text">
        What a notebook prints while its tab is closed is not kept. Run long work as a job: its log
        stays on the server.
      </p>
    </Section>
  );
}

/** One kernel. */
export function KernelRow(
  props: IPartProps & { it: KernelView; status: Status | null }
): React.JSX.Element {
  const { it, status, now, run } = props;
  const name = nameOf(it);
  const used = memoryOf(it, status);
  const idle = it.execution_state === 'idle' && it.last_activity ? now - it.last_activity : 0;
  const isIdle =
    idle >= IDLE_SECONDS && used !== null && used >= IDLE_BYTES && isAtRest(it, status);
  const args = { kernel: it.kernel_id };
  return (
    <li className="jp-Gpu-row" data-gpu="kernel" data-id={it.kernel_id}>
      <div className="jp-Gpu-line">
        <span className="jp-Gpu-name" title={it.notebook ?? it.kernel_id}>
          <span className="jp-Gpu-ellipsis">{name}</span>
        </span>
        <Badge tone={it.execution_state === 'busy' ? 'good' : 'plain'}>{it.execution_state}</Badge>
      </div>
      <div className="jp-Gpu-muted">
        {[
          gpus(it.devices ?? [], status?.devices ?? []),
          ...(used === null ? [] : [`${bytes(used)} in use`]),
          `active ${ago(it.last_activity, now)}`
        ].join(' · ')}
      </div>
      {isIdle && (
        <div className="jp-Gpu-why jp-mod-warn" data-gpu="kernel-idle">
          Idle kernel holds {bytes(used)}, for {length(idle)} now. A restart frees the memory, a
          release also the GPU, which counts against your quota as long as it is reserved.
        </div>
      )}
      {[it.restart_needed, it.told, it.reason].map(
        text =>
          text && (
            <div key={text} className="jp-Gpu-why">
              <Sentence text={sentence(text)} />
            </div>
          )
      )}
      <div className="jp-Gpu-actions">
        {it.restart_needed && (
          <Button
            gpu="kernel-restart"
            label="Restart"
            about={name}
            tone="accept"
            onClick={() => {
              run('gpu:pin', args);
            }}
          />
        )}
        {isIdle && !it.restart_needed && (
          <Button
            gpu="kernel-free"
            label="Restart"
            about={name}
            title="Free the memory and keep the GPU"
            onClick={() => {
              run('gpu:restart-kernel', args);
            }}
          />
        )}
        {it.notebook && (
          <Button
            gpu="kernel-open"
            label="Open"
            about={name}
            onClick={() => {
              run('docmanager:open', { path: it.notebook ?? '' });
            }}
          />
        )}
        {it.notebook && (
          <Button
            gpu="kernel-submit"
            label="Run as job"
            about={name}
            onClick={() => {
              run('gpu:submit-file', { path: it.notebook ?? '' });
            }}
          />
        )}
        {it.workload !== null && it.workload !== undefined && (
          <Button
            gpu="kernel-release"
            label="Release"
            about={name}
            onClick={() => {
              run('gpu:release', args);
            }}
          />
        )}
        <Button
          gpu="kernel-stop"
          label="Stop"
          about={name}
          title="Shut the kernel down and release its GPUs"
          onClick={() => {
            run('gpu:stop-kernel', { ...args, name });
          }}
        />
      </div>
    </li>
  );
}

/** The notebook's file name, else what kind of kernel it is. */
export function nameOf(it: KernelView): string {
  return it.notebook?.split('/').pop() || `${it.name} (${it.kernel_id.slice(0, 8)})`;
}
