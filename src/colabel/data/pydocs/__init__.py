"""pydocs: a collection on every machine, made of the documentation of installed libraries.

A query is the summary line of an object's documentation. Relevant are the object's own passage (grade 2) and
those of its "See Also" entries (grade 1). The train split shows the former only; the latter are hidden labels.
"""

from colabel.data.pydocs.collection import open_pydocs, query_counts

__all__ = ["open_pydocs", "query_counts"]
