"""Open a dataset by its name: find the format, index the passages, verify the labels, settle the splits."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from colabel.data.dataset import Dataset
from colabel.data.formats import FORMATS, Format, Source
from colabel.data.formats.base import Stream, existing, nothing
from colabel.data.formats.catalogue import read_before
from colabel.data.formats.clicks import CLICKS, Clicks, is_query_log, read_clicks, read_query_log
from colabel.data.passages import PassageTable, open_passages, open_unpacked
from colabel.data.splits import DEV, TEST, TRAIN, hide_labels, hold_out, leaks, split_names
from colabel.data.text_lines import (
    BEIR_COLUMNS,
    Collected,
    Kind,
    Located,
    Problem,
    Problems,
    Strict,
    read_qrels,
    read_queries,
)
from colabel.errors import UsageError
from colabel.progress import SILENT, Progress
from colabel.settings import DataSettings, Recipe
from colabel.settings.recipe import read_recipe, recipe_from_overrides
from colabel.types import Qrel, Qrels, Query


def load_dataset(data: str | Path | DataSettings, *, cache: Path | None = None, progress: Progress = SILENT) -> Dataset:
    """Open a dataset; the first fatal problem in it is raised with its file and line.

    Args:
        data: a name as in :func:`open_source`, or settings for anything beyond the defaults.
        cache: a folder for the passage offsets (and the unpacked corpus where it was compressed), reused by
            later calls. Without one, a temporary folder is used.
        progress: where to report how far reading is.

    Queries that stand in two splits are left out of the earlier one (train before dev before test). Where there
    is no dev split, a share of train becomes one.
    """
    settings = data if isinstance(data, DataSettings) else DataSettings(source=str(data))
    return read_dataset(open_source(settings, cache), settings, cache=cache, progress=progress)


def read_dataset(
    source: Source, settings: DataSettings, *, cache: Path | None = None, progress: Progress = SILENT
) -> Dataset:
    """The dataset of an open source; see :func:`load_dataset`."""
    problems = Strict()
    passages = open_passages(source, problems, cache, progress)
    queries = read_query_texts(source, problems)
    labels, hidden = read_labels(source, queries, passages.ids, problems, settings)
    had_dev = DEV in labels
    labels, hidden = _settle_splits(labels, hidden, queries, settings.holdout, problems)
    relevant_from = relevance_cutoff(settings, source)[0]
    dataset = Dataset(
        name=source.name,
        passages=passages,
        queries=queries,
        relevant_from=relevant_from,
        provenance=source.provenance,
        warnings=problems.summarise(),
        _labels={split: held if split == TEST else _binary(held, relevant_from) for split, held in labels.items()},
        _hidden=hidden,
        dev_from_train=DEV in labels and not had_dev,
    )
    if settings.keep_labels is None or TRAIN not in labels:
        return dataset
    return hide_labels(dataset, settings.keep_labels)


def reopen_passages(settings: DataSettings, cache: Path) -> PassageTable:
    """The passages of a dataset alone: from the cache where they were unpacked to it, else from their source."""
    with read_before():
        return open_unpacked(cache) or open_passages(open_source(settings, cache), Strict(), cache)


def load_recipe(path: Path | str, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe file; ``overrides`` are ``section.key=value`` strings with TOML values.

    A name that does not end in ``.toml`` is that of a dataset, all other settings being the defaults. Paths in
    ``[data]`` are relative to the recipe's folder, so a recipe can be moved with its data; those of ``overrides`` are
    relative to the current folder, where they were typed.
    """
    if not str(path).endswith(".toml"):
        return recipe_from_overrides(str(path), overrides)
    return read_recipe(Path(path), overrides, resolve_paths)


def resolve_paths(data: DataSettings, folder: Path | None = None, keep: Collection[str] = ()) -> DataSettings:
    """The settings with their paths seen from ``folder``; without one absolute, to be understood in any folder.

    Args:
        keep: settings such as ``data.source`` that stay as they are.
    """

    def at(key: str, path: str) -> str:
        return path if key in keep else str(Path(path).resolve() if folder is None else folder / path)

    known, name = _format_of(data.source)
    prefix = f"{known.prefix}:" if known else ""
    labels = data.labels if "data.labels" in keep else {s: at(f"data.labels.{s}", p) for s, p in data.labels.items()}
    return dataclasses.replace(
        data,
        source=data.source if known and not known.is_path else prefix + at("data.source", name),
        queries=tuple(at("data.queries", path) for path in data.queries),
        labels=labels,
    )


def open_source(settings: DataSettings, cache: Path | None = None) -> Source:
    """Find the format of ``settings.source`` and add its extra query and label files.

    Args:
        cache: a folder for what a source keeps of its own work.
    """
    known, name = _format_of(settings.source)
    source = (known or _recognised(Path(name))).open(name, settings, cache).in_pieces(settings.chunk)
    if not settings.queries and not settings.labels:
        return source
    columns = {**BEIR_COLUMNS, **settings.columns}
    labels: dict[str, Stream[Qrel]] = dict(source.labels)
    for split, path in settings.labels.items():
        if split != CLICKS:
            labels[split] = partial(read_qrels, Path(path), columns=columns)

    log, found = settings.labels.get(CLICKS), Collected()
    # A click log fills train alone where there are labels to test with.
    clicks = Clicks([], {}) if log is None else read_clicks(Path(log), settings.min_clicks, not labels, found)
    brought = {located.value.id for located in clicks.queries}

    def queries(problems: Problems) -> Iterator[Located[Query]]:
        yield from source.queries(problems)
        for path in map(Path, settings.queries):
            if is_query_log(path):
                yield from read_query_log(path, problems, brought)
            else:
                yield from read_queries(path, problems, columns)

    joined = dataclasses.replace(source, queries=queries, labels=labels)
    return joined if log is None else with_clicks(joined, clicks, found)


def with_clicks(source: Source, clicks: Clicks, found: Iterable[Problem]) -> Source:
    """A collection with the queries and labels of a click log; ``found`` is what was wrong in it."""

    def queries(problems: Problems) -> Iterator[Located[Query]]:
        yield from source.queries(problems)
        for problem in found:
            problems.add(problem.kind, problem.file, problem.line, problem.message)
        yield from clicks.queries

    def labels(split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        before: Stream[Qrel] = source.labels.get(split, nothing)
        yield from before(problems)
        yield from clicks.labels[split]

    clicked = {split: partial(labels, split) for split in clicks.labels}
    return dataclasses.replace(source, queries=queries, labels={**source.labels, **clicked})


def has_training_labels(settings: DataSettings) -> bool:
    """Whether a source has labels to train with, as far as its files' names say; no passage is read."""
    known, _ = _format_of(settings.source)
    if known is not None and known.bare:  # it makes its own labels, and opening it takes seconds
        return True
    return TRAIN in split_names(open_source(settings).labels)


def _format_of(source: str) -> tuple[Format | None, str]:
    """The format that a prefix names and what stands behind it; None and all of it where there is no prefix."""
    prefix, colon, name = source.partition(":")
    if prefix == "jsonl":
        raise UsageError(f"'{source}': a JSON lines file is a catalogue like any other; write '{name}'")
    for known in FORMATS:
        if prefix and prefix == known.prefix and (colon or known.bare):
            return known, name
    return None, source


def _recognised(path: Path) -> Format:
    """The format of a path without a prefix."""
    try:
        for known in FORMATS:
            if known.recognises(path):
                return known
        what = "holds no collection of a known format" if path.exists() else "does not exist"
        if existing(path / "documents.trec"):
            what = "holds TREC documents, which are no longer read: name an irds:ID or a .jsonl file of the documents"
    except (OSError, ValueError) as error:
        what = f"cannot be read ({getattr(error, 'strerror', None) or error})"
    raise UsageError(f"dataset '{path}' {what}; expected " + ", ".join(known.spelling for known in FORMATS))


def relevance_cutoff(settings: DataSettings, source: Source) -> tuple[int, str]:
    """The lowest relevant grade and where it comes from: settings, a conversion, TREC-DL's custom, or 1."""
    if settings.relevant_from is not None:
        return settings.relevant_from, "data.relevant_from"
    converted = source.provenance.get("relevant_from")
    if converted is not None:
        return int(converted), "kept by colabel convert"
    if re.search(r"trec-dl|dl-?(19|20)(\b|-)", source.name.lower()):
        return 2, "the convention of TREC-DL"
    return 1, "the default"


def _binary(labels: Qrels, relevant_from: int) -> Qrels:
    """Labels to learn from: where none reaches the lowest relevant grade, those of grade 1 and more are relevant.

    Clicks and known answers are all of grade 1, also where judged test queries count from grade 2.
    """
    if relevant_from <= 1 or any(grade >= relevant_from for held in labels.values() for grade in held.values()):
        return labels
    return {
        query: {passage: relevant_from if grade >= 1 else grade for passage, grade in held.items()}
        for query, held in labels.items()
    }


def _settle_splits(
    labels: dict[str, Qrels], hidden: Qrels, queries: Mapping[str, str], share: float, problems: Problems
) -> tuple[dict[str, Qrels], Qrels]:
    """Leave leaked queries out of the earlier split; make a dev split if there is none, whole like any dev split."""
    leaked: dict[str, set[str]] = {}
    for leak in leaks(labels, queries):
        leaked.setdefault(leak.split, set()).add(leak.query_id)
        problems.add(leak.kind, leak.split, None, leak.message)
    for split, query_ids in leaked.items():
        labels[split] = {query_id: rels for query_id, rels in labels[split].items() if query_id not in query_ids}
    hidden = {query_id: rels for query_id, rels in hidden.items() if query_id in labels.get(TRAIN, {})}
    if TRAIN in labels and DEV not in labels and share > 0:
        labels[TRAIN], dev = hold_out(labels[TRAIN], queries, share)
        if dev:
            labels[DEV] = {query_id: {**rels, **hidden.get(query_id, {})} for query_id, rels in dev.items()}
        hidden = {query_id: rels for query_id, rels in hidden.items() if query_id in labels[TRAIN]}
    return labels, hidden


def read_query_texts(
    source: Source, problems: Problems, places: dict[str, tuple[str, int]] | None = None
) -> dict[str, str]:
    """Query id → text of a source; the first of several with one id is kept. Fills ``places`` with (file, line)."""
    texts: dict[str, str] = {}
    for located in source.queries(problems):
        query = located.value
        if query.id not in texts:
            texts[query.id] = query.text
            if places is not None:
                places[query.id] = (located.file, located.line)
        elif texts[query.id] == query.text:
            problems.add(Kind.REPEATED_QUERY, located.file, located.line, f"query '{query.id}' appears twice")
        else:
            message = f"query '{query.id}' appears twice with different texts"
            problems.add(Kind.DUPLICATE_QUERY, located.file, located.line, message)
    return texts


def read_labels(
    source: Source, queries: Container[str], passages: Container[str], problems: Problems, settings: DataSettings
) -> tuple[dict[str, Qrels], Qrels]:
    """The labels of all splits, and the hidden ones of train.

    A label that is hidden and visible at once is a problem: it would count as found again without being found.
    """

    def collected(stream: Stream[Qrel]) -> Qrels:
        drop = settings.unknown_labels == "drop"
        return collect_labels(stream(problems), queries, passages, problems, drop_unknown=drop)

    labels = {ours: collected(source.labels[theirs]) for ours, theirs in split_names(source.labels).items()}
    hidden = collected(source.hidden)
    for query_id, rels in hidden.items():
        for passage_id in rels.keys() & labels.get(TRAIN, {}).get(query_id, {}).keys():
            message = f"query '{query_id}', passage '{passage_id}' is both hidden and visible in train"
            problems.add(Kind.HIDDEN_AND_VISIBLE, source.name, None, message)
    return labels, hidden


class Everything:
    """Holds whatever it is asked for: for ids that cannot be checked."""

    def __contains__(self, value: object) -> bool:
        return True


EVERYTHING = Everything()


def collect_labels(
    stream: Iterable[Located[Qrel]],
    queries: Container[str],
    passages: Container[str],
    problems: Problems,
    *,
    drop_unknown: bool = False,
    negative: dict[str, dict[str, int]] | None = None,
) -> dict[str, dict[str, int]]:
    """Query id → passage id → grade, of the queries and passages that exist.

    Args:
        drop_unknown: leave labels of others out, instead of reporting them as fatal.
        negative: takes the grades below 0, which are then read as 0; None: they are a problem.
    """
    labels: dict[str, dict[str, int]] = {}
    drop = Kind.DROPPED_LABEL if drop_unknown else None
    for label, file, line, _ in stream:
        query_id, passage_id, grade = label.query_id, label.passage_id, label.grade
        if grade < 0 and negative is not None:
            negative.setdefault(query_id, {})[passage_id] = grade
            grade = 0
        before = labels.get(query_id, {}).get(passage_id)
        pair = f"query '{query_id}', passage '{passage_id}'"
        if grade < 0:
            problems.add(Kind.BAD_GRADE, file, line, f"the grade is {grade}; expected 0 or more")
        elif query_id not in queries:
            problems.add(drop or Kind.UNKNOWN_QUERY, file, line, f"query '{query_id}' does not exist")
        elif passage_id not in passages:
            problems.add(drop or Kind.UNKNOWN_PASSAGE, file, line, f"passage '{passage_id}' does not exist")
        elif before is None:
            labels.setdefault(query_id, {})[passage_id] = grade
        elif before == grade:
            problems.add(Kind.REPEATED_LABEL, file, line, f"{pair} appears twice")
        else:
            problems.add(Kind.CONFLICTING_LABEL, file, line, f"{pair} has grade {grade} here and {before} before")
    return labels
