from __future__ import annotations

from pathlib import Path

from colabel.teachers.pair_model import PairReader, load_cross_encoder


def test_the_query_is_kept_whole_and_the_passage_cut(tiny_cross_encoder: Path) -> None:
    model = load_cross_encoder(str(tiny_cross_encoder), "cpu")
    reader = PairReader(model, 20)
    query, passage = "how are glacier caves formed", "ice " * 100
    features = model.preprocess([(query, passage)], processing_kwargs=reader.options)
    tokens = model.tokenizer.convert_ids_to_tokens(features["input_ids"][0])
    assert len(tokens) == 20
    assert tokens[1:6] == query.split()
    assert tokens[7:-1] == ["ice"] * 12
    assert reader.fit_queries([query]) == [query]
    (fitted,) = reader.fit_queries(["cave " * 50])
    assert fitted.split() == ["cave"] * 12, "three quarters of 20 tokens, less [CLS] and two [SEP]"
    model.preprocess([(fitted, passage)], processing_kwargs=reader.options)
