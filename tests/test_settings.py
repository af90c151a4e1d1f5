from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colabel.data import load_recipe
from colabel.errors import ColabelError, SettingsError, UsageError
from colabel.settings import CollectiveSettings, DataSettings, Recipe
from colabel.settings.declare import RENAMED
from colabel.settings.recipe import build_recipe, recipe_from_overrides


def recipe(tmp_path: Path, text: str, *overrides: str) -> Recipe:
    path = tmp_path / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return load_recipe(path, overrides)


def test_defaults_are_the_papers() -> None:
    settings = CollectiveSettings()
    assert (settings.feedback_passages, settings.clusters, settings.centroids) == (3, 24, 10)


def test_recipe_mirrors_the_settings(tmp_path: Path) -> None:
    loaded = recipe(tmp_path, 'seed = 7\n[data]\nsource = "pydocs"\n[collective]\nbeta = 1\nclusters = 12\n')
    assert loaded == Recipe(
        data=DataSettings(source="pydocs"), collective=CollectiveSettings(beta=1.0, clusters=12), seed=7
    )
    assert isinstance(loaded.collective.beta, float)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[data]\nsource='x'\n[collective]\nclsuters = 3\n",
            [":4:", "'collective.clsuters'", "did you mean 'clusters'"],
        ),
        (
            "[data]\nsource='x'\n[collective]\nclusters = '3'\n",
            [":4:", "'collective.clusters' is '3'", "from 1 to 4,096"],
        ),
        ("[data]\nsource='x'\n[collective]\nclusters = true\n", ["'collective.clusters' is True", "whole number"]),
        ("[data]\nsource='x'\n[collective]\nclusters = 0\n", ["'collective.clusters' is 0", "from 1 to 4,096"]),
        ("[data]\nsource='x'\n[collective]\nbeta = nan\n", ["'collective.beta' is nan", "from 0.0 to 1,000.0"]),
        ("[data]\nsource='x'\n[collective]\ncentroids = 30\n", [":4:", "'collective.centroids' is 30", "1 to 24"]),
        ("[dataa]\nsource='x'\n", [":1:", "unknown key 'dataa'", "did you mean 'data'"]),
        ("seed = 1\n", ["'data' is missing"]),
        ("data = 3\n", ["'data' is 3", "[data]"]),
        ("[data]\n", ["'data.source' is missing"]),
        ("[data]\nsource = ''\n", ["'data.source' is empty"]),
        ("[data]\nsource = 'x'\nunknown_labels = 'drp'\n", [":3:", "'refuse', 'drop'", "did you mean 'drop'"]),
        ("[data]\nsource = 'x'\n[data.columns]\npassage = 'x'\n", ["'data.columns.passage'", "passage_id"]),
        ("[data]\nsource = 'x'\nlabels = 'x'\n", ["'data.labels' is 'x'", "table of strings"]),
        ("[data]\nsource = 'x'\nqueries = [1]\n", ["'data.queries' is [1]", "list of strings"]),
        ("source = 'x'\n", [":1:", "unknown key 'source'; did you mean 'data.source', under [data]?"]),
        ("[data]\nsource\n", [":2: not valid TOML", "line 2"]),
        ("x = " + "[" * 5000 + "\n", ["not valid TOML"]),
        (f"[data]\nsource='x'\n[collective]\nbeta = {'9' * 400}\n", ["'collective.beta' is 999", "1,000.0"]),
        (f"[data]\nsource='x'\nkeep_labels = {'9' * 400}\n", ["'data.keep_labels' is 999", "to 1,000"]),
        (f"x = {'9' * 5000}\n", ["not valid TOML"]),
    ],
)
def test_a_wrong_recipe_is_a_sentence_with_file_and_remedy(tmp_path: Path, text: str, expected: list[str]) -> None:
    with pytest.raises(SettingsError) as error:
        recipe(tmp_path, text)
    message = str(error.value)
    assert message.startswith(str(tmp_path / "recipe.toml"))
    for part in expected:
        assert part in message


def test_a_wrong_override_does_not_blame_the_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("[data]\nsource = 'x'\n")
    for override, told in (
        ("study.seeds=0", "--set study.seeds: 'study.seeds' is 0"),
        ("trian.steps=3", "unknown key 'trian'; did you mean 'train'"),
        ("relevant_from=2", "--set relevant_from: unknown key 'relevant_from'; did you mean 'data.relevant_from'"),
    ):
        with pytest.raises(SettingsError) as error:
            load_recipe(path, [override])
        assert told in str(error.value)
        assert not str(error.value).startswith(str(path))


def test_impossible_combination_in_python_too() -> None:
    with pytest.raises(SettingsError, match="centroids' is 30; expected a whole number from 1 to 24"):
        CollectiveSettings(centroids=30)


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        CollectiveSettings().beta = 2.0  # type: ignore[misc]


def test_overrides(tmp_path: Path) -> None:
    text = '[data]\nsource = "pydocs"\n'
    loaded = recipe(tmp_path, text, "collective.beta=0.5", "seed=3", "data.source=pydocs:100")
    assert (loaded.collective.beta, loaded.seed, loaded.data.source) == (0.5, 3, "pydocs:100")
    with pytest.raises(SettingsError, match=r"SECTION\.KEY=VALUE"):
        recipe(tmp_path, text, "nonsense")
    with pytest.raises(SettingsError, match=r"^--set collective\.clusters: 'collective\.clusters' is 0"):
        recipe(tmp_path, text + "[collective]\nclusters = 24\n", "collective.clusters=0")
    with pytest.raises(SettingsError, match="'seed' is not a table"):
        recipe(tmp_path, "seed = 1\n" + text, "seed.x=1")


def test_paths_are_relative_to_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    loaded = recipe(tmp_path, '[data]\nsource = "mine"\nqueries = ["q.tsv"]\nlabels = {test = "t.txt"}\n')
    assert loaded.data.source == str(tmp_path / "mine")
    assert loaded.data.queries == (str(tmp_path / "q.tsv"),)
    assert loaded.data.labels == {"test": str(tmp_path / "t.txt")}
    (tmp_path / "pydocs").mkdir()
    assert recipe(tmp_path, '[data]\nsource = "pydocs"\n').data.source == "pydocs", "a name stays a name"
    assert recipe(tmp_path, '[data]\nsource = "none"\n').data.source == str(tmp_path / "none")
    assert recipe(tmp_path, '[data]\nsource = "hf:a"\n').data.source == f"hf:{tmp_path / 'a'}"


def test_paths_that_were_typed_are_relative_to_the_current_folder(tmp_path: Path) -> None:
    text = '[data]\nsource = "mine"\nqueries = ["q.tsv"]\nlabels = {dev = "d.txt", test = "t.txt"}\n'
    typed = recipe(tmp_path, text, "data.source=other/caves", "data.labels.test=new.txt").data
    assert typed.source == "other/caves"
    assert typed.labels == {"dev": str(tmp_path / "d.txt"), "test": "new.txt"}
    assert typed.queries == (str(tmp_path / "q.tsv"),)
    assert recipe(tmp_path, text, 'data.queries=["p.tsv"]', 'data.labels={dev="e.txt"}').data.queries == ("p.tsv",)
    assert recipe(tmp_path, text, 'data.labels={dev="e.txt"}').data.labels == {"dev": "e.txt"}


def test_unreadable_recipes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such recipe file"):
        load_recipe(tmp_path / "none.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        load_recipe(tmp_path / "folder.toml")
    assert load_recipe(tmp_path, ["train.steps=3"]).data.source == str(tmp_path), "a dataset"
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    with pytest.raises(SettingsError, match="not UTF-8"):
        load_recipe(tmp_path / "latin.toml")


@given(st.text(max_size=60))
def test_no_recipe_text_makes_a_traceback(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("recipe") / "r.toml"
    path.write_text(text, encoding="utf-8", errors="replace", newline="")
    with pytest.raises(ColabelError):
        load_recipe(path)


@given(st.text(max_size=40))
def test_no_override_makes_a_traceback(text: str) -> None:
    with contextlib.suppress(ColabelError):
        recipe_from_overrides("pydocs", [text])


@pytest.mark.parametrize("key", RENAMED)
def test_a_key_that_went_is_refused_with_what_does_it_now(key: str) -> None:
    section, _, name = key.partition(".")
    with pytest.raises(SettingsError, match=f"'{key}' is no longer a setting") as caught:
        build_recipe({"data": {"source": "pydocs", **({name: 1} if section == "data" else {})}, section: {name: 1}})
    assert RENAMED[key] in str(caught.value)
    assert str(caught.value).count("'") == 2, "the first quoted name is the key whose line is shown"


def test_a_key_that_went_is_found_in_a_recipe_and_behind_set(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"recipe\.toml:4: 'train\.teacher' is no longer a setting"):
        recipe(tmp_path, "[data]\nsource = 'x'\n[train]\nteacher = 'take'\n", "train.theta='take'")
    with pytest.raises(SettingsError, match=r"^--set train\.teacher: 'train\.teacher' is no longer a setting"):
        recipe(tmp_path, "[data]\nsource = 'x'\n", "train.teacher='take'")
