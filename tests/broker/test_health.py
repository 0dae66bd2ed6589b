"""What is wrong with a device, by readings and reports: the gravest, with its reason, and when it is well again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from jupyter_gpu.broker.health import LOST_SECONDS, Health, Seen, Sight
from jupyter_gpu.broker.strikes import Strike
from jupyter_gpu.core.conditions import after_word, condition_after
from jupyter_gpu.core.events import DeviceMarked
from jupyter_gpu.model import Card, CardEvent, Condition, Device, Policy, Reading, SeeCondition, Vitals

from .ground import devices

GPU = "GPU-0"


@dataclass
class Board:
    """One device under a policy, looked at once a second, and marked as the core would mark it."""

    policy: Policy = field(default_factory=lambda: Policy(hot_seconds=5, suspect_seconds=3))
    health: Health = field(default_factory=Health)
    now: float = 1_000.0
    device: Device = field(default_factory=lambda: devices(1)[0])
    shows: dict[str, Any] = field(default_factory=dict)
    card: Reading | None = None
    is_idle: bool = False
    seen: Seen | None = None

    def look(self, times: int = 1, **shows: Any) -> Condition | None:
        """Let so many seconds pass; what the device has then."""
        self.shows |= shows
        for _ in range(times):
            self.now += 1.0
            reading = Reading(uuid=self.device.uuid, at=self.now, **self.shows)
            sight = Sight(reading=reading, card=self.card, is_idle=self.is_idle)
            self.seen = self.health.look(self.policy, self.device, sight, self.now)
            self.mark(self.seen)
        return self.device.condition

    def mark(self, seen: Seen) -> None:
        told = SeeCondition(
            device=self.device.uuid, condition=seen.condition, detail=seen.detail, was_reset=seen.was_reset
        )
        after = condition_after(self.device, told)
        if after is not self.device.condition:
            self.health.hear_of_mark(DeviceMarked(at=self.now, device=self.device.uuid, condition=after))
            self.device = msgspec.structs.replace(
                self.device, condition=after, condition_detail=seen.detail, condition_since=self.now
            )

    def report(self, *numbers: int, uuid: str = GPU) -> None:
        """Let the driver report."""
        self.health.hear([self.device], [CardEvent(uuid=uuid, xid=number, at=self.now) for number in numbers])

    def say_well(self) -> None:
        """An operator says so."""
        left = after_word(self.device, () if self.seen is None else self.seen.wrong)
        event = DeviceMarked(
            at=self.now, device=self.device.uuid, by="op", condition=None if left is None else left.condition
        )
        self.health.hear_of_mark(event)
        self.device = msgspec.structs.replace(
            self.device, condition=event.condition, condition_detail="", condition_since=None, cordoned=False
        )


def vitals(**words: Any) -> dict[str, Any]:
    """What a reading shows of a card's own health."""
    return {"vitals": Vitals(**words)}


# -- what a reading shows


@pytest.mark.parametrize(
    ("shows", "condition", "said"),
    [
        ({"repair_pending": True}, Condition.RESET_NEEDED, "waits for a reset"),
        ({"repair_failed": True}, Condition.FAULTY, "no spare row"),
        ({"recovery_action": "reset"}, Condition.FAULTY, "asks for a reset"),
        ({"recovery_action": "reboot"}, Condition.FAULTY, "restart of the machine"),
        ({"recovery_action": "drain-and-reset"}, Condition.RESET_NEEDED, "once its work has ended"),
        ({"recovery_action": "drain-p2p"}, Condition.RESET_NEEDED, "together"),
        ({"compute_mode": "prohibited"}, Condition.PROHIBITED, "--compute-mode=DEFAULT"),
    ],
)
def test_what_a_card_says_of_itself_is_told_with_what_helps(
    shows: dict[str, Any], condition: Condition, said: str
) -> None:
    """Each has its condition, the reason in words, and holds as long as the card says it."""
    board = Board()
    assert board.look(**vitals(recovery_action="none", repair_pending=False, compute_mode="default")) is None
    assert board.look(**vitals(**shows)) is condition
    assert said in board.device.condition_detail
    assert board.look(3) is condition
    # No reset shows in a card that merely stops to say that it has no spare rows.
    after = Condition.FAULTY if "repair_failed" in shows else None
    assert board.look(**vitals(recovery_action="none", repair_pending=False, compute_mode="default")) is after


def test_of_several_the_gravest_is_told() -> None:
    """A prohibited card that is to be reset is to be reset; when that is over it is prohibited still."""
    board = Board()
    assert board.look(**vitals(compute_mode="prohibited", repair_pending=True)) is Condition.RESET_NEEDED
    assert board.look(**vitals(compute_mode="prohibited", repair_pending=False)) is Condition.PROHIBITED


def test_what_is_not_offered_is_no_fault() -> None:
    """A card of which nothing is known but its memory is well."""
    assert Board().look(100, memory_used_bytes=0, memory_total_bytes=1) is None


def test_a_mig_device_has_the_health_of_its_card() -> None:
    """Vitals, heat and loss of the card are those of all its parts; its being unreadable is not."""
    card = Card(uuid="GPU-card", index=0, name="A100")
    board = Board(device=msgspec.structs.replace(devices(1)[0], card=card, slot=1))
    board.card = Reading(uuid="GPU-card", at=0.0, **vitals(repair_pending=True))
    assert board.look() is Condition.RESET_NEEDED
    board.card = Reading(uuid="GPU-card", at=0.0, fault="The driver does not answer.")
    assert board.look() is None
    board.card = Reading(uuid="GPU-card", at=0.0, fault="The GPU is lost: it has fallen off the bus.")
    assert board.look() is Condition.LOST


# -- heat


def test_a_card_is_hot_only_once_that_lasts_and_well_only_once_it_has_been_cool_for_as_long() -> None:
    """A peak of a second takes no card out of use, and one that goes up and down stays out."""
    board = Board(policy=Policy(hot_celsius=85, hot_seconds=5))
    assert board.look(4, temperature_celsius=90) is None
    assert board.look(2, temperature_celsius=70) is None
    assert board.look(5, temperature_celsius=90) is None
    assert board.look() is Condition.HOT
    assert "90 °C" in board.device.condition_detail
    assert board.look(4, temperature_celsius=70) is Condition.HOT
    assert board.look(2, temperature_celsius=86) is Condition.HOT
    assert board.look(5, temperature_celsius=70) is Condition.HOT
    assert board.look() is None


def test_the_limit_is_the_cards_own_unless_the_policy_has_one() -> None:
    """From where it slows itself down on it is too hot."""
    board = Board()
    assert board.look(10, temperature_celsius=92, **vitals(slowdown_celsius=93)) is None
    assert board.look(10, temperature_celsius=93) is Condition.HOT


@pytest.mark.parametrize("cause", ["hw-thermal", "sw-thermal", "power-brake", "hw-slowdown"])
def test_a_card_that_is_slowed_down_for_long_gets_no_work(cause: str) -> None:
    """Whatever slows it, at any temperature."""
    board = Board()
    assert board.look(10, temperature_celsius=40, **vitals(slowed_by=(cause,))) is Condition.HOT
    assert "slowed down" in board.device.condition_detail
    assert board.look(10, **vitals()) is None


# -- load without owner


def test_load_that_nobody_can_have_made_is_suspect() -> None:
    """100 % with 0 MiB and no process for ten polls; with a process it is work: Datura-ai/lium-io#1140."""
    board = Board(policy=Policy(suspect_seconds=10), is_idle=True)
    assert board.look(10, utilisation_percent=100, memory_used_bytes=0, processes=()) is None
    assert board.look() is Condition.SUSPECT
    assert "load without owner" in board.device.condition_detail
    assert board.look(utilisation_percent=3) is None
    control = Board(policy=Policy(suspect_seconds=10), is_idle=False)
    assert control.look(60, utilisation_percent=100, memory_used_bytes=40 << 30, processes=((1, 40 << 30),)) is None


# -- what was reported


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 69, 92, 94, 154, 9999])
def test_what_is_the_works_own_or_over_with_it_leaves_the_card_in_use(number: int) -> None:
    """It is recorded, and no more."""
    board = Board()
    board.report(number)
    assert board.look(3) is None


@pytest.mark.parametrize(
    ("number", "condition"),
    [
        (48, Condition.FAULTY),
        (62, Condition.FAULTY),
        (64, Condition.FAULTY),
        (95, Condition.FAULTY),
        (119, Condition.FAULTY),
        (120, Condition.FAULTY),
        (140, Condition.FAULTY),
        (63, Condition.RESET_NEEDED),
        (74, Condition.RESET_NEEDED),
    ],
)
def test_what_asks_for_a_reset_takes_the_card_out_of_use_until_there_was_one(number: int, condition: Condition) -> None:
    """Clean readings alone do not make it well: the error was reported once and is still there."""
    board = Board()
    board.look(**vitals(ecc_uncorrected=2))
    board.report(number)
    assert board.look() is condition
    assert f"Xid {number}" in board.device.condition_detail
    assert board.look(100) is condition
    assert board.look(**vitals(ecc_uncorrected=0)) is None  # a counter that fell was reset, and the card with it


def test_an_error_that_was_contained_lets_the_other_work_go_on() -> None:
    """Xid 94 beside the error says that one program only was hit: no new work before a reset, nothing is moved."""
    board = Board()
    board.look(**vitals(ecc_uncorrected=0))
    board.report(48, 94)
    assert board.look() is Condition.RESET_NEEDED
    assert board.look(**vitals(ecc_uncorrected=1)) is Condition.RESET_NEEDED


def test_a_card_that_fell_off_the_bus_is_lost_until_it_can_be_read_again() -> None:
    """Xid 79 is heard before the readings fail; clean ones a while later say that it is back."""
    board = Board()
    board.report(79)
    assert board.look(round(LOST_SECONDS)) is Condition.LOST  # a reading just after may be of a moment before
    assert board.look(5, fault="The GPU is lost: it has fallen off the bus.") is Condition.LOST
    board.shows.pop("fault")
    assert board.look() is None


def test_a_reading_that_is_older_than_the_loss_does_not_bring_it_back() -> None:
    """The inventory may miss a card that the sample of the same second still has."""
    board = Board()
    board.device = msgspec.structs.replace(
        board.device, condition=Condition.LOST, condition_detail="gone", condition_since=board.now + 1.5
    )
    assert board.look() is Condition.LOST
    assert board.look() is None


def test_errors_that_rise_are_a_fault_and_those_that_were_there_before_are_not() -> None:
    """The counter is since the last reset: who starts to look at 4 knows nothing of when."""
    board = Board()
    assert board.look(3, **vitals(ecc_uncorrected=4)) is None
    assert board.look(**vitals(ecc_uncorrected=5)) is Condition.FAULTY
    assert "5 uncorrectable memory errors, after 4" in board.device.condition_detail
    assert board.look(3, **vitals()) is Condition.FAULTY
    assert board.look(3, **vitals(ecc_uncorrected=5)) is Condition.FAULTY


# -- how a fault ends


def test_a_fault_of_before_the_machine_was_started_is_over() -> None:
    """Also for a broker that knows of it only from its store; one of since then is not."""
    for since, after in ((500.0, None), (700.0, Condition.FAULTY)):
        board = Board(health=Health(booted_at=600.0))
        board.device = msgspec.structs.replace(board.device, condition=Condition.FAULTY, condition_since=since)
        assert board.look(3) is after


def test_a_fault_ends_when_the_driver_asks_for_a_reset_no_more() -> None:
    """Nothing but the reset lets it stop to ask."""
    board = Board()
    assert board.look(**vitals(recovery_action="reset")) is Condition.FAULTY
    assert board.look(**vitals(recovery_action="none")) is None


def test_a_new_fault_after_a_reset_is_one() -> None:
    """What a reset has ended does not end what came after it."""
    board = Board()
    board.look(**vitals(ecc_uncorrected=1))
    board.report(119)
    board.look()
    board.shows |= vitals(ecc_uncorrected=0)
    board.report(119)
    assert board.look() is None
    board.report(119)
    assert board.look(5) is Condition.FAULTY


@pytest.mark.parametrize("evidence", [vitals(repair_failed=True), vitals(repair_pending=True), {}])
def test_the_word_of_an_operator_counts_against_the_same_evidence(evidence: dict[str, Any]) -> None:
    """What they have overruled is not held against the card again; what is new is."""
    board = Board()
    if not evidence:
        board.report(62)
    assert board.look(**evidence) is not None
    board.look()
    board.say_well()
    assert board.look(5) is None
    board.report(48)
    assert board.look() is Condition.FAULTY


def test_what_is_reported_in_the_moment_of_that_word_counts() -> None:
    """They overruled what they knew of."""
    board = Board()
    board.report(48)
    board.look(2)
    board.say_well()
    board.report(79)
    assert board.look() is Condition.LOST


# -- work that died of it


def strike(
    board: Board, workload: int, owner: str = "ada", *, alone: bool = True, counts: bool = False, ran: float = 60.0
) -> None:
    """Let a job of so many seconds die of the hardware, by its log."""
    died = Strike(workload, owner, board.now)
    since = board.now - ran
    board.health.strike(board.policy, board.device.uuid, died, since=since, alone=alone, counts=counts)


def test_a_board_on_which_job_after_job_dies_gets_no_more() -> None:
    """Three jobs, the same board, each dead within seconds of a hardware error: MFlowCode/MFC#1748."""
    board = Board()
    for workload in (11, 12):
        strike(board, workload)
        assert board.look(5) is None
    strike(board, 13)
    assert board.look() is Condition.FAULTY
    assert "11, 12, 13" in board.device.condition_detail


def test_strikes_are_in_a_row_and_within_their_time() -> None:
    """A success between them, or a long time, and it was something else."""
    board = Board(policy=Policy(strike_seconds=100))
    strike(board, 1)
    strike(board, 2)
    board.health.succeed(GPU)
    strike(board, 3)
    board.now += 101
    strike(board, 4)
    strike(board, 5)
    assert board.look() is None
    strike(board, 6)
    assert board.look() is Condition.FAULTY


def test_a_job_that_is_tried_again_is_one_job() -> None:
    """What it says on its own account it says each time: one with retries took four cards out in 0.2 s."""
    board = Board()
    for _ in range(10):
        strike(board, 1)
        strike(board, 2)
    assert board.look() is None


def test_what_one_owner_says_takes_one_card_out_within_the_time() -> None:
    """Where one person works nobody else bears it out, so their words count, and for no more than that."""
    boards = [Board(policy=Policy(strike_seconds=1000))]
    boards += [Board(policy=boards[0].policy, health=boards[0].health, device=it) for it in devices(3)[1:]]
    for workload in range(5):
        for board in boards:
            strike(board, workload)
    assert [board.look() for board in boards] == [Condition.FAULTY, None, None]
    # Another's word bears it out; and what the driver reports does.
    strike(boards[1], 8, "grace")
    assert [board.look() for board in boards] == [Condition.FAULTY, Condition.FAULTY, None]
    boards[2].report(63, uuid="GPU-2")
    strike(boards[2], 9)
    assert boards[2].look() is Condition.FAULTY
    # Later their word counts again.
    later = boards[1]
    later.health.succeed("GPU-1")
    later.say_well()
    later.look()
    later.now += 1001
    for workload in range(3):
        strike(later, workload)
    assert later.look() is Condition.FAULTY


def test_words_alone_take_no_card_out_that_counts_its_errors() -> None:
    """Anybody can print that the memory failed: a counter that did not rise and a silent driver say it has not.

    That it counts an error of long ago bears out nothing, and what was reported before the attempt neither.
    """
    board = Board()
    board.look(**vitals(ecc_uncorrected=1))
    board.report(94)
    board.report(63)
    board.health.succeed(GPU)
    board.say_well()
    board.look()
    board.say_well()
    assert board.look(30) is None
    for workload in range(10):
        strike(board, workload, counts=True, ran=20)
    assert board.look() is None
    for workload in range(3):
        strike(board, workload, counts=True, ran=60)
    assert board.look() is Condition.FAULTY


@pytest.mark.parametrize("counts", [False, True])
def test_of_several_devices_nobody_knows_which_one_failed(counts: bool) -> None:
    """A job on eight cards strikes none of them; one of which the driver reports something meanwhile it does."""
    board = Board()
    for workload in range(10):
        strike(board, workload, alone=False, counts=counts)
    assert board.look() is None
    board.report(63)
    for workload in range(3):
        strike(board, workload, alone=False, counts=counts)
    assert board.look() is Condition.FAULTY


def test_no_strikes_are_counted_where_the_policy_wants_none() -> None:
    """0 never takes a card out."""
    board = Board(policy=Policy(strikes=0))
    for workload in range(10):
        strike(board, workload)
    assert board.look() is None
