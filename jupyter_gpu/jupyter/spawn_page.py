"""The part of the hub's spawn page that is ours: which profile, what of it is free, what is left of one's quota.

Plain HTML that works without JavaScript, by keyboard and with a screen reader. Where there is JavaScript, what is free
is read anew from the page's own address every few seconds, and times are shown by the reader's clock. All text comes
from elsewhere and is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from ..model import QuotaView
from ..units import bytes_apart, format_at, format_hours, format_seconds, format_when
from .offers import PROFILE, TEAM, WAIT, Choice, Offered, Seen, title_of, what_of
from .prospects import NO_ANSWER, WAIT_LABEL, availability, sentence

#: How often a page that is looked at reads anew what is free.
REFRESH_SECONDS = 15
#: Of what is free so many are named in one sentence.
_MOST_NAMED = 3


class Page(NamedTuple):
    """What is shown."""

    #: As this person may see it; without what is free and left where the broker does not answer.
    seen: Seen
    chosen: Choice
    now: float
    answers: bool = True
    #: The groups that the hub knows them in.
    groups: Sequence[str] = ()
    #: A start that waits gives up after so long.
    longest_wait_seconds: int = 3600
    #: Where the service's own page is; empty where there is none.
    all_gpus: str = ""


def form(page: Page) -> str:
    """The fields, for a form that the hub has opened and closes."""
    checked = _checked(page)
    choices = "\n".join(_choice(number, it, page, checked) for number, it in enumerate(page.seen.offers))
    has_devices = any(it.profile.devices for it in page.seen.offers)
    return (
        f"{_STYLE}\n"
        f'<fieldset id="jupyter-gpu" class="jupyter-gpu" data-refresh-seconds="{REFRESH_SECONDS}">\n'
        f"<legend>GPUs of your server</legend>\n"
        f'<p id="jupyter-gpu-news" role="status">{_news(page)}</p>\n'
        f"{choices}\n{_team(page) if has_devices else ''}\n{_wait(page) if has_devices else ''}\n"
        f"</fieldset>\n"
        f"{_quotas(page)}\n{_all_gpus(page)}{_SCRIPT}"
    )


def _all_gpus(page: Page) -> str:
    """The way to the service's page, in this tab: it shows what of the GPUs is whose, and leads back here."""
    if not page.all_gpus:
        return ""
    return (
        f'<p class="jupyter-gpu"><a id="jupyter-gpu-all" href="{escape(page.all_gpus)}">'
        f"See all GPUs and your work</a></p>\n"
    )


def _checked(page: Page) -> str:
    """What is chosen from the beginning: as at the last start, unless that cannot be started now."""
    may = [it.profile.name for it in page.seen.offers if not _is_off(it, page)]
    before = page.chosen.profile.name
    return before if before in may or not may else may[0]


def _is_off(it: Offered, page: Page) -> bool:
    """Whether to choose it would be in vain, where there is something else to choose."""
    if not it.profile.devices:
        return False
    if not page.answers:
        return any(not other.profile.devices for other in page.seen.offers)
    return bool(it.by_team) and all(of.refused or of.never for of in it.by_team.values())


def _choice(number: int, it: Offered, page: Page, checked: str) -> str:
    """One radio button, its label, and what it gives."""
    name, profile = f"jupyter-gpu-{number}", it.profile
    more = (" checked" if profile.name == checked else "") + (" disabled" if _is_off(it, page) else "")
    about = (
        f'<span class="jupyter-gpu-about" dir="auto">{escape(sentence(profile.description))}</span> '
        if profile.description
        else ""
    )
    return (
        f'<div class="jupyter-gpu-choice">'
        f'<input type="radio" name="{PROFILE}" id="{name}" value="{escape(profile.name)}" required'
        f' aria-describedby="{name}-about"{more}>'
        f'<label for="{name}" dir="auto">{escape(title_of(profile))}</label>'
        f'<p id="{name}-about">{about}{escape(sentence(what_of(profile)))}'
        f' <strong id="{name}-free" data-live>{_free(it, page)}</strong></p></div>'
    )


def _free(it: Offered, page: Page) -> str:
    """Like "2 of 4 free now."; for each team by itself where that differs."""

    def said(team: str | None) -> str:
        return availability(it.profile, it.to(team), page.now, say=escape, when=lambda at: _about(at, page.now))

    by_team = {team: said(team) for team in it.by_team}
    if len(set(by_team.values())) <= 1:
        return said(None)
    return " ".join(f"For team {escape(team)}: {text}" for team, text in by_team.items())


def _about(at: float, now: float) -> str:
    return _time(at, format_at(at, now, about=True), before="at about ")


def _time(at: float, text: str, *, before: str = "") -> str:
    """An instant by the hub's clock, which a script may say by the reader's, with the words before it."""
    instant = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f'<time datetime="{instant}" data-before="{before}">{escape(text)}</time>'


def _news(page: Page) -> str:
    """What is worth saying before the choices; also what a screen reader hears when it changes."""
    offers = page.seen.offers
    if not offers:
        return "No GPU is offered to you here, so your server will see none. If you need one, ask an admin."
    if not page.answers:
        has_other = any(not it.profile.devices for it in offers)
        return f"{NO_ANSWER} {'A server without a GPU starts all the same.' if has_other else 'Try again in a minute.'}"
    with_devices = [it for it in offers if it.profile.devices]
    free = [it for it in with_devices if any(of.starts_now for of in it.by_team.values())]
    if not free:
        return "Nothing with a GPU starts at once now." if with_devices else ""
    named = ", ".join(escape(title_of(it.profile)) for it in free[:_MOST_NAMED])
    more = f" and {len(free) - _MOST_NAMED} more" if len(free) > _MOST_NAMED else ""
    return f"Free for you now: {named}{more}."


def _team(page: Page) -> str:
    """For which team it counts, where somebody is in several that the rules treat differently."""
    if not page.seen.teams_differ:
        return ""
    chosen = page.chosen.team or page.seen.teams[0]
    options = "".join(
        f'<option value="{escape(team)}"{" selected" if team == chosen else ""}>{escape(team)}</option>'
        for team in page.seen.teams
    )
    return (
        f'<div class="jupyter-gpu-team">'
        f'<label for="jupyter-gpu-team">Team that it counts for</label> '
        f'<select name="{TEAM}" id="jupyter-gpu-team" class="form-select" aria-describedby="jupyter-gpu-team-about">'
        f"{options}</select>"
        f'<p id="jupyter-gpu-team-about">The GPUs of your server count against the quota of this team.</p></div>'
    )


def _wait(page: Page) -> str:
    checked = " checked" if page.chosen.waits else ""
    longest = escape(format_seconds(page.longest_wait_seconds, parts=2))
    return (
        f'<div class="jupyter-gpu-choice">'
        f'<input type="checkbox" name="{WAIT}" id="jupyter-gpu-wait" value="yes"'
        f' aria-describedby="jupyter-gpu-wait-about"{checked}>'
        f'<label for="jupyter-gpu-wait">{WAIT_LABEL}</label>'
        f'<p id="jupyter-gpu-wait-about">The next page shows your place and the expected start, and the server starts '
        f"by itself when it is your turn, at the latest after {longest}. You may close the page; to leave the line, "
        f"stop the server. Without this you are told at once if none is free.</p></div>"
    )


def _quotas(page: Page) -> str:
    """What is left of one's own and of the teams' bounds, and by which groups that was looked up."""
    lines = [escape(f"{text[:1].upper()}{text[1:]}") for text in (quota_text(it, page.now) for it in page.seen.quotas)]
    teams = _teams(page)
    lines += [teams] if teams else []
    if not lines:
        return ""
    items = "".join(f"<li>{it}</li>" for it in lines)
    return (
        f'<section class="jupyter-gpu" aria-labelledby="jupyter-gpu-left">'
        f'<h2 id="jupyter-gpu-left">Your quota</h2><ul id="jupyter-gpu-quotas" data-live>{items}</ul></section>'
    )


def _teams(page: Page) -> str:
    names = page.seen.teams if page.answers else tuple(page.groups)
    if not names:
        return ""
    at = page.seen.teams_at or page.now
    return f"Your teams: {escape(', '.join(names))} (groups as of {_time(at, format_when(at, page.now))})"


def quota_text(it: QuotaView, now: float) -> str:
    """One bound as people read it, like "you: 1 of 2 GPUs held, 1 left"."""
    parts = []
    if it.devices_allowed is not None:
        held = it.devices_held or 0
        parts.append(f"{held} of {it.devices_allowed} GPUs held, {max(0, it.devices_allowed - held)} left")
    if it.memory_allowed_bytes is not None:
        held_bytes, allowed_bytes = bytes_apart(it.memory_held_bytes or 0, it.memory_allowed_bytes)
        parts.append(f"{held_bytes} of {allowed_bytes} of shared GPUs held")
    if it.allowed_ms is not None:
        used = it.used_ms or 0
        left = format_hours(max(0, it.allowed_ms - used))
        window = "" if it.window_seconds is None else f" in {format_seconds(it.window_seconds, parts=1)}"
        parts.append(f"{format_hours(used)} of {format_hours(it.allowed_ms)} GPU-hours used{window}, {left} left")
    if it.available_again_at is not None:
        parts.append(f"some are available again {format_at(it.available_again_at, now)}")
    return f"{it.rule}: {'; '.join(parts)}" if parts else it.rule


_STYLE = """<style>
.jupyter-gpu legend, .jupyter-gpu h2 { font-size: 1.25rem; }
.jupyter-gpu-choice { display: grid; grid-template-columns: 1.75rem 1fr; margin-bottom: .5rem; }
.jupyter-gpu-choice label { font-weight: 600; }
.jupyter-gpu-choice p { grid-column: 2; margin: 0; }
.jupyter-gpu-choice input { margin-top: .3rem; }
.jupyter-gpu #jupyter-gpu-news:empty { margin: 0; }
.jupyter-gpu-choice input:disabled ~ * { color: var(--bs-secondary-color, #595959); }
.jupyter-gpu-team { margin: 0 0 .5rem 1.75rem; }
.jupyter-gpu-team label { font-weight: 600; }
.jupyter-gpu-team select { width: auto; max-width: 100%; border: 1px solid currentColor; }
</style>"""

# The page's own address without its query gives the form anew and starts nothing. Only texts are taken from there, so
# what was chosen meanwhile stays chosen, and a page that is no form any more changes nothing.
_SCRIPT = """<script>
(function () {
  "use strict";
  var box = document.getElementById("jupyter-gpu");
  if (!box || !window.fetch || !window.DOMParser) { return; }
  function clocks(root) {
    root.querySelectorAll("time[datetime]").forEach(function (it) {
      var at = new Date(it.dateTime);
      if (at.toDateString() === new Date().toDateString()) {
        var clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
        it.textContent = it.dataset.before + clock;
      }
    });
  }
  function take(page) {
    document.querySelectorAll("[id^=jupyter-gpu][data-live], #jupyter-gpu-news").forEach(function (it) {
      var fresh = page.getElementById(it.id);
      if (!fresh) { return; }
      clocks(fresh);
      if (fresh.textContent !== it.textContent) { it.replaceChildren.apply(it, Array.from(fresh.childNodes)); }
    });
    box.querySelectorAll("input[type=radio]").forEach(function (it) {
      var fresh = page.getElementById(it.id);
      if (fresh && fresh.value === it.value) { it.disabled = fresh.disabled; }
    });
  }
  function look() {
    if (document.hidden) { return; }
    fetch(window.location.pathname, { credentials: "same-origin", redirect: "error" })
      .then(function (answer) { return answer.ok ? answer.text() : ""; })
      .then(function (text) { take(new DOMParser().parseFromString(text, "text/html")); })
      .catch(function () {});
  }
  var refusal = document.querySelector(".spawn-error-msg");
  if (refusal) {
    refusal.setAttribute("role", "alert");
    refusal.tabIndex = -1;
    refusal.focus();
  }
  document.querySelectorAll("#jupyter-gpu, #jupyter-gpu-quotas").forEach(clocks);
  window.setInterval(look, 1000 * Number(box.dataset.refreshSeconds));
})();
</script>"""
