"""Rules of the policy for GPUs that are not there: said, and no error, since GPUs come and go."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.unmet import unmet_rules
from jupyter_gpu.model import EACH, LoadPolicy, Policy, QuotaRule, SharingRule
from tests.world import Play, a_device


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy(), []),
        (Policy(sharing=(SharingRule(), SharingRule(device_class="l4"), SharingRule(device="gpu-0"))), []),
        (Policy(quotas=(QuotaRule(devices=1, device_class=EACH), QuotaRule(devices=1, device_class="a100"))), []),
        (
            Policy(sharing=(SharingRule(device_class="a100-80gb"),)),
            ["A rule of `sharing` names the class a100-80gb, and no GPU is of it: here there are a100, l4."],
        ),
        (
            Policy(sharing=(SharingRule(device="gpu-9"),)),
            ["A rule of `sharing` names the GPU gpu-9, and there is none: see `jupyter gpu devices`."],
        ),
        (
            Policy(quotas=(QuotaRule(devices=1, device_class="h100"),)),
            ["A rule of `quotas` names the class h100, and no GPU is of it: here there are a100, l4."],
        ),
    ],
)
def test_a_rule_for_what_is_not_there_is_said(policy, said):
    """It is taken all the same, and says nothing once such a GPU is there."""
    play = Play([a_device(0), a_device(1, device_class="l4")])
    play.do(LoadPolicy(policy=policy))

    assert list(unmet_rules(play.world)) == said


def test_while_no_gpu_is_known_no_rule_is_in_doubt():
    """The driver is being opened, or the machine has none."""
    assert unmet_rules(Play(0, Policy(sharing=(SharingRule(device_class="h100"),))).world) == ()
