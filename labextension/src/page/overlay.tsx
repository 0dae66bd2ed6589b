/** What lies over the page: a question, a log, and the words that were said. */
import * as React from 'react';

import { LogPane } from '../logpane';
import type { GpuModel } from '../model';
import { Sentence } from '../parts';
import type { IQuestion } from '../releasing';
import type { PageFace } from './face';
import type { IReasonQuestion } from './operating';
import type { ServiceApi } from './service';

/** What the broker takes. */
const LONGEST_REASON = 200;

/** All of it. */
export function Overlay(props: { face: PageFace; model: GpuModel<ServiceApi> }): React.JSX.Element {
  const { face, model } = props;
  const { asked, said, log } = React.useSyncExternalStore(face.subscribe, () => face.shown);
  const words = (isTrouble: boolean): React.JSX.Element[] =>
    said
      .filter(it => it.isTrouble === isTrouble)
      .map(it => (
        <div
          key={it.key}
          className={`jp-Gpu-banner jp-Gpu-said jp-mod-${isTrouble ? 'bad' : 'good'}`}
          data-gpu={isTrouble ? 'said-trouble' : 'said'}
        >
          <div>
            <Sentence text={it.text} />
          </div>
          <button
            type="button"
            className="jp-Gpu-dismiss"
            aria-label={`Close: ${it.text}`}
            onClick={() => {
              face.putAway(it.key);
            }}
          >
            ×
          </button>
        </div>
      ));
  return (
    <>
      {log !== null && <Log key={log} id={log} model={model} face={face} />}
      {asked && (
        <Question
          asked={asked}
          onAnswer={reason => {
            face.answer(reason);
          }}
        />
      )}
      <div className="jp-Gpu-saying">
        <div role="alert" aria-atomic="false" aria-relevant="additions">
          {words(true)}
        </div>
        <div role="status" aria-atomic="false" aria-relevant="additions">
          {words(false)}
        </div>
      </div>
    </>
  );
}

function Question(props: {
  asked: IQuestion | IReasonQuestion;
  onAnswer: (reason: string | null) => void;
}): React.JSX.Element {
  const { asked, onAnswer } = props;
  const dialog = React.useRef<HTMLDialogElement>(null);
  const [reason, setReason] = React.useState('');
  React.useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      className="jp-Gpu-dialogBox"
      data-gpu="question"
      aria-labelledby="jp-gpu-question"
      aria-describedby="jp-gpu-question-body"
      onClose={event => {
        onAnswer(event.currentTarget.returnValue === 'yes' ? reason : null);
      }}
    >
      <form method="dialog">
        <h2 id="jp-gpu-question">{asked.title}</h2>
        <p id="jp-gpu-question-body">{asked.body}</p>
        {'reasonFor' in asked && (
          <label className="jp-Gpu-field">
            <span>Reason, if you like. {asked.reasonFor}.</span>
            <input
              data-gpu="question-reason"
              maxLength={LONGEST_REASON}
              value={reason}
              onChange={event => {
                setReason(event.target.value);
              }}
            />
          </label>
        )}
        <div className="jp-Gpu-actions">
          <button
            type="button"
            className="jp-Gpu-button"
            data-gpu="question-no"
            onClick={() => dialog.current?.close()}
          >
            {asked.no}
          </button>
          <button value="yes" className="jp-Gpu-button jp-mod-warn" data-gpu="question-yes">
            {asked.yes}
          </button>
        </div>
      </form>
    </dialog>
  );
}

function Log(props: {
  id: number;
  model: GpuModel<ServiceApi>;
  face: PageFace;
}): React.JSX.Element {
  const { id, model, face } = props;
  const dialog = React.useRef<HTMLDialogElement>(null);
  const place = React.useRef<HTMLDivElement>(null);
  React.useEffect(() => {
    dialog.current?.showModal();
    const node = document.createElement('div');
    place.current?.appendChild(node);
    const pane = new LogPane(node, model, id, {
      isSeen: () => true,
      tell: error => {
        face.tell(error);
      }
    });
    pane.follow();
    return () => {
      pane.dispose();
      node.remove();
    };
  }, [id, model, face]);
  return (
    <dialog
      ref={dialog}
      className="jp-Gpu-dialogBox jp-Gpu-logBox"
      aria-label={`Log of job ${id}`}
      onClose={() => {
        face.showLog(null);
      }}
    >
      <div ref={place} className="jp-Gpu-logPlace" />
      <form method="dialog" className="jp-Gpu-logClose">
        <button className="jp-Gpu-button" data-gpu="log-close">
          Close
        </button>
      </form>
    </dialog>
  );
}
