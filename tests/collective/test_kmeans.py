"""Batched k-means gives what scikit-learn gives for each query alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from colabel.collective.kmeans import cluster, plus_plus_start, spread_start


def unit_points(count: int, seed: int, dimension: int = 16) -> torch.Tensor:
    """Unit vectors in loose groups, as token vectors are."""
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randn(12, dimension, generator=generator)
    points = groups[torch.randint(12, (count,), generator=generator)]
    points = points + 0.6 * torch.randn(count, dimension, generator=generator)
    return torch.nn.functional.normalize(points, dim=1)


def pad(parts: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(part) for part in parts)
    padded = torch.zeros(len(parts), longest, parts[0].shape[1])
    for place, part in enumerate(parts):
        padded[place, : len(part)] = part
    return padded, torch.tensor([len(part) for part in parts])


def run(parts: list[torch.Tensor], starts: list[torch.Tensor]) -> torch.Tensor:
    points, lengths = pad(parts)
    return cluster(points, lengths, *pad(starts))


@pytest.mark.parametrize("seed", range(5))
def test_same_centroids_as_scikit_learn(seed: int) -> None:
    sizes = [40, 173, 90, 270, 24]
    parts = [unit_points(size, seed * 10 + place) for place, size in enumerate(sizes)]
    starts = [part[spread_start([len(part) // 2, len(part) - len(part) // 2], 24)] for part in parts]
    centroids = run(parts, starts)
    for place, (part, start) in enumerate(zip(parts, starts, strict=True)):
        model = KMeans(24, init=start.numpy(), n_init=1, algorithm="lloyd").fit(part.numpy())
        assert np.abs(model.cluster_centers_ - centroids[place].numpy()).max() < 1e-4


def test_a_query_does_not_depend_on_its_batch() -> None:
    parts = [unit_points(size, size) for size in (30, 200, 55)]
    starts = [part[spread_start([len(part)], 8)] for part in parts]
    together = run(parts, starts)
    for place in range(3):
        alone = run([parts[place]], [starts[place]])
        assert (alone[0] - together[place]).abs().max() < 1e-6
    backwards = run(parts[::-1], starts[::-1])
    assert (backwards.flip(0) - together).abs().max() < 1e-6


def test_an_empty_cluster_moves_to_the_farthest_point_as_in_scikit_learn() -> None:
    """The last start is far from every point, so its cluster is empty after the first assignment."""
    points = torch.tensor([[0.0, 0.0], [0.1, 0.0], [1.0, 0.0], [1.1, 0.0], [5.0, 5.0]])
    start = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-50.0, -50.0]])
    centroids = run([points], [start])
    model = KMeans(3, init=start.numpy(), n_init=1, algorithm="lloyd").fit(points.numpy())
    assert np.abs(model.cluster_centers_ - centroids[0].numpy()).max() < 1e-5
    assert centroids[0, 2].tolist() == [5.0, 5.0], "the far point has its own cluster"


def test_equal_starts_leave_a_cluster_empty_and_ties_go_to_the_first() -> None:
    """Two passages that begin alike give two equal starts: the second cluster runs empty at once."""
    part = unit_points(60, 6)
    part[30] = part[0]
    start = part[spread_start([30, 30], 6)]
    assert (start[0] == start[3]).all()
    centroids = run([part], [start])
    model = KMeans(6, init=start.numpy(), n_init=1, algorithm="lloyd").fit(part.numpy())
    assert np.abs(model.cluster_centers_ - centroids[0].numpy()).max() < 1e-4


def test_fewer_clusters_where_there_are_few_tokens() -> None:
    parts = [unit_points(3, 1), unit_points(50, 2)]
    starts = [parts[0][spread_start([3], 24)], parts[1][spread_start([50], 24)]]
    centroids = run(parts, starts)
    assert (centroids[0, :3] - parts[0]).abs().max() < 1e-6, "three points, three clusters"
    assert not centroids[0, 3:].any()


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 40))
def test_starts_are_distinct_points(lengths: list[int], clusters: int) -> None:
    chosen = spread_start(lengths, clusters)
    assert len(chosen) == len(set(chosen)) == min(clusters, sum(lengths))
    assert all(0 <= point < sum(lengths) for point in chosen)
    shares = np.histogram(chosen, bins=np.cumsum([0, *lengths]) - 0.5)[0]
    full = [share == length for share, length in zip(shares, lengths, strict=True)]
    rest = [share for share, whole in zip(shares, full, strict=True) if not whole]
    assert not rest or max(rest) - min(rest) <= 1, "shared evenly over the passages that have tokens left"


def test_plus_plus_is_seeded() -> None:
    points = unit_points(80, 3)
    assert (plus_plus_start(points, 8, seed=1) == plus_plus_start(points, 8, seed=1)).all()
    assert (plus_plus_start(points, 8, seed=1) != plus_plus_start(points, 8, seed=2)).any()
    assert len(plus_plus_start(points[:5], 8, seed=1)) == 5
