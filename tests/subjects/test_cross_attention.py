"""Models from sequences to sequences as subjects: what is read is what the model computes with, however pairs are read."""

import functools

import pytest
import torch
from transformers import AutoModelForSequenceClassification, GPT2Config, GPT2LMHeadModel, T5Config
from transformers.models.marian import modeling_marian

from attnfaith.alignment.perturbation import Occlusion
from attnfaith.importance.gradients import Gradient
from attnfaith.subjects import CrossAttention, Edit, SelfAttention, SubjectError, subject_of
from attnfaith.subjects.translator import by_words, word_sums
from tests import tolerances
from tests.measuring import run
from tests.small_translators import KINDS, PAIRS, STACKED, batch, tokenizer, translator
from tests.small_translators import subject as open_subject


close = functools.partial(tolerances.close, dtype=torch.float32, depth=8)  # an encoder and a decoder of two layers


class Replaced(Edit):
    """Weights (n,L,A,N,S) in place of the model's own."""

    per_copy = {"replacement": "LANS"}

    def __init__(self, replacement):
        self.replacement = replacement

    def weights(self, layer, weights, rows):
        return self.replacement[:, layer, :, rows]


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_attention_is_what_the_model_returns_and_log_probs_are_its_loss(kind):
    """In a batch; and each pair is the same alone, and in another order."""
    subject, some = open_subject(kind), batch(kind)
    inputs = {name: some[name] for name in ("input_ids", "attention_mask", "labels")}
    with subject.evaluating():
        output = subject.model(**inputs, output_attentions=True)
    weights, log_probs = subject.attention(some), subject.log_probs(some)
    close(weights, torch.stack(output.cross_attentions, 1))
    close(log_probs[some["labels"] != -100].mean(), -output.loss.double())
    close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    hidden = some["attention_mask"] == 0
    assert hidden.any() and float((weights * hidden[:, None, None, None]).abs().max()) <= 1e-6
    for row, pair in enumerate(PAIRS):
        alone = batch(kind, [pair])
        sources, targets = (int(length[0]) for length in alone.lengths)
        close(weights[row][..., :targets, :sources], subject.attention(alone)[0])
        close(log_probs[row, :targets], subject.log_probs(alone)[0])
    close(subject.log_probs(batch(kind, PAIRS[::-1])).flip(0), log_probs)


def test_words_are_sums_over_the_source_and_means_over_the_target_in_both_rows():
    some = batch("marian", PAIRS[:1])
    assert some["source_words"][0].tolist() == [0, 1, 2, 3, 4, 5, 5, 6, -1]
    assert some["target_words"][0].tolist() == [0, 1, 1, 2, 3, 4, 5, 6, -1]
    values = torch.arange(81.0).reshape(1, 9, 9)
    (words,) = by_words(some, values)
    own = values[0].numpy()
    assert words.shape == (2, 7, 7) and words[0, 0, 0] == own[0, 0] and words[1, 0, 0] == own[1, 0]
    assert words[0, 1, 5] == own[1:3, 5:7].sum(1).mean() and words[1, 1, 5] == own[2:4, 5:7].sum(1).mean()
    assert words[0, 6, 6] == own[7, 7] and words[1, 6, 6] == own[8, 7]
    assert word_sums(some, torch.arange(9.0).unsqueeze(0)).tolist() == [[0, 3, 3, 4, 5, 6, 7]]


@pytest.mark.parametrize(("recurrence", "projection"), [("bahdanau", "softmax"), ("luong", "sparsemax")])
@torch.no_grad()
def test_recurrent_translators_read_edited_weights(recurrence, projection):
    """Step by step, by the model's modules."""
    subject = subject_of(translator(recurrence, projection=projection), tokenizer())
    some, model = subject.encode(PAIRS), subject.model
    weights = subject.attention(some).flip(-2) * (some["attention_mask"][:, None, None, None] == 1)
    weights = weights / weights.sum(-1, keepdim=True)
    ((_, logits),) = subject.edited(some, torch.arange(3), Replaced(weights))
    encoded = model.get_encoder()(some["input_ids"], some["attention_mask"])
    embedded = model.get_input_embeddings()(some["decoder_input_ids"])
    state, states = model.decoder.start(encoded.pooler_output), []
    for step, word in enumerate(embedded.unbind(1)):
        context = torch.einsum("bs,bsh->bh", weights[:, 0, 0, step], encoded.last_hidden_state)
        if recurrence == "luong":
            state = model.decoder.layer(embedded, model.decoder.start(encoded.pooler_output).unsqueeze(0))[0][:, step]
        else:
            state = model.decoder.cell(torch.cat([word, context], 1), state)
        layer = model.read_out
        states.append((layer.state(state) + layer.word(word) + layer.context(context)).tanh())
    close(logits, model.output(torch.stack(states, 1)))
    assert "attend" not in vars(model.decoder)


@pytest.mark.parametrize("kind", STACKED)
def test_the_head_at_some_places_gives_what_it_gives_at_all(kind):
    """Of words of one token and of two, and of each pair of a batch whatever its length."""
    own = open_subject(kind)
    with own.evaluating():
        batch = own.encode(PAIRS)
        words, embedded = torch.tensor([4, 1, 2]), own.embed(batch).detach()
        some, own.head = own.log_probs_of(batch, words, embedded), None
        torch.testing.assert_close(some, own.log_probs_of(batch, words, embedded))


def test_capabilities_and_identity():
    assert all(open_subject(kind).capabilities == open_subject(kind).can for kind in STACKED)
    assert open_subject("luong").can - open_subject("luong").capabilities == {"stacked parts"}
    assert open_subject("luong").identity() | {"tokenizer_digest": ""} == {
        **{"model": "sequence_to_sequence", "tokenizer_digest": "", "encoder": "bigru", "alignment": "dot"},
        **{"projection": "softmax", "projection_parameter": None, "readout": "luong"},
    }
    assert open_subject("marian").identity()["encoder"] == "marian"
    assert open_subject("marian").digest() != CrossAttention(translator("marian", init_std=0.3)).digest()


def broken():
    model = translator("marian")
    model.lm_head.weight.data[0, 0] = torch.nan
    return model


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: subject_of(GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2))),
            "GPT2LMHeadModel .* has no cross-attention",
        ),
        (
            lambda: run(Occlusion, subject_of(translator("luong", projection="none")), {}),
            "'occlusion' needs .*projection='none' has no attention",
        ),
        (lambda: subject_of(broken()), "holds NaN"),
        (lambda: CrossAttention(translator("marian", vocab_size=12), tokenizer()).encode(PAIRS), "the model knows 12"),
        (lambda: CrossAttention(translator("marian")).encode(PAIRS), "texts need the model's tokenizer"),
        (
            lambda: run(Gradient, open_subject("marian"), {"input_ids": torch.ones(1, 2, dtype=torch.long)}),
            "'gradient' needs .*lacks",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(SubjectError, match=message):
        call()


def test_a_classifier_with_an_encoder_and_a_decoder_is_no_translator():
    fields = {"vocab_size": 20, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    config = T5Config(**fields, decoder_start_token_id=0)
    assert isinstance(subject_of(AutoModelForSequenceClassification.from_config(config)), SelfAttention)


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("rows", lambda weights, value: 2 * weights @ value),
        ("layers", lambda weights, value: torch.nn.functional.scaled_dot_product_attention(value[:, :, :1], value, value)),
        ("use", lambda weights, value: 0 * (weights @ value) + value.mean(2, keepdim=True)),
    ],
)
def test_attention_that_cannot_be_trusted_is_refused(check, change, monkeypatch):
    """A model whose cross-attention is not a softmax that weighs values, in each way that there is."""
    eager = modeling_marian.eager_attention_forward

    def wrong(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
        if not module.is_decoder or key.shape[2] == query.shape[2]:
            return eager(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)
        scores = query @ key.transpose(2, 3) * module.scaling
        weights = torch.softmax(scores if attention_mask is None else scores + attention_mask, -1)
        return change(weights, value).expand(query.shape).transpose(1, 2).contiguous(), None

    model = translator("marian", attn_implementation="eager")
    monkeypatch.setattr(modeling_marian, "eager_attention_forward", wrong)
    with pytest.raises(SubjectError, match=f"fails the check '{check}'"):
        subject_of(model)
