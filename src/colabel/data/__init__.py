"""Data in: one file per format, one Dataset for all later stages."""

from colabel.data.checking import CheckReport, check
from colabel.data.conversion import convert
from colabel.data.dataset import Dataset
from colabel.data.hiding import hide_labels
from colabel.data.load import load_dataset, open_source, reopen_passages
from colabel.data.passages import PassageTable
from colabel.data.triples import read_triples

__all__ = [
    "CheckReport",
    "Dataset",
    "PassageTable",
    "check",
    "convert",
    "hide_labels",
    "load_dataset",
    "open_source",
    "read_triples",
    "reopen_passages",
]
