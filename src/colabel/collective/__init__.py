"""Collective knowledge: what the feedback passages of a query have in common (Eq. 6, left of the sum)."""

from colabel.collective.expansion import Centroids, expand, expansion_weights
from colabel.collective.extraction import extract
from colabel.collective.feedback import Feedback, choose_feedback
from colabel.collective.inspection import inspect
from colabel.collective.knowledge import Knowledge, collect, open_knowledge
from colabel.collective.prf import PrfRanker

__all__ = [
    "Centroids",
    "Feedback",
    "Knowledge",
    "PrfRanker",
    "choose_feedback",
    "collect",
    "expand",
    "expansion_weights",
    "extract",
    "inspect",
    "open_knowledge",
]
