/** Words of a command line as people type them. Pure. */

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
