"""The label artefact: one format for every teacher, its figures, its exports, and labels that seem to be missing."""

from colabel.labels.artefact import Flag, LabelBlock, Labels, QueryLabels, open_labels, probabilities
from colabel.labels.export import FORMATS, export_labels
from colabel.labels.labelling import label
from colabel.labels.missing import ORDERS, MissingLabel, find_missing, missing_labels
from colabel.labels.verdict_files import read_review, write_verdicts
from colabel.labels.verdicts import Applied, Verdict, VerdictStore, apply_verdicts, decide, of_people
