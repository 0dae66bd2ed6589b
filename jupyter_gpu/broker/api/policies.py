"""The policy in force, and what would change if another one took its place: for operators."""

from __future__ import annotations

from ...core.policy_check import check
from ...model import PolicyBody, PolicyCheckView, PolicyView, Scope
from .base import Base, endpoint

#: Teams of a whole university have many names.
POLICY_BYTES = 4 << 20


class PolicyHandler(Base):
    """/policy."""

    @endpoint(PolicyView, scope=Scope.OPERATE)
    async def get(self) -> PolicyView:
        """The policy in force, with what ships where it says nothing."""
        policy = self.loop.world.policy
        return PolicyView(digest=policy.digest(), policy=policy)


class PolicyCheck(Base):
    """/policy/check."""

    @endpoint(PolicyCheckView, scope=Scope.OPERATE, body=PolicyBody, body_bytes=POLICY_BYTES, in_turn=True)
    async def post(self, body: PolicyBody) -> PolicyCheckView:
        """What would change, for whom, if a policy were loaded now; nothing of it happens."""
        return check(self.loop.world, body.policy, self.loop.now())
