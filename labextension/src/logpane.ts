/**
 * The log of a job, drawn into an element: follows by itself, keeps its place when one reads back, stays bounded.
 * Knows nothing of JupyterLab.
 */
import type { Api } from './api';
import { stateWord, title, why } from './format';
import { LogReader, readWhole } from './logreader';
import { MOST_LINES } from './logtext';
import type { IGpuModel, ISource } from './model';
import { troubleText } from './trouble';
import type { WorkloadView } from './types';

const LIVELY_MS = 1000;
const QUIET_MS = 3000;
/** So close to the end one is following. */
const NEAR_PIXELS = 40;

/** How a log meets the page that it stands in. */
export interface ILogSurroundings {
  /** Whether anybody can see it; nothing is read while nobody can. */
  readonly isSeen: () => boolean;
  readonly tell: (error: unknown) => void;
}

/** The log itself. It begins with `follow`. */
export class LogPane<A extends Api & ISource> {
  constructor(
    node: HTMLElement,
    private readonly _model: IGpuModel<A>,
    private readonly _workload: number,
    private readonly _around: ILogSurroundings
  ) {
    node.classList.add('jp-Gpu-log');
    this._reader = new LogReader(query => _model.api.log(_workload, query));
    this._head = append(node, 'div', 'jp-Gpu-logHead');
    this._head.setAttribute('role', 'status');
    this._words = append(this._head, 'span', 'jp-Gpu-ellipsis');
    this._save = append(this._head, 'button', 'jp-Gpu-button');
    this._save.type = 'button';
    this._save.textContent = 'Save';
    this._save.title = 'Save the whole log as a file';
    this._save.dataset.gpu = 'log-save';
    this._save.onclick = () => void this._saveWhole();
    this._scroller = append(node, 'div', 'jp-Gpu-logText');
    this._scroller.dataset.gpu = 'log';
    this._scroller.tabIndex = 0;
    this._scroller.setAttribute('role', 'log');
    // A training that prints all the time would never let a screen reader rest.
    this._scroller.setAttribute('aria-live', 'off');
    this._scroller.setAttribute('aria-label', `Log of job ${_workload}`);
    this._note = append(this._scroller, 'div', 'jp-Gpu-logNote');
    this._lines = append(this._scroller, 'div', '');
    this._last = append(this._scroller, 'div', '');
    _model.changed.connect(this._onChanged, this);
  }

  /** Read on from now on; also after `rest`, or when it is seen again. */
  follow(): void {
    if (this._it === null) {
      void this._look();
    }
    this._schedule(0);
  }

  /** Read no more until `follow`. */
  rest(): void {
    clearTimeout(this._timer);
  }

  dispose(): void {
    this._isDisposed = true;
    this.rest();
    this._model.changed.disconnect(this._onChanged, this);
  }

  private _schedule(pause: number): void {
    clearTimeout(this._timer);
    this._timer = window.setTimeout(() => void this._follow(), pause);
  }

  private async _follow(): Promise<void> {
    if (this._isReading || !this._around.isSeen()) {
      return;
    }
    this._isReading = true;
    const pause = document.hidden ? QUIET_MS : await this._read();
    this._isReading = false;
    if (this._isDisposed) {
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
      this._take(await this._model.api.workload(this._workload));
    } catch (error) {
      console.debug(`jupyter-gpu: job ${this._workload} cannot be looked at`, error);
    }
  }

  private _onChanged(): void {
    const { status, recent } = this._model.state;
    const isThis = (it: WorkloadView): boolean => it.id === this._workload;
    const it = status?.workloads.find(isThis) ?? recent.find(isThis);
    if (it && it !== this._it) {
      this._take(it);
    }
  }

  private _take(it: WorkloadView): void {
    if (this._isDisposed) {
      return;
    }
    this._it = it;
    const { attempt, isComplete } = this._reader;
    if (isComplete && attempt !== null && (it.attempt ?? 0) > attempt) {
      this._reader.begin(attempt + 1);
      this._shown = 0;
      this._lines.textContent = '';
    }
    this._draw();
    if (!this._reader.isComplete) {
      this._schedule(0);
    }
  }

  private async _saveWhole(): Promise<void> {
    const { attempt } = this._reader;
    this._save.disabled = true;
    try {
      const parts = await readWhole(query => this._model.api.log(this._workload, query), attempt);
      const link = document.createElement('a');
      link.href = URL.createObjectURL(new Blob([...parts]));
      link.download = `job-${this._workload}-attempt-${attempt ?? 1}.log`;
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (error) {
      this._around.tell(error);
    } finally {
      this._save.disabled = false;
    }
  }

  private _draw(): void {
    const { text, attempt, isTail } = this._reader;
    const scroller = this._scroller;
    const left = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
    const isFollowing = left < NEAR_PIXELS;
    const it = this._it;
    this._words.textContent = [
      it ? `${title(it)}: ${stateWord(it)}` : `Job ${this._workload}`,
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
  private _it: WorkloadView | null = null;
  private _shown = 0;
  private _trouble = '';
  private _isReading = false;
  private _isDisposed = false;
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
