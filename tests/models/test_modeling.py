"""The whole model, over every cell of encoder, alignment, projection, query and read-out."""

import itertools

import pytest
import torch

from attnfaith.models import (
    AttentionClassifierConfig,
    AttentionClassifierForSequenceClassification,
    AttentionClassifierModel,
)
from attnfaith.models.alignments import ALIGNMENTS
from attnfaith.models.decoders import DECODERS
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.hierarchy import HIERARCHIES
from attnfaith.models.modeling_attention_classifier import contexts
from attnfaith.models.projections import PROJECTIONS
from tests import tolerances


QUERIES = ("learned", "text")
VOCABULARY, CLASSES = 20, 3
PARAMETERS = {"sparsegen": {"sparsegen_lambda": 0.5}, "entmax": {"entmax_alpha": 1.25}}
MARK = 6  # between sentences
FACTORS = ("encoder", "alignment", "projection", "query", "readout", "hierarchy")
CELLS = [
    (encoder, alignment, projection, *rest, hierarchy)
    for hierarchy in HIERARCHIES
    for (encoder, projection), (alignment, rest) in zip(
        itertools.product(ENCODERS, PROJECTIONS),
        itertools.cycle(itertools.product(ALIGNMENTS, itertools.product(QUERIES, DECODERS))),
        strict=False,
    )
]
every_encoder = pytest.mark.parametrize("encoder", ENCODERS)


def build(**fields):
    torch.default_generator.manual_seed(0)
    if fields.get("hierarchy", "none") != "none":
        fields["sentence_token_id"] = MARK
    sizes = {"embedding_size": 8, "hidden_size": 8, "intermediate_size": 12, "vocab_size": VOCABULARY}
    fields = {**sizes, "num_labels": CLASSES, "embedding_std": 1.0, **PARAMETERS.get(fields.get("projection"), {}), **fields}
    return AttentionClassifierForSequenceClassification(AttentionClassifierConfig(**fields)).eval()


# Five texts between markers (2 and 3), one without any word, one of two sentences, and their queries, each with markers too
TEXTS = [[5, 9, 4], [], [7], [12, 6, 6, 19, 11, 8], [10, 4]]
QUESTIONS = [[8, 5], [13], [4, 4, 17, 6], [9], [15, 16]]


def rows(query):
    """Token ids and token types of each row, unpadded."""
    for text, question in zip(TEXTS, QUESTIONS, strict=True):
        ids, types = [2, *text, 3], [0] * (len(text) + 2)
        if query == "text":
            ids, types = [*ids, 2, *question, 3], types + [1] * (len(question) + 2)
        yield ids, types


def batch(query="learned", order=range(5), extra=0):
    chosen = [list(rows(query))[row] for row in order]
    width = max(len(ids) for ids, _ in chosen) + extra
    inputs = {
        "input_ids": [ids + [0] * (width - len(ids)) for ids, _ in chosen],
        "attention_mask": [[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in chosen],
        "token_type_ids": [types + [0] * (width - len(types)) for _, types in chosen],
    }
    if query == "learned":
        del inputs["token_type_ids"]
    return {name: torch.tensor(value) for name, value in inputs.items()}


def attendable(inputs, hierarchy="none"):
    """By hand: the words of the first texts, or their sentences."""
    if hierarchy == "sentence":
        return torch.tensor([[1, 0], [0, 0], [1, 0], [1, 1], [1, 0]]).bool()
    words = torch.zeros_like(inputs["input_ids"], dtype=torch.bool)
    for row, text in enumerate(TEXTS):
        words[row, 1 : 1 + len(text)] = True
    return words


def close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize(FACTORS, CELLS)
def test_cell(encoder, alignment, projection, query, readout, hierarchy):
    model = build(**dict(zip(FACTORS, (encoder, alignment, projection, query, readout, hierarchy), strict=True)))
    inputs = batch(query)
    words = attendable(inputs, hierarchy)
    with torch.no_grad():
        output = model(**inputs)
        check_stages(model, inputs, output, words)
        check_padding_and_order(model, query, output)
        items = {"items": model.model.items(**inputs)} if hierarchy != "none" else {}
        embedded = {**inputs, **items, "input_ids": None, "inputs_embeds": model.get_input_embeddings()(inputs["input_ids"])}
        assert torch.equal(model(**embedded).logits, output.logits)
    # every parameter moves the loss, but what a uniform attention leaves without effect, and dot of an empty text
    model(**inputs, labels=torch.tensor([0, 1, 2, 0, 1])).loss.backward()
    for name, parameter in model.named_parameters():
        unused = projection == "uniform" and "alignment" in name
        assert (parameter.grad is None) == unused, name
        assert unused or parameter.grad.isfinite().all(), name
    moved = {name for name, parameter in model.named_parameters() if parameter.grad is not None and parameter.grad.any()}
    assert "model.embeddings.weight" in moved and "decoder.context.weight" in moved
    assert encoder == "embedding" or any(name.startswith("model.encoder.") for name in moved)
    assert (model.model.embeddings.weight.grad[0] == 0).all()  # the padding token


def check_stages(model, inputs, output, words):
    """A point of the simplex over the words, or sentences, of the text, and 0 elsewhere; K attentions are K times one."""
    assert output.logits.shape == (5, CLASSES) and output.logits.isfinite().all()
    assert (output.attention >= 0).all() and (output.attention[~words] == 0).all()
    tolerances.close(output.attention.sum(-1), words.any(-1).float())
    hidden, mask, state = model.encode(**inputs)
    assert torch.equal(mask, words) and torch.equal(model.model.attendable(**inputs), words)
    attention = model.attend(hidden, mask, state)
    assert torch.equal(attention, output.attention)
    assert torch.equal(model.decode(hidden, attention, state), output.logits)
    draws = torch.rand(5, 4, words.shape[1], generator=torch.Generator().manual_seed(0))
    together = model.decode(hidden, draws, state)
    close(together, torch.stack([model.decode(hidden, draws[:, draw], state) for draw in range(4)], 1))
    if model.decoder.affine:
        weight, bias = model.decoder_weights(state)
        close(contexts(hidden, attention) @ weight.t() + bias, output.logits)
    else:
        with pytest.raises(ValueError, match="'tanh' is not affine"):
            model.decoder_weights(state)


def check_padding_and_order(model, query, output):
    for row, (ids, types) in enumerate(rows(query)):
        single = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types]) if query == "text" else None)
        close(single.logits[0], output.logits[row])
        width = min(single.attention.shape[1], output.attention.shape[1])
        close(single.attention[0, :width], output.attention[row, :width])
        if output.word_attention is not None:
            close(single.word_attention[0], output.word_attention[row, : len(ids)])
    order = [3, 0, 4, 1, 2]
    shuffled = model(**batch(query, order, extra=3))
    close(shuffled.logits, output.logits[order])
    close(shuffled.attention[:, : output.attention.shape[1]], output.attention[order])


@pytest.mark.parametrize("hierarchy", HIERARCHIES)
@every_encoder
def test_saving_and_loading(encoder, hierarchy, tmp_path):
    """The classifier as itself and as the model without a head, and back."""
    number = [*ENCODERS].index(encoder)
    query, readout, alignment = [("learned", "affine", "dot"), ("text", "tanh", "additive")][number % 2]
    factors = (encoder, alignment, [*PROJECTIONS][number % len(PROJECTIONS)], query, readout, hierarchy)
    model = build(**dict(zip(FACTORS, factors, strict=True)))
    model.save_pretrained(tmp_path)
    loaded, report = AttentionClassifierForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()) and not loaded.training
    assert loaded.config.to_diff_dict() == model.config.to_diff_dict()
    expected, output = model(**batch(query)), loaded(**batch(query))
    assert torch.equal(output.logits, expected.logits) and torch.equal(output.attention, expected.attention)
    base = AttentionClassifierModel.from_pretrained(tmp_path)
    output = base(**batch(query))
    assert torch.equal(output.attention, expected.attention)
    assert torch.equal(output.pooler_output, contexts(output.last_hidden_state, output.attention))
    base.save_pretrained(tmp_path / "base")
    again = AttentionClassifierForSequenceClassification.from_pretrained(tmp_path / "base")
    assert torch.equal(again(**batch(query)).attention, expected.attention)


@every_encoder
def test_initialisation_is_torchs(encoder):
    """U(-k, k) with k = fan-in^-1/2 for layers, hidden^-1/2 for LSTM and GRU; N(0, embedding_std^2), padding 0."""
    model = build(encoder=encoder, embedding_size=64, hidden_size=64, embedding_std=0.3, vocab_size=500)
    embeddings = model.get_input_embeddings().weight
    assert (embeddings[0] == 0).all()
    assert embeddings[1:].std().item() == pytest.approx(0.3, rel=0.02)
    units = 64 if encoder in ("lstm", "orthogonal_lstm") else 32  # of a direction
    bounds = {f"model.encoder.{way}_{kind}": units**-0.5 for way in ("forward", "backward") for kind in ("lstm", "gru")}
    bounds |= {f"model.encoder.convolutions.{i}": (64 * width) ** -0.5 for i, width in enumerate((1, 3, 5, 7))}
    bounds |= {"decoder.context": 64**-0.5, "model.alignment.key": 64**-0.5, "model.encoder.projection": 64**-0.5}
    checked = 0
    for name, parameter in model.named_parameters():
        bound = bounds.get(name.rpartition(".")[0])
        if bound is not None and parameter.numel() > 500:
            assert 0.97 * bound < parameter.abs().max().item() <= bound
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
            checked += 1
    assert checked >= (1 if encoder == "embedding" else 2)


@pytest.mark.slow
@every_encoder
@pytest.mark.parametrize(
    ("projection", "hierarchy", "dtype"), [("softmax", "none", torch.float16), ("entmax15", "sentence", torch.bfloat16)]
)
@torch.no_grad()
def test_half_precision(encoder, projection, hierarchy, dtype):
    model = build(encoder=encoder, projection=projection, hierarchy=hierarchy)
    logits, output = model(**batch()).logits, model.to(dtype)(**batch())
    assert output.logits.dtype == dtype and output.attention.dtype == torch.float32
    close(output.attention.sum(-1), torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0]), 1e-6)
    close(output.logits.float(), logits, 0.1)


def test_hidden_states_and_self_attention_of_the_first_text_only():
    model, inputs = build(encoder="transformer", query="text", num_attention_heads=2), batch("text")
    output, length = model(**inputs, output_hidden_states=True, output_attentions=True), inputs["input_ids"].shape[1]
    assert [tuple(states.shape) for states in output.hidden_states] == [(5, length, 8)] * 4
    assert torch.equal(output.hidden_states[-1], model.encode(**inputs).hidden)
    assert [tuple(weights.shape) for weights in output.attentions] == [(5, 2, length, length)] * 2
    close(output.attentions[0].sum(-1), torch.ones(5, 2, length), 1e-6)
    model = build(encoder="bilstm", query="text")
    states = model(**inputs, output_hidden_states=True).hidden_states
    assert torch.equal(states[0], model.get_input_embeddings()(inputs["input_ids"])) and len(states) == 2
    assert torch.equal(states[1], model.encode(**inputs).hidden)


def test_markers_and_masks_that_are_left_out():
    inputs = batch()
    attention = build(markers=False)(**inputs).attention
    assert torch.equal(attention > 0, inputs["attention_mask"].bool())
    close(attention.sum(-1), torch.ones(5), 1e-6)
    model = build()
    assert torch.equal(model(input_ids=inputs["input_ids"]).logits, model(**inputs).logits)
    assert (build(pad_token_id=None)(input_ids=inputs["input_ids"]).attention[:, 1:-1] > 0).all()


@every_encoder
@pytest.mark.parametrize("query", QUERIES)
@torch.no_grad()
def test_a_hierarchical_model_is_two_flat_ones(encoder, query):
    """Second route: a flat model over the words of each sentence, and another over the sentence vectors."""
    model = build(encoder=encoder, query=query, hierarchy="sentence", projection="sparsemax")
    words, sentences = (build(encoder=encoder, query=query, projection="sparsemax", markers=False) for _ in range(2))
    for name in ("encoder", "alignment"):
        below, above = getattr(model.model.sentence_reader, f"word_{name}"), getattr(model.model, name)
        getattr(words.model, name).load_state_dict(below.state_dict())
        getattr(sentences.model, name).load_state_dict(above.state_dict())

    inputs, read = batch(query), model.model.read(**batch(query))
    embedded, output = model.get_input_embeddings()(inputs["input_ids"]), model(**inputs)
    for row, divided in enumerate(([[1, 2, 3]], [], [[1]], [[1], [4, 5, 6]], [[1, 2]])):
        state = None if read.query is None else read.query[row : row + 1]
        vectors = []
        for places in divided:
            states, _ = words.model.encoder(embedded[row : row + 1, places], torch.ones(1, len(places), dtype=torch.bool))
            attention = words.attend(states, torch.ones(1, len(places), dtype=torch.bool), state)
            close(output.word_attention[row, places], attention[0])
            vectors.append(contexts(states, attention))
        assert output.word_attention[row].count_nonzero() <= sum(map(len, divided))
        if not divided:
            assert not output.word_attention[row].any()
            continue
        present = torch.ones(1, len(divided), dtype=torch.bool)
        states, _ = sentences.model.encoder(torch.stack(vectors, 1), present)
        attention = sentences.attend(states, present, state)
        close(output.attention[row, : len(divided)], attention[0])
        close(output.logits[row], model.decode(states, attention, state)[0])


def test_items_of_words_and_of_sentences():
    ids = torch.tensor([[2, MARK, 5, 7, MARK, MARK, 8, MARK, 3, 0], [2, 5, 3] + [0] * 7, [2, MARK, 3] + [0] * 7])
    flat, model = build().model, build(hierarchy="sentence").model
    assert flat.items(ids).tolist() == [[-1, *range(1, 8), -1, -1], [-1, 1] + [-1] * 8, [-1, 1] + [-1] * 8]
    sentences = model.items(ids)
    assert sentences.tolist() == [[-1, -1, 0, 0, -1, -1, 1, -1, -1, -1], [-1, 0] + [-1] * 8, [-1] * 10]
    assert model.attendable(ids).tolist() == [[True, True], [True, False], [False, False]]
    assert torch.equal(model.items(ids, (ids != 0).long()), sentences)


SHORT = {"input_ids": torch.tensor([[2, 5, 3]])}


@pytest.mark.parametrize(
    ("query", "inputs", "message"),
    [
        ("learned", {"input_ids": torch.tensor([[0, 2, 5, 3]])}, "padding must be on the right"),
        ("learned", {**SHORT, "attention_mask": torch.tensor([[1, 0, 1]])}, "padding must be on the right"),
        ("learned", {}, "exactly one of input_ids and inputs_embeds"),
        ("learned", {**batch(), "inputs_embeds": torch.zeros(5, 8, 8)}, "exactly one of input_ids and inputs_embeds"),
        ("text", SHORT, "needs token_type_ids"),
        ("text", {**SHORT, "token_type_ids": torch.tensor([[1, 0, 0]])}, "must come before the query"),
    ],
)
def test_inputs_that_are_refused(query, inputs, message):
    with pytest.raises(ValueError, match=message):
        build(query=query)(**inputs)
