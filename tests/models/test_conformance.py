"""transformers' own common model and configuration tests, over every encoder, flat and hierarchical, over a pair model,
over classifiers of transformers with sparse self-attention, over classifiers of a selection, and over translators.

They are not in its wheel: `python tests/models/fetch_conformance.py` fetches them into .conformance/, which is ignored.
"""

import sys
import unittest
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
from hf_tests.test_training_mixin import TrainingTesterMixin  # noqa: E402


# The suite looks classes up by name in transformers' own tables, in which no registered class is
NAMES = {
    "AutoModel": modeling_auto.MODEL_MAPPING_NAMES,
    "AutoModelForSequenceClassification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "AutoModelForSeq2SeqLM": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}
for _auto, _model in REGISTERED:
    NAMES[_auto.__name__][_model.config_class.model_type] = _model.__name__

# The suite is not written for warnings as errors
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class TinyModel:
    """Tiny configurations and inputs, as the suite asks for them."""

    batch_size, seq_length, vocab_size, hidden_size = 5, 7, 99, 32
    num_hidden_layers = num_attention_heads = 2
    is_training = True
    pad_token_id = 0
    sequence_classification_class = AttentionClassifierForSequenceClassification

    def __init__(self, encoder, query, projection, hierarchy):
        self.encoder, self.query, self.projection, self.hierarchy = encoder, query, projection, hierarchy
        self.encoder_seq_length = self.seq_length if hierarchy == "none" else 2
        # what enters, the inner layers, what comes out
        self.expected_num_hidden_layers = 2 + (self.num_hidden_layers if encoder == "transformer" else 0)

    def get_config(self):
        return AttentionClassifierConfig(
            vocab_size=self.vocab_size,
            embedding_size=self.hidden_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            intermediate_size=37,
            pad_token_id=self.pad_token_id,
            encoder=self.encoder,
            query=self.query,
            projection=self.projection,
            hierarchy=self.hierarchy,
        )

    def prepare_config_and_inputs_for_common(self):
        input_ids = ids_tensor([self.batch_size, self.seq_length], self.vocab_size).clamp(min=1)
        attention_mask = torch.ones_like(input_ids)
        attention_mask[:, -1] = 0
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self.query == "text":
            inputs["token_type_ids"] = (torch.arange(self.seq_length) >= 4).long().expand_as(input_ids)
        if self.hierarchy == "sentence":  # its embeddings do not tell where sentences end
            inputs["items"] = torch.tensor([-1, 0, 0, 1, 1, -1, -1]).expand_as(input_ids)
        return self.get_config(), inputs


class Conformance(ModelTesterMixin, TrainingTesterMixin):
    all_model_classes = (AttentionClassifierModel, AttentionClassifierForSequenceClassification)
    test_resize_embeddings = True
    # to fall as far as the suite asks; at its own rate, 1e-3, its 300 steps of 64 tokens end before gradients are small
    training_overfit_seq_length = 32
    encoder, query, projection, hierarchy = "bilstm", "learned", "softmax", "none"

    def setUp(self):
        self.model_tester = TinyModel(self.encoder, self.query, self.projection, self.hierarchy)
        self.config_tester = ConfigTester(self, config_class=AttentionClassifierConfig, hidden_size=32)

    @property
    def training_overfit_steps(self):
        return 100 if (self.encoder, self.hierarchy) == ("transformer", "sentence") else 60

    @property
    def training_overfit_learning_rate(self):
        return 5e-3 if (self.encoder, self.hierarchy) == ("transformer", "sentence") else 2e-2

    @property
    def has_attentions(self):
        return self.encoder == "transformer"  # the pooling attention is another thing than `attentions`

    def _create_text_training_batch(self, batch_size, seq_length, vocab_size):
        batch = super()._create_text_training_batch(batch_size, seq_length, vocab_size)
        batch["input_ids"][0, 5:30] += 25  # two texts and one label each, in place of a label for each token
        batch["labels"] = torch.arange(batch_size)
        if self.query == "text":
            batch["token_type_ids"] = (torch.arange(seq_length) >= seq_length // 2).long().expand_as(batch["input_ids"])
        return batch

    def test_load_with_mismatched_shapes(self):
        if self.query == "text":
            self.skipTest("it calls the model without token_type_ids, which a pair model needs")
        self.model_tester.pad_token_id = None  # it calls the model with random ids and no mask
        super().test_load_with_mismatched_shapes()

    def test_bc_torch_dtype(self):
        # it words its message before each comparison: of values it would take as long as all the rest
        with mock.patch.object(torch.nn.Parameter, "__repr__", object.__repr__):
            super().test_bc_torch_dtype()

    def test_config(self):
        self.config_tester.run_common_tests()


CELLS = [(encoder, "learned", "softmax", hierarchy) for encoder in ENCODERS for hierarchy in HIERARCHIES]
CELLS += [(encoder, "text", "softmax", "none") for encoder in ("bilstm", "transformer")]
CELLS += [("transformer", "learned", "sparsemax", "none")]
for _cell in CELLS:
    _name = "_".join(("Test", *_cell))
    _factors = dict(zip(("encoder", "query", "projection", "hierarchy"), _cell, strict=True), __module__=__name__)
    globals()[_name] = type(_name, (Conformance, unittest.TestCase), _factors)


class TinyClassifier(TinyModel):
    """The same of a classifier of transformers: a BERT."""

    sequence_classification_class = SelfAttentionClassifierForSequenceClassification

    def __init__(self, projection):
        self.projection, self.encoder_seq_length, self.expected_num_hidden_layers = projection, self.seq_length, 3

    def get_config(self):
        sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "pad_token_id")
        inner = AutoConfig.for_model(
            "bert",
            **{name: getattr(self, name) for name in sizes},
            intermediate_size=37,
            max_position_embeddings=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        # the suite asks for vocab_size here, which is the inner configuration's
        return SelfAttentionClassifierConfig(text_config=inner, projection=self.projection, vocab_size=self.vocab_size)

    def prepare_config_and_inputs_for_common(self):
        input_ids = ids_tensor([self.batch_size, self.seq_length], self.vocab_size).clamp(min=1)
        attention_mask = torch.ones_like(input_ids)
        attention_mask[:, -1] = 0
        return self.get_config(), {"input_ids": input_ids, "attention_mask": attention_mask}


class SelfAttentionConformance(ModelTesterMixin, TrainingTesterMixin):
    all_model_classes = (SelfAttentionClassifierForSequenceClassification,)
    test_resize_embeddings = True
    training_overfit_seq_length, training_overfit_steps, training_overfit_learning_rate = 32, 120, 1e-2
    projection = "softmax"

    def test_load_with_mismatched_shapes(self):
        self.skipTest("it loads by AutoModel, and there is no such model without its head")

    def setUp(self):
        self.model_tester = TinyClassifier(self.projection)
        self.config_tester = ConfigTester(self, config_class=SelfAttentionClassifierConfig, has_text_modality=False)

    def _create_text_training_batch(self, batch_size, seq_length, vocab_size):
        batch = super()._create_text_training_batch(batch_size, seq_length, vocab_size)
        batch["input_ids"][0, 5:30] += 25  # two texts and one label each, in place of a label for each token
        batch["labels"] = torch.arange(batch_size)
        return batch

    def test_config(self):
        self.config_tester.run_common_tests()


for _projection in ("softmax", "sparsemax"):
    _name = f"Test_self_attention_{_projection}"
    _factors = {"projection": _projection, "__module__": __name__}
    globals()[_name] = type(_name, (SelfAttentionConformance, unittest.TestCase), _factors)


class TinyRationale(TinyModel):
    """The same of a classifier that reads a selection."""

    sequence_classification_class = RationaleClassifierForSequenceClassification

    def __init__(self, sampler):
        self.sampler, self.encoder_seq_length = sampler, self.seq_length

    def get_config(self):
        return RationaleClassifierConfig(
            vocab_size=self.vocab_size,
            embedding_size=self.hidden_size,
            hidden_size=self.hidden_size,
            pad_token_id=self.pad_token_id,
            sampler=self.sampler,
            budget=0.8,
        )

    def prepare_config_and_inputs_for_common(self):
        input_ids = ids_tensor([self.batch_size, self.seq_length], self.vocab_size).clamp(min=1)
        attention_mask = torch.ones_like(input_ids)
        attention_mask[:, -1] = 0
        return self.get_config(), {"input_ids": input_ids, "attention_mask": attention_mask}


class RationaleConformance(Conformance):
    all_model_classes = (RationaleClassifierForSequenceClassification,)
    has_attentions = False
    sampler = "budget"
    training_overfit_steps, training_overfit_learning_rate = 60, 2e-2

    def setUp(self):
        self.model_tester = TinyRationale(self.sampler)
        self.config_tester = ConfigTester(self, config_class=RationaleClassifierConfig, hidden_size=32)

    def test_load_with_mismatched_shapes(self):
        self.skipTest("it loads by AutoModel, and there is no such model without its head")

    def test_hidden_states_output(self):
        self.skipTest("a selector and a classifier have states each: none are given")

    def test_retain_grad_hidden_states_attentions(self):
        self.skipTest("a selector and a classifier have states each: none are given")

    def check_training_gradient_checkpointing(self, *args, **kwargs):
        if self.sampler == "bernoulli":
            self.skipTest("it wants two layers run again, and no gradient of this loss reaches the selector's")
        super().check_training_gradient_checkpointing(*args, **kwargs)


for _sampler in ("bernoulli", "hardkuma", "budget"):
    _name = f"Test_rationale_{_sampler}"
    globals()[_name] = type(_name, (RationaleConformance, unittest.TestCase), {"sampler": _sampler, "__module__": __name__})


class TinyTranslator(TinyModel):
    """The same of a model from sequences to sequences."""

    def __init__(self, recurrence):
        self.recurrence = recurrence
        self.encoder_seq_length = self.decoder_seq_length = self.seq_length
        self.expected_num_hidden_layers = 2  # what enters, and the states

    def get_config(self):
        return AttentionSeq2SeqConfig(
            vocab_size=self.vocab_size,
            embedding_size=self.hidden_size,
            hidden_size=self.hidden_size,
            pad_token_id=self.pad_token_id,
            recurrence=self.recurrence,
        )

    def prepare_config_and_inputs_for_common(self):
        input_ids, decoder_ids = (ids_tensor([self.batch_size, self.seq_length], self.vocab_size).clamp(min=1) for _ in "12")
        attention_mask = torch.ones_like(input_ids)
        attention_mask[:, -1] = 0
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "decoder_input_ids": decoder_ids}
        return self.get_config(), given


class TranslatorConformance(GenerationTesterMixin, ModelTesterMixin):
    all_model_classes = (AttentionSeq2SeqForConditionalGeneration,)
    test_resize_embeddings = True
    has_attentions = False  # of a token to those of its own text; cross-attention has tests of its own
    recurrence = "bahdanau"

    def setUp(self):
        self.model_tester = TinyTranslator(self.recurrence)
        shared = ["hidden_size", "vocab_size"]
        self.config_tester = ConfigTester(self, config_class=AttentionSeq2SeqConfig, common_properties=shared)

    def test_model_base_model_prefix(self):
        self.skipTest("there is no such model without its head")

    def test_load_with_mismatched_shapes(self):
        self.skipTest("it loads by AutoModel, and there is no such model without its head")

    def test_config(self):
        self.config_tester.run_common_tests()


for _recurrence in ("bahdanau", "luong"):
    _name = f"Test_translator_{_recurrence}"
    _factors = {"recurrence": _recurrence, "__module__": __name__}
    globals()[_name] = type(_name, (TranslatorConformance, unittest.TestCase), _factors)
