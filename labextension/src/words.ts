/** Words: those of a command line as people type them, and those of the broker as people read them. Pure. */

const ENDS: Readonly<Record<string, string>> = {
  'gpu-oom': 'GPU out of memory',
  'host-oom': 'out of memory',
  'disk-full': 'disk full',
  'device-lost': 'GPU lost',
  hung: 'hung',
  'timed-out': 'time limit reached',
  'launch-failed': 'did not start',
  'dependency-unmet': 'other work failed',
  expired: 'time is over',
  drained: 'GPU in maintenance',
  'above-share': 'above your share',
  'no-show': 'never used',
  preempted: 'others come first'
};

/** How or why work ended, as people say it; what has no other word stays as it is. */
export function endWord(end: string): string {
  return ENDS[end] ?? end;
}

/** What is to be typed stands between backticks; where nothing can be drawn as code they are left out. */
export function plainText(text: string): string {
  return text.replace(/`([^`]*)`/g, '$1');
}

/**
 * Split at spaces; single and double quotes keep together, and a backslash takes the next character as it is.
 * No variables, no patterns: nothing here is a shell.
 */
export function splitWords(line: string): readonly string[] {
  const words: string[] = [];
  for (const found of line.matchAll(/(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|['"\\])+/gs)) {
    words.push(
      found[0].replace(
        /\\(.)|'([^']*)'|"((?:[^"\\]|\\.)*)"/gs,
        (_, escaped?: string, single?: string, double?: string) =>
          escaped ?? single ?? (double ?? '').replace(/\\(["\\])/g, '$1')
      )
    );
  }
  return words;
}
