"""One training of a sweep: reads its parameters as any job does, waits for the word to end, leaves its result."""

import json
import os
import sys
import time
from pathlib import Path

folder, lr, index = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
parameters = json.loads(os.environ["JUPYTER_GPU_PARAMETERS"])
place = [int(os.environ[f"JUPYTER_GPU_ARRAY_{word}"]) for word in ("INDEX", "COUNT")]
with Path(os.environ["JUPYTER_GPU_PROGRESS_FILE"]).open("w") as reports:
    reports.write(json.dumps({"step": 1, "of": 2, "loss": lr}) + "\n")
while not (folder / "go").exists():
    time.sleep(0.02)
result = {"lr": lr, "parameters": parameters, "place": place, "loss": (lr - 0.1) ** 2 + parameters["seed"] / 100}
(folder / f"result-{index}.json").write_text(json.dumps(result))
