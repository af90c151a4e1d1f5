"""How good rankings and labels are, how sure that is, and how long an answer takes."""

from colabel.evaluation.comparison import Comparison, Spread, compare, merge_seeds, seed_groups, spread, values_by_seed
from colabel.evaluation.evaluations import Evaluation, evaluate, evaluate_qrels, read_run_file, write_per_query
from colabel.evaluation.hidden_labels import LabelQuality, label_quality, suggestion_precision
from colabel.evaluation.precision_recall import Quality, precision_recall
from colabel.evaluation.significance import (
    Interval,
    PairedTest,
    bootstrap_mean,
    bootstrap_unpaired,
    holm,
    paired_test,
    randomisation_test,
)
from colabel.evaluation.timing import ResponseTimes, response_times, response_times_of

__all__ = [
    "Comparison",
    "Evaluation",
    "Interval",
    "LabelQuality",
    "PairedTest",
    "Quality",
    "ResponseTimes",
    "Spread",
    "bootstrap_mean",
    "bootstrap_unpaired",
    "compare",
    "evaluate",
    "evaluate_qrels",
    "holm",
    "label_quality",
    "merge_seeds",
    "paired_test",
    "precision_recall",
    "randomisation_test",
    "read_run_file",
    "response_times",
    "response_times_of",
    "seed_groups",
    "spread",
    "suggestion_precision",
    "values_by_seed",
    "write_per_query",
]
