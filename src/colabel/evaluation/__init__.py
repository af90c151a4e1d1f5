"""How good rankings are."""

from colabel.evaluation.runs import Evaluation, evaluate, read_run_file

__all__ = ["Evaluation", "evaluate", "read_run_file"]
