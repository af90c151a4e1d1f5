"""Open a dataset by its name: find the format, index the passages, verify the labels, settle the splits."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from colabel.data.beir import BeirSource
from colabel.data.dataset import Dataset
from colabel.data.hf import HuggingFaceSource
from colabel.data.hiding import hide_labels
from colabel.data.irds import IrdsSource
from colabel.data.jsonl import JsonlSource
from colabel.data.labels import LabelReader, read_query_texts, refuse_visible
from colabel.data.msmarco import MsMarcoSource
from colabel.data.passages import PassageTable, open_passages, open_unpacked
from colabel.data.problems import Problems, Strict
from colabel.data.records import BEIR_COLUMNS, read_qrels, read_queries
from colabel.data.source import LineFile, Located, Source
from colabel.data.splits import DEV, TRAIN, hold_out, leaks, split_names
from colabel.data.trec import TrecSource
from colabel.errors import UsageError
from colabel.progress import SILENT, Progress
from colabel.settings import DataSettings
from colabel.types import Passage, Qrel, Qrels, Query

_FOLDER_FORMATS = (BeirSource, MsMarcoSource, TrecSource)


def load_dataset(data: str | Path | DataSettings, *, cache: Path | None = None, progress: Progress = SILENT) -> Dataset:
    """Open a dataset; the first fatal problem in it is raised with its file and line.

    Args:
        data: a name as in :func:`open_source`, or settings for anything beyond the defaults.
        cache: a folder for the passage offsets (and the unpacked corpus where it was compressed), reused by
            later calls. Without one, a temporary folder is used.
        progress: who is told how far reading is.

    Queries that stand in two splits are left out of the earlier one (train before dev before test). Where there
    is no dev split, a share of train becomes one.
    """
    settings = data if isinstance(data, DataSettings) else DataSettings(source=str(data))
    source = open_source(settings, cache)
    problems = Strict()
    passages = open_passages(source, problems, cache, progress)
    queries = read_query_texts(source, problems)
    reader = LabelReader(queries, passages.ids, problems, drop_unknown=settings.unknown_labels == "drop")
    labels: dict[str, Qrels] = {
        ours: reader.read(source.labels(theirs, problems)) for ours, theirs in split_names(source.splits()).items()
    }
    hidden: Qrels = reader.read(source.hidden(problems))
    refuse_visible(hidden, labels.get(TRAIN, {}), source.name, problems)
    had_dev = DEV in labels
    labels, hidden = _settle_splits(labels, hidden, queries, settings.holdout, problems)
    dataset = Dataset(
        name=source.name,
        passages=passages,
        queries=queries,
        relevant_from=relevance_cutoff(settings, source)[0],
        provenance=source.provenance(),
        warnings=problems.summarise(),
        _labels=labels,
        _hidden=hidden,
        dev_from_train=DEV in labels and not had_dev,
    )
    if settings.keep_labels is None or TRAIN not in labels:
        return dataset
    return hide_labels(dataset, settings.keep_labels, settings.hide_seed)


def reopen_passages(settings: DataSettings, cache: Path) -> PassageTable:
    """The passages of a dataset alone: from the cache where they were unpacked to it, else from their source."""
    return open_unpacked(cache) or open_passages(open_source(settings, cache), Strict(), cache)


def open_source(settings: DataSettings, cache: Path | None = None) -> Source:
    """Find the format of ``settings.source`` and add its extra query and label files.

    Args:
        cache: a folder for what a source keeps of its own work.

    Raises:
        UsageError: there is no such file or folder, or it holds no known format.
    """
    base = _base_source(settings, cache)
    if not settings.queries and not settings.labels:
        return base
    columns = {**BEIR_COLUMNS, **settings.columns}
    queries = tuple(Path(path) for path in settings.queries)
    return ExtendedSource(base, queries, {split: Path(path) for split, path in settings.labels.items()}, columns)


def relevance_cutoff(settings: DataSettings, source: Source) -> tuple[int, str]:
    """The lowest relevant grade and where it comes from: settings, a conversion, TREC-DL's custom, or 1."""
    if settings.relevant_from is not None:
        return settings.relevant_from, "data.relevant_from"
    converted = source.provenance().get("relevant_from")
    if converted is not None:
        return int(converted), "kept by colabel convert"
    if re.search(r"trec-dl|dl-?(19|20)(\b|-)", source.name.lower()):
        return 2, "the convention of TREC-DL"
    return 1, "the default"


def _base_source(settings: DataSettings, cache: Path | None) -> Source:
    kind, colon, rest = settings.source.partition(":")
    columns = {**BEIR_COLUMNS, **settings.columns}
    if kind == "pydocs":
        return _pydocs(rest if colon else None, cache)
    if colon and kind == "irds":
        return IrdsSource(tuple(rest.split("+")))
    if colon and kind == "hf":
        return HuggingFaceSource(_folder(Path(rest)), columns)
    if colon and kind == "jsonl":
        return JsonlSource(_file(Path(rest)), columns)
    folder = _folder(Path(settings.source))
    for known in _FOLDER_FORMATS:
        if not known.recognises(folder):
            continue
        if known is BeirSource:
            return BeirSource(folder, columns)
        if settings.columns:
            raise UsageError(f"'data.columns' does not apply to {folder}, whose files have no column names")
        return known(folder)
    raise UsageError(
        f"{folder} holds no collection: expected corpus.jsonl (BEIR), collection.tsv (MS MARCO) or documents.trec "
        "(TREC), each plain or .gz. For other JSON lines use jsonl:FILE, for Hugging Face data hf:FOLDER"
    )


def _pydocs(size: str | None, cache: Path | None) -> Source:
    from colabel.data.pydocs import PydocsSource

    if size is not None and not re.fullmatch(r"[1-9][0-9]{0,6}", size):
        raise UsageError(f"'pydocs:{size}': expected a number of passages, such as pydocs:4000")
    return PydocsSource(None if size is None else int(size), cache)


def _folder(path: Path) -> Path:
    try:
        if path.is_dir():
            return path
        what = "is a file; expected a folder (or jsonl:FILE)" if path.exists() else "does not exist"
    except (OSError, ValueError) as error:
        what = f"cannot be read ({getattr(error, 'strerror', None) or error})"
    raise UsageError(
        f"dataset '{path}' {what}. A dataset is a BEIR, MS MARCO or TREC folder, irds:ID, hf:FOLDER, jsonl:FILE, "
        "pydocs or pydocs:N"
    )


def _file(path: Path) -> Path:
    if path.is_file():
        return path
    raise UsageError(f"jsonl:{path}: no such file")


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
        labels[DEV] = {query_id: {**rels, **hidden.get(query_id, {})} for query_id, rels in dev.items()}
        hidden = {query_id: rels for query_id, rels in hidden.items() if query_id in labels[TRAIN]}
    return labels, hidden


@dataclasses.dataclass(frozen=True)
class ExtendedSource:
    """A source with more query files, and with label files that add to or replace its splits."""

    base: Source
    query_files: tuple[Path, ...]
    label_files: Mapping[str, Path]
    columns: Mapping[str, str]

    @property
    def name(self) -> str:
        """The base's name."""
        return self.base.name

    def passages(self, problems: Problems) -> Iterator[Located[Passage]]:
        """The base's passages."""
        return self.base.passages(problems)

    def queries(self, problems: Problems) -> Iterator[Located[Query]]:
        """The base's queries, then those of the files."""
        yield from self.base.queries(problems)
        for path in self.query_files:
            yield from read_queries(path, problems, self.columns)

    def splits(self) -> tuple[str, ...]:
        """Splits of both."""
        return tuple(sorted({*self.base.splits(), *self.label_files}))

    def labels(self, split: str, problems: Problems) -> Iterator[Located[Qrel]]:
        """From the file where one is named, else from the base."""
        if split in self.label_files:
            return read_qrels(self.label_files[split], problems, self.columns)
        return self.base.labels(split, problems)

    def hidden(self, problems: Problems) -> Iterator[Located[Qrel]]:
        """The base's hidden labels."""
        return self.base.hidden(problems)

    def line_file(self) -> LineFile | None:
        """The base's corpus file."""
        return self.base.line_file()

    def corpus_fingerprint(self) -> str:
        """Of the base's corpus."""
        return self.base.corpus_fingerprint()

    def provenance(self) -> dict[str, str]:
        """The base's."""
        return self.base.provenance()
