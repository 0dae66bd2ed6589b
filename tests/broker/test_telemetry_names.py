"""Drivers that give nonsense for names and numbers: nothing hangs, breaks or is leased that nobody can name."""

import pytest

from jupyter_gpu.broker.telemetry.names import MOST_CARDS, MOST_PARTS, UnfitError, clean_name, fit_uuid
from tests.broker.fake_nvml import CALLS, Card, opened
from tests.broker.test_telemetry_mig import part, split

REAL = (
    "GPU-4a1b2c3d-0000-4000-8000-000000000001",
    "MIG-4a1b2c3d-0000-4000-8000-000000000001",
    "MIG-GPU-4a1b2c3d-0000-4000-8000-000000000001/1/0",
    "54b2e7e9-0000-4000-8000-000000000001",
)


@pytest.mark.parametrize("count", [100_000_000, 4_000_000_000])
def test_a_card_is_split_into_no_more_parts_than_any_can_be(monkeypatch, count):
    """The sampler does not walk through the hundred million that a broken driver speaks of."""
    asked = []

    def at(_, card, slot):
        asked.append(slot)
        assert slot < MOST_PARTS
        return in_slot(_, card, slot)

    in_slot = CALLS["nvmlDeviceGetMigDeviceHandleByIndex"]
    monkeypatch.setitem(CALLS, "nvmlDeviceGetMaxMigDeviceCount", lambda *_: count)
    monkeypatch.setitem(CALLS, "nvmlDeviceGetMigDeviceHandleByIndex", at)
    source, _, _ = opened(split(part(1)))
    assert [it.uuid for it in source.devices()] == ["MIG-1"]
    assert set(asked) == set(range(MOST_PARTS))


def test_there_are_no_more_cards_than_any_machine_has(monkeypatch):
    """Each that is counted and not there would be a sentence."""
    monkeypatch.setitem(CALLS, "nvmlDeviceGetCount", lambda _: 100_000_000)
    monkeypatch.setitem(CALLS, "nvmlDeviceGetHandleByIndex", lambda nvml, _: nvml.cards[0])
    source, _, _ = opened(Card(0))
    assert len(source.devices()) == 1
    assert len(source.notes) == MOST_CARDS - 1


def test_of_two_cards_with_one_uuid_one_is_shown_and_the_other_told():
    """The first keeps its handle: what is read of it is not the other's."""
    one, other = Card(0, celsius=40), Card(1, uuid=Card(0).uuid, celsius=90)
    source, _, _ = opened(one, other, Card(2))
    for _ in range(2):
        assert [(it.uuid, it.index) for it in source.devices()] == [(one.uuid, 0), (Card(2).uuid, 2)]
        (note,) = source.notes
        assert note == (
            f"GPU 1 cannot be used. It has the UUID of GPU 0, {one.uuid}: "
            "no program could be told which of them is meant."
        )
        (reading,) = source.read([one.uuid])
        assert reading.temperature_celsius == 40


def test_the_same_holds_of_parts_of_cards():
    """Of one card or of two."""
    twins = {1: part(1), 4: part(1)}
    source, _, _ = opened(split(slots=twins), split(part(1), index=1))
    board, second = source.devices(), source.notes
    assert [it.title for it in board] == ["GPU 0:1"]
    assert [note.split(" cannot")[0] for note in second] == ["GPU 0:4", "GPU 1:1"]


@pytest.mark.parametrize("uuid", ["GPU-1,GPU-2", "GPU-\x1b[31m", "GPU 1", "", "GPU-\n", "GPU-$(id)", "-GPU", "G" * 97])
def test_a_uuid_that_no_program_could_be_given_is_no_device(uuid):
    """It would be two in CUDA_VISIBLE_DEVICES, or worse; it is told in words that harm no terminal."""
    odd, well = Card(0, uuid=uuid), Card(1)
    source, _, _ = opened(odd, well)
    assert [it.uuid for it in source.devices()] == [well.uuid]
    (note,) = source.notes
    assert note.startswith("GPU 0 cannot be used. The driver gives it ")
    assert note.isprintable()
    assert len(note) < 300
    assert source.fault is None
    source, _, _ = opened(split(slots={1: part(1), 4: part(4, uuid=uuid)}))
    assert [it.uuid for it in source.devices()] == ["MIG-1"]
    assert [note.split(" cannot")[0] for note in source.notes] == ["GPU 0:4"]


@pytest.mark.parametrize("uuid", REAL)
def test_the_uuids_of_all_releases_are_fit(uuid):
    """Bytes or text, and of MIG devices the older way too."""
    assert fit_uuid(uuid) == fit_uuid(uuid.encode()) == uuid
    with pytest.raises(UnfitError):
        fit_uuid(uuid + ",")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA\x1b[31m H\u202e200\n\nNVL\x00", "NVIDIA [31m H 200 NVL"),
        (b"X" * 90 + b"\xff", "X" * 90),
        ("Y" * 4000, "Y" * 96),
        ("\t\r\n", ""),
    ],
)
def test_a_name_is_one_line_that_can_be_shown(monkeypatch, raw, shown):
    """Whatever bytes the driver gives."""
    assert clean_name(raw) == shown
    monkeypatch.setitem(CALLS, "nvmlDeviceGetName", lambda _, card: card.name)
    source, _, _ = opened(Card(0, name=raw))
    assert source.devices()[0].name == (shown or "NVIDIA GPU")
