"""A slow reference of the paper's Eqs. (1)–(6): loops only, written from the text of the paper, used by tests alone.

Everything is a list of NumPy vectors: a query is a list of token vectors, a passage is one too.
"""

from __future__ import annotations

import math

import numpy as np

Vector = np.ndarray


def phi(query: list[Vector], passage: list[Vector]) -> float:
    """Eq. (1): Σ_i max_j q_i·p_j."""
    total = 0.0
    for q in query:
        best = -math.inf
        for p in passage:
            best = max(best, float(np.dot(q.astype(np.float64), p.astype(np.float64))))
        total += best
    return total


def softmax(scores: list[float]) -> list[float]:
    """Eq. (2)."""
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    return [power / sum(powers) for power in powers]


def divergence(target: list[float], model: list[float]) -> float:
    """Eq. (3): KL(R* ‖ R)."""
    return -sum(t * math.log(m / t) for t, m in zip(target, model, strict=True) if t > 0)


def hard_loss(positive: float, negatives: list[float]) -> float:
    """Eqs. (4) and (5): −log R(p⁺) over the positive and the negatives."""
    return -math.log(softmax([positive, *negatives])[0])


def teacher_score(
    query: list[Vector], centroids: list[Vector], sigma: list[float], beta: float, passage: list[Vector]
) -> float:
    """Eq. (6), inside the softmax: φ + β Σ σ max."""
    total = phi(query, passage)
    for centroid, weight in zip(centroids, sigma, strict=True):
        total += beta * weight * phi([centroid], passage)
    return total


def k_means(points: list[Vector], starts: list[Vector]) -> list[Vector]:
    """Lloyd's algorithm from given starts, scikit-learn's stopping rule; empty clusters take far points."""
    points = [point.astype(np.float64) for point in points]
    centroids = [start.astype(np.float64) for start in starts]
    mean = sum(points) / len(points)
    tolerance = 1e-4 * float(np.mean(sum((point - mean) ** 2 for point in points) / len(points)))
    labels: list[int] = [-1] * len(points)
    for _ in range(300):
        fresh = [_nearest(point, centroids) for point in points]
        moved = _means(points, fresh, centroids)
        shift = sum(float(np.sum((new - old) ** 2)) for new, old in zip(moved, centroids, strict=True))
        same = fresh == labels
        labels, centroids = fresh, moved
        if same or shift <= tolerance:
            break
    return centroids


def _nearest(point: Vector, centroids: list[Vector]) -> int:
    best, place = math.inf, -1
    for number, centroid in enumerate(centroids):
        distance = float(np.sum((point - centroid) ** 2))
        if distance < best:
            best, place = distance, number
    return place


def _means(points: list[Vector], labels: list[int], centroids: list[Vector]) -> list[Vector]:
    members: list[list[int]] = [[i for i, label in enumerate(labels) if label == c] for c in range(len(centroids))]
    by_distance = sorted(range(len(points)), key=lambda i: -float(np.sum((points[i] - centroids[labels[i]]) ** 2)))
    for number in range(len(centroids)):
        if not members[number]:
            point = by_distance.pop(0)
            members[labels[point]].remove(point)
            members[number] = [point]
    return [
        sum(points[i] for i in here) / len(here) if here else old for here, old in zip(members, centroids, strict=True)
    ]


def spread(lengths: list[int], clusters: int) -> list[int]:
    """The authors' start: clusters dealt one by one to the passages, each share evenly spaced over its passage."""
    shares = [0] * len(lengths)
    left = min(clusters, sum(lengths))
    while left:
        for number, length in enumerate(lengths):
            if (
                left
                and shares[number] < length
                and shares[number] == min(share for share, size in zip(shares, lengths, strict=True) if share < size)
            ):
                shares[number] += 1
                left -= 1
    chosen, first = [], 0
    for length, share in zip(lengths, shares, strict=True):
        for place in range(share):
            chosen.append(first + place * length // share)
        first += length
    return chosen


def idf(token: int, passages: list[list[int]]) -> float:
    """ln((N + 1) / (df + 1))."""
    holding = 0
    for passage in passages:
        if token in passage:
            holding += 1
    return math.log((len(passages) + 1) / (holding + 1))


def token_of(
    centroid: Vector, vectors: list[Vector], tokens: list[int], special: set[int], neighbours: int
) -> int | None:
    """The most frequent token of the nearest stored ones, ties to the nearest; None where all are special."""
    order = sorted(
        (i for i in range(len(vectors)) if tokens[i] not in special),
        key=lambda i: (-float(np.dot(centroid, vectors[i].astype(np.float64))), i),
    )[:neighbours]
    near = [tokens[i] for i in order]
    best: int | None = None
    for token in near:
        if best is None or near.count(token) > near.count(best):
            best = token
    return best


def collective_centroids(
    feedback: list[list[Vector]],
    clusters: int,
    centroids: int,
    collection: list[list[Vector]],
    tokens: list[list[int]],
    special: set[int],
    neighbours: int = 10,
) -> list[tuple[Vector, float, int]]:
    """Feedback passages → (centroid, σ, token id), by falling σ, equal ones by the number of their cluster."""
    points = [vector for passage in feedback for vector in passage]
    starts = [points[place] for place in spread([len(passage) for passage in feedback], clusters)]
    flat = [vector for passage in collection for vector in passage]
    ids = [token for passage in tokens for token in passage]
    found = []
    for number, centroid in enumerate(k_means(points, starts)):
        token = token_of(centroid, flat, ids, special, neighbours)
        if token is not None:
            found.append((-idf(token, tokens), number, centroid, token))
    found.sort(key=lambda entry: entry[:2])
    return [(centroid, -negative, token) for negative, _, centroid, token in found[:centroids]]
