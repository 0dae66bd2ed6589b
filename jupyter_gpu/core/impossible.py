"""What no device of this broker could ever serve must not wait for ever: it is refused, and told why."""

from __future__ import annotations

import msgspec

from ..errors import InvalidAsk, LimitExceeded
from ..model import Ask, Device, World
from ..units import bytes_apart, format_bytes
from .placement import in_order, is_mig, most_at_once, suits, why_not_shared

#: Others named in one sentence; the rest is counted.
MOST_NAMED = 3

WHAT_THERE_IS = "`jupyter gpu devices` shows what there is."


def refuse_the_impossible(world: World, ask: Ask) -> None:
    """Raise LimitExceeded, or InvalidAsk where a name is wrong, if the ask could not be served by all there is."""
    if not world.devices:
        raise LimitExceeded(
            "this broker has no GPU",
            hint="`jupyter gpu doctor` says why. To try: `jupyter gpu broker start --simulated 4`.",
        )
    _refuse_unknown_names(world, ask)
    most = most_at_once(world, ask)
    if most >= ask.devices:
        return
    kin = _of_the_kind(world, ask)
    if ask.memory_bytes is not None and not any(_is_shared(world, device) for device in kin):
        raise LimitExceeded(
            f"a part of a GPU's memory cannot be had: {_why_none_is_shared(world, kin)}",
            hint="Ask for a whole one: leave --memory out, or use --min-free for one with that much free.",
        )
    _refuse_the_too_large(world, ask)
    parts = [device for device in kin if is_mig(device)]
    # Of parts alone no number would do; beside whole GPUs they are the reason only where all together would.
    if ask.devices > 1 and parts and (len(parts) == len(kin) or ask.devices <= len(kin)):
        raise _mig_devices_apart(world, ask, most)
    most = most or most_at_once(world, msgspec.structs.replace(ask, devices=1))
    raise LimitExceeded(
        f"{ask.devices} GPU{'s' if ask.devices > 1 else ''}{_what(world, ask)} cannot be had on one node: "
        f"the most is {most}",
        hint=WHAT_THERE_IS,
    )


def _refuse_the_too_large(world: World, ask: Ask) -> None:
    """Like "no GPU of class a100 has 200GiB: the largest is GPU 0 with 80GiB"."""
    wanted = max(ask.memory_bytes or 0, ask.min_free_bytes or 0)
    alike = _of_the_kind(world, msgspec.structs.replace(ask, min_free_bytes=None))
    if ask.memory_bytes is not None:
        alike = [device for device in alike if _is_shared(world, device)]
    sizes = [(device.memory_bytes, device) for device in alike if device.memory_bytes is not None]
    if not sizes or len(sizes) < len(alike) or max(size for size, _ in sizes) >= wanted:
        return
    size, largest = max(sizes, key=lambda pair: pair[0])
    asked, has = bytes_apart(wanted, size)
    if len(ask.on) == 1:
        what = f"{largest.title} has {has}, not {asked}"
    else:
        kind = msgspec.structs.replace(ask, memory_bytes=None, min_free_bytes=None, same_link_group=False)
        what = f"no GPU{_what(world, kind)}{'' if ask.memory_bytes is None else ' that is shared'} has "
        what += f"{asked}: the largest is {largest.title} with {has}"
    raise LimitExceeded(what, hint=f"Ask for less. {WHAT_THERE_IS}")


def _refuse_unknown_names(world: World, ask: Ask) -> None:
    for word, wanted, there in (
        ("device class", ask.device_class, world.layout.classes),
        ("pool", ask.pool, world.layout.pools),
    ):
        if wanted is not None and wanted not in there:
            raise InvalidAsk(f"there is no {word} {wanted!r} here", hint="Use one of: " + ", ".join(there) + ".")
    unknown = [uuid for uuid in ask.on if uuid not in world.devices]
    if unknown:
        raise InvalidAsk(f"there is no GPU {unknown[0][:80]!r}", hint="`jupyter gpu devices` lists them.")
    if ask.on and len(set(ask.on)) < ask.devices:
        raise InvalidAsk(
            f"{ask.devices} GPUs cannot be placed on {_named([world.devices[uuid] for uuid in dict.fromkeys(ask.on)])}",
            hint="Name at least as many as you ask for, or ask for fewer.",
        )


def _of_the_kind(world: World, ask: Ask) -> list[Device]:
    """The devices that it could have, were they shared and if it wanted but one."""
    simple = msgspec.structs.replace(ask, devices=1, memory_bytes=None)
    return [device for device in in_order(world) if suits(device, simple)]


def _is_shared(world: World, device: Device) -> bool:
    return device.shareable and why_not_shared(device, world.policy) is None


def _why_none_is_shared(world: World, kin: list[Device]) -> str:
    """Like "GPU 0: its memory is the machine's own, so no part of it can be leased; GPU 1: ..."."""
    reasons: dict[str, list[Device]] = {}
    for device in kin:
        reasons.setdefault(why_not_shared(device, world.policy) or "", []).append(device)
    if len(reasons) == 1 and not any(device.exclusive or device.shares_host_memory for device in kin):
        return f"no GPU {'of this kind' if len(kin) < len(world.devices) else 'here'} is shared: {next(iter(reasons))}"
    return "; ".join(f"{_named(devices)}: {reason}" for reason, devices in reasons.items()) or "there is none"


def _mig_devices_apart(world: World, ask: Ask, most: int) -> LimitExceeded:
    """CUDA shows one MIG device to a process and drops the others in silence: never a success that wastes a slice."""
    whole = sorted({device.device_class for device in _of_the_kind(world, ask) if not is_mig(device)})
    there = f"; of whole GPUs{_what(world, ask)} the most on one node is {most}" if whole else ""
    return LimitExceeded(
        "MIG devices cannot be used together, nor one beside a whole GPU: CUDA shows a process "
        f"the first and drops the others{there}",
        hint="Ask for one larger device, or make one ask for each: one kernel, or one job, per MIG device.",
    )


def _what(world: World, ask: Ask) -> str:
    what = f" of class {ask.device_class}" if ask.device_class else ""
    memory = max(ask.memory_bytes or 0, ask.min_free_bytes or 0)
    what += f" with {format_bytes(memory)}" if memory else ""
    what += f" among {_named([world.devices[uuid] for uuid in ask.on])}" if ask.on else ""
    return what + (" in one link group" if ask.same_link_group else "")


def _named(devices: list[Device]) -> str:
    more = len(devices) - MOST_NAMED
    return ", ".join(device.title for device in devices[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
