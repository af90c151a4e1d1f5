"""Training queries whose labels collective knowledge changed most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from colabel.evaluation.label_quality import count_hidden, hidden_positives
from colabel.labels import Flag, Labels
from colabel.reporting.records import Example, ExamplePassage, ExampleToken

if TYPE_CHECKING:
    from colabel.pipeline.comparison import Study

_SHOWN = 4  # passages of an example
_TOP = 3


def examples(study: Study) -> tuple[Example, ...]:
    """Queries whose passages rose furthest into the first three places: the sum of the places that they gained.

    Labelled and feedback passages do not count: the centroids come from them, so that they rise by construction.
    """
    count = study.recipe.study.examples
    system = next((one for one in study.systems if one.target == "collective" and study.finished(one.slug)), None)
    if system is None or not count:
        return ()
    labels = study.first.labels(system)
    changes: list[tuple[int, str]] = []
    for block in labels.blocks():
        for place, query_id in enumerate(block.query_ids):
            used = block.rows[place] >= 0
            before, after = places(block.base[place][used]), places(block.teacher[place][used])
            known = (block.flags[place][used] & (Flag.LABELLED | Flag.FEEDBACK)) != 0
            changes.append((int(np.maximum(0, before - after)[(after <= _TOP) & ~known].sum()), query_id))
    best = sorted(changes, key=lambda change: (-change[0], change[1]))[:count]
    return tuple(_example(study, labels, query_id, system.beta) for _, query_id in best)


def _example(study: Study, labels: Labels, query_id: str, beta: float | None) -> Example:
    knowledge, dataset, texts = study.first.knowledge, study.bench.dataset, study.recipe.study.texts
    candidates = study.recipe.labels.candidates
    centroids = knowledge.centroids([query_id])
    sigma = distinct_tokens(centroids.token_ids[0].tolist(), centroids.sigma[0].tolist())
    pieces = dict(zip(sigma, knowledge.index.encoder.tokens(list(sigma)), strict=True))
    tokens = [ExampleToken(pieces[token_id], value) for token_id, value in sigma.items()]
    found = labels.query(query_id)
    ranked = np.isin(found.rows, knowledge.ranking.query(query_id)[0][:candidates])
    before, after = places(np.where(ranked, found.base, -np.inf)), places(found.teacher)
    shown = np.argsort(after)[:_SHOWN].tolist()
    rows = [int(found.rows[place]) for place in shown]
    ids = [dataset.passages.ids[row] for row in rows]
    anything_hidden = count_hidden(dataset) > 0
    hidden = hidden_positives([(query_id, passage_id) for passage_id in ids], dataset)
    passages = []
    for place, row, passage_id, was_hidden in zip(shown, rows, ids, hidden, strict=True):
        held = set(knowledge.index.store.passage_tokens([row])[0].tolist())
        passage = dataset.passages[row]
        passages.append(
            ExamplePassage(
                passage_id,
                passage.title if texts else "",
                passage.text if texts else "",
                before=int(before[place]) if ranked[place] else None,
                after=int(after[place]),
                labelled=bool(found.flags[place] & Flag.LABELLED),
                hidden_positive=was_hidden if anything_hidden else None,
                matched=tuple(piece for token_id, piece in pieces.items() if token_id in held),
            )
        )
    query = dataset.queries[query_id] if texts else ""
    return Example(query_id, query, tuple(tokens), tuple(passages), candidates, beta)


def distinct_tokens(token_ids: Sequence[int], sigma: Sequence[float]) -> dict[int, float]:
    """Token → σ of a query's centroids, which come by falling σ: one token may name several, and is shown once.

    >>> distinct_tokens([8, 7, 7, -1], [4.0, 3.0, 2.0, 0.0])
    {8: 4.0, 7: 3.0}
    """
    found: dict[int, float] = {}
    for token_id, value in zip(token_ids, sigma, strict=True):
        if token_id >= 0:
            found.setdefault(token_id, value)
    return found


def places(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Places 1, 2, … of scores, best first, equal ones in their order.

    >>> places(np.array([0.5, 2.0, 0.5], dtype=np.float32)).tolist()
    [2, 1, 3]
    """
    found = np.empty(len(scores), dtype=np.int64)
    found[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return found
