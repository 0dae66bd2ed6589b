"""Processes without a lease: told to whom it concerns, ended only by the policy and only where it is certain."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

import msgspec
import pytest

from jupyter_gpu.broker import foreign
from jupyter_gpu.broker.alerts import Alerts
from jupyter_gpu.broker.engines import holders, procs
from jupyter_gpu.broker.foreign import Foreign
from jupyter_gpu.model import AlertView, Caller, ForeignRule, Kind, Policy, Scope, Use, UseKind, Workload, World
from tests.faults.house import until

from .ground import Clock
from .people_ground import ADA, GRACE, NAMES, Known, a_process
from .test_attribution import a_workload, a_world, needs_root

OPER = Caller(name="oper", account="oper", scopes=frozenset({Scope.OPERATE}))
ENDING = Policy(foreign_use="end", foreign_seconds=60, kill_after_seconds=30)
#: Kinds of which it is not certain whose process it is.
DOUBTFUL = [UseKind.CONTAINER, UseKind.UNKNOWN, UseKind.SYSTEM, UseKind.HOLDER]


def a_use(pid: int, kind: UseKind = UseKind.USER, *, user: str | None = "grace", **more: object) -> Use:
    """A process on a device."""
    found = procs.find(pid)
    words = {"name": "python", "start_ticks": None if found is None else found.start_ticks, "memory_bytes": 1 << 30}
    return Use(pid=pid, kind=kind, user=user, **({"owner": None if kind is UseKind.CONTAINER else user} | words | more))  # type: ignore[arg-type]


class Room:
    """The room, a world of two devices, and a clock."""

    def __init__(self, *workloads: Workload, policy: Policy = ENDING) -> None:
        self.clock = Clock()
        self.alerts = Alerts(self.clock)
        self.world: World = a_world(*workloads)
        self.world.policy = policy
        self.foreign = Foreign(self.alerts, Known())

    def look(self, seconds: int = 1) -> None:
        """Let so many samples come, one a second."""
        for _ in range(seconds):
            self.clock.now += 1
            self.foreign.look(self.world, self.clock.now)

    def told(self, name: str = "oper") -> list[str]:
        """What somebody is told."""
        scopes = OPER.scopes if name == "oper" else frozenset({Scope.READ})
        return [view.text for view in self.views(Caller(name=name, account=name, scopes=scopes))]

    def views(self, caller: Caller = OPER) -> tuple[AlertView, ...]:
        """The same, whole."""
        return self.alerts.views(caller)


@pytest.fixture
def hers() -> Iterator[subprocess.Popen[bytes]]:
    """A process of grace's, where there are several users; else one of ours."""
    with a_process(uid=GRACE if os.geteuid() == 0 else None) as process:
        yield process


WHOSE = "grace" if os.geteuid() == 0 else "me"


# -- told


def test_a_process_without_a_lease_is_told_once_it_was_seen_twice() -> None:
    """To operators, and to whoever it is where that is certain; it is over when it has left."""
    room = Room(policy=Policy())
    room.world.uses["GPU-0"] = (a_use(os.getpid()), a_use(1, memory_bytes=5))
    room.look()
    assert room.told() == []
    room.look()
    (text,) = room.told()
    assert f"GPU 0 is used without a lease: process {os.getpid()} (python) of grace and 1 more, since " in text
    assert ", 1GiB. Nobody gets it while that lasts. Let its user end it, or reserve a GPU first." in text
    (own,) = room.told("grace")
    assert f"Your process {os.getpid()} (python) and 1 more of yours are on GPU 0 without a lease, since " in own
    assert room.told("ada") == []
    room.world.uses["GPU-0"] = ()
    room.look()
    assert room.told() == room.told("grace") == []


def test_an_intruder_on_a_leased_device_is_told_to_its_holder_too() -> None:
    """Who holds it should know why it is slow; where names are not public they hear no name."""
    room = Room(a_workload(), policy=Policy(names_are_public=False))
    room.world.uses["GPU-0"] = (a_use(os.getpid(), UseKind.KERNEL, where="kernel 3f2a91c0"),)
    room.look(2)
    (text,) = room.told()
    assert "GPU 0, which job 1 of ada holds, is used without a lease" in text
    assert "of grace" in text
    for name in ("ada", "grace"):
        (plain,) = room.told(name)
        assert f"process {os.getpid()}" in plain
        assert "grace" not in plain
        assert "job 1" not in plain


@pytest.mark.parametrize("kind", [UseKind.UNKNOWN, UseKind.DEAD])
def test_where_it_may_be_the_holders_own_nobody_is_accused(kind: UseKind) -> None:
    """In a container all pids are unknown, those of holders as well: wookayin/gpustat#117."""
    room = Room(a_workload())
    room.world.uses = {uuid: (a_use(4711, kind, user=None, name="", start_ticks=None),) for uuid in ("GPU-0", "GPU-1")}
    room.look(3)
    # What the dead have left where nobody has a lease is told of the device.
    assert [view.device for view in room.views()] == (["GPU-1"] if kind is UseKind.UNKNOWN else [])


def test_another_accounts_process_on_the_same_card_is_news(
    hers: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Grace's has gone, and a minute later somebody else's is there: whoever was told of hers knows nothing of that."""
    room = Room(policy=Policy())
    for user, times in (("grace", 1), ("mallory", 2), ("grace", 2)):
        room.world.uses["GPU-0"] = (a_use(hers.pid, user=user),)
        room.look(3)
        room.world.uses.clear()
        room.look(60)
        assert len([it for it in caplog.records if it.levelname == "WARNING"]) == times


def test_a_container_on_a_leased_device_is_its_holders_to_judge() -> None:
    """Most likely it is their own; operators hear of it too, for a name of a container hides nobody."""
    room = Room(a_workload())
    room.world.uses["GPU-0"] = (a_use(os.getpid(), UseKind.CONTAINER, user=None, where="docker 0123456789ab"),)
    room.look(2)
    for name in ("oper", "ada"):
        (text,) = room.told(name)
        assert "in docker 0123456789ab, since " in text
        assert "1GiB. Its holder can tell whether that is theirs." in text
        assert "may be used without a lease" in text


def test_who_can_be_looked_up_here_and_is_nobodys_is_no_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of a number that an account lends itself is told with whose it is; as its holder's it is let be."""
    lent = a_use(os.getpid(), UseKind.UNKNOWN, user=None)
    monkeypatch.setattr(procs, "users_of", lambda _: {100_005})
    room = Room(a_workload(account="ada"))
    room.world.uses["GPU-0"] = (lent,)
    monkeypatch.setattr(room.foreign._people, "lender_of", {100_005: "grace"}.get)
    room.look(2)
    (text,) = room.told()
    assert f"process {os.getpid()} (python) of a user number that /etc/subuid lends to grace, since" in text
    assert "It is left alone: it is not certain whose it is." in text
    room = Room(a_workload(account="ada"))
    room.world.uses["GPU-0"] = (lent,)
    monkeypatch.setattr(room.foreign._people, "lender_of", {100_005: "ada"}.get)
    room.look(2)
    assert room.told() == []


def test_a_job_outside_its_reservation_is_told_to_its_owner_and_to_operators() -> None:
    """It overrode its pin and runs on a GPU that it was not given: justanhduc/task-spooler#73."""
    room = Room(a_workload(on=("GPU-1",)), policy=Policy())
    room.world.uses["GPU-0"] = (a_use(os.getpid(), UseKind.ASTRAY, user="ada", workload=1),)
    room.look(2)
    (view,) = room.views()
    assert (view.key, view.workload) == ("astray:1", 1)
    assert f"job 1 of ada runs outside its reservation: process {os.getpid()} on GPU 0. It holds GPU 1" in view.text
    assert "outside its reservation" in room.told("ada")[0]


# -- ended


@needs_root
def test_the_policy_may_end_a_process_without_a_lease(hers: subprocess.Popen[bytes]) -> None:
    """After the notice SIGTERM, and nothing before it; the alert says when."""
    room = Room()
    room.world.uses["GPU-0"] = (a_use(hers.pid),)
    room.look(2)
    assert "It is ended at" in room.told()[0]
    room.look(59)
    assert hers.poll() is None
    room.look()
    assert hers.wait(10) == -signal.SIGTERM


@needs_root
def test_what_heeds_no_sigterm_is_killed_later() -> None:
    """`kill_after_seconds` after it was asked, and not asked twice."""
    with a_process("sh", "-c", "echo; exec env --ignore-signal=TERM sleep 600", uid=GRACE) as process:
        until(lambda: procs.argv(process.pid)[:1] == ["sleep"], "it sleeps")
        room = Room()
        room.world.uses["GPU-0"] = (a_use(process.pid),)
        room.look(62 + 29)
        assert process.poll() is None
        room.look()
        assert process.wait(10) == -signal.SIGKILL


@needs_root
def test_a_policy_that_warns_ends_nobody(hers: subprocess.Popen[bytes]) -> None:
    """That is what ships."""
    room = Room(policy=Policy())
    room.world.uses["GPU-0"] = (a_use(hers.pid),)
    room.look(600)
    assert hers.poll() is None
    assert len(room.told()) == 1


@needs_root
def test_who_leaves_in_time_is_not_ended(hers: subprocess.Popen[bytes]) -> None:
    """And the time of who comes again begins anew."""
    room = Room()
    for _ in range(5):
        room.world.uses["GPU-0"] = (a_use(hers.pid),)
        room.look(50)
        room.world.uses["GPU-0"] = ()
        room.look(12)
    assert hers.poll() is None


@needs_root
def test_who_goes_from_process_to_process_is_told_once(hers: subprocess.Popen[bytes]) -> None:
    """The notice is an account's: a new process each minute held a card for as long as anybody liked."""
    room = Room()
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            process = stack.enter_context(a_process(uid=GRACE))
            room.world.uses["GPU-0"] = (a_use(process.pid),)
            room.look(10)
            assert process.poll() is None
            room.world.uses["GPU-0"] = ()
            room.look(2)
        others = stack.enter_context(a_process(uid=ADA))
        room.world.uses["GPU-0"] = (a_use(hers.pid), a_use(others.pid, user="ada"))
        room.look(1)
        assert hers.poll() is None  # one reading may be older than the end of a lease
        room.look(1)
        assert hers.wait(10) == -signal.SIGTERM
        assert others.poll() is None


@needs_root
def test_of_many_some_are_ended_at_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked at anew, so a sample has time for some only; those who may not be ended hold up nobody."""
    monkeypatch.setattr(foreign, "_MOST_ENDED", 2)
    room = Room()
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(a_process()) for _ in range(3)]
        ended = [stack.enter_context(a_process(uid=GRACE)) for _ in range(3)]
        uses = [a_use(it.pid, user=WHOSE) for it in kept] + [a_use(it.pid) for it in ended]
        room.world.uses["GPU-0"] = tuple(uses)
        room.look(62 + 3)
        assert {it.wait(10) for it in ended} == {-signal.SIGTERM}
        assert {it.poll() for it in kept} == {None}


@needs_root
def test_a_stray_process_is_ended_where_others_would_work(hers: subprocess.Popen[bytes]) -> None:
    """On a free device or another's; on one that its own user holds it is only told."""
    use = a_use(hers.pid, UseKind.ASTRAY, workload=1)
    room = Room(a_workload(on=("GPU-1",), account="grace"), a_workload(id_=2, account="grace"))
    assert room.foreign.why_spared(room.world, room.world.devices["GPU-0"], use) == "its user holds the GPU"
    room = Room(a_workload(on=("GPU-1",), account="grace"), a_workload(id_=2, account="ada"))
    assert room.foreign.why_spared(room.world, room.world.devices["GPU-0"], use) == ""


# -- never


def spared(use: Use, *workloads: Workload) -> str:
    """Why a process on GPU 0 is not ended, with the policy that ends; and that it is not."""
    room = Room(*workloads)
    room.world.uses["GPU-0"] = (use,)
    sent: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holders, "end", lambda *words, **_: sent.append(words))
        room.look(300)
    assert sent == []
    return room.foreign.why_spared(room.world, room.world.devices["GPU-0"], use)


@pytest.mark.parametrize("kind", DOUBTFUL)
def test_never_a_process_whose_owner_is_not_certain(kind: UseKind, hers: subprocess.Popen[bytes]) -> None:
    """Whatever the policy says, and however long it stays."""
    assert spared(a_use(hers.pid, kind, user=WHOSE)) == "it is not certain whose it is"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"user": None}, "not certain"),
        ({"start_ticks": None}, "not certain"),
        ({"start_ticks": 1}, "has ended"),
        ({"user": "ada"}, "not certain"),
        ({"pid": 2**22 + 1}, "has ended"),
    ],
)
def test_never_a_process_that_is_not_what_was_seen(
    more: dict[str, object], said: str, hers: subprocess.Popen[bytes]
) -> None:
    """Without an account, without a start, with another's start or account, or gone."""
    assert said in spared(msgspec.structs.replace(a_use(hers.pid, user=WHOSE), **more))


def test_never_a_process_of_several_users(hers: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """A set-uid program: its first user could not signal it, and we do not for them."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for others in (0, ADA):
        monkeypatch.setattr(procs, "users_of", lambda _, others=others: {GRACE, others})
        for user in ("grace", NAMES[others]):
            assert "not certain" in spared(a_use(hers.pid, user=user))


@pytest.mark.parametrize("uid", [0, 999, 61200, 65534])
def test_never_a_process_of_root_or_of_the_system(
    uid: int, hers: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services, also those with a number for the time that they run, and all whose number is not known here."""
    monkeypatch.setattr(procs, "users_of", lambda _: {uid})
    assert spared(a_use(hers.pid, user=NAMES[uid])) == "it is the machine's own"


def test_never_a_process_that_is_not_ours_to_signal(
    hers: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker of one user ends only that user's."""
    monkeypatch.setattr(procs, "users_of", lambda _: {GRACE})
    monkeypatch.setattr(os, "geteuid", lambda: ADA)
    assert "somebody else" in spared(a_use(hers.pid, user="grace"))


@pytest.mark.parametrize("name", ["bash", "zsh", "sshd", "tmux: server", "systemd"])
def test_never_a_login_shell(name: str, hers: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what keeps many programs of a person."""
    found = procs.find(hers.pid)
    assert found is not None
    named = procs.Proc(found.pid, found.parent, found.start_ticks, name, zombie=False)
    monkeypatch.setattr(procs, "find", lambda _: named)
    monkeypatch.setattr(procs, "users_of", lambda _: {GRACE})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "how somebody works" in spared(a_use(hers.pid, user="grace"))


def test_never_a_login_shell_of_any_name(hers: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a dash before its name; and never the broker itself."""
    monkeypatch.setattr(procs, "users_of", lambda _: {GRACE})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "how somebody works" in spared(a_use(os.getpid(), user="grace"))
    for words, said in ((["-xonsh"], "how somebody works"), ([], "cannot be read")):
        monkeypatch.setattr(foreign, "first_words", lambda _, words=words: words)
        assert said in spared(a_use(hers.pid, user="grace"))


def test_never_on_a_device_that_its_user_holds(hers: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """What they run beside their own job is theirs to end."""
    monkeypatch.setattr(procs, "users_of", lambda _: {GRACE})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert spared(a_use(hers.pid, user="grace"), a_workload(account="grace")) == "its user holds the GPU"
    reserved = a_workload(account="grace", kind=Kind.RESERVATION)
    assert spared(a_use(hers.pid, user="grace"), reserved) == "its user holds the GPU"


@pytest.mark.parametrize("account", ["who-is-not-known", ""])
def test_never_where_it_is_not_known_whose_the_lease_is(
    account: str, hers: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name service has not answered, or failed, or a token has no account: it may be the holder's own process.

    It killed the work of who held the card. Nor is anybody accused for it: only operators are told.
    """
    monkeypatch.setattr(procs, "users_of", lambda _: {GRACE})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for kind in Kind:
        held = a_workload(account=account, kind=kind)
        other = a_workload(account="ada", id_=2, kind=kind)
        said = "it is not known whose the lease is"
        assert spared(a_use(hers.pid, user="grace"), held) == spared(a_use(hers.pid, user="grace"), held, other) == said
        room = Room(held)
        room.world.uses["GPU-0"] = (a_use(hers.pid, user="grace"),)
        room.look(2)
        assert "may be used without a lease" in room.told()[0]
        assert f"It is left alone: {said}." in room.told()[0]
        assert room.told("ada") == room.told("grace") == []


def test_never_a_process_that_has_ended() -> None:
    """Nobody has taken note of its end yet; that it has no command line says nothing else."""
    with a_process("true", uid=GRACE if os.geteuid() == 0 else None) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        for kind in (UseKind.USER, UseKind.DEAD):
            assert spared(a_use(process.pid, kind, user=WHOSE)) == "it has ended"


def test_the_alert_says_why_it_is_left_alone(hers: subprocess.Popen[bytes]) -> None:
    """An operator who wants it ended by the policy learns why it is not."""
    room = Room()
    room.world.uses["GPU-0"] = (a_use(hers.pid, UseKind.CONTAINER, user=None),)
    room.look(2)
    assert "It is left alone: it is not certain whose it is." in room.told()[0]


# -- by team


STRICT = ForeignRule(team="students", use="end", after_seconds=20)
MILD = ForeignRule(team="staff", use="warn")
BY_TEAM = Policy(foreign_use="end", foreign_seconds=60, kill_after_seconds=30, foreign_rules=(STRICT, MILD))


def in_groups(groups: dict[str, tuple[str, ...]] | None, policy: Policy = BY_TEAM, *workloads: Workload) -> Room:
    """The room under a hub that says this of its users."""
    room = Room(*workloads, policy=policy)
    room.world.groups = groups
    return room


@needs_root
@pytest.mark.parametrize(
    ("groups", "seconds", "rule"),
    [
        (("students",), 20, "the rule for team students"),
        (("vision",), 60, "foreign_use"),
        ((), 60, "foreign_use"),
        # Strictest: who is also in staff is a student all the same.
        (("staff", "students"), 20, "the rule for team students"),
    ],
)
def test_it_is_ended_by_the_rule_of_its_owners_teams(
    groups: tuple[str, ...], seconds: int, rule: str, hers: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """When that says so; the log, the operators and whose it was are told by which rule."""
    room = in_groups({"grace": groups})
    room.world.uses["GPU-0"] = (a_use(hers.pid),)
    room.look(2 + seconds - 1)
    assert hers.poll() is None
    (own,) = room.told("grace")
    assert (f", by {rule}." in own) == (rule != "foreign_use")
    room.look(1)
    assert hers.wait(10) == -signal.SIGTERM
    assert f"process {hers.pid} (python) of grace was asked to end, as the policy says ({rule})" in caplog.text
    room.world.uses.clear()
    room.look(1)
    for name, whose in (("oper", f"Process {hers.pid} (python) of grace"), ("grace", f"Your process {hers.pid}")):
        (text,) = room.told(name)
        assert text.startswith(f"{whose} was asked to end at ")
        assert f"it had no lease of GPU 0 ({rule})." in text
    assert room.told("ada") == []
    room.look(600)
    assert room.told() == room.told("grace") == []


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"grace": ("staff",)}, "Let its user end it, or reserve a GPU first."),
        ({}, "It is left alone: it is not known now which teams its user is in."),
    ],
)
def test_who_is_only_warned_and_whose_teams_are_not_known_is_not_ended(
    groups: dict[str, tuple[str, ...]], said: str, hers: subprocess.Popen[bytes]
) -> None:
    """A hub that is away ends nothing, whatever the plain rule says: theirs may be milder."""
    room = in_groups(groups)
    room.world.uses["GPU-0"] = (a_use(hers.pid, user=WHOSE, owner="grace"),)
    room.look(300)
    assert hers.poll() is None
    assert room.told()[0].endswith(said)


@needs_root
def test_the_time_of_another_rule_begins_when_it_holds(hers: subprocess.Popen[bytes]) -> None:
    """The hub's word came late, or a group was gained: nobody is ended who was not told for as long before."""
    room = in_groups({})
    room.world.uses["GPU-0"] = (a_use(hers.pid),)
    room.look(100)
    room.world.groups = {"grace": ("students",)}
    room.look(20)
    assert hers.poll() is None
    assert "It is ended at" in room.told("grace")[0]
    room.look(2)
    assert hers.wait(10) == -signal.SIGTERM


@needs_root
def test_each_is_treated_by_their_own_rule_on_one_device(hers: subprocess.Popen[bytes]) -> None:
    """One is ended and the other stays; both are told what is theirs, and the operators of both."""
    room = in_groups({"grace": ("students",), "ada": ("staff",)})
    with a_process(uid=ADA) as others:
        room.world.uses["GPU-0"] = (a_use(hers.pid), a_use(others.pid, user="ada"))
        room.look(10)
        assert "One of them is ended at " in room.told()[0]
        assert ", by the rule for team students; the others are left alone." in room.told()[0]
        assert "Let its user end it" in room.told("ada")[0]
        assert "by the rule for team students." in room.told("grace")[0]
        room.look(20)
        assert hers.wait(10) == -signal.SIGTERM
        assert others.poll() is None


# -- under a hub


def test_operators_read_server_and_notebook_and_whose_it_is_reads_them_of_their_own() -> None:
    """Who holds the device reads who it is and nothing more; what a process says of itself is for operators."""
    room = in_groups({}, Policy(), a_workload())
    kernel = a_use(os.getpid(), UseKind.KERNEL, user="lab", owner="ana", server="big", notebook="train.ipynb")
    room.world.uses["GPU-0"] = (kernel, a_use(1, user="lab", owner=None, memory_bytes=5, claim="ben"))
    room.look(2)
    (text,) = room.told()
    assert f"process {os.getpid()} (python) of ana, server 'big', notebook train.ipynb, and 1 more, since" in text
    (own,) = room.told("ana")
    assert own.startswith(f"Your process {os.getpid()} (python), server 'big', notebook train.ipynb, is on GPU 0")
    (holders_words,) = room.told("ada")
    assert "of ana and 1 more, since" in holders_words
    assert "big" not in holders_words
    assert "train.ipynb" not in holders_words
    for name in ("ben", "lab"):
        assert room.told(name) == []


def test_a_process_of_an_account_of_many_that_nobody_is_known_of_accuses_nobody(
    hers: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own word is shown to operators, and neither its owner's rule nor the plain one ends it."""
    monkeypatch.setattr(procs, "users_of", lambda _: {GRACE})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    use = a_use(hers.pid, user="grace", owner=None, claim="ana, server big")
    assert spared(use) == "it is not certain whose it is"
    room = in_groups({"ana": ("students",)})
    room.world.uses["GPU-0"] = (use,)
    room.look(2)
    assert "of the account grace, by its own word of ana, server big, since" in room.told()[0]
    assert "It is left alone: it is not certain whose it is." in room.told()[0]
    assert room.told("ana") == room.told("grace") == []


def test_never_in_a_container_also_where_the_hub_knows_whose_it_is(hers: subprocess.Popen[bytes]) -> None:
    """Its spawner ends it; its owner is told, and it is no riddle for who holds the device."""
    use = a_use(hers.pid, UseKind.CONTAINER, user=None, owner="ana", server="", where="docker 0123456789ab")
    assert spared(use) == "it is in a container"
    room = in_groups({}, Policy(), a_workload(account=""))
    room.world.uses["GPU-0"] = (use,)
    room.look(2)
    assert "of ana in docker 0123456789ab, in their usual server, since" in room.told()[0]
    assert "is used without a lease" in room.told("ada")[0]
    assert "in your usual server, is on GPU 0 without a lease" in room.told("ana")[0]


def test_an_account_that_is_called_like_another_user_blames_nobody_else() -> None:
    """Ana of the university works as `ana`, and somebody else is called ana at the hub."""
    room = in_groups({}, Policy())
    room.world.uses["GPU-0"] = (a_use(os.getpid(), user="ana", owner="ana@uni"),)
    room.look(2)
    read = frozenset({Scope.READ})
    assert room.views(Caller(name="ana", account="", scopes=read)) == ()
    assert len(room.views(Caller(name="ana@uni", account="ana", scopes=read))) == 1
