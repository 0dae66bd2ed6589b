"""What is written about the house agrees with the house."""

import re
from pathlib import Path

import pytest

import jupyter_gpu
from tests.house import generate

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", ".ci/run"]


def test_generated_files_are_fresh():
    """A file that is written from the code is written again when the code changes."""
    assert generate.stale(generate.rendered()) == []


def test_a_stale_file_would_be_noticed():
    """The check of freshness can fail: a missing and a changed file are both named."""
    assert generate.stale({"docs/no-such-page.md": "", "LICENSE": "ours"}) == [
        "docs/no-such-page.md",
        "LICENSE",
    ]


def test_the_changelog_tells_of_this_version():
    """Users read what a version brings before they install it."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    assert f"## [{jupyter_gpu.__version__}]" in changelog


@pytest.mark.parametrize("page", PAGES)
def test_every_make_command_exists(page):
    """Who types what a page says gets what it promises."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = set(
        re.findall(r"^(?:\$ |    )?make ([a-z-]+)|`make ([a-z-]+)", (ROOT / page).read_text(), flags=re.MULTILINE)
    )

    assert {first or second for first, second in named} <= targets


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_link_into_the_house_leads_somewhere(page):
    """A page links only to files that are there."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text(encoding="utf-8"))

    assert [target for target in targets if not (ROOT / target).exists()] == []
