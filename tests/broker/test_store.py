"""Two ways to one truth: the tables and the log give the same world, to the last bit and in the same order."""

import json
import math
import shutil
import sqlite3
import tempfile
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpu.broker.store.rows import Touched, touched_workloads
from jupyter_gpu.broker.store.store import SNAPSHOTS_KEPT, Record
from jupyter_gpu.core.events import Amended, AnyEvent, Ended, PolicyLoaded, Submitted
from jupyter_gpu.errors import InvalidAsk, StoreUnavailable
from jupyter_gpu.model import (
    Ask,
    Cancel,
    Condition,
    EndReason,
    Forget,
    JobSpec,
    Kind,
    LoadPolicy,
    Policy,
    Release,
    SeeCondition,
    SeeDevices,
    SeeProbe,
    State,
    Submit,
    Tick,
    WaitingReason,
    Workload,
    World,
)

from .store_play import BEGIN, DEVICES, POLICY, VERBS, Play, differences, open_store, play_step


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    store = open_store(tmp_path / "state")
    yield store
    store.close()


@pytest.fixture
def play(store):
    """A store that has seen three devices."""
    return Play(store).begin()


def raw(store, query, *values):
    """Ask the file as anybody else would: through a connection of one's own."""
    db = sqlite3.connect(f"file:{store.path}?mode=ro", uri=True)
    try:
        return db.execute(query, values).fetchall()
    finally:
        db.close()


# -- the same world --


def test_an_empty_store_gives_an_empty_world(store):
    """Before the first event there is nothing, and both ways say so."""
    assert differences(store.load(POLICY), World(POLICY)) == []
    assert differences(store.replay(POLICY), World(POLICY)) == []


def test_a_store_that_was_closed_gives_the_same_world_again(play):
    """A restart changes nothing: ids, order, leases, use and revision are as they were."""
    play.submit(Kind.RESERVATION, owner="bob", idempotency_key="k")
    play.submit(owner="ada", name="digits")
    play.submit(owner="ada", ask=Ask(devices=3))
    play.do(Cancel(workload=3, by="ada"))
    play.commit()
    folder, store_id = play.store.path.parent, play.store.store_id
    play.store.close()

    again = open_store(folder, now=BEGIN + 99)

    assert again.store_id == store_id
    assert differences(again.load(POLICY), play.world) == []
    assert differences(again.replay(POLICY), play.world) == []
    again.close()


def test_the_policy_of_the_world_is_the_one_given(play):
    """The policy stands beside the log: what is loaded obeys the rules of today."""
    today = Policy(failures=9)

    assert play.store.load(today).policy is today
    assert play.store.replay(today).policy is today


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(VERBS)), st.integers(0, 5), st.integers(0, 4000)),
        st.sampled_from([("commit", 0, 0), ("snapshot", 0, 0), ("reload", 0, 0)]),
    ),
    max_size=60,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=_STEPS, kept=st.sampled_from([1, 3, 10_000]), weight=st.sampled_from([0, 30, 1 << 20]))
def test_load_and_replay_agree_with_the_world_that_was_committed(steps, kept, weight):
    """In whatever batches and with whatever snapshots: folding the log gives the world of the tables."""
    folder = Path(tempfile.mkdtemp(prefix="jg-"))
    with (
        mock.patch("jupyter_gpu.model.world.KEPT_ENDED", kept),
        mock.patch("jupyter_gpu.broker.store.store.KEPT_ENDED", kept),
        mock.patch("jupyter_gpu.model.world.KEPT_ENDED_CHARACTERS", weight),
        mock.patch("jupyter_gpu.broker.store.store.KEPT_ENDED_CHARACTERS", weight),
    ):
        play = Play(open_store(folder)).begin()
        for verb, which, amount in steps:
            if verb in ("commit", "snapshot", "reload"):
                play.commit()
                if verb == "snapshot":
                    play.store.snapshot(play.world)
                elif verb == "reload":
                    play.world = play.store.load(play.world.policy)
            else:
                play_step(play, verb, which, amount)
        play.commit()
        loaded, replayed = play.store.load(POLICY), play.store.replay(POLICY)
        play.store.close()
    shutil.rmtree(folder)

    assert differences(loaded, play.world) == []
    assert differences(replayed, play.world) == []
    assert loaded.check() == []


def test_use_that_no_window_reaches_is_forgotten_in_the_file_too(play):
    """The table holds the buckets of the world and no others, so it does not grow for ever."""
    play.submit(Kind.RESERVATION)
    play.do(Release(workload=1, by="ada"))
    play.do(VERBS["probe"](play, 0, 1))
    play.commit()
    first = raw(play.store, "SELECT bucket FROM usage")
    play.now += 40 * 86_400
    play.submit(Kind.RESERVATION)
    play.commit()

    rows = raw(play.store, "SELECT owner, team, queue, device_class, bucket, device_ms FROM usage")

    there = {(*key, bucket): used for key, buckets in play.world.usage.items() for bucket, used in buckets.items()}
    assert {tuple(row[:5]): row[5] for row in rows} == there
    assert len(first) == len(rows) == 1
    assert rows[0][4] > first[0][0]


def test_only_the_newest_ended_workloads_come_back_and_all_stay_in_the_file(play, monkeypatch):
    """A world keeps so many ended workloads; the history keeps them all."""
    monkeypatch.setattr("jupyter_gpu.model.world.KEPT_ENDED", 3)
    monkeypatch.setattr("jupyter_gpu.broker.store.store.KEPT_ENDED", 3)
    for _ in range(6):
        play.submit(paused=True)
    for id_ in (4, 2, 6, 1, 3, 5):
        play.do(Cancel(workload=id_, by="ada"))
    play.commit()

    world = play.store.load(POLICY)

    assert list(world.ended) == [1, 3, 5]
    assert world.last_id == 6
    assert [it.id for it in play.store.workloads()] == [6, 5, 4, 3, 2, 1]
    assert play.store.workload(4).state is State.ENDED, "ended and forgotten within the commit that submitted it"
    assert differences(world, play.store.replay(POLICY)) == []


def test_of_heavy_ended_jobs_few_stay_in_memory_and_come_back(play, monkeypatch):
    """Who submits and cancels megabytes again and again fills no memory, now or after a restart."""
    monkeypatch.setattr("jupyter_gpu.model.world.KEPT_ENDED_CHARACTERS", 2_500)
    monkeypatch.setattr("jupyter_gpu.broker.store.store.KEPT_ENDED_CHARACTERS", 2_500)
    heavy = JobSpec(argv=("train", "x" * 1_000), folder="/")
    for id_ in range(1, 7):
        play.do(Submit(kind=Kind.JOB, owner="ada", ask=Ask(), paused=True, spec=heavy))
        play.do(Cancel(workload=id_, by="ada"))
    play.commit()

    world = play.store.load(POLICY)

    assert [*play.world.ended] == [*world.ended] == [5, 6]
    assert play.store.workload(1).spec == heavy
    assert differences(world, play.world) == []
    assert differences(play.store.replay(POLICY), play.world) == []


def test_a_workload_and_its_device_are_forgotten_in_one_commit(play, monkeypatch):
    """The end of its lease is still charged and written; the device is in no table, and its use is."""
    monkeypatch.setattr("jupyter_gpu.model.world.KEPT_ENDED", 1)
    monkeypatch.setattr("jupyter_gpu.broker.store.store.KEPT_ENDED", 1)
    for id_ in (1, 2):
        play.submit(Kind.RESERVATION)
        play.now += 60
        play.do(Release(workload=id_, by="ada"))
        play.do(SeeProbe(workload=id_))
    for uuid in ("GPU-0", "GPU-1"):
        play.do(SeeCondition(device=uuid, condition=Condition.LOST))
        play.do(Forget(device=uuid, by="op"))
    play.do(SeeDevices(pool="local", devices=DEVICES[1:2]))
    play.commit()

    world = play.store.load(POLICY)

    assert list(world.devices) == ["GPU-2", "GPU-1"]
    assert raw(play.store, "SELECT uuid FROM devices ORDER BY place") == [("GPU-2",), ("GPU-1",)]
    assert play.store.workload(1).state is State.ENDED
    assert raw(play.store, "SELECT sum(device_ms) FROM usage") == [(120_000,)]
    assert differences(world, play.world) == []
    assert differences(play.store.replay(POLICY), play.world) == []
    assert play.store.touched_since(play.world.revision - 3, 1000) is None


def test_numbers_go_on_where_they_stopped_though_the_last_workload_is_forgotten(play, monkeypatch):
    """An id is given once, for ever: the counter stands in the file by itself."""
    monkeypatch.setattr("jupyter_gpu.model.world.KEPT_ENDED", 1)
    monkeypatch.setattr("jupyter_gpu.broker.store.store.KEPT_ENDED", 1)
    for _ in range(2):
        play.submit(paused=True)
    for id_ in (2, 1):
        play.do(Cancel(workload=id_, by="ada"))
    play.commit()

    world = play.store.load(POLICY)

    assert (list(world.workloads), world.last_id) == ([1], 2)


@pytest.mark.parametrize("value", [0.1 + 0.2, 1_790_000_000.1234567, 5e-324, 1.7976931348623157e308, -0.0, 3.0])
def test_a_float_comes_back_to_the_last_bit(play, value):
    """Instants are compared, so what is read must be what was written."""
    it = play.submit(paused=True, not_before=value)
    play.commit()

    (again,) = (world.workloads[it.id].not_before for world in [play.store.load(POLICY)])

    assert again == value
    assert math.copysign(1, again) == math.copysign(1, value)
    assert play.store.replay(POLICY).workloads[it.id].not_before == value


def test_text_comes_back_as_it_was(play):
    """Names and commands are data: quotes, NUL, other scripts and packed bytes pass through unharmed."""
    name = "'; DROP TABLE events; --\0é\U0001f600"
    spec = JobSpec(argv=("a b", "", "*", "\n", "base64:/w=="), folder="/tmp/é", environment={"A": "x=\0"})
    play.submit(name=name, spec=spec)
    play.commit()

    again = play.store.load(POLICY).workloads[1]

    assert (again.name, again.spec) == (name, spec)
    assert raw(play.store, "SELECT count(*) FROM events WHERE kind = 'submitted'") == [(1,)]


def test_what_a_job_is_given_is_kept_as_given(play):
    """The store scrubs nothing: the one place where a secret is taken out is the rim, before the event is made."""
    spec = JobSpec(argv=("x",), folder="/", environment={"WANDB_MODE": "offline"})
    play.submit(spec=spec)
    play.commit()

    ((body,),) = raw(play.store, "SELECT body FROM workloads")

    assert json.loads(body)["spec"] == {"argv": ["x"], "folder": "/", "environment": {"WANDB_MODE": "offline"}}


# -- the log --


def test_every_kind_of_event_comes_back_as_it_was(play):
    """The log is read with the same types that wrote it, and a record carries the digest it was decided by."""
    digest = play.world.policy.digest()
    play.submit(Kind.RESERVATION)
    play.do(Release(workload=1, by="ada"))
    play.do(LoadPolicy(policy=msgspec.structs.replace(POLICY, failures=7)))
    written = list(play.waiting)
    play.commit()

    records = play.store.events_since(written[0].number - 1)

    assert records == written
    assert isinstance(records[0].event, Submitted)
    assert {record.digest for record in records[:-1]} == {digest}
    assert isinstance(records[-1].event, PolicyLoaded)


def test_a_life_is_told_without_the_others(play):
    """`events_of` gives one workload's events in order, and pages by the number of the last one seen."""
    play.submit(Kind.RESERVATION)
    play.submit(Kind.RESERVATION, owner="bob")
    play.do(Release(workload=1, by="ada"))
    play.do(VERBS["probe"](play, 0, 1))
    play.commit()

    life = play.store.events_of(1)

    assert [type(record.event).__name__ for record in life] == ["Submitted", "Granted", "Released", "Ended"]
    first = play.store.events_of(1, limit=2)
    assert first + play.store.events_of(1, after=first[-1].number) == life
    assert play.store.events_of(99) == []


def test_what_events_were_about_is_told_without_reading_them(play):
    """Each workload that they name, whose wait they explain too; long bodies stay on the disk."""
    play.submit(Kind.RESERVATION)
    known = play.world.revision
    for _ in range(4):
        play.submit(Kind.RESERVATION)
    play.do(Release(workload=1, by="ada"))
    play.commit()
    records = play.store.events_since(known)
    play.store._db.execute("UPDATE events SET body = 'unreadable' WHERE kind != 'explained'")

    assert play.store.touched_since(known, len(records)) == Touched(
        set(touched_workloads(records)), play.world.revision
    )
    assert play.store.touched_since(play.world.revision, 1) == Touched(set(), play.world.revision)


def test_what_names_do_not_tell_is_not_told(play):
    """More than was allowed for, an event that is not there, other devices, and other rules unless they are back."""
    play.submit(Kind.RESERVATION)
    known = play.world.revision
    play.do(LoadPolicy(policy=msgspec.structs.replace(POLICY, failures=7)))
    changed = play.world.revision
    play.do(LoadPolicy(policy=POLICY))
    play.submit(Kind.RESERVATION)
    play.commit()
    count = play.world.revision - known

    assert play.store.touched_since(known, count) == Touched({2}, play.world.revision)
    assert play.store.touched_since(known, count - 1) is None
    assert play.store.touched_since(changed, count) is None
    assert play.store.touched_since(1, 1000) is None
    assert play.store.touched_since(0, 1000) is None
    assert play.store.touched_since(play.world.revision + 1, 1000) is None


def test_the_log_says_kind_workload_and_policy_in_columns(play):
    """People and reports query the file without knowing our types."""
    play.submit(Kind.RESERVATION)
    play.commit()

    rows = raw(play.store, "SELECT number, kind, workload, policy FROM events ORDER BY number")

    digest = POLICY.digest()
    assert rows == [
        *((number, "device-appeared", None, digest) for number in (1, 2, 3)),
        (4, "submitted", 1, digest),
        (5, "granted", 1, digest),
    ]


def test_every_event_of_the_core_can_be_written_and_read():
    """A new kind of event needs no change here: the union of the core is what the log reads."""
    tags = [kind.__struct_config__.tag for kind in AnyEvent.__args__]

    assert len(set(tags)) == len(tags) == 22
    assert msgspec.json.Decoder(AnyEvent).decode(b'{"type":"ended","at":1.5,"workload":3,"end":"lost"}') == Ended(
        at=1.5, workload=3, end=EndReason.LOST
    )


# -- snapshots --


def test_replay_begins_at_the_newest_snapshot(play):
    """Events before it are not read again; the few snapshots that are kept are the newest."""
    for turn in range(SNAPSHOTS_KEPT + 2):
        play.submit(name=str(turn))
        play.commit()
        play.store.snapshot(play.world)
    play.submit()
    play.commit()
    play.store._db.execute("DELETE FROM events WHERE number <= 5")

    assert raw(play.store, "SELECT count(*) FROM snapshots") == [(SNAPSHOTS_KEPT,)]
    assert differences(play.store.replay(POLICY), play.world) == []


def test_a_snapshot_that_cannot_be_read_is_passed_over(play):
    """A snapshot only saves time: an older one and the log tell the same."""
    play.submit()
    play.commit()
    play.store.snapshot(play.world)
    play.submit()
    play.commit()
    play.store.snapshot(play.world)
    play.store._db.execute("UPDATE snapshots SET body = x'00ff'")

    assert differences(play.store.replay(POLICY), play.world) == []


def test_a_hole_in_the_log_is_said_and_not_stepped_over(play):
    """A world folded from a log with a hole would be a lie."""
    play.submit()
    play.commit()
    play.store._db.execute("DELETE FROM events WHERE number = 2")

    with pytest.raises(StoreUnavailable, match="event 2 is missing"):
        play.store.replay(POLICY)


def test_a_snapshot_of_another_revision_is_refused(play):
    """What was not committed must not come back by way of a snapshot."""
    play.submit()

    with pytest.raises(StoreUnavailable):
        play.store.snapshot(play.world)


# -- what is refused --


def test_events_that_do_not_lead_to_the_world_are_refused(play):
    """A commit whose numbers and world disagree is a fault of the caller, met before anything is written."""
    play.submit()
    before = play.store.load(POLICY)

    with pytest.raises(ValueError, match="do not lead to a world"):
        play.store.commit(play.waiting[:-1], play.world)
    with pytest.raises(ValueError, match="do not lead to a world"):
        play.store.commit([play.waiting[0], *play.waiting], play.world)

    assert differences(play.store.load(POLICY), before) == []


def test_two_writers_are_noticed(play):
    """Where locks fail, two brokers may have one store; the second finds the first's events and writes nothing."""
    other = open_store(play.store.path.parent)
    second = Play(other, other.load(POLICY))
    second.submit()
    second.commit()
    play.submit()

    with pytest.raises(StoreUnavailable, match="somebody else wrote") as caught:
        play.commit()

    assert "only one broker" in caught.value.hint
    assert differences(other.load(POLICY), second.world) == []
    other.close()


def test_what_cannot_be_written_down_is_an_answer(play):
    """A number beyond 64 bits or half a character ends one command, not the broker."""
    it = Workload(
        id=1, kind=Kind.JOB, owner="ada", team="", queue="training", name="\ud800", ask=Ask(),
        submitted_at=1.0, waiting=WaitingReason.DEVICES, spec=JobSpec(argv=("x",), folder="/"),
    )  # fmt: skip
    before = play.store.load(POLICY)
    play.record([Submitted(at=1.0, it=it)])

    with pytest.raises(InvalidAsk, match="cannot be recorded"):
        play.commit()

    assert differences(play.store.load(POLICY), before) == []


def test_nothing_to_write_is_nothing_written(play):
    """A command without events costs no transaction."""
    play.store.close()

    play.store.commit([], play.world)


# -- history --


def test_workloads_are_paged_newest_first_and_filtered(play):
    """Owner, state and kind narrow the list; `after` is the last id of the page before."""
    for owner in ("ada", "bob", "ada", "bob", "ada"):
        play.submit(owner=owner, paused=True)
    play.submit(Kind.RESERVATION, owner="ada")
    play.do(Cancel(workload=3, by="ada"))
    play.commit()
    read = play.store.workloads

    assert [it.id for it in read(limit=4)] == [6, 5, 4, 3]
    assert [it.id for it in read(after=3)] == [2, 1]
    assert [it.id for it in read(owner="ada")] == [6, 5, 3, 1]
    assert [it.id for it in read(owner="ada", state=State.ENDED)] == [3]
    assert [it.id for it in read(kind=Kind.RESERVATION)] == [6]
    assert [it.id for it in read(owner="ada", kind=Kind.JOB, after=5, limit=1)] == [3]
    assert read(owner="nobody") == []
    assert read() == sorted(play.world.workloads.values(), key=lambda it: -it.id)


def test_the_columns_follow_the_workload(play):
    """Kind, state, owner, queue, name, instants and end stand in columns and agree with the noun."""
    play.submit(name="digits", paused=True)
    play.do(Cancel(workload=1, by="ada"))
    play.commit()

    (row,) = raw(
        play.store,
        "SELECT kind, state, owner, team, queue, name, submitted_at, ended_at, end FROM workloads",
    )

    assert row == ("job", "ended", "ada", "everyone", "training", "digits", BEGIN, BEGIN, "cancelled")


def test_a_workload_that_never_was_is_none(store):
    """A number that was never given leads nowhere."""
    assert store.workload(1) is None


def test_an_old_policy_can_be_explained(store):
    """The digest on an event leads to the rules of its time."""
    old, new = Policy(failures=1), Policy(failures=2)
    for policy in (old, new, old):
        store.remember_policy(policy)

    assert store.policy(old.digest()) == old
    assert store.policy(new.digest()) == new
    assert store.policy("unknown") is None


def test_each_commit_is_on_the_disk_before_it_is_answered(store):
    """WAL with FULL: a power cut takes nothing that somebody was told."""
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_every_state_is_loaded(play):
    """A state that the query of `load` does not name would vanish at a restart."""
    for number, state in enumerate(State, start=1):
        play.store._db.execute(
            "INSERT INTO workloads VALUES (?, 'job', ?, 'a', 't', 'q', 'n', 0, NULL, NULL, ?, ?)",
            (number, state.value, number, json.dumps(_minimal(number, state))),
        )

    assert set(play.store.load(POLICY).workloads) == {1, 2, 3, 4}


def _minimal(number, state):
    words = {"kind": "job", "owner": "a", "team": "t", "queue": "q", "name": "n", "ask": {}, "submitted_at": 0.0}
    return {"id": number, "state": state.value, **words}


def test_a_record_that_cannot_be_read_is_said_plainly(play):
    """A damaged row is a sentence with the file's name, not a decoder's error."""
    play.submit(paused=True)
    play.commit()
    play.store._db.execute("UPDATE workloads SET body = '{'")

    with pytest.raises(StoreUnavailable, match=r"broker\.db is damaged"):
        play.store.load(POLICY)


def test_amendments_and_time_alone_are_kept_too(play):
    """A tick's events pass through the same commit."""
    play.submit(ask=Ask(devices=3))
    play.submit(ask=Ask(devices=3))
    play.now += 4 * 86_400 + 1
    play.do(Tick())
    play.commit()

    assert any(isinstance(record.event, Amended) for record in play.store.events_of(2))
    assert play.store.load(POLICY).workloads[2].lifted


def test_a_record_is_three_things():
    """Number, digest and event, in this order."""
    event = Ended(at=1.0, workload=1, end=EndReason.LOST)

    assert Record(3, "abc", event) == Record(number=3, digest="abc", event=event)
