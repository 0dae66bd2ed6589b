"""What is not kept for ever: old lives, reasons that nobody lists, logs, and nothing that is still needed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from jupyter_gpu.broker.api.scripts import Scripts
from jupyter_gpu.broker.engines.clearing import Cleared, clear_away, find
from jupyter_gpu.broker.retention import DAY_SECONDS, tidy
from jupyter_gpu.broker.store.store import SNAPSHOTS_KEPT, Store
from jupyter_gpu.model import Cancel, Policy

from .ground import Clock, a_job, a_loop
from .store_play import POLICY, Play, differences, open_store

LATER = float("inf")


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    store = open_store(tmp_path / "state")
    yield store
    store.close()


def cancelled(play: Play, *ids: int) -> None:
    """These are over, on the disk."""
    for id_ in ids:
        play.do(Cancel(workload=id_, by="ada"))
    play.commit()


def snapshots(play: Play, count: int = SNAPSHOTS_KEPT) -> None:
    """So many snapshots, each of another moment."""
    for _ in range(count):
        play.submit()
        play.commit()
        play.store.snapshot(play.world)


def reasons_before(store: Store, number: int) -> int:
    """How many reasons of waiting the log still has from before an event."""
    rows = store._db.execute("SELECT count(*) FROM events WHERE kind = 'explained' AND number < ?", (number,))
    return rows.fetchone()[0]


# -- lives


def test_old_lives_go_with_all_their_events(store):
    """And no others'."""
    play = Play(store).begin()
    first = [play.submit(name=str(n)).id for n in range(6)]
    cancelled(play, *first[3:])
    snapshots(play)

    while store.retire(before=LATER, known=()):
        pass

    assert [store.workload(id_) is None for id_ in first] == [False, False, False, True, True, True]
    assert store.events_of(first[4]) == []
    assert store.events_of(first[0]) != []


def test_what_the_world_still_keeps_stays(store):
    """It would be missing after a restart."""
    play = Play(store).begin()
    ids = [play.submit().id for _ in range(5)]
    cancelled(play, *ids[3:])
    snapshots(play)

    while store.retire(before=LATER, known=play.world.workloads):
        pass

    assert differences(store.replay(POLICY), play.world) == []
    assert differences(store.load(POLICY), play.world) == []
    assert store.workload(ids[4]) is not None


def test_nothing_goes_that_a_replay_still_needs(store):
    """Without a snapshot after it, a life is part of what the log tells."""
    play = Play(store).begin()
    ids = [play.submit().id for _ in range(5)]
    cancelled(play, *ids[3:])
    assert store.retire(before=LATER, known=()) == 0

    store.snapshot(play.world)
    over_now = play.submit().id
    cancelled(play, over_now)
    while store.retire(before=LATER, known=()):
        pass
    assert store.workload(over_now) is not None


def test_what_ended_lately_stays(store):
    """By its end, not by its beginning."""
    play = Play(store).begin()
    ids = [play.submit().id for _ in range(5)]
    cancelled(play, ids[3])
    play.now += 100
    cancelled(play, ids[4])
    snapshots(play)

    while store.retire(before=play.now - 50, known=()):
        pass
    assert (store.workload(ids[3]), store.workload(ids[4]) is None) == (None, False)


def test_reasons_of_waiting_that_no_replay_needs_go(store):
    """They are most of a long line's log, and belong to nobody's life."""
    play = Play(store).begin()
    for _ in range(6):
        play.submit(paused=True)
    play.commit()
    snapshots(play)
    oldest = store._db.execute("SELECT min(number) FROM snapshots").fetchone()[0]

    assert reasons_before(store, oldest) > 0

    while store.retire(before=0, known=()):
        pass
    assert reasons_before(store, oldest) == 0
    assert differences(store.replay(POLICY), play.world) == []


# -- logs


def folder(root: Path, name: str, *, size: int = 10, at: float = 0.0) -> Path:
    """An attempt's folder with a log of this size and age."""
    place = root / name
    place.mkdir(parents=True)
    (place / "log").write_bytes(b"x" * size)
    for path in (place / "log", place):
        os.utime(path, (at, at))
    return place


def test_old_folders_go_and_only_of_work_that_is_over(tmp_path):
    """What is unknown, still live, or no attempt of a workload stays."""
    old = folder(tmp_path, "1.1")
    again = folder(tmp_path, "1.1-2")
    new = folder(tmp_path, "2.1", at=200.0)
    kept = [folder(tmp_path, name) for name in ("3.1", "4.1", "probe.1-1")]
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "4.1").touch()

    found = find(tmp_path, lambda id_: id_ in (1, 2, 4))
    cleared = clear_away(found, owners={}, before=100.0, most_bytes=1 << 30)

    assert cleared.folders == 2
    assert not old.exists()
    assert not again.exists()
    assert new.exists()
    assert all(place.exists() for place in kept)


def test_the_oldest_go_where_all_have_too_much(tmp_path):
    """However young they are."""
    places = [folder(tmp_path, f"{n}.1", size=64 << 10, at=float(n)) for n in (3, 1, 2)]

    cleared = clear_away(find(tmp_path, _all), owners={}, before=0.0, most_bytes=100 << 10)

    assert [place.exists() for place in places] == [True, False, False]
    assert cleared.freed_bytes >= 128 << 10


def test_large_logs_of_one_push_out_nobody_elses(tmp_path):
    """Of whoever has most the oldest go first, however old others' are."""
    small = [folder(tmp_path, f"{n}.1", size=4 << 10, at=float(n)) for n in range(1, 6)]
    large = [folder(tmp_path, f"{n}.1", size=64 << 10, at=float(n)) for n in (7, 6, 8)]
    owners = dict.fromkeys(range(1, 6), "ada") | dict.fromkeys(range(6, 9), "bob")

    clear_away(find(tmp_path, _all), owners=owners, before=0.0, most_bytes=100 << 10)

    assert all(place.exists() for place in small)
    assert [place.exists() for place in large] == [False, False, True]


def _all(_: int) -> bool:
    return True


def test_a_link_in_a_folder_leads_nowhere(tmp_path):
    """What it points at is not ours to remove."""
    treasure = folder(tmp_path / "elsewhere", "treasure")
    (folder(tmp_path / "attempts", "1.1") / "link").symlink_to(treasure)

    clear_away(find(tmp_path / "attempts", _all), owners={}, before=LATER, most_bytes=0)

    assert (treasure / "log").exists()
    assert not (tmp_path / "attempts" / "1.1").exists()


def test_a_broker_without_attempts_has_nothing_to_clear(tmp_path):
    """Its folder may not even be there yet."""
    assert clear_away(find(tmp_path / "none", _all), owners={}, before=0.0, most_bytes=0) == Cleared(0, 0)


def test_the_broker_keeps_what_its_policy_says(tmp_path):
    """Logs of ended work go after their days; of work that is not over, or not known, none do."""
    clock = Clock()
    attempts = tmp_path / "attempts"

    async def story() -> None:
        async with a_loop(tmp_path / "state", clock=clock, policy=Policy(keep_log_days=2)) as (loop, _):
            runs, ended = [(await loop.handle(a_job())).workload for _ in range(2)]
            await loop.handle(Cancel(workload=ended, by="ada"))
            places = [folder(attempts, f"{id_}.1", at=clock.now) for id_ in (ended, runs, 99)]
            clock.now += 3 * DAY_SECONDS
            await tidy(loop, Scripts(tmp_path, lambda: ()), attempts)
            assert [place.exists() for place in places] == [False, True, True]

    asyncio.run(story())


def test_the_broker_knows_whose_logs_have_most(tmp_path):
    """By the workloads of its store."""
    clock, attempts = Clock(), tmp_path / "attempts"

    async def story() -> None:
        async with a_loop(tmp_path / "state", clock=clock, policy=Policy(keep_log_bytes=100 << 10)) as (loop, _):
            ids = [(await loop.handle(a_job(name))).workload for name in ("ada", "bob", "bob")]
            for id_ in ids:
                await loop.handle(Cancel(workload=id_, by="ada"))
            sizes = (4 << 10, 64 << 10, 64 << 10)
            places = [
                folder(attempts, f"{id_}.1", size=size, at=clock.now + id_)
                for id_, size in zip(ids, sizes, strict=True)
            ]
            await tidy(loop, Scripts(tmp_path, lambda: ()), attempts)
            assert [place.exists() for place in places] == [True, False, True]

    asyncio.run(story())


def test_a_fault_in_one_of_them_keeps_the_others_from_nothing(tmp_path, caplog):
    """It is told."""
    clock = Clock()

    class Broken(Scripts):
        def sweep(self, *, older_than_seconds: float) -> int:
            raise OSError(older_than_seconds)

    async def story() -> None:
        async with a_loop(tmp_path / "state", clock=clock, policy=Policy(keep_log_days=1)) as (loop, _):
            _, ended = [(await loop.handle(a_job())).workload for _ in range(2)]
            await loop.handle(Cancel(workload=ended, by="ada"))
            place = folder(tmp_path / "attempts", f"{ended}.1")
            await tidy(loop, Broken(tmp_path, lambda: ()), tmp_path / "attempts")
            assert not place.exists()

    asyncio.run(story())
    assert "old copies of scripts cannot be cleared away" in caplog.text
