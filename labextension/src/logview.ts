/** The log of a job as a document: follows by itself, keeps its place when one reads back, stays bounded. */
import { MainAreaWidget } from '@jupyterlab/apputils';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import { stateWord, title, why } from './format';
import { gpuIcon } from './icons';
import { LogReader, readWhole } from './logreader';
import { MOST_LINES } from './logtext';
import type { IGpuModel } from './model';
import { tellTrouble, troubleText } from './notify';
import type { WorkloadView } from './types';

const LIVELY_MS = 1000;
const QUIET_MS = 3000;
/** So close to the end one is following. */
const NEAR_PIXELS = 40;

/** The document of one job's log. */
export function logDocument(model: IGpuModel, id: number): MainAreaWidget<LogView> {
  const widget = new MainAreaWidget({ content: new LogView(model, id) });
  widget.id = `jp-gpu-log-${id}`;
  widget.title.label = `Log of job ${id}`;
  widget.title.icon = gpuIcon;
  widget.title.closable = true;
  return widget;
}

/** The log itself. */
export class LogView extends Widget {
  constructor(
    private readonly _model: IGpuModel,
    readonly workload: number
  ) {
    super();
    this.addClass('jp-Gpu-log');
    this._reader = new LogReader(query => _model.api.log(workload, query));
    this._head = append(this.node, 'div', 'jp-Gpu-logHead');
    this._head.setAttribute('role', 'status');
    this._words = append(this._head, 'span', 'jp-Gpu-ellipsis');
    this._save = append(this._head, 'button', 'jp-Gpu-button');
    this._save.type = 'button';
    this._save.textContent = 'Save';
    this._save.title = 'Save the whole log as a file';
    this._save.dataset.gpu = 'log-save';
    this._save.onclick = () => void this._saveWhole();
    this._scroller = append(this.node, 'div', 'jp-Gpu-logText');
    this._scroller.dataset.gpu = 'log';
    this._scroller.tabIndex = 0;
    this._scroller.setAttribute('role', 'log');
    // A training that prints all the time would never let a screen reader rest.
    this._scroller.setAttribute('aria-live', 'off');
    this._scroller.setAttribute('aria-label', `Log of job ${workload}`);
    this._note = append(this._scroller, 'div', 'jp-Gpu-logNote');
    this._lines = append(this._scroller, 'div', '');
    this._last = append(this._scroller, 'div', '');
    _model.changed.connect(this._onChanged, this);
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this._schedule(0);
  }

  protected override onBeforeDetach(msg: Message): void {
    clearTimeout(this._timer);
    super.onBeforeDetach(msg);
  }

  protected override onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    void this._look();
    this._schedule(0);
  }

  private _schedule(pause: number): void {
    clearTimeout(this._timer);
    this._timer = window.setTimeout(() => void this._follow(), pause);
  }

  private async _follow(): Promise<void> {
    if (this._isReading || !this.isVisible) {
      return;
    }
    this._isReading = true;
    const pause = document.hidden ? QUIET_MS : await this._read();
    this._isReading = false;
    if (this.isDisposed) {
      return;
    }
    this._draw();
    if (this._reader.isComplete) {
      await this._look();
    } else {
      this._schedule(pause);
    }
  }

  /** Take the next part; answers when to look for another. */
  private async _read(): Promise<number> {
    try {
      const found = await this._reader.read();
      this._trouble = '';
      return { more: 0, some: LIVELY_MS, nothing: QUIET_MS }[found];
    } catch (error) {
      this._trouble = troubleText(error);
      return QUIET_MS;
    }
  }

  /** Ask how the job stands; a newer attempt is followed as soon as the present one is complete. */
  private async _look(): Promise<void> {
    try {
      this._take(await this._model.api.workload(this.workload));
    } catch (error) {
      console.debug(`jupyter-gpu: job ${this.workload} cannot be looked at`, error);
    }
  }

  private _onChanged(): void {
    const { status, recent } = this._model.state;
    const isThis = (it: WorkloadView): boolean => it.id === this.workload;
    const it = status?.workloads.find(isThis) ?? recent.find(isThis);
    if (it && it !== this._workload) {
      this._take(it);
    }
  }

  private _take(it: WorkloadView): void {
    if (this.isDisposed) {
      return;
    }
    this._workload = it;
    const { attempt, isComplete } = this._reader;
    if (isComplete && attempt !== null && (it.attempt ?? 0) > attempt) {
      this._reader.begin(attempt + 1);
      this._shown = 0;
      this._lines.textContent = '';
    }
    this._draw();
    this._schedule(0);
  }

  private async _saveWhole(): Promise<void> {
    const { attempt } = this._reader;
    this._save.disabled = true;
    try {
      const parts = await readWhole(query => this._model.api.log(this.workload, query), attempt);
      const link = document.createElement('a');
      link.href = URL.createObjectURL(new Blob([...parts]));
      link.download = `job-${this.workload}-attempt-${attempt ?? 1}.log`;
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (error) {
      tellTrouble(error);
    } finally {
      this._save.disabled = false;
    }
  }

  private _draw(): void {
    const { text, attempt, isTail } = this._reader;
    const scroller = this._scroller;
    const left = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
    const isFollowing = left < NEAR_PIXELS;
    const it = this._workload;
    this._words.textContent = [
      it ? `${title(it)}: ${stateWord(it)}` : `Job ${this.workload}`,
      ...((attempt ?? 0) > 1 || (it?.attempt ?? 0) > 1 ? [`attempt ${attempt}`] : []),
      ...(this._trouble ? [this._trouble] : [])
    ].join(' · ');
    const isEmpty = text.lines.length + text.unfinished.length === 0;
    this._note.textContent = isEmpty
      ? it?.state === 'queued'
        ? `${why(it)} Its output will stand here.`
        : 'No output yet.'
      : isTail || text.dropped
        ? 'The beginning of this long log is left out; save it to have it whole.'
        : '';
    this._addLines();
    this._last.textContent = text.unfinished;
    if (isFollowing) {
      scroller.scrollTop = scroller.scrollHeight;
    }
  }

  /** Add what is new as one block, and take away blocks that only hold lines no longer kept. */
  private _addLines(): void {
    const { lines, dropped } = this._reader.text;
    const fresh = lines.slice(Math.max(0, this._shown - dropped));
    if (fresh.length) {
      const block = append(this._lines, 'div', '');
      block.textContent = fresh.join('\n') + '\n';
      block.dataset.lines = String(fresh.length);
      this._shown = dropped + lines.length;
    }
    let kept = 0;
    for (const block of Array.from(this._lines.children).reverse()) {
      if (kept >= MOST_LINES) {
        block.remove();
      }
      kept += Number((block as HTMLElement).dataset.lines);
    }
  }

  private readonly _reader: LogReader;
  private readonly _head: HTMLElement;
  private readonly _words: HTMLElement;
  private readonly _save: HTMLButtonElement;
  private readonly _scroller: HTMLElement;
  private readonly _note: HTMLElement;
  private readonly _lines: HTMLElement;
  private readonly _last: HTMLElement;
  private _workload: WorkloadView | null = null;
  private _shown = 0;
  private _trouble = '';
  private _isReading = false;
  private _timer: number | undefined;
}

function append<K extends keyof HTMLElementTagNameMap>(
  parent: HTMLElement,
  tag: K,
  className: string
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  node.className = className;
  parent.appendChild(node);
  return node;
}
