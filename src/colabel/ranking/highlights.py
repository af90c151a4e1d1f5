"""Which word of a query matched which word of a passage: pieces of a tokenizer, found again in their texts."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from colabel.encode import Encoder
from colabel.index import Index
from colabel.ranking.bm25 import tokenise
from colabel.ranking.late_interaction import Hit
from colabel.types import FloatArray

Span = tuple[int, int]

CLOSE = 0.45
"""Similarity from which on two words are said to match."""
_WORD = re.compile(r"\w\w+")
_MARKS = "#▁Ġ"  # what tokenizers put before a piece
_AHEAD = 80  # characters within which the next piece of a text must begin


@dataclass(frozen=True)
class Word:
    """A word of a text; ``stem`` is empty for stop words."""

    start: int
    end: int
    text: str
    stem: str


def words_of(text: str, language: str) -> list[Word]:
    """The words of a text as BM25 sees them.

    >>> [(word.text, word.stem) for word in words_of("The caves", "english")]
    [('The', ''), ('caves', 'cave')]
    """
    found = list(_WORD.finditer(text))
    if not found:
        return []
    stems = tokenise([match.group() for match in found], language)
    common = _common_words(language)
    return [
        Word(match.start(), match.end(), match.group(), stem[0] if stem and match.group().lower() not in common else "")
        for match, stem in zip(found, stems, strict=True)
    ]


@functools.cache
def _common_words(language: str) -> frozenset[str]:
    """Words that tell people nothing: more than BM25 leaves out."""
    if language != "english":
        return frozenset()
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)


def stems_of(texts: Sequence[str], language: str) -> set[str]:
    """All stems of some texts."""
    return {word.stem for text in texts for word in words_of(text, language) if word.stem}


def piece_spans(text: str, pieces: Sequence[str]) -> list[tuple[int, int] | None]:
    """Where the pieces of a tokenizer stand in the text that they came from; None for special and unknown ones.

    Letter case and accents do not matter, as most models do not see them.

    >>> piece_spans("Été: fjords", ["[CLS]", "ete", "fjord", "##s"])
    [None, (0, 3), (5, 10), (10, 11)]
    """
    plain, places = _plain(text)
    spans: list[tuple[int, int] | None] = []
    here = 0
    for piece in pieces:
        wanted = _plain(piece.lstrip(_MARKS) or piece)[0]
        found = plain.find(wanted, here, here + _AHEAD + len(wanted)) if wanted else -1
        if found < 0 or (piece.startswith("[") and piece.endswith("]") and len(piece) > 2):
            spans.append(None)
            continue
        here = found + len(wanted)
        spans.append((places[found], places[here - 1] + 1))
    return spans


def _plain(text: str) -> tuple[str, Sequence[int]]:
    """A text in lower case without accents, and which character of the text each of its characters is."""
    if text.isascii():
        return text.lower(), range(len(text))
    letters: list[str] = []
    places: list[int] = []
    for place, letter in enumerate(text):
        for one in unicodedata.normalize("NFD", letter.lower()):
            if not unicodedata.combining(one):
                letters.append(one)
                places.append(place)
    return "".join(letters), places


@dataclass(frozen=True)
class WordMatch:
    """A word of a query, the word of a passage that it is most like, and how alike they are, at most 1."""

    query: str
    passage: str
    similarity: float

    def __str__(self) -> str:
        same = self.query.lower() == self.passage.lower()
        return self.query if same else f"{self.query} → {self.passage} {self.similarity:.2f}"


def word_matches(
    query: Sequence[str | None], vectors: FloatArray, passage: Sequence[str | None], stored: FloatArray
) -> list[WordMatch]:
    """For each word of a query the most similar word of a passage, in the order of the query.

    Args:
        query, passage: the word that each token belongs to; None for markers, punctuation and common words.
        vectors, stored: their token vectors, float32 [tokens, dimension].

    >>> one, other = np.eye(2, dtype=np.float32), np.array([[0.8, 0.6], [0, 1], [1, 0]], np.float32)
    >>> [str(match) for match in word_matches(["ice", "Cave"], one, ["glacier", "cave", None], other)]
    ['ice → glacier 0.80', 'Cave']
    """
    places = [place for place, word in enumerate(passage) if word is not None]
    best: dict[str, WordMatch] = {}
    if not places:
        return []
    similarity = vectors @ stored[places].T
    for number, word in enumerate(query):
        if word is None:
            continue
        chosen = int(similarity[number].argmax())
        value = float(similarity[number, chosen])
        if value >= CLOSE and (word not in best or value > best[word].similarity):
            best[word] = WordMatch(word, passage[places[chosen]] or "", value)
    return [best[word] for word in dict.fromkeys(word for word in query if word in best) if word is not None]


def token_words(text: str, pieces: Sequence[str], language: str) -> list[str | None]:
    """The word of a text that each piece of it belongs to; None for markers, punctuation and common words.

    >>> token_words("The caves!", ["[CLS]", "the", "cave", "##s", "!"], "english")
    [None, None, 'caves', 'caves', None]
    """
    words = [word for word in words_of(text, language) if word.stem]
    starts = np.array([word.start for word in words])
    found: list[str | None] = []
    for span in piece_spans(text, pieces):
        number = -1 if span is None else int(np.searchsorted(starts, span[0], side="right")) - 1
        inside = span is not None and number >= 0 and span[0] < words[number].end
        found.append(words[number].text if inside else None)
    return found


def highlights(
    index: Index, encoder: Encoder, query: str, hits: Sequence[Hit], language: str = "english"
) -> list[list[WordMatch]]:
    """Which words of a query matched which words of each hit; ``encoder`` is the model that read the query."""
    passages = index.passages
    if passages is None:
        return [[] for _ in hits]
    encoded = encoder.encode_queries([query])
    used = encoded.token_ids[0] >= 0
    asked = token_words(query, encoder.tokens(encoded.token_ids[0][used].tolist()), language)
    vectors = encoded.vectors[0][used].numpy()
    found = []
    for hit in hits:
        stored, _ = index.store.vectors([hit.row])
        ids, _ = index.store.passage_tokens([hit.row])
        words = token_words(passages[hit.row].full_text, index.encoder.tokens(ids.tolist()), language)
        found.append(word_matches(asked, vectors, words, stored))
    return found


def shared_words(query: str, hits: Sequence[Hit], language: str = "english") -> list[list[WordMatch]]:
    """The same for a search by words: those of one stem."""
    asked = [word for word in words_of(query, language) if word.stem]
    found = []
    for hit in hits:
        held = {word.stem: word.text for word in reversed(words_of(f"{hit.title} {hit.text}", language)) if word.stem}
        matches = {one.stem: WordMatch(one.text, held[one.stem], 1.0) for one in asked if one.stem in held}
        found.append(list(matches.values()))
    return found
