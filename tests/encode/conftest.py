"""A tiny ColBERT for the tests of encoding."""

from __future__ import annotations

from pathlib import Path

import pytest

from colabel.encode import Encoder
from colabel.encode.colbert import load_or_convert
from colabel.settings import EncoderSettings


def settings(model: Path | str, **changes: object) -> EncoderSettings:
    base = {
        "model": str(model),
        "dimension": 16,
        "query_length": 12,
        "passage_length": 24,
        "projection": "random",
        "expand_queries": True,
    }
    return EncoderSettings(**{**base, **changes})


@pytest.fixture(scope="module")
def encoder(tiny_model: Path) -> Encoder:
    return Encoder(load_or_convert(str(tiny_model), settings(tiny_model), "cpu")[0], batch_tokens=64)
