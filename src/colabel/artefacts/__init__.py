"""Artefacts: folders that a stage writes once, whole or not at all, and that say how they were made."""

from colabel.artefacts.build import (
    Builder,
    DryBuilder,
    Stale,
    Workspace,
    assemble,
    build,
    refuse_foreign,
    write_json,
    write_text,
)
from colabel.artefacts.lock import folder_lock, patient_lock
from colabel.artefacts.manifest import (
    Manifest,
    Spec,
    file_fingerprint,
    fingerprint,
    parse_manifest,
    read_manifest,
    seconds_of,
)
from colabel.artefacts.verification import verify

__all__ = [
    "Builder",
    "DryBuilder",
    "Manifest",
    "Spec",
    "Stale",
    "Workspace",
    "assemble",
    "build",
    "file_fingerprint",
    "fingerprint",
    "folder_lock",
    "parse_manifest",
    "patient_lock",
    "read_manifest",
    "refuse_foreign",
    "seconds_of",
    "verify",
    "write_json",
    "write_text",
]
