"""The policy over the API: for operators alone, and a check changes nothing."""

from __future__ import annotations

import json

import msgspec

from jupyter_gpu.model import Policy, PolicyCheckView, PolicyView, QuotaRule
from tests.conftest import Places

from .api_ground import an_api, job, play


def body(policy: Policy) -> dict[str, object]:
    """What a client sends."""
    return {"policy": json.loads(msgspec.json.encode(policy))}


def test_the_policy_in_force_is_shown_to_operators(tmp_runtime: Places) -> None:
    """It names people and teams, so others see what concerns them in their quota."""

    async def story() -> None:
        policy = Policy(quotas=(QuotaRule(user="*", devices=2),), teams={"vision": ("ada",)})
        async with an_api(tmp_runtime.runtime_dir, policy=policy) as broker:
            answer = await broker.as_("oper").get("/policy")
            found = msgspec.json.decode(answer.content, type=PolicyView)
            assert (found.policy, found.digest) == (policy, policy.digest())
            for name in ("ada", "reader", "nothing"):
                assert (await broker.as_(name).get("/policy")).status_code == 403
                assert (await broker.as_(name).post("/policy/check", json=body(policy))).status_code == 403

    play(story)


def test_a_check_says_whom_it_would_affect_and_affects_nobody(tmp_runtime: Places) -> None:
    """The policy in force stays, and so does who holds what."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=job())
            waits = (await broker.as_("ada").post("/workloads", json=job())).json()["id"]
            known = (broker.loop.world.revision, broker.loop.world.policy)

            lower = Policy(quotas=(QuotaRule(user="*", devices=1),))
            answer = await broker.as_("oper").post("/policy/check", json=body(lower))
            found = msgspec.json.decode(answer.content, type=PolicyCheckView)
            assert [(it.workload, it.owner, str(it.effect)) for it in found.affected] == [(waits, "ada", "waits")]
            assert found.bounds[0].users == ("ada",)
            assert (broker.loop.world.revision, broker.loop.world.policy) == known

            answer = await broker.as_("oper").post("/policy/check", json=body(Policy()))
            assert msgspec.json.decode(answer.content, type=PolicyCheckView).affected == ()

    play(story)


def test_what_cannot_be_meant_is_refused(tmp_runtime: Places) -> None:
    """With the words that a reload would have for it; so is what is no policy at all."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            wrong = Policy(quotas=(QuotaRule(user="*"),))
            answer = await broker.as_("oper").post("/policy/check", json=body(wrong))
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid-ask")
            assert "quotas[0]: the rule for each user bounds nothing" in answer.json()["message"]
            for nonsense in ({}, {"policy": 3}, {"policy": {"quotas": [{"device": 1}]}}):
                assert (await broker.as_("oper").post("/policy/check", json=nonsense)).status_code == 422

    play(story)
