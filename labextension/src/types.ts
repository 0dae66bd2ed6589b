/**
 * What the broker and the server extension say, as JSON. Instants are Unix seconds; null and what is
 * missing mean "not known" and read "n/a", never 0.
 *
 * Written by `make generate` from jupyter_gpu/model and jupyter_gpu/jupyter/documents.py.
 */

/** Where a workload stands. Why it waits and how it ended are separate enums beside it. */
export type State = 'queued' | 'active' | 'yielding' | 'ended';

/** The two kinds of workload; there is no third. */
export type Kind = 'reservation' | 'job';

/** Why a QUEUED workload is not ACTIVE; exactly one at a time, set by the planner. */
export type WaitingReason =
  | 'devices'
  | 'quota'
  | 'budget'
  | 'hold'
  | 'paused'
  | 'dependency'
  | 'not-before'
  | 'back-off'
  | 'clearing'
  | 'engine'
  | 'driver';

/** Why the broker ends a lease, strongest first: among evictions of one attempt the stronger wins. */
export type EvictionReason =
  | 'cancelled'
  | 'timed-out'
  | 'expired'
  | 'device-lost'
  | 'hung'
  | 'drained'
  | 'above-share'
  | 'no-show'
  | 'idle'
  | 'preempted';

/** How a workload ended. */
export type EndReason =
  | 'succeeded'
  | 'failed'
  | 'gpu-oom'
  | 'host-oom'
  | 'disk-full'
  | 'device-lost'
  | 'above-share'
  | 'hung'
  | 'timed-out'
  | 'cancelled'
  | 'launch-failed'
  | 'dependency-unmet'
  | 'lost'
  | 'released'
  | 'expired'
  | 'abandoned';

/** What a member of an array was submitted as, where values of its own stand in its words now. */
export interface Unfilled {
  readonly argv?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly texts?: Readonly<Record<string, string>>;
}

/** What a job runs. Text that is no UTF-8 is packed by `pack_bytes`, so argv arrives byte for byte. */
export interface JobSpec {
  readonly argv: readonly string[];
  readonly folder: string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly script_index?: number | null;
  readonly script_copy?: string | null;
  readonly checkpoint_dir?: string | null;
  readonly retries?: number | null;
  readonly grace_seconds?: number | null;
  readonly log_limit_bytes?: number;
  readonly core_dumps?: boolean;
  readonly leftover_seconds?: number;
  readonly parameters?: Readonly<Record<string, unknown>>;
  readonly image?: string | null;
  readonly mounts?: readonly string[];
  readonly container_engine?: string | null;
  readonly hang_seconds?: number | null;
  readonly notify?: readonly string[];
  readonly notify_on?: readonly string[];
  readonly recorded?: Readonly<Record<string, string>>;
  readonly kept?: Readonly<Record<string, string>>;
  readonly unfilled?: Unfilled | null;
}

/** What a job comes after. An array is named by its first member's id, and means all of it. */
export interface Dependency {
  readonly workload: number;
  readonly ok?: boolean;
}

/** The place of a job in an array: jobs that were submitted as one and differ in parameters. */
export interface Member {
  readonly array: number;
  readonly index: number;
  readonly of: number;
  readonly at_most?: number | null;
  readonly parameters?: Readonly<Record<string, string>>;
}

/** How far an attempt says it is. Observed: no fact of the log, like a reading of a device. */
export interface Progress {
  readonly at: number;
  readonly attempt: number;
  readonly step: number;
  readonly of?: number | null;
  readonly numbers?: Readonly<Record<string, number | null>>;
  readonly from_at?: number | null;
  readonly from_step?: number | null;
}

/** What a workload wants. Zero devices is a meaning of its own: it sees no GPU. */
export interface Ask {
  readonly devices?: number;
  readonly device_class?: string | null;
  readonly memory_bytes?: number | null;
  readonly min_free_bytes?: number | null;
  readonly duration_seconds?: number | null;
  readonly cpus?: number | null;
  readonly host_memory_bytes?: number | null;
  readonly pool?: string | null;
  readonly same_link_group?: boolean;
  readonly across_nodes?: boolean;
  readonly on?: readonly string[];
}

/** What uses a lease now. A word with a stale `number` changes nothing. */
export interface Holder {
  readonly kind: string;
  readonly name: string;
  readonly number?: number;
  readonly pid?: number | null;
  readonly start_ticks?: number | null;
  readonly boot_id?: string | null;
  readonly keeper_pid?: number | null;
  readonly keeper_start_ticks?: number | null;
}

/** How one attempt, or the use of one reservation, came to its end; fixed at *released*. */
export interface Outcome {
  readonly end: EndReason;
  readonly exit_code?: number | null;
  readonly signal?: number | null;
  readonly detail?: string;
  readonly noticed?: boolean;
  readonly finished?: boolean;
  readonly progressed?: boolean;
  readonly engine_fault?: boolean;
  readonly forced?: readonly string[];
  readonly ended_at?: number | null;
  readonly from_step?: number | null;
  readonly to_step?: number | null;
  readonly unsaved_seconds?: number | null;
  readonly yield_seconds?: number | null;
}

/** What is known of the grace that a job needs, from how an attempt of it left; see `core.grace`. */
export interface LearntGrace {
  readonly seconds: number;
  readonly attempt: number;
  readonly needed_seconds?: number | null;
}

/** What is wrong with a device, the gravest first: of several at once the gravest is told. */
export type Condition =
  | 'lost'
  | 'faulty'
  | 'reset-needed'
  | 'prohibited'
  | 'unreadable'
  | 'hot'
  | 'suspect'
  | 'not-clear'
  | 'foreign';

/** Whose a process on a device is, as far as that is certain. */
export type UseKind =
  'holder' | 'astray' | 'kernel' | 'container' | 'user' | 'system' | 'dead' | 'unknown';

/** What happens at an instant at which the last time's job is not over. */
export type Overlap = 'skip' | 'queue';

/** The submitted file, sent by the client, so that a later edit does not change a queued job. */
export interface Script {
  readonly name: string;
  readonly content: string;
}

/** POST /workloads. Who asks is who calls; an Idempotency-Key header makes a repeated ask the same workload. */
export interface SubmitBody {
  readonly kind: Kind;
  readonly ask?: Ask;
  readonly queue?: string | null;
  readonly team?: string | null;
  readonly name?: string;
  readonly spec?: JobSpec | null;
  readonly script?: Script | null;
  readonly holder?: Holder | null;
  readonly not_before?: number | null;
  readonly paused?: boolean;
  readonly profile?: string | null;
  readonly after?: readonly Dependency[];
  readonly array?: readonly Readonly<Record<string, string>>[];
  readonly at_most?: number | null;
  readonly record?: readonly Script[];
  readonly again?: number | null;
}

/** POST /workloads/ID/extend. */
export interface ExtendBody {
  readonly seconds: number;
}

/** POST /workloads/ID/release; a stale holder number changes nothing. */
export interface ReleaseBody {
  readonly holder_number?: number | null;
}

/** A hold with the window that is under way or comes next. */
export interface HoldView {
  readonly id: number | null;
  readonly name: string;
  readonly from_at?: number | null;
  readonly until_at?: number | null;
  readonly every?: string;
  readonly timezone?: string;
  readonly until?: number | null;
  readonly count?: number;
  readonly device_class?: string | null;
  readonly named?: boolean;
  readonly devices?: readonly string[];
  readonly teams?: readonly string[];
  readonly users?: readonly string[] | null;
  readonly maintenance?: boolean;
  readonly no_show_seconds?: number | null;
  readonly given_back?: boolean;
  readonly is_mine?: boolean;
  readonly by?: string;
  readonly warnings?: readonly string[];
}

/** Another ask that the planner would start sooner if it were made now instead; what is None stays as it is. */
export interface SoonerView {
  readonly devices?: number | null;
  readonly device_class?: string | null;
  readonly queue?: string | null;
  readonly duration_seconds?: number | null;
  readonly expected_start_from: number;
  readonly expected_start_until: number;
}

/** One bound that concerns the caller: what is held or used of it, and what is left. */
export interface QuotaView {
  readonly rule: string;
  readonly devices_held?: number | null;
  readonly devices_allowed?: number | null;
  readonly memory_held_bytes?: number | null;
  readonly memory_allowed_bytes?: number | null;
  readonly used_ms?: number | null;
  readonly allowed_ms?: number | null;
  readonly window_seconds?: number | null;
  readonly available_again_at?: number | null;
}

/** The warning before a lease is ended by force. */
export interface Notice {
  readonly reason: EvictionReason;
  readonly yield_by: number;
  readonly detail: string;
}

/** One workload as a caller may see it. Of others' work only what concerns the devices, unless they may see more. */
export interface WorkloadView {
  readonly id: number;
  readonly kind: Kind;
  readonly state: State;
  readonly owner: string | null;
  readonly team: string | null;
  readonly queue: string;
  readonly name: string | null;
  readonly ask: Ask;
  readonly submitted_at: number;
  readonly priority: number;
  readonly waiting?: WaitingReason | null;
  readonly reason?: string;
  readonly why?: string;
  readonly ahead?: number | null;
  readonly before?: readonly number[];
  readonly expected_start_at?: number | null;
  readonly expected_start_from?: number | null;
  readonly expected_start_until?: number | null;
  readonly sooner?: readonly SoonerView[];
  readonly paused?: boolean;
  readonly lifted?: boolean;
  readonly rank_ms?: number;
  readonly not_before?: number | null;
  readonly back_off_until?: number | null;
  readonly devices?: readonly string[];
  readonly granted_at?: number | null;
  readonly ends_at?: number | null;
  readonly attach_by?: number | null;
  readonly overtime?: boolean;
  readonly holder?: Holder | null;
  readonly attempt?: number;
  readonly started_at?: number | null;
  readonly notice?: Notice | null;
  readonly outcome?: Outcome | null;
  readonly end?: EndReason | null;
  readonly ended_at?: number | null;
  readonly detail?: string;
  readonly preemptions?: number;
  readonly failures?: number;
  readonly is_mine?: boolean;
  readonly after?: readonly Dependency[];
  readonly unmet?: readonly number[];
  readonly member?: Member | null;
  readonly recurring?: number | null;
  readonly progress?: Progress | null;
  readonly repeated_seconds?: number;
  readonly command?: string;
  readonly spec?: JobSpec | null;
  readonly grace_seconds?: number | null;
  readonly learnt_grace?: LearntGrace | null;
  readonly untold?: string;
}

/** One process on a device, as far as a caller may know of it. */
export interface UseView {
  readonly pid: number;
  readonly kind: UseKind;
  readonly foreign: boolean;
  readonly memory_bytes?: number | null;
  readonly name?: string;
  readonly user?: string | null;
  readonly owner?: string | null;
  readonly server?: string | null;
  readonly notebook?: string;
  readonly claim?: string;
  readonly workload?: number | null;
  readonly where?: string;
}

/** A GPU in MIG mode: its MIG devices are listed under it, and it is none itself. */
export interface CardView {
  readonly uuid: string;
  readonly index: number;
  readonly name: string;
  readonly memory_total_bytes?: number | null;
  readonly memory_used_bytes?: number | null;
  readonly utilisation_percent?: number | null;
  readonly temperature_celsius?: number | null;
  readonly power_watts?: number | null;
  readonly sampled_at?: number | null;
}

/** One device with its newest reading and who holds it until when. */
export interface DeviceView {
  readonly uuid: string;
  readonly index: number;
  readonly number: string;
  readonly name: string;
  readonly device_class: string;
  readonly pool: string;
  readonly simulated: boolean;
  readonly cordoned: boolean;
  readonly cordon_reason?: string;
  readonly cordoned_by?: string | null;
  readonly shareable?: boolean;
  readonly card?: string | null;
  readonly condition?: Condition | null;
  readonly condition_detail?: string;
  readonly condition_since?: number | null;
  readonly memory_total_bytes?: number | null;
  readonly memory_used_bytes?: number | null;
  readonly memory_reserved_bytes?: number | null;
  readonly memory_leased_bytes?: number | null;
  readonly shares_host_memory?: boolean;
  readonly utilisation_percent?: number | null;
  readonly temperature_celsius?: number | null;
  readonly power_watts?: number | null;
  readonly slowed_by?: readonly string[];
  readonly sampled_at?: number | null;
  readonly note?: string;
  readonly nodes?: readonly string[];
  readonly uses?: readonly UseView[];
  readonly workloads?: readonly number[];
  readonly holders?: readonly string[];
  readonly free_at?: number | null;
}

/** Something that somebody should know: of a device for operators, of their own work for its owner. */
export interface AlertView {
  readonly key: string;
  readonly since: number;
  readonly text: string;
  readonly device?: string | null;
  readonly workload?: number | null;
}

/** Whether a job is kept from the GPUs that are not its own, as a probe found that tried to open every one. */
export interface IsolationView {
  readonly enforced: boolean;
  readonly by?: string;
  readonly detail?: string;
}

/** A profile that the caller may use. */
export interface ProfileView {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly devices: number;
  readonly device_class?: string | null;
  readonly memory_bytes?: number | null;
  readonly duration_seconds?: number | null;
  readonly queue?: string | null;
  readonly for_servers?: boolean;
  readonly for_kernels?: boolean;
}

/** The one document that every face shows, for one caller. */
export interface Status {
  readonly revision: number;
  readonly store_id: string;
  readonly at: number;
  readonly caller: string;
  readonly simulated: boolean;
  readonly devices: readonly DeviceView[];
  readonly workloads: readonly WorkloadView[];
  readonly quotas: readonly QuotaView[];
  readonly more_of_mine?: number;
  readonly waiting: Readonly<Record<string, number>>;
  readonly warnings?: readonly string[];
  readonly cards?: readonly CardView[];
  readonly alerts?: readonly AlertView[];
  readonly isolation?: IsolationView | null;
  readonly profiles?: readonly ProfileView[];
  readonly holds?: readonly HoldView[];
  readonly coming?: readonly WorkloadView[];
  readonly teams?: readonly string[];
  readonly teams_at?: number | null;
}

/** What went wrong: for programs, for people, and what to do now. */
export interface Error {
  readonly code: string;
  readonly message: string;
  readonly hint: string | null;
}

/** One line of the stream: the whole `status`, or what changed since the line before, or `samples` alone. */
export interface Change {
  readonly revision?: number | null;
  readonly at?: number | null;
  readonly changes?: readonly WorkloadView[];
  readonly devices?: readonly DeviceView[];
  readonly quotas?: readonly QuotaView[];
  readonly more_of_mine?: number;
  readonly waiting?: Readonly<Record<string, number>>;
  readonly warnings?: readonly string[];
  readonly alerts?: readonly AlertView[];
  readonly samples?: readonly DeviceView[];
  readonly cards?: readonly CardView[];
  readonly status?: Status | null;
}

/** One attempt of a job, read from the events of its life. */
export interface AttemptView {
  readonly attempt: number;
  readonly started_at: number;
  readonly ended_at?: number | null;
  readonly devices?: readonly string[];
  readonly eviction?: EvictionReason | null;
  readonly evicted_for?: number | null;
  readonly outcome?: Outcome | null;
  readonly repeated_seconds?: number | null;
}

/** All attempts of a job, oldest first. */
export interface AttemptPage {
  readonly items: readonly AttemptView[];
}

/** The curve of one attempt: some hundred points over all of it, oldest first, the newest always among them. */
export interface ProgressPage {
  readonly attempt: number;
  readonly items: readonly Progress[];
}

/** A recurring job as its owner, or an operator, sees it. */
export interface RecurringView {
  readonly id: number;
  readonly owner: string;
  readonly team: string;
  readonly name: string;
  readonly command: string;
  readonly cron: string;
  readonly timezone: string;
  readonly overlap: Overlap;
  readonly paused: boolean;
  readonly added_at: number;
  readonly next_at: number | null;
  readonly last_at?: number | null;
  readonly last_workload?: number | null;
  readonly last_state?: State | null;
  readonly last_end?: EndReason | null;
  readonly last_detail?: string;
  readonly times?: number;
  readonly ask?: Ask | null;
  readonly spec?: JobSpec | null;
}

/** The recurring jobs that the caller may see. */
export interface RecurringPage {
  readonly items: readonly RecurringView[];
}

/** A name that the parameters cell of a notebook sets. */
export interface Parameter {
  readonly name: string;
  readonly default: string;
  readonly type?: string;
  readonly help?: string;
}

/** POST kernels/ID/reservation: what a kernel wants. */
export interface KernelAsk {
  readonly devices?: number;
  readonly duration_seconds?: number | null;
  readonly device_class?: string | null;
  readonly memory_bytes?: number | null;
  readonly queue?: string | null;
  readonly team?: string | null;
  readonly profile?: string | null;
}

/** A kernel of this server, and what it has of the GPUs. */
export interface KernelView {
  readonly kernel_id: string;
  readonly name: string;
  readonly notebook?: string | null;
  readonly workload?: number | null;
  readonly pinned: boolean;
  readonly devices?: readonly string[];
  readonly restart_needed?: string | null;
  readonly execution_state: string;
  readonly last_activity?: number | null;
  readonly reason?: string;
  readonly told?: string;
}

/** POST kernels/ID/pin. */
export interface PinBody {
  readonly restart?: boolean;
}

/** Whether the kernel sees its devices, and what is missing. */
export interface PinAnswer {
  readonly state: 'pinned' | 'restart-needed' | 'waiting' | 'none';
  readonly reason?: string;
  readonly devices?: readonly string[];
}

/** POST jobs: a script or notebook of the file browser, to run unattended. */
export interface FileJob {
  readonly devices?: number;
  readonly duration_seconds?: number | null;
  readonly device_class?: string | null;
  readonly memory_bytes?: number | null;
  readonly queue?: string | null;
  readonly team?: string | null;
  readonly path: string;
  readonly name?: string;
  readonly arguments?: readonly string[];
  readonly parameters?: Readonly<Record<string, unknown>>;
}

/** The answer to POST jobs: the job, and what of it may not be as it was meant. */
export interface FileJobView {
  readonly id: number;
  readonly kind: Kind;
  readonly state: State;
  readonly owner: string | null;
  readonly team: string | null;
  readonly queue: string;
  readonly name: string | null;
  readonly ask: Ask;
  readonly submitted_at: number;
  readonly priority: number;
  readonly waiting?: WaitingReason | null;
  readonly reason?: string;
  readonly why?: string;
  readonly ahead?: number | null;
  readonly before?: readonly number[];
  readonly expected_start_at?: number | null;
  readonly expected_start_from?: number | null;
  readonly expected_start_until?: number | null;
  readonly sooner?: readonly SoonerView[];
  readonly paused?: boolean;
  readonly lifted?: boolean;
  readonly rank_ms?: number;
  readonly not_before?: number | null;
  readonly back_off_until?: number | null;
  readonly devices?: readonly string[];
  readonly granted_at?: number | null;
  readonly ends_at?: number | null;
  readonly attach_by?: number | null;
  readonly overtime?: boolean;
  readonly holder?: Holder | null;
  readonly attempt?: number;
  readonly started_at?: number | null;
  readonly notice?: Notice | null;
  readonly outcome?: Outcome | null;
  readonly end?: EndReason | null;
  readonly ended_at?: number | null;
  readonly detail?: string;
  readonly preemptions?: number;
  readonly failures?: number;
  readonly is_mine?: boolean;
  readonly after?: readonly Dependency[];
  readonly unmet?: readonly number[];
  readonly member?: Member | null;
  readonly recurring?: number | null;
  readonly progress?: Progress | null;
  readonly repeated_seconds?: number;
  readonly command?: string;
  readonly spec?: JobSpec | null;
  readonly grace_seconds?: number | null;
  readonly learnt_grace?: LearntGrace | null;
  readonly untold?: string;
  readonly notes?: readonly string[];
}

/** GET notebook?path=PATH: what a form for the parameters of a notebook shows. Queues nothing. */
export interface NotebookView {
  readonly path: string;
  readonly kernel: string | null;
  readonly has_parameters_cell: boolean;
  readonly parameters: readonly Parameter[];
  readonly notes?: readonly string[];
}

/** GET hello: whom a page talks to. Starts no broker; without one there is no store. */
export interface Hello {
  readonly version: string;
  readonly store_id: string | null;
  readonly caller: string;
  readonly simulated: boolean;
  readonly start_broker: boolean;
}

/** GET kernels. */
export interface KernelList {
  readonly items: readonly KernelView[];
}

/** The first message, and one after a socket fell behind or the broker came back. */
export interface StatusFrame {
  readonly type: 'status';
  readonly status: Status;
}

/** What changed, and new samples. */
export interface ChangeFrame {
  readonly type: 'change';
  readonly change: Change;
}

/** The kernels of this server, whole. */
export interface KernelsFrame {
  readonly type: 'kernels';
  readonly kernels: readonly KernelView[];
}

/** The broker went away or came back; after "back" a whole status follows. */
export interface BrokerFrame {
  readonly type: 'broker';
  readonly state: 'away' | 'back';
  readonly message: string;
  readonly hint: string | null;
}

/** A kernel has to be restarted: the page that claims it (POST kernels/ID/claim) does so, and mends its cells. */
export interface RestartFrame {
  readonly type: 'restart';
  readonly kernel_id: string;
  readonly reason: string;
}

/** What this server finds of itself; nobody but who it runs for is told, and no broker. */
export interface ServerFrame {
  readonly type: 'server';
  readonly isolation: IsolationView | null;
}

/** One message of the stream. */
export type Frame =
  StatusFrame | ChangeFrame | KernelsFrame | BrokerFrame | RestartFrame | ServerFrame;
