"""What to do now about a job that is over: by how it ended, what it had, and what else is there. Pure, made on read.

What happened and why stands in its detail already. Here is what follows: why it is not repeated by itself where that
is not plain, what would have to be different, and the command that says so.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model import Condition, Device, EndReason, Kind, Workload, World
from ..units import bytes_apart, format_bytes, format_seconds
from .verdict import EXIT_DO_NOT_RETRY


def advice(world: World, it: Workload) -> str:
    """Whole sentences for its owner; empty where there is nothing to be done, or it is over as it was meant to be."""
    if it.kind is not Kind.JOB or it.end not in _ADVICE:
        return ""
    return _ADVICE[it.end](world, it)


def _again(it: Workload) -> str:
    """How it is run once more; from its newest checkpoint where it has left one."""
    step = None if it.outcome is None else it.outcome.to_step
    if step is None:
        return f"`jupyter gpu again {it.id}` runs it once more."
    return f"`jupyter gpu again {it.id} --resume` goes on from its newest checkpoint, step {step}."


def _times(count: int, what: str) -> str:
    return f"It was {what} {'once' if count == 1 else f'{count} times'}, which is all that it may be. " if count else ""


def _of_failed(world: World, it: Workload) -> str:
    log = f"`jupyter gpu log {it.id}` has its last words. "
    if it.outcome is not None and it.outcome.exit_code == EXIT_DO_NOT_RETRY:
        return log + _again(it)
    retries = None if it.spec is None else it.spec.retries
    if it.failures and it.failures >= (world.policy.failures if retries is None else retries):
        return log + _times(it.failures, "repeated") + _again(it)
    rule = "" if retries is not None or it.failures else (
        "It is repeated by itself only where it has saved since it began, or with `--retries N`. "
    )  # fmt: skip
    return log + rule + _again(it)


def _of_gpu_oom(world: World, it: Workload) -> str:
    same = "It is not repeated by itself, since it would end the same way. "
    part = it.ask.memory_bytes
    if part is not None:
        return (
            f"{same}It had {format_bytes(part)} of a GPU: `jupyter gpu again {it.id} --memory SIZE` asks for a larger "
            "part. Smaller batches need less."
        )
    had = _least_memory(world, it)
    if had is None:
        return f"{same}How much its GPU has is not known. Smaller batches need less, or ask for another `--class`."
    larger = _next_larger(world, it, had)
    if larger is None:
        return (
            f"{same}No GPU here has more than its {format_bytes(had)}: smaller batches need less, or several GPUs, if "
            "it can spread over them. If others were on its GPU, `--min-free SIZE` asks for one with so much free."
        )
    this, that = bytes_apart(had, larger.memory_bytes or 0)
    return (
        f"{same}Its GPU has {this}; `jupyter gpu again {it.id} --class {larger.device_class}` gets one of {that}, and "
        "smaller batches need less."
    )


def _least_memory(world: World, it: Workload) -> int | None:
    had = [world.devices[uuid].memory_bytes for uuid in it.previous_devices if uuid in world.devices]
    return min((size for size in had if size is not None), default=None)


def _next_larger(world: World, it: Workload, had: int) -> Device | None:
    """A device of the smallest class that has more than it had; whether that is enough nobody knows."""
    larger = [
        device
        for device in world.devices.values()
        if (device.memory_bytes or 0) > had
        and device.condition is not Condition.LOST
        and it.ask.pool in (None, device.pool)
    ]
    return min(larger, key=lambda device: (device.memory_bytes or 0, device.device_class), default=None)


def _of_host_oom(_: World, it: Workload) -> str:
    return (
        "That is the machine's memory, or its job's part of it, and not the GPU's: fewer data-loader workers and less "
        f"that is kept in memory need less. It is not repeated by itself. {_again(it)}"
    )


def _of_disk_full(_: World, it: Workload) -> str:
    return (
        "Make room where it writes, or let it write elsewhere (`--checkpoint-dir`); `jupyter gpu checkpoints` shows "
        f"what old ones take. It is not repeated by itself, since it would end the same way. {_again(it)}"
    )


def _of_device_lost(_: World, it: Workload) -> str:
    return (
        f"{_times(it.losses, 'tried elsewhere')}It is no fault of the job: `jupyter gpu devices` says how the GPUs "
        f"are. {_again(it)}"
    )


def _of_hung(_: World, it: Workload) -> str:
    return (
        f"{_times(it.failures, 'started anew')}`jupyter gpu log {it.id}` has its last words. If it was at work and "
        f"only silent, let it report, or allow it more time (`--hang TIME`). {_again(it)}"
    )


def _of_timed_out(world: World, it: Workload) -> str:
    had = "" if it.ask.duration_seconds is None else f" than {format_seconds(it.ask.duration_seconds)}"
    resume = " --resume" if it.outcome is not None and it.outcome.to_step is not None else ""
    rule = _times(it.timeouts, "repeated from its checkpoint")
    if not rule and world.policy.timeouts and not resume:
        rule = "It is repeated by itself only where it has saved since it began. "
    return f"{rule}`jupyter gpu again {it.id}{resume} --time TIME` asks for more{had}."


def _of_launch_failed(_: World, it: Workload) -> str:
    return f"It has not run, and is not tried again by itself. Mend what is named, then `jupyter gpu again {it.id}`."


def _of_unmet(_: World, __: Workload) -> str:
    return "`jupyter gpu again` runs such a job all the same, after nothing."


def _of_lost(_: World, it: Workload) -> str:
    return (
        f"{_times(it.losses, 'tried again')}Nobody saw how it ended: the machine went down, or what watched it was "
        f"killed. {_again(it)}"
    )


_ADVICE: dict[EndReason, Callable[[World, Workload], str]] = {
    EndReason.FAILED: _of_failed,
    EndReason.GPU_OOM: _of_gpu_oom,
    EndReason.HOST_OOM: _of_host_oom,
    EndReason.DISK_FULL: _of_disk_full,
    EndReason.DEVICE_LOST: _of_device_lost,
    EndReason.HUNG: _of_hung,
    EndReason.TIMED_OUT: _of_timed_out,
    EndReason.LAUNCH_FAILED: _of_launch_failed,
    EndReason.DEPENDENCY_UNMET: _of_unmet,
    EndReason.LOST: _of_lost,
}
