"""Every number of Jain & Wallace's implementation on tiny models, see golden/README.md, to 1e-5."""

from pathlib import Path

import numpy as np
import pytest
import torch

from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification
from attnfaith.importance.perturbation import without_token
from attnfaith.interventions.permutation import read_permuted
from attnfaith.interventions.targets import Pooled
from attnfaith.subjects import Batch, opened, subject_of


GOLDEN = dict(np.load(Path(__file__).parent / "golden" / "jain_wallace_tiny.npz"))
ENCODER = {"lstm": "bilstm", "cnn": "cnn", "average": "average"}
ALIGNMENT = {"tanh": "additive", "dot": "dot"}
LSTM_PARAMETERS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
VOCABULARY = 40  # of each of the two embedding tables of the pair models


def permuted(model, batch, orders):
    return read_permuted(Pooled(*opened(model, batch)), orders)[0]


def close(actual, expected):
    torch.testing.assert_close(torch.as_tensor(actual).double(), torch.as_tensor(expected).double(), atol=1e-5, rtol=0)


def encoder_weights(golden, theirs, ours, encoder):
    if encoder == "lstm":
        for direction, suffix in (("forward", ""), ("backward", "_reverse")):
            for name in LSTM_PARAMETERS:
                yield f"{ours}.{direction}_lstm.{name}", golden[f"{theirs}.rnn.{name}{suffix}"]
    else:
        for name in [name for name in golden if name.startswith(f"{theirs}.") and "embedding" not in name]:
            yield ours + name.removeprefix(theirs), golden[name]


def golden_of(prefix):
    """The numbers of a model of theirs, by name."""
    parts = {name.partition("/"): value for name, value in GOLDEN.items()}
    return {name: torch.tensor(value) for (model, _, name), value in parts.items() if model == prefix}


def loaded(weights, **fields):
    config = AttentionClassifierConfig(embedding_size=6, hidden_size=8, **fields)
    model = AttentionClassifierForSequenceClassification(config).eval()
    model.load_state_dict(weights)
    return model


def single(encoder, alignment):
    golden = golden_of(f"{encoder}_{alignment}")
    weights = dict(encoder_weights(golden, "encoder", "model.encoder", encoder))
    weights["model.embeddings.weight"] = golden["encoder.embedding.weight"]
    if alignment == "tanh":
        weights["model.alignment.key.weight"] = golden["decoder.attention.attn1.weight"]
        weights["model.alignment.key.bias"] = golden["decoder.attention.attn1.bias"]
        weights["model.alignment.value.weight"] = golden["decoder.attention.attn2.weight"]
    else:
        weights["model.alignment.query.weight"] = golden["decoder.attention.attn1.weight"]
    # one logit and its sigmoid: the softmax of that logit and 0
    for name in ("weight", "bias"):
        value = golden[f"decoder.linear_1.{name}"]
        weights[f"decoder.context.{name}"] = torch.cat([torch.zeros_like(value), value])
    fields = {"encoder": ENCODER[encoder], "alignment": ALIGNMENT[alignment], "num_labels": 2}
    return loaded(weights, vocab_size=VOCABULARY, **fields), golden


@pytest.fixture(scope="module", params=[(e, a) for e in ENCODER for a in ALIGNMENT], ids="-".join)
def reference(request):
    return single(*request.param)


TOKEN_IDS = torch.tensor(GOLDEN["token_ids"])
LENGTHS = GOLDEN["lengths"].tolist()


def positive(logits):
    return logits.softmax(-1)[..., 1]


def test_forward(reference):
    model, golden = reference
    output = model(TOKEN_IDS)
    close(positive(output.logits), golden["p"])
    close(output.attention, golden["attention"])
    hidden, mask, _ = model.encode(TOKEN_IDS)
    # theirs means nothing on padding, and their convolution sets the states of the markers, never attended, to 0
    intended = mask if model.config.encoder == "cnn" else TOKEN_IDS != 0
    close(hidden[intended], golden["hidden"][intended])


def test_gradients_with_attention_held_fixed(reference):
    model, golden = reference
    embedded = model.model.embeddings(TOKEN_IDS).detach().requires_grad_()
    hidden, mask, _ = model.encode(inputs_embeds=embedded, attention_mask=TOKEN_IDS != 0)
    hidden.retain_grad()
    positive(model.decode(hidden, model.attend(hidden, mask).detach())).sum().backward()
    for row, length in enumerate(LENGTHS):
        inner = slice(1, length - 1)
        times = (embedded * embedded.grad).sum(-1)
        close(times[row, inner], golden["gradient_times_embedding"][row, inner])
        close(hidden.grad.sum(-1)[row, inner], golden["gradient_hidden_sum"][row, inner])


def test_deleting_each_token(reference):
    model, golden = reference
    for row, length in enumerate(LENGTHS):
        alone = {"input_ids": TOKEN_IDS[row : row + 1, :length], "attention_mask": torch.ones(1, length, dtype=torch.int64)}
        without = without_token(subject_of(model), Batch.of(alone, subject_of(model)))
        close(positive(without[0, 1 : length - 1]), golden["p_without"][row, 1 : length - 1])


def test_reversing_attention(reference):
    model, golden = reference
    hidden, mask, _ = model.encode(TOKEN_IDS)
    attention = model.attend(hidden, mask)
    reversed_attention = attention.clone()
    for row, length in enumerate(LENGTHS):
        reversed_attention[row, 1 : length - 1] = attention[row, 1 : length - 1].flip(0)
    close(positive(model.decode(hidden, reversed_attention)), golden["p_reversed_attention"])
    both = model.decode(hidden, torch.stack([attention, reversed_attention], 1))
    close(positive(both), torch.stack([golden["p"], golden["p_reversed_attention"]], 1))

    orders = [np.arange(length - 2)[None, ::-1] for length in LENGTHS]
    result = permuted(model, {"input_ids": TOKEN_IDS}, orders)
    close([probs[0, 1] for probs in result], golden["p_reversed_attention"])


# Pairs: a passage and a question, each with an embedding table of its own in their code


@pytest.fixture(scope="module", params=ALIGNMENT)
def pair_reference(request):
    golden = golden_of(f"qa_lstm_{request.param}")
    weights = dict(encoder_weights(golden, "passage_encoder", "model.encoder", "lstm"))
    weights.update(encoder_weights(golden, "question_encoder", "model.query_encoder", "lstm"))
    tables = [golden[f"{text}_encoder.embedding.weight"] for text in ("passage", "question")]
    weights["model.embeddings.weight"] = torch.cat(tables)
    layers = {"decoder.context": "linear_1p", "decoder.query": "linear_1q", "decoder.output": "linear_2"}
    if request.param == "tanh":
        layers |= {"model.alignment.key": "attention.attn1p", "model.alignment.query": "attention.attn1q"}
        weights["model.alignment.value.weight"] = golden["decoder.attention.attn2.weight"]
    for ours, theirs in layers.items():
        weights |= {f"{ours}.{name}": golden[f"decoder.{theirs}.{name}"] for name in ("weight", "bias")}
    fields = {"encoder": "bilstm", "alignment": ALIGNMENT[request.param], "query": "text", "readout": "tanh"}
    return loaded(weights, vocab_size=2 * VOCABULARY, num_labels=5, **fields), golden


def pair_inputs():
    """Passage and question joined in each row, the question's ids in the second half of the vocabulary."""
    rows, types = [], []
    for passage, question in zip(GOLDEN["qa/passage_ids"], GOLDEN["qa/question_ids"], strict=True):
        passage, question = passage[passage != 0], question[question != 0] + VOCABULARY
        rows.append(np.concatenate([passage, question]))
        types.append(np.repeat([0, 1], [len(passage), len(question)]))
    width = max(map(len, rows))
    return {
        "input_ids": torch.tensor(np.stack([np.pad(row, (0, width - len(row))) for row in rows])),
        "token_type_ids": torch.tensor(np.stack([np.pad(row, (0, width - len(row))) for row in types])),
    }


def answers(logits):
    return logits.masked_fill(~torch.tensor(GOLDEN["qa/answer_mask"]), -torch.inf).softmax(-1)


def test_pair_forward(pair_reference):
    model, golden = pair_reference
    output = model(**pair_inputs())
    length = golden["attention"].shape[1]
    close(output.attention[:, :length], golden["attention"])
    assert (output.attention[:, length:] == 0).all()
    close(answers(output.logits), golden["p"])


def test_pair_reversing_attention(pair_reference):
    model, golden = pair_reference
    hidden, mask, query = model.encode(**pair_inputs())
    attention = model.attend(hidden, mask, query)
    for row, allowed in enumerate(mask):
        attention[row, allowed] = attention[row, allowed].flip(0)
    close(answers(model.decode(hidden, attention, query)), golden["p_reversed_attention"])

    orders = [np.arange(int(count))[None, ::-1] for count in mask.sum(1)]
    result = np.concatenate(permuted(model, pair_inputs(), orders)) * GOLDEN["qa/answer_mask"]
    close(result / result.sum(1, keepdims=True), golden["p_reversed_attention"])
