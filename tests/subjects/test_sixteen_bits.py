"""Models with weights in 16 bits: what is measured is near what the same weights give in float32."""

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
MEASURES += ["map_uniform", "map_erasure"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), [("bert", torch.bfloat16), ("gpt2", torch.float16)])
def test_numbers_are_near_those_of_float32(name, dtype):
    """A number passes some tens of roundings of half a unit each; weights of half the size make none of them larger."""
    coarse = copy.deepcopy(subjects.model(name)).to(dtype)
    for weights in coarse.parameters():
        weights.data *= 0.5 if weights.dim() > 1 else 1
    texts, labels = subjects.PLAN["texts"], subjects.PLAN["labels"]
    rough, fine = (
        attnfaith.measure(model, texts, labels, MEASURES, tokenizer=subjects.tokenizer(name), progress=False).table
        for model in (coarse, copy.deepcopy(coarse).float())
    )
    assert rough.column_names == fine.column_names and next(coarse.parameters()).dtype == dtype
    columns = [name for name in fine.column_names if name.startswith("importance_") or name in ("probs", "attention")]
    assert len(columns) > 8
    for column in columns:
        numbers = [np.concatenate([np.ravel(row).astype(float) for row in t[column].to_pylist()]) for t in (rough, fine)]
        assert np.abs(numbers[0] - numbers[1]).max() <= 16 * torch.finfo(dtype).eps * np.abs(numbers[1]).max(), column


def test_subjects_give_float32():
    subject = SelfAttention(copy.deepcopy(subjects.model("bert")).to(torch.bfloat16), subjects.tokenizer("bert"))
    batch = subject.encode(["the film was good", "never"])
    assert subject.predict(batch).dtype == subject.embed(batch).dtype == torch.float32
    assert subject.attention(batch).sum(1).sub(1).abs().max() < 1e-6
    subject = sequence_subject(translator("marian").to(torch.bfloat16))
    words = {"input_ids": [7, 8, 9], "source_words": [0, 1, 2], "labels": [6, 5], "target_words": [0, 1]}
    assert subject.vectors(subject.collate([{"instance_id": "0", **words}]))[0][1].dtype == torch.float32
    assert set(subject.lacks) == set(sequence_subject(translator("marian")).lacks)


@pytest.mark.parametrize("kind", ["gpt2", "convbert", "xlnet", "mbart", "nystromformer"])
def test_the_checks_of_a_model_have_the_same_results(kind):
    fine, *rough = (SelfAttention(classifier(kind).to(dtype)) for dtype in (torch.float32, torch.bfloat16, torch.float16))
    for coarse in rough:
        assert coarse.sites.together == fine.sites.together and coarse.lacks == fine.lacks
        assert coarse.sites.blocks == fine.sites.blocks
