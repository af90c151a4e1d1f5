"""``colabel label`` and ``colabel export``."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from click.core import ParameterSource

from colabel.cli.arguments import (
    DATASET_HELP,
    TEACHERS,
    F,
    chosen_engine,
    dataset_argument,
    json_option,
    out_option,
    recipe_settings,
    set_option,
)
from colabel.cli.output import beside, emit, print_json, table, terminal_progress
from colabel.errors import UsageError

if TYPE_CHECKING:
    from colabel.collective.knowledge import Knowledge
    from colabel.labels import LabelReport
    from colabel.settings import CollectiveSettings, Recipe

_USED = ("data", "encoder", "collective", "labels", "cross_encoder", "compute")
_OPTIONS = {
    "models": ("--model", ("cross-encoder", "ensemble")),
    "scores": ("--scores", ("scores",)),
    "standardise": ("--standardise", ("ensemble",)),
    "parts": ("--of", ("mixed",)),
    "weight": ("--weight", ("mixed",)),
    "scale": ("--scale", ("mixed",)),
}
"""Parameters of `colabel label` that belong to some teachers: option, teachers."""
_FORMATS = ("parquet", "trec", "jsonl", "hf", "pylate")


def labels_argument(function: F) -> F:
    """LABELS, a folder that ``colabel label`` wrote."""
    return click.argument("labels_folder", metavar="LABELS", type=click.Path(path_type=Path))(function)


def same_data(dataset: str, overrides: tuple[str, ...]) -> str:
    """DATASET with its settings, for the command that is to come next.

    >>> same_data("caves", ("data.keep_labels=1", "labels.candidates=50"))
    'caves --set data.keep_labels=1'
    """
    kept = [part for text in overrides if text.startswith("data.") for part in ("--set", text)]
    return shlex.join([dataset, *kept])


temperature_option = click.option(
    "--temperature",
    type=click.FloatRange(min=0, min_open=True),
    help="What scores are divided by before they become probabilities; default: labels.temperature.",
)


@click.command(
    "label",
    help=f"""Let a teacher score the candidates of every training query.

    {DATASET_HELP}

    Candidates are the top labels.candidates passages of the ranking in the knowledge, and the labelled positives.
    Teachers: collective (the query with its collective centroids), self (the query alone), uniform (smoothed labels),
    cross-encoder (--model), ensemble (several --model), scores (a file, --scores), mixed (two of them, --of). β and its
    scale are the knowledge's, unless --set collective.beta=… or a recipe says otherwise. Examples:

      colabel label my-collection/ --knowledge my-knowledge/ --out labels/collective

      colabel label my-collection/ --knowledge my-knowledge/ --teacher cross-encoder --model my-cross-encoder/
      --out labels/cross-encoder""",
)
@dataset_argument
@click.option(
    "--knowledge",
    "knowledge_folder",
    required=True,
    type=click.Path(path_type=Path),
    help="What `colabel collect` wrote.",
)
@click.option("--teacher", default="collective", show_default=True, type=click.Choice(TEACHERS), help="Who scores.")
@click.option("--model", "models", multiple=True, help="A cross-encoder, folder or hub id; several for ensemble.")
@click.option("--scores", type=click.Path(path_type=Path), help="File of scores, for the teacher scores.")
@click.option("--standardise", is_flag=True, help="Bring the scores of an ensemble to one scale first.")
@click.option("--of", "parts", multiple=True, type=click.Choice(TEACHERS[:-1]), help="A part of mixed; give two.")
@click.option(
    "--weight", default=0.5, show_default=True, type=click.FloatRange(0, 1), help="Share of the first part of mixed."
)
@click.option(
    "--scale",
    default="standardised",
    show_default=True,
    type=click.Choice(["standardised", "probabilities"]),
    help="What mixed mixes.",
)
@json_option
@out_option("Folder of the labels.")
def label_command(
    dataset: str,
    overrides: tuple[str, ...],
    knowledge_folder: Path,
    teacher: str,
    models: tuple[str, ...],
    scores: Path | None,
    standardise: bool,
    parts: tuple[str, ...],
    weight: float,
    scale: Literal["standardised", "probabilities"],
    as_json: bool,
    out: Path,
) -> None:
    """Thin call of :func:`colabel.label`."""
    from colabel import label, load_dataset
    from colabel.collective.knowledge import open_knowledge
    from colabel.labels import report_labels
    from colabel.teachers import TeacherChoice, make_teacher

    _refuse_unused({teacher, *parts})
    recipe = recipe_settings(dataset, overrides, _USED)
    pairs = out.absolute().with_name(f".{out.absolute().name}.pairs")  # stays after a kill, to be continued
    choice = TeacherChoice(
        teacher, models, scores, standardise, parts, weight, scale, device=recipe.encoder.device, cache=pairs
    )
    with terminal_progress() as progress, beside(out, "work") as scratch, chosen_engine(recipe) as engine:
        loaded = load_dataset(recipe.data, cache=scratch / "data", progress=progress)
        knowledge = open_knowledge(
            knowledge_folder, open_index=lambda folder: engine.open_index(folder, loaded.passages)
        )
        chosen = make_teacher(
            choice,
            loaded,
            knowledge=knowledge,
            predictor=engine.predictor,
            split=knowledge.split,
            collective=_collective(recipe, dataset, overrides, knowledge),
            labels=recipe.labels,
            cross_encoder=recipe.cross_encoder,
            progress=progress,
        )
        labels = label(knowledge, loaded, chosen, out, settings=recipe.labels, progress=progress)
        report = report_labels(labels, recipe.labels.temperature)
    shutil.rmtree(pairs, ignore_errors=True)
    if as_json:
        print_json(report.as_dict())
        return
    emit(
        "\n".join(
            [f"{out}: {report.queries:,} queries labelled by the teacher '{report.teacher}'", *report_lines(report)]
        )
    )
    data = same_data(dataset, overrides)
    emit(f"Next: colabel missing {out} {data}, or colabel export {out} {data} --format hf --out FOLDER")


def _refuse_unused(teachers: set[str]) -> None:
    """Options of other teachers would do nothing: whoever gives one means its teacher."""
    context = click.get_current_context()
    for name, (option, owners) in _OPTIONS.items():
        if context.get_parameter_source(name) != ParameterSource.DEFAULT and not teachers & set(owners):
            chosen = context.params["teacher"]
            raise UsageError(f"{option} is for the teacher {' or '.join(owners)}; the teacher is '{chosen}'")


def _collective(recipe: Recipe, dataset: str, overrides: tuple[str, ...], knowledge: Knowledge) -> CollectiveSettings:
    """β and its scale as the recipe or --set gives them, else as the knowledge remembers them."""
    from colabel.recipe import given_keys

    given = given_keys(dataset, overrides)
    chosen = {
        name: getattr(recipe.collective, name) for name in ("beta", "expansion_scale") if f"collective.{name}" in given
    }
    return dataclasses.replace(knowledge.settings, **chosen)


def report_lines(report: LabelReport) -> list[str]:
    """The report for people."""
    rows = [
        ["queries without a visible positive, left out", f"{report.skipped_queries:,}"],
        ["candidates", f"{report.pairs:,}"],
        ["  with a teacher score", f"{report.scored:,}"],
        ["  labelled", f"{report.labelled:,}"],
        ["  feedback passages", f"{report.feedback:,}"],
        ["  hard negatives", f"{report.hard_negatives:,}"],
        ["entropy of the targets in nats, mean / median", f"{report.entropy_mean:.3f} / {report.entropy_median:.3f}"],
        [
            "passages a target is spread over, mean / median",
            f"{report.effective_mean:.1f} / {report.effective_median:.1f}",
        ],
        ["queries with nearly one-hot targets", f"{report.one_hot:,} ({_share(report.one_hot, report.queries)})"],
        ["mean probability of labelled passages", f"{report.labelled_mass:.3f}"],
        [
            "queries with an unlabelled passage above the labelled",
            f"{report.suspect_above:,} ({_share(report.suspect_above, report.queries)})",
        ],
    ]
    if report.empty_positives:
        rows.insert(1, ["positives that are empty passages, left out", f"{report.empty_positives:,}"])
    if report.unscored_queries:
        rows.insert(3, ["queries without any score", f"{report.unscored_queries:,}"])
    return [table([f"at temperature {report.temperature:g}", ""], rows)]


def _share(count: int, total: int) -> str:
    return f"{count / total:.0%}" if total else "0%"


@click.command(
    "export",
    help=f"""Write labels, or a trained model, for other programs.

    SOURCE is a folder that `colabel label` wrote, and DATASET what it was made from, with the same settings.
    {DATASET_HELP} Or SOURCE is a trained model, without a DATASET: --format pylate writes PyLate's checkpoint layout
    (for sentence-transformers a model needs no export).

    parquet: a row per pair. trec: run.trec, the teacher's scores, and qrels.trec, the visible labels. jsonl: a row per
    query with texts. hf: a dataset for the distillation losses of sentence-transformers. pylate: the three datasets
    that PyLate joins by id. In jsonl, hf and pylate scores are divided by the temperature. Examples:

      colabel export labels/collective my-collection/ --format hf --passages 16 --out collective-hf/

      colabel export runs/mine/students/collective-0.5/model --format pylate --out pylate-model/""",
)
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("dataset", required=False)
@set_option
@click.option("--format", required=True, type=click.Choice(_FORMATS), help="Which form.")
@temperature_option
@click.option(
    "--passages",
    type=click.IntRange(2, 10_000),
    help="Passages of a row in jsonl, hf and pylate, labelled ones first. Default: all in jsonl, elsewhere the number "
    "up to 32 that keeps most pairs.",
)
@out_option("Folder to write.")
def export_command(
    source: Path,
    dataset: str | None,
    overrides: tuple[str, ...],
    format: str,
    temperature: float | None,
    passages: int | None,
    out: Path,
) -> None:
    """Thin call of :func:`colabel.export_labels`."""
    from colabel import export_labels, load_dataset, open_labels

    if dataset is None:
        _export_model(source, format, out)
        return
    recipe = recipe_settings(dataset, overrides, ("data", "labels"))
    with terminal_progress() as progress, beside(out, "work") as scratch:
        labels = open_labels(source)
        loaded = load_dataset(recipe.data, cache=scratch / "data", progress=progress)
        manifest = export_labels(
            labels,
            loaded,
            out,
            format,
            temperature=temperature or recipe.labels.temperature,
            passages=passages,
            progress=progress,
        )
    counts = manifest.counts
    emit(f"{out}: {counts['queries']:,} queries, {counts['pairs']:,} pairs")
    if "short_queries" in counts:
        width = f"{counts['passages']} passages a query" if counts["passages"] else "all scored passages"
        emit(
            f"{width}; left out: {counts['pairs_left_out']:,} pairs, among them {counts['short_queries']:,} queries "
            f"with too few scored candidates and {counts['labelled_left_out']:,} labelled passages without a place"
        )
    emit(f"Next: {_loading(format, out)}")


def _export_model(source: Path, format: str, out: Path) -> None:
    from colabel.train import export_pylate

    if not (source / "modules.json").is_file():
        raise UsageError(f"{source} is not a trained model; to export labels, name the DATASET behind it as well")
    if format != "pylate":
        raise UsageError(f"a model is exported with --format pylate, not {format}")
    export_pylate(source, out)
    emit(f"{out}: a PyLate checkpoint")
    emit(f"Next: pylate.models.ColBERT('{out}')")


def _loading(format: str, out: Path) -> str:
    """How to read an export in Python."""
    return {
        "parquet": f"pandas.read_parquet('{out / 'labels.parquet'}')",
        "trec": f"ir_measures -p {out / 'qrels.trec'} {out / 'run.trec'} nDCG@10",
        "jsonl": f"datasets.load_dataset('json', data_files='{out / 'labels.jsonl'}')",
        "hf": f"datasets.load_from_disk('{out}'), and MultiVectorDistillKLDivLoss(model) of sentence-transformers",
        "pylate": f"datasets.load_from_disk('{out / 'train'}'), also queries and documents, and PyLate's KDProcessing",
    }[format]
