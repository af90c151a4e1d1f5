"""Runs commands in processes of their own that start at once: imports everything, then forks for each line it reads.

A line is JSON. {"arguments", "out", "err", "bytes", "powerless"} starts a command whose output goes to two files, which
may write no file of more than so many bytes, and of which root's power over other people's files is taken; the answer
is its process id. {"wait": id} is answered with its exit code, negative for a signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pkgutil
import resource
import sys
import traceback
from typing import Any

import colabel
from colabel.cli import main

_CAPABILITIES_3 = 0x20080522
_MAY_WRITE_ANYTHING = 1  # CAP_DAC_OVERRIDE


def import_everything() -> None:
    for module in pkgutil.walk_packages(colabel.__path__, "colabel."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError, colabel.ColabelError):
                importlib.import_module(module.name)
    for name in ("sentence_transformers", "transformers.models.bert.modeling_bert", "datasets", "pyarrow.parquet"):
        importlib.import_module(name)


def give_up_power() -> None:
    """Root may write in folders that are read-only; without this capability it may not."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    for place in (0, 1):  # effective and permitted
        sets[place] &= ~(1 << _MAY_WRITE_ANYTHING)
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def command(asked: dict[str, Any]) -> int:
    for file, descriptor in ((os.devnull, 0), (asked["out"], 1), (asked["err"], 2)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC), descriptor)
    if asked["powerless"]:
        give_up_power()
    if asked["bytes"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["bytes"], asked["bytes"]))
    try:
        main(asked["arguments"])
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:  # noqa: BLE001, a defect that the test will see
        traceback.print_exc()
    return 70


def answer(value: object) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


def serve() -> None:
    import_everything()
    answer("ready")
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            answer(os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1]))
            continue
        child = os.fork()
        if child == 0:
            code = command(asked)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        answer(child)


if __name__ == "__main__":
    serve()
