"""What another policy changes, in sentences for an admin."""

from __future__ import annotations

from jupyter_gpu.core.policy_words import NOBODY, said
from jupyter_gpu.model import BoundChange, Kind, PolicyAffected, PolicyCheckView, PolicyEffect

ONE = PolicyAffected(
    workload=12, kind=Kind.JOB, title="job 12 (digits)", owner="ada", team="vision", queue="training",
    effect=PolicyEffect.WAITS, text="waits for quota and no more for devices",
)  # fmt: skip


def test_nobody_is_affected_is_said_in_so_many_words():
    """Silence would leave open whether anybody looked."""
    assert list(said(PolicyCheckView(digest="a", digest_now="a"))) == [
        "It is the policy in force: nothing changes.", NOBODY,
    ]  # fmt: skip


def test_bounds_settings_and_people_in_that_order():
    """Each in a sentence; what is not listed is counted."""
    view = PolicyCheckView(
        digest="a",
        digest_now="b",
        bounds=(
            BoundChange(whose="each user", what="GPUs at once", before=4, after=2, shrinks=True, users=("ada", "bob")),
            BoundChange(whose="team vision", what="memory of shared GPUs at once", after=64 << 30, shrinks=True),
            BoundChange(whose="queue deferred", what="GPUs of its own", after=1),
        ),
        changes=("most_devices: none, then 4",),
        affected=(ONE,),
        more=3,
        warnings=("A rule names nothing.",),
    )

    assert list(said(view)) == [
        "Each user: GPUs at once 4, then 2 (less); concerns ada, bob.",
        "Team vision: memory of shared GPUs at once unbounded, then 64GiB (less); concerns nobody now.",
        "Queue deferred: GPUs of its own none, then 1 (more); concerns nobody now.",
        "most_devices: none, then 4.",
        "Job 12 (digits) of ada waits for quota and no more for devices.",
        "And 3 more.",
        "A rule names nothing.",
    ]
