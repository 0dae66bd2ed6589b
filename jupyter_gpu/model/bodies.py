"""What clients send: the bodies of the API. What comes back is in `documents`; the same rules hold for both."""

from __future__ import annotations

from typing import Annotated

import msgspec

from .jobs import Dependency, JobSpec
from .nouns import Ask, Holder
from .recurring import Overlap
from .states import Kind

#: So many asks travel in one request.
MOST_SUBMISSIONS = 500


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """The submitted file, sent by the client, so that a later edit does not change a queued job."""

    name: str
    content: bytes


class SubmitBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """POST /workloads. Who asks is who calls; an Idempotency-Key header makes a repeated ask the same workload."""

    kind: Kind
    ask: Ask = Ask()
    queue: str | None = None
    team: str | None = None
    name: str = ""
    spec: JobSpec | None = None
    script: Script | None = None
    holder: Holder | None = None
    not_before: float | None = None
    paused: bool = False
    profile: str | None = None
    after: tuple[Dependency, ...] = ()
    #: One job for each of these sets of parameters; of `{name}` in argv and of variables each gets its own.
    array: tuple[dict[str, str], ...] = ()
    at_most: int | None = None
    #: Beside the script: what belongs to the record of it (the git diff, the list of packages), kept like it.
    record: tuple[Script, ...] = ()
    #: The job of the caller's whose script and record this one runs with, where it brings none of its own.
    again: int | None = None


class RecurringBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """POST /recurring: a job to be submitted at each instant of a calendar, five fields of cron in a time zone."""

    cron: str
    #: An IANA name; None is the broker's own.
    timezone: str | None = None
    overlap: Overlap = Overlap.SKIP
    job: SubmitBody


class ChainBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /workloads/ID/chain: what a queued job comes after from now on; nothing for nothing any more."""

    after: tuple[Dependency, ...]


class SubmissionsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /submissions: many at once. With an Idempotency-Key each has that key, a slash and its place."""

    items: Annotated[tuple[SubmitBody, ...], msgspec.Meta(max_length=MOST_SUBMISSIONS)]


class CancelBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /workloads/ID/cancel."""

    #: Told to its owner, with who did it: "cancelled by grace: node maintenance".
    reason: str = ""


class MarkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /devices/UUID/cordon and /drain."""

    #: Told to those whose work must leave, and shown with the device until it is cordoned no more.
    reason: str = ""


class ExtendBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /workloads/ID/extend."""

    seconds: int


class MoveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /workloads/ID/move: the new holder; its number is given by the broker."""

    holder: Holder


class ServerBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """POST /servers, by a hub's spawner alone: where a server runs that it has started for the user."""

    #: Empty is the user's usual one.
    name: str
    #: What the user calls it, where that is something else.
    title: str = ""
    #: Its first process where it is one of this machine, as in `Holder`.
    pid: int | None = None
    start_ticks: int | None = None
    boot_id: str | None = None
    #: The id of its container where it is one.
    container: str = ""


class RenewBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /workloads/ID/renew."""

    holder_number: int
    #: Whether the holder computes now: a kernel in a cell, a server with one. None where the holder cannot say.
    busy: bool | None = None
    #: Since when it does not, by its own clock.
    idle_since: float | None = None


class ReleaseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /workloads/ID/release; a stale holder number changes nothing."""

    holder_number: int | None = None
