/** What one job says of itself: how far it is, and on demand its curves, its attempts, and why it waits. */
import * as React from 'react';

import { sentence, title } from './format';
import { attemptText, curvesOf, farOf, leftText } from './jobwords';
import { type Look, Looking } from './looking';
import { Meter, Sentence, Sparkline } from './parts';
import { troubleText } from './trouble';
import type { AttemptView, DeviceView, Progress, WorkloadView } from './types';

/** How far a job that runs says it is: a bar where its end is known, and words. */
export function Far(props: { it: WorkloadView; now: number }): React.JSX.Element | null {
  const { it, now } = props;
  const far = farOf(it, now);
  if (far === null) {
    return null;
  }
  return (
    <div data-gpu="progress">
      <Meter
        label={`Progress of ${title(it)}`}
        text={far.step}
        part={far.part}
        tone="mine"
        isProgress
      />
      <div className="jp-Gpu-muted jp-Gpu-figures">
        {[far.step, far.left, ...far.numbers].filter(Boolean).join(' · ')}
      </div>
    </div>
  );
}

/** What was found of a job when somebody looked. */
interface IFound {
  readonly curve: readonly Progress[];
  readonly attempts: readonly AttemptView[];
  readonly why: string;
}

const NOTHING: IFound = { curve: [], attempts: [], why: '' };

/** The fold; nothing is asked before it is opened, and while it is open it keeps up. */
export function Details(props: {
  it: WorkloadView;
  devices: readonly DeviceView[];
  now: number;
}): React.JSX.Element | null {
  const { it, devices, now } = props;
  const look = React.useContext(Looking);
  const [isOpen, setOpen] = React.useState(false);
  const { found, trouble } = useFound(isOpen ? look : null, it, now);
  const hasBegun = (it.attempt ?? 0) > 0;
  const isUnexplained = it.state === 'queued' && !it.reason;
  if (look === null || it.kind !== 'job' || !(hasBegun || isUnexplained)) {
    return null;
  }
  return (
    <details
      className="jp-Gpu-uses"
      data-gpu="job-details"
      onToggle={event => {
        setOpen(event.currentTarget.open);
      }}
    >
      <summary>
        <span className="jp-Gpu-hidden">{title(it)}: </span>
        {hasBegun ? 'Curves and attempts' : 'Why it waits'}
      </summary>
      {trouble && <div className="jp-Gpu-why jp-mod-warn">{trouble}</div>}
      {found && <Found it={it} found={found} devices={devices} now={now} />}
    </details>
  );
}

/** Ask while it is open, and again when the job or the time has moved on. */
function useFound(
  look: Look | null,
  it: WorkloadView,
  now: number
): { found: IFound | null; trouble: string } {
  const [answer, setAnswer] = React.useState<{ found: IFound | null; trouble: string }>({
    found: null,
    trouble: ''
  });
  const { id, attempt, state } = it;
  React.useEffect(() => {
    let isWanted = look !== null;
    const take = (next: Partial<typeof answer>): void => {
      if (isWanted) {
        setAnswer(before => ({ ...before, trouble: '', ...next }));
      }
    };
    if (look !== null) {
      find(look, id, attempt ?? 0, state).then(
        found => {
          take({ found });
        },
        (error: unknown) => {
          take({ trouble: troubleText(error) });
        }
      );
    }
    return () => {
      isWanted = false;
    };
  }, [look, id, attempt, state, now]);
  return answer;
}

async function find(
  look: Look,
  id: number,
  attempt: number,
  state: WorkloadView['state']
): Promise<IFound> {
  const [attempts, curve, alone] = await Promise.all([
    attempt > 0 ? look.attempts(id) : [],
    attempt > 0 ? look.progress(id) : [],
    state === 'queued' ? look.workload(id) : null
  ]);
  return { ...NOTHING, attempts, curve, why: alone?.why ?? '' };
}

function Found(props: {
  it: WorkloadView;
  found: IFound;
  devices: readonly DeviceView[];
  now: number;
}): React.JSX.Element {
  const { it, found, devices, now } = props;
  const curves = curvesOf(found.curve);
  const [first] = found.curve;
  const last = found.curve[found.curve.length - 1];
  // What the row says already is not said again.
  const isAsked = it.state === 'active' && !farOf(it, now)?.left;
  const left = isAsked && first && last ? leftText(first, last, now) : '';
  return (
    <>
      {found.why && (
        <div className="jp-Gpu-why" data-gpu="job-why">
          <Sentence text={sentence(found.why)} />
        </div>
      )}
      {curves.map(({ name, values, low, high, text }) => (
        <div key={name} className="jp-Gpu-curve" data-gpu="curve" data-name={name}>
          <div className="jp-Gpu-line">
            <span className="jp-Gpu-ellipsis">{name}</span>
            <span className="jp-Gpu-number">{text}</span>
          </div>
          <Sparkline values={values} most={values.length} range={[low, high]} isWide />
        </div>
      ))}
      {left && <div className="jp-Gpu-muted">At the rate of this attempt {left}.</div>}
      {!curves.length && (it.attempt ?? 0) > 0 && (
        <div className="jp-Gpu-muted">
          This attempt has reported no numbers. <code>jupyter_gpu.training.report</code> does.
        </div>
      )}
      {found.attempts.length > 0 && (
        <ol className="jp-Gpu-attempts" aria-label={`Attempts of ${title(it)}`}>
          {found.attempts.map(one => (
            <li key={one.attempt} value={one.attempt} data-gpu="attempt">
              {attemptText(one, devices, now)}
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
