"""An example by hand: tokens that name several centroids, and a labelled passage behind the candidates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from colabel.collective import Centroids
from colabel.labels import Flag, QueryLabels
from colabel.pipeline.examples import _example

NAMES = {7: "nut", 8: "oil", 9: "heart"}


def study(tokens: list[int], sigma: list[float], held: dict[int, list[int]]) -> Any:
    """A study of two candidates a query whose centroids have these tokens and σ; row → the tokens of a passage."""
    encoder = SimpleNamespace(tokens=lambda ids: [NAMES[one] for one in ids])
    store = SimpleNamespace(passage_tokens=lambda rows: [np.array(held[row]) for row in rows])
    centroids = Centroids(torch.zeros(1, len(tokens), 2), torch.tensor([sigma]), np.array([tokens], dtype=np.int32))
    index = SimpleNamespace(encoder=encoder, store=store)
    ranking = SimpleNamespace(query=lambda _: (np.array([5, 6], dtype=np.int32), np.array([3.0, 2.0])))
    knowledge = SimpleNamespace(centroids=lambda _: centroids, index=index, ranking=ranking)

    class Passages:
        ids = tuple(f"d{row}" for row in range(10))

        def __getitem__(self, row: int) -> Any:
            return SimpleNamespace(title=f"title {row}", text=f"text {row}")

    dataset = SimpleNamespace(passages=Passages(), queries={"q": "nuts?"}, relevant_from=1, _hidden={"q": {"d6": 1}})
    recipe = SimpleNamespace(study=SimpleNamespace(texts=True), labels=SimpleNamespace(candidates=2))
    return SimpleNamespace(
        first=SimpleNamespace(knowledge=knowledge), bench=SimpleNamespace(dataset=dataset), recipe=recipe
    )


def labels() -> Any:
    """φ ranks 5 and 6; 7 is labelled and was put behind them, where the teacher has it first."""
    found = QueryLabels(
        np.array([5, 6, 7], dtype=np.int32),
        np.array([1.0, 2.0, 9.0], dtype=np.float32),
        np.array([3.0, 2.0, 1.0], dtype=np.float32),
        np.array([Flag.HARD_NEGATIVE, Flag.HARD_NEGATIVE, Flag.LABELLED], dtype=np.uint8),
    )
    return SimpleNamespace(query=lambda _: found)


def test_each_token_is_shown_once_with_its_highest_sigma() -> None:
    held = {5: [1, 9], 6: [7, 7, 8], 7: [7, 8, 9]}
    found = _example(study([8, 7, 7, 9, -1], [4.0, 3.0, 2.0, 1.0, 0.0], held), labels(), "q", 0.5)
    assert [(one.token, one.sigma) for one in found.tokens] == [("oil", 4.0), ("nut", 3.0), ("heart", 1.0)]
    matched = {passage.passage_id: passage.matched for passage in found.passages}
    assert matched == {"d7": ("oil", "nut", "heart"), "d6": ("oil", "nut"), "d5": ("heart",)}


def test_a_passage_behind_the_candidates_has_no_rank_by_phi() -> None:
    found = _example(study([7], [1.0], {5: [], 6: [], 7: []}), labels(), "q", 0.5)
    moves = {one.passage_id: (one.before, one.after, one.labelled, one.hidden_positive) for one in found.passages}
    assert moves == {"d7": (None, 1, True, False), "d6": (2, 2, False, True), "d5": (1, 3, False, False)}
    assert (found.candidates, found.beta) == (2, 0.5)


def test_a_positive_that_an_approximate_ranking_missed_has_no_rank_either() -> None:
    """φ puts 7 first, but the ranking does not hold it: the place among candidates is none of the ranking."""
    missed = labels()
    missed.query("q").base[2] = 9.0
    found = _example(study([7], [1.0], {5: [], 6: [], 7: []}), missed, "q", 0.5)
    assert {one.passage_id: one.before for one in found.passages} == {"d7": None, "d5": 1, "d6": 2}


def test_texts_are_shown() -> None:
    found = _example(study([7], [1.0], {5: [], 6: [], 7: []}), labels(), "q", 0.5)
    assert (found.query, found.passages[0].text) == ("nuts?", "text 7")
