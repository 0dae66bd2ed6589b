"""What the holder of a lease should know although nothing ends: above its part, astray, on a sick device.

One sentence for the answer to a renewal, for the reason of a workload and for an alert, so that all say the same. It is
made of what was observed (`world.uses`), and where that is incomplete nobody is accused.
"""

from __future__ import annotations

from typing import NamedTuple

from ..model import Condition, Device, Kind, SharingRule, Treatment, UseKind, Workload, World
from ..units import bytes_apart, format_bytes, format_seconds

GIB = 1 << 30

#: What is wrong with a device, as people say it after its name.
WORDS = {
    Condition.LOST: "is lost: it has gone from the bus or from the inventory",
    Condition.FAULTY: "has a hardware fault",
    Condition.RESET_NEEDED: "needs a reset",
    Condition.PROHIBITED: "lets no CUDA program in: its compute mode is prohibited",
    Condition.UNREADABLE: "cannot be read",
    Condition.HOT: "is too hot, or slowed down",
    Condition.SUSPECT: "shows load although nobody is on it",
    Condition.NOT_CLEAR: "is not clear of its last work",
    Condition.FOREIGN: "is used by somebody who has no lease of it",
}
#: What a person who holds such a device should know or do; a job can do nothing about it.
_ADVICE = {
    Condition.LOST: "Save what you can and reserve another",
    Condition.FAULTY: "Save your work, give it back and reserve another",
    Condition.RESET_NEEDED: "It works on; save your work, so that it can be reset soon",
    Condition.PROHIBITED: "No new program can use it; an admin can change that with `nvidia-smi -c DEFAULT`",
    Condition.UNREADABLE: "What runs on it goes on; `jupyter gpu doctor` says why",
    Condition.HOT: "What runs on it goes on, more slowly",
    Condition.SUSPECT: "What runs on it goes on",
    Condition.NOT_CLEAR: "What was left there takes memory and time",
    Condition.FOREIGN: "That takes memory and time from you; tell an operator",
}

#: How the detail of a lost device may begin.
SAYS_LOST = "The GPU is lost"
#: How it begins where the GPU is none of those that this broker is there for: it has not gone anywhere.
NOT_SERVED = "this broker does not serve "
#: Conditions whose detail names processes, and what is said of them to those who may not know these.
_NAMES_PROCESSES = {
    Condition.FOREIGN: "used by a process without a lease",
    Condition.NOT_CLEAR: "something is left on it; an operator can see what",
}


class Above(NamedTuple):
    """A holder that uses more of a device than its part, beyond the slack of the rule that shares the device."""

    device: Device
    part_bytes: int
    used_bytes: int
    #: What becomes of it.
    treatment: Treatment


def used_by(world: World, it: Workload, uuid: str) -> int | None:
    """What a workload's processes use of a device that it holds; None where that is not known of each of them.

    Some drivers tell no memory of single processes (pytorch/pytorch#64491): then the sum is incomplete.
    """
    uses = world.uses.get(uuid)
    if uses is None:
        return None
    mine = [use.memory_bytes for use in uses if use.kind is UseKind.HOLDER and use.workload == it.id]
    return None if None in mine else sum(used for used in mine if used is not None)


def above_its_part(world: World, it: Workload) -> Above | None:
    """The device of which it uses most beyond its part; None while it keeps to it, has a whole one, or nobody knows."""
    if not it.is_live or it.lease is None or it.lease.memory_bytes is None:
        return None
    found = []
    for uuid in it.lease.devices:
        device, used = world.devices[uuid], used_by(world, it, uuid)
        rule = world.policy.sharing_of(device) or SharingRule()
        if used is not None and used > it.lease.memory_bytes + rule.slack_bytes:
            treatment = rule.treatment_of(world.teams_of(it.owner))
            found.append(Above(device, it.lease.memory_bytes, used, treatment))
    return max(found, key=lambda above: above.used_bytes, default=None)


def what_it_used(above: Above) -> str:
    """For the end of it, like "it used 25GiB of GPU 0, of which its part is 20GiB; ask again with `--memory 25GiB`".

    With the rule that it was ended by, where that is a team's.
    """
    used, part = bytes_apart(above.used_bytes, above.part_bytes)
    by = f" (by {above.treatment.rule})" if above.treatment.is_of_a_team else ""
    return f"it used {used} of {above.device.title}, of which its part is {part}{by}; {_ask_for(above, 'ask again')}"


def _ask_for(above: Above, verb: str) -> str:
    """Whole GiB that would do, or the whole device where no part would."""
    wanted = -(-above.used_bytes // GIB) * GIB
    if above.device.memory_bytes is not None and wanted > above.device.memory_bytes:
        return f"{verb} for a whole GPU: without `--memory`"
    return f"{verb} with `--memory {format_bytes(wanted)}`"


def astray(world: World, it: Workload) -> list[tuple[Device, tuple[int, ...]]]:
    """The devices on which its processes are although it does not hold them, each with their pids."""
    found = []
    for uuid, uses in world.uses.items():
        pids = tuple(use.pid for use in uses if use.kind is UseKind.ASTRAY and use.workload == it.id)
        if pids and uuid in world.devices and world.devices[uuid].condition is not Condition.LOST:
            found.append((world.devices[uuid], pids))
    return sorted(found, key=lambda pair: (pair[0].index, pair[0].uuid))


def told(world: World, it: Workload) -> str:
    """What its holder should know now; empty when all is well."""
    if not it.is_live or it.lease is None or it.outcome is not None:
        return ""
    # Who must leave has a notice, which says why.
    uuids = it.lease.devices if it.eviction is None else ()
    parts = [_of_condition(world, world.devices[uuid], it.kind) for uuid in uuids]
    above = above_its_part(world, it)
    parts.append("" if above is None else _of_above(above))
    strays = astray(world, it)
    if strays:
        where = ", ".join(f"{_processes(pids)} of it {_are(pids)} on {device.title}" for device, pids in strays)
        parts.append(f"It runs outside its reservation: {where}. Let the pin that it was given stand.")
    return " ".join(part for part in parts if part)


def what_it_has(device: Device, *, of: str = "", detail: str | None = None) -> str:
    """Like "GPU 0 has a hardware fault (it counts 2 memory errors). Reset it …": whole sentences, each said once.

    `of` goes after its name, `detail` in the place of its own.
    """
    if device.condition is None:
        return ""
    why, _, more = (device.condition_detail if detail is None else detail).strip().removesuffix(".").partition(". ")
    if device.condition is Condition.LOST and why.startswith(SAYS_LOST):
        why = why.removeprefix(SAYS_LOST).lstrip(": ")  # that is said already
    return f"{device.title}{of} {WORDS[device.condition]}{f' ({why})' if why else ''}.{f' {more}.' if more else ''}"


def why_not_served(count: int, *, simulated: bool) -> str:
    """Why GPUs of another making than a broker's are lost to it, and how one is started that serves them."""
    if not simulated:
        return f"{NOT_SERVED}real GPUs; one that is started without `--simulated` does"
    stop, start = "`jupyter gpu broker stop`", f"`jupyter gpu broker start --simulated {count}`"
    return f"{NOT_SERVED}simulated GPUs; {stop} and {start} start one that does"


def known_detail(world: World, device: Device) -> str:
    """The detail of a device's condition for those who are no operators: without the names of processes."""
    if world.policy.names_are_public or device.condition not in _NAMES_PROCESSES or not device.condition_detail:
        return device.condition_detail
    return _NAMES_PROCESSES[device.condition]


def _of_condition(world: World, device: Device, kind: Kind) -> str:
    if device.condition is None:
        return ""
    advice = f" {_ADVICE[device.condition]}." if kind is Kind.RESERVATION else ""
    return f"{what_it_has(device, detail=known_detail(world, device))}{advice}"


def _of_above(above: Above) -> str:
    after = above.treatment.ends_after_seconds
    end = "" if after is None else f" It is ended when this lasts {format_seconds(after)}."
    used, part = bytes_apart(above.used_bytes, above.part_bytes)
    return (
        f"It uses {used} of {above.device.title}, more than its part of {part}, and others there may run out of "
        f"memory. Free some, or {_ask_for(above, 'ask anew')}.{end}"
    )


def _processes(pids: tuple[int, ...]) -> str:
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(str(pid) for pid in pids)}"


def _are(pids: tuple[int, ...]) -> str:
    return "are" if len(pids) > 1 else "is"
