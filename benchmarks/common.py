"""What every benchmark records about itself: hardware, versions and commit."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any


def environment() -> dict[str, Any]:
    model = ""
    if Path("/proc/cpuinfo").exists():
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else ""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    ).stdout.strip()
    libraries = ("torch", "faiss-cpu", "sentence-transformers", "numpy")
    return {
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in libraries},
        "commit": commit,
    }


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """Median wall-clock seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def write_report(path: Path | None, figures: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps({"environment": environment(), **figures}, indent=2) + "\n", encoding="utf-8")
