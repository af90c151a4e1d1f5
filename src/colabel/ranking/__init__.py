"""Rankings: BM25 and late interaction, as arrays and as TREC run files."""

from colabel.ranking.ask import Hit, search
from colabel.ranking.bm25 import Bm25
from colabel.ranking.late import LateInteraction
from colabel.ranking.rankings import Ranker, Ranking, open_ranking, rank

__all__ = ["Bm25", "Hit", "LateInteraction", "Ranker", "Ranking", "open_ranking", "rank", "search"]
