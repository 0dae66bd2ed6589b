"""What a trial of a GPU showed: whether it computes rightly, as fast as its peers, cool, and is clear again.

Pure: answers and readings in, judgements out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Literal

import msgspec

from ..model import Condition, DeviceView
from ..units import MISSING, format_bytes
from .text import condition_text, plural, slowed_text

#: A GPU is slow that does less than this part of what its peers do.
PEERS_PART = 0.8
#: Most cards slow themselves down a little above this.
HOT_CELSIUS = 90
#: Multiplying matrices keeps a GPU busy; below this it waited for its host.
BUSY_PERCENT = 80
_LEAST_READINGS = 3

State = Literal["ok", "warn", "fail"]


class Trial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one GPU, or of the whole trial where no GPU is named."""

    state: State
    text: str
    remedy: str = ""
    device: str | None = None
    number: str = ""
    device_class: str = ""
    #: The library that computed, and its version.
    engine: str = ""
    speed: float | None = None
    #: TFLOP/s of 32-bit floats, or GB/s of memory.
    unit: str = ""
    memory_used_bytes: int | None = None
    utilisation_percent: int | None = None
    temperature_celsius: int | None = None


class _Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    state: State
    text: str
    remedy: str


def judge(
    device: DeviceView, answer: Mapping[str, Any], seen: Sequence[DeviceView], afterwards: DeviceView | None
) -> Trial:
    """Judge one GPU by what the computation said, by its readings meanwhile, and by how it was left."""
    found = [*_of_answer(device, answer), *_of_readings(device, answer, seen), *_of_afterwards(device, afterwards)]
    figures = _figures(answer, seen)
    return Trial(
        state="fail" if any(it.state == "fail" for it in found) else "warn" if found else "ok",
        text="; ".join([*(it.text for it in found), *([figures] if figures else [])]),
        remedy=" ".join(dict.fromkeys(it.remedy for it in found)),
        device=device.uuid,
        number=device.number,
        device_class=device.device_class,
        engine=str(answer.get("engine", "")),
        speed=answer.get("speed"),
        unit=str(answer.get("unit", "")),
        memory_used_bytes=_most(it.memory_used_bytes for it in seen),
        utilisation_percent=_most(it.utilisation_percent for it in seen),
        temperature_celsius=_most(it.temperature_celsius for it in seen),
    )


def no_engine(answer: Mapping[str, Any]) -> Trial:
    """Say that nothing here can compute, which is no fault of any GPU, and why each library cannot."""
    skipped: Mapping[str, str] = answer.get("skipped", {})
    why = "; ".join(f"{_LIBRARIES[name]}: {said}" if name in _LIBRARIES else said for name, said in skipped.items())
    return Trial(
        state="warn",
        text="no GPU was tried, since nothing here can compute on one" + (f" ({why})" if why else ""),
        remedy="libcuda.so.1 comes with the driver, and into a container with "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility. To try how GPUs compute, install PyTorch, JAX or CuPy as well.",
    )


_LIBRARIES = {"torch": "PyTorch", "jax": "JAX", "cupy": "CuPy"}


def judge_together(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Compare each with the others of its kind that were tried alike."""
    return tuple(_beside(it, [other for other in trials if other is not it and _are_alike(it, other)]) for it in trials)


def _are_alike(one: Trial, other: Trial) -> bool:
    return (one.device_class, one.engine, one.unit) == (other.device_class, other.engine, other.unit)


def _beside(it: Trial, others: Sequence[Trial]) -> Trial:
    speeds = [other.speed for other in others if other.speed is not None]
    if it.speed is None or not speeds or it.speed >= PEERS_PART * median(speeds):
        return it
    text = f"slow: {it.speed:g} {it.unit}, where {plural(len(speeds), 'other')} of its kind did {median(speeds):g}"
    remedy = (
        f"`nvidia-smi -q -d PERFORMANCE -i {it.number.partition(':')[0]}` says what slows it: heat, power, its clocks."
    )
    return msgspec.structs.replace(
        it,
        state="fail" if it.state == "fail" else "warn",
        text=f"{text}; {it.text}",
        remedy=f"{it.remedy} {remedy}".strip(),
    )


def _of_answer(device: DeviceView, answer: Mapping[str, Any]) -> Iterator[_Finding]:
    number = device.number
    if "error" in answer:
        engine = f" ({answer['engine']})" if answer.get("engine") else ""
        remedy = f"`jupyter gpu cordon {number}` keeps work from it while you look; `dmesg` may say more."
        yield _Finding("fail", f"it could not compute{engine}: {answer['error']}", remedy)
    elif answer.get("wrong"):
        text = f"it computes wrongly: {answer['wrong']} of {answer['checked']} values"
        remedy = f"Take it out of use with `jupyter gpu cordon {number}`; nothing that it computed can be trusted."
        yield _Finding("fail", text, remedy)


def _of_readings(device: DeviceView, answer: Mapping[str, Any], seen: Sequence[DeviceView]) -> Iterator[_Finding]:
    sick = next((it for it in seen if it.condition is not None), None)
    if sick is not None:
        remedy = "`jupyter gpu doctor` says what helps."
        yield _Finding("warn", f"meanwhile it was not well: {condition_text(sick)}", remedy)
    slowed = slowed_text(cause for it in seen for cause in it.slowed_by)
    if slowed:
        remedy = (
            f"`nvidia-smi -q -d PERFORMANCE -i {device.number.partition(':')[0]}` says more; look at fans and power."
        )
        yield _Finding("warn", slowed, remedy)
    celsius = _most(it.temperature_celsius for it in seen)
    if celsius is not None and celsius >= HOT_CELSIUS:
        remedy = "Look at its fans and at what stands before them: it slows itself down, or soon will."
        yield _Finding("warn", f"hot: {celsius}°C", remedy)
    load = _most(it.utilisation_percent for it in seen)
    measures = len(seen) >= _LEAST_READINGS and answer.get("unit") == "TFLOP/s"
    if measures and load is not None and load < BUSY_PERCENT and device.card is None:
        remedy = (
            "It waited for its host: look at what else computes there. "
            "A training that reads so mostly waits for its data to be loaded."
        )
        yield _Finding("warn", f"a load of {load}% at most", remedy)


def _of_afterwards(device: DeviceView, afterwards: DeviceView | None) -> Iterator[_Finding]:
    remedy = f"`jupyter gpu devices` says what is left on it; `jupyter gpu doctor` says what helps GPU {device.number}."
    if afterwards is None:
        yield _Finding("fail", "it was not clear afterwards", remedy)
    elif afterwards.condition is not None:
        state: State = "warn" if afterwards.condition is Condition.HOT else "fail"
        yield _Finding(state, f"afterwards it was not well: {condition_text(afterwards)}", remedy)


def _figures(answer: Mapping[str, Any], seen: Sequence[DeviceView]) -> str:
    if answer.get("speed") is None:
        return ""
    load = _most(it.utilisation_percent for it in seen)
    celsius = _most(it.temperature_celsius for it in seen)
    parts = [
        f"{answer.get('engine')}: {answer['speed']:g} {answer.get('unit')} for {answer.get('seconds', 0):g}s",
        f"memory {format_bytes(_most(it.memory_used_bytes for it in seen))}",
        f"load {MISSING if load is None else f'{load}%'}",
        f"{MISSING if celsius is None else f'{celsius}°C'} at most",
    ]
    return ", ".join(parts)


def _most(values: Iterator[int | None]) -> int | None:
    return max((it for it in values if it is not None), default=None)
