/** What giving devices back comes to, said before it is done: a server that holds them ends. Pure. */
import { gpus, title } from './format';
import type { GpuState } from './fold';
import { kernelOf } from './select';
import type { WorkloadView } from './types';

/** The server that serves this page, as the hub knows it: whose, and its name, empty for the usual one. */
export interface IServer {
  readonly user: string;
  readonly name: string;
}

/** A question to be asked first: its head, what will happen, and what the two buttons say. */
export interface IQuestion {
  readonly title: string;
  readonly body: string;
  readonly yes: string;
  readonly no: string;
}

/** What to ask before a reservation is given back. `here` is null where no hub started this server. */
export function releaseQuestion(
  it: WorkloadView,
  state: GpuState,
  here: IServer | null
): IQuestion {
  const names = gpus(it.devices ?? [], state.status?.devices ?? []);
  if (it.holder?.kind === 'server') {
    return ofServer(names, it.holder.name, here);
  }
  const isOfKernel = it.holder?.kind === 'kernel' && kernelOf(state, it.holder.name) !== null;
  return {
    title: `Release ${names}?`,
    body: isOfKernel
      ? 'Where its kernel uses it, the kernel is restarted without, and its variables are lost.'
      : `What ${title(it)} runs on it is ended.`,
    yes: 'Release',
    no: 'Keep'
  };
}

function ofServer(names: string, holder: string, here: IServer | null): IQuestion {
  const loss =
    'All its notebooks and terminals stop, and what is not saved is lost. Your files and your jobs stay.';
  const buttons = { yes: 'Release and end the server', no: 'Keep' };
  if (here !== null && holder === `${here.user}/${here.name}`) {
    return {
      title: `Release ${names} and end this server?`,
      body: `${names} is reserved for the whole server that you are working in, so the server ends with it. ${loss}`,
      ...buttons
    };
  }
  const name = holder.slice(holder.indexOf('/') + 1);
  const which = name ? `your server “${name}”` : 'your default server';
  return {
    title: `Release ${names} and end ${which}?`,
    body: `${names} is reserved for ${which}, which ends with it. ${loss}`,
    ...buttons
  };
}
