"""Search over stored token vectors: the store, exact and approximate search, nearest tokens, IDF."""

from colabel.index.index import Index, build_index
from colabel.index.store import TokenStore
