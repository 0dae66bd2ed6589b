"""Whose a thing is: who may know it."""

from __future__ import annotations

from ..model import Caller, Use, Workload, World


def may_see_names(world: World, it: Workload, caller: Caller) -> bool:
    """Whether a caller may know whose work this is."""
    is_public = world.policy.names_are_public and caller.sees_others
    return it.owner == caller.name or caller.is_operator or is_public


def is_of(world: World, use: Use, caller: Caller) -> bool:
    """Whether a process is the caller's: surely theirs, of an account that is theirs alone, or of their work."""
    it = None if use.workload is None else world.workloads.get(use.workload)
    is_their_account = use.user is not None and use.user == caller.account and not caller.shares_account
    return caller.name == use.owner or is_their_account or (it is not None and it.owner == caller.name)
