"""How good rankings and labels are, how sure that is, and how long an answer takes."""

from colabel.evaluation.comparison import Comparison, compare
from colabel.evaluation.intervals import Interval, bootstrap_difference, bootstrap_mean, bootstrap_unpaired
from colabel.evaluation.label_quality import LabelQuality, label_quality, suggestion_precision
from colabel.evaluation.quality import Quality, precision_recall
from colabel.evaluation.runs import Evaluation, evaluate, evaluate_qrels, read_run_file, write_per_query
from colabel.evaluation.seeds import Spread, is_run_of, merge_seeds, seed_groups, spread
from colabel.evaluation.significance import PairedTest, holm, paired_test, randomisation_test
from colabel.evaluation.timing import ResponseTimes, response_times, response_times_of
from colabel.paired import t_test

__all__ = [
    "Comparison",
    "Evaluation",
    "Interval",
    "LabelQuality",
    "PairedTest",
    "Quality",
    "ResponseTimes",
    "Spread",
    "bootstrap_difference",
    "bootstrap_mean",
    "bootstrap_unpaired",
    "compare",
    "evaluate",
    "evaluate_qrels",
    "holm",
    "is_run_of",
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
    "t_test",
    "write_per_query",
]
