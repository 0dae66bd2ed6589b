/** The item in the status bar: one's own lease and its time, else what is free. Opens the panel. */
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { gpuIcon } from './icons';
import type { IGpuModel } from './model';
import type { Run } from './parts';
import { summary } from './select';

/** The item. */
export class StatusItem extends ReactWidget {
  constructor(
    private readonly _model: IGpuModel,
    private readonly _run: Run,
    private readonly _kernel: () => string | null
  ) {
    super();
    this.addClass('jp-Gpu-status');
    _model.changed.connect(this.refresh, this);
    // What was told before this was made.
    this.refresh();
  }

  /** Say anew how the notebook in front stands, if that differs. */
  refresh(): void {
    const text = summary(this._model.state, this._model.now(), this._kernel());
    if (text !== this._text) {
      this._text = text;
      this.update();
    }
  }

  protected override render(): React.JSX.Element {
    return (
      <button
        type="button"
        className="jp-Gpu-statusButton"
        data-gpu="statusbar"
        title={this._model.state.trouble?.message ?? 'Show the GPUs'}
        onClick={() => {
          this._run('gpu:open-panel');
        }}
      >
        <gpuIcon.react tag="span" className="jp-Gpu-statusIcon" />
        {this._text}
      </button>
    );
  }

  private _text = 'GPUs';
}
