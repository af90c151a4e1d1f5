"""pydocs: a collection on every machine, made of the documentation of the libraries that colabel installs."""

from __future__ import annotations

from colabel.data.pydocs.source import PydocsSource

__all__ = ["PydocsSource"]
