"""Processes on devices that their users hold no lease of: told, and ended where the policy says so and it is certain.

Certain is what the kernel says of a live process here and now: its start, that real, effective and saved user are one,
and an account of that number. Whatever is less than that is told to operators and left alone, whatever the policy says.
"""

from __future__ import annotations

import logging
import os

import msgspec

from ..core.told import astray
from ..model import Device, Holder, Use, UseKind, Workload, World
from ..units import format_when
from .alerts import Alert, Alerts
from .engines import holders, procs
from .people import People

log = logging.getLogger(__name__)

GROUP, ASTRAY_GROUP = "foreign", "astray"

#: Kinds whose user is certain.
_CERTAIN = frozenset({UseKind.USER, UseKind.KERNEL, UseKind.ASTRAY})
#: On a leased device these may be its holder's own, as far as anybody can know.
_MAY_BE_THE_HOLDERS = frozenset({UseKind.UNKNOWN, UseKind.DEAD})
#: A person's way into the machine, or what keeps many programs of theirs: never ended.
_NEVER_ENDED = frozenset(
    {
        *("sh", "bash", "dash", "zsh", "fish", "ksh", "csh", "tcsh", "login", "sshd", "sshd-session", "su", "sudo"),
        *("screen", "tmux", "tmux: server", "systemd", "(sd-pam)", "init", "gnome-session-b", "jupyterhub"),
    }
)
#: Where Linux numbers people, and what of that is none: users made for one service, and the one that stands for all
#: whose number is not known here.
_FIRST_PERSON = 1000
_OF_SERVICES = range(61184, 65520)
_NOBODY = 65534
#: So many readings in a row make something of it; one may be older than the end of a lease.
_SETTLED = 2
_MOST_NAMED = 3


class _Stranger(msgspec.Struct, kw_only=True):
    use: Use
    readings: int = 0
    #: Since when it has been told of.
    told_at: float | None = None
    asked_at: float | None = None
    is_killed: bool = False


class Foreign:
    """Remembers who is on which device without a lease, and since when they have been told."""

    def __init__(self, alerts: Alerts, people: People) -> None:
        self._alerts, self._people = alerts, people
        #: By device, pid and start.
        self._strangers: dict[tuple[str, int, int | None], _Stranger] = {}

    def look(self, world: World, now: float) -> None:
        """Take the uses of one sample: tell of them, and end what has to be ended."""
        before, self._strangers = self._strangers, {}
        for uuid, uses in world.uses.items():
            for use in uses:
                if use.is_foreign and uuid in world.devices:
                    key = (uuid, use.pid, use.start_ticks)
                    one = self._strangers[key] = before.get(key) or _Stranger(use=use)
                    one.use, one.readings = use, one.readings + 1
        settled = {key: one for key, one in self._strangers.items() if one.readings >= _SETTLED}
        for one in settled.values():
            one.told_at = now if one.told_at is None else one.told_at
        self._tell(world, settled, now)
        if world.policy.foreign_use == "end":
            for (uuid, _, _), one in settled.items():
                self._end_in_time(world, world.devices[uuid], one, now)

    # -- telling

    def _tell(self, world: World, settled: dict[tuple[str, int, int | None], _Stranger], now: float) -> None:
        by_device: dict[str, list[_Stranger]] = {}
        strays: set[int] = set()
        for (uuid, _, _), one in settled.items():
            is_leased = uuid in world.leases
            if one.use.kind is UseKind.ASTRAY and one.use.workload is not None:
                strays.add(one.use.workload)
            elif not (is_leased and one.use.kind in _MAY_BE_THE_HOLDERS):
                by_device.setdefault(uuid, []).append(one)
        found = {
            f"{GROUP}:{uuid}": self._alert(world, world.devices[uuid], them, now) for uuid, them in by_device.items()
        }
        self._alerts.settle(GROUP, found)
        stray = {id_: _stray(world, world.workloads[id_]) for id_ in strays if id_ in world.workloads}
        self._alerts.settle(ASTRAY_GROUP, {f"{ASTRAY_GROUP}:{id_}": alert for id_, alert in stray.items()})

    def _alert(self, world: World, device: Device, strangers: list[_Stranger], now: float) -> Alert:
        uses = [one.use for one in strangers]
        owners = {it.owner for it in world.holders_of(device.uuid)}
        users = {use.user for use in uses if use.user is not None}
        where = f"{device.title}, which {_names(world.holders_of(device.uuid))}," if owners else device.title
        until = "" if owners else " Nobody gets it while that lasts."
        then = self._what_then(world, device, strangers, now)
        who, plain_who = (_who(uses, with_names=named) for named in (True, world.policy.names_are_public))
        is_container = all(use.kind is UseKind.CONTAINER for use in uses)
        return Alert(
            text=f"{where} is used without a lease: {who}.{until} {then}",
            plain=f"{device.title} is used without a lease: {plain_who}.{until} {then}",
            device=device.uuid,
            users=frozenset(users | owners),
            # A container on a leased device is its holder's own, most likely; they can tell.
            for_operators=not (owners and is_container),
        )

    def _what_then(self, world: World, device: Device, strangers: list[_Stranger], now: float) -> str:
        if world.policy.foreign_use != "end":
            return "Let its user end it, or reserve a GPU first."
        reasons = {self.why_spared(world, device, one.use) for one in strangers}
        if reasons - {""}:
            return f"It is left alone: {next(iter(sorted(reasons - {''})))}."
        ends_at = min((one.told_at or now) for one in strangers) + world.policy.foreign_seconds
        return f"It is ended at {format_when(ends_at, now)}."

    # -- ending

    def why_spared(self, world: World, device: Device, use: Use) -> str:
        """Why a process is not ended, whatever the policy; empty where it may be."""
        uid = self._certain_user(use)
        if isinstance(uid, str):
            return uid
        if any(self._people.uid_of(it.account) == uid for it in world.holders_of(device.uuid)):
            return "its user holds the GPU"
        return ""

    def _certain_user(self, use: Use) -> int | str:
        """The number of the user of a process that may be ended, or why it may not. Looked up anew each time."""
        if use.kind not in _CERTAIN or use.user is None or use.start_ticks is None:
            return "it is not certain whose it is"
        try:
            proc = procs.find(use.pid)
            uids = set() if proc is None or proc.start_ticks != use.start_ticks else procs.users_of(use.pid)
        except OSError:
            return "it cannot be looked at now"
        if proc is None or not uids:
            return "it has ended"
        uid = uids.pop()
        if uids or self._people.name_of(uid) != use.user:
            return "it is not certain whose it is"
        if uid < _FIRST_PERSON or uid in _OF_SERVICES or uid == _NOBODY:
            return "it is the machine's own"
        if os.geteuid() not in (0, uid):
            return "this broker runs as somebody else, who may not end it"
        if (
            proc.name in _NEVER_ENDED
            or proc.pid == os.getpid()
            or next(iter(procs.argv(proc.pid)), "-").startswith("-")
        ):
            return "it is how somebody works on this machine"
        return uid

    def _end_in_time(self, world: World, device: Device, one: _Stranger, now: float) -> None:
        """SIGTERM when the time of the notice is over, SIGKILL later; only this very process, as it is now."""
        if one.told_at is None or now < one.told_at + world.policy.foreign_seconds or one.is_killed:
            return
        is_late = one.asked_at is not None and now >= one.asked_at + world.policy.kill_after_seconds
        use, uid = one.use, self._certain_user(one.use)
        if (one.asked_at is not None and not is_late) or isinstance(uid, str) or self.why_spared(world, device, use):
            return
        who = Holder(kind="stranger", name=use.name, pid=use.pid, start_ticks=use.start_ticks, boot_id=procs.boot_id())
        if holders.end(who, by_force=is_late, uid=uid):
            how = "killed" if is_late else "asked to end"
            of = f"process {use.pid} ({use.name}) of {use.user}"
            log.warning("%s: %s was %s, as the policy says (foreign_use)", device.title, of, how)
            one.asked_at, one.is_killed = now, is_late


def _who(uses: list[Use], *, with_names: bool) -> str:
    """Like "process 4711 (python) of grace and 2 more", the largest first."""
    first = max(uses, key=lambda use: (use.memory_bytes or 0, -use.pid))
    name = f" ({first.name})" if first.name and with_names else ""
    whose = (
        f" of {first.user}" if first.user and with_names else f" in {first.where}" if first.where and with_names else ""
    )
    unknown = (
        ", whose number cannot be looked up here (let the broker share the host's pids)"
        if first.kind is UseKind.UNKNOWN and not first.name
        else ""
    )
    dead = ", which has ended" if first.kind is UseKind.DEAD else ""
    more = f" and {len(uses) - 1} more" if len(uses) > 1 else ""
    return f"process {first.pid}{name}{whose}{unknown}{dead}{more}"


def _names(workloads: tuple[Workload, ...]) -> str:
    shown = ", ".join(f"{it.title} of {it.owner}" for it in workloads[:_MOST_NAMED])
    more = len(workloads) - _MOST_NAMED
    return f"{shown}{f' and {more} more' if more > 0 else ''} hold{'s' if len(workloads) == 1 else ''}"


def _stray(world: World, it: Workload) -> Alert:
    where = "; ".join(
        f"process {', '.join(str(pid) for pid in pids[:_MOST_NAMED])} on {device.title}"
        for device, pids in astray(world, it)
    )
    held = "" if it.lease is None else ", ".join(world.devices[uuid].title for uuid in it.lease.devices)
    own = f"It holds {held or 'no GPU'}" if it.is_live else "It holds nothing any more"
    text = f"runs outside its reservation: {where}. {own}; let the pin that it was given stand (CUDA_VISIBLE_DEVICES)."
    return Alert(
        text=f"{it.title} of {it.owner} {text}", plain=f"{it.title} {text}", workload=it.id, users=frozenset({it.owner})
    )
