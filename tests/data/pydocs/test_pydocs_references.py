from __future__ import annotations

import pytest

from colabel.data.pydocs.references import Resolver

NAMES = {
    "numpy.sort": "numpy.sort",
    "numpy.ma.sort": "numpy.ma.sort",
    "numpy.ma.sum": None,
    "numpy.sum": "numpy.sum",
    "numpy.ndarray.sort": "numpy.ndarray.sort",
    "scipy.signal.convolve": "scipy.signal.convolve",
    "scipy.ndimage.convolve": "scipy.ndimage.convolve",
    "scipy.signal.windows.hann": "scipy.signal.windows.hann",
    "pandas.DataFrame.merge": "pandas.merge",
    "pandas.merge": "pandas.merge",
    "pandas.Series.str.split": "pandas.Series.str.split",
}


@pytest.mark.parametrize(
    ("written", "seen_from", "meant"),
    [
        ("sort", "numpy.ma.argsort", "numpy.ma.sort"),
        ("sort", "numpy.ma.sort", "numpy.sort"),  # not itself: the next one outwards
        ("sum", "numpy.ma.prod", None),  # known, but without a passage: numpy.sum is not meant
        ("numpy.sort", "scipy.signal.convolve", "numpy.sort"),
        ("np.sort", "scipy.signal.convolve", "numpy.sort"),
        ("DataFrame.merge", "pandas.concat", "pandas.merge"),
        ("Series.str.split", "pandas.Series.str.join", "pandas.Series.str.split"),
        ("split", "pandas.Series.str.join", "pandas.Series.str.split"),
        ("hann", "scipy.stats.norm", "scipy.signal.windows.hann"),  # the only one in the library
        ("convolve", "scipy.stats.norm", None),  # one of two
        ("hann", "numpy.sort", None),  # of another library
        ("nonsense", "numpy.sort", None),
    ],
)
def test_resolve(written: str, seen_from: str, meant: str | None) -> None:
    assert Resolver(NAMES).resolve(written, seen_from, seen_from) == meant


def test_looks_from_where_the_object_was_defined() -> None:
    resolver = Resolver({"scipy.signal.lfilter": "scipy.signal.lfilter", "scipy.stats.lfilter": "scipy.stats.lfilter"})
    assert resolver.resolve("lfilter", "scipy.f", "scipy.signal._tools.f") == "scipy.signal.lfilter"
