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

from ..model import Profile, QuotaView, Status
from ..units import format_seconds, format_when
from .offers import PROFILE, WAIT, Choice, Free, free_of, title_of, what_of

#: How often a page that is looked at reads anew what is free.
REFRESH_SECONDS = 15
_HOUR_MS = 3_600_000


class Page(NamedTuple):
    """What is shown."""

    offers: Sequence[Profile]
    chosen: Choice
    now: float
    #: As this person may see it; None where the broker does not answer.
    status: Status | None = None
    #: The groups that the hub knows them in, and since when.
    groups: Sequence[str] = ()
    groups_at: float | None = None
    #: A start that waits gives up after so long.
    longest_wait_seconds: int = 3600


def form(page: Page) -> str:
    """The fields, for a form that the hub has opened and closes."""
    if not page.offers:
        return ""
    choices = "\n".join(_choice(number, it, page) for number, it in enumerate(page.offers))
    wait = _wait(page) if any(it.devices for it in page.offers) else ""
    return (
        f"{_STYLE}\n"
        f'<fieldset id="jupyter-gpu" class="jupyter-gpu" data-refresh-seconds="{REFRESH_SECONDS}">\n'
        f"<legend>GPUs of your server</legend>\n"
        f'<p id="jupyter-gpu-news" role="status">{_news(page)}</p>\n'
        f"{choices}\n{wait}\n"
        f"</fieldset>\n"
        f"{_quotas(page)}\n{_SCRIPT}"
    )


def _choice(number: int, it: Profile, page: Page) -> str:
    """One radio button, its label, and what it gives."""
    name = f"jupyter-gpu-{number}"
    checked = " checked" if it.name == page.chosen.profile.name else ""
    about = f'<span class="jupyter-gpu-about">{escape(_sentence(it.description))}</span> ' if it.description else ""
    return (
        f'<div class="jupyter-gpu-choice">'
        f'<input type="radio" name="{PROFILE}" id="{name}" value="{escape(it.name)}" required'
        f' aria-describedby="{name}-about"{checked}>'
        f'<label for="{name}">{escape(title_of(it))}</label>'
        f'<p id="{name}-about">{about}{escape(_sentence(what_of(it)))}'
        f' <strong id="{name}-free" data-live>{_free(it, free_of(it, page.status), page)}</strong></p></div>'
    )


def _sentence(words: str) -> str:
    """Of words of ours or of an admin's, who may have ended it already."""
    return f"{words[:1].upper()}{words[1:]}" + ("" if words.endswith((".", "!", "?")) else ".")


def _free(it: Profile, free: Free, page: Page) -> str:
    """Like "2 of 4 free now" or "0 of 4 free now; free at about 14:05"."""
    if it.devices == 0:
        return "Starts at once." + (" Kernels reserve a GPU when they need one." if it.for_kernels else "")
    if free.free is None:
        return "How many are free is not known now."
    if not free.all:
        return "There is no such GPU at the moment."
    said = f"{free.free} of {free.all} free now"
    if free.is_now(it):
        return f"{said}."
    if free.at is None:
        return f"{said}; when more are free is not known."
    return f"{said}; free at about {_time(free.at, page.now)}."


def _time(at: float, now: float) -> str:
    """An instant by the hub's clock, which a script may say by the reader's."""
    instant = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f'<time datetime="{instant}">{escape(format_when(at, now))}</time>'


def _news(page: Page) -> str:
    """What is worth saying before the choices; also what a screen reader hears when it changes."""
    if page.status is None:
        return "The GPU service does not answer now. A server without a GPU of its own starts all the same."
    if any(it.devices and free_of(it, page.status).is_now(it) for it in page.offers):
        return ""
    return "No GPU is free for you now." if any(it.devices for it in page.offers) else ""


def _wait(page: Page) -> str:
    checked = " checked" if page.chosen.waits else ""
    longest = escape(format_seconds(page.longest_wait_seconds, parts=2))
    return (
        f'<div class="jupyter-gpu-choice">'
        f'<input type="checkbox" name="{WAIT}" id="jupyter-gpu-wait" value="yes"'
        f' aria-describedby="jupyter-gpu-wait-about"{checked}>'
        f'<label for="jupyter-gpu-wait">Wait in line if none is free</label>'
        f'<p id="jupyter-gpu-wait-about">The next page shows your place and the expected start, and the server starts '
        f"by itself when it is your turn, at the latest after {longest}. You may close the page; to leave the line, "
        f"stop the server. Without this you are told at once if none is free.</p></div>"
    )


def _quotas(page: Page) -> str:
    """What is left of one's own and of the teams' bounds, and by which groups that was looked up."""
    lines = [escape(quota_text(it, page.now)) for it in (page.status.quotas if page.status else ())]
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
    status = page.status
    names = (status.teams if status else ()) or tuple(page.groups)
    at = (status.teams_at if status else None) or page.groups_at
    if not names:
        return ""
    return f"Your teams: {escape(', '.join(names))}" + (f" (groups as of {_time(at, page.now)})" if at else "")


def quota_text(it: QuotaView, now: float) -> str:
    """One bound as people read it, like "each user: 1 of 2 GPUs held, 1 left"."""
    parts = []
    if it.devices_allowed is not None:
        held = it.devices_held or 0
        parts.append(f"{held} of {it.devices_allowed} GPUs held, {max(0, it.devices_allowed - held)} left")
    if it.allowed_ms is not None:
        used = it.used_ms or 0
        left = max(0, it.allowed_ms - used)
        window = "" if it.window_seconds is None else f" in {format_seconds(it.window_seconds, parts=1)}"
        parts.append(f"{_hours(used)} of {_hours(it.allowed_ms)} GPU-hours used{window}, {_hours(left)} left")
    if it.available_again_at is not None:
        parts.append(f"some are available again at {format_when(it.available_again_at, now)}")
    return f"{it.rule}: {'; '.join(parts)}" if parts else it.rule


def _hours(ms: int) -> str:
    tenths = round(ms * 10 / _HOUR_MS)
    return f"{tenths // 10}" if tenths % 10 == 0 else f"{tenths / 10:.1f}"


_STYLE = """<style>
.jupyter-gpu legend, .jupyter-gpu h2 { font-size: 1.25rem; }
.jupyter-gpu-choice { display: grid; grid-template-columns: 1.75rem 1fr; margin-bottom: .5rem; }
.jupyter-gpu-choice label { font-weight: 600; }
.jupyter-gpu-choice p { grid-column: 2; margin: 0; }
.jupyter-gpu-choice input { margin-top: .3rem; }
.jupyter-gpu #jupyter-gpu-news:empty { margin: 0; }
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
        it.textContent = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
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
  }
  function look() {
    if (document.hidden) { return; }
    fetch(window.location.pathname, { credentials: "same-origin", redirect: "error" })
      .then(function (answer) { return answer.ok ? answer.text() : ""; })
      .then(function (text) { take(new DOMParser().parseFromString(text, "text/html")); })
      .catch(function () {});
  }
  document.querySelectorAll("#jupyter-gpu, #jupyter-gpu-quotas").forEach(clocks);
  window.setInterval(look, 1000 * Number(box.dataset.refreshSeconds));
})();
</script>"""
