"""The collection formats. Another one is a function that opens a :class:`Source`, and its entry in ``FORMATS``."""

from colabel.data.formats.base import Format, LineFile, Source, existing
from colabel.data.formats.catalogue import is_catalogue, open_catalogue
from colabel.data.formats.documents import holds_documents, open_documents
from colabel.data.formats.folders import open_beir, open_hugging_face, open_msmarco
from colabel.data.formats.irds import open_irds
from colabel.data.pydocs import open_pydocs

FORMATS = (
    Format("a BEIR folder (corpus.jsonl)", open_beir, lambda path: bool(existing(path / "corpus.jsonl"))),
    Format("an MS MARCO folder (collection.tsv)", open_msmarco, lambda path: bool(existing(path / "collection.tsv"))),
    Format("irds:ID", open_irds, prefix="irds", is_path=False),
    Format("hf:FOLDER", open_hugging_face, prefix="hf"),
    Format("pydocs or pydocs:N", open_pydocs, prefix="pydocs", is_path=False, bare=True),
    Format("a catalogue (.csv, .tsv, .jsonl or .parquet)", open_catalogue, is_catalogue),
    Format("a folder of .txt, .md or .html files", open_documents, holds_documents),
)
"""In the order in which a path is offered to them and messages list them."""
