"""Signs of first tokens against what taking them away does, by a plain loop."""

import numpy as np
import pytest
import torch

from attnfaith import record
from attnfaith.subjects import SelfAttention
from attnfaith.subjects.removal import read_parts
from tests.measuring import run
from tests.small_classifiers import classifier, tokenizer


TEXTS = ["the old ships sailed slowly !", "a new ship sank", "", "good"]


@torch.no_grad()
def test_by_a_plain_loop():
    subject = SelfAttention(classifier("bert"), tokenizer())
    batch = subject.encode(TEXTS)
    counts = subject.attendable(batch).sum(1).tolist()
    random = np.random.default_rng(0)
    signed = [random.normal(size=count) for count in counts]
    broken = [np.full(count, np.nan) if row == 1 else np.ones(count) for row, count in enumerate(counts)]
    batch["scores"] = {
        "attention": [random.random(count) for count in counts],
        "signed": signed,
        record.ABSOLUTE + "signed": [np.abs(values) for values in signed],
        "nothing": [np.zeros(count) for count in counts],
        "broken": broken,
    }
    whole = subject.predict(batch).double().softmax(-1).numpy()
    for absent in ("deleted", "mask_token"):
        made = run("sign_violations", subject, batch, absent=absent)
        assert made["sign_violations_measures"] == [list(batch["scores"])] * 4
        for row, count in enumerate(counts):
            signs, effects = made["sign_violations_signs"][row], made["sign_violations_effects"][row]
            for place, values in enumerate(batch["scores"].values()):
                if not count or np.isnan(values[row]).any():
                    assert np.isnan(signs[place]) and np.isnan(effects[place])
                    continue
                if place == 3:
                    assert signs[place] == 0
                    continue
                if place == 4:
                    assert signs[place] == 1
                    continue
                first = int(np.abs(values[row]).argmax())
                assert signs[place] == np.sign(values[row][first])
                parts = [np.ones((0, other), bool) for other in counts]
                parts[row] = (np.arange(count) != first)[None]
                said = read_parts(subject, batch, parts, absent)[row][0]
                own = whole[row].argmax()
                assert effects[place] == pytest.approx(whole[row, own] - np.exp(said[own]) / np.exp(said).sum(), abs=1e-6)
