"""GPUs by the names that people read, on the command line and in Python."""

import logging
import os
import threading
from collections.abc import Sequence

import msgspec
import pytest

from jupyter_gpu.client import reserving
from jupyter_gpu.client.hearing import heard
from jupyter_gpu.client.naming import uuids_of
from jupyter_gpu.errors import BrokerUnavailable, LeaseLost, NotFound
from jupyter_gpu.model import DeviceView, Renewal
from tests.cli.fake import NOW, FakeClient, device, holder, workload

WHOLE = device(2)
PARTS = tuple(device(1000 + slot, uuid=f"MIG-{slot}", number=f"0:{slot}", card="GPU-0") for slot in (0, 1))


@pytest.mark.parametrize(
    ("names", "uuids"),
    [
        (["2"], [WHOLE.uuid]),
        (["0:1", "2"], ["MIG-1", WHOLE.uuid]),
        (["MIG-0", "0:0", " 0:0 "], ["MIG-0"]),
        ([], []),
    ],
)
def test_a_name_is_a_number_or_a_uuid(names: Sequence[str], uuids: Sequence[str]) -> None:
    """What people read after "GPU" is what they may write; an ask has UUIDs, each once (unslothai/unsloth#6352)."""
    assert uuids_of(names, (WHOLE, *PARTS)) == tuple(uuids)


@pytest.mark.parametrize("name", ["7", "0:9", "1000", "GPU-", "", "MIG"])
def test_a_name_that_means_nothing_is_refused(name: str) -> None:
    """The number that NVML has for a MIG device is none that people read, and half a UUID is none."""
    with pytest.raises(NotFound, match="there is no GPU"):
        uuids_of([name], (WHOLE, *PARTS))


def test_a_split_gpu_is_none_itself() -> None:
    """Its number is known to who reads nvidia-smi, so the refusal says what it is and what to name."""
    with pytest.raises(NotFound, match="split into MIG devices") as refused:
        uuids_of(["0"], (WHOLE, *PARTS))
    assert refused.value.hint == "Name one of GPU 0:0, GPU 0:1."


def test_a_number_in_two_pools_must_be_said_by_uuid() -> None:
    """Nothing is chosen for who did not say."""
    two: tuple[DeviceView, ...] = (WHOLE, device(2, uuid="GPU-other", pool="rented"))

    with pytest.raises(NotFound, match="several"):
        uuids_of(["2"], two)
    assert uuids_of(["GPU-other"], two) == ("GPU-other",)


@pytest.mark.parametrize("on", ["2", ["2"], "2,2"])
def test_python_names_them_alike(on: str | list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`jupyter_gpu.reserve(on="2")` and `submit(on=["2"])` ask with UUIDs."""
    client = FakeClient()
    client.answers["wait 15"] = workload(15, devices=(WHOLE.uuid,))
    with reserving.reserve(on=on, client=client):  # type: ignore[arg-type]
        assert os.environ["CUDA_VISIBLE_DEVICES"] == WHOLE.uuid
    reserving.submit(["true"], on=on, client=client)  # type: ignore[arg-type]

    assert [call[1].ask.on for call in client.calls if call[0] == "submit"] == [(WHOLE.uuid,)] * 2


@pytest.mark.parametrize(
    ("on", "devices", "count"), [(["0", "2"], None, 2), ("0,2", 1, 1), ((), None, 1), ((), 0, 0), (["2", "2"], None, 1)]
)
def test_python_wants_all_that_are_named(on: str | list[str], devices: int | None, count: int) -> None:
    """As `--on` does: one of several is for who says the number."""
    client = FakeClient()

    reserving.submit(["true"], devices=devices, on=on, client=client)  # type: ignore[arg-type]

    assert [call[1].ask.devices for call in client.calls if call[0] == "submit"] == [count]


class _Teller(FakeClient):
    """A broker that tells a holder these things in turn, and then that the lease is lost."""

    def __init__(self, *words: str | Exception) -> None:
        super().__init__()
        self.words = list(words)
        self.is_over = threading.Event()

    def renew(self, workload_id: int, holder_number: int) -> Renewal:
        self.calls.append(("renew", workload_id, holder_number))
        if not self.words:
            self.is_over.set()
            raise LeaseLost("it is over")
        word = self.words.pop(0)
        if isinstance(word, Exception):
            raise word
        return Renewal(renew_by=NOW, told=word)


def test_what_a_holder_is_told_is_heard_once(caplog: pytest.LogCaptureFixture) -> None:
    """Who uses more than their part reads it in their log: at its beginning, and again only when it began again."""
    above = "You use 24GiB of the 20GiB that you reserved."
    client = _Teller("", above, "You use 25GiB of the 20GiB.", BrokerUnavailable("away"), "", above)
    it = workload(5, holder=msgspec.structs.replace(holder(), number=3))

    with caplog.at_level(logging.WARNING, "jupyter_gpu"), heard(client, it, every_seconds=0.001):  # type: ignore[arg-type]
        assert client.is_over.wait(30)

    assert caplog.messages == [f"Reservation 5: {above}"] * 2
    assert set(client.calls) == {("renew", 5, 3)}
