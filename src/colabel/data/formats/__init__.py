"""The collection formats, one class each. Another format is a class like these and its entry in ``FORMATS``."""

from colabel.data.formats.base import LineFile, Source
from colabel.data.formats.catalogue import CatalogueSource
from colabel.data.formats.columns import HuggingFaceSource, JsonlSource
from colabel.data.formats.documents import DocumentsSource
from colabel.data.formats.folders import BeirSource, MsMarcoSource, TrecSource
from colabel.data.formats.irds import IrdsSource
from colabel.data.pydocs import PydocsSource

FORMATS: tuple[type[Source], ...] = (
    BeirSource,
    MsMarcoSource,
    TrecSource,
    IrdsSource,
    HuggingFaceSource,
    JsonlSource,
    PydocsSource,
    CatalogueSource,
    DocumentsSource,
)
"""In the order in which a path is offered to them and messages list them."""

__all__ = ["FORMATS", "LineFile", "Source"]
