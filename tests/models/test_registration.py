"""The Auto classes know the models in any order of imports, and a checkpoint loads where this package is not installed.

Each case is a Python process that has imported neither attnfaith nor transformers: what is registered in this one says
nothing.
"""

import functools
import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from transformers import AutoConfig

import attnfaith
from attnfaith import (
    AttentionClassifierConfig,
    AttentionClassifierForSequenceClassification,
    AttentionClassifierModel,
    AttentionSeq2SeqConfig,
    AttentionSeq2SeqForConditionalGeneration,
    RationaleClassifierConfig,
    RationaleClassifierForSequenceClassification,
    SelfAttentionClassifierConfig,
    SelfAttentionClassifierForSequenceClassification,
)
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.hierarchy import HIERARCHIES


CODE = {
    "alignments.py",
    "checks.py",
    "configuration_attention_classifier.py",
    "decoders.py",
    "encoders.py",
    "hierarchy.py",
    "modeling_attention_classifier.py",
    "projections.py",
    "queries.py",
}
CODE_OF_SPARSE = {
    "configuration_self_attention_classifier.py",
    "modeling_self_attention_classifier.py",
    "projections.py",
}
CODE_OF_RATIONALES = CODE | {
    "configuration_rationale_classifier.py",
    "modeling_rationale_classifier.py",
    "rationale_samplers.py",
    "sequence_budget.py",
}
CODE_OF_SEQUENCES = {
    "alignments.py",
    "checks.py",
    "configuration_attention_seq2seq.py",
    "encoders.py",
    "modeling_attention_seq2seq.py",
    "projections.py",
    "sequence_alignments.py",
}
AUTO_MAP = {
    "AutoConfig": "configuration_attention_classifier.AttentionClassifierConfig",
    "AutoModel": "modeling_attention_classifier.AttentionClassifierModel",
    "AutoModelForSequenceClassification": "modeling_attention_classifier.AttentionClassifierForSequenceClassification",
}
CELLS = [(encoder, "learned", "softmax", hierarchy) for encoder in ENCODERS for hierarchy in HIERARCHIES]
CELLS += [("bilstm", "text", "softmax", "none"), ("transformer", "text", "uniform", "none")]
IDS = torch.tensor([[2, 5, 9, 4, 3, 2, 7, 3], [2, 8, 3, 2, 6, 3, 0, 0]])
TYPES = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0, 0]])


def build(encoder="bilstm", query="learned", projection="softmax", **fields):
    torch.manual_seed(0)
    fields = {"vocab_size": 12, "embedding_size": 8, "hidden_size": 8, "intermediate_size": 8, **fields}
    config = AttentionClassifierConfig(encoder=encoder, query=query, projection=projection, **fields)
    return AttentionClassifierForSequenceClassification(config).eval()


def build_sparse():
    torch.manual_seed(0)
    sizes = {"vocab_size": 12, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    inner = AutoConfig.for_model("bert", **sizes)
    return SelfAttentionClassifierForSequenceClassification(
        SelfAttentionClassifierConfig(text_config=inner, projection="sparsemax")
    ).eval()


def build_rationale(**fields):
    torch.manual_seed(0)
    sizes = {"vocab_size": 12, "embedding_size": 8, "hidden_size": 8}
    model = RationaleClassifierForSequenceClassification(RationaleClassifierConfig(**sizes, **fields)).eval()
    with torch.no_grad():
        model.selector.score.weight.normal_(std=5)
    return model


def run_script(executable, script, tmp_path, blocked=()):
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
        [executable, "-c", textwrap.dedent(blocker) + textwrap.dedent(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def python(warm_python):
    """`run_script` where all that takes long but Hugging Face's libraries has been imported."""
    return functools.partial(run_script, warm_python)


# What is saved


@pytest.mark.parametrize("kind", ["classifier", "model"])
def test_checkpoint_holds_the_code_and_a_full_auto_map(kind, tmp_path):
    model = build()
    (model if kind == "classifier" else model.model).save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == CODE | {"config.json", "model.safetensors"}
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == AUTO_MAP


def test_config_alone_holds_the_code_it_needs(tmp_path):
    build().config.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == {"AutoConfig": AUTO_MAP["AutoConfig"]}
    assert CODE - {"modeling_attention_classifier.py", "queries.py", "checks.py"} <= {
        path.name for path in tmp_path.iterdir()
    }


# In a process of its own


@pytest.mark.slow
def test_import_is_light(tmp_path):
    script = """
        import attnfaith
        heavy = {"torch", "transformers", "datasets", "evaluate", "matplotlib", "numpy", "pandas", "pyarrow"}
        dir(attnfaith)
        print(json.dumps(sorted(heavy & set(sys.modules))))
    """
    assert run_script(sys.executable, script, tmp_path) == []


CHECK = """
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer
    loaded = {}
    for auto in (AutoConfig, AutoModel, AutoModelForSequenceClassification):
        kind = type(auto.from_pretrained("checkpoint"))
        loaded[auto.__name__] = f"{kind.__module__} {kind.__name__}"
    config = AutoConfig.for_model("attention_classifier", hidden_size=8, embedding_size=8)
    loaded["from_config"] = type(AutoModelForSequenceClassification.from_config(config)).__name__
    loaded["tokenizer"] = AutoTokenizer.from_pretrained("checkpoint")("good film")["input_ids"]
    print(json.dumps(loaded))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        "import attnfaith",
        "import attnfaith; from transformers import Trainer, pipeline",
        "import attnfaith; from transformers.modeling_layers import GradientCheckpointingLayer",
        "from transformers import AutoModelForSequenceClassification; import attnfaith",
        "from transformers import Trainer, pipeline; import attnfaith",
        "from attnfaith.models.encoders import ENCODERS",
    ],
)
def test_auto_classes_in_any_order(order, python, tmp_path):
    build().save_pretrained(tmp_path / "checkpoint")
    build_tokenizer(["good film"], preprocessing="whitespace").save_pretrained(tmp_path / "checkpoint")
    place = "attnfaith.models."
    assert python(order + textwrap.dedent(CHECK), tmp_path) == {
        **{auto: place + name.replace(".", " ") for auto, name in AUTO_MAP.items()},
        "from_config": "AttentionClassifierForSequenceClassification",
        "tokenizer": [2, 5, 4, 3],
    }


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False])
def test_another_transformers_works_without_our_models(early, python, tmp_path):
    """Where its tables have other names, importing attnfaith breaks nothing: what does not work is logged, and none of its
    tables has half of an entry.
    """
    keep = """
        import logging
        lines = []
        class Kept(logging.Handler):
            def emit(self, record):
                lines.append(record.getMessage())
        logging.getLogger("attnfaith").addHandler(Kept())
    """
    spoil = {
        True: """
            from transformers.models.auto import modeling_auto
            del modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
        """,
        False: """
            from attnfaith.models import registration
            del registration._fill
        """,
    }
    use = """
        import attnfaith
        from transformers import AutoConfig, AutoModelForSequenceClassification, BertConfig
        from transformers.models.auto import modeling_auto
        assert type(AutoConfig.for_model("bert")) is BertConfig
        small = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=9)
        assert type(AutoModelForSequenceClassification.from_config(small)).__name__ == "BertForSequenceClassification"
        assert "attention_classifier" not in modeling_auto.MODEL_MAPPING_NAMES
        assert "AttentionClassifierConfig" not in modeling_auto.MODEL_MAPPING._reverse_config_mapping
        print(json.dumps(lines))
    """
    script = "".join(map(textwrap.dedent, (keep, spoil[early], use)))
    lines = python(script, tmp_path)
    assert len(lines) == (1 if early else 2), lines
    for line in lines:
        assert line.startswith("attnfaith and this transformers.models.auto.")
        assert line.endswith("load them by attnfaith.AttentionClassifierForSequenceClassification.from_pretrained")


@pytest.mark.slow
@pytest.mark.parametrize("blocked", [("attnfaith",), ("attnfaith", "entmax")], ids="+".join)
def test_remote_code(blocked, python, tmp_path):
    """Where attnfaith is not installed: the same numbers for every encoder, again after saving from the loaded code."""
    expected = {}
    for encoder, query, projection, hierarchy in CELLS:
        name = f"{encoder}-{query}-{hierarchy}"
        model = build(encoder, query, projection, hierarchy=hierarchy)
        for kind, saved in (("classifier", model), ("model", model.model)):
            saved.save_pretrained(tmp_path / "checkpoints" / name / kind)
        inputs = {"input_ids": IDS, "token_type_ids": TYPES if query == "text" else None}
        output = model(**inputs)
        expected[name] = [output.logits.tolist(), output.attention.tolist(), query]
    script = f"""
        import torch
        from pathlib import Path
        from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

        ids, types = torch.tensor({IDS.tolist()}), torch.tensor({TYPES.tolist()})
        outputs = {{}}

        def check(path, name, query):
            inputs = {{"input_ids": ids, "token_type_ids": types if query == "text" else None}}
            config = AutoConfig.from_pretrained(path, trust_remote_code=True)
            assert type(config).__module__.startswith("transformers_modules."), type(config)
            base = AutoModel.from_pretrained(path, trust_remote_code=True)
            model = AutoModelForSequenceClassification.from_pretrained(path, trust_remote_code=True)
            assert type(model).__module__.startswith("transformers_modules."), type(model)
            output = model(**inputs)
            assert torch.equal(base(**inputs).attention, output.attention)
            return base, model, [output.logits.tolist(), output.attention.tolist(), query]

        for folder in sorted(Path("checkpoints").iterdir()):
            query = folder.name.split("-")[1]
            base, model, outputs[folder.name] = check(folder / "classifier", folder.name, query)
            AutoModel.from_pretrained(folder / "model", trust_remote_code=True)
            for kind, saved in (("classifier", model), ("model", base)):
                again = Path("again") / folder.name / kind
                saved.save_pretrained(again)
                assert json.loads((again / "config.json").read_text())["auto_map"] == {AUTO_MAP!r}
                assert {{path.name for path in again.glob("*.py")}} == {CODE!r}
            assert check(Path("again") / folder.name / "classifier", folder.name, query)[2] == outputs[folder.name]
            AutoModel.from_pretrained(Path("again") / folder.name / "model", trust_remote_code=True)
        assert not any(name.partition(".")[0] in {blocked!r} for name in sys.modules)
        print(json.dumps(outputs))
    """
    assert python(script, tmp_path, blocked) == expected


@pytest.mark.slow
def test_remote_code_of_a_classifier_of_transformers(python, tmp_path):
    """The same for classifiers with sparse self-attention, in which only the projection is ours."""
    model = build_sparse()
    model.save_pretrained(tmp_path / "checkpoint")
    assert {path.name for path in (tmp_path / "checkpoint").glob("*.py")} == CODE_OF_SPARSE
    script = f"""
        import torch
        from pathlib import Path
        from transformers import AutoModelForSequenceClassification

        for place in ("checkpoint", "again"):
            model = AutoModelForSequenceClassification.from_pretrained(place, trust_remote_code=True)
            assert type(model).__module__.startswith("transformers_modules."), type(model)
            output = model(torch.tensor({IDS.tolist()}), output_attentions=True)
            model.save_pretrained("again")
        assert {{path.name for path in Path("again").glob("*.py")}} == {CODE_OF_SPARSE!r}
        assert "attnfaith" not in sys.modules
        print(json.dumps([output.logits.tolist(), output.attentions[0].tolist()]))
    """
    expected = model(IDS, output_attentions=True)
    assert python(script, tmp_path, ("attnfaith",)) == [expected.logits.tolist(), expected.attentions[0].tolist()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields", [{"sampler": "budget", "budget": 0.5, "transition": 0.2}, {"sampler": "hardkuma"}], ids=str
)
def test_remote_code_of_a_classifier_of_a_selection(fields, python, tmp_path):
    """The same for classifiers that read a selection; without entmax too, where no budget needs it."""
    model = build_rationale(**fields)
    model.save_pretrained(tmp_path / "checkpoint")
    assert {path.name for path in (tmp_path / "checkpoint").glob("*.py")} == CODE_OF_RATIONALES
    script = f"""
        import torch
        from pathlib import Path
        from transformers import AutoModelForSequenceClassification

        for place in ("checkpoint", "again"):
            model = AutoModelForSequenceClassification.from_pretrained(place, trust_remote_code=True)
            assert type(model).__module__.startswith("transformers_modules."), type(model)
            output = model(torch.tensor({IDS.tolist()}))
            model.save_pretrained("again")
        assert {{path.name for path in Path("again").glob("*.py")}} == {CODE_OF_RATIONALES!r}
        assert "attnfaith" not in sys.modules
        print(json.dumps([output.logits.tolist(), output.selection.tolist(), output.gates.tolist()]))
    """
    expected = model(IDS)
    assert int(expected.gates.sum()) > 0
    given = [expected.logits.tolist(), expected.selection.tolist(), expected.gates.tolist()]
    assert python(script, tmp_path, ("attnfaith", "entmax")) == given


@pytest.mark.slow
@pytest.mark.parametrize("recurrence", ["bahdanau", "luong"])
def test_remote_code_of_a_translator(recurrence, python, tmp_path):
    """The same for models from sequences to sequences, which generate; without entmax too."""
    torch.manual_seed(0)
    config = AttentionSeq2SeqConfig(vocab_size=12, embedding_size=8, hidden_size=8, recurrence=recurrence)
    model = AttentionSeq2SeqForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path / "checkpoint")
    assert {path.name for path in (tmp_path / "checkpoint").glob("*.py")} == CODE_OF_SEQUENCES
    script = f"""
        import torch
        from pathlib import Path
        from transformers import AutoModelForSeq2SeqLM

        ids = torch.tensor({IDS.tolist()})
        for place in ("checkpoint", "again"):
            model = AutoModelForSeq2SeqLM.from_pretrained(place, trust_remote_code=True)
            assert type(model).__module__.startswith("transformers_modules."), type(model)
            output = model(ids, labels=ids, output_attentions=True)
            made = model.generate(ids, max_new_tokens=4, num_beams=2)
            model.save_pretrained("again")
        assert {{path.name for path in Path("again").glob("*.py")}} == {CODE_OF_SEQUENCES!r}
        assert "attnfaith" not in sys.modules
        print(json.dumps([output.logits.tolist(), output.cross_attentions[0].tolist(), made.tolist()]))
    """
    expected = model(IDS, labels=IDS, output_attentions=True)
    made = model.generate(IDS, max_new_tokens=4, num_beams=2)
    given = [expected.logits.tolist(), expected.cross_attentions[0].tolist(), made.tolist()]
    assert python(script, tmp_path, ("attnfaith", "entmax")) == given


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", ["import attnfaith", "from transformers import AutoModelForSequenceClassification; import attnfaith"]
)
def test_a_sparse_classifier_is_loaded_without_a_flag(order, python, tmp_path):
    build_sparse().save_pretrained(tmp_path / "checkpoint")
    script = """
        from transformers import AutoConfig, AutoModelForSequenceClassification
        model = AutoModelForSequenceClassification.from_pretrained("checkpoint")
        kinds = [type(model), type(AutoConfig.for_model("self_attention_classifier")), type(model.model)]
        print(json.dumps([kind.__module__ + " " + kind.__name__ for kind in kinds]))
    """
    place = "attnfaith.models.{}_self_attention_classifier SelfAttentionClassifier{}"
    assert python(order + "\n" + textwrap.dedent(script), tmp_path) == [
        place.format("modeling", "ForSequenceClassification"),
        place.format("configuration", "Config"),
        "transformers.models.bert.modeling_bert BertForSequenceClassification",
    ]


@pytest.mark.slow
def test_sparse_checkpoint_says_that_entmax_is_missing(python, tmp_path):
    build(projection="sparsegen", sparsegen_lambda=0.5).save_pretrained(tmp_path / "checkpoint")
    script = f"""
        import torch
        from transformers import AutoModelForSequenceClassification
        model = AutoModelForSequenceClassification.from_pretrained("checkpoint", trust_remote_code=True)
        try:
            model(torch.tensor({IDS.tolist()}))
        except ImportError as error:
            print(json.dumps(str(error)))
    """
    assert "pip install entmax" in python(script, tmp_path, ("attnfaith", "entmax"))


@pytest.mark.slow
def test_loads_again_here_after_saving_from_remote_code(python, tmp_path):
    """A checkpoint written by its own copied code is an ordinary checkpoint for the package."""
    model = build("transformer")
    model.save_pretrained(tmp_path / "checkpoint")
    script = """
        from transformers import AutoModelForSequenceClassification
        model = AutoModelForSequenceClassification.from_pretrained("checkpoint", trust_remote_code=True)
        model.save_pretrained("again")
        print(json.dumps(type(model).__module__))
    """
    assert python(script, tmp_path, ("attnfaith",)).startswith("transformers_modules.")
    again = AttentionClassifierForSequenceClassification.from_pretrained(tmp_path / "again")
    assert torch.equal(again(IDS).logits, model(IDS).logits)


# Pipelines


@pytest.mark.parametrize(("pair", "hierarchy"), [(False, "none"), (True, "none"), (False, "sentence")])
def test_pipeline(pair, hierarchy, tmp_path, logged):
    from transformers import AutoTokenizer, pipeline

    texts = ["A good film. Bad. What a film.", "bad", "what a film"]
    tokenizer = build_tokenizer(texts, preprocessing="whitespace", pair=pair, hierarchy=hierarchy)
    query = "text" if pair else "learned"
    model = build("bilstm", query, vocab_size=len(tokenizer), num_labels=3, hierarchy=hierarchy)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    classify = pipeline("text-classification", model=str(tmp_path), device="cpu", top_k=None)
    assert type(classify.model) is AttentionClassifierForSequenceClassification
    assert not [record for record in logged if record.levelname == "ERROR"]
    given = [{"text": text, "text_pair": "what film"} for text in texts] if pair else texts
    results = classify(given, batch_size=2)
    assert len(results) == 3
    encode = AutoTokenizer.from_pretrained(tmp_path)
    for text, result in zip(texts, results, strict=True):
        inputs = encode(text, "what film" if pair else None, return_tensors="pt")
        output = model(**inputs)
        assert hierarchy == "none" or output.attention.shape == (1, 3 if text == texts[0] else 1)
        expected = output.logits.softmax(-1)[0]
        assert sum(entry["score"] for entry in result) == pytest.approx(1, abs=1e-5)
        for entry in result:
            assert entry["score"] == pytest.approx(expected[model.config.label2id[entry["label"]]].item(), abs=1e-5)
    assert classify(given[:1])[0][0]["score"] == pytest.approx(results[0][0]["score"], abs=1e-5)


def test_unknown_name_of_the_package():
    with pytest.raises(AttributeError, match="no attribute 'AttentionClassifer'"):
        attnfaith.AttentionClassifer  # noqa: B018
    assert set(attnfaith.__all__) <= set(dir(attnfaith))
    assert attnfaith.AttentionClassifierModel is AttentionClassifierModel
