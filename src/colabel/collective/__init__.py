"""Collective knowledge: what the feedback passages of a query have in common (Eq. 6, left of the sum)."""

from colabel.collective.centroids import Centroids, choose_feedback, extract
from colabel.collective.expansion import PrfRanker, expand
from colabel.collective.knowledge import Knowledge, collect, inspect, open_knowledge
