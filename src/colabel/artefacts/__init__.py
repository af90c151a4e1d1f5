"""Artefacts: folders that a stage writes once, whole or not at all, and that say how they were made."""

from colabel.artefacts.build import Plan, Workspace, build, copy_artefact, write_json, write_text
from colabel.artefacts.fingerprint import file_fingerprint, fingerprint
from colabel.artefacts.lock import folder_lock, patient_lock
from colabel.artefacts.manifest import Manifest, parse_manifest, read_manifest

__all__ = [
    "Manifest",
    "Plan",
    "Workspace",
    "build",
    "copy_artefact",
    "file_fingerprint",
    "fingerprint",
    "folder_lock",
    "parse_manifest",
    "patient_lock",
    "read_manifest",
    "write_json",
    "write_text",
]
