"""The whole comparison on tiny data: rows of every kind, seeds, teachers on hidden and judged labels."""

from __future__ import annotations

import json
import platform
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from colabel import Recipe, run, study, transfer
from colabel.artefacts import write_json
from colabel.errors import ArtefactError, ColabelError, DataError, TrainingError, UsageError
from colabel.evaluation import read_run_file
from colabel.findings import StudyDocument, read_study
from colabel.findings.records import Coverage
from colabel.findings.results import _stage_seconds, describe
from colabel.findings.teacher_quality import label_findings
from colabel.pipeline.preflight import noted_recipe
from colabel.pipeline.study import Study, outdated, plan_study
from colabel.ranking import Ranker
from colabel.reporting import ReportFiles
from colabel.settings import StudySettings
from colabel.systems import System
from tests.conftest import Call, Said

ROWS = (
    "bm25",
    "zero-shot",
    "colbert",
    "colbert-hn",
    "self-kd",
    "ce-kd",
    "collective-0.5",
    "colbert-prf-0.5",
    "colbert-prf-rerank-0.5",
    "ce3-kd",
    "ce-kd-paper",
    "colbert-prf-rerank-tuned",
    "collective-tuned",
)


@pytest.fixture(scope="module")
def wanted(recipe: Recipe) -> Recipe:
    """Two seeds of two systems, one label kept, and a row that must fail: one of its cross-encoders is missing."""
    chosen = StudySettings(
        systems=ROWS,
        seeds=2,
        repeated=("colbert", "collective-0.5"),
        measures=("nDCG@10", "R@100"),
    )
    wide = replace(recipe.fit, evaluate_queries=10)
    models = replace(recipe.cross_encoder, models=(recipe.cross_encoder.models[0], "/no/such/model"))
    return replace(recipe, study=chosen, cross_encoder=models, fit=wide, data=_with_more_labels(recipe))


def _with_more_labels(recipe: Recipe) -> object:
    """Three positives a training query, of which two are hidden."""
    train = Path(recipe.data.source) / "qrels" / "train.tsv"
    lines = [f"q{query}\td{(3 * query + more) % 40}\t1" for query in range(10) for more in (0, 1, 2)]
    train.write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines) + "\n")
    return replace(recipe.data, keep_labels=1)


@pytest.fixture(scope="module")
def done(wanted: Recipe, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StudyDocument, ReportFiles]:
    out = tmp_path_factory.mktemp("study") / "small"
    return out, *study(wanted, out)


Done = tuple[Path, StudyDocument, ReportFiles]


def ranked(rows: Study) -> Study:
    """A study with its rankings."""
    with rows.stages:
        rows.rank_all()
    return rows


def test_rows_of_every_kind(done: Done) -> None:
    _, document, files = done
    found = {system.slug: system for system in document.systems}
    assert set(found) == set(ROWS)
    searching = [slug for slug in ROWS if slug.startswith("colbert-prf")]
    assert list(found) == [*(slug for slug in ROWS if slug not in searching), *searching], "rows of a group together"
    lettered = [line.system for line in document.comparisons["nDCG@10"].lines]
    assert lettered == [slug for slug, one in found.items() if not one.failed]
    assert "/no/such/model" in (found["ce3-kd"].failed or "")
    assert found["ce-kd"].encoder_passes == found["ce-kd"].pairs, "a pass for every pair"
    labelled = found["collective-0.5"]
    assert labelled.encoder_passes == 40 + 10, "|D| + |Q|"
    assert {one.name: one.value for one in document.collective}["expansion_scale"] == "normalised"
    assert list(document.models) == ["encoder", "cross-encoder 1", "cross-encoder 2"]
    assert document.environment.versions["Python"] == platform.python_version()
    verdict = (
        r"Cross-encoder 1 (beats|is worse than|does not differ significantly from) θ at ranking the top 40 of \d+ dev "
        r"queries again: "
        r"nDCG@10 [\d.]+, θ [\d.]+; paired t-test: (p [=<] [\d.]+|not defined)\.$"
    )
    shallow, told = document.notes
    assert shallow == "R@100 was measured on rankings of 20 passages ('rank.depth'); what lies deeper does not count."
    assert re.match(verdict, told)
    assert found["collective-tuned"].beta == found["colbert-prf-rerank-tuned"].beta
    assert found["collective-tuned"].beta in {row.beta for row in document.sweep}
    assert "tuned" in found["collective-tuned"].title
    assert not (files.html.parent / "seed-0" / "students" / "collective-tuned").exists(), "it is the student of its β"
    assert [found[slug].seeds for slug in ("bm25", "colbert", "collective-0.5", "self-kd")] == [1, 2, 2, 1]
    assert found["colbert"].spread["nDCG@10"] >= 0
    assert found["collective-0.5"].pairs > 0
    assert found["colbert-hn"].milliseconds.median > 0
    assert document.sweep
    metrics = json.loads(files.metrics.read_text())
    assert set(metrics["systems"]) == set(ROWS)
    colbert = metrics["systems"]["colbert"]
    assert colbert["seeds"] == 2
    each = [metrics["per_seed"]["colbert"][seed]["nDCG@10"] for seed in ("0", "1")]
    assert sum(each) / 2 == pytest.approx(colbert["means"]["nDCG@10"])
    assert max(each) - min(each) == pytest.approx(2**0.5 * colbert["spread"]["nDCG@10"])


def test_pairs_are_compared_on_common_seeds(done: Done) -> None:
    _, document, _ = done
    seeds = {(pair.system, pair.against): pair.seeds for pair in document.comparisons["nDCG@10"].pairs}
    assert seeds["collective-0.5", "colbert"] == (0, 1)
    assert seeds["colbert", "bm25"] == (0, 1), "BM25 has every seed"
    assert seeds["self-kd", "colbert"] == (0,)
    assert set(document.per_seed) == {"colbert", "collective-0.5"}
    assert set(document.per_seed["colbert"]) == {"0", "1"}


def test_annotation_is_charged_by_what_a_pair_took(done: Done) -> None:
    document = done[1]
    paper, read = document.system("ce-kd-paper"), document.system("ce-kd")
    assert paper.pairs > 0
    assert paper.seconds["annotation"] == pytest.approx(paper.pairs * read.seconds["annotation"] / read.pairs)
    assert [one.slug for one in document.ratios] == ["ce-kd", "ce-kd-paper"]


def test_every_run_has_a_name_of_its_own(done: Done) -> None:
    tags = {}
    for path in (done[0] / "runs").glob("*/run.trec"):
        (tags[path.parent.name],) = {line.split()[-1] for line in path.read_text().splitlines()}
    assert {"colbert", "colbert-seed-1", "colbert-prf-0.5", "colbert-prf-rerank-0.5"} <= tags.keys()
    assert all(name == tag for name, tag in tags.items())


def test_teachers_on_hidden_labels_and_on_judged_queries(done: Done) -> None:
    _, document, _ = done
    all_queries, drawn, judged = document.label_quality
    betas = sorted({0.5, document.system("collective-tuned").beta})
    ours = ["φ, θ's own score", *(f"collective (β = {beta:g})" for beta in betas)]
    assert list(all_queries.teachers) == ours
    expected = [*ours, "cross-encoder"]
    assert list(drawn.teachers) == list(judged.teachers) == expected, "one colour for each in all plots"
    for teacher in expected:
        assert drawn.teachers[teacher]["1"].average_precision.queries == 2, "as many as QUALITY_QUERIES"
        assert len(drawn.teachers[teacher]["1"].precision_at_recall) == 11
    assert all_queries.teachers["φ, θ's own score"]["1"].average_precision.queries > 2
    assert judged.title.startswith("θ's top 100 of 2 test queries, unlabelled ones not relevant")
    assert set(document.suggestions) == set(all_queries.teachers)
    for teachers in (all_queries.teachers, drawn.teachers, judged.teachers):
        assert [name for name, found in teachers.items() if found["1"].difference is None] == ours[:1]
        phi, collective = (teachers[name]["1"].average_precision.mean for name in ours[:2])
        assert teachers[ours[1]]["1"].difference.difference.mean == pytest.approx(collective - phi)
    assert document.dataset is not None
    assert document.dataset.labels_hidden == 20
    assert all_queries.coverage["1"].relevant == 20, "all that is hidden"
    assert 0 < all_queries.coverage["1"].found < 20, "of it, what is among ten candidates"
    assert drawn.coverage["1"].relevant == 4, "of the two queries that are drawn"
    assert judged.coverage["1"] == Coverage(relevant=2, found=2), "40 passages are all among the top 100"


def test_phi_suggests_labels_without_a_row_of_its_own(wanted: Recipe, done: Done) -> None:
    fewer = replace(wanted.study, systems=("bm25", "colbert", "collective-0.5"))
    rows = ranked(Study(replace(wanted, study=fewer), done[0]))
    _, suggestions = label_findings(rows)
    assert list(suggestions) == ["φ, θ's own score", "collective (β = 0.5)"]
    assert all(shares == done[1].suggestions[name] for name, shares in suggestions.items())


def test_the_same_command_again_changes_nothing(wanted: Recipe, done: Done) -> None:
    out, document, files = done
    page = files.html.read_bytes()
    again, _ = study(wanted, out)
    assert files.html.read_bytes() == page
    assert again == document


def test_a_part_that_fails_costs_the_report_that_part_alone(
    wanted: Recipe, done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(study: Study) -> None:
        raise RuntimeError("no more memory")

    monkeypatch.setattr("colabel.findings.results.label_findings", broken)
    document = describe(ranked(Study(wanted, done[0])), "")
    assert not document.label_quality
    assert "Missing from this report is the quality of labels: RuntimeError: no more memory" in document.notes
    assert document.sweep == done[1].sweep


def test_times_that_cannot_be_taken_cost_the_report_no_more(
    wanted: Recipe, done: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no more memory")

    shutil.copytree(done[0], tmp_path / "study")
    for name in ("timing.json", "study.manifest.json"):  # else the report is up to date
        (tmp_path / "study" / name).unlink()
    monkeypatch.setattr("colabel.findings.results.response_times_of", broken)
    document, files = study(wanted, tmp_path / "study")
    assert "Missing from this report is the response times: RuntimeError: no more memory" in document.notes
    assert all(system.milliseconds is None for system in document.systems)
    assert {system.slug: system.means for system in document.systems} == {
        system.slug: system.means for system in done[1].systems
    }
    assert files.html.exists()


def test_what_lies_there_of_earlier_settings_costs_nothing(wanted: Recipe, done: Done, tmp_path: Path) -> None:
    own = replace(wanted, cross_encoder=replace(wanted.cross_encoder, checkpoints=("some/model",)))
    rows = ranked(Study(own, done[0]))
    assert any(name.startswith("training cross-encoder") for name in done[1].seconds)
    assert not any(name.startswith("training cross-encoder") for name in _stage_seconds(rows))


def test_what_is_measured_with_colbert_needs_no_row_of_it(wanted: Recipe, done: Done) -> None:
    without = replace(wanted, study=replace(wanted.study, systems=("colbert-prf-0.5", "collective-0.5"), seeds=1))
    document = describe(ranked(Study(without, done[0])), "")
    assert document.sweep == done[1].sweep
    assert document.label_quality
    plain = ranked(Study(replace(without, study=replace(without.study, systems=("bm25", "zero-shot"))), done[0]))
    assert not plain.has_theta
    assert not describe(plain, "").label_quality, "nothing is trained for it"


def test_what_cannot_be_measured_is_told_before_anything_is_trained(wanted: Recipe, tmp_path: Path) -> None:
    wrong = (
        ({"measures": ("nDGC@10",)}, "nDGC"),
        ({"measures": ("RBP(rel=1)",)}, "pip install"),
        ({"systems": ("bm25", "bm25")}, "'bm25' twice"),
        ({"systems": ("collective-1", "collective-1.0")}, "'collective-1' twice"),
        ({"repeated": ("collectve-0.5",)}, "no system 'collectve-0.5'"),
        ({"measures": ()}, "'study.measures' is empty"),
        ({"measures": ("AP", "nDCG@10", "AP")}, "names 'AP' twice"),
    )
    for chosen, told in wrong:
        with pytest.raises(ColabelError, match=told):
            study(replace(wanted, study=replace(wanted.study, **chosen)), tmp_path / "study")
    assert not (tmp_path / "study").exists()
    graded = replace(
        wanted, data=replace(wanted.data, relevant_from=2), study=replace(wanted.study, measures=("NumRel",))
    )
    with pytest.raises(UsageError, match="from grade 2 on"):
        study(graded, tmp_path / "study")
    with pytest.raises(DataError, match=r"no test query of .* has a passage of grade 2 or higher"):
        study(replace(wanted, data=graded.data), tmp_path / "study")
    assert not list((tmp_path / "study").glob("seed-*"))


def test_a_mistake_does_not_take_a_finished_study_apart(wanted: Recipe, done: Done, tmp_path: Path) -> None:
    shutil.copytree(done[0], tmp_path / "study")
    elsewhere = replace(wanted.data, source=str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="nowhere"):
        study(replace(wanted, data=elsewhere), tmp_path / "study")
    assert read_study(tmp_path / "study") == done[1]
    for wrong, told in (
        (replace(wanted, encoder=replace(wanted.encoder, model="/no/such/model")), "'/no/such/model' does not exist"),
        (replace(wanted, rank=replace(wanted.rank, language="klingon")), "'rank.language' is 'klingon'"),
    ):
        for command in (study, plan_study):
            with pytest.raises(ColabelError, match=told):
                command(wrong, tmp_path / "study")
    assert read_study(tmp_path / "study") == done[1]
    assert not plan_study(wanted, tmp_path / "study").stale
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "recipe.json").write_text('{"flour": 2}')
    with pytest.raises(UsageError, match=r"recipe\.json does not hold the settings of a study or run; move it away"):
        study(wanted, tmp_path / "notes")
    assert (tmp_path / "notes" / "recipe.json").read_text() == '{"flour": 2}'
    with pytest.raises(UsageError, match=r"recipe\.json is a file; expected a folder"):
        plan_study(wanted, tmp_path / "notes" / "recipe.json")
    (tmp_path / "notes" / "recipe.json").rename(tmp_path / "notes" / "report.md")
    with pytest.raises(UsageError, match=r"report\.md is there and recipe\.json is not"):
        study(wanted, tmp_path / "notes")
    assert (tmp_path / "notes" / "report.md").read_text() == '{"flour": 2}'


def test_studies_runs_and_transfers_keep_out_of_each_others_folders(wanted: Recipe, done: Done, tmp_path: Path) -> None:
    before = (done[0] / "recipe.json").read_bytes()
    with pytest.raises(UsageError, match="holds a study, whose rankings and settings a run would replace"):
        run(wanted, done[0], teacher="self")
    assert (done[0] / "recipe.json").read_bytes() == before
    shutil.copy(done[0] / "recipe.json", tmp_path)
    (tmp_path / "students").mkdir()
    with pytest.raises(UsageError, match="holds a run, whose rankings and settings a study would replace"):
        study(wanted, tmp_path)
    (tmp_path / "transfer.json").write_text("{}")
    for command in (run, study):
        with pytest.raises(UsageError, match="holds a transfer"):
            command(wanted, tmp_path)
    with pytest.raises(ArtefactError, match="is a transfer and holds no models"):
        noted_recipe(tmp_path)


def test_a_later_seed_that_fails_leaves_the_row_its_others(wanted: Recipe, done: Done) -> None:
    class Flaky(Study):
        def ranker(self, system: System, seed: int | None = None) -> Ranker:
            asked.append((system.slug, seed))
            if (system.slug, seed) in (("colbert", 1), ("self-kd", 0), ("colbert-hn", 0)):
                raise DataError("no more disk")
            return super().ranker(system, seed)

    asked: list[tuple[str, int | None]] = []
    repeated = replace(wanted.study, repeated=("colbert", "colbert-hn"))
    flaky = Flaky(replace(wanted, study=repeated), done[0])
    assert {seed for system, seed in flaky.rows if system.slug == "colbert-hn"} == {0, 1}
    ranked(flaky)
    assert ("colbert-hn", 1) not in asked, "a row without its first seed is not shown, so no other is trained"
    assert flaky.finished("colbert")
    assert list(flaky.runs["colbert"]) == [0]
    assert flaky.lost == ["ColBERT (θ) failed with seed 1 and stands on its other seeds: no more disk"]
    assert flaky.failed["self-kd"] == "no more disk"


def graded_collection(recipe: Recipe, folder: Path) -> Path:
    """Other passages, test queries alone, grades 0 to 3."""
    source = Path(recipe.data.source)
    (folder / "qrels").mkdir(parents=True)
    passages = (source / "corpus.jsonl").read_text().splitlines()[:30]
    (folder / "corpus.jsonl").write_text("\n".join(passages) + "\n")
    (folder / "queries.jsonl").write_bytes((source / "queries.jsonl").read_bytes())
    lines = [f"v{query}\td{passage}\t{(query + passage) % 4}" for query in range(5) for passage in range(0, 30, 2)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines) + "\n")
    return folder


def test_transfer_trains_nothing(recipe: Recipe, done: Done, tmp_path: Path, said: Said) -> None:
    source, _, _ = done
    data = graded_collection(recipe, tmp_path / "graded")
    before = {path: path.stat().st_mtime_ns for path in source.rglob("*") if path.is_file()}
    for _ in range(2):
        told = said("transfer", source, data, "--set", "data.relevant_from=2", "--out", tmp_path / "out")
        assert "small → graded test" in told
    assert {path: path.stat().st_mtime_ns for path in source.rglob("*") if path.is_file()} == before
    assert not list((tmp_path / "out").rglob("training"))
    document = read_study(tmp_path / "out")
    assert {system.slug for system in document.finished} == set(ROWS) - {"ce3-kd"}
    assert document.system("ce3-kd").failed.startswith("in the study: ")
    assert all(system.seeds == 1 for system in document.finished)
    assert document.relevant_from == 2
    assert document.system("colbert").unjudged_share > 0
    (judged,) = document.label_quality
    assert "passages without a judgement left out" in judged.title
    assert sorted(judged.teachers["cross-encoder"]) == ["1", "2", "3"], "each grade as the cut-off"
    assert len(document.comparisons["nDCG@10"].pairs) == 66
    indexed = {path.name for path in (tmp_path / "out" / "indexes").iterdir()}
    assert not any("tuned" in name for name in indexed), "each model encodes the collection once"


def test_a_transfer_may_be_measured_otherwise(recipe: Recipe, done: Done, tmp_path: Path) -> None:
    data = replace(recipe.data, source=str(graded_collection(recipe, tmp_path / "graded")))
    asked = ["RR(rel=3)@10", "P(rel=4)@5"]
    document, _ = transfer(done[0], data, tmp_path / "out", systems=["bm25", "colbert-prf-0.5"], measures=asked)
    assert document.measures == tuple(asked)
    assert "P(rel=4)@5 is 0 for every system: it counts grades from 4 up, and no label is higher than 3." in (
        document.notes
    )
    assert document.label_quality, "ColBERT-PRF has θ's index"


def test_some_rows_of_a_study_are_transferred(recipe: Recipe, done: Done, tmp_path: Path) -> None:
    source, *_ = done
    data = replace(recipe.data, source=str(graded_collection(recipe, tmp_path / "graded")))
    document, _ = transfer(source, data, tmp_path / "out", systems=["collective-0.50", "colbert"])
    assert [system.slug for system in document.systems] == ["colbert", "collective-0.5"]
    assert sorted(path.name for path in (tmp_path / "out" / "indexes").iterdir()) == ["colbert", "collective-0.5"]
    (judged,) = document.label_quality
    assert "cross-encoder" in judged.teachers, "the figure has every teacher of the study"
    with pytest.raises(UsageError, match="the study has no system 'mixed'; it has: bm25"):
        transfer(source, data, tmp_path / "other", systems=["mixed"])
    assert not (tmp_path / "other").exists()
    alone, _ = transfer(source, data, tmp_path / "out", systems=["collective-0.5"])
    assert not alone.label_quality
    assert any("without the system 'colbert'" in note for note in alone.notes)


def test_a_transferred_hybrid_joins_words_with_the_weight_of_the_study(
    wanted: Recipe, done: Done, recipe: Recipe, tmp_path: Path
) -> None:
    out = shutil.copytree(done[0], tmp_path / "study")
    chosen = replace(
        wanted.study, systems=("colbert", "hybrid", "memory", "hn-query"), seeds=1, repeated=(), sweep=False
    )
    study(replace(wanted, study=chosen, query_side=replace(wanted.query_side, steps=2)), out)
    data = replace(recipe.data, source=str(graded_collection(recipe, tmp_path / "graded")))
    transfer(out, data, tmp_path / "out")
    names = ("colbert", "hybrid", "memory")
    plain, joined, remembering = (read_run_file(tmp_path / "out" / "runs" / name) for name in names)
    assert joined == remembering, "what is remembered are passages of the study's own collection"
    assert plain.keys() == joined.keys()
    assert plain != joined
    indexes = {path.name for path in (tmp_path / "out" / "indexes").iterdir()}
    assert indexes == {"colbert"}, "a student of the query side searches the passages as θ encodes them"


def test_seeds_share_the_index_of_a_start_that_is_not_trained(wanted: Recipe, tmp_path: Path) -> None:
    chosen = replace(wanted.study, systems=("colbert", "hn-query"), seeds=2, repeated=("hn-query",), sweep=False)
    taken, few = replace(wanted.train, theta="take"), replace(wanted.query_side, steps=2)
    document, _ = study(replace(wanted, study=chosen, train=taken, query_side=few), tmp_path / "study")
    assert {one.slug: one.seeds for one in document.finished} == {"colbert": 1, "hn-query": 2}
    assert [path.parent.name for path in tmp_path.glob("study/seed-*/index")] == ["seed-0"]


def test_a_transfer_that_cannot_be(recipe: Recipe, tmp_path: Path, call: Call) -> None:
    command = ("transfer", tmp_path, recipe.data.source, "--out", tmp_path / "out")
    code, _, err = call(*command, "--set", "train.steps=3")
    assert (code, "--set train.steps=3: " in err) == (2, True)
    code, _, err = call(*command)
    assert (code, "has no study.json" in err) == (1, True)


def test_a_transfer_needs_the_settings_of_the_study(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"has no recipe\.json, so it is no run or study"):
        noted_recipe(tmp_path)
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(ArtefactError, match=r"recipe\.json cannot be read"):
        noted_recipe(tmp_path)
    write_json(tmp_path / "recipe.json", recipe.as_dict())
    assert noted_recipe(tmp_path) == (recipe, None)
    with pytest.raises(UsageError, match="is the study itself"):
        transfer(tmp_path, recipe.data, tmp_path)


def test_what_failed_is_not_tried_again_for_the_next_row(
    wanted: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def fail(*_: object, **__: object) -> None:
        attempts.append(1)
        raise TrainingError("the loss is not finite")

    monkeypatch.setattr("colabel.pipeline.stages.train_theta", fail)
    chosen = replace(wanted.study, systems=("bm25", "colbert", "colbert-hn", "self-kd", "colbert-prf-0.5"), seeds=1)
    document, _ = study(replace(wanted, study=chosen), tmp_path / "study")
    assert {one.slug for one in document.systems if one.failed} == set(chosen.systems) - {"bm25"}
    assert len(attempts) == 1


def missing(recipe: Recipe, out: Path) -> dict[str, str]:
    """System and seed → the sentence of each that would be made."""
    rows = plan_study(recipe, out).rows
    return {f"{row.system.slug}/{row.seed}": row.stale.sentence for row in rows if row.stale is not None}


def test_a_copied_study_is_a_finished_one(wanted: Recipe, done: Done, tmp_path: Path) -> None:
    shutil.copytree(done[0], tmp_path / "study", copy_function=shutil.copyfile)  # as cp -r: with other times
    plan = plan_study(wanted, tmp_path / "study")
    assert not plan.stale
    assert not plan.report_stale
    assert "nothing is left to do" in plan.lines
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "study").rglob("manifest.json")}
    again, _ = study(wanted, tmp_path / "study")
    assert again == done[1]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "study").rglob("manifest.json")} == before


def test_a_dry_run_names_what_differs_for_every_row_and_writes_nothing(
    wanted: Recipe, done: Done, tmp_path: Path
) -> None:
    out = done[0]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    slower = missing(replace(wanted, distil=replace(wanted.distil, learning_rate=1e-3)), out)
    assert slower["colbert-hn/0"] == slower["collective-0.5/1"] == "`distil` differs in distil.learning_rate"
    assert not {"bm25/0", "colbert/0", "colbert-prf-0.5/0"} & slower.keys()
    words = missing(replace(wanted, rank=replace(wanted.rank, k1=1.2)), out)
    assert {"bm25/0", "colbert/1", "self-kd/0"} <= words.keys(), "θ's negatives are BM25's"
    assert "zero-shot/0" not in words
    softer = missing(replace(wanted, labels=replace(wanted.labels, smoothing=0.3)), out)
    assert not softer, "no system is smoothed"
    longer = missing(replace(wanted, encoder=replace(wanted.encoder, passage_length=16)), out)
    assert longer["zero-shot/0"] == "`encoder` differs in encoder.passage_length"
    more = replace(wanted, study=replace(wanted.study, systems=(*wanted.study.systems, "colbert-prf-0.25")))
    assert missing(more, out) == {"colbert-prf-0.25/0": "`rank` is not made yet"}
    fewer = replace(wanted, study=replace(wanted.study, systems=("bm25", "colbert"), repeated=()))
    assert not plan_study(fewer, out).stale
    assert plan_study(fewer, out).report_stale, "the report is another"
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    longer_trained = plan_study(wanted, out, minutes=60, given=["fit.evaluate_every"])
    assert any("train.steps" in row.stale.differs for row in longer_trained.rows if row.stale)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    assert set(missing(wanted, tmp_path / "new")) >= {"bm25/0", "colbert/0"}
    assert not (tmp_path / "new").exists()


def test_an_edited_collection_is_another_and_a_moved_one_is_not(wanted: Recipe, done: Done, tmp_path: Path) -> None:
    shutil.copytree(wanted.data.source, tmp_path / "data")
    moved = replace(wanted, data=replace(wanted.data, source=str(tmp_path / "data")))
    assert not plan_study(moved, done[0]).stale
    corpus = tmp_path / "data" / "corpus.jsonl"
    lines = corpus.read_text().splitlines()
    first = json.loads(lines[0])
    corpus.write_text("\n".join([json.dumps({**first, "text": first["text"] + " and more"}), *lines[1:]]) + "\n")
    found = missing(moved, done[0])
    assert found["bm25/0"] == "`bm25` differs in its passages"
    assert len(found) == len([row for row in plan_study(moved, done[0]).rows if not row.refused])


def test_a_study_that_was_stopped_is_marked_until_it_is_finished(
    wanted: Recipe, done: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "study"
    shutil.copytree(done[0], out)
    chosen = replace(wanted.study, systems=("bm25", "colbert", "colbert-hn"), seeds=1, repeated=())
    other = replace(wanted, study=chosen, distil=replace(wanted.distil, learning_rate=1e-3))

    def stop(rows: Study) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Study, "rank_all", stop)
        study(other, out)
    assert outdated(out)
    with pytest.raises(ArtefactError, match="newer than its report"):
        transfer(out, wanted.data, tmp_path / "transfer")
    study(other, out)
    assert not outdated(out)
    assert not plan_study(other, out).stale


def test_what_is_refused_is_planned_as_failing(wanted: Recipe, tmp_path: Path) -> None:
    chosen = replace(wanted.study, systems=("bm25", "scores-kd"), seeds=1, repeated=())
    plan = plan_study(replace(wanted, study=chosen), tmp_path / "new")
    assert [row.refused != "" for row in plan.rows] == [False, True]
    assert "scores-kd, seed 0: will fail" in plan.lines
    assert plan.rows[1].seconds == 0.0


def test_a_transfer_takes_theta_from_the_study(wanted: Recipe, done: Done, recipe: Recipe, tmp_path: Path) -> None:
    """The model that a study began with may be gone: θ is what the study trained, or took."""
    data = replace(recipe.data, source=str(graded_collection(recipe, tmp_path / "graded")))
    shutil.copytree(done[0], tmp_path / "study")
    noted = json.loads((tmp_path / "study" / "recipe.json").read_text())
    noted["encoder"]["model"] = str(tmp_path / "gone")
    noted["train"]["save_every"] = 100  # of an earlier version
    write_json(tmp_path / "study" / "recipe.json", noted)
    document, _ = transfer(tmp_path / "study", data, tmp_path / "out", systems=["colbert"])
    assert document.system("colbert").failed is None
