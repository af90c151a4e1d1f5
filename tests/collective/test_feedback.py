"""Which passages are feedback."""

from __future__ import annotations

import numpy as np
import pytest

from colabel.collective import choose_feedback
from colabel.errors import UsageError
from colabel.settings import CollectiveSettings
from tests.collective.small import SETTINGS


def feedback(mode: str, ranked: list[int], labelled: list[int] | None, passages: int = 3) -> list[int]:
    settings = CollectiveSettings(feedback=mode, feedback_passages=passages)
    found = choose_feedback(np.array([ranked]), settings, None if labelled is None else [labelled])
    return found[0].tolist()


def test_feedback_of_each_kind() -> None:
    assert feedback("top", [5, 6, 7, 8], [7]) == [5, 6, 7]
    assert feedback("labelled", [5, 6, 7, 8], [9, 7]) == [7, 9, -1], "the ranked one first"
    assert feedback("labelled-first", [5, 6, 7, 8], [7]) == [7, 5, 6]
    assert feedback("labelled-first", [5, 6], [9]) == [9, 5, 6]
    assert feedback("labelled", [5, 6, 7], list(range(10))) == [5, 6, 7], "at most f_p"


def test_labels_of_a_query_that_is_not_for_training_are_not_looked_at() -> None:
    for mode in ("labelled", "labelled-first"):
        assert feedback(mode, [5, 6, 7], None) == [5, 6, 7]
    assert feedback("labelled", [5, 6, 7], []) == [5, 6, 7], "a query without positives uses its top"
    with pytest.raises(UsageError, match="1 lists of positives do not fit 2 queries"):
        choose_feedback(np.zeros((2, 3), int), SETTINGS, [[1]])
