"""``study.json``: written whole or not at all, read with errors that name the place."""

from __future__ import annotations

import json
from pathlib import Path

from colabel.artefacts import write_text
from colabel.errors import ArtefactError, location
from colabel.reporting.document import StudyDocument
from colabel.reporting.reading import UnreadableError

STUDY_FILE = "study.json"


def write_study(folder: Path, document: StudyDocument) -> Path:
    """Write ``study.json`` into an existing folder, whole or not at all."""
    path = folder / STUDY_FILE
    write_text(path, json.dumps(document.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def read_study(folder: Path) -> StudyDocument:
    """Read ``study.json`` of a finished study.

    Raises:
        ArtefactError: there is none, or it is not a study of this format.
    """
    path = folder / STUDY_FILE
    try:
        return StudyDocument.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        what = f"has no {STUDY_FILE}, so it is not a finished study" if folder.is_dir() else "does not exist"
        raise ArtefactError(f"{folder} {what}; expected the output folder of `colabel study`") from None
    except NotADirectoryError:
        raise ArtefactError(f"{folder} is a file; expected the output folder of `colabel study`") from None
    except json.JSONDecodeError as error:
        place = location(str(path), error.lineno)
        raise ArtefactError(f"{place}: not JSON ({error.msg}); run the study again to write it anew") from None
    except UnicodeDecodeError as error:
        raise ArtefactError(f"{path}: not UTF-8 at byte {error.start}; run the study again to write it anew") from None
    except UnreadableError as error:
        raise ArtefactError(f"{path}: {error}") from None
