"""The world: all that the core knows at one instant, with the indices that make a step cheap.

Only `core.lifecycle.evolve` writes to it, through `put_workload`, `put_device`, `drop_device`,
`put_recurring`, `drop_recurring`, `put_hold`, `drop_hold` and `charge`.
The nouns inside are frozen, so `copy()` is a shallow copy of a few containers and serves as the overlay on which a
command is decided. `policy` and what was observed (`readings`, `uses`, `wrong`, `groups`, `progress`) stand beside the
log: no facts of it, and shared by all copies.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping

from .devices import Device, Reading, Use, Wrong
from .ends import Ends
from .habits import Habits
from .holds import Hold
from .jobs import Progress
from .lanes import Lanes, LineKey, lane_or_none, line_key
from .nouns import Workload
from .policy import BUCKET_SECONDS, USAGE_SECONDS, Policy
from .recurring import Recurring
from .shelves import Layout, Stock
from .states import Kind, State
from .usage import Sums, UsageKey, Whose, added, whose_are
from .world_checks import problems

#: Ended workloads that stay in memory; older ones are read from the store's history.
KEPT_ENDED = 10_000
#: And so much of their jobs' commands and variables together, in characters: a job may have megabytes of them.
KEPT_ENDED_CHARACTERS = 128 << 20
#: For the order of the line, where a day more or less is nothing, use is summed by the day.
DAY_BUCKETS = 86_400 // BUCKET_SECONDS


class World:
    """Workloads, devices and use, with derived indices that always agree with them."""

    __slots__ = (
        "booked", "by_day", "children", "devices", "ended", "ended_weight", "ends", "groups", "habits", "held",
        "holds", "keys", "lanes", "last_id", "leases", "line", "links_by", "live", "live_by", "members", "policy",
        "progress", "queued_by", "readings", "recurring", "revision", "runs", "stock", "sums", "usage", "uses",
        "workloads", "wrong", "yielding",
    )  # fmt: skip

    def __init__(self, policy: Policy | None = None) -> None:
        """Start empty: no device, no workload, revision 0."""
        self.policy = policy or Policy()
        self.revision = 0
        self.last_id = 0
        self.workloads: dict[int, Workload] = {}
        self.devices: dict[str, Device] = {}
        #: (owner, team, queue, device class) -> {bucket: device-ms}; a refund is a negative charge. The buckets of a
        #: key are replaced, never written into.
        self.usage: dict[UsageKey, dict[int, int]] = {}
        #: Device or card -> its newest reading; device -> who was on it then, and all that was wrong with it.
        self.readings: dict[str, Reading] = {}
        self.uses: dict[str, tuple[Use, ...]] = {}
        self.wrong: dict[str, tuple[Wrong, ...]] = {}
        #: Job -> how far its present or last attempt says it is.
        self.progress: dict[int, Progress] = {}
        #: Owner -> the groups that the hub says they are in, of those whom it was asked about; None without a hub.
        self.groups: Mapping[str, tuple[str, ...]] | None = None
        #: The recurring jobs, and the holds that operators put by a word, by id.
        self.recurring: dict[int, Recurring] = {}
        self.holds: dict[int, Hold] = {}
        #: What was found out once and shared by all copies; use by the day, made when first asked for.
        self.sums = Sums()
        self.by_day: dict[Whose, dict[int, int]] | None = None
        self._begin_indices()

    def _begin_indices(self) -> None:
        """What follows from the workloads and the devices, and is kept in step with them."""
        self.line: list[LineKey] = []
        self.live: dict[int, None] = {}
        #: Those of them that yield.
        self.yielding: dict[int, None] = {}
        self.ends = Ends()
        #: How many of them there are, by kind and priority.
        self.live_by: dict[tuple[Kind, int], int] = {}
        #: The free devices, by where they stand.
        self.stock = Stock()
        #: Ended workload -> what its job weighs, and of all together.
        self.ended: dict[int, int] = {}
        self.ended_weight = 0
        #: device UUID -> the workloads that hold it, by id.
        self.leases: dict[str, tuple[int, ...]] = {}
        #: (owner, idempotency key) -> workload.
        self.keys: dict[tuple[str, str], int] = {}
        self.lanes = Lanes()
        #: Whom queued workloads still wait for, and who: (the id of a workload or of an array, who waits), in order.
        self.children: list[tuple[int, int]] = []
        #: Owner -> how many ends their queued workloads wait for: of ten that come after two others, twenty.
        self.links_by: dict[str, int] = {}
        #: Array -> how many of it are live, where its owner said how many may be.
        self.members: dict[int, int] = {}
        #: The queued reservations for later.
        self.booked: dict[int, None] = {}
        #: Owner -> how many of theirs are queued.
        self.queued_by: dict[str, int] = {}
        self.habits = Habits()
        #: As `usage`, but how many devices are held now.
        self.held: dict[UsageKey, int] = {}
        #: Of the devices that jobs hold: how many run, the sum of their grants, and what those over now ran, in ms.
        self.runs: dict[UsageKey, tuple[int, int, int]] = {}

    def copy(self) -> World:
        """An overlay to decide on: changes to it never reach this world."""
        other = World.__new__(World)
        other.policy = self.policy
        other.observe_as(self)
        other.revision, other.last_id = self.revision, self.last_id
        other.workloads, other.devices = self.workloads.copy(), self.devices.copy()
        other.usage, other.held, other.runs = self.usage.copy(), self.held.copy(), self.runs.copy()
        other.line, other.live, other.ended = self.line.copy(), self.live.copy(), self.ended.copy()
        other.ended_weight = self.ended_weight
        other.yielding, other.live_by = self.yielding.copy(), self.live_by.copy()
        other.stock, other.ends = self.stock.copy(), self.ends.copy()
        other.leases, other.keys = self.leases.copy(), self.keys.copy()
        other.lanes, other.queued_by = self.lanes.copy(), self.queued_by.copy()
        other.children, other.members = self.children.copy(), self.members.copy()
        other.links_by = self.links_by.copy()
        other.recurring = self.recurring.copy()
        other.holds, other.booked = self.holds.copy(), self.booked.copy()
        other.habits = self.habits.copy()
        other.sums = self.sums  # each sum names the buckets that it is of, so it is never wrong for another world
        other.by_day = self.days().copy()
        return other

    def observe_as(self, other: World) -> None:
        """Share what was observed with another world."""
        self.readings, self.uses, self.wrong, self.groups = other.readings, other.uses, other.wrong, other.groups
        self.progress = other.progress

    def teams_of(self, owner: str) -> tuple[str, ...] | None:
        """All teams of somebody now, whatever they named for some work; None where the hub's word is awaited."""
        groups = () if self.groups is None else self.groups.get(owner)
        return None if groups is None else self.policy.teams_of(owner, groups)

    def put_workload(self, workload: Workload) -> None:
        """Replace or add a workload and keep every index in step."""
        weight = workload.weight if workload.state is State.ENDED else 0  # what could fail comes before any change
        before = self.workloads.get(workload.id)
        self.workloads[workload.id] = workload
        if workload.is_booked:
            self.booked[workload.id] = None
        elif self.booked:
            self.booked.pop(workload.id, None)
        if before is not None:
            if before.state is workload.state is State.QUEUED and before.unmet == workload.unmet:
                if line_key(before) == line_key(workload):
                    self._change_lane(workload)
                    return
            elif before.is_live and workload.is_live and before.lease == workload.lease:
                self._hold_on(before, workload)
                return
            self._unindex(before)
        self.last_id = max(self.last_id, workload.id)
        if workload.state is State.QUEUED:
            self._join_the_line(workload)
        elif workload.state is State.ENDED:
            self.ended[workload.id] = weight
            self.habits.learn(workload)
            self.ended_weight += weight
        else:
            self._hold_devices(workload)
        if workload.idempotency_key is not None:
            self.keys[workload.owner, workload.idempotency_key] = workload.id
        while len(self.ended) > KEPT_ENDED or (self.ended_weight > KEPT_ENDED_CHARACTERS and len(self.ended) > 1):
            self._forget(next(iter(self.ended)))

    def _unindex(self, workload: Workload) -> None:
        if workload.state is State.QUEUED:
            self._leave_the_line(workload)
        elif workload.state is State.ENDED:
            self.ended_weight -= self.ended.pop(workload.id, 0)
        else:
            self._give_devices_back(workload)

    def _join_the_line(self, workload: Workload) -> None:
        key = line_key(workload)
        insort(self.line, key)
        self.lanes.put(key, lane_or_none(workload))
        self.queued_by[workload.owner] = self.queued_by.get(workload.owner, 0) + 1
        self._count_links(workload, 1)
        for parent in workload.unmet:
            insort(self.children, (parent, workload.id))

    def _leave_the_line(self, workload: Workload) -> None:
        key = line_key(workload)
        del self.line[bisect_left(self.line, key)]
        self.lanes.drop(key)
        left = self.queued_by.pop(workload.owner) - 1
        if left:
            self.queued_by[workload.owner] = left
        self._count_links(workload, -1)
        for parent in workload.unmet:
            del self.children[bisect_left(self.children, (parent, workload.id))]

    def _change_lane(self, workload: Workload) -> None:
        lane = lane_or_none(workload)
        if lane is not self.lanes.of[workload.id]:
            key = line_key(workload)
            self.lanes.drop(key)
            self.lanes.put(key, lane)

    def _hold_devices(self, workload: Workload) -> None:
        self.live[workload.id] = None
        self.ends.put(workload)
        if workload.state is State.YIELDING:
            self.yielding[workload.id] = None
        self._count_live(workload, 1)
        for uuid in workload.lease.devices if workload.lease is not None else ():
            others = self.leases.get(uuid)
            if others is None:
                self.stock.take(uuid)
            self.leases[uuid] = (workload.id,) if others is None else tuple(sorted((*others, workload.id)))
            self._hold(workload, uuid, 1)

    def _give_devices_back(self, workload: Workload) -> None:
        del self.live[workload.id]
        self.ends.drop(workload.id)
        self.yielding.pop(workload.id, None)
        self._count_live(workload, -1)
        for uuid in workload.lease.devices if workload.lease is not None else ():
            self._hold(workload, uuid, -1)
            others = tuple([id_ for id_ in self.leases[uuid] if id_ != workload.id])
            if others:
                self.leases[uuid] = others
            else:
                del self.leases[uuid]
                if uuid in self.devices:
                    self.stock.give_back(self.devices[uuid])

    def _hold_on(self, before: Workload, workload: Workload) -> None:
        """The same devices, in another state or otherwise held; in the order of the last change, as stores have it."""
        del self.live[workload.id]
        self.live[workload.id] = None
        self.ends.put(workload)
        if workload.state is State.YIELDING:
            self.yielding[workload.id] = None
        if before.released_at != workload.released_at:
            for uuid in workload.lease.devices if workload.lease is not None else ():
                self._hold(before, uuid, -1)
                self._hold(workload, uuid, 1)

    def _count_live(self, workload: Workload, count: int) -> None:
        self._count_member(workload, count)
        rank = (workload.kind, workload.priority)
        there = self.live_by.pop(rank, 0) + count
        if there:
            self.live_by[rank] = there

    def _count_links(self, workload: Workload, sign: int) -> None:
        if workload.unmet:
            links = self.links_by.pop(workload.owner, 0) + sign * len(workload.unmet)
            if links:
                self.links_by[workload.owner] = links

    def _count_member(self, workload: Workload, count: int) -> None:
        member = workload.member
        if member is not None and member.at_most is not None:
            running = self.members.pop(member.array, 0) + count
            if running:
                self.members[member.array] = running

    def put_recurring(self, it: Recurring) -> None:
        """Replace or add a recurring job."""
        self.last_id = max(self.last_id, it.id)
        self.recurring[it.id] = it

    def drop_recurring(self, recurring_id: int) -> None:
        """It is no more."""
        del self.recurring[recurring_id]

    def put_hold(self, hold: Hold) -> None:
        """Replace or add a hold."""
        self.last_id = max(self.last_id, hold.id)
        self.holds[hold.id] = hold

    def drop_hold(self, hold_id: int) -> None:
        """It is no more."""
        del self.holds[hold_id]

    def _hold(self, workload: Workload, uuid: str, count: int) -> None:
        device = self.devices.get(uuid)
        key = (workload.owner, workload.team, workload.queue, device.device_class if device is not None else "")
        held = self.held.pop(key, 0) + count
        if held:
            self.held[key] = held
        if workload.kind is Kind.JOB and workload.lease is not None:
            running, granted_ms, ran_ms = self.runs.pop(key, (0, 0, 0))
            begin_ms = round(workload.lease.granted_at * 1000)
            if workload.released_at is None:
                running, granted_ms = running + count, granted_ms + count * begin_ms
            else:
                ran_ms += count * (round(workload.released_at * 1000) - begin_ms)
            if running or ran_ms:
                self.runs[key] = (running, granted_ms, ran_ms)

    def _forget(self, workload_id: int) -> None:
        gone = self.workloads.pop(workload_id)
        self.ended_weight -= self.ended.pop(workload_id)
        if gone.idempotency_key is not None:
            self.keys.pop((gone.owner, gone.idempotency_key), None)

    def put_device(self, device: Device) -> None:
        """Replace or add a device."""
        holders = self.holders_of(device.uuid)
        for workload in holders:
            self._hold(workload, device.uuid, -1)
        self.devices[device.uuid] = device
        self.stock.put(device, is_held=device.uuid in self.leases)
        for workload in holders:
            self._hold(workload, device.uuid, 1)

    def drop_device(self, uuid: str) -> None:
        """List a device no more that nobody holds. What was used of it stays charged to its class."""
        del self.devices[uuid]
        self.stock.drop(uuid)

    @property
    def layout(self) -> Layout:
        """The devices as they are, whoever holds them."""
        return self.stock.layout(self.devices.values())

    def charge(self, workload: Workload, *, device_class: str, used: Iterable[tuple[float, int]]) -> None:
        """Add use, as device-ms at times, to the buckets of these and forget the buckets that no window reaches.

        All of a lease at once: the buckets are copied, and a month of running has 720.
        """
        days = self.days()
        key = (workload.owner, workload.team, workload.queue, device_class)
        by_bucket, by_day = dict[int, int](), dict[int, int]()
        for at, device_ms in used:
            bucket = int(at) // BUCKET_SECONDS
            by_bucket[bucket] = by_bucket.get(bucket, 0) + device_ms
            by_day[bucket // DAY_BUCKETS] = by_day.get(bucket // DAY_BUCKETS, 0) + device_ms
        kept = USAGE_SECONDS // BUCKET_SECONDS
        self.usage[key] = added(self.usage.get(key, {}), by_bucket, kept)
        for whose in whose_are(workload.owner, workload.team):
            days[whose] = added(days.get(whose, {}), by_day, kept // DAY_BUCKETS)

    def days(self) -> dict[Whose, dict[int, int]]:
        """Use by the day: of each user, of each team, of all."""
        if self.by_day is None:
            self.by_day = {}
            for (owner, team, _, _), buckets in self.usage.items():
                for whose in whose_are(owner, team):
                    of_one = self.by_day.setdefault(whose, {})
                    for bucket, used in buckets.items():
                        of_one[bucket // DAY_BUCKETS] = of_one.get(bucket // DAY_BUCKETS, 0) + used
        return self.by_day

    def used_ms(self, key: UsageKey, window_seconds: int, now: float) -> int:
        """Device-ms charged under one key within a window that ends now, its oldest bucket counted whole."""
        buckets = self.usage.get(key, {})
        oldest = int(now - window_seconds) // BUCKET_SECONDS
        known = self.sums.of_windows.get((key, window_seconds))
        if known is None or known[0] is not buckets or known[1] != oldest:
            total = sum(used for bucket, used in buckets.items() if bucket >= oldest)
            known = self.sums.of_windows[key, window_seconds] = (buckets, oldest, total)
        return known[2]

    def queued(self) -> Iterator[Workload]:
        """The line, first to last."""
        workloads = self.workloads
        return (workloads[key[3]] for key in self.line)

    def children_of(self, parent: int) -> tuple[int, ...]:
        """The queued workloads that still wait for the end of a workload, or of an array, by id."""
        begin = bisect_left(self.children, (parent,))
        return tuple(child for _, child in self.children[begin : bisect_left(self.children, (parent + 1,))])

    def holders(self) -> Iterator[Workload]:
        """The live workloads, by id."""
        workloads = self.workloads
        return (workloads[id_] for id_ in sorted(self.live))

    def holders_of(self, uuid: str) -> tuple[Workload, ...]:
        """Who holds a device now, by id."""
        return tuple(self.workloads[id_] for id_ in self.leases.get(uuid, ()))

    def check(self, only: Iterable[int] | None = None) -> list[str]:
        """The invariants that do not hold, one sentence each. `only` looks at these workloads and what they touch."""
        return problems(self, only)
