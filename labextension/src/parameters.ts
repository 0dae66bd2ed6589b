/**
 * Parameters of a notebook as they are typed: what a text means as a value, and how it goes into a request. Pure.
 *
 * A text means what JSON says that it does, else itself, as on the command line. It is sent as it was typed: read into
 * a number of this language, 1.0 would come out as 1, and a large seed as another one.
 */
import type { FileJob, NotebookView } from './types';
import { splitWords } from './words';

/** What is typed, by name; what is empty keeps the notebook's own value. */
export type Typed = Readonly<Record<string, string>>;

/** The JSON that a text is sent as. */
export function jsonOf(text: string): string {
  return isJson(text) ? text.trim() : JSON.stringify(text);
}

/** What kind of value a text means, as people say it. */
export function kindOf(
  text: string
): 'number' | 'text' | 'true or false' | 'nothing' | 'list' | 'object' {
  if (!isJson(text)) {
    return 'text';
  }
  const value: unknown = JSON.parse(text);
  if (value === null) {
    return 'nothing';
  }
  if (Array.isArray(value)) {
    return 'list';
  }
  switch (typeof value) {
    case 'number':
      return 'number';
    case 'boolean':
      return 'true or false';
    case 'object':
      return 'object';
    default:
      return 'text';
  }
}

function isJson(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    // Beyond all numbers it is a text, as the other end has it.
    return typeof value !== 'number' || Number.isFinite(value);
  } catch {
    return false;
  }
}

/** The names and values in a line such as `alpha=0.1 data="a b"`; null where a word of it has no value. */
export function pairsOf(line: string): Typed | null {
  const found: [string, string][] = [];
  for (const word of splitWords(line)) {
    const place = word.indexOf('=');
    if (place < 1) {
      return null;
    }
    found.push([word.slice(0, place), word.slice(place + 1)]);
  }
  return Object.fromEntries(found);
}

/** The body that asks for a job, with its parameters as they were typed. */
export function bodyOf(job: FileJob, typed: Typed): string {
  const given = Object.entries(typed).filter(([, text]) => text.trim());
  if (!given.length) {
    return JSON.stringify(job);
  }
  const values = given.map(([name, text]) => `${JSON.stringify(name)}:${jsonOf(text)}`);
  return `${JSON.stringify(job).slice(0, -1)},"parameters":{${values.join(',')}}}`;
}

/** What is to be known of a notebook before its parameters are sent. */
export function notesOf(notebook: NotebookView): readonly string[] {
  const without = notebook.has_parameters_cell
    ? []
    : [
        'no cell of it is tagged `parameters`, so what is given is put on top of all cells: tag the cell that sets ' +
          'the defaults, under Property Inspector, Common Tools'
      ];
  return [...without, ...(notebook.notes ?? [])];
}
