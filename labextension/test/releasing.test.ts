import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import { releaseQuestion } from '../src/releasing';
import { kernel, reservation, state } from './builders';

const HERE = { user: 'ana', name: '' };
const ofServer = (name: string) => reservation(1, { holder: { kind: 'server', name } });

describe('before a reservation is given back', () => {
  it('of this very server, it is said that the server ends', () => {
    const asked = releaseQuestion(ofServer('ana/'), state(), HERE);
    assert.equal(asked.title, 'Release GPU 0 and end this server?');
    assert.match(asked.body, /the whole server that you are working in/);
    assert.match(asked.body, /what is not saved is lost/);
    assert.equal(asked.yes, 'Release and end the server');
  });

  it('of a named server, this one is known by its name', () => {
    const named = releaseQuestion(ofServer('ana/train'), state(), { user: 'ana', name: 'train' });
    assert.match(named.title, /this server/);
  });

  it('of another server, it is said which one ends', () => {
    const other = releaseQuestion(ofServer('ana/train'), state(), HERE);
    assert.equal(other.title, 'Release GPU 0 and end your server “train”?');
    const usual = releaseQuestion(ofServer('ana/'), state(), { user: 'ana', name: 'train' });
    assert.equal(usual.title, 'Release GPU 0 and end your default server?');
    const away = releaseQuestion(ofServer('ana/'), state(), null);
    assert.equal(away.title, 'Release GPU 0 and end your default server?');
  });

  it('of a kernel of this server, it is said that the kernel may be restarted', () => {
    const asked = releaseQuestion(reservation(1), state({}, [kernel()]), HERE);
    assert.equal(asked.title, 'Release GPU 0?');
    assert.match(asked.body, /the kernel is restarted without/);
  });

  it('of anything else, it is said that what runs there is ended', () => {
    const asked = releaseQuestion(reservation(1), state(), HERE);
    assert.equal(asked.body, 'What a.ipynb runs on it is ended.');
  });
});
