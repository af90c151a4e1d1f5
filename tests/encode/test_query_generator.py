"""Queries that a language model writes: tiny random models of both kinds, what is read, what a kill leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from colabel.artefacts import read_manifest
from colabel.encode import query_generator
from colabel.encode.query_generator import WRITTEN_TOKENS, generate_queries, open_generator
from colabel.errors import UsageError
from colabel.types import Passage

WORDS = "cave ice water glacier tunnel fjord inlet harbour what is the a of Passage : question that answers".split()  # noqa: SIM905
PASSAGES = [Passage(f"p{n}", "", " ".join(WORDS[(n * k) % 9] for k in range(1, 4 + n % 5))) for n in range(12)]


def save_tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: place for place, word in enumerate(["<pad>", "</s>", "<unk>", *WORDS])}
    words = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
    tokenizer.save_pretrained(str(folder))
    return len(vocabulary)


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import T5Config, T5ForConditionalGeneration

    folder = tmp_path_factory.mktemp("reads")
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    config = T5Config(vocab_size=save_tokenizer(folder), **sizes, decoder_start_token_id=0, initializer_factor=9.0)
    T5ForConditionalGeneration(config).save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="module")
def continues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_causal(tmp_path_factory.mktemp("continues"))


def write_causal(folder: Path) -> Path:
    """A GPT-2 of one layer with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 512}
    config = GPT2Config(
        vocab_size=save_tokenizer(folder), **sizes, bos_token_id=1, eos_token_id=1, initializer_range=0.9
    )
    GPT2LMHeadModel(config).save_pretrained(str(folder))
    return folder


@pytest.mark.parametrize("kind", ["reads", "continues"])
def test_each_kind_of_model_writes_one_line_per_passage(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = request.getfixturevalue(kind)
    found = generate_queries(PASSAGES, str(model), tmp_path / "out")
    assert list(found) == [one.id for one in PASSAGES]
    assert len(set(found.values())) > 1, "it depends on the passage"
    assert all(set(text.split()) <= {*WORDS, "<unk>"} for text in found.values()), "no special token, no prompt line"
    assert max(len(text.split()) for text in found.values()) <= WRITTEN_TOKENS
    monkeypatch.setattr(query_generator, "BATCH", 1)
    alone = open_generator(str(model), "cpu")([one.full_text for one in PASSAGES])
    assert alone == list(found.values()), "a batch's padding changes nothing"


def test_a_kill_loses_one_part_and_a_finished_call_opens_no_model(
    continues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_generator, "PART", 5)
    whole = generate_queries(PASSAGES, str(continues), tmp_path / "whole")
    real, asked = query_generator.open_generator, list[int]()

    def killed_at(parts: int) -> Any:
        def opened(model: str, device: str) -> Any:
            ask = real(model, device)

            def counted(texts: Sequence[str]) -> list[str]:
                if len(asked) == parts:
                    raise KeyboardInterrupt
                asked.append(len(texts))
                return ask(texts)

            return counted

        return opened

    monkeypatch.setattr(query_generator, "open_generator", killed_at(2))
    with pytest.raises(KeyboardInterrupt):
        generate_queries(PASSAGES, str(continues), tmp_path / "out")
    monkeypatch.setattr(query_generator, "open_generator", killed_at(9))
    assert generate_queries(PASSAGES, str(continues), tmp_path / "out") == whole and asked == [5, 5, 2]
    monkeypatch.setattr(query_generator, "open_generator", None)
    assert generate_queries(PASSAGES, str(continues), tmp_path / "out") == whole
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["manifest.json", "queries.json"]
    assert read_manifest(tmp_path / "out").counts["queries"] == 12


def test_a_folder_that_cannot_write_is_refused_with_a_remedy(tiny_model: Path, continues: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'pseudo.generator' is .* it is a BertModel; name the folder of a sequence"):
        open_generator(str(tiny_model))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="which cannot write queries"):
        open_generator(str(tmp_path / "empty"))
    with pytest.raises(UsageError, match=r"which cannot write queries: model folder '.*' does not exist"):
        open_generator(str(tmp_path / "none"))
    config = json.loads((continues / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="which cannot write queries"):
        open_generator(str(tmp_path))
