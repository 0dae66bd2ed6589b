/** The dialog that reserves GPUs for later. */
import * as React from 'react';

import { askAndSend } from './dialog';
import { type ILaterText, LaterFields, laterFlaw, laterOf, laterText } from './laterform';
import type { IGpuModel } from './model';
import type { IChoices } from './settings';
import type { WorkloadView } from './types';

/** Ask when and how many, and reserve; null if it should not be. */
export async function reserveLater(
  model: IGpuModel,
  choices: IChoices
): Promise<WorkloadView | null> {
  const { status } = model.state;
  if (status === null) {
    throw new Error('The GPUs of this server are not known yet. Try again in a moment.');
  }
  const now = (): number => model.now();
  return askAndSend<ILaterText, WorkloadView>(
    {
      title: 'Reserve GPUs for later',
      yes: 'Reserve',
      fields: (begin, refusal, onTyped) => (
        <LaterFields
          status={status}
          now={now()}
          begin={begin}
          refusal={refusal}
          onTyped={onTyped}
        />
      ),
      flaw: typed => laterFlaw(typed, status, now()),
      send: typed => model.api.submitAsk(laterOf(typed))
    },
    laterText(choices, now())
  );
}
