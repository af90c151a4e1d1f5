from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from colabel.artefacts.fingerprint import fingerprint
from colabel.data.pydocs.collection import build
from colabel.data.pydocs.harvest import harvest
from colabel.data.pydocs.libraries import MODULES

PROGRAM = """
{imports}
from test_pydocs_determinism import digest
print(digest({libraries!r}))
"""
OTHER_IMPORTS = """
import matplotlib.pyplot, networkx, torch, pandas
from sklearn.experimental import enable_halving_search_cv, enable_iterative_imputer
"""


def digest(libraries: tuple[str, ...]) -> str:
    return fingerprint([str(entry) for entry in build(harvest(libraries)[0])])


@pytest.mark.parametrize(
    ("libraries", "imports"),
    [
        (("numpy", "pandas", "networkx"), "import networkx, pandas"),
        pytest.param(tuple(MODULES), OTHER_IMPORTS, marks=pytest.mark.slow),
    ],
)
def test_same_in_another_process(libraries: tuple[str, ...], imports: str) -> None:
    """Another hash seed, other imports in another order, experimental parts switched on: the same entries."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path, "MPLBACKEND": "Agg"}
    program = PROGRAM.format(imports=imports, libraries=libraries)
    output = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == digest(libraries)
