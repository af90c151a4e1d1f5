"""Documentation strings of both styles in parts, and reStructuredText as words."""

from __future__ import annotations

import pytest

from colabel.data.pydocs.docstrings import (
    Block,
    first_sentence,
    names_in_prose,
    names_in_section,
    paragraphs,
    plain,
    split_docstring,
)

NUMPYDOC = """
    roll_axis(x, n=None,
              out=None) -> ndarray

    Roll the elements of an array along
    one axis. Elements that leave return
    at the other end.

    .. versionadded:: 1.2

    .. note::
        Works on :class:`~numpy.ndarray` only [1]_.

    Parameters
    ----------
    x : array_like
        The array to roll, such as::

            x = [1, 2]

    n, m : int, optional
        How far to roll.

        .. versionchanged:: 1.3
           Was a float.
    out
        Where to put it.

    Returns
    -------
    ndarray
        The rolled array.

    Notes
    -----
    Rolling twice by ``n`` rolls by ``2 n``.

    ====  =====
    n     speed
    ====  =====
    1     fast
    ====  =====

    See Also
    --------
    rollaxis : Roll backwards.

    References
    ----------
    .. [1] A. Writer, "Rolling".

    Examples
    --------
    >>> roll_axis([1, 2], 1)
    [2, 1]
    """

GOOGLE = """
clamp(input, low, high) -> Tensor

Clamps all elements into the range.

Args:
    input (Tensor): the input
        tensor.
    low: the lower bound
        (inclusive).

Keyword args:
    out (Tensor, optional): the output tensor of the call.

Note:
    Bounds may be infinite.

.. seealso::

    :func:`torch.clip` is another name.

Example::

    >>> clamp(x, 0, 1)
"""


def test_numpydoc_in_parts() -> None:
    parts = split_docstring(NUMPYDOC)
    assert parts.summary == "Roll the elements of an array along one axis."
    assert parts.body == (
        Block("", "Elements that leave return at the other end."),
        Block("", "Works on ndarray only [1]."),
        Block("Parameters", "x (array_like): The array to roll, such as:"),
        Block("Parameters", "n, m (int, optional): How far to roll."),
        Block("Parameters", "out: Where to put it."),
        Block("Returns", "ndarray: The rolled array."),
        Block("", "Rolling twice by n rolls by 2 n."),
    )
    assert parts.see_also == ("rollaxis",)


def test_google_in_parts() -> None:
    parts = split_docstring(GOOGLE)
    assert parts.summary == "Clamps all elements into the range."
    assert parts.body == (
        Block("Parameters", "input (Tensor): the input tensor."),
        Block("Parameters", "low: the lower bound (inclusive)."),
        Block("Parameters", "out (Tensor, optional): the output tensor of the call."),
        Block("", "Bounds may be infinite."),
    )
    assert parts.see_also == ("torch.clip",)


def test_several_signatures_are_dropped() -> None:
    doc = "dtype(kind, copy=False)\n--\n\ndtype(kind,\n      [metadata])\n\nCreate a data type."
    assert split_docstring(doc).summary == "Create a data type."


@pytest.mark.parametrize("doc", ["", "   \n\n", "f(x)", "Parameters\n----------\nx : int\n    A number."])
def test_nothing_to_summarise(doc: str) -> None:
    assert split_docstring(doc).summary == ""


def test_block_said_twice_is_kept_once() -> None:
    assert split_docstring("Sum.\n\nAll of it.\n\nAll of it.").body == (Block("", "All of it."),)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Sort x. Then stop.", "Sort x."),
        ("Use norms, e.g. The usual one. More.", "Use norms, e.g. The usual one."),
        ("Plot by J. Hunter. More.", "Plot by J. Hunter."),
        ("No stop at all", "No stop at all"),
        ("Version 1.5 is used. More.", "Version 1.5 is used."),
    ],
)
def test_first_sentence(text: str, sentence: str) -> None:
    first, rest = first_sentence(text)
    assert first == sentence
    assert f"{first} {rest}".strip() == text


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (["fft : The transform.", "    See `ifft` for the inverse."], ["fft"]),
        (["fft: The transform."], ["fft"]),
        (["fft2, ifft2", "numpy.fft.fftn"], ["fft2", "ifft2", "numpy.fft.fftn"]),
        (["fft2, ifft2,", "    rfft2 : Others, with commas."], ["fft2", "ifft2", "rfft2"]),
        ([":func:`~scipy.fft.dct` : The cosine transform."], ["scipy.fft.dct"]),
        ([":meth:`.Axes.plot`, `Axes.bar`"], ["Axes.plot", "Axes.bar"]),
        (["* DataFrame.merge : Join."], ["DataFrame.merge"]),
        (["convolve() - with brackets"], ["convolve"]),
        (["See `scipy.stats.norm` for the distribution."], ["scipy.stats.norm"]),
        (["The user guide, which says more."], []),
        (["", "fft", "", "    Described below.", "", "ifft"], ["fft", "ifft"]),
    ],
)
def test_see_also_forms(lines: list[str], names: list[str]) -> None:
    assert names_in_section("\n".join(lines)) == names


def test_see_also_in_prose() -> None:
    lines = ["Adds.", "", "See also :func:`torch.sub`", "and `mul`.", "", "Not `div`."]
    assert names_in_prose("\n".join(lines)) == ["torch.sub", "mul"]


@pytest.mark.parametrize(
    ("marked", "words"),
    [
        (":class:`Ridge <sklearn.Ridge>` and `~.Axes.plot`", "Ridge and plot"),
        ("Many `.Tick`\\s and ``a_b``", "Many Ticks and a_b"),
        ("*very* **bold** `link <https://x.org/a>`_ *args", "very bold link *args"),
        (r":math:`\frac{a}{b} \leq \text{out}_i`", "frac a b leq text out _i"),
        ("<function f at 0x7f3a2b> see https://x.org .", "<function f> see."),
    ],
)
def test_plain(marked: str, words: str) -> None:
    assert plain(marked) == words


def test_code_tables_and_fields_go() -> None:
    lines = ["Keep this.", ">>> 1 + 1", "2", "", ":Code: 'L'", ":param int n: How many.", "", "= ===", "a b", "= ==="]
    assert paragraphs("\n".join(lines)) == ["Keep this.", "n: How many."]
