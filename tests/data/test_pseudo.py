"""Queries made of passages, where nobody labelled any."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from colabel.data import Dataset, has_training_labels, load_dataset, with_training_queries
from colabel.data.pseudo import crop, first_sentence, keyphrase, pseudo_queries, sentences, title, words_of
from colabel.errors import SettingsError
from colabel.settings import DataSettings, PseudoSettings
from colabel.types import Passage

CAVE = Passage("cave", "Glacier cave", "A cave within ice. Melt water carves its tunnels! 2 m deep")
ALL = PseudoSettings().kinds


def collection(count: int = 40) -> list[Passage]:
    things = ("cave", "fjord", "harbour", "tunnel", "glacier")
    return [
        Passage(
            f"p{n}", f"{things[n % 5]} number{n}", f"The {things[n % 5]}{n} lies here. It holds {things[n % 3]} ice{n}."
        )
        for n in range(count)
    ]


def test_each_kind_is_a_piece_of_its_passage() -> None:
    assert (title(CAVE), first_sentence(CAVE)) == ("Glacier cave", "A cave within ice.")
    assert {crop(CAVE, chance / 10) for chance in range(10)} == {"Melt water carves its tunnels!", "2 m deep"}
    empty = Passage("none", "", "")
    assert (title(empty), first_sentence(empty), crop(empty, 0.3), keyphrase(empty, {}, 1)) == ("", "", "", "")


def test_long_texts_are_cut() -> None:
    long = Passage("long", "", "Short one. " + " ".join(f"word{n}" for n in range(50)))
    starts = {crop(long, chance / 100).split()[0] for chance in range(100)}
    assert {"word0", "word40"} <= starts and all(len(crop(long, c / 100).split()) == 10 for c in range(100))
    assert (
        len(title(Passage("t", "a " * 99, "")).split())
        == len(first_sentence(Passage("t", "", "a " * 99)).split())
        == 20
    )


def test_sentences_of_other_scripts() -> None:
    assert sentences("夏。冬。 Ice") == ["夏。", "冬。", "Ice"]
    assert words_of("Été ÇA") == ["été", "ça"]


def test_a_keyphrase_holds_telling_words_that_others_use_too() -> None:
    frequencies = {"a": 90, "cave": 3, "within": 40, "ice": 5, "melt": 1, "2": 3}
    assert keyphrase(CAVE, frequencies, 100) == "cave a within ice", "no misprint of one passage, no number"


def test_boilerplate_and_common_queries_are_left_out_and_counted() -> None:
    passages = [Passage(f"p{n}", "Read more", f"Cave of ice. Word{n} tells of fjord{n} water.") for n in range(30)]
    passages += [Passage("short", "Ice", "12 34"), Passage("twice", "Narrow inlet", "Narrow  Inlet")]
    passages += [Passage("common", "", "ice cave")]
    made, left = pseudo_queries(passages, ALL)
    assert "Read more" not in {one.text for one in made} and "Cave of ice." not in {one.text for one in made}
    assert left["boilerplate"] >= 60 and left["repeated"] == 1 and left["short"] >= 2 and left["common"] == 2
    assert len({one.id for one in made}) == len(made)


def test_the_seed_alone_decides() -> None:
    data = Dataset.from_records([{"id": p.id, "title": p.title, "text": p.text} for p in collection()])
    one, same, other = (with_training_queries(data, PseudoSettings(queries=50), seed=seed) for seed in (0, 0, 1))
    assert one.labels("train") == same.labels("train") and one.queries == same.queries
    assert one.queries != other.queries
    assert len(one.queries) == 50 == len(one.labels("train")) + len(one.labels("dev"))


def test_of_a_large_collection_some_passages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colabel.data.pseudo.MOST_PASSAGES", 10)
    data = Dataset.from_records([{"id": p.id, "title": p.title, "text": p.text} for p in collection()])
    found = with_training_queries(data, PseudoSettings(kinds=("title",)))
    assert len(found.queries) == 10


def test_a_passage_is_in_train_or_in_dev() -> None:
    data = Dataset.from_records([{"id": p.id, "title": p.title, "text": p.text} for p in collection(200)])
    found = with_training_queries(data, PseudoSettings(queries=500), holdout=0.2)
    train, dev = ({passage for held in found.labels(split).values() for passage in held} for split in ("train", "dev"))
    assert found.pseudo == ("train", "dev") and not train & dev
    assert 0.1 < len(dev) / len(train | dev) < 0.3
    assert "dev" not in with_training_queries(data, PseudoSettings(), holdout=0.0).splits


def test_labels_that_are_there_stay(write_beir: Callable[..., Path]) -> None:
    labelled = load_dataset(write_beir("labelled"))
    assert with_training_queries(labelled, PseudoSettings()) is labelled
    data = load_dataset(write_beir("tested", qrels__train=None))
    found = with_training_queries(data, PseudoSettings())
    assert found.pseudo == ("train",) and found.labels("dev") == data.labels("dev")
    assert found.split_queries("test") == data.split_queries("test") and found.labels("test") == data.labels("test")
    assert found.labels_fingerprint("test") == data.labels_fingerprint("test")


def test_test_queries_are_no_pseudo_queries() -> None:
    made, left = pseudo_queries(collection(), ["title"], avoid=["CAVE  number0"])
    assert left == {"asked": 1} and "cave number0" not in {one.text for one in made}


def test_what_a_model_writes_is_drawn_and_filtered_like_the_others() -> None:
    data = Dataset.from_records([{"id": p.id, "title": p.title, "text": p.text} for p in collection(80)])
    asked: list[str] = []

    def write(passages: Sequence[Passage]) -> dict[str, str]:
        asked.extend(one.id for one in passages)
        return {one.id: "what is it" if n % 2 else f"where is {one.title}" for n, one in enumerate(passages)}

    found = with_training_queries(data, PseudoSettings(queries=50, kinds=("title",)), generate=write)
    assert len(set(asked)) == 50, "no more passages than queries are wanted"
    texts = {query: text for query, text in found.queries.items() if query.startswith("generated:")}
    assert len(found.queries) == 50 and 0 < len(texts) <= 25 and "what is it" not in texts.values()
    assert {one.removeprefix("generated:") for one in texts} <= set(asked)


def test_whether_there_are_training_labels_is_known_from_files(write_beir: Callable[..., Path]) -> None:
    assert has_training_labels(DataSettings(source=str(write_beir("labelled"))))
    assert not has_training_labels(DataSettings(source=str(write_beir("tested", qrels__train=None))))
    assert has_training_labels(DataSettings(source="pydocs"))


def test_kinds_are_checked() -> None:
    for kinds in ((), ("title", "anchor")):
        with pytest.raises(SettingsError, match="expected some of title, sentence, keyphrase, crop"):
            PseudoSettings(kinds=kinds)


def test_five_thousand_passages_take_three_seconds_of_a_core() -> None:
    text = ". ".join(f"the water of glacier{n % 97} carves tunnel{n % 31} within old ice" for n in range(15))
    passages = [Passage(f"p{n}", f"ice number{n}", f"{text} place{n}.") for n in range(5000)]
    start = time.process_time()
    pseudo_queries(passages, ALL)
    assert time.process_time() - start < 3.0, "100,000 in a minute"


def test_real_queries_join_the_training_queries_and_replace_made_ones() -> None:
    passages = [{"id": p.id, "title": p.title, "text": p.text} for p in collection(200)]
    real = {f"r{n}": f"real question {n}" for n in range(90)} | {"again": "Real  question 1", "asked": "the test"}
    alone = Dataset.from_records(passages, real)
    found = with_training_queries(alone, PseudoSettings(queries=500))
    unknown = [query for query, held in found.labels("train").items() if not held]
    assert unknown == [f"r{n}" for n in range(90)] + ["asked"], "one of each text"
    made = len(found.queries) - len(real)
    assert made == 200, "500 less four for each real query is too few"
    tested = Dataset.from_records(passages, real, {"test": {"asked": ["p1"]}, "train": {"r0": ["p2"]}})
    found = with_training_queries(tested, PseudoSettings(queries=20))
    assert len(found.labels("train")) == 21 and found.labels("train")["r0"] == {"p2": 1}
    assert "asked" not in found.labels("train") and found.pseudo == ()
