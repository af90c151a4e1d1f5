"""Memory and time of opening a generated collection of a million passages.

python benchmarks/opening.py [--json FILE] [--passages 1000000]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from common import write_report

CHILD = """
import json, sys, time
from pathlib import Path
from colabel.data import load_dataset
start = time.perf_counter()
dataset = load_dataset(sys.argv[1], cache=Path(sys.argv[2]))
opened = time.perf_counter()
for row in range(0, len(dataset.passages), max(1, len(dataset.passages) // 10000)):
    dataset.passages[row]
print(json.dumps({"seconds": opened - start, "status": Path("/proc/self/status").read_text()}))
"""
WORDS = "melt water carves long tunnels through the old ice of a glacier " * 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passages", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="colabel-bench-") as temporary:
        folder = Path(temporary) / "big"
        folder.mkdir()
        with (folder / "corpus.jsonl").open("w") as file:
            for number in range(options.passages):
                file.write(json.dumps({"_id": f"passage-{number}", "title": "", "text": f"{number} {WORDS}"}) + "\n")
        (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "ice"}\n')
        figures = {
            "passages": options.passages,
            "corpus_megabytes": round((folder / "corpus.jsonl").stat().st_size / 1e6),
        }
        for name in ("first", "again"):
            command = [sys.executable, "-c", CHILD, str(folder), str(Path(temporary) / "cache")]
            result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            peak = re.search(r"VmHWM:\s+(\d+) kB", result["status"])
            figures[f"{name}_seconds"] = round(result["seconds"], 1)
            figures[f"{name}_peak_megabytes"] = round(int(peak.group(1)) / 1024) if peak else 0
    for name, value in figures.items():
        print(f"{name:30} {value}")
    write_report(options.json, figures)


if __name__ == "__main__":
    main()
