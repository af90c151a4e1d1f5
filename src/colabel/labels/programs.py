"""Any program as a judge: it reads pairs as JSON lines and writes its verdicts as JSON lines.

    reads     {"query_id": "q1", "passage_id": "d7", "query": "…", "title": "…", "passage": "…", "guidelines": "…"}
    writes    {"query_id": "q1", "passage_id": "d7", "verdict": "yes", "reason": "…"}

``grade`` (0 to 3) does in place of ``verdict``. Every answer names its pair, so that a stray line of output never moves
a verdict to another one; the order is free, and answers are taken as they come.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from colabel.errors import DataError, UsageError
from colabel.labels.verdict_files import parse_record
from colabel.labels.verdicts import PROGRAM, Verdict, check_judge

log = logging.getLogger(__name__)

TIMEOUT = 300.0
"""Seconds without an answer after which a program is stopped: a model may have to be loaded first."""
_KEPT = "what it said before is kept: repeat the command to go on"
_HOPELESS = 20  # lines that say nothing, before any that does, after which nothing good will come


@dataclass(frozen=True)
class Question:
    """A pair for a program to judge."""

    query_id: str
    passage_id: str
    query: str
    title: str
    passage: str

    @property
    def pair(self) -> tuple[str, str]:
        """Both ids."""
        return self.query_id, self.passage_id


def program_name(command: str, name: str = "") -> str:
    """The judge's name of a program: ``program:`` and a given name, or that of the program itself.

    >>> program_name("python3 judges/mine.py --fast"), program_name("./ask", "gpt"), program_name("", "program:gpt")
    ('program:mine', 'program:gpt', 'program:gpt')
    """
    if not name:
        words = _words(command)
        script = next((word for word in words if word.endswith((".py", ".sh", ".js"))), words[0])
        name = Path(script).stem
    found = PROGRAM + name.removeprefix(PROGRAM)
    check_judge(found)
    return found


def ask_program(
    command: str,
    questions: Sequence[Question],
    judge: str,
    *,
    guidelines: str = "",
    relevant_from: int = 1,
    timeout: float = TIMEOUT,
) -> Iterator[Verdict]:
    """The verdicts of a program, each as soon as it has written it; lines that say nothing are named in warnings.

    Raises:
        DataError: the program fails, is silent for ``timeout`` seconds, or writes nothing that can be understood.
    """
    waiting = {one.pair: one for one in questions}
    good = 0
    for number, raw in enumerate(_talk(command, questions, guidelines, timeout), start=1):
        try:
            record = json.loads(raw)
            question = _asked(record, waiting)
            answer, grade, reason = parse_record(record, relevant_from)
        except ValueError as error:  # also what is no JSON or no UTF-8
            log.warning("%s: line %d of its output is no verdict: %s", judge, number, error)
            if not good and number == _HOPELESS:
                raise DataError(f"{judge}: none of the first {number} lines is a verdict; the last: {error}") from None
            continue
        good += 1
        del waiting[question.pair]
        yield Verdict(*question.pair, answer, judge, grade, question.query, "program", reason=reason)
    if waiting:
        log.warning("%s: %d pairs got no answer; repeat the command to ask about them again", judge, len(waiting))


def _asked(record: object, waiting: dict[tuple[str, str], Question]) -> Question:
    """The question that a line answers."""
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    if record.get("query_id") is None or record.get("passage_id") is None:
        raise ValueError("it does not name its pair; copy query_id and passage_id of the question")
    pair = str(record["query_id"]), str(record["passage_id"])
    if pair not in waiting:
        raise ValueError(f"no answer is open about the query '{pair[0][:60]}' and the passage '{pair[1][:60]}'")
    return waiting[pair]


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the command cannot be read ({error}): {command}") from None
    if not words:
        raise UsageError("the command is empty; give a program and its arguments")
    return words


def _talk(command: str, questions: Sequence[Question], guidelines: str, timeout: float) -> Iterator[bytes]:
    """Lines that a program writes; it is ended with its children, whatever happens."""
    words = _words(command)
    with tempfile.TemporaryFile() as asked:  # a file and no pipe: a program reads it as slowly as it likes
        for one in questions:
            asked.write(json.dumps({**vars(one), "guidelines": guidelines}, ensure_ascii=False).encode() + b"\n")
        asked.seek(0)
        try:
            process = subprocess.Popen(words, stdin=asked, stdout=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            raise UsageError(f"the program '{words[0]}' cannot be started ({error.strerror})") from None
    written, silent = cast("IO[bytes]", process.stdout), threading.Event()

    def end() -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def stop() -> None:
        silent.set()
        end()

    try:
        while True:
            watch = threading.Timer(timeout, stop)
            watch.start()
            line = written.readline()
            watch.cancel()
            if not line:
                break
            if line.strip():
                yield line
        if silent.is_set():
            raise DataError(f"the program '{words[0]}' wrote nothing for {timeout:g} s and was stopped; {_KEPT}")
        code = process.wait(timeout=timeout)
        if code != 0:
            raise DataError(f"the program '{words[0]}' ended with code {code}; {_KEPT}")
    except subprocess.TimeoutExpired:
        raise DataError(f"the program '{words[0]}' closed its output and did not end in {timeout:g} s") from None
    finally:
        end()
        process.wait()
        written.close()
