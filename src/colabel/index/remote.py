"""Folders at fsspec URLs (s3://, gs://, file://, memory://, …): whole or not there."""

from __future__ import annotations

import importlib
import os
import posixpath
import shutil
from pathlib import Path
from typing import Any

from colabel.errors import ArtefactError, UsageError


def read_text(url: str) -> str | None:
    """The text of a remote file, None where it does not exist."""
    system, path = _open(url)
    try:
        return str(system.cat_file(path).decode("utf-8"))
    except FileNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001, each file system has errors of its own: credentials, networks
        raise ArtefactError(f"{url} cannot be read ({error}); check 'compute.storage'") from None


def publish(folder: Path, url: str, last: str) -> None:
    """Copy a folder to a URL; the file ``last`` comes at the end, so its presence says that the copy is whole."""
    system, target = _open(url)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("[!.]*") if path.is_file())
    try:
        if system.exists(posixpath.join(target, last)):
            system.rm_file(posixpath.join(target, last))
        for name in [*(name for name in names if name != last), last]:
            place = posixpath.join(target, name)
            system.makedirs(posixpath.dirname(place), exist_ok=True)
            system.put_file(str(folder / name), place)
    except Exception as error:  # noqa: BLE001, as above
        raise ArtefactError(f"{url} cannot be written ({error}); check 'compute.storage'") from None


def fetch(url: str, folder: Path) -> None:
    """Copy a remote folder to ``folder``, which appears whole or not at all and replaces what was there."""
    system, source = _open(url)
    arriving = folder.with_name(f".{folder.name}.arriving-{os.getpid()}")
    shutil.rmtree(arriving, ignore_errors=True)
    try:
        paths = system.find(source)
        if not paths:
            raise FileNotFoundError("there is nothing")
        for path in paths:
            target = arriving / posixpath.relpath(path, source)
            target.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(path, str(target))
    except Exception as error:  # noqa: BLE001, as above
        shutil.rmtree(arriving, ignore_errors=True)
        raise ArtefactError(f"{url} cannot be fetched to {folder} ({error})") from None
    shutil.rmtree(folder, ignore_errors=True)
    arriving.rename(folder)


def _open(url: str) -> tuple[Any, str]:
    """The file system of a URL and the path on it."""
    core: Any = importlib.import_module("fsspec.core")
    try:
        system, path = core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise UsageError(f"'{url}' cannot be opened: {error}; 'compute.storage' takes URLs that fsspec knows") from None
    return system, str(path)
