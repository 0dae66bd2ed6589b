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
from .marks import first_words
from .people import People, is_of_a_person
from .shield import Shield

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
#: So many readings in a row make something of it; one may be older than the end of a lease.
_SETTLED = 2
_MOST_NAMED = 3


#: Who is on a device again within so long has not left it: else each minute another process would take over.
_GAP_SECONDS = 10.0
#: So many processes of one device are looked at anew for one sample, to say what becomes of them.
_MOST_LOOKED_AT = 8
#: So many are asked to end for one sample; the others follow.
_MOST_ENDED = 16

_Key = tuple[str, int, int | None]


class _Stranger(msgspec.Struct, kw_only=True):
    use: Use
    readings: int = 0
    #: When it was looked at last, to end it.
    looked_at: float = 0.0
    asked_at: float | None = None
    is_killed: bool = False


class _Notice(msgspec.Struct, kw_only=True):
    """What one account was told about one device, whichever of its processes is on it."""

    told_at: float
    seen_at: float


class Foreign:
    """Remembers who is on which device without a lease, and since when they have been told."""

    def __init__(self, alerts: Alerts, people: People) -> None:
        self._alerts, self._people = alerts, people
        #: By device, pid and start.
        self._strangers: dict[_Key, _Stranger] = {}
        #: By device and user.
        self._notices: dict[tuple[str, str | None], _Notice] = {}
        self._shield = Shield()

    def look(self, world: World, now: float) -> None:
        """Take the uses of one sample: tell of them, and end what has to be ended."""
        before, self._strangers = self._strangers, {}
        for uuid, uses in world.uses.items():
            for use in uses:
                if use.is_foreign and uuid in world.devices:
                    key = (uuid, use.pid, use.start_ticks)
                    one = self._strangers[key] = before.get(key) or _Stranger(use=use)
                    one.use, one.readings = use, one.readings + 1
        self._notices = {key: it for key, it in self._notices.items() if now - it.seen_at <= _GAP_SECONDS}
        settled = {key: one for key, one in self._strangers.items() if one.readings >= _SETTLED}
        for (uuid, _, _), one in settled.items():
            notice = self._notices.setdefault((uuid, one.use.user), _Notice(told_at=now, seen_at=now))
            notice.seen_at = now
        self._tell(world, settled, now)
        if world.policy.foreign_use == "end":
            self._end(world, settled, now)

    def _told_at(self, device: Device, one: _Stranger) -> float:
        return self._notices[device.uuid, one.use.user].told_at

    # -- telling

    def _tell(self, world: World, settled: dict[_Key, _Stranger], now: float) -> None:
        by_device: dict[str, list[_Stranger]] = {}
        strays: set[int] = set()
        for (uuid, _, _), one in settled.items():
            if one.use.kind is UseKind.ASTRAY and one.use.workload in world.workloads:
                strays.add(one.use.workload)
            elif not self._may_be_the_holders(world, uuid, one.use):
                by_device.setdefault(uuid, []).append(one)
        # Of those who have all ended nobody can be told; what they left is told of the device.
        by_device = {
            uuid: them for uuid, them in by_device.items() if any(one.use.kind is not UseKind.DEAD for one in them)
        }
        found = {}
        for uuid, them in by_device.items():
            with self._shield.around(f"device {uuid}"):
                found[f"{GROUP}:{uuid}"] = self._alert(world, world.devices[uuid], them, now)
        self._alerts.settle(GROUP, found)
        stray = {id_: _stray(world, world.workloads[id_]) for id_ in strays}
        self._alerts.settle(ASTRAY_GROUP, {f"{ASTRAY_GROUP}:{id_}": alert for id_, alert in stray.items()})

    def _may_be_the_holders(self, world: World, uuid: str, use: Use) -> bool:
        """Whether it may be the own of who leases the device, as far as anybody can know.

        One that can be looked up here is none of theirs, unless it has a number that only they may give away.
        """
        if use.kind not in _MAY_BE_THE_HOLDERS or uuid not in world.leases:
            return False
        if use.kind is UseKind.DEAD or use.start_ticks is None:
            return True
        lender = self._lender_of(use)
        return bool(lender) and any(it.account == lender for it in world.holders_of(uuid))

    def _lender_of(self, use: Use) -> str:
        """Who may give their processes the number of this one's user, which is no account's; empty if not known."""
        if use.user is not None or use.start_ticks is None:
            return ""
        try:
            uids = procs.users_of(use.pid)
        except OSError:
            return ""
        return self._people.lender_of(uids.pop()) if len(uids) == 1 else ""

    def _alert(self, world: World, device: Device, strangers: list[_Stranger], now: float) -> Alert:
        uses = [one.use for one in strangers]
        holders = world.holders_of(device.uuid)
        owners = {it.owner for it in holders}
        users = {use.user for use in uses if use.user is not None}
        where = f"{device.title}, which {_names(holders)}," if owners else device.title
        until = "" if owners else " Nobody gets it while that lasts."
        then = self._what_then(world, device, strangers, now)
        # Where it is not known whose the lease is, all may be theirs: that is for operators to find out.
        is_doubtful = bool(owners) and not self._knows_holders(world, device)
        what = "is used without a lease"
        if is_doubtful:
            what, then = "may be used without a lease", "It is left alone: it is not known whose the lease is."
        elif owners and all(use.kind is UseKind.CONTAINER for use in uses):
            what, then = "may be used without a lease", f"Its holder can tell whether that is theirs. {then}"
        first = _largest(uses)
        names = world.policy.names_are_public
        who, plain_who = (_who(uses, self._lender_of(first), with_names=it) for it in (True, names))
        return Alert(
            text=f"{where} {what}: {who}.{until} {then}",
            plain=f"{device.title} {what}: {plain_who}.{until} {then}",
            device=device.uuid,
            users=frozenset() if is_doubtful else frozenset(users | owners),
            about=frozenset(use.user or use.where or use.kind for use in uses),
        )

    def _what_then(self, world: World, device: Device, strangers: list[_Stranger], now: float) -> str:
        if world.policy.foreign_use != "end":
            return "Let its user end it, or reserve a GPU first."
        some = sorted(strangers, key=lambda one: -(one.use.memory_bytes or 0))[:_MOST_LOOKED_AT]
        reasons = {self.why_spared(world, device, one.use) for one in some}
        if reasons - {""}:
            return f"It is left alone: {next(iter(sorted(reasons - {''})))}."
        ends_at = min(self._told_at(device, one) for one in some) + world.policy.foreign_seconds
        return f"It is ended at {format_when(max(ends_at, now), now)}." if ends_at > now else "It is being ended."

    # -- ending

    def why_spared(self, world: World, device: Device, use: Use) -> str:
        """Why a process is not ended, whatever the policy; empty where it may be."""
        uid = self._certain_user(use)
        if isinstance(uid, str):
            return uid
        if not self._knows_holders(world, device):
            return "it is not known whose the lease is"
        if any(self._people.uid_of(it.account) == uid for it in world.holders_of(device.uuid)):
            return "its user holds the GPU"
        return ""

    def _knows_holders(self, world: World, device: Device) -> bool:
        """Whether it is known of each holder whose processes are theirs.

        Who has no account of this machine runs as we do; where we are root, that is nobody in particular.
        """
        return all(
            self._people.uid_of(it.account) is not None and (it.account or os.geteuid() != 0)
            for it in world.holders_of(device.uuid)
        )

    def _certain_user(self, use: Use) -> int | str:
        """The number of the user of a process that may be ended, or why it may not. Looked up anew each time."""
        if use.kind is UseKind.DEAD:
            return "it has ended"
        if use.kind not in _CERTAIN or use.user is None or use.start_ticks is None:
            return "it is not certain whose it is"
        try:
            proc = procs.find(use.pid)
            uids = set() if proc is None or proc.start_ticks != use.start_ticks else procs.users_of(use.pid)
        except OSError:
            return "it cannot be looked at now"
        if proc is None or proc.zombie or not uids:
            return "it has ended"
        uid = uids.pop()
        if uids or self._people.name_of(uid) != use.user:
            return "it is not certain whose it is"
        if not is_of_a_person(uid):
            return "it is the machine's own"
        if os.geteuid() not in (0, uid):
            return "this broker runs as somebody else, who may not end it"
        words = first_words(proc.pid)
        if not words:
            return "its command line cannot be read"
        if proc.name in _NEVER_ENDED or proc.pid == os.getpid() or words[0].startswith("-"):
            return "it is how somebody works on this machine"
        return uid

    def _end(self, world: World, settled: dict[_Key, _Stranger], now: float) -> None:
        """Those whose time is over, some at each sample: of so many each is looked at anew, and that takes time."""
        due = []
        for (uuid, _, _), one in settled.items():
            device = world.devices[uuid]
            is_over = now >= self._told_at(device, one) + world.policy.foreign_seconds
            is_asked = one.asked_at is not None and now < one.asked_at + world.policy.kill_after_seconds
            if is_over and not is_asked and not one.is_killed and one.use.kind in _CERTAIN:
                due.append((device, one))
        # Who was looked at longest ago comes first.
        for device, one in sorted(due, key=lambda it: it[1].looked_at)[:_MOST_ENDED]:
            one.looked_at = now
            with self._shield.around(f"process {one.use.pid}"):
                self._end_one(world, device, one, now)

    def _end_one(self, world: World, device: Device, one: _Stranger, now: float) -> None:
        """SIGTERM when the time of the notice is over, SIGKILL later; only this very process, as it is now."""
        use, uid = one.use, self._certain_user(one.use)
        if isinstance(uid, str) or self.why_spared(world, device, use):
            return
        is_late = one.asked_at is not None
        who = Holder(kind="stranger", name=use.name, pid=use.pid, start_ticks=use.start_ticks, boot_id=procs.boot_id())
        if holders.end(who, by_force=is_late, uid=uid):
            how = "killed" if is_late else "asked to end"
            of = f"process {use.pid} ({use.name}) of {use.user}"
            log.warning("%s: %s was %s, as the policy says (foreign_use)", device.title, of, how)
            one.asked_at, one.is_killed = now, is_late


def _largest(uses: list[Use]) -> Use:
    return max(uses, key=lambda use: (use.memory_bytes or 0, -use.pid))


def _who(uses: list[Use], lender: str, *, with_names: bool) -> str:
    """Like "process 4711 (python) of grace and 2 more", the largest first."""
    first = _largest(uses)
    name = f" ({first.name})" if first.name and with_names else ""
    whose = f" of {first.user}" if first.user and with_names else ""
    if with_names and not whose:
        whose = f" in {first.where}" if first.where else ""
        whose += f" of a user number that /etc/subuid lends to {lender}" if lender else ""
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
