"""`jupyter gpu policy`: the rules in force, and what others would change before they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..errors import BrokerUnavailable
from .base import Face, json_option, pass_face

if TYPE_CHECKING:
    from ..model import Policy

_EXAMPLES = """\b
Examples:
  jupyter gpu policy show
  jupyter gpu policy check ~/.jupyter/jupyter_gpu_config.py
  jupyter gpu policy check new.py --against https://gpus.uni.example
"""


@click.command(short_help="Show the rules in force, or what others would change.", epilog=_EXAMPLES)
@click.argument("what", type=click.Choice(["show", "check"]), default="show", metavar="[show|check]")
@click.argument("file", required=False, type=click.Path(), metavar="[FILE]")
@click.option("--against", metavar="URL", help="With check: ask that broker instead of the one that is found here.")
@json_option
@pass_face
def policy(face: Face, what: str, file: str | None, against: str | None) -> None:
    """Show the policy in force, or check one that is not: for operators.

    `check` reads a jupyter_gpu_config.py (or the policy alone as JSON) as the broker would. What cannot be meant is
    said with its line, and the exit code is 2. Else the broker that runs is asked what would change, for whom, if it
    were loaded now: bounds, who would have to yield or counts as borrowed, who would start or have to wait, what would
    be refused. Nothing of it happens; `systemctl reload` (SIGHUP) loads it. The file is Python, and is run.
    """
    if what == "show":
        _show(face, file)
        return
    if file is None:
        raise click.UsageError("check needs a FILE: the config that is to be loaded.")
    from ..policy_files import policy_of_file

    _check(face, policy_of_file(file), against)


def _show(face: Face, file: str | None) -> None:
    if file is not None:
        raise click.UsageError("show takes no FILE: it shows what is in force. `check FILE` looks at another.")
    found = face.client.policy()
    if face.as_json:
        face.document(found)
        return
    import msgspec

    from ..model import Policy

    face.say(f"The policy in force ({found.digest}). What it says beside what ships:")
    differs = _differences(found.policy, Policy())
    face.say(msgspec.json.format(msgspec.json.encode(differs), indent=2).decode() if differs else "Nothing.")
    face.aside("`--json` gives all of it.")


def _differences(policy: Policy, usual: Policy) -> dict[str, Any]:
    names = type(policy).__struct_fields__
    return {name: getattr(policy, name) for name in names if getattr(policy, name) != getattr(usual, name)}


def _check(face: Face, wanted: Policy, against: str | None) -> None:
    from ..core.policy_words import said
    from .text import safe

    face.url = against or face.url
    try:
        found = face.connect(start=False).check_policy(wanted)
    except BrokerUnavailable:
        if face.url is not None:
            raise
        _say_that_nobody_runs(face, wanted)
        return
    if face.as_json:
        face.document(found)
        return
    face.say(f"It can be meant. Loaded now, the policy {found.digest} would change this:")
    for sentence in said(found):
        face.say(f"- {safe(sentence)}")


def _say_that_nobody_runs(face: Face, wanted: Policy) -> None:
    from ..model import PolicyCheckView

    if face.as_json:
        face.document(PolicyCheckView(digest=wanted.digest(), digest_now=""))
        return
    face.say("It can be meant. No broker runs here, so it affects nobody now.")
