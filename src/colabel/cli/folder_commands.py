"""Look after results: ``colabel runs``, ``report``, ``export`` and ``verify``."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import click

from colabel.cli import options
from colabel.cli.options import FOLDER, LABELS_HELP, opened_labels
from colabel.cli.output import emit, print_json, table, terminal_progress
from colabel.errors import UsageError

_ENGINES = ("lancedb", "qdrant", "vespa")
_FORMATS = ("parquet", "trec", "hf", "pylate", *_ENGINES)


@click.command("runs")
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--prune", is_flag=True, help="Remove the earlier results.")
@options.json_option
def runs_command(folder: Path, prune: bool, as_json: bool) -> None:
    """List the results of a run folder, the earlier ones first, with their measures.

    DIR is the folder of `colabel run`; of a study, the systems are listed. A run with other settings or labels keeps
    the earlier result in DIR/versions, where every command takes it as a run. Measures are those of the student and
    BM25 together. Examples:

      colabel runs runs/mine

      colabel runs runs/mine --prune
    """
    from colabel.pipeline.versions import list_runs, prune_versions

    found = list_runs(folder)
    if prune:
        emit(f"{folder}: {prune_versions(folder):,} earlier results removed")
        found = found[-1:]
    if as_json:
        print_json(found)
        return
    measures = list(dict.fromkeys(name for one in found for name in one["means"]))
    rows = []
    for one in found:
        values = [f"{one['means'][name]:.4f}" if name in one["means"] else "" for name in measures]
        rows.append([one["folder"], one["student"], *values])
    emit(table(["run", "student", *measures], rows))


@click.command("report")
@click.argument("folder", metavar="DIR", type=FOLDER)
def report_command(folder: Path) -> None:
    """Render a finished study or run again, without training anything.

    DIR is the output folder of `colabel study` or `colabel transfer`. Its study.json becomes report.html (one file that
    needs no network), report.md and metrics.json. The page of a run, report.html and report.md, is written from its
    rankings. Examples:

      colabel report studies/semanlink

      colabel report runs/mine
    """
    from colabel import open_run, report

    if options.is_run(folder) and not (folder / "study.json").exists():
        emit(str(open_run(folder).report()))
        return
    files = report(folder)
    emit("\n".join(map(str, (files.html, files.markdown, files.metrics))))


@click.command(
    "export",
    help=f"""Write labels, an index, or a trained model for other programs.

    {LABELS_HELP} Or RUN is a trained model, without a DATASET: --format pylate writes PyLate's checkpoint layout (for
    sentence-transformers a model needs no export). Or RUN is an index: lancedb, qdrant, vespa and parquet write its
    vectors, ids, texts and metadata for other search engines. Of a run, pylate exports the student, these engines the
    index, and other formats the labels.

    lancedb: a database with the table 'passages'. qdrant: a folder of Qdrant's local mode. vespa: a feed and a schema.
    parquet: a row per passage of an index; of labels, a row per pair. trec: run.trec, the teacher's scores, and
    qrels.trec, the visible labels. hf: a dataset for the distillation losses of sentence-transformers. pylate: the
    three datasets that PyLate joins by id. In hf and pylate scores are divided by the temperature. Examples:

      colabel export runs/mine --format parquet --out my-labels/

      colabel export labels/collective my-collection/ --format hf --passages 16 --out collective-hf/

      colabel export runs/mine/students/collective-0.5/model --format pylate --out pylate-model/

      colabel export my-index/ --format lancedb --out my-lancedb/""",
)
@options.labels_arguments
@click.option("--format", required=True, type=click.Choice(_FORMATS), help="Which form.")
@click.option(
    "--temperature",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="What scores are divided by before they become probabilities.",
)
@click.option(
    "--passages",
    type=click.IntRange(2, 10_000),
    help="Passages per row in hf and pylate, labelled ones first. Default: the number up to 32 that keeps most pairs.",
)
@options.out_option("Folder to write.")
def export_command(
    labels_folder: Path,
    dataset: str | None,
    overrides: tuple[str, ...],
    format: str,
    temperature: float,
    passages: int | None,
    out: Path,
) -> None:
    """Thin call of :func:`colabel.export_labels`, :func:`colabel.export_index`, or of the export of a model."""
    from colabel import export_labels, open_run

    is_run = options.is_run(labels_folder)
    if format in _ENGINES or (labels_folder / "index.json").is_file():
        if given := dataset or (overrides and f"--set {overrides[0]}") or (passages and f"--passages {passages}"):
            raise UsageError(f"{labels_folder} is exported as an index, which needs no {given}; leave it out")
        _export_index(labels_folder, format, out)
        return
    if dataset is None and (not is_run or format == "pylate"):
        _export_model(open_run(labels_folder).student if is_run else labels_folder, format, out)
        return
    labels, loaded, _, _ = opened_labels(labels_folder, dataset, overrides, ("data", "labels"))
    with terminal_progress() as progress:
        counts = export_labels(
            labels, loaded, out, format, temperature=temperature, passages=passages, progress=progress
        ).counts
    emit(f"{out}: {counts['queries']:,} queries, {counts['pairs']:,} pairs")
    if "short_queries" in counts:
        emit(
            f"{counts['passages']} passages per query; left out: {counts['pairs_left_out']:,} pairs, among them "
            f"{counts['short_queries']:,} queries with too few scored candidates and "
            f"{counts['labelled_left_out']:,} labelled passages without a place"
        )


def _export_index(source: Path, format: str, out: Path) -> None:
    from colabel import Index, export_index, open_run

    index = open_run(source).index if options.is_run(source) else Index.open(source)
    with terminal_progress() as progress:
        counts = export_index(index, out, format, progress=progress).counts
    emit(f"{out}: {counts['passages']:,} passages, {counts['tokens']:,} token vectors of {index.store.dimension}")
    if counts["empty"]:
        emit(f"{counts['empty']:,} passages without any token vector are left out")
    if format == "vespa":
        emit(f"Next: {shlex.join(['vespa', 'feed', str(out / 'feed.jsonl')])}, with passage.sd among your schemas")


def _export_model(source: Path, format: str, out: Path) -> None:
    from colabel.train import export_pylate

    if not (source / "modules.json").is_file():
        raise UsageError(f"{source} is not a trained model; to export labels, name the DATASET behind it as well")
    if format != "pylate":
        raise UsageError(f"a model is exported with --format pylate, not {format}")
    export_pylate(source, out)
    emit(f"{out}: a PyLate checkpoint, for pylate.models.ColBERT")


@click.command("verify")
@click.argument("folder", type=FOLDER)
@options.json_option
def verify_command(folder: Path, as_json: bool) -> int:
    """Check every file of a run, study, index or other output against its checksum.

    Every artefact below FOLDER is read whole; when other commands open one, they read a sample of a few megabytes.
    Damaged files are named, with what makes them again; artefacts of earlier versions have no checksums, and only the
    sizes of their files are compared. Exits 1 if anything is damaged. Example:

      colabel verify runs/mine
    """
    from colabel import verify

    with terminal_progress() as progress:
        found = verify(folder, progress=progress)
    if as_json:
        print_json(dataclasses.asdict(found))
        return 1 if found.damaged else 0
    for one in found.damaged:
        emit(f"DAMAGED {one.file}: {one.problem}\n  remedy: {one.remedy}")
    for place in found.unchecked:
        emit(f"not checked: {place} (of an earlier version, without checksums)")
    state = f"{len(found.damaged):,} damaged" if found.damaged else "nothing is damaged"
    emit(f"{found.artefacts:,} artefacts, {found.files:,} files, {found.bytes / 1e6:,.1f} MB: {state}")
    return 1 if found.damaged else 0
