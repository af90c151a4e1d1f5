"""Run every benchmark, one after the other, and keep the figures as JSON: ``make bench``.

Each benchmark is its own program that prints a table and writes a JSON file with hardware, versions and commit;
here into ``benchmarks/results/local/``, since the committed files beside it (from which ``make docs`` writes
``docs/figures.md``) may be of other collections. Run nothing else at the same time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ("run", "common"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which benchmarks; default: all of {', '.join(names())}")
    chosen = parser.parse_args().names or names()
    place = HERE / "results" / "local"
    place.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        print(f"\n== {name}", flush=True)
        command = [sys.executable, str(HERE / f"{name}.py"), "--json", str(place / f"{name}.json")]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
