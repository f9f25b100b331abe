"""Models from sequences to sequences as subjects: what is read is what the model computes with, however pairs are read."""

import functools

import pytest
import torch
from transformers import AutoModelForSequenceClassification, GPT2Config, GPT2LMHeadModel, T5Config
from transformers.models.marian import modeling_marian

from attnfaith.importance.gradients import Gradient
from attnfaith.subjects import Edit, SubjectError, sequence_subject
from attnfaith.subjects.pairs import by_words, word_sums
from attnfaith.subjects.translator import CrossAttention, SequenceSubject, is_sequence_model
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


# ---------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_attention_is_what_the_model_returns_and_log_probs_are_its_loss(kind):
    subject, some = open_subject(kind), batch(kind)
    with subject.evaluating():
        output = subject.model(
            input_ids=some["input_ids"], attention_mask=some["attention_mask"], labels=some["labels"], output_attentions=True
        )
    weights = subject.attention(some)
    close(weights, torch.stack(output.cross_attentions, 1))
    counted = some["labels"] != -100
    close(subject.log_probs(some)[counted].mean(), -output.loss.double())
    close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    hidden = some["attention_mask"] == 0
    assert hidden.any() and float((weights * hidden[:, None, None, None]).abs().max()) <= 1e-6


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_pair_is_the_same_alone_and_in_any_batch(kind):
    subject, some = open_subject(kind), batch(kind)
    for row, pair in enumerate(PAIRS):
        alone = batch(kind, [pair])
        sources, targets = (int(length[0]) for length in alone.lengths)
        close(subject.attention(some)[row][..., :targets, :sources], subject.attention(alone)[0])
        close(subject.log_probs(some)[row, :targets], subject.log_probs(alone)[0])
    turned = batch(kind, PAIRS[::-1])
    close(subject.log_probs(turned).flip(0), subject.log_probs(some))


def test_words_are_sums_over_the_source_and_means_over_the_target_in_both_rows():
    some = batch("marian", PAIRS[:1])
    assert some["source_words"][0].tolist() == [0, 1, 2, 3, 4, 5, 5, 6, -1]
    assert some["target_words"][0].tolist() == [0, 1, 1, 2, 3, 4, 5, 6, -1]
    values = torch.arange(81.0).reshape(1, 9, 9)
    (words,) = by_words(some, values)
    assert words.shape == (2, 7, 7)
    own = values[0].numpy()
    assert words[0, 0, 0] == own[0, 0] and words[1, 0, 0] == own[1, 0]
    assert words[0, 1, 5] == own[1:3, 5:7].sum(1).mean() and words[1, 1, 5] == own[2:4, 5:7].sum(1).mean()
    assert words[0, 6, 6] == own[7, 7] and words[1, 6, 6] == own[8, 7]
    sums = word_sums(some, torch.arange(9.0).unsqueeze(0))
    assert sums.tolist() == [[0, 3, 3, 4, 5, 6, 7]]


@pytest.mark.parametrize("kind", ["marian", "t5", "bahdanau", "luong"])
@torch.no_grad()
def test_an_edit_with_the_own_weights_changes_nothing_and_another_one_does(kind):
    subject, pair = open_subject(kind), batch(kind, PAIRS[:1])
    own = subject.attention(pair)
    flat = torch.full_like(own, 1 / own.shape[-1])
    owner = torch.zeros(2, dtype=torch.long)
    ((_, logits),) = subject.edited(pair, owner, Replaced(torch.cat([own, flat])))
    close(logits[:1], subject.logits(pair))
    assert float((logits[1:] - subject.logits(pair)).abs().max()) > 1e-3


def logits_of(model, some, weights):
    """Logits of a recurrent translator that weighs the source by weights (B,N,S), step by step, by its modules."""
    encoded = model.get_encoder()(some["input_ids"], some["attention_mask"])
    embedded = model.get_input_embeddings()(some["decoder_input_ids"])
    state, read = model.decoder.start(encoded.pooler_output), []
    states = model.decoder.layer(embedded, state) if model.config.recurrence == "luong" else None
    for step, word in enumerate(embedded.unbind(1)):
        context = torch.einsum("bs,bsh->bh", weights[:, step], encoded.last_hidden_state)
        state = model.decoder.cell(torch.cat([word, context], 1), state) if states is None else states[:, step]
        layer = model.read_out
        read.append((layer.state(state) + layer.word(word) + layer.context(context)).tanh())
    return model.output(torch.stack(read, 1))


@pytest.mark.parametrize("projection", ["softmax", "sparsemax", "uniform"])
@pytest.mark.parametrize("recurrence", ["bahdanau", "luong"])
@torch.no_grad()
def test_recurrent_translators_read_edited_weights(recurrence, projection):
    subject = sequence_subject(translator(recurrence, projection=projection), tokenizer())
    some = subject.encode(PAIRS)
    weights = subject.attention(some).flip(-2) * (some["attention_mask"][:, None, None, None] == 1)
    weights = weights / weights.sum(-1, keepdim=True)
    ((_, logits),) = subject.edited(some, torch.arange(3), Replaced(weights))
    close(logits, logits_of(subject.model, some, weights[:, 0, 0]))
    assert "attend" not in vars(subject.model.decoder)


@pytest.mark.parametrize("kind", ["marian", "bahdanau"])
@torch.no_grad()
def test_a_source_without_some_positions_is_the_shorter_source(kind):
    subject, pair = open_subject(kind), batch(kind, PAIRS[:1])
    gone = pair["source_words"] == 5
    shorter = subject.without(pair, torch.tensor([0]), gone)
    assert shorter["input_ids"][0, :7].tolist() == pair["input_ids"][0][~gone[0]].tolist()
    assert shorter["attention_mask"].sum() == 7 and (shorter["input_ids"][0, 7:] == 0).all()
    expected = subject.encode([("the old dog sees a !", PAIRS[0][1])])
    close(subject.log_probs(shorter), subject.log_probs(expected))


@pytest.mark.parametrize("kind", ["mbart", "bahdanau"])
@torch.no_grad()
def test_pairs_that_padding_disturbs_are_read_one_at_a_time(kind, monkeypatch):
    some, subject = batch(kind), open_subject(kind)
    expected = subject.attention(some), subject.log_probs(some)
    monkeypatch.setattr(type(subject), "together", "one at a time")
    again = batch(kind)
    counted = (some["labels"] != -100)[:, None, None, :, None]
    close(subject.attention(again) * counted, expected[0] * counted)
    close(subject.log_probs(again), expected[1])
    ((_, first),) = subject.edited(again, torch.tensor([0, 1]), Replaced(expected[0][:2]))
    length = int(some.lengths[1][0])
    close(first[0, :length], subject.logits(again)[0, :length])


def test_capabilities_and_identity():
    assert all(open_subject(kind).capabilities == open_subject(kind).can for kind in STACKED)
    assert open_subject("luong").can - open_subject("luong").capabilities == {"stacked parts"}
    assert open_subject("luong").identity() | {"tokenizer_digest": ""} == {
        **{"model": "sequence_to_sequence", "tokenizer_digest": "", "encoder": "bigru", "alignment": "dot"},
        **{"score_scale": None, "projection": "softmax", "projection_parameter": None, "readout": "luong"},
    }
    assert open_subject("marian").identity()["encoder"] == "marian"
    assert open_subject("marian").digest() != CrossAttention(translator("marian", init_std=0.3)).digest()


@pytest.mark.parametrize("kind", STACKED)
def test_the_head_at_some_places_gives_what_it_gives_at_all(kind):
    """Of words of one token and of two, and of each pair of a batch whatever its length."""
    own = open_subject(kind)
    assert own.head is own.model.get_output_embeddings()
    with own.evaluating():
        batch = own.encode(PAIRS)
        words, embedded = torch.tensor([4, 1, 2]), own.embed(batch).detach()
        torch.testing.assert_close(
            own.log_probs_of(batch, words, embedded), SequenceSubject.log_probs_of(own, batch, words, embedded)
        )
        slopes, plain = own.word_slopes(batch), SequenceSubject.word_slopes(own, batch)
        assert plain.abs().amax() > 1e-3
        torch.testing.assert_close(slopes, plain, rtol=1e-4, atol=1e-6 * float(plain.abs().amax()))


# ---------------------------------------------------------------------------------------------- refusals


def test_a_model_without_cross_attention_is_refused_in_one_line():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2))
    with pytest.raises(SubjectError, match="GPT2LMHeadModel has no cross-attention"):
        sequence_subject(model)
    fields = {"vocab_size": 20, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    fields["decoder_start_token_id"] = 0
    assert not is_sequence_model(AutoModelForSequenceClassification.from_config(T5Config(**fields)))
    with pytest.raises(SubjectError, match="projection='none' has no attention"):
        sequence_subject(translator("luong", projection="none"))


def test_a_classifiers_measure_refuses_a_translator():
    with pytest.raises(SubjectError, match="'gradient' needs .*lacks"):
        run(Gradient, open_subject("marian"), {"input_ids": torch.ones(1, 2, dtype=torch.long)})


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
    own = modeling_marian.eager_attention_forward

    def other(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
        if not module.is_decoder or key.shape[2] == query.shape[2]:
            return own(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)
        scores = query @ key.transpose(2, 3) * module.scaling
        weights = torch.softmax(scores if attention_mask is None else scores + attention_mask, -1)
        output = change(weights, value)
        return output.expand(query.shape).transpose(1, 2).contiguous(), None

    model = translator("marian", attn_implementation="eager")
    monkeypatch.setattr(modeling_marian, "eager_attention_forward", other)
    with pytest.raises(SubjectError, match=f"fails the check '{check}'"):
        sequence_subject(model)


def test_another_tokenizers_tokens_are_refused():
    with pytest.raises(SubjectError, match="the model knows 12"):
        CrossAttention(translator("marian", vocab_size=12), tokenizer()).encode(PAIRS)
    with pytest.raises(SubjectError, match="texts need the model's tokenizer"):
        CrossAttention(translator("marian")).encode(PAIRS)


def test_weights_that_are_not_finite_are_refused():
    model = translator("marian")
    model.lm_head.weight.data[0, 0] = torch.nan
    with pytest.raises(SubjectError, match="holds NaN"):
        sequence_subject(model)
