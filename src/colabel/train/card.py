"""The model card: what a model was trained on, by whom it was taught, and how good it was on dev."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from colabel.settings import CollectiveSettings

_HEAD = """---
library_name: sentence-transformers
pipeline_tag: feature-extraction
tags:
- sentence-transformers
- multi-vector
- colbert
- late-interaction
- colabel
---
"""

_USE = """## Use

```python
from sentence_transformers import MultiVectorEncoder

model = MultiVectorEncoder("path/to/this/folder")
queries = model.encode_query(["how are glacier caves formed"])
passages = model.encode_document(["A cave formed within the ice of a glacier."])
print(model.similarity(queries, passages))
```
"""


def describe_collective(settings: CollectiveSettings, *, beta: float | None = None) -> dict[str, Any]:
    """What a card says of a collective teacher."""
    return {
        "β": settings.beta if beta is None else beta,
        "feedback passages f_p": settings.feedback_passages,
        "clusters f_c": settings.clusters,
        "centroids f_e": settings.centroids,
        "feedback": settings.feedback,
        "expansion scale": settings.expansion_scale,
    }


def model_card(
    title: str,
    sections: Mapping[str, Mapping[str, Any]],
    evaluations: Sequence[tuple[int, float]],
    *,
    measure: str,
    kept_step: int,
) -> str:
    """README.md of a trained model: tables of names and values, and the dev measure by step."""
    parts = [_HEAD, f"# {title}\n", "A late-interaction retriever (ColBERT) trained with colabel.\n", _USE]
    parts += [f"## {name}\n\n{_table(values)}\n" for name, values in sections.items() if values]
    if evaluations:
        parts.append(f"## {measure} on dev\n\nRanking a fixed pool again while training; step 0 is the start.\n")
        lines = [f"| {step}{' (kept)' if step == kept_step else ''} | {value:.4f} |" for step, value in evaluations]
        parts.append("\n".join(["| step | value |", "|---|---|", *lines]) + "\n")
    return "\n".join(parts)


def _table(values: Mapping[str, Any]) -> str:
    rows = [f"| {name} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
