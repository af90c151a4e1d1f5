"""From groups to what the model sees: texts are read when their step comes, tokenised exactly as for searching.

A group's label is a row of integers, [query number, passage rows …], which the trainer hands through to the loss: with
it the loss finds teacher scores and known positives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.multi_vector_encoder.data_collator import MultiVectorEncoderDataCollator
from torch.utils.data import Dataset as TorchDataset

from colabel.data import Dataset
from colabel.train.groups import Groups

QUERY, PASSAGE = "query", "passage"
"""The two columns of a batch. All passages of a batch are one column: many small forward passes are slower than one."""


class GroupTexts(TorchDataset[dict[str, Any]]):
    """Group number → query text, passage texts and label. Nothing is held in memory but the groups themselves."""

    column_names = (QUERY, PASSAGE, "label")  # the trainer asks for them

    def __init__(self, dataset: Dataset, groups: Groups) -> None:
        self._dataset = dataset
        self._groups = groups

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, number: int) -> dict[str, Any]:
        query = int(self._groups.queries[number])
        rows = self._groups.rows[number].tolist()
        return {
            QUERY: self._dataset.queries[self._groups.pool.query_ids[query]],
            PASSAGE: [self._dataset.passages[row].full_text for row in rows],
            "label": [query, *rows],
        }


@dataclass
class Collator(MultiVectorEncoderDataCollator):
    """A list of groups → one batch of features.

    ``query_*`` are features of B queries, ``passage_*`` of B·(1 + n) passages, group after group, ``label`` int64
    [B, 2 + n].
    """

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Flatten and tokenise."""
        texts = {
            QUERY: [group[QUERY] for group in features],
            PASSAGE: [text for group in features for text in group[PASSAGE]],
        }
        batch: dict[str, Any] = {"label": torch.tensor([group["label"] for group in features], dtype=torch.int64)}
        prompts = self.prompts if isinstance(self.prompts, dict) else {}
        for column, task in ((QUERY, "query"), (PASSAGE, "document")):
            tokenised = self.preprocess_fn(texts[column], prompt=prompts.get(column), task=task)
            batch |= {f"{column}_{name}": value for name, value in tokenised.items()}
            batch[f"{column}_task"] = task
        return batch


def collator_for(model: MultiVectorEncoder) -> Collator:
    """A collator with the model's own prompts, that is with its marker tokens, which the trainer would leave out."""
    prompts = {QUERY: model.prompts.get("query") or "", PASSAGE: model.prompts.get("document") or ""}
    return Collator(preprocess_fn=model.preprocess, prompts=prompts)
