"""What a person of a hub is offered at the start of a server, what they have chosen, and how it is refused.

The half of the spawner mixin that starts nothing. Forms, links and programs are read by one rule, and what a form did
not offer is refused whoever sends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.scopes import get_scopes_for
from jupyterhub.utils import subdomain_hook_legacy

from ..client import AsyncClient
from ..errors import GpuError, InvalidAsk
from ..model import Policy, Profile
from . import last_end, offers, spawn_page
from .hub_tls import shown_by_the_hub
from .offers import Choice, Offered, Seen
from .refusals import Refused, no_answer, refused, said

#: A form is shown without what is free rather than late.
FORM_SECONDS = 3.0
#: For so many teams of one person it is said what would come of a start.
MOST_TEAMS = 6


class SpawnOptions:
    """Goes before a spawner class; the traits are those of `GpuSpawner`."""

    user: Any
    name: str
    log: Any
    user_options: dict[str, Any]
    gpu_profiles: Sequence[Profile]
    gpu_teams: Mapping[str, Sequence[str]]
    gpu_team_groups: Sequence[str] | None
    gpu_url: str
    gpu_token: str
    gpu_page: str
    gpu_scope: str
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
            tls=shown_by_the_hub(self.user.settings),
        )

    @property
    def _gpu_teams(self) -> tuple[str, ...]:
        """As the policy has them, the usual one first."""
        policy = Policy(teams={name: tuple(it) for name, it in self.gpu_teams.items()}, team_groups=self._gpu_of_hub)
        return policy.teams_of(self.user.name, self._gpu_groups)

    @property
    def _gpu_of_hub(self) -> tuple[str, ...] | None:
        return None if self.gpu_team_groups is None else tuple(self.gpu_team_groups)

    @property
    def _gpu_has_role(self) -> bool:
        """Whether a role lets them reserve: the token by which the hub asks for its users says nothing of theirs."""
        scope = self.gpu_scope
        own = {scope, f"{scope}!user={self.user.name}"}
        return not scope or not own.isdisjoint(get_scopes_for(self.user.orm_user))

    @property
    def _gpu_allowed(self) -> tuple[Profile, ...]:
        theirs = offers.usable(self.gpu_profiles, self.user.name, self._gpu_teams)
        return theirs if self._gpu_has_role else offers.without_gpus(theirs)

    @property
    def _gpu_says_profile(self) -> bool:
        """Whether an option `profile` is ours: kubespawner and wrapspawner may have profiles of their own."""
        return not (getattr(self, "profile_list", None) or getattr(self, "profiles", None))

    # -- what is offered

    async def _gpu_seen(self, seconds: float) -> Seen | None:
        """All that the broker says to this person now; None where it does not say it in time."""
        return await self._gpu_hears(_look, seconds)

    async def _gpu_offers(self, team: str | None = None, **only: Any) -> Seen | None:
        """What the broker offers this person now, by its rules as they are now, counted for one team.

        `only` one profile, or without a trial of any: each trial costs the broker a step, and many start at once.
        """
        return await self._gpu_hears(lambda client: _offers(client, team, **only), self.gpu_deadline_seconds)

    async def _gpu_hears(self, look: Callable[[AsyncClient], Awaitable[Seen]], seconds: float) -> Seen | None:
        if not self._gpu_has_role:
            return self._gpu_known()  # the broker would offer them what it offers everybody
        try:
            async with self._gpu_client() as client:
                return await asyncio.wait_for(look(client), seconds)
        except (GpuError, TimeoutError, OSError) as error:
            self.log.warning("The broker cannot say what is free: %s", said(error))
            return None

    def _gpu_known(self) -> Seen:
        """What is offered as far as the hub's own configuration says."""
        return Seen(tuple(Offered(it) for it in self._gpu_allowed), self._gpu_teams)

    async def get_options_form(self) -> str:
        """Our choices, then the form that the spawner has."""
        theirs = str(await super().get_options_form() or "")  # type: ignore[misc] # of the class that it goes before
        seen = await self._gpu_seen(min(FORM_SECONDS, self.gpu_deadline_seconds)) if self.gpu_profiles else Seen(())
        shown = seen or self._gpu_known()
        if not self.gpu_profiles or not (theirs or any(it.devices for it in shown.profiles)):
            return theirs  # there is nothing to choose, and nobody who would read that
        page = spawn_page.Page(
            seen=shown,
            answers=seen is not None,
            chosen=self._gpu_chosen_before(shown),
            now=time.time(),
            groups=self._gpu_groups,
            longest_wait_seconds=self.gpu_wait_seconds,
            all_gpus=self._gpu_page_link,
        )
        return f"{await self._gpu_why_ended()}{spawn_page.form(page)}\n{theirs}"

    @property
    def _gpu_page_link(self) -> str:
        """Where the service's page is for a browser: where each user has a host of their own, so has each service."""
        settings, name = self.user.settings, PurePosixPath(self.gpu_page).name
        if not (name and settings.get("subdomain_host")):
            return self.gpu_page
        at = urlsplit(settings["subdomain_host"])
        hook = settings.get("subdomain_hook", subdomain_hook_legacy)
        port = f":{at.port}" if at.port else ""
        return f"{at.scheme}://{hook(name, settings['domain'], kind='service')}{port}{self.gpu_page}"

    async def _gpu_why_ended(self) -> str:
        """Why the last server of this name with GPUs was ended, where that was not its owner's doing."""
        try:
            async with self._gpu_client() as client:
                last = await asyncio.wait_for(last_end.last_of(client, f"{self.user.name}/{self.name}"), FORM_SECONDS)
        except (GpuError, TimeoutError, OSError):
            return ""  # what can be had was asked before, and that it cannot be said is in the log
        return last_end.notice(last_end.told(last, time.time()))

    def _gpu_chosen_before(self, seen: Seen) -> Choice:
        """As at the last start, as far as that is still to be had."""
        ours, _ = offers.split(self.user_options or {}, plain=self._gpu_says_profile)
        for options in (ours, {name: it for name, it in ours.items() if name != offers.TEAM}):
            try:
                return offers.choose(options, self.gpu_profiles, seen.profiles, seen.teams)
            except GpuError:
                continue
        return offers.choose({}, self.gpu_profiles, seen.profiles, seen.teams)

    # -- what is chosen

    async def run_options_from_form(self, form_data: Mapping[str, Any]) -> dict[str, Any]:
        """Read our fields, whatever was sent; the rest is for the spawner's own `options_from_form`."""
        return await self._gpu_options(form_data, super().run_options_from_form)  # type: ignore[misc] # likewise

    async def options_from_query(self, query_data: Mapping[str, Any]) -> dict[str, Any]:
        """As a form: of a link that starts a server."""
        return await self._gpu_options(query_data, super().options_from_query)  # type: ignore[misc] # likewise

    async def _gpu_options(self, data: Mapping[str, Any], theirs: Any) -> dict[str, Any]:
        ours, rest = offers.split(data, plain=self._gpu_says_profile)
        mine = (await self._gpu_chosen(ours)).options() if ours else {}
        found = theirs(rest)
        return {**((await found if isawaitable(found) else found) or {}), **mine}

    async def _gpu_chosen(self, options: Mapping[str, Any]) -> Choice:
        """What is chosen, by what the broker offers now; what has no devices needs no broker that answers."""
        known, trouble = self._gpu_known(), None
        try:
            choice = self._gpu_choose(options, known)
            if choice.profile.devices == 0:
                return choice
        except Refused as error:
            trouble = error
        seen = await self._gpu_offers(trial=False) if self.gpu_profiles else known
        if seen is not None:
            return self._gpu_choose(options, seen)
        raise trouble or no_answer()

    def _gpu_choose(self, options: Mapping[str, Any], seen: Seen) -> Choice:
        ours, _ = offers.split(options, plain=self._gpu_says_profile)
        try:
            return offers.choose(ours, self.gpu_profiles, seen.profiles, seen.teams)
        except InvalidAsk as error:
            raise refused(error, 400) from None
        except GpuError as error:
            raise refused(error) from None

    async def _run_apply_user_options(self, user_options: Mapping[str, Any]) -> None:
        """The first thing of a start: what cannot be meant is refused before anything is prepared."""
        self._gpu_choice = await self._gpu_chosen(user_options or {})
        if not callable(getattr(self, "apply_user_options", None)):  # else the hub warns of ours as of unknown ones
            _, user_options = offers.split(user_options or {}, plain=self._gpu_says_profile)
        await super()._run_apply_user_options(user_options)  # type: ignore[misc] # likewise


async def _offers(client: AsyncClient, team: str | None = None, **only: Any) -> Seen:
    page = await client.offers(team, **only)
    by_team = {team or "".join(page.teams[:1]): page.items}
    return Seen(offers.collate(by_team), page.teams, teams_differ=page.teams_differ and len(page.teams) > 1)


async def _look(client: AsyncClient) -> Seen:
    """What of each profile could be had now, for each team that the rules treat differently, and what is left."""
    # The whole status is some hundred kilobytes where many hold something, and nothing else of it is shown.
    quota, usual = await asyncio.gather(client.quota(), client.offers())
    usual_team, *others = usual.teams[:MOST_TEAMS] or ("",)
    pages = await asyncio.gather(*(client.offers(team) for team in others if usual.teams_differ))
    by_team = {usual_team: usual.items} | {team: page.items for team, page in zip(others, pages, strict=False)}
    return Seen(
        offers.collate(by_team),
        usual.teams,
        teams_differ=usual.teams_differ and len(usual.teams) > 1,
        teams_at=time.time(),
        quotas=quota.items,
    )
