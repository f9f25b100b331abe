"""Classifiers with weights in 16 bits: what is measured is near what the same weights give in float32."""

import copy

import numpy as np
import pytest
import torch

import attnfaith
from attnfaith.subjects import SelfAttention, sequence_subject
from tests.golden import subjects
from tests.small_classifiers import classifier
from tests.small_translators import translator


MEASURES = "leave_one_out gradient gradient_x_input attn_lrp attention_norm globenc value_zeroing rollout".split()
INTERVENTIONS = ["map_uniform", "map_erasure"]


def measured(model, name):
    how = {"tokenizer": subjects.tokenizer(name), "progress": False}
    return attnfaith.measure(
        model, subjects.PLAN["texts"], subjects.PLAN["labels"], [*MEASURES, *INTERVENTIONS], **how
    ).table


def numbers(values) -> np.ndarray:
    return np.concatenate([np.ravel(row).astype(float) for row in values.to_pylist()])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_numbers_are_near_those_of_float32(name, dtype):
    """A number passes some tens of roundings of half a unit each; weights of half the size make none of them larger."""
    coarse = copy.deepcopy(subjects.model(name)).to(dtype)
    for weights in coarse.parameters():
        weights.data *= 0.5 if weights.dim() > 1 else 1
    rough, fine = measured(coarse, name), measured(copy.deepcopy(coarse).float(), name)
    assert rough.column_names == fine.column_names
    columns = [name for name in fine.column_names if name.startswith("importance_") or name in ("probs", "attention")]
    assert len(columns) > len(MEASURES)
    for column in columns:
        expected, off = numbers(fine[column]), numbers(rough[column]) - numbers(fine[column])
        assert np.abs(off).max() <= 16 * torch.finfo(dtype).eps * np.abs(expected).max(), column
    assert next(coarse.parameters()).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_subject_gives_float32(dtype):
    subject = SelfAttention(copy.deepcopy(subjects.model("bert")).to(dtype), subjects.tokenizer("bert"))
    batch = subject.encode(["the film was good", "never"])
    assert subject.predict(batch).dtype == subject.embed(batch).dtype == torch.float32
    assert subject.attention(batch).sum(1).sub(1).abs().max() < 1e-6
    assert "layer parts" in subject.capabilities


@pytest.mark.parametrize("kind", ["gpt2", "convbert", "xlnet", "mbart", "nystromformer"])
def test_what_is_learned_of_a_model_is_the_same(kind):
    fine, *rough = (SelfAttention(classifier(kind).to(dtype)) for dtype in (torch.float32, torch.bfloat16, torch.float16))
    for coarse in rough:
        assert coarse.sites.together == fine.sites.together and coarse.lacks == fine.lacks
        assert coarse.sites.blocks == fine.sites.blocks


def test_a_translator_in_16_bits_has_float32_log_probs():
    subject = sequence_subject(translator("marian").to(torch.bfloat16))
    assert set(subject.lacks) == set(sequence_subject(translator("marian")).lacks)
    words = {"input_ids": [7, 8, 9], "source_words": [0, 1, 2], "labels": [6, 5], "target_words": [0, 1]}
    pair = subject.collate([{"instance_id": "0", **words}])
    assert subject.vectors(pair)[0][1].dtype == torch.float32
