"""Look after results: ``colabel verify``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from colabel.cli import options
from colabel.cli.options import FOLDER
from colabel.cli.output import emit, print_json, terminal_progress


@click.command("verify")
@click.argument("folder", type=FOLDER)
@options.json_option
def verify_command(folder: Path, as_json: bool) -> int:
    """Check every file of a run, study, index or other output against its checksum.

    Every artefact below FOLDER is read whole; when other commands open one, they read a sample of a few megabytes.
    Damaged files are named, with what makes them again; artefacts of earlier versions have no checksums, and only the
    sizes of their files are compared. Exits 1 if anything is damaged. Example:

      colabel verify runs/mine
    """
    from colabel import verify

    with terminal_progress() as progress:
        found = verify(folder, progress=progress)
    if as_json:
        print_json(dataclasses.asdict(found))
        return 1 if found.damaged else 0
    for one in found.damaged:
        emit(f"DAMAGED {one.file}: {one.problem}\n  remedy: {one.remedy}")
    for place in found.unchecked:
        emit(f"not checked: {place} (of an earlier version, without checksums)")
    state = f"{len(found.damaged):,} damaged" if found.damaged else "nothing is damaged"
    emit(f"{found.artefacts:,} artefacts, {found.files:,} files, {found.bytes / 1e6:,.1f} MB: {state}")
    return 1 if found.damaged else 0
