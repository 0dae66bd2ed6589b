"""What comes after a sweep: finds the best of the results that lie there."""

import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])
results = [json.loads(path.read_text()) for path in sorted(folder.glob("result-*.json"))]
best = min(results, key=lambda it: it["loss"])
(folder / "summary.json").write_text(json.dumps({"results": len(results), "best": best["parameters"]}))
print(f"best of {len(results)}: {best['parameters']}")
