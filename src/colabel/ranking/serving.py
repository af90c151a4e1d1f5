"""An index for other search engines: vectors, texts and metadata as LanceDB, Qdrant, Vespa or parquet read them.

    lancedb   the folder is a database with the table ``passages``
    qdrant    the folder is the storage of Qdrant's local mode, with the collection ``passages``
    vespa     feed.jsonl, a document operation per line, and passage.sd, a schema that ranks by MaxSim
    parquet   passages.parquet

Each passage has id, title, text, the columns of the metadata and ``vectors`` [tokens, dimension]. A piece of a document
has an id of its own, and the column ``document_id``. Passages without a token vector are left out, as no search by
vectors finds them.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from colabel.artefacts import Manifest, Spec, Workspace, build
from colabel.data import PassageTable
from colabel.errors import DataError, MissingExtraError, UsageError
from colabel.index import Index
from colabel.index.codec import exact_type
from colabel.progress import SILENT, Progress
from colabel.types import FloatArray, IntArray

NAME = "passages"
"""The table or collection in a database."""
LOCAL_LIMIT = 20_000
"""Passages up to which Qdrant's local mode, which holds all of them in memory, is of use."""
_BLOCK = 512  # passages in memory: 512 of 180 tokens and 128 dimensions are 47 MB
_VECTORS, _DOCUMENT = "vectors", "document_id"
_OWN = ("id", _DOCUMENT, "title", "text", _VECTORS)
_REFUSED = dict.fromkeys([*range(9), 11, 12, *range(14, 32)])  # control characters, at which Vespa refuses a text


def export_index(index: Index, out: Path | str, format: str, *, progress: Progress = SILENT) -> Manifest:
    """Write an index to the folder ``out`` for another search engine, whole or not at all.

    The manifest's counts are ``passages``, ``tokens`` and ``empty``, passages without vectors, which are left out.

    Args:
        format: lancedb, qdrant, vespa or parquet.

    Raises:
        MissingExtraError: the library of the format is not installed.
    """
    if format not in FORMATS:
        raise UsageError(f"'{format}' is no format for an index; expected one of {', '.join(FORMATS)}")
    passages = index.passages
    if passages is None:
        raise DataError(f"the texts behind {index.folder} are gone; put the collection back, or build the index again")
    lengths = index.store.lengths(np.arange(len(index.store)))
    rows = np.flatnonzero(lengths)
    if format == "qdrant" and len(rows) > LOCAL_LIMIT:
        raise UsageError(
            f"{index.folder} has {len(rows):,} passages, and Qdrant's local mode, which holds all of them in memory, "
            f"is made for at most {LOCAL_LIMIT:,}; export as parquet and upload that to a server"
        )
    library = _library(format)
    schema = _schema(index, passages)

    def blocks() -> Iterator[pa.RecordBatch]:
        task = progress.start(f"exporting as {format}", len(rows), "passages")
        for start in range(0, len(rows), _BLOCK):
            yield _block(index, passages, rows[start : start + _BLOCK], schema)
            task.advance(len(rows[start : start + _BLOCK]))
        task.close()

    def write(space: Workspace) -> Mapping[str, Any]:
        FORMATS[format](space, schema, blocks(), library)
        return {"passages": len(rows), "tokens": int(lengths.sum()), "empty": len(lengths) - len(rows)}

    inputs = {"tokens": index.store.fingerprint, "passages": passages.fingerprint}
    return build(Path(out), Spec("index-export", {"format": format}, inputs), write)


def _library(format: str) -> Any:
    """What writes a format; None where pyarrow or json do."""
    try:
        if format == "lancedb":
            import lancedb

            return lancedb
        if format == "qdrant":
            import qdrant_client

            return qdrant_client
    except ImportError:
        raise MissingExtraError(
            "LanceDB" if format == "lancedb" else "qdrant-client", "export", f"--format {format}"
        ) from None
    return None


def _schema(index: Index, passages: PassageTable) -> pa.Schema:
    """Column names and types of every block; metadata keep their names, with an underscore where it is one of ours."""
    text, store, kept = pa.string(), index.store, index.metadata.table.schema.remove(0)
    fields = [("id", text), *([(_DOCUMENT, text)] if passages.ids.first_rows is not None else [])]
    fields += [("title", text), ("text", text)]
    for field, name in zip(kept, _unlike(_OWN, kept.names), strict=True):
        fields.append((name, text if pa.types.is_null(field.type) else field.type))
    number = pa.float16() if exact_type(store.storage) is np.float16 else pa.float32()
    return pa.schema([*fields, (_VECTORS, pa.list_(pa.list_(number, store.dimension)))])


def _unlike(taken: Iterable[str], names: Iterable[str]) -> list[str]:
    """The names, longer by underscores where one is taken or came before.

    >>> _unlike(["id", "text"], ["brand", "text", "text_"])
    ['brand', 'text_', 'text__']
    """
    used, found = set(taken), []
    for name in names:
        while name in used:
            name += "_"  # noqa: PLW2901
        used.add(name)
        found.append(name)
    return found


def _block(index: Index, passages: PassageTable, rows: IntArray, schema: pa.Schema) -> pa.RecordBatch:
    read = [passages[int(row)] for row in rows]
    vectors, offsets = index.store.vectors(rows)
    kind = schema.field(_VECTORS).type.value_type
    flat = pa.array(vectors.astype(kind.value_type.to_pandas_dtype()).reshape(-1))
    places = pa.array(offsets.astype(np.int32))
    columns = [
        pa.array([passage.id for passage in read]),
        *([pa.array([passages.ids[int(row)] for row in rows])] if _DOCUMENT in schema.names else []),
        pa.array([passage.title for passage in read]),
        pa.array([passage.text for passage in read]),
        *(column.combine_chunks() for column in index.metadata.table.take(rows).columns[1:]),
        pa.ListArray.from_arrays(places, pa.FixedSizeListArray.from_arrays(flat, type=kind)),
    ]
    typed = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(typed, schema=schema)


def _write_lancedb(space: Workspace, schema: pa.Schema, blocks: Iterator[pa.RecordBatch], library: Any) -> None:
    reader = pa.RecordBatchReader.from_batches(schema, blocks)
    shutil.rmtree(space.folder / f"{NAME}.lance", ignore_errors=True)  # left by an interrupted export
    library.connect(space.folder).create_table(NAME, reader)


def _write_qdrant(space: Workspace, schema: pa.Schema, blocks: Iterable[pa.RecordBatch], library: Any) -> None:
    """Points are numbered; their payload is all but the vectors."""
    models = library.models
    for left in ("collection", "meta.json", ".lock"):  # by an interrupted export
        path = space.folder / left
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    client, first = library.QdrantClient(path=str(space.folder)), 0
    try:
        several = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        size = schema.field(_VECTORS).type.value_type.list_size
        params = models.VectorParams(size=size, distance=models.Distance.DOT, multivector_config=several)
        client.create_collection(NAME, vectors_config=params)
        for block in blocks:
            numbers = list(range(first, first + len(block)))
            vectors = [matrix.tolist() for matrix in _matrices(block)]
            client.upsert(NAME, models.Batch(ids=numbers, vectors=vectors, payloads=list(_records(block))))
            first += len(block)
    finally:
        client.close()


def _write_vespa(space: Workspace, schema: pa.Schema, blocks: Iterable[pa.RecordBatch], library: None) -> None:
    """A feed with vectors in hexadecimal, a block of the tensor per token, and a schema that fits it."""
    names = dict(zip(schema.names, _vespa_names(schema), strict=True))
    with space.file("passage.sd") as path:
        path.write_text(vespa_schema(schema), encoding="utf-8")
    with space.file("feed.jsonl") as path, path.open("w", encoding="utf-8") as file:
        for block in blocks:
            for record, matrix in zip(_records(block), _matrices(block), strict=True):
                fields = {names[name]: _clean(value) for name, value in record.items() if value is not None}
                tokens = {str(place): token.astype(">f4").tobytes().hex() for place, token in enumerate(matrix)}
                put = {"put": f"id:colabel:passage::{record['id']}", "fields": {**fields, _VECTORS: tokens}}
                file.write(json.dumps(put, ensure_ascii=False) + "\n")


def _write_parquet(space: Workspace, schema: pa.Schema, blocks: Iterable[pa.RecordBatch], library: None) -> None:
    with space.file(f"{NAME}.parquet") as path, pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for block in blocks:
            writer.write_batch(block)


FORMATS: dict[str, Callable[[Workspace, pa.Schema, Iterator[pa.RecordBatch], Any], None]] = {
    "lancedb": _write_lancedb,
    "qdrant": _write_qdrant,
    "vespa": _write_vespa,
    "parquet": _write_parquet,
}


def _matrices(block: pa.RecordBatch) -> Iterator[FloatArray]:
    """The vectors of each passage of a block, float32 [tokens, dimension]."""
    column = block.column(_VECTORS)
    tokens = column.values.flatten().to_numpy().astype(np.float32).reshape(-1, column.type.value_type.list_size)
    return iter(np.split(tokens, column.offsets.to_numpy()[1:-1]))


def _records(block: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """All but the vectors as values that JSON knows: dates as strings, what is not a number as none."""
    for row in block.drop_columns([_VECTORS]).to_pylist():
        yield json.loads(json.dumps(row, default=str), parse_constant=lambda _: None)


def _clean(value: Any) -> Any:
    return value.translate(_REFUSED) if isinstance(value, str) else value


def _vespa_names(schema: pa.Schema) -> list[str]:
    """Names that Vespa takes, of letters, digits and underscores.

    >>> _vespa_names(pa.schema([("unit price", pa.string()), ("unit-price", pa.string()), ("2nd", pa.string())]))
    ['unit_price', 'unit_price_', '_2nd']
    """
    return _unlike((), (re.sub(r"^(?=\d)|[^a-zA-Z0-9_]", "_", name) for name in schema.names))


def vespa_schema(schema: pa.Schema) -> str:
    """Vespa's schema for the feed: BM25 over title and text proposes, MaxSim ranks the best of them again."""
    size, lines = schema.field(_VECTORS).type.value_type.list_size, []
    for name, field in zip(_vespa_names(schema), schema, strict=True):
        if field.name in ("title", "text"):
            how = "string { indexing: index | summary index: enable-bm25 }"
        elif field.name == _VECTORS:
            how = f"tensor<float>(token{{}}, x[{size}]) {{ indexing: attribute }}"
        else:
            how = f"{_vespa_type(field.type)} {{ indexing: attribute | summary }}"
        lines.append(f"        field {name} type {how}")
    return "\n".join(
        [
            "schema passage {",
            "    document passage {",
            *lines,
            "    }",
            "    fieldset default { fields: title, text }",
            "    rank-profile maxsim {",
            f"        inputs {{ query(q) tensor<float>(word{{}}, x[{size}]) }}",
            "        first-phase { expression: bm25(title) + bm25(text) }",
            "        second-phase {",
            "            rerank-count: 1000",
            f"            expression: sum(reduce(sum(query(q) * attribute({_VECTORS}), x), max, token), word)",
            "        }",
            "    }",
            "}\n",
        ]
    )


def _vespa_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_vespa_type(kind.value_type)}>"
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return "long"
    return "double" if pa.types.is_floating(kind) else "string"
