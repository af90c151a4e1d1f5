"""The real collection: harvested once for all tests of this file."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from colabel.artefacts import fingerprint
from colabel.data import check
from colabel.data.formats import Source
from colabel.data.pydocs import open_pydocs
from colabel.data.pydocs.collection import words
from colabel.data.text_lines import Strict
from colabel.errors import UsageError
from colabel.settings import DataSettings
from colabel.types import Passage, Qrel, Query


class Loaded:
    """Everything a source offers, read once."""

    def __init__(self, size: int | None = None) -> None:
        self.source: Source = open_pydocs(str(size or ""), DataSettings(source="pydocs"), None)
        problems = Strict()
        self.passages: list[Passage] = [row.value for row in self.source.passages(problems)]
        self.queries: list[Query] = [row.value for row in self.source.queries(problems)]
        self.labels: dict[str, list[Qrel]] = {
            split: [row.value for row in stream(problems)] for split, stream in self.source.labels.items()
        }
        self.hidden: list[Qrel] = [row.value for row in self.source.hidden(problems)]

    def digest(self) -> str:
        return fingerprint([str(self.passages), str(self.queries), str(self.labels), str(self.hidden)])

    def mean_relevant(self) -> float:
        return (sum(map(len, self.labels.values())) + len(self.hidden)) / len(self.queries)


@pytest.fixture(scope="module")
def whole() -> Loaded:
    return Loaded()


def test_counts(whole: Loaded) -> None:
    assert 5900 <= len(whole.passages) <= 15000
    assert 2700 <= len(whole.queries) <= 8000
    shares = {split: len({label.query_id for label in labels}) for split, labels in whole.labels.items()}
    assert sum(shares.values()) == len(whole.queries)
    assert shares["train"] / len(whole.queries) == pytest.approx(0.7, abs=0.03)
    assert shares["dev"] / len(whole.queries) == pytest.approx(0.1, abs=0.02)
    assert 2.5 < whole.mean_relevant() < 6


def test_nothing_is_wrong_with_it() -> None:
    """Ids are unique, every label names a query and a passage once, and no query stands in two splits."""
    assert check("pydocs").problems.counts == {}


def test_passages_are_readable(whole: Loaded) -> None:
    for passage in whole.passages:
        assert 8 <= len(passage.text.split()) <= 130, passage.id
        assert not any(noise in passage.text for noise in (">>>", ":func:", ".. note", ".. math", "=====")), passage.id
        assert " at 0x" not in passage.text, passage.id
    marked = [passage.id for passage in whole.passages if "`" in passage.text]
    assert len(marked) < 0.005 * len(whole.passages)  # a few libraries forget to close a quotation


def test_no_passage_contains_its_own_summary(whole: Loaded) -> None:
    texts = {passage.id: f" {' '.join(words(passage.text))} " for passage in whole.passages}
    own = [label for labels in whole.labels.values() for label in labels if label.grade == 2]
    asked = {query.id: f" {' '.join(words(query.text))} " for query in whole.queries}
    assert len(own) == len(asked)
    assert [label.query_id for label in own if asked[label.query_id] in texts[label.passage_id]] == []


def test_known_objects(whole: Loaded) -> None:
    queries = {query.id: query.text for query in whole.queries}
    assert queries["q:numpy.fft.fft"] == "Compute the one-dimensional discrete Fourier Transform."
    relevant: dict[str, dict[str, int]] = defaultdict(dict)
    for label in [*whole.hidden, *(label for labels in whole.labels.values() for label in labels)]:
        relevant[label.query_id][label.passage_id] = label.grade
    assert relevant["q:numpy.fft.fft"]["numpy.fft.fft"] == 2
    assert relevant["q:numpy.fft.fft"]["numpy.fft.fftn"] == 1


def test_train_shows_own_passages_and_hides_the_rest(whole: Loaded) -> None:
    train = {label.query_id for label in whole.labels["train"]}
    assert all(label.grade == 2 and label.query_id == f"q:{label.passage_id}" for label in whole.labels["train"])
    assert {label.query_id for label in whole.hidden} == train
    assert {label.grade for label in whole.hidden} == {1}
    for split in ("dev", "test"):
        grades = defaultdict(set)
        for label in whole.labels[split]:
            grades[label.query_id].add(label.grade)
        assert all(found == {1, 2} for found in grades.values())


def test_rows_are_located(whole: Loaded) -> None:
    first, second, *_ = whole.source.queries(Strict())
    assert (first.file, first.line, second.line) == ("pydocs", 1, 2)
    assert whole.source.line_file is None


def test_provenance_names_all_libraries(whole: Loaded) -> None:
    versions = whole.source.provenance
    assert set(versions) == {"numpy", "scipy", "sklearn", "pandas", "torch", "networkx", "matplotlib"}
    assert versions["numpy"] == np.__version__


@pytest.mark.parametrize("size", [500, 1000, 4000])
def test_size_keeps_cross_references(whole: Loaded, size: int) -> None:
    part = Loaded(size)
    assert part.source.name == f"pydocs:{size}"
    assert len(part.passages) == size
    assert set(part.passages) < set(whole.passages)
    assert set(part.queries) <= set(whole.queries)
    assert len(part.queries) > 0.4 * size
    assert part.mean_relevant() == pytest.approx(whole.mean_relevant(), rel=0.1)
    assert part.source.fingerprint() != whole.source.fingerprint()


def test_size_beyond_the_end_is_all(whole: Loaded) -> None:
    assert Loaded(10**6).digest() == whole.digest()


def test_a_wrong_size_is_refused() -> None:
    with pytest.raises(UsageError, match="a number of passages"):
        open_pydocs("0", DataSettings(source="pydocs:0"), None)
