"""Fixtures that many tests share: small collections on disk, and the real ones where they are present."""

from __future__ import annotations

import gzip
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A slow or busy machine must not fail a property: how long an example takes says nothing about the code.
settings.register_profile("colabel", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("colabel")

SHARED = Path(os.environ.get("COLABEL_SHARED") or Path(__file__).resolve().parents[2] / "shared")
"""The folder whose ``data`` holds real collections; tests that need one are skipped without it."""


@pytest.fixture(autouse=True)
def unheard_warnings() -> None:
    """A process says each warning once, and the demo none: a test must not depend on what another has run."""
    for handler in logging.getLogger().handlers[:]:  # of a command that ran in this process, to a stream that is gone
        if isinstance(handler, logging.StreamHandler) and getattr(handler.stream, "closed", False):
            logging.getLogger().removeHandler(handler)
    encoder = sys.modules.get("colabel.encode.encoder")
    if encoder is not None:
        encoder.warn_once.cache_clear()
        encoder.log.setLevel(logging.NOTSET)


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """Folder of a real collection; the test is skipped where it is absent."""

    def folder(name: str) -> Path:
        path = SHARED / "data" / name
        if not path.is_dir():
            pytest.skip(f"the real collection '{name}' is not on this machine")
        return path

    return folder


def kill_once(there: Callable[[], bool], command: Sequence[str], seconds: float = 120) -> None:
    """Start a program, and kill it as ``kill -9`` does once something is there (or after so many seconds)."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and child.poll() is None and not there():
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait(30)


Call = Callable[..., tuple[int, str, str]]
Said = Callable[..., str]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command line within this process: exit code, stdout, stderr."""
    from colabel.cli import main

    def typed(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return int(stop.value.code or 0), captured.out, captured.err

    return typed


@pytest.fixture
def said(call: Call) -> Said:
    """Run a command that has to succeed: what it says on stdout."""

    def typed(*arguments: object) -> str:
        code, out, err = call(*arguments)
        assert code == 0, err
        return out

    return typed


PASSAGES = [
    {"_id": "d1", "title": "Glacier cave", "text": "A cave formed within the ice of a glacier."},
    {"_id": "d2", "title": "", "text": "Melt water carves tunnels through the ice."},
    {"_id": "d3", "title": "Harbour", "text": ""},
    {"_id": "d4", "title": "Fjord", "text": "A long narrow inlet with steep sides, made by a glacier."},
    {"_id": "d5", "title": "Été", "text": "Une saison. 夏 is the same season."},
]
QUERIES = {
    "q1": "how are glacier caves formed",
    "q2": "what is a fjord",
    "q3": "summer",
    "q4": "harbour",
    "q5": "tunnels in ice",
}
LABELS = {
    "train": [("q1", "d1", 2), ("q1", "d2", 1), ("q1", "d4", 1), ("q3", "d5", 1), ("q3", "d1", 0)],
    "dev": [("q4", "d3", 1)],
    "test": [("q2", "d4", 2), ("q5", "d2", 1), ("q5", "d1", 1)],
}


@pytest.fixture
def write_beir(tmp_path: Path) -> Callable[..., Path]:
    """Write a small BEIR folder; parts can be replaced by raw text to break them."""

    def write(name: str = "caves", *, gzipped: bool = False, **raw: str | bytes | None) -> Path:
        folder = tmp_path / name
        (folder / "qrels").mkdir(parents=True)
        files: dict[str, str | bytes | None] = {
            "corpus.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in PASSAGES),
            "queries.jsonl": "".join(json.dumps({"_id": q, "text": t}) + "\n" for q, t in QUERIES.items()),
        }
        for split, labels in LABELS.items():
            rows = "".join(f"{query}\t{passage}\t{grade}\n" for query, passage, grade in labels)
            files[f"qrels/{split}.tsv"] = "query-id\tcorpus-id\tscore\n" + rows
        files |= {key.replace("__", "/") + (".tsv" if "__" in key else ".jsonl"): value for key, value in raw.items()}
        for path, content in files.items():
            if content is None:
                continue
            data = content.encode() if isinstance(content, str) else content
            (folder / path).parent.mkdir(exist_ok=True)
            if gzipped:
                (folder / f"{path}.gz").write_bytes(gzip.compress(data))
            else:
                (folder / path).write_bytes(data)
        return folder

    return write


WORDS = """a the of in is by to and how what are cave caves glacier ice melt water tunnels formed within through carves
fjord long narrow inlet with steep sides made harbour summer season old une same""".split()  # noqa: SIM905


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer BERT with random weights and a vocabulary of a few dozen pieces: real code paths, no download."""
    import string

    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny") / "bert"
    folder.mkdir()
    letters = [piece for letter in string.ascii_lowercase for piece in (letter, f"##{letter}")]
    special = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = list(dict.fromkeys([*special, *string.punctuation, *letters, *WORDS]))
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"), do_lower_case=True, model_max_length=64)
    tokenizer.save_pretrained(str(folder))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,  # large enough for contexts to matter
    )
    BertModel(config).save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="session")
def tiny_cross_encoder(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny BERT with a random head, saved as a cross-encoder: its scores mean nothing and differ enough."""
    import torch
    from sentence_transformers import CrossEncoder

    folder = tmp_path_factory.mktemp("tiny") / "cross-encoder"
    torch.manual_seed(1)
    model = CrossEncoder(str(tiny_model), num_labels=1, device="cpu", model_kwargs={"dtype": torch.float32})
    with torch.no_grad():
        model.model.classifier.weight.mul_(50)  # type: ignore[union-attr, operator]
    model.save(str(folder), create_model_card=False)
    return folder
