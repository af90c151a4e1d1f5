"""Where ray is not installed, nothing needs it, and asking for it gives a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
sys.modules["ray"] = None
from colabel.cli import main
main(["index", {data!r}, "--set", "compute.engine=ray", "--out", {out!r}])
"""


def test_the_sentence_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "text": "ice"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "ice"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    code = CODE.format(data=str(tmp_path), out=str(tmp_path / "index"))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert (
        ended.stderr.strip()
        == "colabel: 'compute.engine = \"ray\"' needs ray: pip install 'colabel[ray]' (in a clone: '.[ray]')"
    )
