"""Queries that a language model of the user's writes for passages: one per passage, kept in parts.

A sequence-to-sequence model (doc2query's T5, BART) reads the passage, a causal one (GPT-2, Llama) a prompt with it,
whose last line it completes. Nothing is drawn at random: an interrupted call continues to the same queries.

queries.json   passage id → query
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from colabel.artefacts import Spec, Workspace, build, fingerprint
from colabel.encode.colbert import choose_device
from colabel.encode.weights import check_exists, weights_fingerprint
from colabel.errors import UsageError
from colabel.progress import SILENT, Progress
from colabel.types import Passage

FILE = "queries.json"
PROMPT = "Passage: {text}\nA question that the passage answers:"
READ_TOKENS, WRITTEN_TOKENS = 320, 32
PART, BATCH = 128, 16
"""Passages of a part, the most that a kill can lose, and of a batch."""
_READS, _CONTINUES = ("ForConditionalGeneration", "EncoderDecoderModel"), ("ForCausalLM", "LMHeadModel")


def generate_queries(
    passages: Sequence[Passage], model: str, out: Path, *, device: str = "auto", progress: Progress = SILENT
) -> dict[str, str]:
    """Passage id → query, for each passage with a text; what an earlier call has written is kept.

    Args:
        model: a folder, or a hub id, of a sequence-to-sequence or causal language model with its tokenizer.
    """
    texts = {one.id: one.full_text for one in passages if one.full_text}
    inputs = {"model": weights_fingerprint(model), "passages": fingerprint(list(texts.items()))}
    settings = {"prompt": PROMPT, "read": READ_TOKENS, "written": WRITTEN_TOKENS}

    def write(space: Workspace) -> Mapping[str, Any]:
        ids, task = list(texts), progress.start("writing queries", len(texts), "passages")
        ask, parts, found = None, [], dict[str, str]()
        for number, first in enumerate(range(0, len(ids), PART)):
            some, name = ids[first : first + PART], f"part-{number:05d}.json"
            if not space.done(name):
                ask = ask or open_generator(model, device)
                asked = dict(zip(some, ask([texts[one] for one in some]), strict=True))
                with space.file(name) as path:
                    path.write_text(json.dumps(asked, ensure_ascii=False), encoding="utf-8")
            parts.append(space.folder / name)
            found |= json.loads(parts[-1].read_text(encoding="utf-8"))
            task.advance(len(some))
        task.close()
        with space.file(FILE) as path:
            path.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
        for part in parts:
            part.unlink()
        return {"queries": len(found)}

    build(out, Spec("generated", settings, inputs), write)
    written: dict[str, str] = json.loads((out / FILE).read_text(encoding="utf-8"))
    return written


def open_generator(model: str, device: str = "auto") -> Callable[[Sequence[str]], list[str]]:
    """What writes a query for each of some texts, with the weights in float32."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    try:
        check_exists(model)
        kinds = tuple(AutoConfig.from_pretrained(model).architectures or ())
    except (OSError, ValueError, UsageError) as error:
        raise _unusable(model, str(error).splitlines()[0]) from None
    reads = any(kind.endswith(_READS) for kind in kinds)
    if not reads and not any(kind.endswith(_CONTINUES) for kind in kinds):
        raise _unusable(model, f"it is a {', '.join(kinds) or 'model of no named kind'}")
    try:
        sides = {"truncation_side": "right", "padding_side": "right" if reads else "left"}
        tokenizer = AutoTokenizer.from_pretrained(model, **sides)
        opener = AutoModelForSeq2SeqLM if reads else AutoModelForCausalLM
        writer = opener.from_pretrained(model, dtype=torch.float32).eval().to(choose_device(device))
    except (OSError, ValueError, RuntimeError) as error:
        raise _unusable(model, str(error).splitlines()[0]) from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    def cut(text: str) -> str:
        """So much of a text that the prompt behind it is read as well."""
        ids = tokenizer(text, truncation=True, max_length=READ_TOKENS, add_special_tokens=False)["input_ids"]
        return str(tokenizer.decode(ids, skip_special_tokens=True))

    def ask(texts: Sequence[str]) -> list[str]:
        found: list[str] = []
        shown = [cut(text) for text in texts]
        shown = shown if reads else [PROMPT.format(text=text) for text in shown]
        for first in range(0, len(shown), BATCH):
            read = tokenizer(shown[first : first + BATCH], padding=True, return_tensors="pt").to(writer.device)
            kept = {name: read[name] for name in ("input_ids", "attention_mask")}
            with torch.inference_mode():
                written = writer.generate(
                    **kept, max_new_tokens=WRITTEN_TOKENS, do_sample=False, pad_token_id=tokenizer.pad_token_id
                )
            start = 0 if reads else kept["input_ids"].shape[1]
            answers = tokenizer.batch_decode(written[:, start:], skip_special_tokens=True)
            found += [" ".join((answer.strip().splitlines() or [""])[0].split()) for answer in answers]
        return found

    return ask


def _unusable(model: str, why: str) -> UsageError:
    return UsageError(
        f"'pseudo.generator' is '{model}', which cannot write queries: {why}; name the folder of a "
        "sequence-to-sequence or causal language model with its tokenizer (such as a doc2query T5), or leave it out"
    )
