"""Data in: one class per format, one Dataset for all later stages."""

from colabel.data.checking import CheckReport, check
from colabel.data.conversion import convert
from colabel.data.dataset import Dataset
from colabel.data.load import load_dataset, load_recipe, open_source, reopen_passages, resolve_paths
from colabel.data.passages import PassageTable
from colabel.data.splits import hide_labels

__all__ = [
    "CheckReport",
    "Dataset",
    "PassageTable",
    "check",
    "convert",
    "hide_labels",
    "load_dataset",
    "load_recipe",
    "open_source",
    "reopen_passages",
    "resolve_paths",
]
