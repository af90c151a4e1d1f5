"""The label artefact: one format for every teacher, its figures, its exports, and labels that seem to be missing."""

from colabel.labels.artefact import Flag, LabelBlock, Labels, Origin, QueryLabels, open_labels
from colabel.labels.export import FORMATS, export_labels
from colabel.labels.labelling import PairChoice, label
from colabel.labels.missing import (
    ORDERS,
    MissingLabel,
    MissingPair,
    Reason,
    check_missing_file,
    find_missing,
    missing_labels,
    remembered_knowledge,
    write_missing,
)
from colabel.labels.statistics import LabelReport, best_labelled, entropy, missing_ranks, probabilities, report_labels

__all__ = [
    "FORMATS",
    "ORDERS",
    "Flag",
    "LabelBlock",
    "LabelReport",
    "Labels",
    "MissingLabel",
    "MissingPair",
    "Origin",
    "PairChoice",
    "QueryLabels",
    "Reason",
    "best_labelled",
    "check_missing_file",
    "entropy",
    "export_labels",
    "find_missing",
    "label",
    "missing_labels",
    "missing_ranks",
    "open_labels",
    "probabilities",
    "remembered_knowledge",
    "report_labels",
    "write_missing",
]
