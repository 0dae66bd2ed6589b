"""`doctor --trial`: each free GPU is reserved, computes, is judged beside its peers, and is given back."""

import os
import platform
import threading
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu import spawn
from jupyter_gpu.cli import doctor, doctor_containers, trial
from jupyter_gpu.cli.judgement import Trial, judge, judge_together
from jupyter_gpu.errors import BrokerUnavailable, NotAllowed
from jupyter_gpu.model import CardView, Change, Condition, EndReason, Kind, State, WaitingReason
from jupyter_gpu.spawn import Finished, run
from tests.cli.conftest import Terminal
from tests.cli.fake import GIB, NOW, FakeClient, device, lab, workload
from tests.cli.test_trial_program import cuda  # noqa: F401 - the fixture
from tests.cli.trial.library import needs_compiler

RIGHT = {
    "engine": "PyTorch 2.9", "unit": "TFLOP/s", "speed": 19.5, "seconds": 5.0, "checked": 9, "wrong": 0, "skipped": {},
}  # fmt: skip


class Broker(FakeClient):
    """A broker that grants what is free, at once, and tells readings while it is held."""

    def __init__(self, status=None) -> None:
        super().__init__(status)
        self.held: dict[int, str] = {}
        self.is_granted = True
        self.after: dict[str, object] = {}
        self.is_told = threading.Event()
        self.readings: list[dict] = [{"utilisation_percent": 99, "temperature_celsius": 60 + at} for at in range(4)]

    def submit(self, body, _key=None, **_):
        self._called("submit", body)
        number = 100 + len(self.held)
        (self.held[number],) = body.ask.on
        return self._view(number)

    def _view(self, number):
        if not self.is_granted:
            why = {"waiting": WaitingReason.QUOTA, "reason": "You hold 2 of your 2 GPUs."}
            return workload(number, kind=Kind.RESERVATION, **why)
        return workload(number, kind=Kind.RESERVATION, state=State.ACTIVE, devices=(self.held[number],))

    def wait(self, workload_id, until="ended", _seconds=None, **_):
        self._called("wait", workload_id, until)
        if until == "active":
            return self._view(workload_id)
        if self.after.get("never ends"):
            return self._view(workload_id)
        return workload(workload_id, state=State.ENDED, end=EndReason.RELEASED)

    def release(self, workload_id, _number=None):
        self._called("release", workload_id)
        uuid = self.held[workload_id]
        devices = tuple(
            msgspec.structs.replace(it, condition=self.after.get("condition")) if it.uuid == uuid else it
            for it in self.lab.devices
        )
        self.lab = msgspec.structs.replace(self.lab, devices=devices)
        return self._view(workload_id)

    def cancel(self, workload_id):
        self._called("cancel", workload_id)
        return self._view(workload_id)

    def stream(self, _held=None):
        uuid = list(self.held.values())[-1]
        self.is_told.clear()
        yield Change(revision=self.lab.revision, status=self.lab)
        for reading in self.readings:
            yield Change(samples=(device(0, uuid=uuid, memory_used_bytes=3 * GIB, **reading),))
        self.is_told.set()


def free_lab(count=2, **more):
    """Give a lab of real GPUs that are free."""
    gpus = tuple(device(at, memory_used_bytes=0, utilisation_percent=0) for at in range(count))
    return msgspec.structs.replace(lab(), **{"devices": gpus, "workloads": (), "quotas": ()} | more)


@pytest.fixture
def gpu(monkeypatch):
    """Give a terminal before such a lab, where only the driver's library computes."""
    monkeypatch.setattr(trial, "_LIBRARIES", ())
    return Terminal(client=Broker(free_lab()))


@pytest.fixture(autouse=True)
def no_engines(monkeypatch):
    """Keep the machine's own container engines out of it: what they start is tried in `test_doctor_containers`."""
    monkeypatch.setattr(doctor_containers, "engine_checks", lambda *_, **__: iter(()))


@pytest.fixture
def answers(gpu, monkeypatch):
    """Let computations answer so, without any process, once all readings were told; gives what was run."""
    ran: list[dict] = []
    answer = dict(RIGHT)

    def computed(argv, timeout_seconds, *, environ):
        ran.append({"argv": argv, "environ": environ, "timeout": timeout_seconds})
        assert gpu.client.is_told.wait(30)
        return Finished(0, f"a warning\n{msgspec.json.encode(answer).decode()}\n", "")

    monkeypatch.setattr(trial.spawn, "run", computed)
    computed.ran, computed.answer = ran, answer
    return computed


def trials(gpu, *words) -> tuple[Trial, ...]:
    """Run it and give what came of each GPU."""
    return msgspec.json.decode(gpu("doctor", "--trial", "--json", *words).out, type=doctor.Checkup).trials


@needs_compiler
def test_each_free_gpu_computes_on_its_own(gpu, cuda):  # noqa: F811
    """The real program on a stand-in of the driver: pinned to each in turn, checked, fast, and given back."""
    gpu.environ = {**os.environ, **cuda, "CUDA_VISIBLE_DEVICES": "0"}
    # Of two kinds, so that what else this machine does makes neither slower than its peer.
    gpu.client.lab = free_lab(devices=(device(0), device(1, device_class="t4")))

    found = trials(gpu, "--seconds", "1")

    assert [it.state for it in found] == ["ok", "ok"]
    assert [it.device for it in found] == [it.uuid for it in gpu.client.lab.devices]
    assert all(it.speed > 0 and it.unit == "GB/s" for it in found)
    asked = [call[1] for call in gpu.client.calls if call[0] == "submit"]
    assert [it.ask.on for it in asked] == [(it.uuid,) for it in gpu.client.lab.devices]
    assert {it.holder.kind for it in asked} == {"shell"}  # a command would be ended with its lease
    assert [call[1] for call in gpu.client.calls if call[0] == "release"] == [100, 101]


def test_what_is_told(gpu, answers):
    """Library, speed, memory, load and heat, one line each; the deadline is bounded, the pin is by UUID."""
    result = gpu("doctor", "--trial", "--seconds", "7")

    said = " ".join(result.out.split())
    assert "trial GPU 0 PyTorch 2.9: 19.5 TFLOP/s for 5s, memory 3GiB, load 99%, 63°C at most" in said
    assert "GPU 1 is tried for 7s." in result.err
    assert [it["environ"]["CUDA_VISIBLE_DEVICES"] for it in answers.ran] == [it.uuid for it in gpu.client.lab.devices]
    assert answers.ran[0]["timeout"] == 7 + trial.SPARE_SECONDS
    assert answers.ran[0]["argv"][-3:] == ["cuda", "7", str(os.getpid())]


def test_libraries_are_found_and_not_imported(gpu, answers, monkeypatch):
    """What is installed here is tried in this order, the driver alone at last."""
    there = {"jax", "torch"}
    monkeypatch.setattr(trial, "_LIBRARIES", ("torch", "jax", "cupy"))
    monkeypatch.setattr(trial.importlib.util, "find_spec", lambda name: object() if name in there else None)

    trials(gpu)

    assert answers.ran[0]["argv"][-3] == "torch,jax,cuda"


def test_a_mig_device_is_as_hot_as_its_card(gpu, answers):
    """It has no temperature of its own; a load that NVML does not offer reads n/a."""
    card = CardView(uuid="GPU-c", index=0, name="A100", temperature_celsius=88)
    part = device(1000, uuid="MIG-1", number="0:1", card="GPU-c", temperature_celsius=None, utilisation_percent=None)
    gpu.client.lab = free_lab(devices=(part,), cards=(card,))
    gpu.client.readings = []

    (found,) = trials(gpu)

    assert (found.number, found.temperature_celsius, found.utilisation_percent) == ("0:1", 88, None)
    assert "load n/a, 88°C at most" in found.text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"workloads": (12,)}, "it is in use"),
        ({"cordoned": True}, "it is cordoned"),
        ({"condition": Condition.HOT, "condition_detail": "96°C"}, "it is not well (too hot: 96°C)"),
    ],
)
def test_others_are_named_and_left_alone(gpu, answers, more, said):
    """Nobody is disturbed, and what is not well is leased to nobody, not for a trial either."""
    gpu.client.lab = free_lab(devices=(device(0, **more), device(1)))

    busy, free = trials(gpu)

    assert (busy.state, busy.text) == ("ok", f"not tried: {said}")
    assert free.speed == 19.5
    assert len(answers.ran) == 1


def test_where_nothing_can_compute_no_card_is_blamed(gpu, answers):
    """One warning with what is missing, and the GPUs after the first are not reserved for the same."""
    gpu.client.lab = free_lab(devices=(device(0, cordoned=True), *(device(at) for at in (1, 2, 3))))
    answers.answer.clear()
    why = {"torch": "it is built without CUDA, or finds no GPU", "cuda": "libcuda.so.1 cannot be loaded"}
    answers.answer.update(error="nothing here can compute on a GPU", has_no_engine=True, skipped=why)

    result = gpu("doctor", "--trial", "--json")
    left_alone, told = msgspec.json.decode(result.out, type=doctor.Checkup).trials

    assert left_alone.text == "not tried: it is cordoned"
    assert (told.state, told.device, told.number) == ("warn", None, "")
    assert "(PyTorch: it is built without CUDA, or finds no GPU; libcuda.so.1 cannot be loaded)" in told.text
    assert "PyTorch, JAX or CuPy" in told.remedy
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in told.remedy
    assert len(answers.ran) == 1
    assert ("release", 100) in gpu.client.calls
    assert {call[1].name for call in gpu.client.calls if call[0] == "submit"} == {"doctor --trial"}  # in lists of work


def test_a_gpu_that_is_not_granted_is_left_alone(gpu, answers):
    """Somebody was quicker, or quota is held: it is named with the reason, and the place in line is given up."""
    gpu.client.is_granted = False

    first, _ = trials(gpu)

    assert first.text == "not tried: it was not granted. You hold 2 of your 2 GPUs"
    assert answers.ran == []
    assert ("cancel", 100) in gpu.client.calls


def test_a_refusal_is_told_and_the_next_one_is_tried(gpu, answers):
    """What may not be reserved is not tried."""
    gpu.client.errors["submit"] = NotAllowed("you may not reserve")

    assert [it.text for it in trials(gpu)] == ["not tried: you may not reserve"] * 2


def test_ctrl_c_gives_the_gpu_back(gpu, monkeypatch):
    """It ends the computation and the reservation, with 130."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(trial.spawn, "run", interrupted)

    result = gpu("doctor", "--trial")

    assert result.code == 130
    assert "given back" in result.err
    assert [call for call in gpu.client.calls if call[0] == "release"] == [("release", 100)]


def test_an_interrupted_command_is_ended(monkeypatch):
    """Ctrl-C at a terminal reaches us alone, since the command has a session of its own; so it is ended here."""
    began = []

    def interrupted(pipes, *_):
        began.append(int(pipes[1].readline()))
        raise KeyboardInterrupt

    monkeypatch.setattr(spawn, "hear_out", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(["sh", "-c", "echo $$; exec sleep 600"], 60)
    assert not Path(f"/proc/{began[0]}").exists()


def test_simulated_gpus_have_nothing_to_try(answers):
    """They compute nothing, so nothing is pretended."""
    gpus = tuple(device(at, simulated=True) for at in range(2))
    gpu = Terminal(client=Broker(free_lab(devices=gpus, simulated=True)))

    (told,) = trials(gpu)

    assert "nothing to try" in told.text
    assert answers.ran == []


def test_gpus_elsewhere_are_tried_there(gpu, answers, monkeypatch):
    """A computation here would say nothing about them."""
    elsewhere = f"not-{platform.node()}"
    view = msgspec.structs.replace(gpu.client.broker(), node=elsewhere)
    monkeypatch.setattr(gpu.client, "broker", lambda: view)

    (told,) = trials(gpu)

    assert told.text == f"the GPUs are on {elsewhere}"
    assert answers.ran == []


def test_without_a_broker_nothing_is_tried(gpu):
    """It starts none; a trial without one is a failure."""
    for call in ("broker", "status"):
        gpu.client.errors[call] = BrokerUnavailable("No broker runs.")

    (told,) = trials(gpu)

    assert told.state == "fail"
    assert "broker start" in told.remedy


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (Finished(None, "", ""), "did not end within 125s, and was ended"),
        (Finished(-11, "", ""), "it died of signal 11"),
        (Finished(1, "", "a\nImportError: no\n"), "ImportError: no"),
        (Finished(1, "no json", ""), "exit code 1"),
        (Finished(1, '["odd"]', ""), "exit code 1"),
    ],
)
def test_a_computation_that_says_nothing(gpu, monkeypatch, done, said):
    """However it ends, the GPU has failed its trial, and the GPU is given back."""
    monkeypatch.setattr(trial.spawn, "run", lambda *_, **__: done)

    result = gpu("doctor", "--trial")

    assert result.code == 1
    assert said in " ".join(result.out.split())
    assert ("release", 101) in gpu.client.calls


# -- judging

HOT = device(0, temperature_celsius=93, utilisation_percent=99)
COOL = device(0, temperature_celsius=60, utilisation_percent=99)
SLOWED = device(0, temperature_celsius=80, utilisation_percent=99, slowed_by=("sw-thermal", "hw-thermal"))
IDLE = device(0, temperature_celsius=60, utilisation_percent=45)


@pytest.mark.parametrize(
    ("answer", "seen", "afterwards", "state", "said"),
    [
        ({}, [COOL] * 5, COOL, "ok", "PyTorch 2.9: 19.5 TFLOP/s for 5s"),
        ({"wrong": 3}, [COOL] * 5, COOL, "fail", "it computes wrongly: 3 of 9 values"),
        ({"error": "CUDA_ERROR"}, [COOL] * 5, COOL, "fail", "it could not compute (PyTorch 2.9): CUDA_ERROR"),
        ({}, [COOL, HOT, COOL], COOL, "warn", "hot: 93°C"),
        ({}, [COOL, SLOWED, COOL], COOL, "warn", "slowed down by heat; PyTorch"),
        ({}, [IDLE] * 5, COOL, "warn", "a load of 45% at most"),
        ({}, [IDLE] * 2, COOL, "ok", "load 45%"),  # too few readings to say so
        ({"unit": "GB/s"}, [IDLE] * 5, COOL, "ok", "load 45%"),  # copies are no load
        ({}, [], COOL, "ok", "memory n/a, load n/a, n/a at most"),
        ({}, [COOL] * 5, None, "fail", "it was not clear afterwards"),
        (
            {},
            [COOL] * 5,
            msgspec.structs.replace(COOL, condition=Condition.NOT_CLEAR),
            "fail",
            "afterwards it was not well: not clear",
        ),
        (
            {},
            [COOL, msgspec.structs.replace(COOL, condition=Condition.HOT, condition_detail="slowed by heat")],
            msgspec.structs.replace(COOL, condition=Condition.HOT),
            "warn",
            "meanwhile it was not well: too hot: slowed by heat",
        ),
    ],
)
def test_how_a_gpu_is_judged(answer, seen, afterwards, state, said):
    """By its results, its readings meanwhile, and how it was left; what is not ok says what helps."""
    found = judge(device(0), RIGHT | answer, seen, afterwards)

    assert (found.state, said in found.text) == (state, True)
    assert bool(found.remedy) is (state != "ok")


def test_a_mig_device_has_no_load_to_judge():
    """NVML offers none of it; a number that it has anyway would be of something else."""
    part = device(1000, number="0:0", card="GPU-c")

    assert judge(part, RIGHT, [IDLE] * 5, part).state == "ok"


def trial_of(number, speed, device_class="a100-80gb", **more) -> Trial:
    """Make the trial of one GPU."""
    words = {"state": "ok", "text": "t", "engine": "PyTorch", "unit": "TFLOP/s"}
    return Trial(**words | {"number": number, "speed": speed, "device_class": device_class} | more)


def test_a_gpu_slower_than_its_peers_is_found_out():
    """Beside others of its kind, tried alike: fans that are clogged show so, and a card in a slow slot."""
    fast = [trial_of("0", 20.0), trial_of("1", 19.0)]
    slow, other = trial_of("2", 12.0), trial_of("3", 2.0, device_class="t4")
    unlike, skipped = trial_of("4", 2.0, engine="CUDA driver, copies"), trial_of("5", None)

    found = judge_together([*fast, slow, other, unlike, skipped])

    assert [it.state for it in found] == ["ok", "ok", "warn", "ok", "ok", "ok"]
    assert found[2].text.startswith("slow: 12 TFLOP/s, where 2 others of its kind did 19.5; ")
    assert "PERFORMANCE -i 2" in found[2].remedy


def test_slow_does_not_hide_a_failure():
    """What failed stays failed."""
    found = judge_together([trial_of("0", 20.0), trial_of("1", 2.0, state="fail", remedy="Cordon it.")])

    assert found[1].state == "fail"
    assert found[1].remedy.startswith("Cordon it. ")


def test_a_lab_is_as_of_now():
    """The fake lab has a time, so that ends are told alike."""
    assert free_lab().at == NOW
