"""Train a cross-encoder from the same sparse labels, as the dear teacher that collective knowledge is compared with."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colabel.artefacts import Plan, Workspace, build
from colabel.data import Dataset
from colabel.encode.quiet import no_progress_bars
from colabel.encode.weights import check_exists, resolve_model, weights_fingerprint
from colabel.errors import DataError, UsageError
from colabel.progress import SILENT, Progress
from colabel.ranking import Ranking
from colabel.settings import CrossEncoderSettings
from colabel.teachers.pairs import load_cross_encoder
from colabel.train.fit import check_device, choose_precision
from colabel.train.groups import Groups, draw_groups
from colabel.train.pool import pool_from_ranking
from colabel.train.processes import process_count

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

log = logging.getLogger(__name__)

STAGE = "cross-encoder"
_OTHER = (
    "models",
    "checkpoints",
    "batch_tokens",
    "save_seconds",
)  # settings that do not change what one training gives
_LEARNT = 0.95  # of the loss of guessing, below which something was learnt
_LAST = 20  # steps over which the loss at the end is averaged


def train_cross_encoder(
    dataset: Dataset,
    negatives: Ranking,
    model: str,
    out: Path,
    *,
    settings: CrossEncoderSettings | None = None,
    split: str = "train",
    seed: int = 0,
    device: str = "auto",
    progress: Progress = SILENT,
) -> Path:
    """Train a cross-encoder on labelled passages against hard and random negatives and write it to ``out``.

    The folder is a sentence-transformers checkpoint that gives raw logits, with ``training.jsonl`` beside it (loss,
    learning rate and gradient norm of every step). The same call continues an interrupted training from its last save
    point, to the same weights.

    Args:
        negatives: a ranking of the split's queries over this collection, BM25's or θ's.
        model: what it is trained from: 'minilm', a folder or a hub id; ':3' behind it keeps the lower three layers.

    Returns:
        ``out``.
    """
    settings = settings or CrossEncoderSettings()
    place = check_device(device)
    precision = choose_precision(settings, place)
    name, layers = split_layers(model)
    weights = resolve_model(name)
    check_exists(weights)
    kept = {key: value for key, value in settings.as_dict().items() if key not in _OTHER}
    if settings.precision == "auto" or place == "cpu":  # nobody chose, or there is no choice
        del kept["precision"]
    inputs = {
        "weights": weights_fingerprint(weights),
        "passages": dataset.passages.fingerprint,
        "labels": dataset.labels_fingerprint(split),
        "negatives": negatives.manifest.fingerprint,
    }

    def write(space: Workspace) -> Mapping[str, Any]:
        if process_count() > 1:
            raise UsageError("a cross-encoder is trained by one process; run the command once without torchrun first")
        groups = _groups(dataset, negatives, split, settings, seed)
        base = _load_base(weights, layers, place, seed)
        _train(base, dataset, groups, settings, space, seed, precision, progress)
        counts = {"queries": len(groups.pool), "pairs": len(groups) * groups.size, "filled": groups.filled}
        loss = _final_loss(space.folder)
        _tell_whether_it_learnt(model, loss, settings)
        return {"base": model, **counts, "loss": loss}

    build(out, Plan(STAGE, {**kept, "layers": layers, "split": split}, inputs, seed=seed), write)
    return out


def _tell_whether_it_learnt(model: str, loss: float, settings: CrossEncoderSettings) -> None:
    guessing = math.log(1 + settings.negatives)
    if settings.loss == "listwise" and loss > _LEARNT * guessing:
        log.warning(
            "the cross-encoder from '%s' has learnt next to nothing in %d steps: its loss is %.3f, guessing's %.3f. "
            "Raise 'cross_encoder.steps' or 'random_negatives', try another 'learning_rate', or name finished "
            "'cross_encoder.checkpoints'",
            model,
            settings.steps,
            loss,
            guessing,
        )


def _groups(dataset: Dataset, negatives: Ranking, split: str, settings: CrossEncoderSettings, seed: int) -> Groups:
    """The groups of all steps: hard negatives, and some from the whole collection."""
    pool = pool_from_ranking(dataset, negatives, depth=settings.pool, split=split)
    if pool.unranked:
        raise DataError(
            f"{negatives.folder} ranks {len(pool) - pool.unranked} of the {len(pool)} labelled queries of the split "
            f"'{split}'; rank that split and take its ranking"
        )
    return draw_groups(
        pool,
        count=settings.steps * settings.batch_queries,
        size=1 + settings.negatives,
        seed=seed,
        anywhere=settings.random_negatives,
    )


def split_layers(model: str) -> tuple[str, int | None]:
    """A model name and how many of its layers are kept; a folder that exists is taken as it stands.

    >>> split_layers("minilm:3"), split_layers("minilm")
    (('minilm', 3), ('minilm', None))
    """
    found = re.fullmatch(r"(.+):([0-9]{1,4})", model)
    if found is None or Path(model).is_dir():
        return model, None
    return found[1], int(found[2])


def share_of_layers(model: str) -> float:
    """How many of a model's layers its name keeps; 1 where they cannot be counted, which training would tell."""
    name, layers = split_layers(model)
    try:
        return 1.0 if layers is None else min(1.0, layers / _layers(resolve_model(name)))
    except UsageError:
        return 1.0


def _load_base(weights: str, layers: int | None, device: str, seed: int) -> CrossEncoder:
    """The base model with a fresh head, the same for the same seed."""
    from transformers import set_seed

    if layers is not None:
        total = _layers(weights)
        if not 1 <= layers <= total:
            raise UsageError(f"'{weights}' has {total} layers; {layers} of them cannot be kept (expected 1 to {total})")
    set_seed(seed)
    return load_cross_encoder(weights, device, new_head=True, layers=layers)


def _layers(weights: str) -> int:
    from transformers import AutoConfig

    try:
        return int(AutoConfig.from_pretrained(weights).num_hidden_layers)
    except (OSError, ValueError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(f"the layers of '{weights}' cannot be counted: {reason}; name it without ':LAYERS'") from None


def _train(
    base: CrossEncoder,
    dataset: Dataset,
    groups: Groups,
    settings: CrossEncoderSettings,
    space: Workspace,
    seed: int,
    precision: str,
    progress: Progress,
) -> None:
    from torch.nn import Identity

    from colabel.train.batches import GroupTexts
    from colabel.train.pair_trainer import train_pairs

    queries = [dataset.queries[query_id] for query_id in groups.pool.query_ids]
    texts = GroupTexts(dataset, groups)
    train_pairs(
        base,
        texts,
        settings,
        space.folder,
        queries=queries,
        seed=seed,
        precision=precision,
        progress=progress,
        saved=space.keep_time,
    )
    base.activation_fn = Identity()  # whoever loads it gets the scores that we get
    with no_progress_bars():
        base.save_pretrained(str(space.folder), create_model_card=False)


def _final_loss(folder: Path) -> float:
    """Mean loss of the last steps."""
    from colabel.train.logs import read_log
    from colabel.train.pair_trainer import LOG_FILE

    losses = [float(line["loss"]) for line in read_log(folder / LOG_FILE)[-_LAST:]]
    return round(sum(losses) / max(1, len(losses)), 6)
