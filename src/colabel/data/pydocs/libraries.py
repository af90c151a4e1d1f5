"""The libraries and their public modules, listed by hand: what is walked must not depend on what is imported."""

from __future__ import annotations

import re


def _under(package: str, names: str) -> tuple[str, ...]:
    return (package, *(f"{package}.{name}" for name in names.split()))


MODULES: dict[str, tuple[str, ...]] = {
    "numpy": _under(
        "numpy",
        "char exceptions fft lib.format lib.mixins lib.recfunctions lib.stride_tricks linalg ma polynomial "
        "polynomial.chebyshev polynomial.hermite polynomial.hermite_e polynomial.laguerre polynomial.legendre "
        "polynomial.polynomial random rec strings testing",
    ),
    "scipy": _under(
        "scipy",
        "cluster.hierarchy cluster.vq constants datasets differentiate fft integrate interpolate io io.arff "
        "io.wavfile linalg linalg.interpolative ndimage optimize signal signal.windows sparse sparse.csgraph "
        "sparse.linalg spatial spatial.distance spatial.transform special stats stats.contingency stats.mstats "
        "stats.qmc stats.sampling",
    ),
    "sklearn": _under(
        "sklearn",
        "base calibration cluster compose covariance cross_decomposition datasets decomposition "
        "discriminant_analysis dummy ensemble exceptions feature_extraction feature_extraction.image "
        "feature_extraction.text feature_selection frozen gaussian_process gaussian_process.kernels impute "
        "inspection isotonic kernel_approximation kernel_ridge linear_model manifold metrics metrics.cluster "
        "metrics.pairwise mixture model_selection multiclass multioutput naive_bayes neighbors neural_network "
        "pipeline preprocessing random_projection semi_supervised svm tree utils utils.class_weight "
        "utils.extmath utils.multiclass utils.sparsefuncs utils.validation",
    ),
    "pandas": _under(
        "pandas",
        "api.extensions api.indexers api.types api.typing arrays errors io.formats.style plotting testing "
        "tseries.frequencies tseries.offsets",
    ),
    "torch": _under(
        "torch",
        "amp autograd autograd.functional autograd.graph autograd.profiler cuda distributions fft func fx hub "
        "jit library linalg nn nn.functional nn.init nn.utils nn.utils.parametrizations nn.utils.parametrize "
        "nn.utils.prune nn.utils.rnn optim optim.lr_scheduler optim.swa_utils overrides profiler random "
        "serialization signal.windows sparse special utils.checkpoint utils.data",
    ),
    "networkx": _under(
        "networkx",
        "algorithms.approximation algorithms.assortativity algorithms.bipartite algorithms.community "
        "algorithms.connectivity algorithms.flow algorithms.isomorphism algorithms.link_prediction "
        "algorithms.node_classification algorithms.tree drawing generators linalg readwrite utils",
    ),
    # Without pyplot: its functions repeat the methods of Axes and Figure, and it would choose a display.
    "matplotlib": _under(
        "matplotlib",
        "animation artist axes axis backend_bases bezier cbook cm collections colorbar colorizer colors container "
        "contour dates figure font_manager gridspec hatch image inset layout_engine legend legend_handler lines "
        "markers mathtext mlab offsetbox patches path patheffects projections quiver sankey scale spines "
        "stackplot streamplot style table text textpath ticker transforms tri units widgets",
    ),
}
"""Library → the modules whose public names are documented objects. A module that a version lacks is passed over."""

DISTRIBUTIONS = {library: {"sklearn": "scikit-learn"}.get(library, library) for library in MODULES}
"""Library → the name under which it is installed."""

NAMESPACES = {
    "pandas": (
        *("Series.cat", "Series.dt", "Series.list", "Series.plot", "Series.sparse", "Series.str", "Series.struct"),
        *("DataFrame.plot", "DataFrame.sparse"),
    )
}
"""Classes that are reached as attributes of classes: ``Series.str.split`` is a method of the class ``Series.str``."""

LEFT_OUT = re.compile(
    r"sklearn\.(impute\.IterativeImputer|model_selection\.Halving\w+)"
    r"|torch\.(cuda\.)?([A-Z]\w+Tensor|\w*Storage)|pandas\.api\.typing\.NaTType"
)
"""Names that are passed over.

The first exist only once somebody has imported ``sklearn.experimental``, and nobody's imports may count; the
others repeat the methods of ``torch.Tensor``, once for each type of number, and of ``pandas.Timestamp``.
"""

ABBREVIATIONS = {
    "np": "numpy",
    "nx": "networkx",
    "pd": "pandas",
    "mpl": "matplotlib",
    "plt": "matplotlib.pyplot",
}
"""How documentation writers shorten the names of libraries."""
