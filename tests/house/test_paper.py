"""What is written about the house agrees with the house."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import jupyter_gpu
from jupyter_gpu.broker.app import GpuBroker
from jupyter_gpu.model import Condition, Policy
from jupyter_gpu.policies import read_policy
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


ADMIN = (ROOT / "docs/admin.md").read_text(encoding="utf-8")
DEVICES = (ROOT / "docs/devices.md").read_text(encoding="utf-8")


def _configured(page: str) -> list[dict]:
    """Run each example of a config, as traitlets would, and give what it sets of the broker."""
    found = []
    for example in re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL):
        c = SimpleNamespace(GpuBroker=SimpleNamespace(), GpuExtension=SimpleNamespace())
        exec(example, {"c": c})  # noqa: S102 - our own page
        found.append(vars(c.GpuBroker))
    return found


@pytest.mark.parametrize("example", [it for it in _configured(ADMIN + DEVICES) if it], ids=",".join)
def test_every_example_of_a_config_can_be_meant(example):
    """Who copies it gets a broker that starts: each name is a trait, and the policy is accepted."""
    assert set(example) - {"policy"} <= set(GpuBroker.class_trait_names(config=True))
    GpuBroker(**{name: value for name, value in example.items() if name != "policy"})
    if "policy" in example:
        assert read_policy(example["policy"]) != Policy()


@pytest.mark.parametrize("setting", Policy.__struct_fields__)
def test_every_setting_is_described(setting):
    """What can be set is named on the admin's page."""
    assert re.search(rf"[`\"]{setting}[`\"]", ADMIN)


@pytest.mark.parametrize("condition", Condition)
def test_every_condition_is_described(condition):
    """What a GPU can suffer, how it is shown, and how it ends."""
    from jupyter_gpu.cli.text import CONDITIONS

    assert f"| `{condition}` | {CONDITIONS[condition]} |" in DEVICES


@pytest.mark.parametrize("page", sorted(it.name for it in (ROOT / "docs").glob("*.md")))
def test_every_link_between_the_pages_leads_somewhere(page):
    """To a page that is there, and to a heading of it."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        place = ROOT / "docs" / (target or page)
        assert place.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert heading in {re.sub(r"[^a-z0-9 -]", "", it.lower()).replace(" ", "-") for it in titles}, heading
