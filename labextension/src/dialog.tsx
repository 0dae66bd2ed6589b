/** A dialog of fields that is asked again, with what was typed, until what it asks for is accepted. */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import { PromiseDelegate } from '@lumino/coreutils';
import type { Message } from '@lumino/messaging';
import * as React from 'react';

import { troubleText } from './trouble';

/** Draws the fields with what they begin with and why that was refused; `onTyped` is told what is typed. */
export type Fields<T> = (
  begin: T,
  refusal: string,
  onTyped: (typed: T) => void
) => React.JSX.Element;

/** What a dialog is about. */
export interface IAsked<T, R> {
  readonly title: string;
  /** What its button says. */
  readonly yes: string;
  readonly fields: Fields<T>;
  /** What is wrong with what was typed; empty where nothing is. */
  readonly flaw: (typed: T) => string;
  readonly send: (typed: T) => Promise<R>;
}

/**
 * Ask, and send what was typed; null if it should not be. Where that is refused, the dialog comes again with the reason
 * and with what was typed.
 */
export async function askAndSend<T, R>(asked: IAsked<T, R>, begin: T): Promise<R | null> {
  let typed = begin;
  let refusal = '';
  for (;;) {
    const body = new Body(asked.fields, refusal, typed);
    const { button } = await showDialog({
      title: asked.title,
      body,
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: asked.yes })],
      focusNodeSelector: 'input'
    });
    if (!button.accept) {
      return null;
    }
    typed = body.typed;
    // What it began with may be wrong without a word typed.
    refusal = asked.flaw(typed);
    if (!refusal) {
      try {
        return await asked.send(typed);
      } catch (error) {
        refusal = troubleText(error);
      }
    }
  }
}

/** The body of the dialog. */
class Body<T> extends ReactWidget {
  constructor(
    private readonly _fields: Fields<T>,
    private readonly _refusal: string,
    private _typed: T
  ) {
    super();
    this.addClass('jp-Gpu-dialog');
  }

  /** What was typed until now. */
  get typed(): T {
    return this._typed;
  }

  protected override render(): React.JSX.Element {
    return (
      <>
        {this._fields(this._typed, this._refusal, typed => {
          this._typed = typed;
        })}
        <Shown
          onShown={() => {
            this._shown.resolve();
          }}
        />
      </>
    );
  }

  /**
   * With this the dialog gives the first field the focus. Lab's own promise waits for an idle moment, and on a busy
   * machine somebody is typing into another field by then: the rest of the words would go into the first.
   */
  protected override onUpdateRequest(message: Message): void {
    super.onUpdateRequest(message);
    this.renderPromise = this._shown.promise;
  }

  private readonly _shown = new PromiseDelegate<void>();
}

/** Tells that what stands before it is in the page. */
function Shown(props: { onShown: () => void }): null {
  const { onShown } = props;
  React.useLayoutEffect(onShown, [onShown]);
  return null;
}
