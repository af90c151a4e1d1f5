"""The label artefact: one format for every teacher, its report, its exports, and the labels that seem to be missing."""

from colabel.labels.artefact import Flag, LabelBlock, Labels, Origin, QueryLabels, open_labels
from colabel.labels.export import FORMATS, export_labels
from colabel.labels.labelling import PairChoice, label
from colabel.labels.missing import (
    MissingLabel,
    Reason,
    check_missing_file,
    missing_labels,
    remembered_knowledge,
    write_missing,
)
from colabel.labels.report import LabelReport, report_labels
from colabel.labels.suspects import DEFAULT_ORDER, ORDERS, Suspect, find_suspects, order_values
from colabel.labels.targets import best_labelled, entropy, probabilities, suspect_ranks

__all__ = [
    "DEFAULT_ORDER",
    "FORMATS",
    "ORDERS",
    "Flag",
    "LabelBlock",
    "LabelReport",
    "Labels",
    "MissingLabel",
    "Origin",
    "PairChoice",
    "QueryLabels",
    "Reason",
    "Suspect",
    "best_labelled",
    "check_missing_file",
    "entropy",
    "export_labels",
    "find_suspects",
    "label",
    "missing_labels",
    "open_labels",
    "order_values",
    "probabilities",
    "remembered_knowledge",
    "report_labels",
    "suspect_ranks",
    "write_missing",
]
