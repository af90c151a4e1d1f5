"""Train cross-encoders from the same sparse labels: the teachers that collective knowledge is compared with.

sentence-transformers' trainer, made silent, deterministic and safe to kill.
"""

from __future__ import annotations

import logging
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.util import batch_to_device
from transformers import AutoConfig, PrinterCallback, set_seed

from colabel.artefacts import Spec, Workspace, build
from colabel.data import Dataset
from colabel.encode.encoder import length_batches, no_progress_bars
from colabel.encode.weights import check_exists, resolve_model, weights_fingerprint
from colabel.errors import DataError, UsageError
from colabel.progress import SILENT, Progress
from colabel.ranking import Ranking
from colabel.settings import CrossEncoderSettings, FitSettings
from colabel.teachers.pair_model import PairReader, load_cross_encoder
from colabel.train.callbacks import RunLog, last_checkpoint, memory_in_words, read_log
from colabel.train.distributed import process_count
from colabel.train.groups import PASSAGE, QUERY, Groups, GroupTexts, candidates_from_ranking, draw_groups
from colabel.train.loop import CHECKPOINTS, SafeTrainer, check_device, choose_precision, common_arguments

log = logging.getLogger(__name__)

STAGE = "cross-encoder"
PAIR_LOG_FILE = "training.jsonl"
HARD_CANDIDATES = 100  # top-ranked passages from which hard negatives are drawn: those that labels hold by default
RANDOM_NEGATIVES = 2  # of a group, at most; without any, a fresh cross-encoder hardly begins to learn
WARMUP = 0.1  # share of the steps in which the learning rate rises
WEIGHT_DECAY = 0.01
_TOGETHER = 4096  # padded tokens that go through the model at once
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
    """Train a cross-encoder on labelled passages against hard and random negatives, write it to ``out``, return that.

    The folder is a sentence-transformers checkpoint that gives raw logits, with ``training.jsonl`` beside it (loss,
    learning rate and gradient norm of every step). The same call continues an interrupted training from its last save
    point, to the same weights.

    Args:
        negatives: a ranking of the split's queries over this collection, BM25's or θ's.
        model: what it is trained from: 'minilm', a folder or a hub id; ':3' behind it keeps the lower three layers.
    """
    settings = settings or CrossEncoderSettings()
    place = check_device(device)
    name, layers = split_layers(model)
    weights = resolve_model(name)
    check_exists(weights)
    constants = {
        "loss": "listwise",
        "random_negatives": min(RANDOM_NEGATIVES, settings.negatives),
        "pool": HARD_CANDIDATES,
        "warmup": WARMUP,
        "weight_decay": WEIGHT_DECAY,
    }
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
        queries = [dataset.queries[query_id] for query_id in groups.candidates.query_ids]
        train_pairs(base, GroupTexts(dataset, groups), queries, settings, seed, space, progress)
        base.activation_fn = torch.nn.Identity()  # whoever loads it gets the scores that we get
        with no_progress_bars():
            base.save_pretrained(str(space.folder), create_model_card=False)
        counts = {"queries": len(groups.candidates), "pairs": len(groups) * groups.size, "filled": groups.filled}
        losses = [line["loss"] for line in read_log(space.folder / PAIR_LOG_FILE)[-_LAST:]]
        loss, guessing = sum(losses) / max(1, len(losses)), math.log(1 + settings.negatives)
        if loss > _LEARNT * guessing:
            log.warning(
                "the cross-encoder from '%s' has hardly learnt anything in %d steps: its loss is %.3f, that of "
                "guessing %.3f. Raise 'cross_encoder.steps', try another 'learning_rate', or name trained "
                "'cross_encoder.checkpoints'",
                *(model, settings.steps, loss, guessing),
            )
        return {"base": model, **counts, "loss": round(loss, 6)}

    kept = {**settings.effective(), **constants, "layers": layers, "split": split}
    build(out, Spec(STAGE, kept, inputs, seed=seed), write)
    return out


def _groups(dataset: Dataset, negatives: Ranking, split: str, settings: CrossEncoderSettings, seed: int) -> Groups:
    """The groups of all steps: hard negatives, and some from the whole collection."""
    candidates = candidates_from_ranking(dataset, negatives, depth=HARD_CANDIDATES, split=split)
    if candidates.unranked:
        ranked = len(candidates) - candidates.unranked
        raise DataError(
            f"{negatives.folder} ranks {ranked} of the {len(candidates)} labelled queries of the split '{split}'; rank "
            "that split and take its ranking"
        )
    count, size = settings.steps * settings.batch_queries, 1 + settings.negatives
    anywhere = min(RANDOM_NEGATIVES, settings.negatives)
    return draw_groups(candidates, count=count, size=size, seed=seed, anywhere=anywhere)


def split_layers(model: str) -> tuple[str, int | None]:
    """A model name and how many of its layers are kept; an existing folder is taken literally.

    >>> split_layers("minilm:3"), split_layers("minilm")
    (('minilm', 3), ('minilm', None))
    """
    found = re.fullmatch(r"(.+):([0-9]{1,4})", model)
    if found is None or Path(model).is_dir():
        return model, None
    return found[1], int(found[2])


def share_of_layers(model: str) -> float:
    """The share of a model's layers that its name keeps; 1 where they cannot be counted: training says so."""
    name, layers = split_layers(model)
    try:
        return 1.0 if layers is None else min(1.0, layers / _layers(resolve_model(name)))
    except UsageError:
        return 1.0


def _load_base(weights: str, layers: int | None, device: str, seed: int) -> CrossEncoder:
    """The base model with a fresh head, the same for the same seed."""
    if layers is not None:
        total = _layers(weights)
        if not 1 <= layers <= total:
            raise UsageError(f"'{weights}' has {total} layers; {layers} of them cannot be kept (expected 1 to {total})")
    set_seed(seed)
    return load_cross_encoder(weights, device, new_head=True, layers=layers)


def _layers(weights: str) -> int:
    try:
        return int(AutoConfig.from_pretrained(weights).num_hidden_layers)
    except (OSError, ValueError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(f"the layers of '{weights}' cannot be counted: {reason}; name it without ':LAYERS'") from None


class PairLoss(torch.nn.Module):
    """The listwise loss of groups, a query with its labelled passage first: −ln softmax(s)₀, the mean over groups."""

    def __init__(self, model: CrossEncoder, reader: PairReader) -> None:
        super().__init__()
        self.model = model
        self._reader = reader

    def forward(
        self, inputs: list[Any], labels: object = None, prompt: str | None = None, task: str | None = None
    ) -> torch.Tensor:
        """The loss, float32 []; ``inputs`` are queries [groups] and their passages [groups][1 + n]."""
        queries, passages = inputs
        pairs = [(query, passage) for query, found in zip(queries, passages, strict=True) for passage in found]
        places, parts = [], []
        counts = (self._reader.count_tokens(texts) for texts in zip(*pairs, strict=True))
        lengths = [self._reader.pair_length(*both) for both in zip(*counts, strict=True)]
        for batch in length_batches(lengths, _TOGETHER):  # short pairs are not padded to the longest of the step
            chosen = [pairs[place] for place in batch]
            features = self.model.preprocess(chosen, prompt=prompt, task=task, processing_kwargs=self._reader.options)
            parts.append(self.model(batch_to_device(features, self.model.device))["scores"].view(-1).float())
            places += batch
        order = torch.tensor(places, device=parts[0].device).argsort()
        scores = torch.cat(parts)[order].view(len(queries), -1)
        return torch.nn.functional.cross_entropy(scores, scores.new_zeros(len(scores), dtype=torch.long))


def train_pairs(
    model: CrossEncoder,
    texts: GroupTexts,
    queries: Sequence[str],
    settings: CrossEncoderSettings,
    seed: int,
    space: Workspace,
    progress: Progress,
) -> None:
    """Train ``model`` in place over the groups in their order, from the last save point if there is one.

    ``queries`` are all that may come: those too long to leave room for a passage are cut, and reported, once.
    """
    folder = space.folder
    reader = PairReader(model, settings.max_length)
    cut = dict(zip(queries, reader.fit_queries(queries), strict=True))

    def collate(groups: list[dict[str, Any]]) -> dict[str, list[Any]]:
        return {QUERY: [cut[group[QUERY]] for group in groups], PASSAGE: [group[PASSAGE] for group in groups]}

    device = model.device.type
    arguments = CrossEncoderTrainingArguments(
        **common_arguments(folder / CHECKPOINTS, seed, choose_precision(FitSettings(), device), device),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_queries,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=WARMUP,
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=1.0,
        logging_steps=1,
        dataloader_pin_memory=False,
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # else each batch would be split over all devices
    trainer = PairTrainer(
        model=model,
        args=arguments,
        train_dataset=texts,
        loss=PairLoss(model, reader),
        data_collator=collate,  # type: ignore[arg-type] # any function will do
    )
    task = progress.start("training the cross-encoder", settings.steps, "steps")
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(RunLog(folder / PAIR_LOG_FILE, task, space.keep_time))
    memory = memory_in_words(
        f"{settings.batch_queries} queries × {1 + settings.negatives} passages per step of the cross-encoder",
        "lower 'cross_encoder.batch_queries', 'cross_encoder.negatives' or 'cross_encoder.max_length'",
    )
    try:
        with memory, no_progress_bars():
            trainer.train(resume_from_checkpoint=last_checkpoint(folder / CHECKPOINTS))
    finally:
        task.close()
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


class PairTrainer(SafeTrainer, CrossEncoderTrainer):
    """Trains cross-encoders."""

    advice = ": 'cross_encoder.learning_rate'"
