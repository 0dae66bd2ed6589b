import assert from 'node:assert/strict';
import { it } from 'node:test';

import { endWord, plainText, splitWords } from '../src/words';

it('a line of arguments is split as people mean it, and nothing in it is a shell', () => {
  const cases: [string, string[]][] = [
    ['', []],
    ['  --lr 0.1  --name x ', ['--lr', '0.1', '--name', 'x']],
    [`--title "two words" --q 'it is "so"'`, ['--title', 'two words', '--q', 'it is "so"']],
    [`--json '{"a": [1, 2]}'`, ['--json', '{"a": [1, 2]}']],
    ['a\\ b c', ['a b', 'c']],
    [`--x="a b"'c'd`, ['--x=a bcd']],
    ['"a \\"b\\" c"', ['a "b" c']],
    [`'' end`, ['', 'end']],
    ['$HOME *.py', ['$HOME', '*.py']],
    [`don't`, [`don't`]]
  ];
  for (const [line, words] of cases) {
    assert.deepEqual(splitWords(line), words, line);
  }
});

it('an end reads as people say it, and one without other words as it is', () => {
  assert.deepEqual(['device-lost', 'gpu-oom', 'succeeded', 'new-one'].map(endWord), [
    'GPU lost',
    'GPU out of memory',
    'succeeded',
    'new-one'
  ]);
});

it('a command reads without its backticks where nothing is drawn as code', () => {
  assert.equal(
    plainText('Run `jupyter gpu doctor`; a ` stays.'),
    'Run jupyter gpu doctor; a ` stays.'
  );
});
