"""From a name as a documentation writer put it down to the passage that is meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from colabel.data.pydocs.libraries import ABBREVIATIONS, MODULES


class Resolver:
    """Looks names up as seen from an object: next to it first, then outwards, then anywhere in its library."""

    def __init__(self, passage_of: Mapping[str, str | None]) -> None:
        """``passage_of`` maps every name to the id of the passage that stands for it (None: no passage does)."""
        self._passage_of = passage_of
        self._by_ending: dict[tuple[str, str], str | None] = {}
        for name, passage in passage_of.items():
            library, _, ending = name.partition(".")
            while ending:
                known = self._by_ending.setdefault((library, ending), passage)
                if known != passage:
                    self._by_ending[library, ending] = None  # more than one passage could be meant
                ending = ending.partition(".")[2]

    def resolve(self, written: str, name: str, defined: str) -> str | None:
        """The passage meant by ``written`` in the documentation of ``name``, but never its own.

        ``defined`` is the object's name where it was defined, the second place to look from.
        """
        own = self._passage_of.get(name)
        first, dot, rest = written.partition(".")
        written = ABBREVIATIONS.get(first, first) + dot + rest
        candidates = [f"{scope}.{written}" for scope in (*_scopes(name), *_scopes(defined))]
        if written.partition(".")[0] in MODULES:
            candidates.insert(0, written)
        for candidate in candidates:
            # A name that exists ends the search even if it has no passage: one further out means something else.
            if candidate in self._passage_of and (own is None or self._passage_of[candidate] != own):
                return self._passage_of[candidate]
        passage = self._by_ending.get((name.partition(".")[0], written))
        return passage if passage != own else None


def _scopes(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name
