"""Collective knowledge: what the feedback passages of a query have in common (Eq. 6, left of the sum)."""

from colabel.collective.centroids import extract
from colabel.collective.expansion import Centroids, expand, expansion_weights
from colabel.collective.feedback import choose_feedback
from colabel.collective.knowledge import Knowledge, collect, inspect, open_knowledge
from colabel.collective.prf import PrfRanker

__all__ = [
    "Centroids",
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
