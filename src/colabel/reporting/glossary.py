"""What the rows of a study and the symbols of the paper stand for, a line each."""

from __future__ import annotations

import re

from colabel.reporting.document import StudyDocument
from colabel.reporting.parts import Cell, Column, Folded, Row, Section, table

_SYSTEMS = {
    "bm25": "words alone, no model",
    "zero-shot": "late interaction with the encoder as it is before any training",
    "colbert": (
        "θ: late interaction trained on the visible labels with BM25's negatives (or a trained model taken as it is); "
        "the start of its students and the source of their hard negatives"
    ),
    "colbert-hn": "θ trained on with the visible labels and negatives from its own top passages; no teacher",
    "smoothing": "as ColBERT-HN, with a share ε of every label spread evenly over the passages of a query",
    "self-kd": "a student of θ that learns θ's own scores φ",
    "ce-kd": "a student of θ that learns the scores of one cross-encoder",
    "ce3-kd": "a student of θ that learns the mean score of all cross-encoders",
    "scores-kd": "a student of θ that learns the scores of a file",
    "mixed": "a student of θ that learns collective scores mixed with those of a cross-encoder",
    "collective": (
        "a student of θ that learns collective scores: φ and β times how well a passage matches the collective "
        "centroids of the training query; its search costs what θ's does"
    ),
    "colbert-prf": (
        "θ, not trained further: at search time the query is expanded with the collective centroids of its own top "
        "f_p passages and searched again"
    ),
    "colbert-prf-rerank": (
        "θ, not trained further: the query is expanded likewise, but only ranks the passages of its first search again"
    ),
    "ce-kd-paper": (
        "one cross-encoder's scores learned as the paper trains such rows: from the plain encoder, on pairs with "
        "BM25's negatives, with the paper's loss"
    ),
    "ce3-kd-paper": "the mean score of all cross-encoders learned as the paper trains such rows",
}
_KIND = re.compile(r"(collective|colbert-prf-rerank|colbert-prf)-.+")
_BETA = re.compile(r" \([^()]*β[^()]*\)$")
_BETAS = {
    "normalised": "the centroids' weight as a share of the query's own tokens",
    "paper": "what multiplies σ in the teacher's score",
}


def glossary(document: StudyDocument) -> tuple[Section, ...]:
    """A folded list of the rows that the study has, and of the symbols."""
    names: dict[str, str] = {}
    for system in document.systems:
        names.setdefault(_kind(system.slug), _BETA.sub("", system.title))
    found = [(name, _SYSTEMS[kind]) for kind, name in names.items() if kind in _SYSTEMS]
    if not found:
        return ()
    systems, symbols = (
        table(key, caption, [Column(head, number=False), Column("what it is", number=False)], rows)
        for key, caption, head, rows in (
            ("systems", "Systems of this study", "System", _rows(found)),
            ("symbols", "Symbols", "Symbol", _rows(_symbols(document))),
        )
    )
    folded = Folded("What rows and symbols stand for", (*systems, *symbols))
    return (Section("glossary", "Systems and symbols", (folded,)),)


def _rows(found: list[tuple[str, str]]) -> list[Row]:
    return [Row((Cell(name), Cell(meaning))) for name, meaning in found]


def _kind(slug: str) -> str:
    """A row's slug without its β.

    >>> _kind("colbert-prf-rerank-0.5"), _kind("colbert-prf-tuned"), _kind("colbert-hn")
    ('colbert-prf-rerank', 'colbert-prf', 'colbert-hn')
    """
    match = _KIND.fullmatch(slug)
    return match.group(1) if match else slug


def _symbols(document: StudyDocument) -> list[tuple[str, str]]:
    beta = _BETAS.get(document.setting("expansion_scale") or "", "the weight of the centroids against the query")
    found = [
        ("θ", "the first retriever, ColBERT: the teacher's weights and the start of the students"),
        ("φ", "θ's own score of a passage: late interaction with the query alone"),
        ("σ", "the weight of a collective centroid: the idf of the token that names it"),
        ("β", f"{beta}; β = 0 is φ"),
    ]
    settings = {
        "f_p": ("feedback_passages", "feedback passages of a query, at most"),
        "f_c": ("clusters", "clusters that k-means finds among the token vectors of the feedback passages"),
        "f_e": ("centroids", "collective centroids: the clusters of highest σ, which expand the query"),
    }
    for symbol, (name, meaning) in settings.items():
        value = document.setting(name)
        found.append((symbol, meaning if value is None else f"{meaning}; here {value}"))
    return found
