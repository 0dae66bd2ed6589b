"""What is left for who may not look at others' work: their own, and which devices are free or taken."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu.core.contractor import narrow_device, narrow_samples, narrow_status
from jupyter_gpu.core.status import device_view, device_views, status, view
from jupyter_gpu.model import (
    Caller,
    Change,
    Condition,
    Cordon,
    DeviceView,
    Policy,
    Reading,
    Scope,
    SeeCondition,
    SharingRule,
    Use,
    UseKind,
)
from tests.world import GIB, Play

CARL = Caller(name="carl", account="carl", scopes=frozenset({Scope.RESERVE, Scope.SUBMIT}))
READER = Caller(name="carl", account="carl", scopes=frozenset({Scope.READ}))
#: Names of others, and what they do.
SECRETS = ("grace", "heidi", "secret-model", "4711")


def a_lab(**policy: object) -> Play:
    """Grace and carl hold a GPU each, heidi waits; all GPUs are busy with something."""
    play = Play(3, Policy(**policy))  # type: ignore[arg-type]
    play.reservation("grace", name="secret-model")
    play.reservation("carl")
    play.reservation("grace", name="secret-model")
    play.reservation("heidi")
    for number, device in enumerate(play.world.devices):
        play.world.readings[device] = Reading(
            uuid=device, at=play.now, memory_used_bytes=number * GIB, utilisation_percent=97, power_watts=300.0
        )
        owner = play.world.workloads[number + 1].owner
        play.world.uses[device] = (
            Use(pid=4711 + number, kind=UseKind.HOLDER, name=f"model of {owner}", user=owner, workload=number + 1),
        )
    play.do(SeeCondition(device="gpu-0", condition=Condition.FOREIGN, detail="heidi's process 4711 is on it"))
    return play


def whole(play: Play, caller: Caller):
    """The whole document, narrowed."""
    made = status(play.world, caller, play.now, store_id="s", simulated=False)
    return narrow_status(play.world, made, caller)


def test_nothing_of_others_is_in_the_document():
    """No name, no command, no process, no number of theirs that tells what they do."""
    text = msgspec.json.encode(whole(a_lab(), CARL)).decode()
    assert [secret for secret in SECRETS if secret in text] == []


def test_the_same_document_would_hold_all_of_it():
    """For who may look: so the test above can fail."""
    text = msgspec.json.encode(whole(a_lab(), READER)).decode()
    assert [secret for secret in SECRETS if secret not in text] == []


def test_their_own_is_whole():
    """Work, device with its readings and processes, and their place in line."""
    play = a_lab()
    waits = play.reservation("carl")
    found = whole(play, CARL)
    assert [it.id for it in found.workloads] == [2, waits]
    own = next(device for device in found.devices if device.uuid == "gpu-1")
    assert (own.utilisation_percent, [use.pid for use in own.uses], own.holders) == (97, [4712], ("carl",))
    assert found.waiting["interactive"] == 1
    assert "heidi" not in found.workloads[-1].reason
    assert "grace" not in found.workloads[-1].reason


def test_a_device_of_others_is_free_or_taken():
    """With the time at which it is free again, and none of its readings."""
    play = a_lab()
    seen = narrow_device(play.world, device_view(play.world, play.world.devices["gpu-2"], CARL, play.now), CARL)
    assert (seen.workloads, seen.free_at is not None) == ((3,), True)
    for name in ("utilisation_percent", "memory_used_bytes", "power_watts", "sampled_at"):
        assert getattr(seen, name) is None
    assert (seen.uses, seen.holders, seen.nodes, seen.note) == ((), (), (), "")


def test_of_a_shared_device_only_ones_own_part_is_shown():
    """Whoever holds another part of it is as unknown as on any other device."""
    play = Play(1, Policy(sharing=(SharingRule(),)))
    mine = play.reservation("carl", memory_bytes=10 * GIB)
    theirs = play.reservation("grace", memory_bytes=10 * GIB)
    play.world.uses["gpu-0"] = tuple(
        Use(pid=number, kind=UseKind.HOLDER, user=owner, workload=number)
        for number, owner in ((mine, "carl"), (theirs, "grace"))
    )
    (seen,) = whole(play, CARL).devices
    assert ([use.pid for use in seen.uses], seen.holders) == ([mine], ("carl",))


def test_why_a_device_is_out_of_use_is_told_to_whom_it_concerns():
    """The reason of its cordon: to who may look at all, and to a contractor who holds it; else it is only taken."""
    play = a_lab()
    play.do(SeeCondition(device="gpu-0", condition=None))
    for device in ("gpu-1", "gpu-2"):
        play.do(Cordon(device=device, by="olga", reason="a fan for heidi's model"))
    waits = play.reservation("carl")
    seen = whole(play, CARL)
    assert [(it.cordoned, it.cordon_reason) for it in seen.devices] == [
        (False, ""), (True, "a fan for heidi's model"), (True, "")
    ]  # fmt: skip
    assert {it.cordoned_by for it in seen.devices} == {None}
    (mine,) = (it for it in seen.workloads if it.id == waits)
    assert "is taken out of use by an operator" in mine.reason
    assert "heidi" not in mine.reason
    assert [it.cordoned_by for it in whole(play, READER).devices] == [None, "olga", "olga"]
    assert (
        "by an operator (a fan for heidi's model)" in view(play.world, play[waits], READER, play.now, alone=True).reason
    )


@pytest.mark.parametrize(("caller", "seen"), [(CARL, ["gpu-1"])])
def test_samples_are_of_ones_own_devices(caller: Caller, seen: list[str]):
    """The stream's readings are no way round."""
    play = a_lab()
    line = Change(samples=device_views(play.world, READER, play.now))
    assert [device.uuid for device in narrow_samples(play.world, line, caller).samples] == seen


def test_every_field_of_a_device_was_thought_of():
    """A new field is shown to contractors only when somebody has decided so here."""
    shown = {
        *("uuid", "index", "number", "name", "device_class", "pool", "simulated", "cordoned", "shareable", "card"),
        *("condition", "condition_since", "memory_total_bytes", "shares_host_memory", "workloads", "free_at"),
    }
    hidden = {
        *("condition_detail", "memory_used_bytes", "memory_reserved_bytes", "memory_leased_bytes"),
        *("utilisation_percent", "temperature_celsius", "power_watts", "slowed_by", "sampled_at", "note", "nodes"),
        *("uses", "holders", "cordon_reason", "cordoned_by"),
    }
    assert set(DeviceView.__struct_fields__) == shown | hidden
