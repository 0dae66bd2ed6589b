"""What the driver reports by itself, heard without waiting."""

import pytest

from jupyter_gpu.broker.telemetry.nvml import NO_EVENTS
from tests.broker.fake_nvml import LOST, MISMATCH, NO_FUNCTION, NOT_SUPPORTED, UNKNOWN, Card, opened, reported


def heard(source):
    """Ask what was reported: (UUID, Xid)."""
    return [(it.uuid, it.xid) for it in source.events()]


def test_xids_are_heard_once_with_their_card():
    """All that came since the last time; what is no Xid is left out."""
    cards = [Card(0), Card(1)]
    source, nvml, _ = opened(*cards)
    assert heard(source) == []

    nvml.events = [reported(cards[1], 79), reported(cards[0], 1, kind=0x10), reported(cards[0], 48)]

    assert heard(source) == [(cards[1].uuid, 79), (cards[0].uuid, 48)]
    assert heard(source) == []
    assert nvml.registered == [card.uuid for card in cards]
    assert nvml.calls.count("EventSetCreate") == 1


def test_a_storm_waits_for_the_next_sample():
    """One that reports without end must not keep the others from being read."""
    card = Card(0)
    source, nvml, _ = opened(card)
    nvml.events = [reported(card, 31)] * 100

    assert [len(heard(source)), len(heard(source))] == [64, 36]


def split():
    """Make a card with two MIG devices, of which one is two compute instances."""
    parts = {
        0: Card(0, uuid="MIG-0", instance=1, part=0),
        1: Card(0, uuid="MIG-1", instance=1, part=1),
        2: Card(0, uuid="MIG-2", instance=2, part=0),
    }
    return Card(0, mig=(1, 1), slots=parts)


@pytest.mark.parametrize(
    ("where", "whose"),
    [
        ((1, 1), ["MIG-1"]),
        ((2, 0), ["MIG-2"]),
        ((1, 2**32 - 1), ["MIG-0", "MIG-1"]),
        ((2**32 - 1, 2**32 - 1), ["card"]),
        ((9, 0), ["card"]),
    ],
)
def test_an_xid_of_a_part_is_the_parts(where, whose):
    """The driver reports it of the card, with the instances; without them it is the card's."""
    card = split()
    source, nvml, _ = opened(card)
    heard(source)
    nvml.events = [reported(card, 94, *where)]

    assert [uuid for uuid, _ in heard(source)] == [card.uuid if it == "card" else it for it in whose]
    assert nvml.registered == [card.uuid]


@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_FUNCTION, UNKNOWN])
@pytest.mark.parametrize("call", ["EventSetCreate", "RegisterEvents", "EventSetWait"])
def test_a_driver_that_reports_nothing_is_no_fault(call, error):
    """Readings alone tell then, and one note says so where no card can be registered."""
    card = Card(0)
    source, nvml, _ = opened(card)
    if call == "EventSetCreate":
        nvml.nvmlEventSetCreate = lambda: nvml._fail(error)
    elif call == "RegisterEvents":
        nvml.nvmlDeviceRegisterEvents = lambda *_: nvml._fail(error)
    else:
        nvml.wait_error = error

    assert [heard(source), heard(source)] == [[], []]
    assert source.fault is None
    assert (NO_EVENTS in source.notes) is (call != "EventSetWait")


def test_bindings_without_events_are_none():
    """Older ones."""
    source, _, _ = opened(Card(0), without=["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"])

    assert heard(source) == []
    assert NO_EVENTS in source.notes


def test_it_registers_again_after_the_driver_was_gone():
    """A set of before is of no use then, and must not be freed either."""
    card = Card(0)
    source, nvml, clock = opened(card)
    heard(source)
    nvml.wait_error = MISMATCH
    assert heard(source) == []
    assert "Reboot" in source.fault

    nvml.wait_error = None
    clock.now += 10
    nvml.events = [reported(card, 79)]

    assert heard(source) == [(card.uuid, 79)]
    assert nvml.registered == [card.uuid] * 2
    assert "EventSetFree" not in nvml.calls


def test_new_cards_are_registered():
    """With the next inventory."""
    first, second = Card(0), Card(1)
    source, nvml, _ = opened(first)
    heard(source)

    nvml.cards.append(second)
    source.devices()
    nvml.events = [reported(second, 79)]

    assert heard(source) == [(second.uuid, 79)]
    assert nvml.calls.count("EventSetFree") == 1


def test_a_lost_card_does_not_make_the_others_deaf():
    """The driver may answer "lost" for the whole set: then it is made anew, without that card, now and then."""
    lost, well = Card(0), Card(1)
    source, nvml, clock = opened(lost, well)
    heard(source)
    nvml.events = [reported(lost, 79)]
    assert heard(source) == [(lost.uuid, 79)]

    nvml.wait_error, lost.errors = LOST, {"*": LOST}
    assert [heard(source), heard(source)] == [[], []]
    assert nvml.calls.count("EventSetCreate") == 1
    clock.now += 10
    lost.errors = {"DeviceRegisterEvents": LOST}
    nvml.wait_error = None
    nvml.events = [reported(well, 48)]

    assert heard(source) == [(well.uuid, 48)]
    assert nvml.registered == [lost.uuid, well.uuid, well.uuid]
    assert NO_EVENTS not in source.notes

    lost.errors = {}
    clock.now += 10
    heard(source)
    assert nvml.registered[-2:] == [lost.uuid, well.uuid]


def test_a_card_that_has_gone_is_known_by_what_was_registered():
    """Asking a lost card for its UUID is asking too much."""
    card = Card(0)
    source, nvml, _ = opened(card)
    heard(source)
    card.errors = {"*": LOST}
    nvml.events = [reported(card, 79)]

    assert heard(source) == [(card.uuid, 79)]


def test_what_names_nobody_is_left_out():
    """A handle that nobody registered and that does not say who it is."""
    source, nvml, _ = opened(Card(0))
    heard(source)
    nvml.events = [reported(Card(7, errors={"UUID": UNKNOWN}), 79), reported(Card(8), 13)]

    assert heard(source) == [(Card(8).uuid, 13)]
