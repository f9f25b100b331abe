"""The Auto classes know the models in any order of imports, and a checkpoint loads where this package is not installed.

Each case is a Python process that has imported neither attnfaith nor transformers: what is registered in this one says
nothing.
"""

import json
import logging
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from transformers import AutoTokenizer, pipeline

from attnfaith import (
    AttentionClassifierConfig,
    AttentionClassifierForSequenceClassification,
    SelfAttentionClassifierForSequenceClassification,
)
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.hierarchy import HIERARCHIES
from tests.small_classifiers import classifier
from tests.small_rationales import rationale_model
from tests.small_translators import translator


SHARED = {"configuration_common", "encoders", "modeling_common", "projections"}
CLASSIFIER = {*SHARED, "configuration_attention_classifier", "alignments", "decoders", "hierarchy"}
CODE = {
    "attention_classifier": {*CLASSIFIER, "modeling_attention_classifier"},
    "self_attention_classifier": {
        *("configuration_common", "configuration_self_attention_classifier", "modeling_self_attention_classifier"),
        "projections",
    },
    "rationale_classifier": {
        *CLASSIFIER,
        *("configuration_rationale_classifier", "modeling_rationale_classifier", "rationale_samplers"),
    },
    "attention_seq2seq": {
        *SHARED,
        *("configuration_attention_seq2seq", "modeling_attention_seq2seq", "alignments"),
    },
}
"""The modules that travel with a checkpoint of each type."""
AUTO_MAP = {
    "AutoConfig": "configuration_attention_classifier.AttentionClassifierConfig",
    "AutoModel": "modeling_attention_classifier.AttentionClassifierModel",
    "AutoModelForSequenceClassification": "modeling_attention_classifier.AttentionClassifierForSequenceClassification",
}
IDS = torch.tensor([[2, 5, 9, 4, 3, 2, 7, 3], [2, 8, 3, 2, 6, 3, 0, 0]])
TYPES = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0, 0]])


def build(encoder="bilstm", **fields):
    torch.manual_seed(0)
    sizes = {"vocab_size": 12, "embedding_size": 8, "hidden_size": 8, "intermediate_size": 8}
    config = AttentionClassifierConfig(**{**sizes, "encoder": encoder, **fields})
    return AttentionClassifierForSequenceClassification(config).eval()


def build_sparse():
    return SelfAttentionClassifierForSequenceClassification.of(classifier("bert"), "sparsemax").eval()


def models(entmax):
    """Models by name; entmax: whether those that need that package are among them."""
    models = {f"{encoder}-{levels}": build(encoder, hierarchy=levels) for encoder in ENCODERS for levels in HIERARCHIES}
    models |= {"pair": build(query="text"), "uniform-pair": build("transformer", query="text", projection="uniform")}
    models |= {recurrence: translator(recurrence) for recurrence in ("bahdanau", "luong")}
    kinds = ("hardkuma", "budget") if entmax else ("hardkuma",)
    models |= {kind: rationale_model(kind, vocab_size=12) for kind in kinds}
    return models | ({"sparse": build_sparse()} if entmax else {})


def run_script(script, tmp_path, blocked=()):
    """Run a script in a new process in which the given packages cannot be imported; return what it prints last, as JSON."""
    blocker = f"""
        import importlib.abc, json, sys, warnings

        class Blocker(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in {tuple(blocked)!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

        sys.meta_path.insert(0, Blocker())
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=ResourceWarning)
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTEST_"))}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(blocker) + textwrap.dedent(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["classifier", "model"])
def test_checkpoint_holds_the_code_and_a_full_auto_map(kind, tmp_path):
    model = build()
    (model if kind == "classifier" else model.model).save_pretrained(tmp_path)
    assert {path.stem for path in tmp_path.glob("*.py")} == CODE["attention_classifier"]
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == AUTO_MAP


CHECK = """
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer
    loaded = {}
    for auto in (AutoConfig, AutoModel, AutoModelForSequenceClassification):
        kind = type(auto.from_pretrained("checkpoint"))
        loaded[auto.__name__] = f"{kind.__module__} {kind.__name__}"
    config = AutoConfig.for_model("attention_classifier", hidden_size=8, embedding_size=8)
    loaded["from_config"] = type(AutoModelForSequenceClassification.from_config(config)).__name__
    loaded["tokenizer"] = AutoTokenizer.from_pretrained("checkpoint")("good film")["input_ids"]
    sparse = AutoModelForSequenceClassification.from_pretrained("sparse")
    loaded["sparse"] = [type(model).__name__ for model in (sparse, sparse.model)]
    print(json.dumps(loaded))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        "import attnfaith; from transformers import Trainer, pipeline",
        "from transformers import Trainer, pipeline; import attnfaith",
        "from attnfaith.models.encoders import ENCODERS",
    ],
)
def test_auto_classes_in_any_order(order, tmp_path):
    build().save_pretrained(tmp_path / "checkpoint")
    build_sparse().save_pretrained(tmp_path / "sparse")
    build_tokenizer(["good film"], preprocessing="whitespace").save_pretrained(tmp_path / "checkpoint")
    place = "attnfaith.models."
    assert run_script(order + textwrap.dedent(CHECK), tmp_path) == {
        **{auto: place + name.replace(".", " ") for auto, name in AUTO_MAP.items()},
        "from_config": "AttentionClassifierForSequenceClassification",
        "tokenizer": [2, 5, 4, 3],
        "sparse": ["SelfAttentionClassifierForSequenceClassification", "BertForSequenceClassification"],
    }


REMOTE = """
    import torch
    from pathlib import Path
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

    ids, types = torch.tensor(IDS), torch.tensor(TYPES)
    results = {}

    def outputs_of(folder):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
        auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForSequenceClassification
        model = auto.from_pretrained(folder, trust_remote_code=True)
        assert all(type(part).__module__.startswith("transformers_modules.") for part in (config, model))
        more = {"labels": ids} if config.is_encoder_decoder else {}
        more |= {"token_type_ids": types} if getattr(config, "query", None) == "text" else {}
        output = model(ids, **more)
        if "AutoModel" in config.auto_map:
            base = AutoModel.from_pretrained(folder, trust_remote_code=True)
            assert torch.equal(base(ids, **more).attention, output.attention)
        written = model.generate(ids, max_new_tokens=4, num_beams=2).tolist() if config.is_encoder_decoder else None
        return model, [output.logits.tolist(), written]

    for folder in sorted(Path("checkpoints").iterdir()):
        model, first = outputs_of(folder)
        model.save_pretrained(Path("again") / folder.name)
        results[folder.name] = [*first, sorted(path.stem for path in (Path("again") / folder.name).glob("*.py"))]
        assert outputs_of(Path("again") / folder.name)[1] == first
    assert not any(name.partition(".")[0] in BLOCKED for name in sys.modules)
    print(json.dumps(results))
"""


@pytest.mark.slow
@pytest.mark.parametrize("blocked", [("attnfaith",), ("attnfaith", "entmax")], ids="+".join)
def test_remote_code(blocked, tmp_path):
    """Where attnfaith is not installed every model gives the same numbers, again after saving from the loaded code."""
    expected = {}
    for name, model in models("entmax" not in blocked).items():
        model.save_pretrained(tmp_path / "checkpoints" / name)
        translates = model.config.is_encoder_decoder
        options = {"labels": IDS} if translates else {}
        options |= {"token_type_ids": TYPES} if getattr(model.config, "query", None) == "text" else {}
        generated = model.generate(IDS, max_new_tokens=4, num_beams=2).tolist() if translates else None
        expected[name] = [model(IDS, **options).logits.tolist(), generated, sorted(CODE[model.config.model_type])]
    actual = f"IDS, TYPES, BLOCKED = {IDS.tolist()}, {TYPES.tolist()}, {blocked!r}\n"
    assert run_script(actual + textwrap.dedent(REMOTE), tmp_path, blocked) == expected


@pytest.mark.parametrize(("pair", "hierarchy"), [(True, "none"), (False, "sentence")])
def test_pipeline(pair, hierarchy, tmp_path, monkeypatch):
    texts = ["A good film. Bad. What a film.", "bad", "what a film"]
    tokenizer = build_tokenizer(texts, preprocessing="whitespace", pair=pair, hierarchy=hierarchy)
    query = "text" if pair else "learned"
    model = build(query=query, vocab_size=len(tokenizer), num_labels=3, hierarchy=hierarchy)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    # transformers logs an error for a model that it does not know
    monkeypatch.setattr(logging.Logger, "error", lambda logger, message, *arguments, **options: pytest.fail(message))
    classify = pipeline("text-classification", model=str(tmp_path), device="cpu", top_k=None)
    assert type(classify.model) is AttentionClassifierForSequenceClassification
    inputs = [{"text": text, "text_pair": "what film"} for text in texts] if pair else texts
    results = classify(inputs, batch_size=2)
    assert len(results) == 3
    encode = AutoTokenizer.from_pretrained(tmp_path)
    for text, result in zip(texts, results, strict=True):
        output = model(**encode(text, "what film" if pair else None, return_tensors="pt"))
        expected = output.logits.softmax(-1)[0]
        for entry in result:
            assert entry["score"] == pytest.approx(expected[model.config.label2id[entry["label"]]].item(), abs=1e-5)
