"""The same stages on a Ray cluster."""

from colabel.cluster.engine import Cluster
