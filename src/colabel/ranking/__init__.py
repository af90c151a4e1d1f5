"""Rankings: BM25 and late interaction, as arrays and as TREC run files."""

from colabel.ranking.bm25 import Bm25
from colabel.ranking.hybrid import Hybrid
from colabel.ranking.late_interaction import Hit, LateInteraction, search
from colabel.ranking.rankings import Ranker, Ranking, rank
