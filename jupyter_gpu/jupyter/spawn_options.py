"""What a person of a hub is offered at the start of a server, what they have chosen, and how it is refused.

The half of the spawner mixin that starts nothing. Forms, links and programs are read by one rule, and what a form did
not offer is refused whoever sends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from inspect import isawaitable
from typing import Any

from jupyterhub.spawner import SpawnException

from ..client import AsyncClient
from ..errors import GpuError, InvalidAsk
from ..model import Profile, Status
from . import offers, spawn_page
from .offers import Choice

#: A form is shown without what is free rather than late.
FORM_SECONDS = 3.0
#: What a spawn is refused with, for people, by the hub's metric label.
_REASONS = {400: "gpu_options", 403: "gpu_not_allowed", 409: "gpu_capacity", 422: "gpu_ask"}


class SpawnOptions:
    """Goes before a spawner class; the traits are those of `GpuSpawner`."""

    user: Any
    log: Any
    user_options: dict[str, Any]
    gpu_profiles: Sequence[Profile]
    gpu_teams: Mapping[str, Sequence[str]]
    gpu_team_groups: Sequence[str] | None
    gpu_url: str
    gpu_token: str
    gpu_deadline_seconds: float
    gpu_wait_seconds: int

    #: What is to be started with, once it has been looked at.
    _gpu_choice: Choice | None = None

    # -- who it is for

    @property
    def _gpu_groups(self) -> tuple[str, ...]:
        return tuple(sorted(it.name for it in getattr(self.user, "groups", ())))

    def _gpu_client(self) -> AsyncClient:
        return AsyncClient(
            self.gpu_url or None,
            token=self.gpu_token or None,
            start=False,
            for_user=self.user.name,
            groups=self._gpu_groups,
        )

    @property
    def _gpu_allowed(self) -> tuple[Profile, ...]:
        of_hub = [it for it in self._gpu_groups if self.gpu_team_groups is None or it in self.gpu_team_groups]
        teams = [team for team, members in self.gpu_teams.items() if self.user.name in members]
        return offers.usable(self.gpu_profiles, self.user.name, [*teams, *of_hub])

    @property
    def _gpu_says_profile(self) -> bool:
        """Whether an option `profile` is ours: kubespawner and wrapspawner may have profiles of their own."""
        return not (getattr(self, "profile_list", None) or getattr(self, "profiles", None))

    # -- the form, and what is chosen

    async def get_options_form(self) -> str:
        """Our choices, then the form that the spawner has."""
        theirs = await super().get_options_form() or ""  # type: ignore[misc] # of the class that it goes before
        if not self._gpu_allowed:
            return str(theirs)
        page = spawn_page.Page(
            offers=self._gpu_allowed,
            chosen=self._gpu_chosen_before(),
            now=time.time(),
            status=await self._gpu_status(min(FORM_SECONDS, self.gpu_deadline_seconds)),
            groups=self._gpu_groups,
            groups_at=time.time(),
            longest_wait_seconds=self.gpu_wait_seconds,
        )
        return f"{spawn_page.form(page)}\n{theirs}"

    def _gpu_chosen_before(self) -> Choice:
        """As at the last start, where that is still to be had."""
        ours, _ = offers.split(self.user_options or {}, plain=self._gpu_says_profile)
        try:
            return offers.choose(ours, self.gpu_profiles, self._gpu_allowed)
        except GpuError:
            return offers.choose({}, self.gpu_profiles, self._gpu_allowed)

    async def _gpu_status(self, seconds: float) -> Status | None:
        try:
            async with self._gpu_client() as client:
                return await asyncio.wait_for(client.status(), seconds)
        except (GpuError, TimeoutError, OSError) as error:
            self.log.warning("What is free cannot be said: %s", str(error) or "the broker did not answer in time")
            return None

    def run_options_from_form(self, form_data: Mapping[str, Any]) -> Any:
        """Read our fields, whatever was sent; the rest is for the spawner's own `options_from_form`."""
        return self._gpu_options(form_data, super().run_options_from_form)  # type: ignore[misc] # likewise

    def options_from_query(self, query_data: Mapping[str, Any]) -> Any:
        """As a form: of a link that starts a server."""
        return self._gpu_options(query_data, super().options_from_query)  # type: ignore[misc] # likewise

    def _gpu_options(self, data: Mapping[str, Any], theirs: Any) -> Any:
        ours, rest = offers.split(data, plain=self._gpu_says_profile)
        mine = self._gpu_chosen(ours).options() if ours else {}
        found = theirs(rest)
        if isawaitable(found):
            return _merged(found, mine)
        return {**(found or {}), **mine}

    def _gpu_chosen(self, options: Mapping[str, Any]) -> Choice:
        ours, _ = offers.split(options, plain=self._gpu_says_profile)
        try:
            return offers.choose(ours, self.gpu_profiles, self._gpu_allowed)
        except InvalidAsk as error:
            raise refused(error, 400) from None
        except GpuError as error:
            raise refused(error) from None

    async def _run_apply_user_options(self, user_options: Mapping[str, Any]) -> None:
        """The first thing of a start: what cannot be meant is refused before anything is prepared."""
        self._gpu_choice = self._gpu_chosen(user_options or {})
        if not callable(getattr(self, "apply_user_options", None)):  # else the hub warns of ours as of unknown ones
            _, user_options = offers.split(user_options or {}, plain=self._gpu_says_profile)
        await super()._run_apply_user_options(user_options)  # type: ignore[misc] # likewise


def refused(error: GpuError, status: int | None = None) -> SpawnException:
    """A refusal of the broker, or of what was chosen, as the hub shows it."""
    status = error.http_status if status is None else status
    message = " ".join(filter(None, (error.to_body()["message"], error.hint)))
    return SpawnException(message, reason=_REASONS.get(status, "gpu_broker"), status_code=status)


def no_answer(seconds: float) -> SpawnException:
    """A broker that does not answer in time is no reason for anybody to wait longer."""
    return SpawnException(
        f"The GPU service did not answer within {seconds:.0f} s. Try again in a minute, or start without a GPU.",
        reason="gpu_broker",
        status_code=503,
    )


async def _merged(theirs: Awaitable[dict[str, Any] | None], mine: dict[str, Any]) -> dict[str, Any]:
    return {**(await theirs or {}), **mine}
