"""How good rankings and labels are, how sure that is, and how long an answer takes."""

from colabel.evaluation.comparison import Comparison, compare, merge_seeds, values_by_seed
from colabel.evaluation.evaluations import Evaluation, evaluate, evaluate_qrels, read_run_file
from colabel.evaluation.hidden_labels import LabelQuality, label_quality, suggestion_precision
from colabel.evaluation.precision_recall import Quality, precision_recall
from colabel.evaluation.significance import Interval, PairedTest, bootstrap_mean, holm, paired_test
from colabel.evaluation.timing import ResponseTimes, response_times

__all__ = [
    "Comparison",
    "Evaluation",
    "Interval",
    "LabelQuality",
    "PairedTest",
    "Quality",
    "ResponseTimes",
    "bootstrap_mean",
    "compare",
    "evaluate",
    "evaluate_qrels",
    "holm",
    "label_quality",
    "merge_seeds",
    "paired_test",
    "precision_recall",
    "read_run_file",
    "response_times",
    "suggestion_precision",
    "values_by_seed",
]
