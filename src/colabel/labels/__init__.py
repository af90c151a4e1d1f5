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
from colabel.labels.verdict_files import read_review, write_verdicts
from colabel.labels.verdicts import Applied, Verdict, VerdictStore, apply_verdicts, decide

__all__ = [
    "FORMATS",
    "ORDERS",
    "Applied",
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
    "Verdict",
    "VerdictStore",
    "apply_verdicts",
    "best_labelled",
    "check_missing_file",
    "decide",
    "entropy",
    "export_labels",
    "find_missing",
    "label",
    "missing_labels",
    "missing_ranks",
    "open_labels",
    "probabilities",
    "read_review",
    "remembered_knowledge",
    "report_labels",
    "write_missing",
    "write_verdicts",
]
