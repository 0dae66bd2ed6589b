import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';

import type { Api, ILogPart } from '../src/api';
import type { GpuState } from '../src/fold';
import { LogPane } from '../src/logpane';
import type { IGpuModel, ISource } from '../src/model';
import { state, work } from './builders';

/** As much of an element as a log needs. */
class Element {
  textContent = '';
  readonly children: Element[] = [];
  readonly dataset: Record<string, string> = {};
  readonly classList = { add: (): void => undefined };
  readonly scrollHeight = 0;
  readonly scrollTop = 0;
  readonly clientHeight = 0;

  setAttribute(): void {
    // Nobody looks.
  }

  appendChild(it_: Element): void {
    this.children.push(it_);
  }

  get text(): string {
    return this.textContent + this.children.map(it_ => it_.text).join('');
  }
}

async function pass(ms: number): Promise<void> {
  for (let past = 0; past < ms; past += 100) {
    mock.timers.tick(100);
    for (let turn = 0; turn < 20; turn += 1) {
      await Promise.resolve();
    }
  }
}

describe('the log of a job that is over', () => {
  let node: Element;
  let asked: { log: number; workload: number };
  let tell: (known: GpuState) => void;
  let pane: LogPane<Api & ISource>;

  beforeEach(() => {
    mock.timers.enable({ apis: ['setTimeout'] });
    const page = { hidden: false, createElement: () => new Element() };
    Object.assign(globalThis, { document: page, window: globalThis });
    node = new Element();
    asked = { log: 0, workload: 0 };
    const over = work(7, { state: 'ended', end: 'succeeded', attempt: 1 });
    let changed = (): void => undefined;
    let known = state();
    const model = {
      get state(): GpuState {
        return known;
      },
      api: {
        log: (_: number, query: { attempt?: number }): Promise<ILogPart> => {
          asked.log += 1;
          const attempt = query.attempt ?? 1;
          const data = new TextEncoder().encode(`attempt ${attempt} is over\n`);
          return Promise.resolve({ data, attempt, next: data.length, isComplete: true });
        },
        workload: () => {
          asked.workload += 1;
          return Promise.resolve({ ...over });
        }
      },
      changed: {
        connect: (act: () => void, of: object) => (changed = act.bind(of)),
        disconnect: () => (changed = () => undefined)
      }
    } as unknown as IGpuModel<Api & ISource>;
    tell = told => {
      known = told;
      changed();
    };
    const around = { isSeen: () => true, tell: () => undefined };
    pane = new LogPane(node as unknown as HTMLElement, model, 7, around);
    pane.follow();
  });

  afterEach(() => {
    pane.dispose();
    mock.timers.reset();
  });

  it('is read once, and nothing is asked any more', async () => {
    await pass(1000);
    assert.match(node.text, /attempt 1 is over/);
    const before = { ...asked };
    await pass(20_000);
    assert.deepEqual(asked, before);
    assert.equal(asked.log, 1);
  });

  it('goes on with the next attempt as soon as the stream tells of it', async () => {
    await pass(1000);
    tell(state({ workloads: [work(7, { attempt: 2 })] }));
    await pass(1000);
    assert.match(node.text, /attempt 2 is over/);
    assert.equal(asked.log, 2);
  });
});
