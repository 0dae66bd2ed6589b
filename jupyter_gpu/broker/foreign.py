"""Processes on devices that their users hold no lease of: told, and ended where the policy says so and it is certain.

Certain is what the kernel says of a live process here and now: its start, that real, effective and saved user are one,
and an account of that number; under a hub also which user it is of. Whatever is less than that is told to operators and
left alone, whatever the policy says. All the teams that somebody is in say by which rule they are treated.
"""

from __future__ import annotations

import logging
import os

import msgspec

from ..core.told import astray
from ..model import Device, Holder, Treatment, Use, UseKind, Workload, World
from ..units import format_when
from .alerts import Alert, Alerts
from .engines import holders, procs
from .marks import first_words
from .people import People, is_of_a_person
from .shield import Shield
from .strangers import (
    MOST_NAMED,
    Fate,
    Stranger,
    holders_text,
    largest,
    own_words,
    since_and_size,
    what_then,
    who,
    whose_key,
)

log = logging.getLogger(__name__)

GROUP, ASTRAY_GROUP, ENDED_GROUP = "foreign", "astray", "ended"

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
#: Who is on a device again within so long has not left it: else each minute another process would take over.
_GAP_SECONDS = 10.0
#: So many processes of one device are looked at anew for one sample, to say what becomes of them.
_MOST_LOOKED_AT = 8
#: So long it is told who was ended, and by which rule.
_TOLD_SECONDS = 600.0
#: So many are asked to end for one sample; the others follow.
_MOST_ENDED = 16

_Key = tuple[str, int, int | None]


class _Notice(msgspec.Struct, kw_only=True):
    """What one owner was told about one device, whichever of their processes is on it."""

    treatment: Treatment
    #: Since when they are told of that.
    told_at: float
    seen_at: float


class Foreign:
    """Remembers who is on which device without a lease, and since when they have been told."""

    def __init__(self, alerts: Alerts, people: People) -> None:
        self._alerts, self._people = alerts, people
        #: By device, pid and start.
        self._strangers: dict[_Key, Stranger] = {}
        #: By device and owner.
        self._notices: dict[tuple[str, str | None], _Notice] = {}
        #: By key of the alert: until when it is told who was ended.
        self._ended: dict[str, tuple[float, Alert]] = {}
        self._shield = Shield()

    def look(self, world: World, now: float) -> None:
        """Take the uses of one sample: tell of them, and end what has to be ended."""
        before, self._strangers = self._strangers, {}
        for uuid, uses in world.uses.items():
            for use in uses:
                if use.is_foreign and uuid in world.devices:
                    key = (uuid, use.pid, use.start_ticks)
                    one = self._strangers[key] = before.get(key) or Stranger(use=use, since=now)
                    one.use, one.readings = use, one.readings + 1
        self._notices = {key: it for key, it in self._notices.items() if now - it.seen_at <= _GAP_SECONDS}
        settled = {key: one for key, one in self._strangers.items() if one.readings >= _SETTLED}
        for (uuid, _, _), one in settled.items():
            self._take_notice(world, uuid, one.use, now)
        self._tell(world, settled, now)
        self._end(world, settled, now)
        self._ended = {key: it for key, it in self._ended.items() if now < it[0]}
        self._alerts.settle(ENDED_GROUP, {key: alert for key, (_, alert) in self._ended.items()})

    def _take_notice(self, world: World, uuid: str, use: Use, now: float) -> None:
        """From now on they are told; where another rule holds for them than before, its time begins now."""
        teams = () if use.owner is None else world.teams_of(use.owner)
        treatment = world.policy.treatment_of(teams)
        notice = self._notices.setdefault(
            (uuid, whose_key(use)), _Notice(treatment=treatment, told_at=now, seen_at=now)
        )
        if notice.treatment != treatment:
            notice.treatment, notice.told_at = treatment, now
        notice.seen_at = now

    def _fate(self, world: World, device: Device, use: Use) -> Fate:
        notice = self._notices[device.uuid, whose_key(use)]
        if notice.treatment.is_unknown:
            return Fate(notice.treatment, spared="it is not known now which teams its user is in")
        if notice.treatment.ends_after_seconds is None:
            return Fate(notice.treatment)
        spared = self.why_spared(world, device, use)
        ends_at = None if spared else notice.told_at + notice.treatment.ends_after_seconds
        return Fate(notice.treatment, ends_at, spared)

    # -- telling

    def _tell(self, world: World, settled: dict[_Key, Stranger], now: float) -> None:
        by_device: dict[str, list[Stranger]] = {}
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

    def _alert(self, world: World, device: Device, strangers: list[Stranger], now: float) -> Alert:
        uses, holders = [one.use for one in strangers], world.holders_of(device.uuid)
        owners = {it.owner for it in holders}
        where = f"{device.title}, which {holders_text(holders)}," if owners else device.title
        until = "" if owners else " Nobody gets it while that lasts."
        then = what_then(self._fates(world, device, strangers), now)
        # Where it is not known whose the lease is, all may be theirs: that is for operators to find out.
        is_apart = world.groups is not None and all(use.owner not in (None, *owners) for use in uses)
        is_doubtful = bool(owners) and not is_apart and not self._knows_holders(world, device)
        what = "is used without a lease"
        if is_doubtful:
            what, then = "may be used without a lease", "It is left alone: it is not known whose the lease is."
        elif owners and all(use.kind is UseKind.CONTAINER and use.owner is None for use in uses):
            what, then = "may be used without a lease", f"Its holder can tell whether that is theirs. {then}"
        lender = self._lender_of(largest(uses))
        plain_who = who(uses, lender, with_names=world.policy.names_are_public)
        size = since_and_size(strangers, now)
        own = {} if is_doubtful else self._own(world, device, strangers, now)
        return Alert(
            text=f"{where} {what}: {who(uses, lender, with_names=True, with_places=True)}{size}.{until} {then}",
            plain=f"{device.title} {what}: {plain_who}{size}.{until} {then}",
            own=own,
            device=device.uuid,
            users=frozenset() if is_doubtful else frozenset(own) | owners,
            accounts=frozenset(use.user for use in uses if use.user and use.user == use.owner and use.owner in own),
            about=frozenset(whose_key(use) or use.where or use.kind for use in uses),
        )

    def _own(self, world: World, device: Device, strangers: list[Stranger], now: float) -> dict[str, str]:
        """To each whose some of them certainly are, what is theirs."""
        until = "" if device.uuid in world.leases else " Nobody gets it while that lasts."
        found = {}
        for owner in {one.use.owner for one in strangers} - {None}:
            theirs = [one for one in strangers if one.use.owner == owner]
            found[str(owner)] = own_words(theirs, device.title, self._fates(world, device, theirs), until, now)
        return found

    def _fates(self, world: World, device: Device, strangers: list[Stranger]) -> list[Fate]:
        some = sorted(strangers, key=lambda one: -(one.use.memory_bytes or 0))[:_MOST_LOOKED_AT]
        return [self._fate(world, device, one.use) for one in some]

    # -- ending

    def why_spared(self, world: World, device: Device, use: Use) -> str:
        """Why a process is not ended, whatever the policy; empty where it may be."""
        uid = self._certain_user(use)
        if isinstance(uid, str):
            return uid
        if not self._knows_holders(world, device):
            return "it is not known whose the lease is"
        holders_ = world.holders_of(device.uuid)
        if any(it.owner == use.owner or self._people.uid_of(it.account) == uid for it in holders_):
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
        if use.kind is UseKind.CONTAINER and use.owner is not None:
            return "it is in a container"
        if use.kind not in _CERTAIN or use.user is None or use.owner is None or use.start_ticks is None:
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

    def _end(self, world: World, settled: dict[_Key, Stranger], now: float) -> None:
        """Those whose time is over, some at each sample: of so many each is looked at anew, and that takes time."""
        due = []
        for (uuid, _, _), one in settled.items():
            notice = self._notices[uuid, whose_key(one.use)]
            after = notice.treatment.ends_after_seconds
            is_asked = one.asked_at is not None and now < one.asked_at + world.policy.kill_after_seconds
            is_over = after is not None and now >= notice.told_at + after
            if is_over and not is_asked and not one.is_killed and one.use.kind in _CERTAIN:
                due.append((world.devices[uuid], one, notice.treatment))
        # Who was looked at longest ago comes first.
        for device, one, treatment in sorted(due, key=lambda it: it[1].looked_at)[:_MOST_ENDED]:
            one.looked_at = now
            with self._shield.around(f"process {one.use.pid}"):
                self._end_one(world, device, one, treatment, now)

    def _end_one(self, world: World, device: Device, one: Stranger, treatment: Treatment, now: float) -> None:
        """SIGTERM when the time of the notice is over, SIGKILL later; only this very process, as it is now."""
        use, uid = one.use, self._certain_user(one.use)
        if isinstance(uid, str) or self.why_spared(world, device, use):
            return
        is_late = one.asked_at is not None
        it = Holder(kind="stranger", name=use.name, pid=use.pid, start_ticks=use.start_ticks, boot_id=procs.boot_id())
        if holders.end(it, by_force=is_late, uid=uid):
            how = "killed" if is_late else "asked to end"
            whole, owner = who([use], with_names=True, with_places=True), use.owner or ""
            log.warning("%s: %s was %s, as the policy says (%s)", device.title, whole, how, treatment.rule)
            one.asked_at, one.is_killed = now, is_late
            said = f"was {how} at {format_when(now, now)}: it had no lease of {device.title} ({treatment.rule})."
            alert = Alert(
                text=f"{whole.capitalize()} {said}",
                plain=f"Process {use.pid} {said}",
                own={owner: f"Your {who([use], with_names=False)} {said} Reserve a GPU first."},
                device=device.uuid,
                users=frozenset({owner}),
                accounts=frozenset({use.user or ""} & {owner}),
            )
            self._ended[f"{ENDED_GROUP}:{device.uuid}:{use.pid}"] = (now + _TOLD_SECONDS, alert)


def _stray(world: World, it: Workload) -> Alert:
    where = "; ".join(
        f"process {', '.join(str(pid) for pid in pids[:MOST_NAMED])} on {device.title}"
        for device, pids in astray(world, it)
    )
    held = "" if it.lease is None else ", ".join(world.devices[uuid].title for uuid in it.lease.devices)
    own = f"It holds {held or 'no GPU'}" if it.is_live else "It holds nothing any more"
    text = f"runs outside its reservation: {where}. {own}; let the pin that it was given stand (CUDA_VISIBLE_DEVICES)."
    return Alert(
        text=f"{it.title} of {it.owner} {text}", plain=f"{it.title} {text}", workload=it.id, users=frozenset({it.owner})
    )
