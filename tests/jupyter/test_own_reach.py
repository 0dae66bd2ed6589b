"""A server of a hub says whether it can open GPUs that are not its own, and is never believed more than it has tried.

Real processes behind what a spawner would set: device rules of a cgroup as systemd writes them, mounts without the
nodes, and nothing. The nodes are harmless devices under the names of GPUs.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_gpu import opening, own_reach, pins
from jupyter_gpu.jupyter.documents import ServerFrame
from jupyter_gpu.jupyter.identity import own_identity
from jupyter_gpu.jupyter.own_isolation import NOT_YET, OwnIsolation
from jupyter_gpu.model import Change, Holder, IsolationView, Status
from jupyter_gpu.opening import MISSING, OPENED, REFUSED, try_to_open
from jupyter_gpu.own_reach import Question, Surroundings, find_out, is_closed_by_mode, question, verdict
from tests.engines.fences import IS_ROOT, NOBODY, ROOT, as_user, need, open_folder, unit_of

from .test_stream import ADA, FakePage, Ground, device, kinds, status, workload

HUB = {"JUPYTERHUB_USER": "ada"}
LEASE = HUB | pins.under(7, ["GPU-0"])
PLAIN = Surroundings(0, "0::/user.slice\n", in_container=False)
UNIT = PLAIN._replace(cgroups="0::/system.slice/jupyter-ada-singleuser.service\n")
#: Of urandom, which is the server's own card, and those of others: zero, full.
MINORS = {"nvidia0": 9, "nvidia1": 5, "nvidia2": 7}
#: As a server would: `JUPYTERHUB_USER=... python -c CHILD FOLDER < STATUS`.
CHILD = """
import os, sys, msgspec
from pathlib import Path
from jupyter_gpu.model import Status
from jupyter_gpu.own_reach import find_out, question
asked = question(msgspec.json.decode(sys.stdin.buffer.read(), type=Status), os.environ, (), Path(sys.argv[1]))
sys.stdout.buffer.write(msgspec.json.encode(None if asked is None else find_out(asked)))
"""


def a_status(folder: Path | str = "/dev", *more: str) -> Status:
    """Three cards, of which a server holds the first; `more`: what else holds one."""
    devices = tuple(device(f"GPU-{number}", index=number, nodes=(f"{folder}/nvidia{number}",)) for number in range(3))
    held = workload(7, devices=("GPU-0",))
    return status(devices=devices, workloads=(held, *(workload(8, devices=(uuid,)) for uuid in more)))


# --- real processes -------------------------------------------------------------------------------


@pytest.fixture
def nodes() -> Iterator[Path]:
    """A folder in place of /dev, with three cards that anybody may open, and what all use."""
    if not IS_ROOT:
        pytest.skip("only root may make device nodes")
    with open_folder() as folder:
        for name, minor in MINORS.items():
            os.mknod(folder / name, 0o020666, os.makedev(1, minor))
            (folder / name).chmod(0o666)
        (folder / "nvidiactl").touch()
        try:
            os.close(os.open(folder / "nvidia1", os.O_RDWR))
        except OSError as error:
            pytest.skip(f"device nodes cannot be opened in {folder.parent}: {error.strerror}")
        yield folder


def ask(nodes: Path, *, unit: Path | None = None, inside: tuple[str, ...] = (), as_root: bool = False) -> IsolationView:
    """What a server finds that was started in this unit, inside of what these words make, by default as nobody."""
    words = [*inside, sys.executable, "-c", CHILD, str(nodes)]
    words = words if as_root else as_user(words)
    if unit is not None:  # before the user changes, as systemd does
        words = ["sh", "-c", f'echo $$ > {shlex.quote(str(unit / "cgroup.procs"))} && exec "$@"', "-", *words]
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PATH": os.environ["PATH"]} | LEASE
    told = msgspec.json.encode(a_status(nodes))
    done = subprocess.run(words, input=told, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=IsolationView)


@pytest.mark.parametrize("layer", ["cgroup v1", "cgroup v2"])
def test_a_unit_that_allows_its_own_card_alone_is_enforced(nodes, layer):
    """As of systemdspawner with a DeviceAllow: both other cards were tried, and both were refused."""
    with unit_of(layer, MINORS["nvidia0"]) as unit:
        found = ask(nodes, unit=unit)
    assert (found.enforced, found.detail) == (True, "a process of it tried 2 device nodes of other GPUs: 2 refused")
    assert found.by == "systemd"


def test_a_container_without_the_nodes_is_enforced(nodes):
    """The nodes of others are not there, and the server may make none."""
    need("bubblewrap")
    own = str(nodes / "nvidia0")
    found = ask(nodes, inside=("bwrap", "--dev-bind", "/", "/", "--tmpfs", str(nodes), "--dev-bind", own, own))
    assert (found.enforced, found.detail) == (True, "a process of it tried 2 device nodes of other GPUs: 2 not there")


def test_a_plain_process_is_advisory(nodes):
    """It is told which GPU is its own, and nothing keeps it from the others: the first that opens says enough."""
    found = ask(nodes)
    assert found == IsolationView(enforced=False, detail=f"it could open {nodes}/nvidia1, which is not its own")


def test_a_unit_that_allows_one_card_too_many_is_advisory(nodes):
    """However many others are refused."""
    (nodes / "nvidia2").unlink()
    os.mknod(nodes / "nvidia2", 0o020666, os.makedev(1, 8))
    (nodes / "nvidia2").chmod(0o666)
    with unit_of("cgroup v1", MINORS["nvidia0"], 8) as unit:
        found = ask(nodes, unit=unit)
    assert found == IsolationView(enforced=False, detail=f"it could open {nodes}/nvidia2, which is not its own")


def test_a_card_of_which_the_broker_does_not_tell_is_tried_too(nodes):
    """One that it has lost, or that is in MIG mode and has no MIG devices."""
    os.mknod(nodes / "nvidia3", 0o020666, os.makedev(1, 8))
    (nodes / "nvidia3").chmod(0o666)
    with unit_of("cgroup v1", MINORS["nvidia0"], 8) as unit:
        found = ask(nodes, unit=unit)
    assert found == IsolationView(enforced=False, detail=f"it could open {nodes}/nvidia3, which is not its own")


def test_a_server_of_root_is_never_called_kept(nodes):
    """Though it is refused now: it could leave its unit."""
    with unit_of("cgroup v1", MINORS["nvidia0"], 8) as unit:
        found = ask(nodes, unit=unit, as_root=True)
    assert found == IsolationView(
        enforced=False, detail="it runs with the rights of root, which can leave all that keeps it"
    )


def test_nodes_that_their_own_permissions_close_are_refused_by_these(nodes):
    """An admin may have given each card a group."""
    for name in ("nvidia1", "nvidia2"):
        (nodes / name).chmod(0o660)
    found = ask(nodes)
    assert (found.enforced, found.by) == (True, "file permissions")


# --- nothing but what was tried -------------------------------------------------------------------


@pytest.mark.parametrize("here", [PLAIN, UNIT])
def test_it_is_enforced_only_where_every_node_has_an_answer_and_none_opened(here):
    """Of all that a trial of three nodes can have found: left out, opened, refused, missing, and no known word."""
    others = ("/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3")
    for words in itertools.product([None, OPENED, REFUSED, MISSING, "no such word"], repeat=3):
        answers = {node: word for node, word in zip(others, words, strict=True) if word is not None}
        found = verdict(Question(others, has_lease=True), answers, here)
        assert found.enforced is (set(words) <= {REFUSED, MISSING}), words
        assert found.detail
    assert not verdict(Question(()), {}, here).enforced
    assert not verdict(Question(others, why_not="who knows"), dict.fromkeys(others, REFUSED), here).enforced


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (errno.EPERM, REFUSED),
        (errno.EACCES, REFUSED),
        (errno.ENOENT, MISSING),
        (errno.ENOTDIR, MISSING),
        (errno.ENODEV, OPENED),
        (errno.ENXIO, OPENED),
        (errno.EIO, OPENED),
        (errno.EBUSY, OPENED),
        (errno.EMFILE, OPENED),
        (0, OPENED),
    ],
)
def test_whatever_is_no_refusal_counts_as_got_in(monkeypatch, number, word):
    """A driver that answers in any way was reached."""

    def refuse(*_: object) -> int:
        raise OSError(number, "as the kernel says")

    monkeypatch.setattr(opening.os, "open", refuse)
    assert try_to_open("/dev/nvidia1") == word


def test_after_the_first_that_opens_no_other_is_touched():
    """To open a card that sleeps wakes it."""
    touched: list[str] = []
    find_out(Question(("a", "b", "c")), lambda node: touched.append(node) or {"a": REFUSED}.get(node, OPENED))
    assert touched == ["a", "b"]


def test_who_may_make_nodes_is_not_kept_by_their_absence():
    """Root of a container: what is not there cannot be tried."""
    asked, mknod = Question(("a", "b")), PLAIN._replace(capabilities=1 << 27, in_container=True)
    assert verdict(asked, {"a": REFUSED, "b": MISSING}, mknod).detail == (
        "it may make device nodes itself, and 1 device node could not be tried"
    )
    assert verdict(asked, {"a": REFUSED, "b": REFUSED}, mknod) == IsolationView(
        enforced=True, by="container", detail="a process of it tried 2 device nodes of other GPUs: 2 refused"
    )


def test_a_driver_that_hangs_is_told_and_holds_up_nobody(monkeypatch):
    """Which node it is, too."""
    monkeypatch.setattr(own_reach, "DEADLINE_SECONDS", 0.05)
    release = threading.Event()
    try:
        found = find_out(Question(("a", "b")), lambda node: release.wait() and REFUSED if node == "b" else REFUSED)
    finally:
        release.set()
    assert found == IsolationView(enforced=False, detail="not probed: b gave no answer in time")


def test_a_trial_that_fails_is_no_refusal():
    """Whatever of ours is at fault."""

    def fail(_: str) -> str:
        raise ValueError("ours")

    found = find_out(Question(("a",)), fail)
    assert found == IsolationView(enforced=False, detail="not probed: a gave no answer in time")


@pytest.mark.parametrize(
    ("here", "by"),
    [
        (PLAIN, ""),
        (UNIT, "systemd"),
        (PLAIN._replace(cgroups="0::/user.slice/user-0.slice/session-3.scope\n"), ""),
        (UNIT._replace(in_container=True), "systemd"),
        (PLAIN._replace(in_container=True), "container"),
        (UNIT._replace(cgroups="0::/system.slice/x.service/libpod-payload-1\n", in_container=True), "container"),
    ],
)
def test_what_keeps_it_is_named_as_far_as_it_shows(here, by):
    """By its unit or its container; nothing is guessed."""
    assert verdict(Question(("/none",)), {"/none": MISSING}, here).by == by


def test_it_sees_where_it_stands(tmp_path):
    """Its rights and its cgroup; a container by its mark or its cgroup."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Name:\tx\nCapEff:\t00000000a80425fb\nSeccomp:\t0\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/docker-1234.scope\n")
    here = own_reach.surroundings(tmp_path)
    assert (here.capabilities, here.in_container) == (0xA80425FB, True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    assert not own_reach.surroundings(tmp_path).in_container
    (tmp_path / ".dockerenv").touch()
    assert own_reach.surroundings(tmp_path).in_container


def test_a_mode_closes_by_owner_group_or_all_others(tmp_path, monkeypatch):
    """As the kernel reads it: the first that fits decides."""
    file = tmp_path / "node"
    file.touch()
    if not IS_ROOT:
        pytest.skip("only root may give files away")
    monkeypatch.setattr(own_reach.os, "geteuid", lambda: NOBODY.pw_uid)
    monkeypatch.setattr(own_reach.os, "getegid", lambda: NOBODY.pw_gid)
    monkeypatch.setattr(own_reach.os, "getgroups", lambda: [44])
    for owner, group, mode, closed in [
        (0, 0, 0o666, False), (0, 0, 0o660, True), (0, 44, 0o660, False), (0, 44, 0o640, True), (0, 44, 0o606, True),
        (NOBODY.pw_uid, 0, 0o600, False), (NOBODY.pw_uid, 44, 0o066, True),
    ]:  # fmt: skip
        os.chown(file, owner, group)
        file.chmod(mode)
        assert is_closed_by_mode(file) is closed, (owner, group, oct(mode))
    assert not is_closed_by_mode(tmp_path / "gone")


# --- what is asked --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "it"),
    [
        ({}, a_status()),
        (HUB | {pins.ATTEMPT: "1"}, a_status()),
        (HUB, status(simulated=True, devices=(device(nodes=("/dev/nvidia0",)),))),
        (HUB, status()),
    ],
    ids=["no hub", "a job", "simulated", "no nodes"],
)
def test_where_there_is_nothing_to_keep_apart_nothing_is_tried(tmp_path, environ, it):
    """A server that no hub has started is its user's own, and a job has its own probe."""
    assert question(it, environ, (), tmp_path) is None


def test_its_own_are_those_of_its_lease_and_of_its_kernels(tmp_path):
    """Of another server of the same person's they are not."""
    assert question(a_status("/dev", "GPU-1"), LEASE, (), tmp_path) == Question(("/dev/nvidia1", "/dev/nvidia2"), True)
    held = workload(9, devices=("GPU-2",), holder=Holder(kind="kernel", name="k"))
    it = msgspec.structs.replace(a_status(), workloads=(held,))
    assert question(it, HUB, {"k"}, tmp_path) == Question(("/dev/nvidia0", "/dev/nvidia1"))
    assert question(it, HUB, {"other"}, tmp_path) == Question(("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"))


def test_parts_of_one_card_share_its_node(tmp_path):
    """Another part is kept by its capabilities."""
    parts = tuple(
        device(f"MIG-{n}", card="GPU-0", nodes=("/dev/nvidia0", f"/dev/nvidia-caps/nvidia-cap{20 + n}")) for n in (1, 2)
    )
    it = status(devices=parts, workloads=(workload(7, devices=("MIG-1",)),))
    asked = question(it, HUB | pins.under(7, ["MIG-1"]), (), tmp_path)
    assert asked == Question(("/dev/nvidia-caps/nvidia-cap22",), True)


def test_of_what_is_there_only_the_nodes_of_single_gpus_are_tried(tmp_path):
    """Who may not see others' devices is told no nodes of them: these are found all the same."""
    (tmp_path / "nvidia-caps").mkdir()
    names = ["nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"]
    for name in (*names, *(f"nvidia-caps/nvidia-cap{number}" for number in (1, 2, 3, 12))):
        (tmp_path / name).touch()
    own = device(nodes=("/host/dev/nvidia0",))  # the broker sees it elsewhere
    it = status(devices=(own, device("GPU-1")), workloads=(workload(7),))
    found = question(it, LEASE, (), tmp_path)
    wanted = ["nvidia-caps/nvidia-cap12", "nvidia-caps/nvidia-cap3", "nvidia1", "nvidia10"]
    assert found == Question(tuple(str(tmp_path / name) for name in wanted), True)


@pytest.mark.parametrize(
    ("it", "environ", "why"),
    [
        (a_status(), HUB | {pins.RESERVATION: "99"}, "the broker does not know its reservation 99"),
        (
            a_status(),
            HUB | {pins.RESERVATION: "7", pins.VISIBLE: "0"},
            "a cluster gave it its GPUs, and which those are is not known here",
        ),
        (
            status(devices=(device(), device("GPU-1", nodes=("/dev/nvidia1",))), workloads=(workload(7),)),
            LEASE,
            "the broker does not tell which device nodes are its own",
        ),
    ],
)
def test_where_it_is_not_known_which_are_its_own_none_is_tried(tmp_path, it, environ, why):
    """It would take its own for others', and wake them."""
    asked = question(it, environ, (), tmp_path)
    found = find_out(asked, lambda _: pytest.fail("was tried"))
    assert found == IsolationView(enforced=False, detail=f"not probed: {why}")


def test_a_server_whose_kernels_reserve_says_why_nothing_keeps_it():
    """Its spawner cannot know which they will hold."""
    found = verdict(Question(("/dev/nvidia0",)), {"/dev/nvidia0": OPENED}, UNIT)
    assert found.detail == (
        "it could open /dev/nvidia0, which is not its own; its kernels reserve for themselves, and are told which GPUs"
        " are theirs"
    )


# --- within the server ----------------------------------------------------------------------------


class Own(OwnIsolation):
    """One that notes each verdict, and what was tried."""

    def __init__(self, environ: dict[str, str]) -> None:
        super().__init__(lambda: self.views.put_nowait(self.view), environ)
        self.views: asyncio.Queue[IsolationView | None] = asyncio.Queue()
        self.tried: list[str] = []
        self.answer = REFUSED
        self.hold: threading.Event | None = None
        self.open = self._open

    def _open(self, node: str) -> str:
        self.tried.append(node)
        if self.hold is not None:
            self.hold.wait()
        return self.answer

    async def next(self) -> IsolationView | None:
        """The next verdict that is told."""
        return await asyncio.wait_for(self.views.get(), 10)


@pytest.fixture
def is_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server runs as its user, these tests as root."""
    monkeypatch.setattr(own_reach, "surroundings", lambda: UNIT)


def a_mirror(**more: Any) -> Status:
    """As `a_status`, later."""
    return msgspec.structs.replace(a_status("/none"), **more)


@pytest.mark.usefixtures("is_no_root")
def test_it_tries_again_only_when_its_lease_or_the_devices_change():
    """Not with every reading, nor with the work of others."""

    async def story() -> None:
        own = Own(LEASE)
        own.look(a_mirror(), ())
        assert await own.next() == NOT_YET
        assert (await own.next()).enforced
        count = len(own.tried)
        own.look(a_mirror(revision=2, workloads=(*a_mirror().workloads, workload(8, devices=("GPU-1",)))), ())
        own.look(a_mirror(revision=3), ("a new kernel without GPUs",))
        assert (own.views.empty(), len(own.tried)) == (True, count)
        own.answer = OPENED
        own.look(a_mirror(revision=4, devices=(*a_mirror().devices, device("GPU-9", nodes=("/none/nvidia9",)))), ())
        assert await own.next() == NOT_YET
        assert not (await own.next()).enforced
        own.look(a_mirror(simulated=True), ())
        assert await own.next() is None
        own.close()

    asyncio.run(story())


@pytest.mark.usefixtures("is_no_root")
def test_a_driver_that_hangs_keeps_neither_the_server_nor_the_next_question():
    """It is told at once that it hangs, no second thread is sent after it, and what came meanwhile is asked then."""

    async def story() -> None:
        own = Own(LEASE)
        own.deadline_seconds, own.hold = 0.05, threading.Event()
        own.look(a_mirror(), ())
        assert await own.next() == NOT_YET
        stuck = await own.next()
        assert stuck.detail.startswith("not probed: ")
        assert stuck.detail.endswith(" gave no answer in time")
        own.look(a_mirror(devices=a_mirror().devices[:2]), ())
        assert await own.next() == NOT_YET
        assert len(own.tried) == 1
        own.hold.set()
        assert (await own.next()).enforced
        own.close()

    asyncio.run(story())


# --- what a page hears ----------------------------------------------------------------------------


def heard(page: FakePage) -> list[IsolationView | None]:
    """What a page heard of the server."""
    return [frame.isolation for frame in page.frames if isinstance(frame, ServerFrame)]


@pytest.mark.usefixtures("is_no_root")
@pytest.mark.parametrize(("answer", "is_kept"), [(REFUSED, True), (OPENED, False)])
def test_a_page_hears_it_when_it_is_found_and_each_that_comes_later(monkeypatch, answer, is_kept):
    """A visitor's page does not: it is the word of somebody else's server. Nor does a broker."""
    for name, value in LEASE.items():
        monkeypatch.setenv(name, value)

    async def story() -> None:
        ground, own = Ground(), own_identity()
        ground.all.isolation.open = lambda _: answer
        page = await ground.page(identity=own)
        await ground.say(Change(revision=1, status=a_status("/none")))
        found = await page.until(lambda it: isinstance(it, ServerFrame) and it.isolation != NOT_YET)
        assert found.isolation.enforced is is_kept
        later, visitor = FakePage(), FakePage()
        ground.all.join(later, own)
        assert heard(later) == [found.isolation]
        ground.all.join(visitor, ADA)
        await ground.say(Change(revision=1, status=a_status("/none")))
        assert (kinds(visitor), heard(visitor)) == (["Status", "Kernels"], [])
        await ground.all.close()

    asyncio.run(story())


@pytest.mark.usefixtures("is_no_root")
def test_a_page_hears_of_it_anew_when_the_devices_change(monkeypatch):
    """And of readings, or of others' work, nothing."""
    for name, value in LEASE.items():
        monkeypatch.setenv(name, value)

    async def story() -> None:
        ground = Ground()
        ground.all.isolation.open = lambda node: OPENED if node == "/none/nvidia9" else REFUSED
        page = await ground.page(identity=own_identity())
        await ground.say(Change(revision=1, status=a_status("/none")))
        await page.until(lambda it: isinstance(it, ServerFrame) and it.isolation.enforced)
        before = heard(page)
        mine = a_status().workloads  # each line has all that is the caller's own
        await ground.say(Change(samples=a_status("/none").devices), Change(revision=2, changes=mine))
        assert heard(page) == before
        await ground.say(Change(revision=3, changes=mine, devices=(device("GPU-2", nodes=("/none/nvidia9",)),)))
        await page.until(lambda it: isinstance(it, ServerFrame) and "/none/nvidia9" in it.isolation.detail)
        await ground.all.close()

    asyncio.run(story())


def test_a_server_that_no_hub_has_started_says_nothing_of_itself(monkeypatch):
    """It is its user's own, who may open what they may."""
    monkeypatch.delenv("JUPYTERHUB_USER", raising=False)

    async def story() -> None:
        ground = Ground()
        ground.all.isolation.open = lambda _: pytest.fail("was tried")
        page = await ground.page(identity=own_identity())
        await ground.say(Change(revision=1, status=a_status("/none")))
        assert kinds(page) == ["Status", "Kernels"]
        await ground.all.close()

    asyncio.run(story())
