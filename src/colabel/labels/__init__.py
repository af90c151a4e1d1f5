"""The label artefact: one format for every teacher, its figures, its exports, and labels that seem to be missing."""

from colabel.labels.artefact import Flag, LabelBlock, Labels, QueryLabels, open_labels
from colabel.labels.export import FORMATS, export_labels
from colabel.labels.labelling import label
from colabel.labels.missing import ORDERS, MissingLabel, find_missing, missing_labels

from colabel.labels.missing import check_missing_file, remembered_knowledge, write_missing  # isort: skip
from colabel.labels.statistics import LabelReport, probabilities, report_labels

__all__ = [
    "FORMATS",
    "ORDERS",
    "Flag",
    "LabelBlock",
    "LabelReport",
    "Labels",
    "MissingLabel",
    "QueryLabels",
    "check_missing_file",
    "export_labels",
    "find_missing",
    "label",
    "missing_labels",
    "open_labels",
    "probabilities",
    "remembered_knowledge",
    "report_labels",
    "write_missing",
]
