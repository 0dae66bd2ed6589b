import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { Alerts } from '../src/alerts';
import { DeviceRow, Devices } from '../src/devices';
import {
  grouped,
  holding,
  memoryDetail,
  processText,
  processesText,
  rightOf,
  roomIn,
  sharedText,
  short,
  troubleOf
} from '../src/devicewords';
import { fold } from '../src/fold';
import { Isolation } from '../src/isolation';
import { KernelRow } from '../src/kernels';
import { notices } from '../src/notices';
import { ReserveForm } from '../src/reserve';
import { classes, isFree, lack, markOf, memoryOf, openAlerts, outlook } from '../src/select';
import type {
  AlertView,
  Change,
  Condition,
  DeviceView,
  Status,
  UseView,
  WorkloadView
} from '../src/types';
import {
  card,
  device,
  GIB,
  kernel,
  NOON,
  occupant,
  part,
  reservation,
  state,
  status,
  work
} from './builders';

const run = (): void => undefined;
const html = (element: React.ReactElement): string => renderToStaticMarkup(element);
const text = (element: React.ReactElement): string => html(element).replace(/<[^>]*>/g, ' ');
const row = (more: object, works: ReturnType<typeof work>[] = []): React.ReactElement => (
  <DeviceRow device={device(0, more)} moments={[]} works={works} now={NOON} />
);
const list = (more: Partial<Status>): React.ReactElement => (
  <Devices status={status(more)} history={{}} now={NOON} without="" />
);

describe('a device', () => {
  it('says in words what is wrong with it', () => {
    const word = (more: object): string => troubleOf(device(0, more))?.word ?? '';
    assert.equal(word({}), '');
    assert.equal(word({ cordoned: true }), 'cordoned');
    assert.equal(word({ condition: 'foreign' }), 'used without a lease');
    assert.equal(word({ condition: 'lost', cordoned: true }), 'lost');
    assert.equal(word({ condition: 'of a newer broker' }), 'of a newer broker');
  });

  it('out of service says what becomes of who is on it, and who says so', () => {
    const out = { cordoned: true, cordoned_by: 'olga', cordon_reason: 'new fans' };
    const notice = { reason: 'drained', yield_by: NOON + 60, detail: 'drained by olga' } as const;
    const others = (more: object): WorkloadView =>
      work(1, { devices: ['GPU-0'], is_mine: false, ...more });
    const leaving = others({ state: 'yielding', notice });
    const said = (...works: WorkloadView[]): string => text(row({ ...out, workloads: [1] }, works));

    const stays = said(others({ state: 'active' }));
    assert.match(stays, /cordoned.*what runs there runs on\. +Cordoned by olga: new fans\./);
    const goes = said(leaving);
    assert.match(
      goes,
      /drained.*who holds it has been told to leave\. +Drained by olga: new fans\./
    );
    assert.doesNotMatch(goes, /runs on|ordoned/);
    assert.match(said({ ...leaving, is_mine: true }), /you have been told to leave\./);
    const nobody = text(row(out));
    assert.match(nobody, /cordoned.*taken it out of service\. +Cordoned by olga: new fans\./);
    // Who sees nothing of others' work is told nothing of it.
    assert.doesNotMatch(said(), /runs on|leave/);
    const hot = text(row({ ...out, condition: 'hot', workloads: [1] }, [leaving]));
    assert.match(hot, /too hot.*told to leave/);
    assert.doesNotMatch(hot, /runs on/);
  });

  it('says what was seen and what it means, whatever is wrong', () => {
    const conditions: Condition[] = [
      'lost',
      'faulty',
      'reset-needed',
      'prohibited',
      'unreadable',
      'hot',
      'suspect',
      'not-clear',
      'foreign'
    ];
    for (const condition of conditions) {
      const said = text(row({ condition, condition_detail: 'so it was seen' }));
      assert.match(said, /So it was seen\./, condition);
      assert.match(said, new RegExp(troubleOf(device(0, { condition }))?.meaning ?? '-'));
      assert.doesNotMatch(said, /\bfree\s*$/);
    }
  });

  it('says who holds it until when', () => {
    const held = device(0, { workloads: [1], holders: ['grace'], free_at: NOON + 7200 });
    assert.equal(holding(held, [], NOON), 'grace until 14:00');
    assert.equal(holding(held, [reservation(1)], NOON), 'a.ipynb until 14:00');
    assert.equal(
      holding(held, [reservation(1, { ends_at: NOON + 3600 })], NOON),
      'a.ipynb until 13:00'
    );
    assert.equal(holding({ ...held, holders: [] }, [], NOON), 'In use until 14:00');
    assert.equal(holding({ ...held, free_at: NOON - 1 }, [], NOON), 'grace');
    assert.equal(holding(device(0), [], NOON), '');
  });

  it('says of a job until when it is but expected', () => {
    const held = device(0, { workloads: [1], holders: ['grace'], free_at: NOON + 7200 });
    assert.equal(holding(held, [work(1, { is_mine: false })], NOON), 'grace, expected until 14:00');
  });

  it('says what stands behind the figure of its memory', () => {
    assert.equal(memoryDetail(device(0)), '8 GiB used, 80 GiB in all');
    const kept = device(0, { memory_reserved_bytes: 0.5 * GIB, memory_used_bytes: null });
    assert.equal(memoryDetail(kept), 'n/a used, 512 MiB kept by the driver, 80 GiB in all');
  });

  it('whose memory is the machine’s says so, and has no figure of its own (wookayin/gpustat#179)', () => {
    const found = html(
      row({ shares_host_memory: true, memory_total_bytes: null, memory_used_bytes: null })
    );
    assert.match(found, /shared with system memory/);
    assert.match(found, />n\/a</);
    assert.doesNotMatch(found, /role="meter"|0 B/);
  });

  it('has its note, and tiles only of what was measured (rapidsai/jupyterlab-nvdashboard#114)', () => {
    const found = text(row({ note: 'it drives a display', power_watts: 61.6 }));
    assert.match(found, /It drives a display\./);
    assert.match(found, /62 W/);
    assert.doesNotMatch(text(row({ temperature_celsius: null })), /°C|\bW\b/);
  });
});

describe('MIG devices', () => {
  const board = {
    devices: [device(1), part(7, 0), part(8, 1, { workloads: [1], holders: ['grace'] })],
    cards: [card(0)]
  };

  it('stand under their card, by their number, and the card is none itself', () => {
    const found = html(list(board));
    assert.match(
      found,
      /data-gpu="card" data-uuid="GPU-card-0"[^]*GPU 0<[^]*GPU 0:0[^]*GPU 0:1[^]*data-uuid="GPU-1"/
    );
    assert.match(found, /aria-label="2 MIG devices of GPU 0"/);
    const head = found.slice(found.indexOf('data-gpu="card"'), found.indexOf('data-gpu="device"'));
    assert.match(head, /20 \/ 80 GiB[^]*>n\/a<[^]*44 °C[^]*120 W/);
    assert.doesNotMatch(head, /free/);
    assert.match(text(list(board)), /2 of 3 free/);
  });

  it('are named by their profile beside their card, which has the rest', () => {
    assert.match(text(list(board)), /GPU 0:0\s+MIG 1g\.10gb/);
    assert.equal(short({ name: 'NVIDIA A100-SXM4-40GB' }), 'A100-SXM4-40GB');
  });

  it('are missing where a card has none, which says so', () => {
    const found = text(list({ devices: [], cards: [card(0)] }));
    assert.match(found, /GPU 0[^]*in MIG mode and has no MIG devices/);
    assert.doesNotMatch(found, /No GPU on this server/);
  });

  it('without a card that is known stand by themselves', () => {
    assert.deepEqual(
      grouped([part(7, 1), device(1)], []).map(it => it.devices[0].number),
      ['0:1', '1']
    );
    assert.match(html(list({ devices: [part(7, 1)], cards: [] })), /GPU 0:1/);
  });

  it('are gone where their card has left MIG mode: then it is a device', () => {
    const left = grouped([device(0, { uuid: 'GPU-card-0' })], [card(0)]);
    assert.deepEqual(
      left.map(it => it.card),
      [null]
    );
    const lost = device(0, { uuid: 'GPU-card-0', condition: 'lost' });
    assert.equal(grouped([lost, part(7, 0)], [card(0)]).length, 2);
  });

  it('are reserved one at a time, since CUDA lets a program use only one', () => {
    const known = status(board);
    const ask = (count: number, deviceClass: string | null): Parameters<typeof lack>[1] => ({
      count,
      deviceClass,
      memory: 0
    });
    assert.equal(lack(known, ask(1, '1g.10gb')), '');
    assert.equal(lack(known, ask(2, '1g.10gb')), 'A program can use one MIG device at a time.');
    assert.match(
      lack(known, ask(2, null)),
      /one MIG device at a time, and there is only 1 whole GPU/
    );
    assert.equal(lack(known, ask(4, null)), 'There is only 1 GPU here.');
    assert.deepEqual(
      classes(known).map(it => `${it.name}: ${it.text}`),
      ['1g.10gb: 1 of 2 free, one at a time', 'a100: 1 of 1 free']
    );
  });
});

describe('a shared device', () => {
  const shared = (more: Partial<DeviceView> = {}): DeviceView =>
    device(0, {
      shareable: true,
      workloads: [1],
      holders: ['grace'],
      memory_leased_bytes: 20 * GIB,
      memory_used_bytes: 12 * GIB,
      ...more
    });

  it('says what of it is leased and what is free, less of it where more is really used', () => {
    assert.equal(sharedText(shared()), 'Shared: 20 of 80 GiB leased, 60 GiB free');
    assert.equal(roomIn(shared({ memory_used_bytes: 50 * GIB })), 30 * GIB);
    assert.equal(roomIn(shared({ memory_reserved_bytes: GIB })), 59 * GIB);
    assert.equal(roomIn(shared({ memory_used_bytes: null })), 60 * GIB);
    assert.equal(roomIn(shared({ memory_total_bytes: null })), null);
    assert.match(text(row(shared())), /60 GiB free/);
    assert.match(text(row(shared({ memory_leased_bytes: 80 * GIB }))), /in use/);
  });

  it('that is held whole is in use, and one that nobody holds is free whole', () => {
    assert.equal(sharedText(shared({ memory_leased_bytes: null })), '');
    assert.match(text(row(shared({ memory_leased_bytes: null }))), /in use/);
    const idle = shared({ workloads: [], holders: [], memory_leased_bytes: null });
    assert.equal(isFree(idle), true);
    assert.match(sharedText(idle), /^Shared: 0 of 80 GiB leased, 68 GiB free/);
  });

  it('can be asked for in parts, and only it', () => {
    const known = status({ devices: [shared(), device(1)] });
    const ask = (memory: number, count = 1): Parameters<typeof lack>[1] => ({
      count,
      deviceClass: null,
      memory: memory * GIB
    });
    assert.equal(outlook(known, ask(20), NOON), '20 GiB free on 1 of 1 GPU now.');
    assert.equal(outlook(known, ask(70), NOON), 'No GPU is free now; you would wait.');
    assert.match(lack(known, ask(20, 2)), /only 1 such GPU here that is shared and has 20 GiB/);
    assert.match(lack(known, ask(90)), /no such GPU here that is shared and has 90 GiB/);
  });

  it('is what the form offers a part of', () => {
    const form = (devices: DeviceView[]): string => {
      const now = state({ devices });
      return html(
        <ReserveForm
          state={now}
          status={now.status ?? status()}
          targets={[{ kernel: 'k1', name: 'a.ipynb' }]}
          defaults={{ devices: 1, hours: 2 }}
          now={NOON}
          run={run}
        />
      );
    };
    assert.match(form([shared()]), /data-gpu="reserve-memory"/);
    assert.doesNotMatch(form([device(0)]), /data-gpu="reserve-memory"/);
    assert.match(form([device(1), part(7, 0)]), /1g\.10gb \(1 of 1 free, one at a time\)/);
  });
});

describe('who is on a device', () => {
  const uses = [
    occupant(11, { kind: 'holder', foreign: false, workload: 1, user: 'ada' }),
    occupant(4711)
  ];

  it('stands under a fold that a keyboard opens, with what is foreign said in words', () => {
    const found = html(row({ uses }, [work(1)]));
    assert.match(found, /<details[^>]*data-gpu="uses"><summary>/);
    assert.match(found, /On GPU 0: <\/span>2 processes, 1 of them without a lease/);
    assert.match(found, /python \(11\) · ada · 7\.6 GiB · digits/);
    assert.equal(found.match(/>no lease</g)?.length, 1);
    assert.doesNotMatch(html(row({})), /data-gpu="uses"/);
  });

  it('is counted', () => {
    assert.equal(processesText([occupant(1)]), '1 process without a lease');
    assert.equal(
      processesText([occupant(1, { foreign: false }), occupant(2, { foreign: false })]),
      '2 processes'
    );
  });

  it('is said as far as it is known, and n/a where it is not', () => {
    const hidden = occupant(4711, { name: '', user: null, memory_bytes: null, kind: 'unknown' });
    assert.equal(processText(hidden, []), 'process 4711 · n/a · whose it is cannot be told here');
    const cases: [Partial<UseView>, string][] = [
      [{ kind: 'holder', workload: 3 }, 'workload 3'],
      [{ kind: 'astray', workload: 3 }, 'outside its reservation: workload 3'],
      [
        { kind: 'kernel', where: 'kernel 3f2a91c0-1b2c-4d5e-8f90-0a1b2c3d4e5f' },
        'a kernel without a lease: kernel 3f2a91c0'
      ],
      [{ kind: 'container', where: 'docker 0123' }, 'a container without a lease: docker 0123'],
      [
        { kind: 'kernel', where: 'kernel 3f2a91c0', server: 'big', notebook: 'train.ipynb' },
        'a kernel without a lease: kernel 3f2a91c0, server big, notebook train.ipynb'
      ],
      [{ kind: 'kernel', where: 'a kernel', server: '' }, 'a kernel without a lease: a kernel'],
      [
        { kind: 'holder', workload: 3, server: 'big', notebook: 'train.ipynb' },
        'workload 3, server big, notebook train.ipynb'
      ],
      [{ kind: 'user', claim: 'ana' }, 'without a lease: by its own word of ana'],
      [{ kind: 'dead' }, 'has ended, its memory is still counted'],
      [{ kind: 'system' }, 'the machine’s own'],
      [{ kind: 'user' }, 'without a lease'],
      [{ kind: 'of a newer broker' as 'user' }, 'of a newer broker']
    ];
    for (const [more, said] of cases) {
      assert.equal(rightOf(occupant(1, more), []), said);
    }
  });

  it('is named by its owner, and by its account where that is nobody’s alone', () => {
    const anas = occupant(4711, { name: 'python', user: 'lab', owner: 'ana', kind: 'user' });
    const nobodys = occupant(4711, { name: 'python', user: 'lab', kind: 'user' });
    assert.match(processText(anas, []), /^python \(4711\) · ana · /);
    assert.match(processText(nobodys, []), /^python \(4711\) · lab · /);
  });

  it('cannot put markup into the page', () => {
    const name = '<img src=x onerror=alert(1)>';
    const found = html(
      row({ uses: [occupant(1, { name, user: name, where: name, kind: 'container' })], note: name })
    );
    assert.doesNotMatch(found, /<img/);
  });
});

describe('the badge of isolation', () => {
  it('says whether it is enforced, and on what evidence', () => {
    const enforced = html(
      <Isolation it={{ enforced: true, by: 'landlock', detail: 'probed 4' }} />
    );
    assert.match(enforced, /title="Jobs can open no GPU but their own \(landlock\)\. Probed 4\."/);
    assert.match(enforced, />enforced</);
    assert.match(html(<Isolation it={{ enforced: false }} />), />advisory</);
    assert.equal(html(<Isolation it={null} />), '');
  });

  it('is not there where devices are made up', () => {
    const isolation = { enforced: false };
    assert.match(html(list({ isolation })), /data-gpu="isolation"/);
    assert.doesNotMatch(html(list({ isolation, simulated: true })), /data-gpu="isolation"/);
  });
});

describe('alerts', () => {
  const hot: AlertView = {
    key: 'hot GPU-0',
    since: NOON - 300,
    text: 'GPU 0 is at 91 °C',
    device: 'GPU-0'
  };

  it('are read out, and each can be put away by a button that says which', () => {
    const found = html(<Alerts state={state({ alerts: [hot] })} now={NOON} run={run} />);
    assert.match(found, /^<div[^>]*role="status"[^>]*><div>GPU 0 is at 91 °C\.<\/div><\/div>/);
    assert.match(found, /<ul[^>]*aria-label="Alerts">[^]*GPU 0 is at 91 °C\.[^]*5 min ago/);
    assert.match(found, /aria-label="Put away: GPU 0 is at 91 °C\."/);
    assert.doesNotMatch(html(<Alerts state={state()} now={NOON} run={run} />), /<ul/);
  });

  it('that were put away come back when they change, not when a figure moves', () => {
    const after = (alert: AlertView): number =>
      openAlerts({ ...state({ alerts: [alert] }), dismissed: [markOf(hot)] }).length;
    assert.equal(after(hot), 0);
    assert.equal(after({ ...hot, text: 'GPU 0 is at 92.5 °C' }), 0);
    assert.equal(after({ ...hot, text: 'GPU 0 is slowed down' }), 1);
    assert.equal(after({ ...hot, since: NOON }), 1);
  });

  it('of idleness can be answered by keeping it, in the panel and in the notice', () => {
    const idle: AlertView = {
      key: 'idle:1',
      since: NOON,
      text: 'a.ipynb: It has been idle since 11:40; it is given back at 12:10 unless you keep it',
      workload: 1
    };
    const found = html(<Alerts state={state({ alerts: [idle] })} now={NOON} run={run} />);
    assert.match(found, /data-gpu="keep"[^>]*>Keep</);
    assert.doesNotMatch(
      html(<Alerts state={state({ alerts: [hot] })} now={NOON} run={run} />),
      /data-gpu="keep"/
    );
    const told = (alert: AlertView): readonly string[] =>
      notices(state({ workloads: [reservation(1)], alerts: [alert] }), NOON)[0].actions;
    assert.deepEqual(told(idle), ['keep', 'release']);
    assert.deepEqual(told(hot), ['panel']);
  });

  it('of one’s own work are notices too, once, and instead of what was told the kernel', () => {
    const above: AlertView = {
      key: 'above 1',
      since: NOON,
      text: 'it uses more than its 20 GiB',
      workload: 1
    };
    const told = kernel({ workload: 1, told: 'You use 21 of 20 GiB' });
    const messages = (alerts: AlertView[], kernels: ReturnType<typeof kernel>[]): string[] =>
      notices(state({ workloads: [reservation(1)], alerts }, kernels), NOON).map(it => it.message);
    const other = { ...hot, key: 'hot GPU-1', device: 'GPU-1' };
    assert.deepEqual(messages([above, other], [told]), ['It uses more than its 20 GiB.']);
    assert.deepEqual(messages([hot, other], [kernel()]), ['GPU 0 is at 91 °C.']);
    assert.deepEqual(messages([], [told]), ['a.ipynb: You use 21 of 20 GiB.']);
    assert.deepEqual(messages([other], [kernel()]), []);
    const keys = (alerts: AlertView[]): string[] =>
      notices(state({ workloads: [reservation(1)], alerts }, [told]), NOON).map(
        it => `${it.key} ${it.mark ? 'marked' : ''}`
      );
    assert.deepEqual(keys([above]), ['1 trouble 0 marked']);
    assert.deepEqual(keys([]), ['1 trouble 0 ']);
  });
});

describe('a kernel on its GPU', () => {
  const held = kernel({
    devices: ['GPU-0'],
    workload: 1,
    pinned: true,
    last_activity: NOON - 1800
  });
  const mib = 1024 ** 2;
  const on = (more: Partial<DeviceView>): Status =>
    status({
      devices: [
        device(0, {
          memory_total_bytes: 8113 * mib,
          memory_used_bytes: 7900 * mib,
          utilisation_percent: 0,
          uses: [
            occupant(7, { kind: 'holder', foreign: false, workload: 1, memory_bytes: 7786 * mib })
          ],
          ...more
        })
      ],
      workloads: [reservation(1)]
    });
  const said = (more: Partial<DeviceView>): string =>
    html(<KernelRow it={held} status={on(more)} now={NOON} run={run} />);

  it('that is idle and holds memory says how much, with what frees it (hammerlab/flowdec#13)', () => {
    const found = said({});
    assert.match(found, /Idle kernel holds 7\.6 GiB, for 30 min now/);
    assert.match(found, /data-gpu="kernel-free"[^]*data-gpu="kernel-release"/);
    assert.match(found, /counts against your quota as long as it is reserved/);
  });

  it('is not called idle while its GPU computes', () => {
    assert.doesNotMatch(said({ utilisation_percent: 3 }), /Idle kernel/);
  });

  it('has the memory of its own processes, not that of others on the device', () => {
    const others = occupant(9, {
      kind: 'holder',
      foreign: false,
      workload: 2,
      memory_bytes: 5 * GIB
    });
    const own = on({}).devices[0].uses ?? [];
    assert.equal(memoryOf(held, on({ uses: [others, ...own] })), 7786 * mib);
    assert.equal(memoryOf(held, on({ uses: [], memory_leased_bytes: GIB })), null);
    assert.equal(memoryOf(held, on({ uses: [occupant(1)] })), null);
    assert.equal(memoryOf(held, on({ uses: [] })), 7900 * mib);
  });

  it('that is told something shows it', () => {
    const told = { ...held, told: 'You use more than your part' };
    assert.match(
      text(<KernelRow it={told} status={null} now={NOON} run={run} />),
      /You use more than your part\./
    );
  });
});

describe('the stream', () => {
  const after = (change: Change): ReturnType<typeof state> =>
    fold(
      state({ devices: [device(0, { uses: [occupant(1)] })], cards: [card(0)], alerts: [] }),
      { type: 'change', change },
      NOON
    );

  it('brings readings without uses, which stay, and the cards with a history of their own', () => {
    const sample = device(0, {
      memory_used_bytes: GIB,
      memory_reserved_bytes: 5,
      sampled_at: NOON + 1
    });
    const told = after({
      samples: [sample],
      cards: [card(0, { temperature_celsius: 50, sampled_at: NOON + 1 })]
    });
    assert.equal(told.status?.devices[0].uses?.length, 1);
    assert.equal(told.status.devices[0].memory_reserved_bytes, 5);
    assert.equal(told.status.cards?.[0].temperature_celsius, 50);
    assert.equal(told.history['GPU-card-0'].length, 2);
  });

  it('brings the cards whole with each sample, also where nothing else is sampled', () => {
    assert.equal(after({ cards: [card(0, { power_watts: 5 })] }).status?.cards?.[0].power_watts, 5);
    assert.equal(after({ samples: [device(0)] }).status?.cards?.length, 0);
    assert.equal(after({ revision: 11 }).status?.cards?.length, 1);
  });

  it('brings the alerts whole with each line: what it leaves out is over', () => {
    const alerts = [{ key: 'a', since: NOON, text: 'x' }];
    assert.equal(after({ revision: 11, alerts }).status?.alerts?.length, 1);
    assert.deepEqual(after({ revision: 12 }).status?.alerts, []);
    assert.equal(after({ revision: 12, devices: [device(0)] }).status?.devices[0].uses, undefined);
  });
});
