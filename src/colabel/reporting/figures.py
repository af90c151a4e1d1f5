"""How figures are written."""

from __future__ import annotations

from colabel.paired import p_text

NONE = "–"


def figure(value: float | None) -> str:
    """A measure, to three places.

    >>> figure(0.38251), figure(None), figure(-1e-17)
    ('0.383', '–', '0.000')
    """
    return NONE if value is None else f"{round(value, 3) + 0.0:.3f}"


def signed(value: float | None) -> str:
    """A difference, to three places, with its sign.

    >>> signed(0.012), signed(-0.0401), signed(-0.0001)
    ('+0.012', '−0.040', '0.000')
    """
    if value is None:
        return NONE
    text = f"{abs(value):.3f}"
    return text if float(text) == 0 else f"{'+' if value > 0 else '−'}{text}"


def bounds(low: float | None, high: float | None, *, sign: bool = False) -> str:
    """An interval, which is not broken at the end of a line.

    >>> bounds(0.25, 0.5), bounds(-0.25, 0.5, sign=True), bounds(None, 0.5)
    ('[0.250,\xa00.500]', '[−0.250,\xa0+0.500]', '')
    """
    write = signed if sign else figure
    return "" if low is None or high is None else f"[{write(low)},\u00a0{write(high)}]"


def count(value: int | None) -> str:
    """A whole number with thin groups of three.

    >>> count(12345), count(None)
    ('12,345', '–')
    """
    return NONE if value is None else f"{value:,}"


def decimal(value: float | None, digits: int = 1) -> str:
    """A number with some places.

    >>> decimal(12.345), decimal(1234.5, 0)
    ('12.3', '1,234')
    """
    return NONE if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """A share.

    >>> percent(0.1234)
    '12.3 %'
    """
    return NONE if value is None else f"{100 * value:.1f} %"


def times(value: float | None) -> str:
    """A ratio.

    >>> times(2.667)
    '×2.67'
    """
    return NONE if value is None else f"×{value:.2f}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them.

    >>> duration(0.25), duration(59.4), duration(61), duration(3700)
    ('0.25 s', '59.4 s', '1 min 01 s', '1 h 02 min')
    """
    if seconds is None:
        return NONE
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def p_value(p: float | None) -> str:
    """A p-value in four digits.

    >>> p_value(0.25), p_value(0.00001), p_value(None)
    ('0.2500', '<0.0001', '–')
    """
    return p_text(p, NONE)


def equals(p: float | None) -> str:
    """A p-value behind the letter p.

    >>> equals(0.25), equals(0.00001)
    ('=\xa00.2500', '<0.0001')
    """
    written = p_value(p)
    return written if written.startswith("<") else f"=\u00a0{written}"
