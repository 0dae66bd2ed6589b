"""What runs beside every job is small: no third-party module, no thread, nothing of the broker."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import jupyter_gpu.broker.engines
from jupyter_gpu.broker.engines import launcher

ENGINES = Path(jupyter_gpu.broker.engines.__file__).parent
LIGHT = (
    "bpf",
    "cgroup",
    "child",
    "containers",
    "ending",
    "files",
    "inside",
    "isolation",
    "joblog",
    "landlock",
    "launcher",
    "notice",
    "outside",
    "procs",
    "reports",
    "saved",
    "shortage",
    "supervisor",
    "verdict",
)
#: What few attempts need, and load when they do: those in containers.
LATER = ("errand",)
#: What lies above, since others use it as well.
SHARED = {"checkpoints", "exits", "opening", "pins"}
SHARED_LATER = {"hearing"}


def test_the_launcher_imports_only_the_standard_library_and_its_own_few():
    """Started as the broker starts it, it has none of the broker's modules, and no thread."""
    words = launcher.command(0)
    code = words[words.index("-c") + 1].replace("; main()", "")
    code += "; import json, os; print(json.dumps([sorted(sys.modules), os.listdir('/proc/self/task')]))"
    words[words.index("-c") + 1] = code
    modules, threads = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    ours = {name for name in modules if name.startswith("jupyter_gpu")}
    assert ours == {"jupyter_gpu", "jupyter_gpu.broker", "jupyter_gpu.broker.engines"} | {
        *(f"jupyter_gpu.{name}" for name in SHARED),
        *(f"jupyter_gpu.broker.engines.{name}" for name in LIGHT),
    }
    heavy = {"msgspec", "asyncio", "tornado", "subprocess", "threading", "sqlite3", "ssl", "site", "pynvml", "logging"}
    heavy |= {"typing", "dataclasses", "inspect", "pathlib", "shutil", "socket", "traceback"}  # a megabyte or more
    assert not heavy & set(modules)
    tops = {name.partition(".")[0] for name in modules if not name.startswith(("_", "jupyter_gpu"))}
    assert tops <= sys.stdlib_module_names | {"__main__"}
    assert len(threads) == 1


def test_the_light_modules_import_each_other_and_the_standard_library_only():
    """Also on the paths that the test above did not load."""
    for name in (*LIGHT, *LATER):
        for node in ast.walk(ast.parse((ENGINES / f"{name}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                wanted = {node.module} if node.module else {alias.name for alias in node.names}
                assert wanted <= {*LIGHT, *LATER}, name
            elif isinstance(node, ast.ImportFrom) and node.level:
                assert {node.module or alias.name for alias in node.names} <= SHARED | SHARED_LATER, name
            elif isinstance(node, ast.ImportFrom):
                assert str(node.module).partition(".")[0] in sys.stdlib_module_names, name
            elif isinstance(node, ast.Import):
                assert all(alias.name in sys.stdlib_module_names for alias in node.names), name
