"""A client with a small lab behind it: documents as the broker gives them, and a record of what was asked."""

import os
import platform
from collections.abc import Callable, Iterable, Iterator

import msgspec

from jupyter_gpu import errors
from jupyter_gpu.client.calls import LogPart
from jupyter_gpu.model import (
    Ask,
    AttemptView,
    BrokerView,
    Change,
    Condition,
    Dependency,
    DevicePage,
    DeviceTime,
    DeviceView,
    DryRunView,
    EndReason,
    EventView,
    EvictionReason,
    HoldBody,
    Holder,
    HoldView,
    JobSpec,
    Kind,
    LossView,
    MarkedView,
    Member,
    Notice,
    Outcome,
    Overlap,
    PastJob,
    Policy,
    PolicyCheckView,
    PolicyView,
    Progress,
    ProgressPage,
    QuotaPage,
    QuotaView,
    RecurringBody,
    RecurringView,
    ReportView,
    Spent,
    SpentRow,
    State,
    Status,
    SubmitBody,
    WaitingReason,
    WaitsView,
    WorkloadView,
)

GIB = 1 << 30
#: 2026-03-02 14:05:00 UTC, a Monday. The tests set the clock on the wall to UTC.
NOW = 1_772_460_300.0
HOUR = 3600
NOON_TOMORROW = NOW - 5 * 60 + 22 * HOUR
#: Workloads that are there although the lab's document does not show them.
KNOWN = (1, 2, 5, 6, 15)


def device(index: int = 0, **more) -> DeviceView:
    """Make one GPU, half full."""
    words = {
        "uuid": f"GPU-{index}aaaaaaa-0000-4000-8000-00000000000{index}",
        "index": index,
        "number": str(index),
        "name": "NVIDIA A100-SXM4-80GB",
        "device_class": "a100-80gb",
        "pool": "local",
        "simulated": False,
        "cordoned": False,
        "memory_total_bytes": 80 * GIB,
        "memory_used_bytes": 40 * GIB,
        "utilisation_percent": 97,
        "temperature_celsius": 61,
        "sampled_at": NOW,
    }
    return DeviceView(**words | more)


def workload(number: int = 1, **more) -> WorkloadView:
    """Make one queued job of the caller."""
    words = {
        "id": number,
        "kind": Kind.JOB,
        "state": State.QUEUED,
        "owner": "ada",
        "team": "vision",
        "queue": "training",
        "name": "digits",
        "ask": Ask(),
        "submitted_at": NOW - HOUR,
        "priority": 50,
        "is_mine": True,
    }
    return WorkloadView(**words | more)


def a_hold(number: int | None = 15, **more) -> HoldView:
    """Make a hold of four GPUs for a course, tomorrow from ten to twelve."""
    words = {
        "id": number,
        "name": "ml101",
        "from_at": NOON_TOMORROW - 2 * HOUR,
        "until_at": NOON_TOMORROW,
        "count": 4,
        "teams": ("ml101",),
        "every": "tue 10:00-12:00",
        "timezone": "UTC",
    }
    return HoldView(**words | more)


def recurring(number: int = 15, **more) -> RecurringView:
    """Make one that comes in an hour, of the caller."""
    words = {
        "id": number, "owner": "ada", "team": "vision", "name": "digits", "command": "train.py", "cron": "30 2 * * *",
        "timezone": "Europe/Amsterdam", "overlap": Overlap.SKIP, "paused": False, "added_at": NOW,
        "next_at": NOW + HOUR,
    }  # fmt: skip
    return RecurringView(**words | more)


def report(**more) -> ReportView:
    """Make one of a week of four GPUs, all work."""
    spent = {
        "jobs": 412, "reservations": 40, "leased_device_seconds": 400.0 * HOUR, "worked_device_seconds": 350.0 * HOUR,
        "repeated_seconds": 3.0 * HOUR, "repeated_device_seconds": 3.5 * HOUR, "repeated_share": 0.01,
        "preemptions": 14, "failures": 21, "failures_per_device_hour": 0.06,
    }  # fmt: skip
    words = {
        "of": "all",
        "begin_at": NOW - 7 * 24 * HOUR,
        "end_at": NOW,
        "device_time": DeviceTime(
            devices=4, there_seconds=672.0 * HOUR, unusable_seconds=24.0 * HOUR, leased_seconds=400.0 * HOUR,
            leased_share=400 / 672,
        ),
        "spent": Spent(**spent),
        "job_ends": {"succeeded": 380, "failed": 12, "gpu-oom": 8},
        "reservation_ends": {"released": 35, "expired": 4},
        "jobs_unfinished": 12,
        "reservations_unfinished": 1,
        "failures": {"failed": 13, "gpu-oom": 8},
        "longest_loss": LossView(seconds=599.0, at=NOW - 48 * HOUR, workload=12, owner="ada"),
        "losses_not_known": 0,
        "idle_given_back": 3,
        "idle_given_back_device_seconds": 4.5 * HOUR,
        "waits": (
            WaitsView(
                queue="interactive", granted=40, median_seconds=0.0, p90_seconds=60.0, longest_seconds=840.0,
                waiting=0, waiting_longest_seconds=None, left_out=0,
            ),
            WaitsView(
                queue="training", granted=400, median_seconds=720.0, p90_seconds=3.0 * HOUR,
                longest_seconds=26.5 * HOUR, waiting=10, waiting_longest_seconds=5.0 * HOUR, left_out=20,
            ),
        ),
        "by": None,
        "rows": (),
        "notes": ("How busy the GPUs were is not kept.",),
    }  # fmt: skip
    return ReportView(**words | more)


def report_row(name: str, hours: float, **more) -> SpentRow:
    """Make one of its rows."""
    words = {
        "name": name, "jobs": 3, "reservations": 1, "leased_device_seconds": hours * HOUR,
        "worked_device_seconds": hours * HOUR, "repeated_seconds": 0.0, "repeated_device_seconds": 0.0,
        "repeated_share": 0.0, "preemptions": 0, "failures": 0, "failures_per_device_hour": 0.0,
    }  # fmt: skip
    return SpentRow(**words | more)


def lab() -> Status:
    """Make a lab of four GPUs with something of everything."""
    gpus = (
        device(0, workloads=(12,), holders=("ada",), free_at=NOW + 2 * HOUR, memory_used_bytes=int(61.2 * GIB)),
        device(1, workloads=(9,), holders=("bob",), free_at=NOW + 0.5 * HOUR, utilisation_percent=3),
        device(2, memory_used_bytes=GIB // 2, utilisation_percent=0),
        device(
            3,
            condition=Condition.LOST,
            condition_detail="it fell off the bus",
            memory_used_bytes=None,
            memory_total_bytes=None,
            utilisation_percent=None,
            temperature_celsius=None,
        ),
    )
    return Status(
        revision=7,
        store_id="s1",
        at=NOW,
        caller="ada",
        simulated=False,
        devices=gpus,
        workloads=(
            workload(
                12,
                state=State.ACTIVE,
                devices=(gpus[0].uuid,),
                granted_at=NOW - HOUR,
                started_at=NOW - HOUR,
                ends_at=NOW + 2 * HOUR,
                attempt=2,
                reason="It holds GPU 0 until 16:05.",
            ),
            workload(
                9, kind=Kind.RESERVATION, state=State.ACTIVE, owner="bob", is_mine=False, queue="interactive",
                name="", devices=(gpus[1].uuid,), ends_at=NOW + 0.5 * HOUR,
            ),
            workload(
                14,
                name="sweep 3",
                ask=Ask(devices=2, duration_seconds=8 * HOUR),
                waiting=WaitingReason.DEVICES,
                ahead=0,
                expected_start_at=NOW + 2 * HOUR,
                reason="No GPU is free: GPU 0 runs job 12 until 16:05, GPU 1 is reserved by bob until 14:35, GPU 3 is "
                "lost. You are first in queue training. Leave the line with `jupyter gpu cancel 14`.",
            ),
        ),
        quotas=(
            QuotaView(rule="devices per user", devices_held=1, devices_allowed=2),
            QuotaView(
                rule="GPU-hours of team vision",
                used_ms=150 * 360_000,
                allowed_ms=40 * 3_600_000,
                window_seconds=7 * 86_400,
                available_again_at=NOW + 20 * HOUR,
            ),
        ),
        waiting={"interactive": 0, "training": 3, "deferred": 1},
    )  # fmt: skip


#: A job whose record is there.
RECORDED = 7


def recorded_job(**more) -> WorkloadView:
    """Make a job of the caller's with all that is recorded of one."""
    spec = {
        "argv": ("python", "train.py", "--lr", "0.1", "--layers", "1", "2", "--name=x", "model.dim=64"),
        "folder": "/no/such/folder",
        "environment": {"PATH": "/usr/bin", "SEED": "1"},
        "script_index": 1,
        "recorded": {
            "git_commit": "0123456789abcdef0123456789abcdef01234567",
            "git_branch": "main",
            "git_dirty": "2 files, +3 -1 lines",
            "git_remote": "https://git.lab/lab.git",
            "python": "/venv/bin/python",
            "python_version": "3.11.7",
            "packages": "182",
            "platform": "Linux 6.1 x86_64",
        },
        "kept": {"diff": "/s/1/diff", "packages": "/s/2/packages"},
    }
    words = {"queue": "training", "ask": Ask(devices=2, duration_seconds=8 * HOUR), "name": "digits"}
    return workload(more.pop("number", RECORDED), spec=JobSpec(**spec | more.pop("spec", {})), **words | more)


def ended(number: int, end: EndReason = EndReason.SUCCEEDED, **more) -> WorkloadView:
    """Make a job that has ended."""
    outcome = Outcome(end=end, exit_code=0 if end is EndReason.SUCCEEDED else 1)
    return workload(number, state=State.ENDED, end=end, ended_at=NOW, attempt=1, outcome=outcome, **more)


STORY = tuple(
    EventView(number=number + 1, at=NOW + number, event=event, note=note, devices=tuple(device(n).uuid for n in on))
    for number, (event, note, *on) in enumerate(
        [
            ("submitted", ""),
            ("granted", "", 2),
            ("started", "1"),
            ("evicted", "preempted"),
            ("released", ""),
            ("requeued", ""),
            ("granted", "", 0),
            ("started", "2"),
            ("released", ""),
            ("ended", "succeeded"),
        ]
    )
)


def _cancelled(it: WorkloadView) -> WorkloadView:
    if it.state is State.QUEUED:
        return msgspec.structs.replace(it, state=State.ENDED, end=EndReason.CANCELLED)
    notice = Notice(reason=EvictionReason.CANCELLED, yield_by=NOW + 120)
    return msgspec.structs.replace(it, state=State.YIELDING, notice=notice)


class FakeClient:
    """Answers from its lab, remembers the calls, and fails where a test says so."""

    def __init__(self, status: Status | None = None) -> None:
        self.lab = status or lab()
        self.calls: list[tuple] = []
        self.errors: dict[str, BaseException] = {}
        self.answers: dict[str, object] = {}
        self.part_bytes = 1 << 20
        self.log_chunks: list[bytes | BaseException] = []
        self.changes: list[list[Change] | BaseException] = []
        self.followed: dict[int, int] = {}
        self.place = None
        self.submitted: WorkloadView | None = None
        self.calendars: tuple[RecurringView, ...] = (recurring(),)
        self.held: tuple[HoldView, ...] = (a_hold(),)
        self.warned: tuple[str, ...] = ()

    def _called(self, name: str, *words: object) -> None:
        self.calls.append((name, *words))
        for key in (f"{name} {words[0]}" if words else name, name):
            if key in self.errors:
                raise self.errors[key]

    def _find(self, number: int) -> WorkloadView:
        for it in self.lab.workloads:
            if it.id == number:
                return it
        if number == RECORDED:
            return recorded_job()
        if number in KNOWN:
            return workload(number)
        raise errors.NotFound(
            f"there is no workload {number}", hint="`jupyter gpu queue --all` lists what you may see."
        )

    def status(self) -> Status:
        self._called("status")
        return self.lab

    def submit(self, body: SubmitBody, idempotency_key: str | None = None, *, keep: Iterable[str] = ()) -> WorkloadView:
        self._called("submit", body, idempotency_key, tuple(keep))
        answer = self.answers.get("submit")
        if isinstance(answer, Callable):
            return answer(body)
        holds = body.kind is Kind.RESERVATION
        self.submitted = workload(
            15,
            kind=body.kind,
            name=body.name,
            queue=body.queue or ("interactive" if holds else "training"),
            ask=body.ask,
            member=Member(array=15, index=1, of=len(body.array), at_most=body.at_most) if body.array else None,
            after=body.after,
            state=State.ACTIVE if holds else State.QUEUED,
            devices=(self.lab.devices[2].uuid,) if holds else (),
            ends_at=NOW + 2 * HOUR if holds else None,
            waiting=None if holds else WaitingReason.DEVICES,
            reason="It holds GPU 2 until 16:05." if holds else "No GPU is free. You are first in queue training.",
        )
        return self.submitted

    def dry_run(self, body: SubmitBody, cron: str | None = None, timezone: str | None = None) -> DryRunView:
        self._called("dry_run", body, cron, timezone)
        it = self.submit(body)
        self.calls.pop()
        found = DryRunView(workload=it, jobs=max(1, len(body.array)), starts_now=0, quotas=self.lab.quotas)
        times = () if cron is None else (NOW + HOUR, NOW + 25 * HOUR)
        return msgspec.structs.replace(found, times=times, timezone=timezone)

    def add_recurring(
        self, body: RecurringBody, idempotency_key: str | None = None, *, keep: Iterable[str] = ()
    ) -> RecurringView:
        self._called("add_recurring", body, idempotency_key, tuple(keep))
        return recurring(15, name=body.job.name, cron=body.cron, timezone=body.timezone or "UTC", overlap=body.overlap)

    def recurring(self) -> tuple[RecurringView, ...]:
        self._called("recurring")
        return self.calendars

    def holds(self) -> tuple[HoldView, ...]:
        self._called("holds")
        return self.held

    def add_hold(self, body: HoldBody, idempotency_key: str | None = None) -> HoldView:
        self._called("add_hold", body, idempotency_key)
        return a_hold(15, name=body.name, warnings=self.warned)

    def remove_hold(self, hold_id: int) -> HoldView:
        self._called("remove_hold", hold_id)
        found = next((it for it in self.held if it.id == hold_id), None)
        if found is None:
            raise errors.NotFound(f"there is no hold {hold_id}")
        return found

    def recurring_job(self, recurring_id: int) -> RecurringView:
        self._called("recurring_job", recurring_id)
        spec = recorded_job().spec
        return msgspec.structs.replace(self._calendar(recurring_id), ask=Ask(devices=2), spec=spec)

    def pause_recurring(self, recurring_id: int) -> RecurringView:
        self._called("pause_recurring", recurring_id)
        return msgspec.structs.replace(self._calendar(recurring_id), paused=True)

    def let_go_recurring(self, recurring_id: int) -> RecurringView:
        self._called("let_go_recurring", recurring_id)
        return self._calendar(recurring_id)

    def remove_recurring(self, recurring_id: int) -> RecurringView:
        self._called("remove_recurring", recurring_id)
        return self._calendar(recurring_id)

    def fire(self, recurring_id: int) -> WorkloadView:
        self._called("fire", recurring_id)
        it = self._calendar(recurring_id)
        return workload(20, name=it.name, recurring=it.id, reason="No GPU is free.")

    def _calendar(self, recurring_id: int) -> RecurringView:
        found = next((it for it in self.calendars if it.id == recurring_id), None)
        if found is None:
            raise errors.NotFound(f"there is no recurring job {recurring_id}")
        return found

    def chain(self, workload_id: int, after: Iterable[Dependency]) -> WorkloadView:
        self._called("chain", workload_id, after := tuple(after))
        unmet = tuple(it.workload for it in after)
        reason = "It comes after job 12 (digits), which runs." if after else "No GPU is free."
        return msgspec.structs.replace(self._find(workload_id), after=after, unmet=unmet, reason=reason)

    def progress(self, workload_id: int, attempt: int | None = None) -> ProgressPage:
        self._called("progress", workload_id, attempt)
        answer = self.answers.get("progress")
        if isinstance(answer, ProgressPage):
            return answer
        points = (
            Progress(at=NOW - 600 + 60 * step, attempt=2, step=step, of=50, numbers={"loss": 1 / step})
            for step in range(1, 11)
        )
        return ProgressPage(attempt=attempt or 2, items=tuple(points))

    def report(self, *, since_seconds=None, begin_at=None, end_at=None, by=None, of=None) -> ReportView:
        self._called("report", since_seconds, begin_at, end_at, by, of)
        answer = self.answers.get("report")
        return answer if isinstance(answer, ReportView) else report()

    def policy(self) -> PolicyView:
        self._called("policy")
        policy = Policy(most_devices=4)
        return PolicyView(digest=policy.digest(), policy=policy)

    def check_policy(self, wanted: Policy) -> PolicyCheckView:
        self._called("check_policy", wanted)
        answer = self.answers.get("check_policy")
        usual = PolicyCheckView(digest="abc", digest_now="def")
        return answer if isinstance(answer, PolicyCheckView) else usual

    def past(self) -> tuple[PastJob, ...]:
        self._called("past")
        answer = self.answers.get("past")
        one = PastJob(
            id=7, user="ada", team="vision", queue="training", submitted_at=NOW - HOUR, gpus=2, duration_seconds=600.0
        )
        return answer if isinstance(answer, tuple) else (one,)

    def attempts(self, workload_id: int) -> tuple[AttemptView, ...]:
        self._called("attempts", workload_id)
        answer = self.answers.get("attempts")
        return answer if isinstance(answer, tuple) else ()

    def record(self, workload_id: int, name: str) -> bytes:
        self._called("record", workload_id, name)
        answer = self.answers.get(f"record {name}")
        if not isinstance(answer, bytes):
            raise errors.NotFound(f"Job {workload_id} has no {name!r} that was kept.")
        return answer

    def workloads(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        mine: bool = False,
        owner: str | None = None,
        queue: str | None = None,
        ended: bool = False,
    ) -> Iterator[WorkloadView]:
        self._called("workloads", mine, ended, state, kind, queue, owner)
        for it in sorted(self.lab.workloads, key=lambda it: -it.id):
            if it.is_mine >= mine and state in (None, it.state) and (ended or it.state is not State.ENDED):
                yield it

    def workload(self, workload_id: int) -> WorkloadView:
        self._called("workload", workload_id)
        answer = self.answers.get(f"workload {workload_id}")
        # A list is told from first to last, as a life goes on; its last stays.
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, WorkloadView):
            return answer
        it = self._find(workload_id)
        return ended(workload_id) if workload_id in self.followed else it

    def events(self, workload_id: int) -> Iterator[EventView]:
        self._called("events", workload_id)
        yield from STORY

    def log_part(
        self, workload_id: int, attempt: int | None = None, offset: int = 0, limit: int | None = None
    ) -> LogPart:
        self._called("log_part", workload_id, attempt, offset, limit)
        data = b"".join(chunk for chunk in self.log_chunks if isinstance(chunk, bytes))
        offset = max(0, len(data) + offset) if offset < 0 else offset
        data = data[offset : offset + self.part_bytes]
        return LogPart(data, offset + len(data), attempt or 2, is_complete=True)

    def follow_log(self, workload_id: int, attempt: int | None = None, offset: int = 0) -> Iterator[bytes]:
        self._called("follow_log", workload_id, attempt, offset)
        for chunk in self.log_chunks:
            if isinstance(chunk, BaseException):
                raise chunk
            yield chunk
        self.followed[workload_id] = attempt or 1

    def wait(
        self,
        workload_id: int,
        until: str = "ended",
        timeout_seconds: float | None = None,
        *,
        raise_on_timeout: bool = True,
    ) -> WorkloadView:
        try:
            self._called("wait", workload_id, until, timeout_seconds, raise_on_timeout)
        except errors.WaitTimeout:
            if raise_on_timeout:
                raise
            return self.workload(workload_id)
        answer = self.answers.get(f"wait {workload_id}")
        return answer if isinstance(answer, WorkloadView) else ended(workload_id)

    def cancel(self, workload_id: int, reason: str = "") -> WorkloadView:
        self._called("cancel", workload_id, *filter(None, [reason]))
        return _cancelled(self._find(workload_id))

    def _of_array(self, workload_id: int, *, only_waiting: bool) -> list[WorkloadView]:
        """Those that a word for the whole array concerns, those that wait first, as the broker does it."""
        member = self.workload(workload_id).member
        its = [it for it in self.lab.workloads if it.id in member.ids and it.state is not State.ENDED]
        its = [it for it in its if not only_waiting or it.state is State.QUEUED]
        if not its:
            what = "waits: it runs or has ended" if only_waiting else "has ended already"
            raise errors.Conflict(f"{'none' if only_waiting else 'all'} of array {member.array} {what}")
        return sorted(its, key=lambda it: (it.state is not State.QUEUED, it.id))

    def cancel_array(self, workload_id: int, reason: str = "") -> tuple[WorkloadView, ...]:
        self._called("cancel_array", workload_id, *filter(None, [reason]))
        return tuple(_cancelled(it) for it in self._of_array(workload_id, only_waiting=False))

    def pause_array(self, workload_id: int) -> tuple[WorkloadView, ...]:
        self._called("pause_array", workload_id)
        its = self._of_array(workload_id, only_waiting=True)
        return tuple(msgspec.structs.replace(it, paused=True) for it in its)

    def let_go_array(self, workload_id: int) -> tuple[WorkloadView, ...]:
        self._called("let_go_array", workload_id)
        return tuple(self._of_array(workload_id, only_waiting=True))

    def chain_array(self, workload_id: int, after: Iterable[Dependency]) -> tuple[WorkloadView, ...]:
        self._called("chain_array", workload_id, tuple(after))
        return tuple(self._of_array(workload_id, only_waiting=True))

    def release(self, workload_id: int, holder_number: int | None = None) -> WorkloadView:
        self._called("release", workload_id, holder_number)
        return self._find(workload_id)

    def move(self, workload_id: int, holder: Holder) -> WorkloadView:
        self._called("move", workload_id, holder)
        it = self.answers.get(f"wait {workload_id}")
        it = it if isinstance(it, WorkloadView) else self.submitted or self._find(workload_id)
        return msgspec.structs.replace(it, holder=holder)

    def extend(self, workload_id: int, seconds: int) -> WorkloadView:
        self._called("extend", workload_id, seconds)
        it = self._find(workload_id)
        return msgspec.structs.replace(it, ends_at=(it.ends_at or NOW) + seconds)

    def pause(self, workload_id: int) -> WorkloadView:
        self._called("pause", workload_id)
        return msgspec.structs.replace(self._find(workload_id), paused=True)

    def keep(self, workload_id: int) -> WorkloadView:
        self._called("keep", workload_id)
        return self._find(workload_id)

    def let_go(self, workload_id: int) -> WorkloadView:
        self._called("let_go", workload_id)
        return self._find(workload_id)

    def devices(self) -> DevicePage:
        self._called("devices")
        return DevicePage(items=self.lab.devices)

    def _device(self, name: str, **more: object) -> DeviceView:
        for it in self.lab.devices:
            if name in (it.uuid, it.number):
                return msgspec.structs.replace(it, **more)
        raise errors.NotFound(f"there is no GPU {name!r}")

    def _marked(self, name: str, **more: object) -> MarkedView:
        """What is named, or all MIG devices of a GPU that is named as a whole."""
        parts = [it.uuid for it in self.lab.devices if it.number.startswith(f"{name}:")] or [name]
        first, *others = (self._device(it, **more) for it in parts)
        return MarkedView(**msgspec.structs.asdict(first), others=tuple(others))

    def cordon(self, device: str, reason: str = "") -> MarkedView:
        self._called("cordon", device, *filter(None, [reason]))
        return self._marked(device, cordoned=True, **_said(reason))

    def uncordon(self, device: str) -> MarkedView:
        self._called("uncordon", device)
        it = self._marked(device, cordoned=False)
        # A word ends what was found out once, and not what is seen now.
        ends = it.condition is Condition.FAULTY
        return msgspec.structs.replace(it, condition=None, condition_detail="") if ends else it

    def drain(self, device: str, reason: str = "") -> MarkedView:
        self._called("drain", device, *filter(None, [reason]))
        return self._marked(device, cordoned=True, **_said(reason))

    def forget(self, device: str) -> DeviceView:
        self._called("forget", device)
        return self._device(device)

    def quota(self) -> QuotaPage:
        self._called("quota")
        return QuotaPage(items=self.lab.quotas)

    def broker(self) -> BrokerView:
        self._called("broker")
        return BrokerView(
            version="0.1.0",
            api_version=1,
            pid=os.getpid(),
            user="ada",
            node=platform.node(),
            store_id="s1",
            state_dir="/tmp",
            policy_digest="d",
            devices=len(self.lab.devices),
            simulated=self.lab.simulated,
            started_at=NOW - HOUR,
            stops_at=None,
            warnings=self.lab.warnings,
        )

    def stop_broker(self) -> BrokerView:
        self._called("stop_broker")
        return self.broker()

    def stream(self, held: Status | None = None) -> Iterator[Change]:
        self._called("stream", held)
        if not self.changes:
            raise KeyboardInterrupt
        changes = self.changes.pop(0)
        if isinstance(changes, BaseException):
            raise changes
        yield from changes


def _said(reason: str) -> dict[str, str]:
    """By whom, where they say why."""
    return {"cordon_reason": reason, "cordoned_by": "grace"} if reason else {}


def holder() -> Holder:
    """Make a shell that holds."""
    return Holder(kind="shell", name="bash", pid=4711, start_ticks=99, boot_id="b")


def spec(*argv: str, **more) -> JobSpec:
    """Make what a job runs."""
    return JobSpec(**{"argv": argv, "folder": "/home/ada"} | more)


def fixed_time() -> float:
    """Stand still."""
    return NOW
