"""Plays commands against a world and its store, as the broker's loop does, for the tests of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from jupyter_gpu.broker.store.store import Record, Store
from jupyter_gpu.core.decide import decide
from jupyter_gpu.core.events import Event
from jupyter_gpu.core.lifecycle import evolve
from jupyter_gpu.errors import GpuError
from jupyter_gpu.model import (
    Ask,
    Cancel,
    Card,
    Chain,
    Command,
    Condition,
    Cordon,
    Dependency,
    Device,
    EndReason,
    Extend,
    Forget,
    Holder,
    JobSpec,
    Kind,
    LoadPolicy,
    Move,
    Outcome,
    Pause,
    Policy,
    Release,
    Reprioritise,
    SeeCondition,
    SeeDevices,
    SeeExited,
    SeeProbe,
    SeeStarted,
    SharingRule,
    State,
    Submit,
    Tick,
    Uncordon,
    Workload,
    World,
)

MACHINE = "0123456789abcdef0123456789abcdef"
BEGIN = 1_790_000_000.123456
#: Of the three devices the last is leased in parts.
POLICY = Policy(sharing=(SharingRule(device_class="l4"),))
#: Other rules, of which one shares nothing.
_POLICIES = (Policy(failures=1), *(Policy(failures=failures, sharing=POLICY.sharing) for failures in (2, 3)))
DEVICES = tuple(
    Device(
        uuid=f"GPU-{index}",
        index=index,
        name="Simulated",
        device_class="a100-80gb" if index < 2 else "l4",
        memory_bytes=80 << 30,
        simulated=True,
    )
    for index in range(3)
)


def open_store(folder: Path, **words) -> Store:
    """Open with what most tests do not care about."""
    return Store.open(folder, **{"machine_id": MACHINE, "now": BEGIN, **words})


class Play:
    """A store, its world and a clock: `do` decides and evolves, `commit` writes what was done since."""

    def __init__(self, store: Store, world: World | None = None) -> None:
        self.store = store
        self.world = World(POLICY) if world is None else world
        self.now = BEGIN
        self.waiting: list[Record] = []

    def do(self, command: Command) -> list[Event]:
        """Decide one command; a refusal is an answer like any other and changes nothing."""
        try:
            events = decide(self.world, command, self.now)
        except GpuError:
            return []
        if isinstance(command, LoadPolicy):
            self.world.policy = command.policy
        self.record(events)
        return events

    def record(self, events: Iterable[Event]) -> None:
        """Evolve the world by events and keep them for the next commit."""
        for event in events:
            evolve(self.world, event)
            self.waiting.append(Record(self.world.revision, self.world.policy.digest(), event))

    def commit(self) -> None:
        """Write what waits, as one transaction."""
        self.store.commit(self.waiting, self.world)
        self.waiting = []

    def begin(self) -> Play:
        """Show it three devices, one of them shareable, and commit that."""
        self.do(SeeDevices(pool="local", devices=DEVICES))
        self.commit()
        return self

    def submit(self, kind: Kind = Kind.JOB, owner: str = "ada", **words) -> Workload:
        """Submit one workload and give it as it stands after the step."""
        spec = JobSpec(argv=("python", "train.py"), folder="/home/ada") if kind is Kind.JOB else None
        self.do(Submit(**{"kind": kind, "owner": owner, "ask": Ask(), "spec": spec, **words}))
        return self.world.workloads[self.world.last_id]


# -- random commands: (verb, which, how much) as Hypothesis draws them --


def _pick(world: World, which: int, *states: State) -> Workload | None:
    found = [it for id_, it in sorted(world.workloads.items()) if not states or it.state in states]
    return found[which % len(found)] if found else None


def _submit(play: Play, which: int, amount: int) -> Command:
    kind = Kind.JOB if which % 2 else Kind.RESERVATION
    shared = {"memory_bytes": (1 + amount % 40) << 30} if which % 5 == 0 else {}
    return Submit(
        kind=kind,
        owner=("ada", "bob", "cleo")[which % 3],
        ask=Ask(devices=1 + amount % 2, duration_seconds=60 + amount, **shared),
        queue="deferred" if which == 5 else None,
        name=f"näme {which}",
        spec=JobSpec(argv=("run", "base64:/w=="), folder="/tmp") if kind is Kind.JOB else None,
        idempotency_key=f"key-{amount % 7}" if which == 4 else None,
    )


def _submit_a_batch(play: Play, which: int, amount: int) -> Command:
    """An array, after what there is: perhaps a workload that has ended, an array, or one that is not there."""
    after = tuple(
        Dependency(workload=it.id, ok=amount % 3 == 0)
        for it in (_pick(play.world, which), _pick(play.world, amount, State.QUEUED, State.ACTIVE))
        if it is not None and amount % 4
    )
    return Submit(
        kind=Kind.JOB,
        owner=("ada", "bob", "cleo")[which % 3],
        ask=Ask(duration_seconds=60 + amount),
        spec=JobSpec(argv=("run", "--{näme}", "base64:/3tuw6RtZX0="), folder="/tmp", parameters={"at": [1.5, None]}),
        after=after,
        array=tuple({"x": f"ä {number}"} for number in range(amount % 4)),
        at_most=1 + amount % 2 if amount % 4 else None,
        paused=amount % 5 == 0,
        idempotency_key=f"key-{amount % 7}" if which == 4 else None,
    )


def _chain(play: Play, which: int, amount: int) -> Command | None:
    it, other = _pick(play.world, which, State.QUEUED), _pick(play.world, amount)
    if it is None or other is None:
        return None
    after = (Dependency(workload=other.id, ok=amount % 2 == 0),) if amount % 5 else ()
    return Chain(workload=it.id, by="ada", after=after)


def _started(play: Play, which: int, amount: int) -> Command | None:
    it = _pick(play.world, which, State.ACTIVE)
    holder = Holder(kind="attempt", name="attempt", number=1, pid=100 + amount)
    return None if it is None else SeeStarted(workload=it.id, attempt=it.attempt + 1, holder=holder)


def _exited(play: Play, which: int, amount: int) -> Command | None:
    it = _pick(play.world, which, State.ACTIVE, State.YIELDING)
    ends = (EndReason.SUCCEEDED, EndReason.FAILED, EndReason.GPU_OOM, EndReason.LOST, EndReason.DEVICE_LOST)
    outcome = Outcome(end=ends[amount % len(ends)], exit_code=amount % 256, noticed=amount % 3 == 0, ended_at=play.now)
    attempt = 0 if it is None else max(it.attempt, 1)
    return None if it is None else SeeExited(workload=it.id, attempt=attempt, outcome=outcome, clear=amount % 2 == 0)


def _probe(play: Play, which: int, amount: int) -> Command | None:
    it = _pick(play.world, which, State.YIELDING)
    if it is None or it.lease is None:
        return None
    unclear = it.lease.devices if amount % 4 == 0 else ()
    return SeeProbe(workload=it.id, unclear=unclear, unclear_seconds=float(amount))


def _on_any(make: Callable[[int, int], Command]) -> Callable[[Play, int, int], Command | None]:
    def command(play: Play, which: int, amount: int) -> Command | None:
        it = _pick(play.world, which)
        return None if it is None else make(it.id, amount)

    return command


def _devices(play: Play, which: int, amount: int) -> Command:
    """Some vanish, some come back, one is of another class now (MIG was turned on)."""
    seen = [device for device in DEVICES if device.index != which]
    if amount % 3 == 0:
        other = {f: getattr(seen[0], f) for f in seen[0].__struct_fields__} | {"device_class": f"mig-{amount % 2}"}
        seen[0] = Device(**other)
    return SeeDevices(pool="local", devices=tuple(seen))


def _split_anew(play: Play, which: int, amount: int) -> Command:
    """A card beside the others is made of these parts now; those of before are no more once nobody holds them."""
    card = Card(uuid="GPU-9", index=9, name="Simulated")
    parts = tuple(
        Device(
            uuid=f"MIG-{slot}", index=1000 + slot, name="Simulated", device_class=f"mig-{slot}", card=card, slot=slot,
            memory_bytes=20 << 30, simulated=True,
        )
        for slot in range(3)
        if (amount >> slot) % 2
    )  # fmt: skip
    return SeeDevices(pool="local", devices=(*DEVICES, *parts), cards=(card,) if which % 2 else ())


def _tick(play: Play, which: int, amount: int) -> Command:
    play.now += amount * (which + 1) ** 3 + 0.1
    return Tick()


def _condition(play: Play, which: int, amount: int) -> Command:
    conditions = (None, *Condition)
    seen = conditions[amount % len(conditions)]
    return SeeCondition(device=f"GPU-{which % 3}", condition=seen, detail="x", was_reset=which % 2 == 0)


VERBS: dict[str, Callable[[Play, int, int], Command | None]] = {
    "submit": _submit,
    "submit again": _submit,
    "batch": _submit_a_batch,
    "chain": _chain,
    "started": _started,
    "exited": _exited,
    "probe": _probe,
    "tick": _tick,
    "devices": _devices,
    "split anew": _split_anew,
    "split": _split_anew,
    "condition": _condition,
    "cancel": _on_any(lambda id_, _: Cancel(workload=id_, by="ada")),
    "release": _on_any(lambda id_, _: Release(workload=id_, by="ada")),
    "extend": _on_any(lambda id_, amount: Extend(workload=id_, by="ada", seconds=amount)),
    "pause": _on_any(lambda id_, _: Pause(workload=id_, by="ada")),
    "priority": _on_any(lambda id_, amount: Reprioritise(workload=id_, by="op", priority=amount)),
    "move": _on_any(lambda id_, _: Move(workload=id_, by="ada", holder=Holder(kind="kernel", name="k"))),
    "cordon": lambda _play, which, _amount: Cordon(device=f"GPU-{which % 3}", by="op"),
    "uncordon": lambda _play, which, _amount: Uncordon(device=f"GPU-{which % 3}", by="op"),
    "forget": lambda _play, which, _amount: Forget(device=f"GPU-{which % 3}", by="op"),
    "policy": lambda _play, _which, amount: LoadPolicy(policy=_POLICIES[amount % len(_POLICIES)]),
}


def play_step(play: Play, verb: str, which: int, amount: int) -> None:
    """Play one drawn command, if the world has something to play it on."""
    command = VERBS[verb](play, which, amount)
    if command is not None:
        play.do(command)


#: Where a world keeps an order, it must come back too.
_ORDERED = ("workloads", "devices", "live", "ended")
#: Beside the log, or sums that are made when first asked for.
_NOT_FACTS = ("policy", "readings", "sums", "by_day")


def differences(one: World, other: World) -> list[str]:
    """In what two worlds differ: facts and indices alike, whatever a later world may add."""
    found = []
    for name in World.__slots__:
        values = [getattr(world, name) for world in (one, other) if name not in _NOT_FACTS]
        if name in _ORDERED:
            values = [list(value.items()) for value in values]
        if values and values[0] != values[1]:
            found.append(f"{name}: {values[0]!r} is not {values[1]!r}")
    return found
