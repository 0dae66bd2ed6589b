import assert from 'node:assert/strict';
import { it } from 'node:test';

import { splitWords } from '../src/words';

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
