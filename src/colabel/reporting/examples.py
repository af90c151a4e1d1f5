"""Queries whose labels changed most, with their expansion tokens and passages."""

from __future__ import annotations

from colabel.reporting.document import StudyDocument
from colabel.reporting.figures import NONE, decimal
from colabel.reporting.highlight import highlighted
from colabel.reporting.markdown import escaped
from colabel.reporting.markup import Markup, join, tag
from colabel.reporting.parts import Custom, Section, Text
from colabel.reporting.records import Example, ExamplePassage

_TOKENS = {
    "nearest": "name the collective centroids: the nearest token of the collection to each",
    "most-frequent": "name the collective centroids: the most frequent of the 10 nearest tokens to each",
}


def examples_section(document: StudyDocument) -> tuple[Section, ...]:
    """One card for each query."""
    if not document.examples:
        return ()
    cards = tuple(Custom(_card(example), _lines(example)) for example in document.examples)
    return (Section("examples", "Examples", (Text(" ".join(_intro(document))), *cards)),)


def _intro(document: StudyDocument) -> list[str]:
    """How queries, tokens and passages were chosen, and what is left out."""
    examples = document.examples
    beta = next((f" (β = {example.beta:g})" for example in examples if example.beta is not None), "")
    matched = any(passage.matched for example in examples for passage in example.passages)
    held = " and with the tokens of the expansion that it holds" if matched else ""
    parts = [
        f"Training queries whose labels the collective teacher{beta} changed most: those whose passages rose furthest, "
        "in sum, from their rank by φ into the teacher's first three. Labelled and feedback passages do not count for "
        "that, since the centroids come from them. Shown are the first passages by the teacher's score, each with its "
        f"rank by φ → by the teacher{held}. A labelled passage may lie "
        "beyond φ's candidates: its rank is then not known, only that it is behind them."
    ]
    if any(example.tokens for example in examples):
        parts.append(
            f"Tokens, with σ, {_TOKENS.get(document.setting('token') or '', 'name the collective centroids')}."
        )
    if any(token.startswith("##") for example in examples for token in _tokens(example)):
        parts.append("A token that begins with ## continues a word.")
    if not any(example.query or any(one.text for one in example.passages) for example in examples):
        setting = " (study.texts = false)" if document.settings.get("study.texts") == "false" else ""
        parts.append(f"The texts of the collection are left out{setting}; ids stand for them.")
    return parts


def _tokens(example: Example) -> list[str]:
    return [*(one.token for one in example.tokens), *(token for one in example.passages for token in one.matched)]


def _heading(example: Example) -> str:
    return example.query or f"Query {example.query_id}"


def _card(example: Example) -> Markup:
    heading = tag("h3", _heading(example))
    shown_id = tag("p", "query ", tag("code", example.query_id), class_="detail") if example.query else None
    tokens = [
        tag("li", token.token, tag("span", decimal(token.sigma), class_="detail") if token.sigma is not None else None)
        for token in example.tokens
    ]
    passages = [tag("li", _passage(passage, example.candidates)) for passage in example.passages]
    return tag(
        "article",
        heading,
        shown_id,
        tag("ul", *tokens, class_="tokens", aria_label="expansion tokens with σ") if tokens else None,
        tag("ol", *passages, class_="passages") if passages else None,
        class_="example",
    )


def _passage(passage: ExamplePassage, candidates: int | None) -> Markup:
    move = tag("span", _move(passage, candidates), class_=f"move {_direction(passage)}")
    badges = [tag("span", name, class_=f"badge {name.split()[0]}") for name in _badges(passage)]
    head = tag("p", move, *badges, tag("code", passage.passage_id), class_="passage-head")
    title = tag("p", highlighted(passage.title, passage.matched), class_="passage-title") if passage.title else None
    text = tag("p", highlighted(passage.text, passage.matched), class_="passage-text") if passage.text else None
    matched = None
    if passage.matched and not passage.text:
        marks = join((tag("mark", token) for token in passage.matched), " ")
        matched = tag("p", "matches ", marks, class_="passage-text")
    return join([head, title, text, matched])


def _move(passage: ExamplePassage, candidates: int | None) -> str:
    beyond = NONE if candidates is None else f"> {candidates:,}"
    before, after = (beyond if rank is None else f"{rank:,}" for rank in (passage.before, passage.after))
    return f"{before} → {after}"


def _direction(passage: ExamplePassage) -> str:
    beyond = 10**9
    before, after = passage.before or beyond, passage.after or beyond
    return "up" if after < before else "down" if after > before else "same"


def _badges(passage: ExamplePassage) -> list[str]:
    return ["labelled"] * passage.labelled + ["hidden positive"] * bool(passage.hidden_positive)


def _lines(example: Example) -> str:
    named = f" ({escaped(example.query_id)})" if example.query else ""
    lines = [f"### {escaped(_heading(example))}{named}", ""]
    if example.tokens:
        tokens = (f"{escaped(one.token)} ({decimal(one.sigma)})" for one in example.tokens)
        lines += [f"Expansion tokens (σ): {', '.join(tokens)}", ""]
    for passage in example.passages:
        badges = "".join(f" **{name}**" for name in _badges(passage))
        matched = f"; matches {escaped(', '.join(passage.matched))}" if passage.matched else ""
        title = f": {escaped(passage.title)}" if passage.title else ""
        move = escaped(_move(passage, example.candidates))
        lines.append(f"- {move}{badges} {escaped(passage.passage_id)}{title}{matched}")
    return "\n".join(lines).rstrip()
