"""Walk the libraries and collect every documented public object. Objects are inspected, never called.

Libraries and modules are listed by hand: what is walked must not depend on what is imported.
"""

from __future__ import annotations

import importlib
import logging
import re
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

log = logging.getLogger(__name__)

_SUBMODULES = {
    "numpy": (
        "char exceptions fft lib.format lib.mixins lib.recfunctions lib.stride_tricks linalg ma polynomial "
        "polynomial.chebyshev polynomial.hermite polynomial.hermite_e polynomial.laguerre polynomial.legendre "
        "polynomial.polynomial random rec strings testing"
    ),
    "scipy": (
        "cluster.hierarchy cluster.vq constants datasets differentiate fft integrate interpolate io io.arff "
        "io.wavfile linalg linalg.interpolative ndimage optimize signal signal.windows sparse sparse.csgraph "
        "sparse.linalg spatial spatial.distance spatial.transform special stats stats.contingency stats.mstats "
        "stats.qmc stats.sampling"
    ),
    "sklearn": (
        "base calibration cluster compose covariance cross_decomposition datasets decomposition discriminant_analysis "
        "dummy ensemble exceptions feature_extraction feature_extraction.image feature_extraction.text "
        "feature_selection frozen gaussian_process gaussian_process.kernels impute inspection isotonic "
        "kernel_approximation kernel_ridge linear_model manifold metrics metrics.cluster metrics.pairwise mixture "
        "model_selection multiclass multioutput naive_bayes neighbors neural_network pipeline preprocessing "
        "random_projection semi_supervised svm tree utils utils.class_weight utils.extmath utils.multiclass "
        "utils.sparsefuncs utils.validation"
    ),
    "pandas": (
        "api.extensions api.indexers api.types api.typing arrays errors io.formats.style plotting testing "
        "tseries.frequencies tseries.offsets"
    ),
    "torch": (
        "amp autograd autograd.functional autograd.graph autograd.profiler cuda distributions fft func fx hub jit "
        "library linalg nn nn.functional nn.init nn.utils nn.utils.parametrizations nn.utils.parametrize "
        "nn.utils.prune nn.utils.rnn optim optim.lr_scheduler optim.swa_utils overrides profiler random serialization "
        "signal.windows sparse special utils.checkpoint utils.data"
    ),
    "networkx": (
        "algorithms.approximation algorithms.assortativity algorithms.bipartite algorithms.community "
        "algorithms.connectivity algorithms.flow algorithms.isomorphism algorithms.link_prediction "
        "algorithms.node_classification algorithms.tree drawing generators linalg readwrite utils"
    ),
    # Without pyplot: its functions repeat the methods of Axes and Figure, and it would choose a display.
    "matplotlib": (
        "animation artist axes axis backend_bases bezier cbook cm collections colorbar colorizer colors container "
        "contour dates figure font_manager gridspec hatch image inset layout_engine legend legend_handler lines "
        "markers mathtext mlab offsetbox patches path patheffects projections quiver sankey scale spines stackplot "
        "streamplot style table text textpath ticker transforms tri units widgets"
    ),
}
MODULES = {
    library: (library, *(f"{library}.{name}" for name in names.split())) for library, names in _SUBMODULES.items()
}
"""Library → the modules whose public names are documented objects. A module that a version lacks is passed over."""

DISTRIBUTIONS = {library: {"sklearn": "scikit-learn"}.get(library, library) for library in MODULES}
"""Library → the name under which it is installed."""

LEFT_OUT = re.compile(
    r"sklearn\.(impute\.IterativeImputer|model_selection\.Halving\w+)"
    r"|torch\.(cuda\.)?([A-Z]\w+Tensor|\w*Storage)|pandas\.api\.typing\.NaTType"
)
"""Names that are passed over.

The first exist only once somebody has imported ``sklearn.experimental``, and nobody's imports may count; the
others repeat the methods of ``torch.Tensor``, once for each type of number, and of ``pandas.Timestamp``.
"""


class Sighting(NamedTuple):
    """A documented object seen under one of its names; ``defined`` is its name where it was defined."""

    name: str
    doc: str
    defined: str
    inherited: bool


class Documented(NamedTuple):
    """A documentation string and all names that carry it, the best first, those where it was defined last.

    Equal strings are taken for one object: that covers aliases and inherited methods, whose identity Python
    does not keep (descriptors make a new object at each access).
    """

    names: tuple[str, ...]
    doc: str

    @property
    def name(self) -> str:
        """The canonical public name."""
        return self.names[0]


def name_rank(name: str) -> tuple[int, int, str]:
    """Shallow names first, then short ones: ``torch.einsum`` before ``torch.functional.einsum``."""
    return name.count("."), len(name), name


def harvest(libraries: tuple[str, ...] = tuple(MODULES)) -> tuple[list[Documented], dict[str, str]]:
    """Every documented object in order of its canonical name, and the version of each library found."""
    sightings: list[Sighting] = []
    versions: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for library in libraries:
            try:
                root = importlib.import_module(library)
            except (ImportError, OSError) as error:  # a shared library that does not load is an OSError
                hint = "; pip install 'colabel[demo]' brings it" if library in ("networkx", "pandas") else ""
                log.warning("pydocs leaves out %s, which cannot be imported: %s%s", library, error, hint)
                continue
            versions[library] = str(root.__version__)
            sightings.extend(_library(library))
    return _grouped(sightings), versions


def _library(library: str) -> Iterator[Sighting]:
    for module_name in MODULES[library]:
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            log.debug("this version of %s has no module %s", library, module_name)
            continue
        yield from _module(module, library)


def _module(module: ModuleType, library: str) -> Iterator[Sighting]:
    declared = getattr(module, "__all__", None)
    # Without a declaration a module's imports look like its own names: only what was defined below it counts.
    required = library if declared is not None else module.__name__
    for attribute in sorted(set(declared if declared is not None else dir(module))):
        name = f"{module.__name__}.{attribute}"
        if attribute.startswith("_") or LEFT_OUT.fullmatch(name):
            continue
        try:
            value = getattr(module, attribute)
        except (AttributeError, ImportError):  # only on demand, or not in this version
            continue
        home = getattr(value, "__module__", None) or module.__name__
        within = home == required or home.startswith(f"{required}.")
        if callable(value) and not isinstance(value, ModuleType) and within:
            yield from _object(value, name, f"{home}.{attribute}")


def _object(value: object, name: str, defined: str) -> Iterator[Sighting]:
    if doc := _own_doc(value):
        yield Sighting(name, doc, defined, inherited=False)
    if isinstance(value, type):
        yield from _members(value, name)


def _members(cls: type, path: str) -> Iterator[Sighting]:
    """Public methods and properties, looked up without running descriptors; what Python itself defines is left out."""
    seen: set[str] = set()
    for owner in cls.__mro__:
        members = vars(owner)
        fresh = [name for name in members if not name.startswith("_") and name not in seen]
        seen.update(fresh)
        if owner.__module__.partition(".")[0] not in MODULES:
            continue
        for name in fresh:
            value = members[name]
            if (hasattr(type(value), "__get__") or isinstance(value, type)) and (doc := _own_doc(value)):
                defined = f"{owner.__module__}.{owner.__qualname__}.{name}"
                yield Sighting(f"{path}.{name}", doc, defined, inherited=owner is not cls)


def _own_doc(value: object) -> str | None:
    """The object's documentation, unless it only repeats that of its type (``5 .__doc__`` is that of ``int``)."""
    doc = getattr(value, "__doc__", None)
    if not isinstance(doc, str) or (not isinstance(value, type) and doc == type(value).__doc__):
        return None
    # What pybind11 writes for C++ overloads is a list of signatures.
    return None if "Overloaded function." in doc else doc


def _grouped(sightings: list[Sighting]) -> list[Documented]:
    by_doc: dict[str, list[Sighting]] = {}
    for sighting in sorted(set(sightings), key=lambda seen: (seen.inherited, name_rank(seen.name))):
        by_doc.setdefault(sighting.doc, []).append(sighting)
    groups = []
    for doc, group in by_doc.items():
        names = dict.fromkeys([*(seen.name for seen in group), *(seen.defined for seen in group)])
        groups.append(Documented(tuple(names), doc))
    return sorted(groups, key=lambda group: name_rank(group.name))
