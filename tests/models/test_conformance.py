"""transformers' own common model and configuration tests, over every encoder, flat and hierarchical, over a pair model,
over classifiers of transformers with sparse self-attention, over classifiers of a selection, and over translators.

They are not in its wheel: `python tests/models/fetch_conformance.py` fetches them into .conformance/, which is ignored.
"""

import sys
import unittest
from functools import partial
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import pytest
import torch
from transformers import AutoConfig
from transformers.models.auto import modeling_auto

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
from attnfaith.models import REGISTERED
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.hierarchy import HIERARCHIES


FETCHED = Path(__file__).parents[2] / ".conformance" / f"transformers-{version('transformers')}"
if not FETCHED.is_dir():
    pytest.skip(
        f"transformers' own tests are not at {FETCHED.parent.name}/{FETCHED.name}: "
        "run python tests/models/fetch_conformance.py",
        allow_module_level=True,
    )

sys.path.insert(0, str(FETCHED))
from hf_tests.generation.test_utils import GenerationTesterMixin  # noqa: E402
from hf_tests.test_configuration_common import ConfigTester  # noqa: E402
from hf_tests.test_modeling_common import ModelTesterMixin, ids_tensor  # noqa: E402


# The suite looks classes up by name in transformers' own tables, in which no registered class is
NAMES = {
    "AutoModel": modeling_auto.MODEL_MAPPING_NAMES,
    "AutoModelForSequenceClassification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "AutoModelForSeq2SeqLM": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}
for _model in REGISTERED:
    NAMES[_model._auto_class][_model.config_class.model_type] = _model.__name__

# The suite is not written for warnings as errors
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
WORDS = {"vocab_size": 99, "embedding_size": 32, "hidden_size": 32, "pad_token_id": 0}
LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 37}


class Tiny:
    """A tiny configuration and its inputs, as the suite asks for them; facts: what else it asks."""

    batch_size, seq_length, vocab_size, hidden_size = 5, 7, 99, 32
    num_hidden_layers = num_attention_heads = 2
    encoder_seq_length = decoder_seq_length = seq_length
    is_training, pad_token_id = True, 0

    def __init__(self, get_config, inputs=lambda ids: {}, **facts):
        self.get_config, self.inputs = get_config, inputs
        vars(self).update(facts)

    def prepare_config_and_inputs_for_common(self):
        ids = ids_tensor([self.batch_size, self.seq_length], self.vocab_size).clamp(min=1)
        mask = torch.ones_like(ids)
        mask[:, -1] = 0
        return self.get_config(), {"input_ids": ids, "attention_mask": mask, **self.inputs(ids)}


class Conformance(ModelTesterMixin):
    test_resize_embeddings = True
    has_base = False

    def test_load_with_mismatched_shapes(self):
        if not self.has_base:
            self.skipTest("it loads by AutoModel, and there is no such model without its head")
        super().test_load_with_mismatched_shapes()

    def test_config(self):
        self.config_tester.run_common_tests()


class Attention(Conformance):
    all_model_classes = (AttentionClassifierModel, AttentionClassifierForSequenceClassification)
    encoder, query, projection, hierarchy = "bilstm", "learned", "softmax", "none"

    def setUp(self):
        names = ("encoder", "query", "projection", "hierarchy")
        fields = {**WORDS, **LAYERS, **{name: getattr(self, name) for name in names}}
        self.model_tester = Tiny(
            partial(AttentionClassifierConfig, **fields),
            self.inputs,
            encoder_seq_length=Tiny.seq_length if self.hierarchy == "none" else 2,
            # what enters, the inner layers, what comes out
            expected_num_hidden_layers=2 + (2 if self.encoder == "transformer" else 0),
            sequence_classification_class=AttentionClassifierForSequenceClassification,
        )
        self.config_tester = ConfigTester(self, config_class=AttentionClassifierConfig, hidden_size=32)
        self.has_attentions = self.encoder == "transformer"  # the pooling attention is another thing than `attentions`
        self.has_base = self.query != "text"  # the suite calls it without token_type_ids, which a pair model needs

    def inputs(self, ids):
        if self.query == "text":
            return {"token_type_ids": (torch.arange(ids.shape[1]) >= 4).long().expand_as(ids)}
        if self.hierarchy == "sentence":  # its embeddings do not tell where sentences end
            return {"items": torch.tensor([-1, 0, 0, 1, 1, -1, -1]).expand_as(ids)}
        return {}

    def test_load_with_mismatched_shapes(self):
        # it calls the model with random ids and no mask
        self.model_tester.get_config = partial(self.model_tester.get_config, pad_token_id=None)
        super().test_load_with_mismatched_shapes()

    def test_bc_torch_dtype(self):
        # it words its message before each comparison: of values it would take as long as all the rest
        with mock.patch.object(torch.nn.Parameter, "__repr__", object.__repr__):
            super().test_bc_torch_dtype()


class OfTransformers(Conformance):
    all_model_classes = (SelfAttentionClassifierForSequenceClassification,)
    projection = "softmax"

    def setUp(self):
        sizes = {name: getattr(Tiny, name) for name in ("vocab_size", "hidden_size", "pad_token_id")} | LAYERS
        dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 64}

        def config():  # the suite asks for vocab_size, which is the inner configuration's
            inner = AutoConfig.for_model("bert", **sizes, **dropout)
            return SelfAttentionClassifierConfig(text_config=inner, projection=self.projection, vocab_size=99)

        model = SelfAttentionClassifierForSequenceClassification
        self.model_tester = Tiny(config, expected_num_hidden_layers=3, sequence_classification_class=model)
        self.config_tester = ConfigTester(self, config_class=SelfAttentionClassifierConfig, has_text_modality=False)


class Rationale(Conformance):
    all_model_classes = (RationaleClassifierForSequenceClassification,)
    has_attentions = False
    sampler = "budget"

    def setUp(self):
        config = partial(RationaleClassifierConfig, **WORDS, sampler=self.sampler, budget=0.8)
        self.model_tester = Tiny(config, sequence_classification_class=RationaleClassifierForSequenceClassification)
        self.config_tester = ConfigTester(self, config_class=RationaleClassifierConfig, hidden_size=32)

    def test_hidden_states_output(self):
        self.skipTest("a selector and a classifier have states each: none are given")

    test_retain_grad_hidden_states_attentions = test_hidden_states_output

    def check_training_gradient_checkpointing(self, *args, **kwargs):
        if self.sampler == "bernoulli":
            self.skipTest("it wants two layers run again, and no gradient of this loss reaches the selector's")
        super().check_training_gradient_checkpointing(*args, **kwargs)


class Translator(GenerationTesterMixin, Conformance):
    all_model_classes = (AttentionSeq2SeqForConditionalGeneration,)
    has_attentions = False  # of a token to those of its own text; cross-attention has tests of its own
    recurrence = "bahdanau"

    def setUp(self):
        config = partial(AttentionSeq2SeqConfig, **WORDS, recurrence=self.recurrence)
        self.model_tester = Tiny(config, lambda ids: {"decoder_input_ids": ids.flip(1)}, expected_num_hidden_layers=2)
        shared = ["hidden_size", "vocab_size"]
        self.config_tester = ConfigTester(self, config_class=AttentionSeq2SeqConfig, common_properties=shared)

    def test_model_base_model_prefix(self):
        self.skipTest("there is no such model without its head")


CELLS = [(encoder, "learned", "softmax", hierarchy) for encoder in ENCODERS for hierarchy in HIERARCHIES]
CELLS += [(encoder, "text", "softmax", "none") for encoder in ("bilstm", "transformer")]
CELLS += [("transformer", "learned", "sparsemax", "none")]
FAMILIES = [(Attention, ("encoder", "query", "projection", "hierarchy"), cell) for cell in CELLS]
FAMILIES += [(OfTransformers, ("projection",), (name,)) for name in ("softmax", "sparsemax")]
FAMILIES += [(Rationale, ("sampler",), (name,)) for name in ("bernoulli", "hardkuma", "budget")]
FAMILIES += [(Translator, ("recurrence",), (name,)) for name in ("bahdanau", "luong")]
for _family, _names, _values in FAMILIES:
    _fields = dict(zip(_names, _values, strict=True), __module__=__name__)
    _name = "_".join(("Test", _family.__name__, *_values))
    globals()[_name] = type(_name, (_family, unittest.TestCase), _fields)
