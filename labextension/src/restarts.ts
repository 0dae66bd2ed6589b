/**
 * Restarts of kernels that this page shows. A restart that the server makes alone leaves cells waiting for ever,
 * so the server asks the pages, and one of them makes it as a person would.
 */
import { Notification } from '@jupyterlab/apputils';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';

import { sentence } from './format';
import type { IGpuModel } from './model';
import { troubleText } from './trouble';

const READ_MS = 5000;

/** The kernels of this page's notebooks. */
export class Restarts {
  constructor(private readonly _notebooks: INotebookTracker | null) {}

  /** Whether a notebook of this page shows the kernel. */
  shows(kernel: string): boolean {
    return this._find(kernel) !== null;
  }

  /** Restart a kernel as the menu does; false where this page does not show it. */
  async restart(kernel: string): Promise<boolean> {
    const session = this._find(kernel);
    await session?.restartKernel();
    return session !== null;
  }

  /** Make the restarts that the server asks for and this page is the first to claim. */
  follow(model: IGpuModel): void {
    model.restartAsked.connect((_, { kernel_id: kernel, reason }) => {
      if (this.shows(kernel)) {
        this._claim(model, kernel, reason).catch((error: unknown) => {
          console.warn(`jupyter-gpu: kernel ${kernel} was not restarted: ${troubleText(error)}`);
        });
      }
    });
  }

  private async _claim(model: IGpuModel, kernel: string, reason: string): Promise<void> {
    if (await model.api.claim(kernel)) {
      const name = this._find(kernel)?.name ?? 'The kernel';
      Notification.info(`${name} is restarted. ${sentence(reason)}`, { autoClose: READ_MS });
      await this.restart(kernel);
    }
  }

  private _find(kernel: string): ISessionContext | null {
    const shown = this._notebooks?.find(it => it.sessionContext.session?.kernel?.id === kernel);
    return shown?.sessionContext ?? null;
  }
}
