"""What a job is to come after, looked up for the core: only what its asker may see, also what ended long ago."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from ...model import Caller, Dependency, Workload
from . import views

if TYPE_CHECKING:
    from ..loop import Loop
    from ..store.store import Store


async def past_of(loop: Loop, after: Iterable[Dependency], caller: Caller) -> tuple[Workload, ...]:
    """Those that the world keeps no more, as the store has them, without what they ran; 404 for what is not there.

    What one may not see is not there: else a job that waits would tell when others' secret work ends.
    """
    past: list[Workload] = []
    for dependency in after:
        it = await views.find(loop, str(dependency.workload), caller)
        is_array = it.member is not None and it.member.array == it.id
        ids = it.member.ids if is_array and it.member is not None else [it.id]
        gone = [id_ for id_ in ids if id_ not in loop.world.workloads]
        if gone:
            past += await loop.read(functools.partial(_stored, gone))
    return tuple(past)


def _stored(ids: Iterable[int], store: Store) -> list[Workload]:
    found = (store.workload(id_) for id_ in ids)
    return [msgspec.structs.replace(it, spec=None) for it in found if it is not None]
