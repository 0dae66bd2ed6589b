"""One broker at a time, its end when idle, its signals, its config: what happens when that is strained."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from jupyter_gpu.broker.store.store import Store
from jupyter_gpu.model import EndReason, State
from jupyter_gpu.paths import machine_id
from tests.faults.house import QUICK, House, job, reservation, until

APPEND = ("sh", "-c", "echo $JUPYTER_GPU_JOB.$JUPYTER_GPU_ATTEMPT >> out")
UNTIL_GO = ("sh", "-c", "echo $JUPYTER_GPU_JOB.$JUPYTER_GPU_ATTEMPT >> out; while [ ! -e go ]; do sleep 0.02; done")


def beside(house: House, make_house: Callable[..., House], **changes: str) -> House:
    """A second broker in (some of) the places of the first."""
    other = make_house(**{name: house.traits[name] for name in ("state_dir", "runtime_dir")} | changes)
    other.state = house.state
    return other


def test_of_two_brokers_that_start_at_once_one_serves_and_the_other_says_who(make_house: Callable[..., House]) -> None:
    """Ten times: one `ready`, one refusal that names the winner, and the socket is the winner's."""
    for _ in range(10):
        first = make_house()
        second = beside(first, make_house)
        said: dict[House, str] = {}
        with ThreadPoolExecutor() as threads:
            said[first], said[second] = threads.map(House.start, (first, second))
        winner, loser = (first, second) if said[first] == "ready" else (second, first)
        assert said[winner] == "ready"
        assert said[loser].startswith("conflict\t")
        assert f"process {winner.pid}" in said[loser]
        assert loser.wait_dead()
        assert winner.world()["check"] == []
        winner.kill(signal.SIGTERM)


def test_a_second_store_at_the_same_socket_is_refused_and_takes_nothing(make_house: Callable[..., House]) -> None:
    """Whoever came second would take the socket away, and at its end remove it: it says who is there instead."""
    first = make_house()
    assert first.start() == "ready"
    second = make_house(runtime_dir=first.traits["runtime_dir"])
    socket = first.root / "run" / "broker.sock"
    before = socket.stat().st_ino
    said = second.start()
    assert said.startswith("conflict\t")
    assert str(first.pid) in said
    assert second.wait_dead()
    assert socket.stat().st_ino == before


def test_the_lock_of_the_machine_is_one_for_all_stores(make_house: Callable[..., House]) -> None:
    """Real devices are served once on a machine, whatever the folders; a link at the lock's path is no lock.

    Who holds it is the kernel's word, not what stands in the file.
    """
    house = make_house(devices=0)
    lock = house.root / "machine.lock"
    house.traits["lock_file"] = str(lock)
    with lock.open("w") as held:
        held.write("grace (process 4242)\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        said = house.start()
    assert said.startswith("conflict\t")
    assert f"(process {os.getpid()})" in said
    assert "grace" not in said
    lock.unlink()
    lock.symlink_to(house.root / "elsewhere")
    said = house.start()
    assert said.startswith("conflict\t")
    assert "cannot be opened" in said
    assert not (house.root / "elsewhere").exists()


def test_an_idle_broker_leaves_and_one_with_work_stays(make_house: Callable[..., House]) -> None:
    """The idle time counts from the last work or question; with work it does not count at all."""
    house = make_house(idle_seconds=1)
    house.start()
    (id_,) = house.submit(job(house, UNTIL_GO))
    house.wait("started", id_)
    assert not house.wait_dead(2.5)
    (house.work / "go").touch()
    assert house.wait("ended", id_)[0].end is EndReason.SUCCEEDED
    assert house.wait_dead(5)
    assert "idle for 1 s" in house.log()
    assert not (house.root / "run" / "broker.sock").exists()
    assert [it.end for it in house.stored().workloads.values()] == [EndReason.SUCCEEDED]


def test_a_waiting_job_and_a_reservation_keep_an_idle_broker_awake(make_house: Callable[..., House]) -> None:
    """A lease is work, and so is what waits for one."""
    house = make_house(idle_seconds=1)
    house.start()
    held, waits = house.submit(reservation(), reservation(owner="ada"))
    assert not house.wait_dead(2.5)
    assert [it.state for it in house.wait("queued", held, waits, seconds=0)] == [State.ACTIVE, State.QUEUED]
    house.release(held)
    house.wait("active", waits)
    house.release(waits)
    house.wait("ended", waits)
    assert house.wait_dead(5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_that_is_told_to_stop_leaves_its_jobs_to_the_next(house: House, number: int) -> None:
    """A stop is no end of the work: it runs on, and the next broker follows it to its end."""
    house.start()
    running, waits = house.submit(job(house, UNTIL_GO), job(house, APPEND))
    house.wait_line(f"{running}.1")
    house.kill(number)
    assert not (house.root / "run" / "broker.sock").exists()
    house.start()
    assert house.look(running).attempt == 1
    (house.work / "go").touch()
    ended = house.wait("ended", running, waits)
    assert [it.end for it in ended] == [EndReason.SUCCEEDED] * 2
    assert sorted(house.lines()) == [f"{running}.1", f"{waits}.1"]


# -- the config


def told(house: House, sentence: str) -> None:
    """Have the config read again, and wait for what the broker says of it."""
    before = house.log().count(sentence)
    os.kill(house.pid, signal.SIGHUP)
    until(lambda: house.log().count(sentence) > before, sentence)


def test_a_good_config_is_taken_and_what_left_the_file_is_in_force_no_more(house: House) -> None:
    """A reload gives the file as it stands, with nothing left over of what it said before."""
    house.start()
    before = house.world()["policy_digest"]
    house.configure(policy={**QUICK, "most_devices": 1})
    told(house, "the policy was reloaded")
    changed = house.world()
    assert changed["policy_digest"] == changed["digest"] != before
    house.config.write_text(house.config.read_text().replace("c.GpuBroker.policy", "unused"))
    told(house, "the policy was reloaded")
    assert house.world()["policy_digest"] not in (before, changed["policy_digest"])


def test_a_rule_for_gpus_that_are_not_there_is_taken_and_said(house: House) -> None:
    """A class that was mistyped shares nothing; it is no error, since GPUs come and go."""
    house.start()
    house.configure(policy={**QUICK, "sharing": [{"device_class": "h100-80gb"}]})
    told(house, "A rule of `sharing` names the class h100-80gb, and no GPU is of it")
    assert house.world()["policy_digest"] == house.world()["digest"]


BAD_CONFIGS = {
    "there is no such setting": "c.GpuBroker.policy = {'reservation_secnods': '2h'}",
    "reservation_seconds": "c.GpuBroker.policy = {'reservation_seconds': 'two days or so'}",
    "policy": "c.GpuBroker.policy = 5",
    "SyntaxError": "c.GpuBroker.policy = {",
    "ZeroDivisionError": "c.GpuBroker.idle_seconds = 1 // 0",
    "queues": "c.GpuBroker.policy = {'queues': [{'name': 'other', 'priority': 1}]}",
}


@pytest.mark.parametrize(("named", "line"), BAD_CONFIGS.items())
def test_a_bad_config_is_named_and_the_queue_goes_on_by_the_old_rules(house: House, named: str, line: str) -> None:
    """Not even a wrong type ends the broker: the policy in force stays, and so does the work."""
    house.start()
    before = house.world()
    running, waits = house.submit(job(house, UNTIL_GO), job(house, APPEND))
    house.wait("started", running)
    with house.config.open("a") as config:
        config.write(line + "\n")
    told(house, "the policy was not reloaded")
    assert named in house.log().partition("the policy was not reloaded")[2]
    after = house.world()
    assert after["digest"] == after["policy_digest"] == before["digest"]
    (house.work / "go").touch()
    assert [it.end for it in house.wait("ended", running, waits)] == [EndReason.SUCCEEDED] * 2
    assert house.starts == 1
    house.configure()
    told(house, "the policy was reloaded")


@pytest.mark.parametrize(("named", "line"), list(BAD_CONFIGS.items())[:-1])
def test_no_broker_starts_on_a_config_that_cannot_be_meant(house: House, named: str, line: str) -> None:
    """Better none than one with half the rules; the sentence says which line."""
    house.config.write_text(line + "\n")
    house.configure = lambda **_: None  # type: ignore[method-assign]
    said = house.start()
    assert house.wait_dead()
    assert said.startswith("invalid-ask\t") or named in house.log()
    assert named in said + house.log()
    assert not house.state.exists()


def test_a_config_file_that_is_not_there_is_said(house: House) -> None:
    """A name that was mistyped must not mean the defaults."""
    house.config = house.root / "confg.py"
    house.configure = lambda **_: None  # type: ignore[method-assign]
    house.start()
    assert house.wait_dead()
    assert "there is no config file" in house.log()


# -- stores


def test_a_store_of_a_newer_version_is_left_alone(house: House) -> None:
    """It says so, and not a byte changes."""
    house.start()
    house.kill(signal.SIGTERM)
    store = Store.open(house.state, machine_id=machine_id(), now=0.0)
    newest = "name = (SELECT max(name) FROM _sqlite_migrations)"
    store._db.execute(f"UPDATE _sqlite_migrations SET name = '9999_from_the_future' WHERE {newest}")  # noqa: S608
    store.close()
    before = (house.state / "broker.db").read_bytes()
    said = house.start()
    assert said.startswith("conflict\t")
    assert "newer version" in said
    assert house.wait_dead()
    assert (house.state / "broker.db").read_bytes() == before


def test_a_store_that_was_lost_gives_no_job_the_outcome_of_another(house: House) -> None:
    """With a new store the numbers go on after those of the folders: an old outcome is nobody else's."""
    house.start()
    first, second = house.submit(job(house, APPEND), job(house, APPEND))
    house.wait("ended", first, second)
    house.kill()
    for path in house.state.glob("broker.db*"):
        path.unlink()
    house.start()
    (third,) = house.submit(job(house, ("sh", "-c", "exit 3")))
    assert third > second
    it = house.wait("ended", third)[0]
    assert it.end is EndReason.FAILED
    house.kill()
    house.stored()


def test_a_socket_path_that_is_too_long_is_replaced_by_a_short_one(house: House) -> None:
    """The kernel takes 107 bytes; the faces compute the same short path."""
    house.traits["runtime_dir"] = str(house.root / ("d" * 120))
    assert house.start() == "ready"
    assert house.world()["check"] == []
