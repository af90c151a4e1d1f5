"""Pages for a documentation: figures and ids alone, the same bytes again, and an index over all of them."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from studies import BAD

from colabel.cli import main
from colabel.errors import ArtefactError, UsageError
from colabel.reporting import StudyDocument, results_table, write_index, write_pages, write_report, write_study
from colabel.reporting.records import System


@pytest.fixture
def study_folder(full_study: StudyDocument, tmp_path: Path) -> Path:
    """A study whose recipe, notes and failures name folders of a machine."""
    failed = dataclasses.replace(full_study.systems[10], failed="/home/me/studies/x/theta is damaged; train again")
    document = dataclasses.replace(
        full_study,
        systems=(*full_study.systems[:10], failed, *full_study.systems[11:]),
        recipe='[data]\nsource = "/home/me/data/caves"\n',
        notes=("See ../../home/me/notes.txt.",),
        settings={"data.source": "jsonl:/home/me/data/caves.jsonl"},
        models={"encoder": "/home/me/models/small"},
    )
    folder = tmp_path / "caves"
    folder.mkdir()
    write_study(folder, document)
    return folder


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_pages_hold_figures_and_ids_alone(study_folder: Path, full_study: StudyDocument, tmp_path: Path) -> None:
    write_pages(study_folder, tmp_path / "results")
    everything = b"".join(written(tmp_path / "results").values()).decode()
    assert "home/me" not in everything
    assert 'source = "…/caves"' in everything
    assert "…/theta is damaged" in everything
    assert "| data.source | jsonl:…/caves.jsonl |" in everything
    assert "| encoder | …/small |" in everything
    texts = [full_study.examples[0].query, "formed within the ice", "Glacier cave", BAD]
    texts += [token.token for token in full_study.examples[0].tokens if token.token != "ice"]
    assert not [text for text in texts if text in everything]
    assert "- 41 → 3 **hidden positive** d17" in (tmp_path / "results" / "caves.md").read_text()


def test_the_same_study_gives_the_same_pages(study_folder: Path, tmp_path: Path) -> None:
    first = write_pages(study_folder, tmp_path / "results")
    before = written(tmp_path / "results")
    (tmp_path / "results" / "caves" / "difference-0-old.svg").write_text("of an earlier version")
    assert write_pages(study_folder, tmp_path / "results") == first
    assert written(tmp_path / "results") == before
    assert write_index(tmp_path / "results").read_bytes() == before["README.md"]


def test_a_page_is_rendered_again_when_the_study_is_gone(study_folder: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    write_pages(study_folder, results)
    before = written(results)
    (results / "caves.md").unlink()
    write_pages(results / "caves", results)
    assert written(results) == before
    assert len(json.loads(before["caves/study.json"])["per_query"]["colbert"]["nDCG@10"]) > 10


def test_plots_are_whole_files(study_folder: Path, tmp_path: Path) -> None:
    write_pages(study_folder, tmp_path / "results")
    page = (tmp_path / "results" / "caves.md").read_text()
    plots = sorted((tmp_path / "results" / "caves").glob("*.svg"))
    assert {"difference-0.svg", "dev-seconds.svg", "precision-recall-0-0-pooled.svg"} <= {path.name for path in plots}
    for path in plots:
        assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        assert "--series-1" in path.read_text()
        assert f"](caves/{path.name})" in page


def test_the_index_compares_all_studies(study_folder: Path, full_study: StudyDocument, tmp_path: Path) -> None:
    results = tmp_path / "results"
    write_pages(study_folder, results)
    fewer = dataclasses.replace(full_study, name="other", measures=("nDCG@10",), systems=full_study.systems[:3])
    (tmp_path / "o").mkdir()
    write_study(tmp_path / "o", fewer)
    (results / "README.reading.md").write_text("What holds: *little*.\n")
    (results / "caves.reading.md").write_text("Caves are special.\n")
    write_pages(tmp_path / "o", results, "other")
    write_pages(study_folder, results)
    index = (results / "README.md").read_text()
    assert index.startswith("# Results\n\nWhat holds: *little*.\n")
    assert (results / "caves.md").read_text().splitlines()[2] == "Caves are special."
    assert index.count("\n## ") == 3
    table = [line.split(" | ") for line in index.split("## nDCG@10")[1].split("## ")[0].strip().splitlines()]
    assert table[0][1:] == ["[caves](caves.md)", "[other](other.md) |"]
    rows = {line[0].removeprefix("| "): line[1:] for line in table[2:]}
    best = max(system.means["nDCG@10"] for system in full_study.finished)
    assert rows["Collective self-KD (β = 1)"] == [f"**{best:.3f}** ▲", "– |"]
    assert rows["Plain encoder, not trained"][0].endswith("▼")
    assert rows["ColBERT"][1].startswith("**")


def test_transfers_come_last_in_the_index(tmp_path: Path) -> None:
    first = StudyDocument("b", ("AP",), systems=(System("bm25", "BM25", means={"AP": 0.1}),))
    transfer = dataclasses.replace(first, name="b → other")
    text, _ = index_of({"a-other": transfer, "b": first}, tmp_path)
    assert text.index("[b](b.md)") < text.index("[b → other](a-other.md)")
    assert "| System | [b](b.md) | [a-other](a-other.md) |" in text


def test_figures_are_rounded_and_pairs_are_those_with_the_reference(study_folder: Path, tmp_path: Path) -> None:
    write_pages(study_folder, tmp_path / "results")
    found = json.loads((tmp_path / "results" / "caves.json").read_text())
    assert len(found["significance"]["nDCG@10"]["pairs"]) == 12
    value = found["systems"]["colbert"]["nDCG@10"]
    assert value == round(value, 6)


def test_a_small_p_value_is_not_0(study_folder: Path, full_study: StudyDocument, tmp_path: Path) -> None:
    found = full_study.comparisons["RR@10"]
    pair = dataclasses.replace(found.pairs[0], t_test_holm=1.23456789e-12)
    small = dataclasses.replace(found, pairs=(pair, *found.pairs[1:]))
    write_study(study_folder, dataclasses.replace(full_study, comparisons={"RR@10": small}))
    write_pages(study_folder, tmp_path / "results")
    written = json.loads((tmp_path / "results" / "caves.json").read_text())
    assert written["significance"]["RR@10"]["pairs"][0]["t_test_holm"] == 1.23457e-12


def index_of(studies: dict[str, StudyDocument], folder: Path) -> tuple[str, dict[str, list[str]]]:
    """The index page of some studies, and the cells of each row of its first table."""
    for name, document in studies.items():
        (folder / name).mkdir(parents=True)
        write_study(folder / name, document)
        write_pages(folder / name, folder / "results")
    text = (folder / "results" / "README.md").read_text()
    lines = [line.strip("| ").split(" | ") for line in text.split("## ")[1].splitlines()[4:] if line]
    return text, {line[0]: line[1:] for line in lines}


def test_the_index_compares_rows_on_a_seed_that_all_have(tmp_path: Path) -> None:
    systems = (
        System("bm25", "BM25", means={"AP": 0.1}),
        System("a", "A", seeds=2, means={"AP": 0.5}),
        System("b", "B", means={"AP": 0.55}),
    )
    seeds = {"0": {"AP": {"q1": 0.5, "q2": 0.7}}, "1": {"AP": {"q1": 0.3, "q2": 0.5}}}
    several = StudyDocument("several", ("AP",), systems=systems, per_seed={"a": seeds})
    once = dataclasses.replace(
        several, name="once", systems=tuple(dataclasses.replace(one, seeds=1) for one in systems), per_seed={}
    )
    text, rows = index_of({"several": several, "once": once}, tmp_path / "both")
    assert "¹ one seed, where others of the study have several; there, bold is the best on the first seed" in text
    assert rows.pop("*tests corrected for*") == ["3", "3"]
    assert rows == {"BM25": ["0.100", "0.100"], "A": ["0.500", "**0.500**"], "B": ["**0.550**", "0.550¹"]}
    text, rows = index_of({"once": once}, tmp_path / "one")
    assert "¹" not in text
    written = tmp_path / "both" / "results" / "several.json"
    found = json.loads(written.read_text())
    written.write_text(json.dumps({key: value for key, value in found.items() if key != "per_seed"}))
    write_index(tmp_path / "both" / "results")
    assert "**0.500**" not in (tmp_path / "both" / "results" / "README.md").read_text(), "a file of an earlier version"


def test_mistakes(study_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("README", "a b", "../x"):
        with pytest.raises(UsageError, match="cannot be the name of a page"):
            write_pages(study_folder, tmp_path / "results", name)
    (tmp_path / "results").mkdir(exist_ok=True)
    (tmp_path / "results" / "x.json").write_text('{"name": "x"}')
    (tmp_path / "results" / "x.md").write_text("# x")
    with pytest.raises(ArtefactError, match=r"x\.json has no 'measures'"):
        write_index(tmp_path / "results")
    with pytest.raises(SystemExit) as stop:
        main(["report", str(study_folder), "--name", "x"])
    assert stop.value.code == 2
    assert "add --pages FOLDER" in capsys.readouterr().err


def test_the_command(study_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["report", str(study_folder), "--pages", str(tmp_path / "results"), "--name", "c"])
    captured = capsys.readouterr()
    assert not stop.value.code, captured.err
    assert captured.out.split()[4:] == [str(tmp_path / "results" / name) for name in ("c.md", "c.json", "README.md")]


def test_pages_spare_what_is_not_theirs(study_folder: Path, full_study: StudyDocument, tmp_path: Path) -> None:
    """A study whose folder is where its page would be keeps its figures, and pictures of others stay."""
    write_report(full_study, study_folder)
    (study_folder / "recipe.json").write_text("{}")
    before = written(study_folder)
    with pytest.raises(UsageError, match=r"caves/recipe\.json is of no page that colabel wrote"):
        write_pages(study_folder, study_folder.parent)
    assert written(study_folder) == before
    assert not (study_folder.parent / "caves.md").exists()
    results = tmp_path / "results"
    (results / "caves").mkdir(parents=True)
    (results / "caves" / "mine.svg").write_text("a picture")
    (results / "package.json").write_text("{}")
    write_pages(study_folder, results)
    assert (results / "caves" / "mine.svg").read_text() == "a picture"
    assert "package" not in (results / "README.md").read_text()
    again = write_pages(results / "caves", results)
    write_report(full_study, results / "caves")
    assert write_pages(results / "caves", results) == again
    for name in ("README.md", "notes.md"):
        (tmp_path / "mine").mkdir(exist_ok=True)
        (tmp_path / "mine" / name).write_text("By hand.")
        with pytest.raises(UsageError, match=f"{name} is of no page that colabel wrote; choose another --pages folder"):
            write_pages(study_folder, tmp_path / "mine", "notes")
        assert written(tmp_path / "mine") == {name: b"By hand."}
        (tmp_path / "mine" / name).unlink()
    with pytest.raises(UsageError, match=r"'caves\.reading' cannot be the name of a page"):
        write_pages(study_folder, tmp_path / "mine", "caves.reading")


def test_some_rows_for_a_page_elsewhere(study_folder: Path, tmp_path: Path) -> None:
    """The best of the rows that are shown is bold, and links lead to the pages."""
    write_pages(study_folder, tmp_path / "results")
    found = json.loads((tmp_path / "results" / "caves.json").read_text())["systems"]
    chosen = sorted(found, key=lambda slug: found[slug]["nDCG@10"])[:2]
    head, _, worse, better = results_table(
        tmp_path / "results", "nDCG@10", ["caves"], chosen, "docs/results/"
    ).splitlines()
    assert head == "| System | [caves](docs/results/caves.md) |"
    assert "**" not in worse
    assert f"**{found[chosen[1]]['nDCG@10']:.3f}**" in better


def test_pages_are_written_into_a_folder(study_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "results").write_text("mine")
    with pytest.raises(UsageError, match="results is a file; --pages takes a folder"):
        write_pages(study_folder, tmp_path / "results")
    assert (tmp_path / "results").read_text() == "mine"
