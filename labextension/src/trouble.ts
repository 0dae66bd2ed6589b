/** Why something did not work and what to do now, in the broker's words. */
import { Refusal } from './api';
import { sentence } from './format';
import { plainText } from './words';

export function troubleText(error: unknown): string {
  const message = sentence(error instanceof Error ? error.message : String(error));
  const hint = error instanceof Refusal && error.hint ? ` ${sentence(error.hint)}` : '';
  return plainText(message + hint);
}
