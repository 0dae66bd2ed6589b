import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { DeviceRow, Devices } from '../src/devices';
import { Ended } from '../src/ended';
import { KernelRow, Kernels } from '../src/kernels';
import { curve, Meter, Sentence } from '../src/parts';
import { Work, WorkRow } from '../src/queue';
import { Quotas } from '../src/quota';
import { flaw, ReserveForm } from '../src/reserve';
import { JobFields, type IJobText, jobFlaw, jobOf } from '../src/jobform';
import { device, GIB, kernel, NOON, reservation, state, status, work } from './builders';

const run = (): void => undefined;
const html = (element: React.ReactElement): string => renderToStaticMarkup(element);
const text = (element: React.ReactElement): string => html(element).replace(/<[^>]*>/g, ' ');

describe('a device', () => {
  const row = (more: object): React.ReactElement => (
    <DeviceRow device={device(0, more)} moments={[]} works={[]} now={NOON} />
  );

  it('that lacks one reading lacks that alone (rapidsai/jupyterlab-nvdashboard#114)', () => {
    const without = text(row({ utilisation_percent: null }));
    assert.match(without, /8 \/ 80 GiB/);
    assert.match(without, /n\/a/);
    assert.match(without, /60 °C/);
    const blind = html(row({ memory_used_bytes: null, temperature_celsius: null }));
    assert.match(blind, /n\/a \/ 80 GiB/);
    assert.doesNotMatch(blind, /role="meter"/);
    assert.doesNotMatch(blind, /°C/);
    assert.match(blind, /40 %/);
  });

  it('can be found by its UUID, and says who holds it', () => {
    const held = html(row({ workloads: [1], holders: ['grace'], free_at: NOON + 3600 }));
    assert.match(held, /data-gpu="device" data-uuid="GPU-0"/);
    assert.match(held, /grace until 13:00/);
    assert.match(held, /in use/);
  });

  it('says what is wrong in words, not by colour alone', () => {
    assert.match(text(row({ condition: 'lost', condition_detail: 'Xid 79' })), /lost[^]*Xid 79/);
    assert.match(text(row({ cordoned: true })), /cordoned/);
    assert.match(text(row({ condition: 'hot', cordoned: true })), /too hot.*It is cordoned, too\./);
  });

  it('cannot put markup into the page by its name', () => {
    assert.doesNotMatch(html(row({ name: '<img src=x>' })), /<img/);
  });
});

describe('a server without devices', () => {
  it('says so, and what can be done without any', () => {
    const none = status({ devices: [] });
    const said = text(<Devices status={none} history={{}} now={NOON} without="Run a job." />);
    assert.match(said, /No GPU on this server\. Run a job\./);
  });
});

describe('a workload', () => {
  const buttons = (it_: ReturnType<typeof work>): string[] =>
    [
      ...html(<WorkRow it={it_} devices={[]} now={NOON} run={run} />).matchAll(
        /<button[^>]*data-gpu="([^"]*)"/g
      )
    ].map(found => found[1]);

  it('offers what can be done with it as it stands', () => {
    assert.deepEqual(buttons(reservation(1)), ['extend', 'release']);
    assert.deepEqual(buttons(reservation(1, { state: 'queued' })), ['cancel']);
    assert.deepEqual(buttons(work(1, { attempt: 1 })), ['log-open', 'cancel']);
    assert.deepEqual(buttons(work(1, { state: 'queued', paused: true })), ['let-go', 'cancel']);
    assert.deepEqual(buttons(work(1, { state: 'yielding', attempt: 1 })), ['log-open']);
  });

  it('has a state, and a button that says what it is about', () => {
    const found = html(<WorkRow it={work(7, { attempt: 1 })} devices={[]} now={NOON} run={run} />);
    assert.match(found, /data-gpu="workload" data-id="7"/);
    assert.match(found, /data-gpu="workload-state">starting</);
    assert.match(found, /aria-label="Cancel: digits"/);
  });

  it('that waits says why and tells changes of its place to those who do not look', () => {
    const waits = reservation(1, { state: 'queued', ahead: 0, reason: 'No GPU is free.' });
    const found = html(
      <Work
        state={state({ workloads: [waits] })}
        status={status({ workloads: [waits] })}
        begin=""
        now={NOON}
        run={run}
      />
    );
    assert.match(found, /No GPU is free\./);
    assert.match(found, /aria-live="polite">a.ipynb: 1st in line</);
  });

  it('that the document leaves out is counted', () => {
    const many = status({ workloads: [work(1)], more_of_mine: 3 });
    assert.match(
      text(<Work state={state()} status={many} begin="" now={NOON} run={run} />),
      /3 waiting jobs/
    );
  });
});

describe('what ended lately', () => {
  const over = (id: number, more: object = {}): ReturnType<typeof work> =>
    work(id, { state: 'ended', end: 'succeeded', attempt: 1, ended_at: NOON - 600, ...more });
  const fold = (...recent: ReturnType<typeof work>[]): string =>
    html(<Ended recent={recent} caller="ada" now={NOON} run={run} />);

  it('is a line each with its log, at most five, and can be cleared', () => {
    const found = fold(...[1, 2, 3, 4, 5, 6].map(id => over(id)));
    assert.equal(found.match(/data-gpu="workload" data-id/g)?.length, 5);
    assert.equal(found.match(/data-gpu="log-open"/g)?.length, 5);
    assert.match(found, /data-gpu="workload-state">succeeded</);
    assert.match(found, /data-gpu="ended-clear"/);
    assert.equal(fold(), '');
    assert.doesNotMatch(fold(reservation(1, { state: 'ended' })), /log-open/);
  });

  it('is folded unless one failed or ended just now', () => {
    const isOpen = (...recent: ReturnType<typeof work>[]): boolean =>
      /<details[^>]* open/.test(fold(...recent));
    assert.equal(isOpen(over(1), over(2)), false);
    assert.equal(isOpen(over(1), over(2, { end: 'failed' })), true);
    assert.equal(isOpen(over(1, { end: 'cancelled', ended_at: NOON - 30 })), true);
  });

  it('says who cancelled it', () => {
    const it_ = over(1, { end: 'cancelled', detail: 'cancelled by ada' });
    assert.match(fold(it_), /Cancelled by you\./);
  });
});

describe('the dialog for a job', () => {
  const typed: IJobText = {
    devices: '2',
    hours: '',
    queue: '',
    name: 'x',
    words: '--lr 1',
    parameters: {},
    more: ''
  };

  it('says what is wrong with what is typed', () => {
    const wrong = (more: Partial<IJobText>): string => jobFlaw({ ...typed, ...more }, status());
    assert.equal(wrong({}), '');
    assert.equal(wrong({ devices: '0' }), '');
    assert.equal(wrong({ devices: '8' }), 'There are only 2 GPUs here.');
    for (const devices of ['', '-3', '1.5']) {
      assert.match(wrong({ devices }), /^GPUs: a whole number/);
    }
    assert.match(wrong({ hours: '-1' }), /^Hours/);
    assert.equal(jobFlaw({ ...typed, devices: '8' }, status({ devices: [] })), '');
  });

  it('has what was typed again, with the reason of a refusal, and bounds of its fields', () => {
    const found = html(
      <JobFields
        isNotebook={false}
        notebook={null}
        queues={[]}
        status={status()}
        begin={typed}
        refusal="No."
        onTyped={run}
      />
    );
    assert.match(found, /data-gpu="submit-flaw">No\.</);
    assert.match(found, /max="2"/);
    assert.match(found, /value="--lr 1"/);
  });

  it('leaves to the broker what was left empty', () => {
    assert.deepEqual(jobOf('a.py', { ...typed, name: ' ', words: '' }), {
      path: 'a.py',
      devices: 2
    });
    assert.equal(jobOf('a.py', { ...typed, hours: '0.5' }).duration_seconds, 1800);
  });
});

describe('a kernel', () => {
  const held = kernel({ devices: ['GPU-0'], workload: 1, pinned: true });

  it('whose tab is closed is listed with what it holds and a way to stop it (jupyter/notebook#5421)', () => {
    const found = html(
      <Kernels state={state({ workloads: [reservation(1)] }, [held])} now={NOON + 60} run={run} />
    );
    assert.match(found, /a\.ipynb/);
    assert.match(found, /GPU 0 · 8 GiB in use · active 1 min ago/);
    for (const action of ['kernel-open', 'kernel-submit', 'kernel-release', 'kernel-stop']) {
      assert.match(found, new RegExp(`data-gpu="${action}"`));
    }
    assert.match(found, /is not kept/);
  });

  it('that is idle and still holds memory is named (tensorflow/tensorflow#8021)', () => {
    const devices = [device(0, { memory_used_bytes: 7.6 * GIB, utilisation_percent: 0 })];
    const row = (now: number, more = {}): string =>
      text(
        <KernelRow it={{ ...held, ...more }} status={status({ devices })} now={now} run={run} />
      );
    assert.match(row(NOON + 1500), /Idle kernel holds 7.6 GiB, for 25 min now/);
    assert.doesNotMatch(row(NOON + 60), /Idle kernel/);
    assert.doesNotMatch(row(NOON + 1500, { execution_state: 'busy' }), /Idle kernel/);
  });

  it('that was restarted after a crash says so (jupyter-server/jupyter_server#1395)', () => {
    const crashed = { ...held, reason: 'restarted after a crash' };
    const said = text(<KernelRow it={crashed} status={null} now={NOON} run={run} />);
    assert.match(said, /Restarted after a crash\./);
  });

  it('without a GPU is not in the list', () => {
    assert.equal(html(<Kernels state={state({}, [kernel()])} now={NOON} run={run} />), '');
  });
});

describe('the form', () => {
  const form = (more: object, targets = [{ kernel: 'k1', name: 'a.ipynb' }]): string => {
    const now = state(more);
    return html(
      <ReserveForm
        state={now}
        status={now.status ?? status()}
        targets={targets}
        defaults={{ devices: 1, hours: 2 }}
        now={NOON}
        run={run}
      />
    );
  };

  it('has what can be chosen here, and no more', () => {
    const plain = form({});
    for (const field of ['reserve-devices', 'reserve-hours', 'reserve-submit']) {
      assert.match(plain, new RegExp(`data-gpu="${field}"`));
    }
    assert.doesNotMatch(plain, /reserve-class|reserve-memory/);
    const mixed = [device(0), device(1, { device_class: 'h100', shareable: true })];
    assert.match(form({ devices: mixed }), /reserve-class[^]*reserve-memory/);
  });

  it('says what is wrong, and asks for nothing of that kind', () => {
    for (const devices of ['0', '-3', '', '1.5']) {
      assert.match(flaw(devices, '2'), /^GPUs/);
    }
    for (const hours of ['-1', '', '0', '0.1']) {
      assert.match(flaw('1', hours), /^Hours/);
    }
    assert.match(flaw('1', '2', '-4'), /^GiB/);
    assert.equal(flaw('1', '2', '4'), '');
    const two = html(
      <ReserveForm
        state={state()}
        status={status()}
        targets={[{ kernel: 'k1', name: 'a.ipynb' }]}
        defaults={{ devices: 3, hours: 2 }}
        now={NOON}
        run={run}
      />
    );
    assert.match(two, /only 2 GPUs here[^]*disabled/);
  });

  it('does not ask twice for one kernel', () => {
    assert.match(form({ workloads: [reservation(1)] }), /disabled/);
    assert.doesNotMatch(form({}), /disabled/);
  });

  it('without a notebook says what is missing', () => {
    assert.match(form({}, []), /Open a notebook/);
  });
});

describe('quota', () => {
  it('is a row for each bound, or nothing', () => {
    const quotas = [{ rule: 'you', devices_held: 2, devices_allowed: 2 }];
    assert.match(html(<Quotas quotas={quotas} now={NOON} />), /data-gpu="quota"[^]*0 left/);
    assert.equal(html(<Quotas quotas={[]} now={NOON} />), '');
  });
});

describe('a sentence', () => {
  it('shows what is to be typed as such, and a lone backtick as it is', () => {
    assert.equal(html(<Sentence text="Run `x y` now." />), 'Run <code>x y</code> now.');
    assert.equal(html(<Sentence text="a ` b" />), 'a ` b');
  });
});

describe('drawings', () => {
  it('of what is not known are not there: an empty bar would be a measurement', () => {
    assert.equal(html(<Meter label="" text="" part={null} />), '');
    assert.match(html(<Meter label="m" text="8 of 80" part={0.1} />), /aria-valuenow="10"/);
  });

  it('break a curve where a value is missing', () => {
    assert.equal(curve([0, 100, null, 50], 5).replace(/[\d. ]/g, ''), 'MLM');
    assert.equal(curve([], 5), '');
  });

  it('of any number fit between its lowest and its highest; one that never moves is in the middle', () => {
    const heights = (path: string): string[] => [...path.matchAll(/ ([\d.]+)/g)].map(it_ => it_[1]);
    assert.deepEqual(heights(curve([-2, 0, 2], 3, [-2, 2])), ['15.0', '8.0', '1.0']);
    assert.deepEqual(heights(curve([7, 7], 2, [7, 7])), ['8.0', '8.0']);
  });
});
