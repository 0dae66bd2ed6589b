import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { type IJobText, JobFields, jobFlaw, parametersOf } from '../src/jobform';
import { bodyOf, jsonOf, kindOf, pairsOf } from '../src/parameters';
import type { NotebookView } from '../src/types';
import { status } from './builders';

const TYPED: IJobText = {
  devices: '1',
  hours: '',
  queue: '',
  name: '',
  words: '',
  parameters: {},
  more: ''
};
const NOTEBOOK: NotebookView = {
  path: 'a.ipynb',
  kernel: 'python3',
  has_parameters_cell: true,
  parameters: [
    { name: 'lr', default: '0.1', type: 'float', help: 'the step' },
    { name: 'data', default: "'mnist'" }
  ]
};

describe('what is typed for a parameter', () => {
  it('means what JSON says, as on the command line, else itself (nteract/papermill#84)', () => {
    const kinds = [
      '0.1',
      '"0.1"',
      'true',
      'null',
      '[1, 2]',
      '{"a": 1}',
      'adam',
      '1e-3',
      'NaN',
      'é'
    ];
    assert.deepEqual(kinds.map(kindOf), [
      'number',
      'text',
      'true or false',
      'nothing',
      'list',
      'object',
      'text',
      'number',
      'text',
      'text'
    ]);
  });

  it('is sent as it was typed: no float becomes a whole number, and no large one another', () => {
    assert.equal(jsonOf('1.0'), '1.0');
    assert.equal(jsonOf(' 12345678901234567890 '), '12345678901234567890');
    assert.equal(jsonOf('"0.1"'), '"0.1"');
    assert.equal(jsonOf('say "hi"'), '"say \\"hi\\""');
    assert.equal(jsonOf('1e999'), '"1e999"');
  });

  it('goes into the request beside the rest; what is empty keeps the notebook’s own', () => {
    const job = { path: 'a.ipynb', devices: 1 };
    assert.equal(
      bodyOf(job, { lr: '1.0', 'a"b': 'x', data: ' ' }),
      '{"path":"a.ipynb","devices":1,"parameters":{"lr":1.0,"a\\"b":"x"}}'
    );
    assert.equal(bodyOf(job, { lr: '' }), JSON.stringify(job));
  });

  it('may be a line of names and values', () => {
    assert.deepEqual(pairsOf('lr=0.1 data="a b" url=x=y'), { lr: '0.1', data: 'a b', url: 'x=y' });
    assert.deepEqual(pairsOf(''), {});
    assert.equal(pairsOf('lr'), null);
    assert.equal(pairsOf('=1'), null);
  });
});

describe('the form for the parameters of a notebook', () => {
  const form = (notebook: NotebookView | null, typed: Partial<IJobText> = {}): string =>
    renderToStaticMarkup(
      <JobFields
        isNotebook
        notebook={notebook}
        queues={[]}
        status={status()}
        begin={{ ...TYPED, ...typed }}
        refusal=""
        onTyped={() => undefined}
      />
    );

  it('has a field for each, with its default, its type and what it means', () => {
    const found = form(NOTEBOOK, { parameters: { lr: '"0.1"' } });
    assert.match(found, /title="the step"><span>lr: float \(text\)<\/span>/);
    assert.match(found, /data-name="lr"[^>]*placeholder="0\.1" value="&quot;0\.1&quot;"/);
    assert.match(found, /data-name="data"[^>]*placeholder="&#x27;mnist&#x27;"/);
    assert.match(found, /<span>data<\/span>/);
    assert.doesNotMatch(found, /submit-more|submit-note/);
  });

  it('warns before anything is sent that no cell takes them (nteract/papermill#637)', () => {
    const none = { ...NOTEBOOK, has_parameters_cell: false, parameters: [] };
    const found = form(none, { more: 'lr=0.1' });
    assert.match(found, /No cell of it is tagged <code>parameters<\/code>/);
    assert.match(found, /data-gpu="submit-more"/);
    const twice = form({ ...NOTEBOOK, notes: ['2 cells of a.ipynb are tagged `parameters`'] });
    assert.match(twice, /2 cells of a\.ipynb are tagged <code>parameters<\/code>/);
  });

  it('of a server that says nothing of them is not there', () => {
    assert.doesNotMatch(form(null), /submit-parameters/);
  });

  it('says what is no parameter', () => {
    const typed = { ...TYPED, more: 'lr' };
    assert.match(jobFlaw(typed, status(), NOTEBOOK), /NAME=VALUE/);
    assert.equal(jobFlaw(typed, status()), '');
    const both = { ...TYPED, more: 'a=1 lr=2', parameters: { lr: '3' } };
    assert.deepEqual(parametersOf(both, NOTEBOOK), { a: '1', lr: '3' });
    assert.deepEqual(parametersOf(both, null), {});
  });
});
