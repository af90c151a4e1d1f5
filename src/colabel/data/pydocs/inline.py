"""Inline markup and formulas to plain words."""

from __future__ import annotations

import re

_ESCAPE = r"(?:\\(?=\w))?"  # `Tick`\s is how the plural of a name is written
_ROLE = re.compile(r":[a-zA-Z][\w:+-]*:`([^`]*)`" + _ESCAPE)
_MATH = re.compile(r":math:`([^`]*)`|\$([^$\n]{1,200})\$")
_CODE = re.compile(r"``(.+?)``" + _ESCAPE)
_QUOTED = re.compile(r"`([^`]*)`(?:__?(?!\w))?" + _ESCAPE)
_STRONG = re.compile(r"\*\*(\S(?:[^*]*\S)?)\*\*")
_EMPHASIS = re.compile(r"(?<![\w*])\*([^\s*](?:[^*]*[^\s*])?)\*(?![\w*])")
_FOOTNOTE = re.compile(r"(\[[\w#*-]+\])_(?!\w)")
_URL = re.compile(r"<?\b(?:https?|ftp)://[^\s<>]+>?")
_ADDRESS = re.compile(r"\s+at 0x[0-9A-Fa-f]+")
_BEFORE_STOP = re.compile(r"\s+([,.;](?:\s|$))")

_LATEX_FONT = re.compile(
    r"\\(?:text|textrm|textbf|mathrm|mathbf|mathcal|mathbb|mathtt|mathop|operatorname|boldsymbol)\s*\{([^{}]*)\}"
)
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_LATEX_LAYOUT = re.compile(r"\\(?:left|right|limits|displaystyle|q?quad|[bB]igg?)(?![a-zA-Z])|\\[,;:! ]")
_LATEX_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_LATEX_SYMBOLS = {
    **{"le": "<=", "leq": "<=", "ge": ">=", "geq": ">=", "ne": "!=", "neq": "!=", "times": "x", "cdot": "*"},
    **{"dots": "...", "ldots": "...", "cdots": "...", "to": "->", "rightarrow": "->", "infty": "inf"},
}


def plain(text: str) -> str:
    r"""One line of text without inline markup.

    >>> plain(r"The **same** as :class:`Ridge <sklearn.Ridge>` [1]_, with :math:`\alpha \leq 1` and ``tol``.")
    'The same as Ridge [1], with alpha <= 1 and tol.'
    """
    if "`" in text or "$" in text:
        text = _MATH.sub(lambda match: _formula(match[1] or match[2] or ""), text)
        text = _ROLE.sub(lambda match: _label(match[1]), text)
        text = _CODE.sub(r"\1", text)
        text = _QUOTED.sub(lambda match: _label(match[1]), text)
    if "*" in text:
        text = _EMPHASIS.sub(r"\1", _STRONG.sub(r"\1", text))
    if "]_" in text:
        text = _FOOTNOTE.sub(r"\1", text)
    if "://" in text or " 0x" in text:
        text = _ADDRESS.sub("", _URL.sub("", text))
    if "\\" in text:
        text = text.replace("\\ ", "").replace("\\*", "*").replace("\\_", "_")
    text = " ".join(text.split())
    return _BEFORE_STOP.sub(r"\1", text) if " ." in text or " ," in text or " ;" in text else text


def _label(target: str) -> str:
    """What a reader sees of a reference: ``~a.b.c`` is c, ``text <target>`` is text."""
    if "\\" in target:  # a formula in single quotes, as in networkx
        return _formula(target)
    if target.endswith(">") and "<" in target:
        return target[: target.rindex("<")].strip() or target.strip("<>")
    if target.startswith("~"):
        return target.rpartition(".")[2].lstrip("~")
    return target.lstrip("!.") if target[:1] in "!." and target[1:2].isalpha() else target


def _formula(latex: str) -> str:
    if "\\" in latex:
        latex = _LATEX_FRACTION.sub(r"(\1)/(\2)", _LATEX_FONT.sub(r"\1", latex))
        latex = _LATEX_LAYOUT.sub(" ", latex)
        latex = _LATEX_COMMAND.sub(lambda match: f" {_LATEX_SYMBOLS.get(match[1], match[1])} ", latex)
        latex = latex.replace("\\", "")
    return " ".join(latex.replace("{", "").replace("}", "").split())
