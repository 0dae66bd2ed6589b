"""Whose a process on a device is: by what the kernel says of it, and never by its number or its word alone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.broker import attribution, marks
from jupyter_gpu.broker.attribution import Attribution, Rules
from jupyter_gpu.broker.engines import procs
from jupyter_gpu.broker.engines.spool import cgroup_name
from jupyter_gpu.broker.telemetry.clear import process_name
from jupyter_gpu.model import Ask, Holder, JobSpec, Kind, Lease, Reading, State, Use, UseKind, Workload, World

from .ground import devices
from .people_ground import ADA, GRACE, SLEEP, Known, a_holder, a_process

ATTEMPTS = "/somewhere/attempts"
HERE = Rules(has_local_pids=True, ignored_names=("Xorg", "nv-hostengine-and-more"), is_systems=lambda _: True)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs processes of several users: run the tests as root")


def a_world(*workloads: Workload) -> World:
    """Two devices, and what holds them."""
    world = World()
    for device in devices(2):
        world.put_device(device)
    for it in workloads:
        world.put_workload(it)
    return world


def a_workload(
    holder: Holder | None = None,
    *,
    id_: int = 1,
    kind: Kind = Kind.JOB,
    on: tuple[str, ...] = ("GPU-0",),
    account: str = "me",
    **more: object,
) -> Workload:
    """A workload that holds devices."""
    words: dict[str, object] = {
        "owner": "ada", "state": State.ACTIVE, "attempt": 1, "submitted_at": 1.0, "started_at": 1.0, "active_at": 1.0,
        "lease": Lease(devices=on, pool="local", granted_at=1.0),
    }  # fmt: skip
    spec = JobSpec(argv=("train",), folder="/") if kind is Kind.JOB else None
    return Workload(
        id=id_, kind=kind, team="everyone", queue="training", name="", ask=Ask(devices=len(on)),
        holder=holder, account=account, spec=spec, **(words | more),  # type: ignore[arg-type]
    )  # fmt: skip


class Looker:
    """Attributes readings of one device after another."""

    def __init__(self, rules: Rules = HERE) -> None:
        self.rules = rules
        self.attribution = Attribution(Known(), attempts=ATTEMPTS)

    def all(self, world: World, *pids: int, uuid: str = "GPU-0", drawing: tuple[int, ...] = ()) -> tuple[Use, ...]:
        reading = Reading(uuid=uuid, at=1.0, processes=tuple((pid, 1 << 20) for pid in pids), drawing_pids=drawing)
        return self.attribution.attribute(world, reading, self.rules)

    def one(self, world: World, pid: int, uuid: str = "GPU-0") -> Use:
        (use,) = self.all(world, pid, uuid=uuid)
        return use


@pytest.fixture
def looker() -> Looker:
    """One that may look pids up here."""
    return Looker()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours."""
    with a_process() as process:
        yield process


# -- by descent


def test_what_a_job_has_started_is_its_holders_on_its_device_and_astray_elsewhere(
    looker: Looker, child: subprocess.Popen[bytes]
) -> None:
    """A job granted one GPU that runs on another is told from who may be there: justanhduc/task-spooler#73."""
    world = a_world(a_workload(a_holder(os.getpid()), on=("GPU-1",)))
    use = looker.one(world, child.pid, "GPU-1")
    assert (use.kind, use.workload, use.user, use.is_foreign) == (UseKind.HOLDER, 1, "me", False)
    use = looker.one(world, child.pid, "GPU-0")
    assert (use.kind, use.workload, use.is_foreign) == (UseKind.ASTRAY, 1, True)


def test_a_job_without_devices_is_astray_on_each(looker: Looker, child: subprocess.Popen[bytes]) -> None:
    """It asked for none, so none is its own."""
    assert looker.one(a_world(a_workload(a_holder(os.getpid()), on=())), child.pid).kind is UseKind.ASTRAY


def test_of_two_that_hold_the_one_on_this_device_counts(looker: Looker, child: subprocess.Popen[bytes]) -> None:
    """A kernel with a GPU of its own may use that of its server too."""
    kernel = a_workload(a_holder(child.pid, "kernel"), id_=1, kind=Kind.RESERVATION, on=("GPU-0",))
    server = a_workload(a_holder(os.getpid(), "server"), id_=2, kind=Kind.RESERVATION, on=("GPU-1",))
    world = a_world(kernel, server)
    assert (looker.one(world, child.pid, "GPU-0").workload, looker.one(world, child.pid, "GPU-1").workload) == (1, 2)


def test_a_later_process_of_the_holders_number_is_nobodys_holder(
    looker: Looker, child: subprocess.Popen[bytes]
) -> None:
    """Another start or another boot: another process."""
    for change in ({"start_ticks": 1}, {"boot_id": "another"}, {"start_ticks": None}):
        stale = msgspec.structs.replace(a_holder(child.pid), **change)
        assert looker.one(a_world(a_workload(stale)), child.pid).kind is UseKind.USER


@needs_root
def test_a_client_cannot_say_that_somebody_elses_process_is_its_holder(looker: Looker) -> None:
    """Who reserves with the pid of another's process makes neither a holder of it nor an offender of themselves."""
    with a_process(uid=GRACE) as process:
        lied = a_workload(a_holder(process.pid, "kernel"), kind=Kind.RESERVATION, account="ada")
        for uuid in ("GPU-0", "GPU-1"):
            use = looker.one(a_world(lied), process.pid, uuid)
            assert (use.kind, use.user, use.workload) == (UseKind.USER, "grace", None)


@needs_root
def test_who_reserved_a_device_may_use_it_from_anywhere(looker: Looker) -> None:
    """From another terminal it is theirs as well; of somebody else it is foreign."""
    world = a_world(a_workload(kind=Kind.RESERVATION, account="ada"))
    with a_process(uid=ADA) as hers, a_process(uid=GRACE) as others:
        assert looker.one(world, hers.pid).kind is UseKind.HOLDER
        assert looker.one(world, hers.pid, "GPU-1").kind is UseKind.USER
        assert looker.one(world, others.pid).kind is UseKind.USER
        # A job is what it started, not all that its owner does.
        assert looker.one(a_world(a_workload(account="ada")), hers.pid).kind is UseKind.USER


def test_a_job_that_left_its_pin_is_astray_also_on_what_its_owner_reserved(
    looker: Looker, child: subprocess.Popen[bytes]
) -> None:
    """It takes the memory of its owner's own notebook, and should be told; another kernel of theirs may."""
    reserved = a_workload(kind=Kind.RESERVATION, id_=2, on=("GPU-0",))
    job = a_workload(a_holder(os.getpid()), id_=1, on=("GPU-1",))
    assert looker.one(a_world(reserved, job), child.pid).kind is UseKind.ASTRAY
    kernel = a_workload(a_holder(os.getpid(), "kernel"), id_=1, kind=Kind.RESERVATION, on=("GPU-1",))
    use = looker.one(a_world(reserved, kernel), child.pid)
    assert (use.kind, use.workload) == (UseKind.HOLDER, 2)


# -- by marks


def told(job: int = 1, attempt: int = 1, place: str = ATTEMPTS) -> dict[str, str]:
    """The environment of a job."""
    return {
        "JUPYTER_GPU_JOB": str(job), "JUPYTER_GPU_ATTEMPT": str(attempt), "PATH": os.environ["PATH"],
        "JUPYTER_GPU_NOTICE_FILE": f"{place}/{job}.{attempt}/notice.json",
    }  # fmt: skip


def test_what_has_lost_its_supervisor_is_known_by_the_variables_it_was_given(looker: Looker) -> None:
    """Of this attempt it holds; of an earlier one it is the job's and holds nothing; of another broker neither."""
    world = a_world(a_workload(attempt=2))
    expected = {(1, 2): UseKind.HOLDER, (1, 1): UseKind.ASTRAY, (7, 2): UseKind.USER}
    for (job, attempt), kind in expected.items():
        with a_process(environ=told(job, attempt)) as process:
            assert looker.one(world, process.pid).kind is kind
    with a_process(environ=told(1, 2, place="/elsewhere/attempts")) as process:
        assert looker.one(world, process.pid).kind is UseKind.USER


def test_what_a_job_that_is_over_has_left_is_astray(looker: Looker) -> None:
    """It holds nothing any more, and whose it is is known."""
    over = a_workload(state=State.ENDED, lease=None, active_at=None, end="succeeded", ended_at=2.0)
    with a_process(environ=told()) as process:
        use = looker.one(a_world(over), process.pid)
    assert (use.kind, use.workload) == (UseKind.ASTRAY, 1)


@needs_root
def test_nobody_passes_as_anothers_holder_by_a_variable(looker: Looker) -> None:
    """Anybody may set any variable: it counts only where the process is of the workload's own account."""
    world = a_world(a_workload(account="ada"))
    for uid, kind in ((ADA, UseKind.HOLDER), (GRACE, UseKind.USER)):
        with a_process(uid=uid, environ=told()) as process:
            assert looker.one(world, process.pid).kind is kind


@needs_root
def test_nobody_passes_as_anothers_holder_by_a_cgroup(looker: Looker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some users may make cgroups, and give them any name."""
    inside = f"0::/system.slice/{cgroup_name(ATTEMPTS)}-1.1/below\n"
    monkeypatch.setattr(marks, "cgroup_of", lambda _: inside)
    world = a_world(a_workload(account="ada"))
    for uid, kind in ((ADA, UseKind.HOLDER), (GRACE, UseKind.USER)):
        with a_process(uid=uid) as process:
            assert looker.one(world, process.pid).kind is kind


# -- the others


def test_a_kernel_without_a_lease_is_named(looker: Looker) -> None:
    """With what it has started; russellb/canhazgpu#5 is about the same surprise."""
    argv = (sys.executable, "-S", "-c")
    file = "/run/user/1/jupyter/kernel-3f2a91c0-1111-2222-3333-444455556666.json"
    script = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    process = subprocess.Popen((*argv, script, "-f", file), stdout=subprocess.PIPE)
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    try:
        for pid in (process.pid, worker):
            use = looker.one(a_world(), pid)
            assert (use.kind, use.where, use.user) == (UseKind.KERNEL, "kernel 3f2a91c0", "me")
    finally:
        os.kill(worker, 9)
        process.wait()
        process.stdout.close()


ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("cgroup", "where"),
    [
        (f"0::/system.slice/docker-{ID}.scope", "docker 0123456789ab"),
        (f"12:devices:/docker/{ID}\n1:name=systemd:/docker/{ID}", "docker 0123456789ab"),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", "libpod 0123456789ab"),
        (f"0::/kubepods.slice/kubepods-pod1111.slice/cri-containerd-{ID}.scope", "kubepods 0123456789ab"),
        (f"0::/kubepods/burstable/pod0d2ab13c-1111-2222-3333-0123456789ab/{ID}", "kubepods 0123456789ab"),
        ("0::/lxc.payload.trainer", "lxc trainer"),
        ("0::/lxc/trainer/user.slice", "lxc trainer"),
    ],
)
def test_a_process_in_a_container_is_the_containers(
    looker: Looker, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, cgroup: str, where: str
) -> None:
    """Its user is one of the container's, so nobody is named."""
    monkeypatch.setattr(marks, "cgroup_of", lambda _: cgroup)
    use = looker.one(a_world(), child.pid)
    assert (use.kind, use.where, use.user) == (UseKind.CONTAINER, where, None)


def test_who_is_in_our_own_container_is_no_stranger_for_that(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker in a container serves those who are in it."""
    monkeypatch.setattr(marks, "cgroup_of", lambda _: f"0::/docker/{ID}")
    assert Looker().one(a_world(), child.pid).kind is UseKind.USER


def test_the_machines_own_is_known_by_a_name_of_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under an account of the system only; the kernel has cut long names off."""
    with a_process() as process:
        found = procs.find(process.pid)
        assert found is not None
        for name in ("Xorg", "nv-hostengine-a"):
            named = procs.Proc(found.pid, found.parent, found.start_ticks, name, zombie=False)
            monkeypatch.setattr(procs, "find", lambda pid, named=named: named if pid == named.pid else None)
            assert Looker().one(a_world(), process.pid).kind is UseKind.SYSTEM
            strict = HERE._replace(is_systems=lambda _: False)
            assert Looker(strict).one(a_world(), process.pid).kind is UseKind.USER


def test_what_only_draws_little_is_the_machines_own(looker: Looker, child: subprocess.Popen[bytes]) -> None:
    """A desktop's 150 MiB are no use of the GPU: russellb/canhazgpu#5."""
    for most, kind in ((1 << 20, UseKind.SYSTEM), ((1 << 20) - 1, UseKind.USER)):
        looker.rules = HERE._replace(drawing_bytes=most)
        (use,) = looker.all(a_world(), child.pid, drawing=(child.pid,))
        assert use.kind is kind


@needs_root
def test_a_persons_own_cgroup_of_a_containers_name_makes_no_container(
    looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each login has a subtree in which its user may make cgroups of any name: it neither hides nor protects them."""
    paths = {
        f"/user.slice/user-{ADA}.slice/user@{ADA}.service/docker-{ID}.scope": UseKind.USER,
        f"/user.slice/user-{GRACE}.slice/docker-{ID}.scope": UseKind.CONTAINER,
        f"/system.slice/docker-{ID}.scope": UseKind.CONTAINER,
        f"/theirs/docker-{ID}.scope": UseKind.USER,
    }
    owners = {Path(f"/sys/fs/cgroup{path}"): ADA if "theirs" in path else 0 for path in paths}
    monkeypatch.setattr(marks, "_owner_of", owners.get)
    with a_process(uid=ADA) as process:
        for path, kind in paths.items():
            monkeypatch.setattr(marks, "cgroup_of", lambda _, path=path: f"0::{path}")
            looker.attribution.sweep({})
            use = looker.one(a_world(), process.pid)
            assert (use.kind, use.user) == (kind, "ada" if kind is UseKind.USER else None)
    # Of a number that is no account's the name is all that is known.
    with a_process(uid=ADA + 1000) as process:
        assert looker.one(a_world(), process.pid).kind is UseKind.CONTAINER


# -- what is not certain


def test_where_pids_are_not_ours_nobody_is_named() -> None:
    """Inside a container the driver lists the host's pids: wookayin/gpustat#117."""
    looker = Looker(HERE._replace(has_local_pids=False))
    world = a_world(a_workload(a_holder(os.getpid())))
    assert looker.one(world, os.getpid()) == Use(pid=os.getpid(), kind=UseKind.UNKNOWN, memory_bytes=1 << 20)


def test_a_process_that_is_younger_than_the_entry_of_its_number_is_another(
    looker: Looker, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pid was on the GPU before the process that has it here began: wookayin/gpustat#117."""
    found = procs.find(child.pid)
    assert found is not None
    world = a_world(a_workload(a_holder(child.pid)))
    monkeypatch.setattr(attribution, "_ticks_now", lambda: found.start_ticks - 200)
    for _ in range(2):
        use = looker.one(world, child.pid)
        assert (use.kind, use.name, use.user, use.start_ticks) == (UseKind.UNKNOWN, "", None, None)
    monkeypatch.undo()
    looker.all(world)  # it has left the list: when it comes again, that is later
    assert looker.one(world, child.pid).kind is UseKind.HOLDER


def test_who_has_ended_is_dead_only_when_it_stays_on_the_list(looker: Looker) -> None:
    """A reading may be a moment older than the end of a process."""
    with a_process() as process:
        assert looker.one(a_world(), process.pid).kind is UseKind.USER
    assert looker.all(a_world(), process.pid) == ()
    use = looker.one(a_world(), process.pid)
    assert (use.kind, use.memory_bytes, use.is_foreign) == (UseKind.DEAD, 1 << 20, True)


def test_who_is_hidden_is_not_dead(looker: Looker, monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc may be mounted so that users see only their own."""
    monkeypatch.setattr(procs, "find", lambda _: None)
    assert [looker.one(a_world(), os.getpid()).kind for _ in range(2)] == [UseKind.UNKNOWN] * 2


def test_a_process_of_several_users_or_of_none_is_nobodys(
    looker: Looker, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that runs a set-uid program, and one whose number no account has."""
    for users in ({ADA, GRACE}, {41999}):
        monkeypatch.setattr(procs, "users_of", lambda _, users=users: set(users))
        use = Looker().one(a_world(), child.pid)
        assert (use.kind, use.user) == (UseKind.UNKNOWN, None)
        assert use.name


def test_what_nobody_has_taken_note_of_the_end_of_is_dead(looker: Looker) -> None:
    """A process that has ended has no command line any more, and is no person's way to work for that."""
    with a_process("true") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert looker.all(a_world(), process.pid) == ()
        assert looker.one(a_world(), process.pid).kind is UseKind.DEAD


# -- words of who would do harm


def test_no_argument_of_a_command_line_takes_time(looker: Looker) -> None:
    """One of 130,000 characters held the broker for minutes; where it is no connection file it makes no kernel."""
    for word in ("kernel-" + "A" * 130_000, "kernel-" + "a-" * 65_000 + ".json", "kernel-" + "-" * 1000 + ".json"):
        with a_process(sys.executable, "-S", "-c", f"print(flush=True); {SLEEP}", word) as process:
            began = time.monotonic()
            assert looker.one(a_world(), process.pid).kind is UseKind.USER
            assert time.monotonic() - began < 0.1


def test_what_a_process_calls_itself_is_shown_at_no_length_and_does_nothing(looker: Looker) -> None:
    """Its name goes to a log and to the admin's terminal; the container's and the kernel's are cut."""
    call_me = "import ctypes; ctypes.CDLL(None).prctl(15, b'\\x1b[2J\\nERR a', 0, 0, 0)"
    with a_process(sys.executable, "-S", "-c", f"{call_me}; print(flush=True); {SLEEP}") as process:
        assert looker.one(a_world(), process.pid).name == process_name(process.pid) == "?[2J?ERR a"
    with a_process(sys.executable, "-S", "-c", f"print(flush=True); {SLEEP}", f"kernel-{'b' * 99}.json") as process:
        assert looker.one(a_world(), process.pid).where == f"kernel {'b' * 12}"
    container = marks.container_of("0::/lxc.payload." + "c" * 200)
    assert container is not None
    assert container.title == f"lxc {'c' * 12}"


def test_the_name_of_a_cgroup_takes_no_time() -> None:
    """A path of the kernel's longest, on each line."""
    began = time.monotonic()
    for path in ("docker" * 680, "docker-" + "a" * 63 + "/docker-" * 500, "lxc.payload/" * 300):
        assert marks.container_of("\n".join(f"{n}:cpu:/{path}" for n in range(14))) is None
    assert time.monotonic() - began < 0.1


def test_a_number_of_any_length_is_no_job(looker: Looker, caplog: pytest.LogCaptureFixture) -> None:
    """One of 5000 digits took down every look at every card."""
    environ = told() | {"JUPYTER_GPU_JOB": "9" * 5000}
    with a_process(environ=environ) as process, a_process() as other:
        uses = looker.all(a_world(), process.pid, other.pid)
    assert [use.kind for use in uses] == [UseKind.USER] * 2
    assert caplog.records == []


def test_what_goes_wrong_with_one_process_is_that_ones(
    looker: Looker, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not known, the others are, and it is logged once."""
    kernel_of = marks.kernel_of

    def breaks(pid: int) -> str:
        return str(1 // 0) if pid == child.pid else kernel_of(pid)

    monkeypatch.setattr(marks, "kernel_of", breaks)
    with a_process() as other:
        for _ in range(3):
            uses = looker.all(a_world(), child.pid, other.pid)
            looker.attribution.sweep({"GPU-0": uses})
            assert [use.kind for use in uses] == [UseKind.UNKNOWN, UseKind.USER]
    assert [f"process {child.pid} cannot be looked at" in record.message for record in caplog.records] == [True]


def test_of_many_new_processes_some_are_known_at_each_sample(looker: Looker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample is not to wait for all of them; of more than a card has room for the largest are looked at."""
    monkeypatch.setattr(attribution, "_MOST_NEW", 4)
    monkeypatch.setattr(attribution, "_MOST_KNOWN", 6)
    looker = Looker()
    looker.attribution.sweep({})
    with contextlib.ExitStack() as stack:
        pids = [stack.enter_context(a_process()).pid for _ in range(8)]
        expected = {0: 4, 1: 6, 2: 6}
        for known in expected.values():
            uses = looker.all(a_world(), *pids)
            assert sorted(use.pid for use in uses) == sorted(pids)
            assert sum(use.kind is UseKind.USER for use in uses) == known
            assert sum(use == Use(pid=use.pid, kind=UseKind.UNKNOWN, memory_bytes=1 << 20) for use in uses) == 8 - known
            looker.attribution.sweep({"GPU-0": uses})


def test_little_is_read_of_each_process_and_of_few_above_it(
    looker: Looker, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 60 ancestors with megabytes of arguments each kept the broker from answering for 30 s."""
    found, head, read = procs.find(child.pid), marks.head, []
    assert found is not None

    def counted(path: str, most_bytes: int) -> bytes:
        raw = head(path, most_bytes)
        read.append(len(raw))
        return raw

    monkeypatch.setattr(marks, "head", counted)
    chain = {child.pid + n: procs.Proc(child.pid + n, child.pid + n + 1, 1, "sh", zombie=False) for n in range(1, 60)}
    first = procs.Proc(child.pid, child.pid + 1, found.start_ticks, "sh", zombie=False)
    monkeypatch.setattr(procs, "find", (chain | {child.pid: first}).get)
    looker.all(a_world(), child.pid)
    assert len(looker.attribution._known[child.pid, found.start_ticks].line) == 16
    environ = dict.fromkeys((f"V{n}" for n in range(9)), "x" * 100_000)
    monkeypatch.undo()
    monkeypatch.setattr(marks, "head", counted)
    with a_process(
        sys.executable, "-S", "-c", f"print(flush=True); {SLEEP}", "y" * 100_000, environ=environ
    ) as process:
        looker.all(a_world(), process.pid)
    assert max(read) == marks.ENVIRON_BYTES
    assert sorted(read)[-2] <= marks.COMMAND_LINE_BYTES


def test_what_is_known_is_not_looked_up_again(
    looker: Looker, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each sample one small file of /proc for each process, nothing for a device without any."""
    world = a_world()
    looker.one(world, child.pid)
    read: list[str] = []
    slurp = procs.slurp

    def counted(path: str, *more: int) -> bytes:
        read.append(path)
        return slurp(path, *more)

    monkeypatch.setattr(procs, "slurp", counted)
    for _ in range(3):
        looker.one(world, child.pid)
    assert read == [f"/proc/{child.pid}/stat"] * 3
    read.clear()
    looker.all(world)
    assert read == []


def test_what_has_left_is_forgotten(looker: Looker, child: subprocess.Popen[bytes]) -> None:
    """Brokers live for months."""
    use = looker.one(a_world(), child.pid)
    looker.attribution.sweep({"GPU-0": (use,)})
    assert looker.attribution._known
    looker.attribution.sweep({"GPU-0": ()})
    assert not looker.attribution._known


def test_the_folder_of_the_attempts_is_the_engines(tmp_path: Path) -> None:
    """One word for the cgroups of an attempt, in the engine and here."""
    from jupyter_gpu.broker.engines.spool import Spool

    assert Spool(tmp_path)._name == cgroup_name(str(tmp_path))
