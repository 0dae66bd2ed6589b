/** The log of a job as a document of JupyterLab. */
import { MainAreaWidget } from '@jupyterlab/apputils';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import { gpuIcon } from './icons';
import { LogPane } from './logpane';
import type { IGpuModel } from './model';
import { tellTrouble } from './notify';
import type { ServerApi } from './server';

/** The document of one job's log. */
export function logDocument(model: IGpuModel, id: number): MainAreaWidget<LogView> {
  const widget = new MainAreaWidget({ content: new LogView(model, id) });
  widget.id = `jp-gpu-log-${id}`;
  widget.title.label = `Log of job ${id}`;
  widget.title.icon = gpuIcon;
  widget.title.closable = true;
  return widget;
}

/** The log, read while it is seen. */
export class LogView extends Widget {
  constructor(model: IGpuModel, workload: number) {
    super();
    const around = { isSeen: () => this.isVisible, tell: tellTrouble };
    this._pane = new LogPane(this.node, model, workload, around);
  }

  override dispose(): void {
    this._pane.dispose();
    super.dispose();
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this._pane.follow();
  }

  protected override onBeforeDetach(msg: Message): void {
    this._pane.rest();
    super.onBeforeDetach(msg);
  }

  protected override onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this._pane.follow();
  }

  private readonly _pane: LogPane<ServerApi>;
}
