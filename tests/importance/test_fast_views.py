"""What is linear in states: scores and class values that are those of the alignment and the decoder themselves."""

import pytest
import torch

from attnfaith.importance._fast.views import KEYS, Reading
from attnfaith.models.alignments import ALIGNMENTS, Additive
from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from tests.small_encoders import close


class Doubling(Additive):
    """Another alignment than the one that it inherits its weights from."""

    def forward(self, hidden, query=None):
        return super().forward(2 * hidden, query)


def build(alignment, query):
    torch.manual_seed(0)
    config = AttentionClassifierConfig(
        vocab_size=9, embedding_size=4, hidden_size=6, alignment=alignment, query=query, num_labels=3
    )
    return AttentionClassifierForSequenceClassification(config).double().eval()


@torch.no_grad()
def check(model, given):
    """Readings of 5 changes of 2 texts, 4 states each, beside the alignment and the weights of the decoder."""
    states = torch.randn(5, 2, 4, 6, dtype=torch.float64)
    reading = Reading(model, given)
    scores, values = reading.of(states if reading.view is None else reading.view.of(states))
    weight, bias = model.decoder_weights(given)
    for change in range(5):
        close(scores[change], model.model.scores(states[change], given))
    close(values, states @ weight.t())
    close(reading.bias, bias)
    return reading


@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_readings_are_those_of_the_stages(alignment, query):
    given = torch.randn(2, 6, dtype=torch.float64) if query == "text" else None
    reading = check(build(alignment, query), given)
    assert (reading.view is None) == (alignment == "dot" and query == "text")  # asked by a vector of each text's own


def test_an_alignment_of_another_type_is_asked_itself():
    model = build("additive", "learned")
    model.model.alignment.__class__ = Doubling
    assert Doubling not in KEYS
    assert check(model, None).view is None
