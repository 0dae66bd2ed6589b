/** What a person may choose in the settings editor; schema/plugin.json describes it. */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { type ISignal, Signal } from '@lumino/signaling';

/** The choices. */
export interface IChoices {
  readonly showStatusBar: boolean;
  readonly notify: boolean;
  readonly devices: number;
  readonly hours: number;
  readonly jobQueue: string;
  readonly jobHours: number;
}

const DEFAULTS: IChoices = {
  showStatusBar: true,
  notify: true,
  devices: 1,
  hours: 2,
  jobQueue: '',
  jobHours: 0
};

/** The choices as they are now; the defaults where the application keeps no settings. */
export class Settings {
  get choices(): IChoices {
    return this._choices;
  }

  get changed(): ISignal<this, IChoices> {
    return this._changed;
  }

  /** Read the choices from now on. */
  follow(settings: ISettingRegistry.ISettings): void {
    const read = (): void => {
      this._choices = { ...DEFAULTS, ...(settings.composite as Partial<IChoices>) };
      this._changed.emit(this._choices);
    };
    settings.changed.connect(read);
    read();
  }

  private _choices = DEFAULTS;
  private _changed = new Signal<this, IChoices>(this);
}
