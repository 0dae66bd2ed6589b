"""From the body of POST /workloads to the command Submit: everything that must be looked at outside the core.

What could only fail later is refused now, while somebody is there to read why: a folder that is not there, a command
that is not found, an environment that no program can be started with (DataBiosphere/toil#3955).
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...core.arrays import longest, member_spec
from ...environment import LONGEST_STRING_BYTES, MOST_TOTAL_BYTES, scrub, unpacked
from ...errors import InvalidAsk
from ...model import Ask, Caller, Holder, JobSpec, Kind, Policy, Submit, SubmitBody, World, pack_bytes
from ..engines import procs
from .account import Account, Looks, uid_of
from .bounds import LIGHT_BYTES, check_batch, check_key, check_queued, check_spec, check_word, check_words
from .containers import with_container
from .parents import Parents
from .records import with_copies_of
from .scripts import Kept, Scripts, check_record, check_script

if TYPE_CHECKING:
    from ..loop import Loop

#: Kinds of holders that a client may be; `attempt` is the engine's own.
HOLDER_KINDS = ("kernel", "server", "shell", "command")
#: How many different commands of one array are looked for.
MOST_PROGRAMS = 16
#: How many entries of a PATH are searched: each may be a slow folder.
MOST_PLACES = 64
_HUB_USER = b"JUPYTERHUB_USER="
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


async def read_submission(
    loop: Loop,
    scripts: Scripts | None,
    looks: Looks,
    body: SubmitBody,
    parents: Parents,
    *,
    key: str | None,
    keep: tuple[str, ...],
) -> Submit:
    """Check what a caller asks for and make it a command; what it needs on the disk is there then.

    Who gets a command with a script copy says `scripts.done` when it is decided. Without `scripts` it is only tried:
    it is checked likewise, and nothing is kept.
    """
    caller = parents.caller
    check_key(key)
    check_body(loop.world, body, caller)
    if body.again is not None:
        body = await with_copies_of(loop, body, caller)
    check_what_runs(body)
    body = with_profile(loop.world.policy, body)
    past = await parents.past(body.after)
    holder = None if body.holder is None else await known_holder(body.holder, caller)
    spec = None
    if body.spec is not None:
        account = await looks.account(caller.account)
        wished = await with_container(looks, account, body.spec, loop.world.policy.containers)
        spec = await prepare(scripts, looks, body, spec=wished, account=account, keep=keep)
    return Submit(
        kind=body.kind,
        owner=caller.name,
        account=caller.account,
        ask=body.ask,
        team=body.team,
        groups=caller.groups,
        queue=body.queue,
        name=body.name,
        spec=spec,
        holder=holder,
        not_before=body.not_before,
        paused=body.paused,
        profile=body.profile,
        idempotency_key=key,
        after=body.after,
        past=past,
        array=body.array,
        at_most=body.at_most,
    )


def check_body(world: World, body: SubmitBody, caller: Caller) -> None:
    """Refuse what is too long, too large or too much."""
    check_words(body)
    check_batch(body)
    if body.spec is not None:
        check_spec(body.spec)
        check_queued(world, caller.name, body.spec, body.array)


def check_what_runs(body: SubmitBody) -> None:
    """Refuse what does not go together."""
    if body.kind is Kind.RESERVATION and (body.spec is not None or body.script is not None):
        raise InvalidAsk("A reservation runs nothing.", hint="Leave spec and script out, or ask for a job.")
    check_record(body.record)
    if body.script is not None and (body.spec is None or body.spec.script_index is None):
        raise InvalidAsk("A script is sent without its place in argv.", hint="Set spec.script_index.")


def with_profile(policy: Policy, body: SubmitBody) -> SubmitBody:
    """Fill in what the named ask says and the caller does not."""
    if body.profile is None:
        return body
    profile = next((it for it in policy.profiles if it.name == body.profile), None)
    if profile is None:
        names = ", ".join(it.name for it in policy.profiles) or "none is offered here"
        raise InvalidAsk(f"there is no profile {body.profile!r}", hint=f"Use one of: {names}.")
    mine, plain = body.ask, Ask()
    fields = ("devices", "device_class", "memory_bytes", "duration_seconds")
    merged = {
        field: getattr(profile, field) if getattr(mine, field) == getattr(plain, field) else getattr(mine, field)
        for field in fields
    }
    return msgspec.structs.replace(
        body, ask=msgspec.structs.replace(mine, **merged), queue=body.queue if body.queue is not None else profile.queue
    )


# -- holders


async def known_holder(holder: Holder, caller: Caller) -> Holder:
    """The holder, with its process only where that is really a process of the caller's.

    The broker ends a holder's process when its time is over. So a caller could name somebody else's, and callers from
    a container name theirs by numbers that mean another process here. What does not match lives by its renewals.
    """
    check_word("holder.name", holder.name)
    if holder.kind not in HOLDER_KINDS:
        raise InvalidAsk(
            f"holder.kind: {holder.kind[:40]!r} is none of {', '.join(HOLDER_KINDS)}.", hint="Name what uses the GPU."
        )
    return await asyncio.to_thread(_with_own_process, holder, caller)


def _with_own_process(holder: Holder, caller: Caller) -> Holder:
    unknown = msgspec.structs.replace(
        holder, number=1, pid=None, start_ticks=None, boot_id=None, keeper_pid=None, keeper_start_ticks=None
    )
    if not caller.account or holder.boot_id not in (None, procs.boot_id()):
        return unknown
    ticks = _ticks_of(holder.pid, holder.start_ticks, caller)
    keeper_ticks = _ticks_of(holder.keeper_pid, holder.keeper_start_ticks, caller) if holder.kind == "kernel" else None
    return msgspec.structs.replace(
        unknown,
        pid=None if ticks is None else holder.pid,
        start_ticks=ticks,
        keeper_pid=None if keeper_ticks is None else holder.keeper_pid,
        keeper_start_ticks=keeper_ticks,
        boot_id=None if ticks is None and keeper_ticks is None else procs.boot_id(),
    )


def _ticks_of(pid: int | None, start_ticks: int | None, caller: Caller) -> int | None:
    """When a process of the caller's began; None where it is gone, another's, or could not be looked at."""
    if pid is None or pid == os.getpid():
        return None
    try:
        process = procs.find(pid)
    except OSError:  # then renewals tell
        return None
    if process is None or process.zombie or start_ticks not in (None, process.start_ticks):
        return None
    is_theirs = _user_of(pid) == uid_of(caller.account) and (
        not caller.shares_account or _hub_user_of(pid) == caller.name
    )
    return process.start_ticks if is_theirs else None


def _user_of(pid: int) -> int | None:
    """The real user of a process; None where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Uid:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _hub_user_of(pid: int) -> str | None:
    """In whose server of a hub a process began. Where many share an account, only that tells them apart."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return next(os.fsdecode(it[len(_HUB_USER) :]) for it in pairs if it.startswith(_HUB_USER))
    except (OSError, StopIteration):
        return None


# -- what a job runs


async def prepare(
    scripts: Scripts | None, looks: Looks, body: SubmitBody, *, spec: JobSpec, account: Account, keep: tuple[str, ...]
) -> JobSpec:
    """Check that the job can be started, and each of an array; and keep its script."""
    environment, dropped = await _scrubbed(spec, keep)
    environment.setdefault("PATH", _DEFAULT_PATH)
    programs = programs_of(spec, body.array)
    has_copy = body.script is not None
    folder = unpacked(spec.folder, "folder")
    path = unpacked(environment["PATH"], "PATH")
    is_elsewhere = spec.image is not None or (has_copy and spec.script_index == 0)
    for program in (None,) if is_elsewhere else programs:
        await looks.look(account, (folder, program, path), functools.partial(look_at, folder, program, path))
    recorded = dict(spec.recorded)
    if dropped:
        recorded["environment_dropped"] = " ".join(dropped)[:4096]
    kept = Kept(None, {}, ())
    if scripts is not None:
        kept = await asyncio.to_thread(scripts.keep_all, body.script, body.record, account)
    elif body.script is not None:
        check_script(body.script)
    if kept.left_out:
        recorded["record_left_out"] = " ".join(kept.left_out)
    return msgspec.structs.replace(
        spec,
        environment=environment,
        recorded=recorded,
        # Never the caller's own words: the engine opens them.
        script_copy=None if kept.script is None else pack_bytes(os.fsencode(kept.script)),
        script_index=spec.script_index if has_copy else None,
        kept={name: pack_bytes(os.fsencode(copy)) for name, copy in kept.record.items()},
    )


async def _scrubbed(spec: JobSpec, keep: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The environment that the job gets; a large one is read on a thread, so that nobody waits for it."""
    if spec.weight <= LIGHT_BYTES:
        return scrub(spec.environment, given=keep)
    return await asyncio.to_thread(scrub, spec.environment, given=keep)


def programs_of(spec: JobSpec, array: Sequence[Mapping[str, str]]) -> list[bytes]:
    """What is run, by each of an array where its command differs; the words of the longest are words that Linux takes.

    Of very many different commands the first are looked at: the rest are found missing when they start.
    """
    argv = check_argv(spec)
    if not array:
        return argv[:1]
    check_argv(member_spec(spec, longest(array), len(array)))
    first = msgspec.structs.replace(spec, argv=spec.argv[:1], environment={}, script_index=None)
    found: dict[bytes, None] = {}
    for index, parameters in enumerate(array, 1):
        found[check_argv(member_spec(first, parameters, index))[0]] = None
        if len(found) == MOST_PROGRAMS or "{" not in spec.argv[0]:
            break
    return list(found)


def check_argv(spec: JobSpec) -> list[bytes]:
    """The words of the command as bytes; refused where Linux would refuse them."""
    argv = [unpacked(word, f"argv[{index}]") for index, word in enumerate(spec.argv)]
    if not argv or not argv[0]:
        raise InvalidAsk("the job has nothing to run", hint="Give a command: `jupyter gpu submit -- python train.py`.")
    for index, word in enumerate(argv):
        if b"\0" in word:
            raise InvalidAsk(f"argv[{index}] holds a zero byte, which no program can be given.", hint="Remove it.")
        if len(word) >= LONGEST_STRING_BYTES:
            raise InvalidAsk(
                f"argv[{index}] has {len(word)} bytes, and Linux starts no program with more than "
                f"{LONGEST_STRING_BYTES - 1} in one word.",
                hint="Put it into a file.",
            )
    if (total := sum(len(word) + 1 for word in argv)) > MOST_TOTAL_BYTES:
        raise InvalidAsk(f"argv has {total} bytes; {MOST_TOTAL_BYTES} are the most.", hint="Put them into a file.")
    if spec.script_index is not None and spec.script_index >= len(argv):
        raise InvalidAsk(f"script_index {spec.script_index} is no place in {len(argv)} words.", hint="Count from 0.")
    return argv


def look_at(folder: bytes, program: bytes | None, path: bytes) -> bool:
    """Refuse a folder that is not there and a command that is not found, as the job would search for it."""
    shown = folder.decode("utf-8", "replace")[:300]
    if not folder.startswith(b"/"):
        raise InvalidAsk(f"The folder {shown!r} is not absolute.", hint="Send the whole path.")
    # Not pathlib, which raises where a folder may not be entered instead of saying no. With the dot it has to be one
    # that may be entered itself, and not only seen from the folder around it.
    if b"\0" in folder or not os.path.isdir(folder + b"/."):  # noqa: PTH112
        raise InvalidAsk(
            f"The folder {shown!r} cannot be entered from here, or is gone: a job would have nowhere to run.",
            hint="Submit from a folder that this machine sees, that you may enter, and that still exists.",
        )
    if program is not None and not _may_be_found(folder, program, path):
        name = program.decode("utf-8", "replace")[:200]
        where = "is no program that can be run" if b"/" in program else "is not found on the PATH of the submission"
        raise InvalidAsk(
            f"The command {name!r} {where}.",
            hint="Give its whole path, or submit from where the command works (an activated environment).",
        )
    return True


def _may_be_found(folder: bytes, program: bytes, path: bytes) -> bool:
    """Whether a command is there; also where the PATH is too long to be searched, which the start does later."""
    if b"/" in program:
        return _is_program(folder, program)
    places = path.split(b":", MOST_PLACES)
    found = any(_is_program(folder, (place or b".") + b"/" + program) for place in places[:MOST_PLACES])
    return found or len(places) > MOST_PLACES


def _is_program(folder: bytes, place: bytes) -> bool:
    whole = os.path.join(folder, place)  # noqa: PTH118
    # `effective_ids` is the identity for files, where access(2) would ask for the real one: root's.
    by_effective = os.access in os.supports_effective_ids
    return os.path.isfile(whole) and os.access(whole, os.X_OK, effective_ids=by_effective)  # noqa: PTH113
