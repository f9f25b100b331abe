"""The recurrent translator: its recurrences by hand, padding, gradients, generation, and what it refuses."""

import itertools

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from attnfaith import AttentionSeq2SeqConfig, AttentionSeq2SeqForConditionalGeneration
from attnfaith.models.alignments import SEQUENCE_ALIGNMENTS as ALIGNMENTS
from attnfaith.models.modeling_attention_seq2seq import ENCODERS


IDS = torch.tensor([[5, 6, 7, 4, 3], [8, 9, 3, 0, 0]])
LABELS = torch.tensor([[5, 9, 8, 3], [4, 3, -100, -100]])
PROJECTIONS = ("softmax", "sparsemax", "sparsegen", "entmax", "uniform", "none")


def build(**fields):
    torch.manual_seed(0)
    fields = {"vocab_size": 12, "embedding_size": 6, "hidden_size": 6, "embedding_std": 1.0, **fields}
    return AttentionSeq2SeqForConditionalGeneration(AttentionSeq2SeqConfig(**fields)).eval()


def test_a_step_of_bahdanau_by_hand():
    """The state before a step asks by v . tanh(W h + U s + b); the context enters the step, and the output."""
    model = build(recurrence="bahdanau", projection="softmax", encoder="embedding")
    result = model(IDS[:1], labels=LABELS[:1], output_attentions=True, output_hidden_states=True)
    words, alignment = model.encoder.embeddings, model.decoder.alignment
    hidden = words(IDS[0])
    state = torch.tanh(model.decoder.first(hidden.mean(0)))
    for step, word in enumerate([2, 5, 9, 8]):
        scores = alignment.value(torch.tanh(alignment.key(hidden) + alignment.query(state)))[:, 0]
        weights = scores.softmax(0)
        torch.testing.assert_close(result.cross_attentions[0][0, 0, step], weights)
        context = weights @ hidden
        state = model.decoder.cell(torch.cat([words.weight[word], context])[None], state[None])[0]
        read = model.read_out
        inner = (read.state(state) + read.word(words.weight[word]) + read.context(context)).tanh()
        torch.testing.assert_close(result.logits[0, step], model.output(inner))
    torch.testing.assert_close(result.decoder_hidden_states[1][0, -1], state)
    loss = -result.logits[0].log_softmax(-1)[torch.arange(4), LABELS[0]].mean()
    torch.testing.assert_close(result.loss, loss)


def test_luong_by_hand():
    """The state after a step asks; the context enters the output only, so states do not depend on attention."""
    model = build(recurrence="luong")
    result = model(IDS[:1], labels=LABELS[:1], output_attentions=True, output_hidden_states=True)
    hidden, states = result.encoder_last_hidden_state[0], result.decoder_hidden_states[1][0]
    weights = (states @ hidden.t()).softmax(-1)
    torch.testing.assert_close(result.cross_attentions[0][0, 0], weights)
    read, embedded = model.read_out, result.decoder_hidden_states[0][0]
    inner = (read.state(states) + read.word(embedded) + read.context(weights @ hidden)).tanh()
    torch.testing.assert_close(result.logits[0], model.output(inner))
    uniform = build(recurrence="luong", projection="uniform")
    uniform.load_state_dict(model.state_dict(), strict=False)
    same = uniform(IDS[:1], labels=LABELS[:1], output_hidden_states=True).decoder_hidden_states[1]
    torch.testing.assert_close(same, result.decoder_hidden_states[1])


@pytest.mark.slow
@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize(("recurrence", "alignment"), [*itertools.product(("bahdanau", "luong"), ALIGNMENTS)])
def test_every_cell_is_whole(recurrence, alignment, projection):
    """Weights are a distribution over the source, padding changes nothing, every parameter learns, and what is generated is
    the same with and without a cache of states, greedily and with beams.
    """
    fields = {"sparsegen": {"sparsegen_lambda": 0.5}, "entmax": {"entmax_alpha": 1.3}}.get(projection, {})
    model = build(recurrence=recurrence, alignment=alignment, projection=projection, **fields)
    result = model(IDS, labels=LABELS, output_attentions=True)
    alone = model(IDS[1:, :3], labels=LABELS[1:, :2], output_attentions=True)
    torch.testing.assert_close(result.logits[1:, :2], alone.logits)
    if projection == "none":
        assert result.cross_attentions is None
    else:
        (weights,) = result.cross_attentions
        assert weights.shape == (2, 1, 4, 5) and weights.dtype == torch.float32 and float(weights.detach().min()) >= 0
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 4))
        assert not weights[1, :, :, 3:].any()
        torch.testing.assert_close(weights[1:, :, :2, :3], alone.cross_attentions[0])
    result.loss.backward()
    still = [name for name, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    if projection not in ("sparsemax", "sparsegen"):  # one of these may give all weight to a single token
        assert not still
    for beams in (1, 3):
        stored, anew = (model.generate(IDS, max_new_tokens=7, num_beams=beams, use_cache=state) for state in (True, False))
        assert torch.equal(stored, anew) and int(stored[0, 0]) == 2
    step = model.generate(IDS, max_new_tokens=3, output_logits=True, return_dict_in_generate=True)
    forced = model(IDS, decoder_input_ids=step.sequences[:, :3]).logits
    torch.testing.assert_close(torch.stack(step.logits, 1)[0], forced[0, : len(step.logits)])


@pytest.mark.parametrize("encoder", ENCODERS)
def test_saved_loaded_and_read_by_other_inputs(encoder, tmp_path):
    model = build(encoder=encoder, recurrence="luong", projection="sparsegen", sparsegen_lambda=0.25)
    model.save_pretrained(tmp_path)
    again, expected = AutoModelForSeq2SeqLM.from_pretrained(tmp_path), model(IDS, labels=LABELS).logits
    assert type(again) is AttentionSeq2SeqForConditionalGeneration and again.config.alignment == "dot"
    torch.testing.assert_close(again(IDS, labels=LABELS).logits, expected)
    common = {"attention_mask": (IDS != 0).long(), "labels": LABELS}
    torch.testing.assert_close(model(encoder_outputs=model.get_encoder()(IDS), **common).logits, expected)
    model.resize_token_embeddings(15)
    assert model(IDS, labels=LABELS).logits.shape == (2, 4, 15)


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        ({"input_ids": IDS.flip(1), "attention_mask": (IDS != 0).flip(1), "labels": LABELS}, "padding must be on the right"),
        ({"input_ids": torch.tensor([[5, 3], [0, 0]]), "labels": LABELS}, "the source of row 1 is empty"),
        ({"input_ids": IDS}, "give decoder_input_ids"),
    ],
)
def test_refusals(actual, message):
    with pytest.raises(ValueError, match=message):
        build()(**actual)
