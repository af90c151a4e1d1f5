from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from colabel.data import load_dataset
from colabel.encode import Encoder, open_encoder, prepare_encoder
from colabel.encode.colbert import choose_device, load_or_convert, principal_directions
from colabel.encode.weights import is_late_interaction
from colabel.errors import UsageError
from colabel.settings import EncoderSettings
from tests.conftest import SHARED
from tests.encode.conftest import settings

WriteBeir = Callable[..., Path]


def pieces(encoder: Encoder, ids: torch.Tensor) -> list[str]:
    return encoder.tokens(ids.tolist())


def test_a_plain_encoder_gets_every_convention(encoder: Encoder) -> None:
    model = encoder.model
    query = model.preprocess(["what is ice?"], prompt=model.prompts["query"], task="query")
    tokens = pieces(encoder, query["input_ids"][0])
    assert tokens[:2] == ["[CLS]", "[unused0]"]
    assert tokens[2:7] == ["what", "is", "ice", "?", "[SEP]"]
    assert tokens[7:] == ["[MASK]"] * 5, "queries are filled up to 12"
    assert query["attention_mask"][0].tolist() == [1] * 7 + [0] * 5, "[MASK] is not attended to"
    encoded = encoder.encode_queries(["what is ice?"])
    assert (encoded.vectors[0].norm(dim=-1) - 1).abs().max() < 1e-5, "[MASK] is scored; all vectors have length 1"
    assert encoded.vectors.shape == (1, 12, 16)
    passage = encoder.encode_passages(["A cave, formed within ice!"])
    tokens = encoder.tokens(passage.token_ids.tolist())
    assert tokens == ["[CLS]", "[unused1]", "a", "cave", "formed", "within", "ice", "[SEP]"], "no punctuation"
    assert model[0].auto_model.config.hidden_dropout_prob == 0.0
    assert all(module.p == 0.0 for module in model.modules() if isinstance(module, torch.nn.Dropout))


def test_conventions_are_settings(tiny_model: Path) -> None:
    loaded, _ = load_or_convert(
        str(tiny_model), settings(tiny_model, skip_punctuation=False, passage_length=8, dropout=0.1), "cpu"
    )
    tokens = Encoder(loaded).encode_passages(["a, the, of, in, is"]).token_ids
    assert len(tokens) == 8
    assert any(token in string.punctuation for token in Encoder(loaded).tokens(tokens.tolist()))
    assert loaded[0].auto_model.config.hidden_dropout_prob == 0.1


def test_without_expansion_a_query_has_its_own_tokens_alone(tiny_model: Path) -> None:
    loaded, _ = load_or_convert(str(tiny_model), settings(tiny_model, expand_queries=False), "cpu")
    encoded = Encoder(loaded).encode_queries(["what is ice", "cave"])
    assert encoded.token_ids[1].tolist()[4:] == [-1, -1]
    assert not encoded.vectors[1, 4:].any(), "padding is zero, which adds nothing to a score"
    long = Encoder(loaded).encode_queries(["ice " * 40])
    assert long.vectors.shape[1] == 12


def test_saved_and_opened_again(tiny_model: Path, write_beir: WriteBeir, tmp_path: Path) -> None:
    passages = load_dataset(str(write_beir())).passages
    wanted = settings(tiny_model, projection="pca")
    first = prepare_encoder(wanted, passages, tmp_path / "encoder")
    again = prepare_encoder(wanted, passages, tmp_path / "encoder")
    assert first.fingerprint == again.fingerprint
    opened = open_encoder(tmp_path / "encoder", wanted.device)
    from sentence_transformers import MultiVectorEncoder

    theirs = MultiVectorEncoder(str(tmp_path / "encoder")).encode_query("what is ice")
    assert (opened.encode_queries(["what is ice"]).vectors[0] - theirs).abs().max() < 1e-6
    assert is_late_interaction(str(tmp_path / "encoder"))
    model_again = prepare_encoder(settings(tmp_path / "encoder"), passages, tmp_path / "copy")
    weights = "model.safetensors"
    assert (tmp_path / "copy" / weights).samefile(tmp_path / "encoder" / weights), "it takes no room of its own"
    assert not (tmp_path / "copy" / "manifest.json").samefile(tmp_path / "encoder" / "manifest.json")
    assert model_again.counts["converted"] is False, "a ColBERT checkpoint is taken as it is"


def test_projection_depends_on_what_it_says(tiny_model: Path, write_beir: WriteBeir, tmp_path: Path) -> None:
    passages = load_dataset(str(write_beir())).passages
    other = load_dataset(str(write_beir("other", corpus='{"_id": "d1", "text": "ice"}\n', qrels__train=None,
                                        qrels__dev=None, qrels__test="q1\td1\t1\n"))).passages  # fmt: skip

    def prepared(place: str, table: object, **changes: object) -> str:
        return prepare_encoder(settings(tiny_model, **changes), table, tmp_path / place).fingerprint  # type: ignore[arg-type]

    assert prepared("a", passages, projection="pca") != prepared("b", other, projection="pca")
    assert prepared("c", passages, projection="random") == prepared("d", other, projection="random")
    assert prepared("e", passages, device="cpu") == prepared("f", passages), "speed changes nothing"


def test_principal_directions_keep_the_most_variance() -> None:
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor([5.0, 3.0, 1.0, 0.1])
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=generator))[0]
    vectors = torch.randn(2000, 4, generator=generator) * scales @ rotation
    moments = vectors.T.double() @ vectors.double()
    directions = principal_directions(moments, 2)
    assert (directions @ directions.T - torch.eye(2)).abs().max() < 1e-5
    kept = (vectors @ directions.T).square().sum() / vectors.square().sum()
    assert kept > 0.95
    assert (principal_directions(7 * moments, 2) - directions).abs().max() < 1e-5, "nor does the number of vectors"


def test_added_markers_where_the_vocabulary_has_no_unused_tokens(tiny_model: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "roberta-like"
    shutil.copytree(tiny_model, folder)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        path = folder / name
        if path.exists():
            path.write_text(path.read_text().replace("[unused0]", "zzzz").replace("[unused1]", "yyyy"))
    loaded, _ = load_or_convert(str(folder), settings(folder), "cpu")
    encoder = Encoder(loaded)
    assert encoder.tokens(encoder.encode_queries(["ice"]).token_ids[0].tolist())[:2] == ["[CLS]", "[Q]"]
    assert encoder.tokens(encoder.encode_passages(["ice"]).token_ids.tolist())[:2] == ["[CLS]", "[D]"]
    loaded.save(str(tmp_path / "saved"))
    reopened, _ = load_or_convert(str(tmp_path / "saved"), settings(folder), "cpu")
    difference = Encoder(reopened).encode_queries(["ice"]).vectors - encoder.encode_queries(["ice"]).vectors
    assert difference.abs().max() < 1e-6


def test_token_pooling_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

    loaded, _ = load_or_convert(str(tiny_model), settings(tiny_model), "cpu")
    loaded.append(HierarchicalTokenPooling(pool_factor=2))
    loaded.save(str(tmp_path / "pooled"))
    with pytest.raises(UsageError, match="pools tokens"):
        load_or_convert(str(tmp_path / "pooled"), settings(tiny_model), "cpu")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dimension": 64}, "at most 32"),
        ({"passage_length": 100}, "at most 64"),
        ({"query_length": 100}, "at most 64"),
    ],
)
def test_impossible_settings(tiny_model: Path, changes: dict[str, int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load_or_convert(str(tiny_model), settings(tiny_model, **changes), "cpu")


def test_devices() -> None:
    assert choose_device("cpu") == "cpu"
    with pytest.raises(UsageError, match="CUDA devices"):
        choose_device("cuda:99")
    with pytest.raises(UsageError, match="expected 'auto'"):
        choose_device("toaster")


def test_half_precision_weights_are_computed_in_float32() -> None:
    folder = SHARED / "weights" / "e5-small"
    if not folder.is_dir():
        pytest.skip("the e5-small weights are not on this machine")
    loaded, converted = load_or_convert(str(folder), EncoderSettings(), "cpu")
    assert converted
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    assert torch.isfinite(Encoder(loaded).encode_queries(["what is ice"]).vectors).all()


def test_a_pylate_checkpoint_loads(tiny_model: Path, tmp_path: Path) -> None:
    """PyLate's layout: [Transformer, Dense] with prefixes and lengths in the top-level config."""
    loaded, _ = load_or_convert(str(tiny_model), settings(tiny_model), "cpu")
    folder = tmp_path / "pylate"
    loaded.save(str(folder))
    modules = json.loads((folder / "modules.json").read_text())
    for module, reference in zip(modules[:2], ("sentence_transformers.models.Transformer", "pylate.models.Dense.Dense"),
                                 strict=True):  # fmt: skip
        module["type"] = reference
    (folder / "modules.json").write_text(json.dumps(modules[:2]))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 24, "do_lower_case": False}))
    config = {
        "model_type": "ColBERT",
        "query_prefix": "[unused0] ",
        "document_prefix": "[unused1] ",
        "query_length": 12,
        "document_length": 24,
        "attend_to_expansion_tokens": False,
        "skiplist_words": list(string.punctuation),
        "prompts": {},
        "similarity_fn_name": "MaxSim",
    }
    for keys in (config, {key: value for key, value in config.items() if key != "model_type"}):  # older saves have none
        (folder / "config_sentence_transformers.json").write_text(json.dumps(keys))
        assert is_late_interaction(str(folder))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    reopened, converted = load_or_convert(str(folder), settings(tiny_model), "cpu")
    assert not converted
    for text in ("what is ice", "cave, ice!"):
        mine, theirs = (Encoder(model).encode_queries([text]).vectors for model in (loaded, reopened))
        assert (mine - theirs).abs().max() < 1e-5
        ids = [Encoder(model).encode_passages([text]).token_ids.tolist() for model in (loaded, reopened)]
        assert ids[0] == ids[1]


def test_a_stanford_checkpoint_loads(tiny_model: Path, tmp_path: Path) -> None:
    """Stanford's layout: encoder and projection in one file, settings in ``artifact.metadata``."""
    from safetensors.torch import load_file, save_file

    loaded, _ = load_or_convert(str(tiny_model), settings(tiny_model), "cpu")
    folder = tmp_path / "stanford"
    folder.mkdir()
    for path in tiny_model.iterdir():
        if path.name != "model.safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    weights = {f"bert.{name}": value for name, value in load_file(tiny_model / "model.safetensors").items()}
    weights["linear.weight"] = loaded[1].linear.weight.detach().clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
    metadata = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 12, "doc_maxlen": 24,
                "mask_punctuation": True, "attend_to_mask_tokens": False}  # fmt: skip
    (folder / "artifact.metadata").write_text(json.dumps(metadata))
    reopened, converted = load_or_convert(str(folder), settings(tiny_model), "cpu")
    assert not converted
    mine, theirs = (Encoder(model).encode_queries(["what is ice"]).vectors for model in (loaded, reopened))
    assert (mine - theirs).abs().max() < 1e-5
    ids = [Encoder(model).encode_passages(["a cave, within ice"]).token_ids.tolist() for model in (loaded, reopened)]
    assert ids[0] == ids[1]
