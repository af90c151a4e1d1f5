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
