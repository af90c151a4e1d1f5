"""Collective knowledge: what the feedback passages of a query have in common (Eq. 6, left of the sum)."""

from colabel.collective.kmeans import cluster, plus_plus_start, spread_start, top_passage_start

__all__ = ["cluster", "plus_plus_start", "spread_start", "top_passage_start"]
