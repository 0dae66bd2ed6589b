import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';

import { Refusal } from '../src/api';
import { type IPageData, ServiceApi, troubleOf } from '../src/page/service';
import { status, work } from './builders';

const DATA: IPageData = {
  api: '/lab/services/jupyter-gpu/api/v1',
  xsrf: '2|abc',
  caller: 'ana',
  scopes: ['read'],
  hub: '/lab/hub/',
  spawn: '/lab/hub/spawn',
  version: '0.1.0'
};

describe('the service', () => {
  let asked: { path: string; init: RequestInit }[];
  let answer: () => Response;
  const api = new ServiceApi(DATA);

  beforeEach(() => {
    asked = [];
    answer = () => new Response(JSON.stringify(work(7)));
    mock.method(globalThis, 'fetch', (path: string, init: RequestInit) => {
      asked.push({ path, init });
      return Promise.resolve(answer());
    });
  });

  afterEach(() => {
    mock.reset();
  });

  it('is shown the header by which it knows its page with every request, also to read', async () => {
    await api.workload(7);
    await api.cancel(7);
    await api.log(7, { offset: 0, limit: 10 });
    await api.live('queued', 100, 12);
    await api.mark('GPU-1', 'drain', 'new fans');
    const socket = api.connect();
    socket.close();
    assert.deepEqual(
      asked.map(it => it.path.slice(DATA.api.length)),
      [
        '/workloads/7',
        '/workloads/7/cancel',
        '/workloads/7/log?offset=0&limit=10',
        '/workloads?ended=false&state=queued&limit=100&after=12',
        '/devices/GPU-1/drain',
        '/stream'
      ]
    );
    for (const { path, init } of asked) {
      assert.ok(path.startsWith(DATA.api));
      const headers = new Headers(init.headers);
      assert.equal(headers.get('X-XSRFToken'), '2|abc');
      assert.equal(headers.has('Authorization'), false);
      assert.equal(init.credentials, 'same-origin');
    }
  });

  it('is told a reason where there is one', async () => {
    await api.cancel(7, 'maintenance');
    await api.mark('GPU-1', 'cordon');
    assert.deepEqual(
      asked.map(it => it.init.body),
      ['{"reason":"maintenance"}', '{}']
    );
  });

  it('refuses in the words of the broker', async () => {
    const said = { code: 'not-allowed', message: 'It is not yours.', hint: 'Ask ana.' };
    answer = () => new Response(JSON.stringify(said), { status: 403 });
    await assert.rejects(api.cancel(7), (error: Refusal) => {
      assert.deepEqual([error.status, error.message, error.hint], [403, said.message, said.hint]);
      return true;
    });
  });

  it('tells the whole from what changed, and that it lives from both', () => {
    assert.equal(api.frameOf(JSON.stringify({ status: status(), revision: 1 }))?.type, 'status');
    assert.equal(api.frameOf('{"revision":2,"waiting":{}}')?.type, 'change');
    assert.equal(api.frameOf('{}'), null);
  });

  it('says that the login is over, and of all else that it is tried again', async () => {
    const links: Record<string, string> = {};
    for (const code of [200, 401, 403, 404, 500, 503]) {
      answer = () => new Response('{}', { status: code });
      links[code] = (await api.diagnose()).link;
    }
    assert.deepEqual(links, {
      200: 'lost',
      401: 'expired',
      403: 'expired',
      404: 'lost',
      500: 'lost',
      503: 'lost'
    });
  });

  it('is told by its own words where it has some, and by none of a proxy', () => {
    const words = (error: unknown): string => troubleOf(error).trouble.message;
    assert.equal(
      words(new Refusal(503, 'unavailable', 'The hub is away.', null)),
      'The hub is away.'
    );
    for (const error of [
      new Refusal(503, '', 'Bad gateway', null),
      new TypeError('fetch failed')
    ]) {
      assert.equal(words(error), 'The GPU service does not answer.');
    }
  });
});
