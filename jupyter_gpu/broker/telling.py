"""Which alerts the state of the devices, the driver and the isolation calls for. One fact is one alert."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from ..core.told import what_it_has
from ..model import Condition, Device, IsolationView, UseKind, World
from .alerts import Alert, Alerts

#: Of these an operator should know; who is on a device without a lease is told in `foreign`.
TOLD = frozenset(Condition) - {Condition.FOREIGN}
#: Of these whoever holds the device should know by themselves: what runs there is lost, or will be moved.
TOLD_HOLDERS = frozenset({Condition.LOST, Condition.FAULTY})
#: Of these each report is news; what else is wrong comes and goes in other words and is the same.
_REPORTED = frozenset({Condition.FAULTY, Condition.RESET_NEEDED})
#: By then the probe that follows a start, or a change of the devices, has told what it found.
PROBED_WITHIN_SECONDS = 30.0


def tell_of_devices(alerts: Alerts, world: World, *, cards: Collection[str] = (), simulated: bool = False) -> None:
    """Let just those alerts about devices be open that are called for now. `cards` are the GPUs in MIG mode."""
    here = [it for it in world.devices.values() if it.simulated is simulated and not _was_split(it, cards)]
    sick = [it for it in here if it.condition in TOLD and not _is_told_by_who_is_there(world, it)]
    alerts.settle("device", dict(_of_devices(sick, here)))
    alerts.settle("holder", _of_holders(world))


def tell_of_driver(alerts: Alerts, fault: str | None) -> None:
    """That no device can be read, and why."""
    alerts.settle("driver", {} if fault is None else {"driver:fault": Alert(text=fault)})


class IsolationTold:
    """That jobs are not kept apart although a way to do so was asked for, once that has lasted."""

    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts
        self._since: float | None = None

    def look(self, world: World, isolation: IsolationView | None, now: float) -> None:
        """Take how it stands now; None where no way was asked for. After each change the probe takes a moment."""
        has_nodes = any(device.nodes for device in world.devices.values())
        if isolation is None or isolation.enforced or not has_nodes:
            self._since = None
            self._alerts.settle("isolation", {})
            return
        self._since = now if self._since is None else self._since
        if now - self._since >= PROBED_WITHIN_SECONDS:
            why = isolation.detail or "the probe does not say why"
            text = f"Jobs are not kept from GPUs that are not theirs, although that was asked for: {why}"
            self._alerts.settle("isolation", {"isolation:advisory": Alert(text=text)})


def _was_split(device: Device, cards: Collection[str]) -> bool:
    """Whether it is gone because its GPU was split anew, or has become one that is split: somebody did that."""
    of = device.uuid if device.card is None else device.card.uuid
    return device.condition is Condition.LOST and of in cards


def _is_told_by_who_is_there(world: World, device: Device) -> bool:
    """Whether what is left on it is a process that lives: that one is told of, with whose it is (`foreign`)."""
    lives = (use.kind not in (UseKind.DEAD, UseKind.SYSTEM) for use in world.uses.get(device.uuid, ()))
    return device.condition is Condition.NOT_CLEAR and any(lives)


def _of_devices(sick: list[Device], here: list[Device]) -> Iterable[tuple[str, Alert]]:
    """One for each that is sick; where all MIG devices of a GPU have the same, that is the GPU's, and one."""
    parts: dict[str, list[Device]] = {}
    for it in here:
        if it.card is not None:
            parts.setdefault(it.card.uuid, []).append(it)
    for it in sick:
        all_of_it = [it] if it.card is None else parts[it.card.uuid]
        if it.card is None or len(all_of_it) == 1 or any(other.condition is not it.condition for other in all_of_it):
            yield f"device:{it.uuid}:{it.condition}", _of_device(it)
        elif it is all_of_it[0]:
            whole = msgspec.structs.replace(it, uuid=it.card.uuid, index=it.card.index, card=None, slot=None)
            numbers = ", ".join(other.number for other in all_of_it)
            yield f"device:{whole.uuid}:{it.condition}", _of_device(whole, of=f", with its MIG devices {numbers},")


def _of_device(device: Device, of: str = "") -> Alert:
    text = f"{what_it_has(device, of=of)} It gets no new work; `jupyter gpu devices` shows it."
    about = frozenset({device.condition_detail}) if device.condition in _REPORTED else frozenset()
    return Alert(text=text, device=device.uuid, about=about)


def _of_holders(world: World) -> dict[str, Alert]:
    found = {}
    for it in world.holders():
        for uuid in it.lease.devices if it.lease is not None else ():
            device = world.devices[uuid]
            if device.condition in TOLD_HOLDERS:
                what = what_it_has(device, of=f", which {it.title} holds,")
                text = f"{what} Save what you can; a job goes to another GPU by itself."
                found[f"holder:{it.id}:{uuid}"] = Alert(
                    text=text, device=uuid, workload=it.id, users=frozenset({it.owner}), for_operators=False
                )
    return found
