"""HTML built from small pieces: all text is escaped unless it is :class:`Markup` already."""

from __future__ import annotations

import html
from collections.abc import Iterable

_VOID = {"br", "input", "link", "meta"}


class Markup(str):
    """HTML that may stand on a page as it is."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """Text as HTML; Markup is HTML already.

    >>> escape('<b> & "'), escape(Markup("<b>"))
    ('&lt;b&gt; &amp; &quot;', '<b>')
    """
    return text if isinstance(text, Markup) else Markup(html.escape(text))


def tag(name: str, /, *children: str | None, **attributes: str | bool | None) -> Markup:
    """An element. ``class_`` stands for class, ``aria_sort`` for aria-sort; None and False leave an attribute out.

    >>> tag("p", "1 < 2", class_="note", hidden=True)
    '<p class="note" hidden>1 &lt; 2</p>'
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        written = key.rstrip("_").replace("_", "-")
        parts.append(written if value is True else f'{written}="{escape(value)}"')
    start = f"<{' '.join(parts)}>"
    if name in _VOID:
        return Markup(start)
    return Markup(f"{start}{join(children)}</{name}>")


def join(children: Iterable[str | None], between: str = "") -> Markup:
    """Pieces one after the other; None is nothing."""
    return Markup(escape(between).join(escape(child) for child in children if child is not None))
