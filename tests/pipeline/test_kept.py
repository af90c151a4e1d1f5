"""Figures that are taken once, and again when what they depend on changes or their file is damaged."""

from __future__ import annotations

from pathlib import Path

from colabel.pipeline.kept import measured_once


class Clock:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> dict[str, float]:
        self.asked += 1
        return {"median": float(self.asked)}


def test_taken_once(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "trials" / "0.json"
    for _ in range(2):
        assert measured_once(file, ["weights", 50], clock) == {"median": 1.0}
    assert measured_once(file, ["weights", 10], clock) == {"median": 2.0}, "another number of queries"
    for damaged in ("", "[]", '{"key": 1}', '{"milliseconds": {"median": 9}}'):
        file.write_text(damaged)
        before = clock.asked
        assert measured_once(file, ["weights", 10], clock) == {"median": before + 1.0}
