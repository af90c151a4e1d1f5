"""What a trained model is shared with: its card, and a copy in PyLate's checkpoint layout.

PyLate inserts its markers as tokens, skips words and normalises in its own code, so its checkpoints hold an encoder,
projections, and one table with the rest. sentence-transformers reads that layout as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colabel.artefacts import Manifest, Spec, Workspace, build, write_json
from colabel.encode.colbert import load_checkpoint
from colabel.encode.encoder import no_progress_bars
from colabel.encode.weights import weights_fingerprint
from colabel.errors import UsageError
from colabel.settings import CollectiveSettings

_STAGE = "pylate"

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
    title: str, sections: Mapping[str, Mapping[str, Any]], evaluations: Sequence[tuple[int, float]], measure: str
) -> str:
    """README.md of a trained model: tables of names and values, and the dev measure by step."""
    parts = [_HEAD, f"# {title}\n", "A late-interaction retriever (ColBERT) trained with colabel.\n", _USE]
    tables = {name: list(values.items()) for name, values in sections.items()}
    if evaluations:
        tables[f"{measure} on dev, by step (0 is the start)"] = [
            (str(step), f"{value:.4f}") for step, value in evaluations
        ]
    for name, rows in tables.items():
        cells = [f"| {key} | {str(value).replace('|', '/')} |" for key, value in rows]
        parts.append("\n".join([f"## {name}\n", "| | |", "|---|---|", *cells]) + "\n")
    return "\n".join(parts)


def export_pylate(folder: Path, out: Path) -> Manifest:
    """Write the model in ``folder`` to ``out`` as PyLate would have saved it: same scores, same token vectors."""

    def write(space: Workspace) -> Mapping[str, Any]:
        model = load_checkpoint(str(folder), "cpu")
        transformer, projections, mask = _parts(model, folder)
        with no_progress_bars():
            transformer.save(str(space.folder))
        kinds = [("", "sentence_transformers.models.Transformer")]
        for number, projection in enumerate(projections, start=1):
            name = f"{number}_Dense"
            (space.folder / name).mkdir(exist_ok=True)
            projection.save(str(space.folder / name))
            config = {
                "in_features": projection.in_features,
                "out_features": projection.out_features,
                "bias": projection.linear.bias is not None,
                "activation_function": projection.get_config_dict()["activation_function"],
            }
            write_json(space.folder / name / "config.json", config)
            kinds.append((name, "pylate.models.Dense.Dense"))
        modules = [
            {"idx": number, "name": str(number), "path": name, "type": kind}
            for number, (name, kind) in enumerate(kinds)
        ]
        write_json(space.folder / "modules.json", modules)
        limit = {"max_seq_length": transformer.document_length or transformer.max_seq_length, "do_lower_case": False}
        write_json(space.folder / "sentence_bert_config.json", limit)
        write_json(space.folder / "config_sentence_transformers.json", _settings(model, transformer, mask, folder))
        return {"dimension": model.get_embedding_dimension()}

    return build(out, Spec(_STAGE, {}, {"weights": weights_fingerprint(str(folder))}), write)


def _parts(model: Any, folder: Path) -> tuple[Any, list[Any], Any]:
    """The encoder, its projections and the mask; refuses what PyLate has no place for."""
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    kinds = [type(module) for module in model]
    count = sum(kind is Dense for kind in kinds)
    if not count or kinds != [Transformer, *[Dense] * count, MultiVectorMask, Normalize]:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise UsageError(f"{folder} is made of {names}; PyLate's layout takes an encoder, projections, mask and norm")
    transformer, mask = model[0], model[len(kinds) - 2]
    expansion = transformer.query_expansion
    if expansion and expansion["strategy"] != "fixed":
        raise UsageError(f"{folder} expands queries by the rule '{expansion['strategy']}'; PyLate knows 'fixed' alone")
    if mask.keep_only_token_ids or mask.skiplist_tasks != ["document"]:
        raise UsageError(f"{folder} masks other tokens than punctuation of passages; PyLate's layout cannot say that")
    return transformer, list(model)[1 : 1 + count], mask


def _settings(model: Any, transformer: Any, mask: Any, folder: Path) -> dict[str, Any]:
    expansion = transformer.query_expansion
    table = {
        "model_type": "ColBERT",
        "__version__": {},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_length": expansion["length"] if expansion else transformer.query_length,
        "document_length": transformer.document_length,
        "do_query_expansion": bool(expansion),
        "attend_to_expansion_tokens": bool(expansion and expansion["attend"]),
        "skiplist_words": list(mask.skiplist_words),
        "prompts": {},
    }
    for task in ("query", "document"):
        marker, _, rest = (model.prompts.get(task) or "").partition(" ")
        if marker and model.tokenizer.tokenize(marker) != [marker]:
            raise UsageError(
                f"{folder} begins a {task} with '{marker}', which is not one token, as PyLate's markers are"
            )
        table[f"{task}_prefix"] = marker
        if rest:
            table["prompts"][task] = rest
    return table
