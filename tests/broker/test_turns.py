"""Whose news is told next."""

from __future__ import annotations

from jupyter_gpu.broker.turns import (
    AGAIN_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST_AT_ONCE,
    MOST_PENDING,
    MOST_TARGETS,
    Key,
    Turns,
)


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def key(owner: str, target: str = "chat") -> Key:
    """A target of an owner's."""
    return owner, owner, target


def test_an_owner_is_told_one_message_at_a_time() -> None:
    """With all that has come up meanwhile, and their targets in turns."""
    turns = Turns[int](Clock())
    assert all(turns.put(key("ada", target), number) for number, target in enumerate(("chat", "mail", "chat")))
    assert turns.take() == (key("ada"), [0, 2])
    assert turns.take() is None
    turns.put(key("ada"), 3)
    turns.done(key("ada"), 2, failed=False)
    assert turns.take() == (key("ada", "mail"), [1])
    turns.done(key("ada", "mail"), 1, failed=False)
    assert turns.take() == (key("ada"), [3])
    turns.done(key("ada"), 1, failed=False)
    assert (turns.take(), list(turns.all())) == (None, [])


def test_who_has_waited_longest_is_next_and_the_admin_has_a_place_of_their_own() -> None:
    """However many owners there are, and whatever theirs do."""
    turns = Turns[int](Clock())
    owners = [f"u{number}" for number in range(MOST_AT_ONCE + 2)]
    for owner in owners:
        turns.put(key(owner), 1)
    taken = [turns.take() for _ in range(MOST_AT_ONCE)]
    assert taken == [(key(owner), [1]) for owner in owners[:MOST_AT_ONCE]]
    assert turns.take() is None
    turns.put(("", "", ""), 7)
    assert turns.take() == (("", "", ""), [7])
    turns.put(key(owners[3]), 2)
    turns.done(key(owners[3]), 1, failed=False)
    assert turns.take() == (key(owners[-2]), [1])


def test_a_target_that_fails_is_left_for_a_while_and_longer_each_time() -> None:
    """Its owner's other targets are told meanwhile."""
    clock = Clock()
    turns = Turns[int](clock)
    for times in range(10):
        turns.put(key("ada"), times)
        assert turns.take() == (key("ada"), [times])
        turns.done(key("ada"), 1, failed=True)
        turns.put(key("ada"), -1)
        turns.put(key("ada", "mail"), 5)
        assert turns.take() == (key("ada", "mail"), [5])
        turns.done(key("ada", "mail"), 1, failed=False)
        pause_seconds = min(LONGEST_PAUSE_SECONDS, AGAIN_SECONDS * 2 ** (2 * times))
        clock.now += pause_seconds - 1
        assert turns.take() is None
        clock.now += 1
        assert turns.take() == (key("ada"), [-1])
        turns.done(key("ada"), 1, failed=True)
        clock.now += LONGEST_PAUSE_SECONDS


def test_a_target_that_answers_again_is_as_good_as_new() -> None:
    """The next failure is its first."""
    clock = Clock()
    turns = Turns[int](clock)
    for failed in (True, True, True, False, True):
        turns.put(key("ada"), 1)
        assert turns.take() is not None
        turns.done(key("ada"), 1, failed=failed)
        clock.now += LONGEST_PAUSE_SECONDS
    clock.now += AGAIN_SECONDS - LONGEST_PAUSE_SECONDS
    turns.put(key("ada"), 2)
    assert turns.take() == (key("ada"), [2])


def test_who_takes_no_news_fills_no_memory() -> None:
    """So much for one target, and so many targets."""
    turns = Turns[int](Clock())
    taken = [turns.put(key("ada"), number) for number in range(MOST_PENDING + 1)]
    assert taken == [True] * MOST_PENDING + [False]
    targets = [turns.put(key("ada", f"mail {number}"), 0) for number in range(MOST_TARGETS)]
    assert targets == [True] * (MOST_TARGETS - 1) + [False]
    assert turns.put(key("grace"), 0)
