"""Data in: one class per format, one Dataset for all later stages."""

from colabel.data.checking import CheckReport, check
from colabel.data.conversion import convert
from colabel.data.dataset import Dataset
from colabel.data.load import (
    has_training_labels,
    load_dataset,
    load_recipe,
    open_source,
    reopen_passages,
    resolve_paths,
)
from colabel.data.passages import PassageTable
from colabel.data.pseudo import with_training_queries
from colabel.data.splits import hide_labels
