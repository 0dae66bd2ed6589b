"""Alerts: open while what they are about lasts, told once, to whom they concern, and to the admin's command."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.broker import alerts as room
from jupyter_gpu.broker.alerts import QUIET_SECONDS, Alert, Alerts
from jupyter_gpu.broker.telemetry.calls import CardGoneError, card_fault
from jupyter_gpu.broker.telling import PROBED_WITHIN_SECONDS, IsolationTold, tell_of_devices, tell_of_driver
from jupyter_gpu.model import Caller, Card, Condition, IsolationView, Scope, Use, UseKind, World

from .ground import Clock, devices

ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ}))
GRACE = Caller(name="grace", account="grace", scopes=frozenset({Scope.READ}))
OPER = Caller(name="oper", account="oper", scopes=frozenset({Scope.READ, Scope.OPERATE}))

HOT = Alert(text="GPU 0 is too hot.", device="GPU-0")
HERS = Alert(text="job 1 of ada is above.", plain="job 1 is above.", workload=1, users=frozenset({"ada"}))


def keys(alerts: Alerts, caller: Caller = OPER) -> list[str]:
    """What a caller sees."""
    return [view.key for view in alerts.views(caller)]


# -- who sees what


def test_operators_see_all_and_owners_their_own() -> None:
    """Words that are not for everybody are left out where they are not."""
    alerts = Alerts(Clock())
    alerts.open("device:0", HOT)
    alerts.open("share:1", HERS)
    assert keys(alerts) == ["device:0", "share:1"]
    assert keys(alerts, ADA) == ["share:1"]
    assert keys(alerts, GRACE) == []
    assert alerts.views(OPER)[1].text == "job 1 of ada is above."
    assert alerts.views(ADA)[0].text == "job 1 is above."


def test_what_concerns_its_owner_alone_is_for_nobody_else() -> None:
    """An operator has the device's own alert."""
    alerts = Alerts(Clock())
    alerts.open("holder:1", Alert(text="yours", users=frozenset({"ada"}), for_operators=False))
    assert (keys(alerts), keys(alerts, ADA)) == ([], ["holder:1"])


def test_an_account_is_known_by_its_name_too_where_it_is_ones_own() -> None:
    """Who comes by a token has a name and an account; that somebody is called like another's account tells nothing."""
    alerts = Alerts(Clock())
    alerts.open("foreign:0", Alert(text="a process", users=frozenset({"u1001"}), accounts=frozenset({"u1001"})))
    assert keys(alerts, Caller(name="ci", account="u1001")) == ["foreign:0"]
    assert keys(alerts, Caller(name="ci", account="u1001", shares_account=True)) == []
    alerts.settle("foreign", {"foreign:0": Alert(text="a process", users=frozenset({"ada"}))})
    assert keys(alerts, Caller(name="ci", account="ada")) == []


def test_everybody_reads_what_is_theirs() -> None:
    """Operators all of it, whose it is their own, and others no more than they may know. The command gets all."""
    alerts = Alerts(Clock())
    users = frozenset({"ada", "grace", "oper"})
    told = Alert(text="a", plain="b", own={"ada": "yours", "oper": "its own"}, users=users)
    alerts.open("foreign:0", told)
    assert [alerts.views(who)[0].text for who in (OPER, ADA, GRACE)] == ["a", "yours", "b"]


# -- once


def test_an_alert_is_told_once_however_often_it_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    """Its newest words are shown; it began when it began."""
    clock, changed = Clock(), []
    alerts = Alerts(clock)
    alerts.changed = lambda: changed.append(1)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            alerts.settle("device", {"device:0": HOT})
            clock.now += 1
        alerts.settle("device", {"device:0": Alert(text="GPU 0 has 99 °C.")})
    (view,) = alerts.views(OPER)
    assert (view.text, view.since) == ("GPU 0 has 99 °C.", clock.now - 5)
    assert [record.message for record in caplog.records] == ["GPU 0 is too hot."]
    assert len(changed) == 2


def test_what_comes_and_goes_wakes_nobody_twice(caplog: pytest.LogCaptureFixture) -> None:
    """It is shown each time, as what began at first; after a long quiet it is new."""
    clock = Clock()
    alerts = Alerts(clock)
    with caplog.at_level(logging.WARNING):
        began = clock.now
        for _ in range(5):
            alerts.open("a:1", HOT)
            assert alerts.views(OPER)[0].since == began
            clock.now += 1
            alerts.close("a:1")
            assert keys(alerts) == []
            clock.now += QUIET_SECONDS - 1
        assert len(caplog.records) == 1
        clock.now += 1
        alerts.open("a:1", HOT)
        assert alerts.views(OPER)[0].since == clock.now
    assert len(caplog.records) == 2


def about(*who: str) -> Alert:
    """Somebody is on it."""
    return Alert(text=f"GPU 0 is used by {' and '.join(who)}.", device="GPU-0", about=frozenset(who))


def test_what_is_new_under_a_known_key_is_told_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Another account's process on a card, at the same time or a minute after the first: nobody knew of that one."""
    clock = Clock()
    alerts = Alerts(clock)
    with caplog.at_level(logging.WARNING):
        alerts.open("foreign:0", about("grace"))
        clock.now += 5
        alerts.open("foreign:0", about("grace", "mallory"))
        alerts.open("foreign:0", about("mallory"))
        alerts.close("foreign:0")
        clock.now += 60
        for who in ("grace", "mallory"):
            alerts.open("foreign:0", about(who))
            alerts.close("foreign:0")
        assert len(caplog.records) == 2
        alerts.open("foreign:0", about("eve"))
    assert [record.message for record in caplog.records] == [
        "GPU 0 is used by grace.", "GPU 0 is used by grace and mallory.", "GPU 0 is used by eve.",
    ]  # fmt: skip
    assert alerts.views(OPER)[0].since == clock.now - 65


def test_after_an_operators_word_all_of_a_device_is_news(caplog: pytest.LogCaptureFixture) -> None:
    """What they dealt with is over at once, and when it comes back they are called; of others nothing changes."""
    alerts = Alerts(Clock())
    other = Alert(text="GPU 1 is too hot.", device="GPU-1")
    with caplog.at_level(logging.WARNING):
        alerts.open("device:0", HOT)
        alerts.open("device:1", other)
        alerts.forget({"GPU-0"})
        assert keys(alerts) == ["device:1"]
        for key, alert in (("device:0", HOT), ("device:1", other)):
            alerts.close(key)
            alerts.open(key, alert)
    assert [record.message for record in caplog.records] == [HOT.text, other.text, HOT.text]


def test_a_group_holds_just_what_is_so_now() -> None:
    """Of its own keys, and of no other's that begin alike."""
    alerts = Alerts(Clock())
    alerts.open("devices:x", HOT)
    alerts.settle("device", {"device:0": HOT, "device:1": HOT})
    alerts.settle("device", {"device:1": HOT})
    assert sorted(keys(alerts)) == ["device:1", "devices:x"]
    alerts.settle("device", {})
    assert keys(alerts) == ["devices:x"]


# -- the admin's command


def story(tell: Callable[[], Awaitable[None]]) -> None:
    """Play an asynchronous story."""

    async def run() -> None:
        await tell()

    asyncio.run(run())


async def ran(alerts: Alerts) -> None:
    """Wait until no command runs."""
    async with asyncio.timeout(20):
        while alerts._running:
            await asyncio.sleep(0.01)


def test_the_admins_command_gets_each_alert_as_json(tmp_path: Path) -> None:
    """One document on its standard input, for each that is told; what is told no second time is not given either."""
    out = tmp_path / "said"

    async def tell() -> None:
        alerts = Alerts(Clock(), command=("sh", "-c", f"cat >> {out}"))
        alerts.open("share:1", HERS)
        alerts.open("device:0", HOT)
        alerts.open("device:0", HOT)
        await ran(alerts)
        alerts.close("device:0")
        alerts.open("device:0", HOT)
        await ran(alerts)

    story(tell)
    said = sorted((json.loads(line) for line in out.read_text().splitlines()), key=lambda it: str(it["key"]))
    assert [it["key"] for it in said] == ["device:0", "share:1"]
    assert (said[0]["device"], said[0]["text"]) == ("GPU-0", "GPU 0 is too hot.")
    assert (said[1]["workload"], said[1]["text"]) == (1, "job 1 of ada is above.")


@pytest.mark.parametrize("is_executable", [True, False])
def test_a_command_that_is_not_there_is_told_before_it_is_needed(tmp_path: Path, is_executable: bool) -> None:
    """`jupyter gpu doctor` passes on what the broker warns of; a file that is put right is right at once."""
    command = tmp_path / "tell"
    alerts = Alerts(Clock(), command=(str(command), "--urgent"))

    (said,) = alerts.warnings
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755 if is_executable else 0o644)

    assert str(command) in said
    assert "c.GpuBroker.alert_command" in said
    assert (alerts.warnings == ()) is is_executable
    assert Alerts(Clock()).warnings == Alerts(Clock(), command=("sh",)).warnings == ()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("/no/such/program",), "No such file"),
        ((sys.executable, "-S", "-c", "import sys; sys.exit('the pager is down')"), "the pager is down"),
        (("sleep", "60"), "did not end within"),
    ],
)
def test_a_command_that_fails_is_told_and_holds_up_nothing(
    command: tuple[str, ...], said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alert stands all the same, and the next is given to it too."""
    monkeypatch.setattr(room, "COMMAND_SECONDS", 0.3)

    async def tell() -> None:
        alerts = Alerts(Clock(), command=command)
        for key in ("a:1", "a:2"):
            alerts.open(key, HOT)
        assert len(alerts._running) == 2
        await ran(alerts)
        assert keys(alerts) == ["a:1", "a:2"]

    story(tell)
    assert [said in record.message for record in caplog.records if record.levelno == logging.ERROR] == [True] * 2


def test_for_one_key_one_command_runs_at_a_time(tmp_path: Path) -> None:
    """One that takes its time is not joined by a second about the same."""
    out = tmp_path / "said"

    async def tell() -> None:
        clock = Clock()
        alerts = Alerts(clock, command=("sh", "-c", f"cat >> {out}; while [ ! -e {out}.go ]; do sleep 0.01; done"))
        for _ in range(3):
            alerts.open("a:1", HOT)
            alerts.close("a:1")
            clock.now += QUIET_SECONDS
        assert len(alerts._running) == 1
        Path(f"{out}.go").touch()
        await ran(alerts)
        alerts.open("a:1", HOT)
        await ran(alerts)

    story(tell)
    assert len(out.read_text().splitlines()) == 2


def test_news_that_comes_while_the_command_runs_is_given_to_it_afterwards(tmp_path: Path) -> None:
    """Once, with the newest words, and not at all if it is over by then."""
    out = tmp_path / "said"

    async def tell() -> None:
        alerts = Alerts(Clock(), command=("sh", "-c", f"cat >> {out}; while [ ! -e {out}.go ]; do sleep 0.01; done"))
        for key in ("foreign:0", "foreign:1"):
            for who in (("grace",), ("grace", "mallory"), ("grace", "mallory", "eve")):
                alerts.open(key, about(*who))
        alerts.close("foreign:1")
        Path(f"{out}.go").touch()
        await ran(alerts)

    story(tell)
    said = [json.loads(line) for line in out.read_text().splitlines()]
    assert [it["text"] for it in said if it["key"] == "foreign:0"] == [
        "GPU 0 is used by grace.", "GPU 0 is used by grace and mallory and eve.",
    ]  # fmt: skip
    assert len([it for it in said if it["key"] == "foreign:1"]) == 1


# -- which there are


def with_condition(condition: Condition | None, *, detail: str = "because", **more: object) -> World:
    """One device that has something."""
    world = World()
    world.put_device(msgspec.structs.replace(devices(1)[0], condition=condition, condition_detail=detail, **more))
    return world


@pytest.mark.parametrize("condition", [it for it in Condition if it is not Condition.FOREIGN])
def test_each_condition_of_a_device_is_told_to_operators(condition: Condition) -> None:
    """With its reason; when it changes that is another, and when it is gone it is over."""
    alerts = Alerts(Clock())
    tell_of_devices(alerts, with_condition(condition))
    (view,) = alerts.views(OPER)
    assert (view.key, view.device) == (f"device:GPU-0:{condition}", "GPU-0")
    assert "GPU 0" in view.text
    assert "(because)" in view.text
    assert alerts.views(ADA) == ()
    tell_of_devices(alerts, with_condition(None))
    assert alerts.views(OPER) == ()


@pytest.mark.parametrize(
    ("error", "condition", "said"),
    [
        (
            CardGoneError("GPU is lost"),
            Condition.LOST,
            (
                "GPU 0 is lost: it has gone from the bus or from the inventory. Look for Xid errors in `dmesg`; "
                "a reset of the GPU or a reboot may bring it back. It gets no new work; `jupyter gpu devices` shows it."
            ),
        ),
        (
            CardGoneError("no device has its UUID any more"),
            Condition.LOST,
            (
                "GPU 0 is lost: it has gone from the bus or from the inventory (no device has its UUID any more). "
                "Look for Xid errors in `dmesg`; a reset of the GPU or a reboot may bring it back. "
                "It gets no new work; `jupyter gpu devices` shows it."
            ),
        ),
        (
            ValueError("Unknown Error"),
            Condition.UNREADABLE,
            (
                "GPU 0 cannot be read (The GPU could not be read: Unknown Error). "
                "It gets no new work; `jupyter gpu devices` shows it."
            ),
        ),
    ],
)
def test_each_thing_is_said_once_and_in_whole_sentences(error: Exception, condition: Condition, said: str) -> None:
    """Not "The GPU is lost: GPU is lost. Look for …." in parentheses."""
    alerts, world = Alerts(Clock()), with_condition(condition)
    world.put_device(msgspec.structs.replace(world.devices["GPU-0"], condition_detail=card_fault(error)))
    tell_of_devices(alerts, world)
    assert [view.text for view in alerts.views(OPER)] == [said]


def test_another_fault_of_the_same_device_is_news(caplog: pytest.LogCaptureFixture) -> None:
    """A card that was reset after one Xid and reports another is not what it was; one that falls off and on is."""
    for condition, times in ((Condition.FAULTY, 2), (Condition.RESET_NEEDED, 2), (Condition.LOST, 1)):
        caplog.clear()
        alerts = Alerts(Clock())
        for detail in ("the driver reported Xid 48", "the driver reported Xid 62"):
            tell_of_devices(alerts, with_condition(condition, detail=detail))
            tell_of_devices(alerts, with_condition(None))
        assert len([it for it in caplog.records if it.levelno == logging.WARNING]) == times


def test_a_mig_device_that_was_taken_away_on_purpose_is_no_alarm() -> None:
    """Its GPU is there and split otherwise now; if the GPU is gone too, that is one."""
    card = Card(uuid="GPU-card", index=0, name="A100")
    for cards, found in (({"GPU-card"}, 0), (set(), 1)):
        alerts = Alerts(Clock())
        tell_of_devices(alerts, with_condition(Condition.LOST, card=card, slot=1), cards=cards)
        assert len(alerts.views(OPER)) == found


def test_what_a_whole_card_has_is_one_alert_however_many_mig_devices_it_is_made_of() -> None:
    """A card with seven that falls off the bus calls an operator once, and by the name of the card."""
    card = Card(uuid="GPU-card", index=1, name="A100")
    parts = [
        msgspec.structs.replace(devices(1)[0], uuid=f"MIG-{slot}", index=100 + slot, card=card, slot=slot)
        for slot in range(3)
    ]

    def told_of(*conditions: Condition | None) -> list[tuple[str, str | None, str]]:
        world = World()
        for device, condition in zip(parts, conditions, strict=True):
            world.put_device(msgspec.structs.replace(device, condition=condition, condition_detail="because"))
        alerts = Alerts(Clock())
        tell_of_devices(alerts, world)
        return [(view.key, view.device, view.text.partition(" (")[0]) for view in alerts.views(OPER)]

    lost, hot = Condition.LOST, Condition.HOT
    assert told_of(lost, lost, lost) == [
        (
            "device:GPU-card:lost",
            "GPU-card",
            "GPU 1, with its MIG devices 1:0, 1:1, 1:2, is lost: it has gone from the bus or from the inventory",
        )
    ]
    assert [key for key, _, _ in told_of(None, hot, None)] == ["device:MIG-1:hot"]
    apart = [key for key, _, _ in told_of(hot, hot, lost)]
    assert apart == ["device:MIG-0:hot", "device:MIG-1:hot", "device:MIG-2:lost"]


@pytest.mark.parametrize("kind", [UseKind.USER, UseKind.ASTRAY, UseKind.UNKNOWN, UseKind.CONTAINER, UseKind.KERNEL])
def test_a_process_that_is_left_on_a_device_is_told_once(kind: UseKind) -> None:
    """With whose it is, which is another alert; what the dead have left, or nobody can see, is told of the device."""
    alerts, world = Alerts(Clock()), with_condition(Condition.NOT_CLEAR)
    for uses, found in (
        ((Use(pid=4711, kind=kind),), []),
        ((Use(pid=4711, kind=UseKind.DEAD), Use(pid=815, kind=UseKind.SYSTEM)), ["device:GPU-0:not-clear"]),
        ((), ["device:GPU-0:not-clear"]),
    ):
        world.uses["GPU-0"] = uses
        tell_of_devices(alerts, world)
        assert keys(alerts) == found
    world = with_condition(Condition.FAULTY)
    world.uses["GPU-0"] = (Use(pid=4711, kind=kind),)
    tell_of_devices(alerts, world)
    assert keys(alerts) == ["device:GPU-0:faulty"]


def test_devices_that_this_broker_does_not_serve_are_no_alarm() -> None:
    """Simulated ones that a demo has left in the store."""
    alerts = Alerts(Clock())
    tell_of_devices(alerts, with_condition(Condition.LOST, simulated=True))
    assert alerts.views(OPER) == ()


def test_a_driver_that_cannot_be_read_is_one_alert() -> None:
    """Not one of each device."""
    alerts = Alerts(Clock())
    tell_of_driver(alerts, "The driver does not answer.")
    assert [view.text for view in alerts.views(OPER)] == ["The driver does not answer."]
    tell_of_driver(alerts, None)
    assert alerts.views(OPER) == ()


def test_isolation_that_was_asked_for_and_is_not_there_is_told_once_the_probe_had_its_time() -> None:
    """With what the probe says; where there is nothing to keep apart there is nothing to tell."""
    alerts = Alerts(Clock())
    told, missing = IsolationTold(alerts), IsolationView(enforced=False, detail="this kernel has no Landlock.")
    world = with_condition(None, nodes=("/dev/nvidia0",))
    told.look(world, missing, 0.0)
    told.look(world, missing, PROBED_WITHIN_SECONDS - 1)
    assert alerts.views(OPER) == ()
    for elsewhere, fine in ((world, IsolationView(enforced=True, by="landlock")), (world, None), (World(), missing)):
        told.look(world, missing, 100.0)
        told.look(world, missing, 100.0 + PROBED_WITHIN_SECONDS)
        assert "this kernel has no Landlock" in alerts.views(OPER)[0].text
        told.look(elsewhere, fine, 200.0)
        assert alerts.views(OPER) == ()
