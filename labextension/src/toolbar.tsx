/** The item in a notebook's toolbar: how this kernel stands to the GPUs, and a menu of what can be done. */
import type { ISessionContext } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import { Menu } from '@lumino/widgets';
import * as React from 'react';

import { gpuIcon } from './icons';
import type { IGpuModel } from './model';
import { type KernelGpu, kernelGpu } from './select';

const HOURS = [1, 2, 4];

/** The item of one notebook. */
export class KernelItem extends ReactWidget {
  constructor(
    private readonly _model: IGpuModel,
    private readonly _session: ISessionContext,
    private readonly _commands: CommandRegistry
  ) {
    super();
    this.addClass('jp-Gpu-toolbar');
    _model.changed.connect(this._onChanged, this);
    _session.kernelChanged.connect(this._onChanged, this);
    this._gpu = kernelGpu(_model.state, this._kernel, _model.now());
  }

  protected override render(): React.JSX.Element {
    const { standing, label, caption } = this._gpu;
    return (
      <button
        type="button"
        className={`jp-Gpu-toolbarButton jp-mod-${standing}`}
        data-gpu="toolbar"
        data-standing={standing}
        title={caption}
        aria-haspopup="menu"
        onClick={event => {
          this._open(event.currentTarget);
        }}
      >
        <gpuIcon.react tag="span" className="jp-Gpu-toolbarIcon" />
        <span aria-live="polite">{label}</span>
      </button>
    );
  }

  private get _kernel(): string | null {
    return this._session.session?.kernel?.id ?? null;
  }

  private _onChanged(): void {
    const gpu = kernelGpu(this._model.state, this._kernel, this._model.now());
    if (gpu.label !== this._gpu.label || gpu.caption !== this._gpu.caption) {
      this.update();
    }
    this._gpu = gpu;
  }

  private _open(button: HTMLElement): void {
    const menu = new Menu({ commands: this._commands });
    menu.addClass('jp-Gpu-menu');
    for (const item of this._items()) {
      menu.addItem(item);
    }
    menu.aboutToClose.connect(() => {
      button.focus();
      requestAnimationFrame(() => {
        menu.dispose();
      });
    });
    const { left, bottom } = button.getBoundingClientRect();
    menu.open(left, bottom);
  }

  /** What can be done with this kernel now. */
  private _items(): Menu.IItemOptions[] {
    const kernel = this._kernel;
    const { standing, workload } = this._gpu;
    const items: Menu.IItemOptions[] = [];
    if (kernel !== null && workload === null && standing !== 'away') {
      for (const hours of HOURS) {
        const args = { kernel, devices: 1, duration_seconds: hours * 3600 };
        items.push({ command: 'gpu:reserve', args });
      }
    }
    if (kernel === null && standing !== 'away') {
      items.push({ command: 'gpu:without-kernel' });
    }
    if (kernel !== null && standing === 'restart') {
      items.push({ command: 'gpu:pin', args: { kernel } });
    }
    if (kernel !== null && workload !== null) {
      if (workload.state === 'active') {
        items.push({ command: 'gpu:extend', args: { workload: workload.id, seconds: 3600 } });
      }
      if (workload.state === 'queued' || workload.state === 'active' || workload.notice) {
        items.push({ command: 'gpu:release', args: { kernel } });
      }
    }
    const { path } = this._session;
    return [
      ...items,
      { type: 'separator' },
      // What a notebook prints while no page shows it is lost; this is the place to say what is not.
      ...(path ? [{ command: 'gpu:submit-file', args: { path, kept: true } }] : []),
      { command: 'gpu:open-panel' }
    ];
  }

  private _gpu: KernelGpu;
}
