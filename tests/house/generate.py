"""Write the generated files (`make generate`), or with --check only say which are stale (`make lint`)."""

import importlib
import pkgutil
import sys
from pathlib import Path

from tests.house import generators

ROOT = Path(__file__).parents[2]


def rendered() -> dict[str, str]:
    """Give the text that each generated file should have."""
    names = sorted(module.name for module in pkgutil.iter_modules(generators.__path__))
    modules = [importlib.import_module(f"{generators.__name__}.{name}") for name in names]
    return {module.TARGET: module.render() for module in modules}


def stale(texts: dict[str, str]) -> list[str]:
    """Name the files that do not say what the code says."""
    return [target for target, text in texts.items() if _read(ROOT / target) != text]


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: list[str]) -> int:
    """Write or check; a stale file under --check is a failure."""
    texts = rendered()
    old = stale(texts)
    if "--check" in arguments:
        for target in old:
            print(f"{target} is stale: run `make generate` and commit it", file=sys.stderr)
        return 1 if old else 0
    for target in old:
        path = ROOT / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[target], encoding="utf-8")
        print(f"wrote {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
