"""A real JupyterLab in a real browser, beside a story's broker and with folders of its own."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import ConsoleMessage, Locator, Page, expect, sync_playwright

from jupyter_gpu.client import Client

from .scene import Broker, until

#: Where the browser of the system is looked for.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NO_CHROMIUM = "needs Chromium: apt-get install chromium"
#: Where somebody wants pictures; read once, since each test's own environment is clean.
_PICTURES = os.environ.get("JUPYTER_GPU_PICTURES")
#: What a loaded machine may take for one step in the browser.
STEP_MS = 60_000
#: Nothing takes the focus more often than this.
MOST_TYPED = 3
_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
_SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false"},
    "docmanager-extension/plugin": {"autosaveInterval": 2},
}
# Words of the console that are no fault of ours: what Lab itself and others' extensions say.
_NOT_OURS = ("Unsatisfied version", "favicon", "scheduler/", "Could not restore the debugger state")


@dataclass
class Server:
    """A JupyterLab that runs, and the broker it shows."""

    url: str
    token: str
    root: Path
    process: subprocess.Popen[bytes]
    log: Path

    def address(self, notebook: str = "") -> str:
        """Where a browser goes to open a notebook."""
        where = f"/tree/{quote(notebook)}" if notebook else ""
        return f"{self.url}lab{where}?token={self.token}&reset"


@contextlib.contextmanager
def a_lab_server(
    broker: Broker, root: Path, *, notebooks: Mapping[str, Path] | None = None, arguments: tuple[str, ...] = ()
) -> Iterator[Server]:
    """Start JupyterLab on a free port; `notebooks` are copied to where it looks."""
    home, work = root / "home", root / "work"
    work.mkdir(parents=True, exist_ok=True)
    for name, path in (notebooks or {}).items():
        shutil.copyfile(path, work / name)
    _write_settings(home)
    token = secrets.token_hex(16)
    environment = broker.environment | {
        "HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "IPYTHONDIR": str(home / "ipython"),
        # So that `jupyter gpu` is found in its terminals, whether this environment is activated or not.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    argv = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={work}", f"--IdentityProvider.token={token}", "--LabApp.expose_app_in_browser=True",
        *arguments,
    ]  # fmt: skip
    log = root / "lab.log"
    with log.open("wb") as out:
        # A neutral folder: Python would import what lies in its own.
        process = subprocess.Popen(
            # Ctrl-C in a terminal is ours alone: the server would ask whether it is meant.
            argv, cwd=home, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        until(lambda: process.poll() is not None or _running(home / "runtime"), "JupyterLab listens", seconds=90)
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        yield Server(_running(home / "runtime") or "", token, work, process, log)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:  # JupyterLab never ends where a page left while it asked for /lab/api/build
            process.kill()
            process.wait(30)


def disable_the_scheduler(config: Path) -> None:
    """In JupyterLabs with this folder of configuration: it is here as a runner of notebooks that tests play.

    Its entries stand beside ours and are something else, and where its part in the server is off it opens a dialog.
    """
    page = config / "labconfig" / "page_config.json"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(json.dumps({"disabledExtensions": {"@jupyterlab/scheduler": True}}))


def _write_settings(home: Path) -> None:
    folder = home / "settings"
    disable_the_scheduler(home / "config")
    for name, settings in _SETTINGS.items():
        file = folder / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))


def _running(runtime: Path) -> str | None:
    for file in runtime.glob("jpserver-*.json"):
        with contextlib.suppress(ValueError, OSError):  # it is just being written
            return str(json.loads(file.read_text())["url"])
    return None


@dataclass
class Lab:
    """One page of JupyterLab, and what went wrong in it."""

    page: Page
    server: Server
    client: Client
    faults: list[str]

    def part(self, name: str) -> Locator:
        """An element of ours, by its name in `data-gpu`."""
        return self.page.locator(f'[data-gpu="{name}"]')

    def command(self, name: str, **args: Any) -> Any:
        """Run a command of Lab, as its palette does."""
        return self.page.evaluate("([name, args]) => void jupyterapp.commands.execute(name, args)", [name, args])

    def type(self, field: Locator, text: str) -> None:
        """Type into a field. Where something took the focus meanwhile the text went elsewhere, and is typed again."""
        for _ in range(MOST_TYPED):
            field.fill(text)
            if field.input_value() == text:
                return
        expect(field).to_have_value(text)

    def run_all(self, *, timeout_ms: int = STEP_MS) -> None:
        """Run every cell of the notebook and wait until the last has ended."""
        self.page.evaluate(_RUN_ALL)
        self.page.wait_for_function("() => window.gpuStory.done || window.gpuStory.error", timeout=timeout_ms)
        fault = self.page.evaluate("() => window.gpuStory.error") or self.page.evaluate(_FIRST_ERROR)
        assert fault is None, fault

    def execute(self, code: str, *, timeout_ms: int = STEP_MS) -> str:
        """Run code in the notebook's kernel, and say what it printed."""
        handle = self.page.evaluate_handle(_EXECUTE, code)
        return str(self.page.wait_for_function("(it) => it.text", arg=handle, timeout=timeout_ms).json_value())

    def outputs(self) -> list[str]:
        """The text of each code cell's outputs."""
        return list(self.page.evaluate(_OUTPUTS))

    def wait_for_kernel(self) -> str:
        """Wait until the notebook's kernel answers; its id."""
        self.page.wait_for_function("() => window.jupyterapp?.shell.currentWidget?.sessionContext", timeout=STEP_MS)
        return str(self.page.evaluate(_KERNEL))

    def until(self, condition: str, *, timeout_ms: int = STEP_MS) -> None:
        """Wait for something of the page, an expression of JavaScript."""
        self.page.wait_for_function(condition, timeout=timeout_ms)


# Once Lab is restored it opens a launcher, or the notebook of the address, and gives that the focus.
_HAS_THE_FOCUS = "() => jupyterapp.shell.currentWidget?.node.contains(document.activeElement)"
_RUN_ALL = """() => {
  window.gpuStory = {done: false, error: null};
  const widget = jupyterapp.shell.currentWidget;
  widget.sessionContext.ready.then(() => jupyterapp.commands.execute('notebook:run-all-cells'))
    .then(() => { window.gpuStory.done = true; }, error => { window.gpuStory.error = String(error); });
}"""
_EXECUTE = """(code) => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel, it = {text: null};
  let said = '';
  const future = kernel.requestExecute({code, store_history: false});
  future.onIOPub = ({content}) => {
    const wrong = content.ename ? `${content.ename}: ${content.evalue}` : '';
    said += content.text ?? content.data?.['text/plain'] ?? wrong;
  };
  future.done.then(() => { it.text = said || ' '; }, error => { it.text = `lost: ${error}`; });
  return it;
}"""
_OUTPUTS = """() => [...jupyterapp.shell.currentWidget.content.widgets].filter(cell => cell.model.type === 'code')
  .map(cell => cell.model.outputs.toJSON().map(out => [out.text, out.data?.['text/plain'], out.evalue]
    .flat(9).filter(Boolean).join('')).join('\\n'))"""
_FIRST_ERROR = """() => [...jupyterapp.shell.currentWidget.content.widgets].filter(cell => cell.model.type === 'code')
  .flatMap(cell => cell.model.outputs.toJSON()).filter(out => out.output_type === 'error')
  .map(out => `${out.ename}: ${out.evalue}`)[0] ?? null"""
_KERNEL = """async () => {
  const context = jupyterapp.shell.currentWidget.sessionContext;
  await context.ready;
  await context.session.kernel.info;
  return context.session.kernel.id;
}"""


@contextlib.contextmanager
def a_browser(server: Server, client: Client, *, notebook: str = "", dark: bool = False) -> Iterator[Lab]:
    """Open Lab in Chromium, without a window."""
    faults: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and not any(word in message.text for word in _NOT_OURS):
            faults.append(message.text)

    with tempfile.TemporaryDirectory(prefix="jg-chromium-") as profile, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=CHROMIUM, headless=True, args=_FLAGS, viewport={"width": 1400, "height": 1000}
        )
        try:
            page = context.pages[0] if context.pages else context.new_page()
            page.set_default_timeout(STEP_MS)
            page.on("console", note)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.goto(server.address(notebook))
            page.wait_for_function("() => window.jupyterapp?.restored", timeout=STEP_MS)
            page.evaluate("() => jupyterapp.restored.then(() => null)")
            page.wait_for_function(_HAS_THE_FOCUS, timeout=STEP_MS)
            if dark:
                page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
            yield Lab(page, server, client, faults)
        finally:
            context.close()


def pictures_of(lab: Lab, name: str) -> None:
    """Take a picture where somebody asked for some: `JUPYTER_GPU_PICTURES=FOLDER make test ARGS=tests/stories`.

    Those of the docs are taken by `make pictures`.
    """
    if _PICTURES:
        folder = Path(_PICTURES)
        folder.mkdir(parents=True, exist_ok=True)
        lab.page.screenshot(path=folder / f"{name}.png")
