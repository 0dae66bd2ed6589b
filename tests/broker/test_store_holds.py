"""Holds in the store: as the tables have them and as the log gives them, through snapshots and restarts."""

from __future__ import annotations

from pathlib import Path

from jupyter_gpu.model import AddHold, LoadPolicy, RemoveHold, SeeDevices, Span, Tick
from tests.world import differences

from .store_play import BEGIN, DEVICES, POLICY, Play, open_store

HOUR = 3600


def a_hold(name: str, begin: float, **words) -> AddHold:
    """Two hours, so many hours after the beginning."""
    span = Span(from_at=BEGIN + begin * HOUR, until_at=BEGIN + (begin + 2) * HOUR)
    return AddHold(name=name, by="op", count=1, teams=("x",), windows=(span,), **words)


def test_what_was_put_given_back_and_removed_is_there_again(tmp_path: Path) -> None:
    """By the tables and by the log, also from a snapshot in between."""
    with_store = Play(open_store(tmp_path))
    with_store.do(SeeDevices(pool="local", devices=DEVICES))
    with_store.do(LoadPolicy(policy=POLICY))
    with_store.do(a_hold("course", 1, no_show_seconds=60))
    with_store.do(a_hold("gone", 5))
    with_store.commit()
    with_store.store.snapshot(with_store.world)
    with_store.do(RemoveHold(hold=2, by="op"))
    with_store.now += HOUR + 61
    with_store.do(Tick())
    with_store.commit()
    with_store.store.close()
    store = open_store(tmp_path)

    loaded, replayed = store.load(POLICY), store.replay(POLICY)
    assert [(it.name, it.given_back) for it in loaded.holds.values()] == [("course", BEGIN + HOUR)]
    assert differences(loaded, with_store.world) == []
    assert differences(replayed, with_store.world) == []
    store.close()
