"""Leave-one-out against texts that are really shorter, and states that are really taken out, one at a time."""

import math

import pytest
import torch

from attnfaith.importance import perturbation, removal
from attnfaith.importance.perturbation import LeaveOneOut
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.hierarchy import HIERARCHIES
from attnfaith.subjects import subject_of
from tests.measuring import run
from tests.small_encoders import FEW_FIRST


PROJECTIONS = ("softmax", "sparsemax", "sparsegen", "entmax15", "entmax", "uniform")
TOKENS, HIDDEN, REPROJECTED = LeaveOneOut.columns
MARK = 4  # between sentences


def close(values, expected, atol=2e-6, of=""):
    values, wanted = (torch.as_tensor(one).double() for one in (values, expected))
    torch.testing.assert_close(values, wanted, atol=atol, rtol=0, msg=lambda said: f"{of}: {said}")


def inputs(batch):
    return {name: value for name, value in batch.items() if name != "instance_id"}


@torch.no_grad()
def probabilities(model, batch):
    return model(**inputs(batch)).logits.double().softmax(-1)[0]


def distance(one, other):
    return float((one - other).abs().sum() / 2)


def shorter(row, token, hierarchy="none"):
    """The row of the same text without one token; without one sentence, whose words and mark go; without one word of a
    sentence, which goes with it where it is empty then.
    """
    place, stop = token + 1, token + 2
    if hierarchy == "sentence":
        place = 1 + 3 * token
        stop = min(place + 3, row["input_ids"].index(3))  # the end marker stays
    if hierarchy == "word":
        place = 1 + token + token // 2  # a mark after every second word
        stop, ids = place + 1, row["input_ids"]
        if ids[place - 1] in (2, MARK) and ids[place + 1] in (3, MARK):
            place -= ids[place - 1] == MARK
    made = {**row, "tokens": row["tokens"][:token] + row["tokens"][token + 1 :]}
    for name in ("input_ids", "token_type_ids"):
        if name in row:
            made[name] = row[name][:place] + row[name][stop:]
    return made


@pytest.mark.parametrize("hierarchy", [*HIERARCHIES, "word"])
@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize("encoder", FEW_FIRST)
@pytest.mark.parametrize(
    ("projection", "score_scale"),
    [("softmax", None), ("sparsemax", 1.0), pytest.param("sparsemax", None, marks=pytest.mark.slow)],
)
def test_deleting_each_token(encoder, query, projection, score_scale, hierarchy, tiny_model, tiny_rows, tiny_batch):
    factors = {"encoder": encoder, "query": query, "projection": projection, "score_scale": score_scale}
    model = tiny_model(**factors, num_hidden_layers=1, hierarchy=hierarchy)
    rows = tiny_rows([6, 1, 9, 9, 0, 3], pair=query == "text", hierarchy=hierarchy)
    found = run(LeaveOneOut, model, tiny_batch(rows))[TOKENS]
    for row, values in zip(rows, found, strict=True):
        reading = model.classifier if hierarchy == "word" else model
        whole = probabilities(reading, tiny_batch([row]))
        assert len(values) == len(row["tokens"])
        for token, value in enumerate(values):
            close(value, distance(probabilities(reading, tiny_batch([shorter(row, token, hierarchy)])), whole))
    assert max(value.max() for value in found if len(value)) > 0.02


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
@torch.no_grad()
def test_removing_each_words_state(projection, tiny_model, tiny_rows, tiny_batch, monkeypatch):
    model = tiny_model(projection=projection, encoder="bigru", num_labels=3, hierarchy="word", scale=5.0)
    batch = tiny_batch(tiny_rows([10, 1, 9], hierarchy="word"))
    made = run(LeaveOneOut, model, batch)
    hidden, mask, query = model.encode(**inputs(batch))
    attention = model.attend(hidden, mask, query)
    probs = model.decode(hidden, attention, query).double().softmax(-1)
    for row in range(3):
        one, asked = hidden[row : row + 1], query[row : row + 1]
        for word in range(int(mask[row].sum())):
            left = attention[row : row + 1].double().clone()
            left[0, word] = 0
            left = left / left.sum() if float(left.sum()) else left
            again = model.decode(one, left.float(), asked).double().softmax(-1)[0]
            close(made[HIDDEN][row][word], distance(again, probs[row]))
            others = mask[row : row + 1].clone()
            others[0, word] = False
            again = model.decode(one, model.attend(one, others, asked), asked).double().softmax(-1)[0]
            close(made[REPROJECTED][row][word], distance(again, probs[row]))
    assert max(abs(one - other).max() for one, other in zip(made[HIDDEN], made[REPROJECTED], strict=True)) > 1e-3
    monkeypatch.setattr(removal, "PLACES_AT_ONCE", 1)
    for bound in ("PLACES_AT_ONCE", "NUMBERS_AT_ONCE"):
        monkeypatch.setattr(removal, bound, 1)
    for column, values in run(LeaveOneOut, model, batch).items():
        for one, other in zip(values, made[column], strict=True):
            close(one, other)


@pytest.mark.parametrize("readout", ["affine", "tanh"])
@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize(
    ("projection", "score_scale"), [*((name, None) for name in PROJECTIONS), ("softmax", 1.0), ("sparsemax", 1.0)]
)
@torch.no_grad()
def test_removing_each_state(projection, score_scale, query, readout, tiny_model, tiny_rows, tiny_batch):
    factors = {"projection": projection, "score_scale": score_scale, "query": query, "readout": readout}
    model = tiny_model(**factors, sparsegen_lambda=0.4, entmax_alpha=1.25, num_labels=4)  # of three the largest change is it
    rows = tiny_rows([6, 1, 9], pair=query == "text")
    batch = tiny_batch(rows)
    made = run(LeaveOneOut, model, batch)
    hidden, mask, q = model.encode(**inputs(batch))
    attention = model.attend(hidden, mask, q)
    probs = model.decode(hidden, attention, q).double().softmax(-1)
    for row in range(len(rows)):
        one, asked = hidden[row : row + 1], None if q is None else q[row : row + 1]
        for token in range(len(rows[row]["tokens"])):
            left = attention[row : row + 1].double().clone()
            left[0, token + 1] = 0
            left = left / left.sum() if float(left.sum()) else left
            again = model.decode(one, left.float(), asked).double().softmax(-1)[0]
            close(made[HIDDEN][row][token], distance(again, probs[row]))
            others = mask[row : row + 1].clone()
            others[0, token + 1] = False
            again = model.decode(one, model.attend(one, others, asked), asked).double().softmax(-1)[0]
            close(made[REPROJECTED][row][token], distance(again, probs[row]))


@pytest.mark.parametrize(
    ("projection", "score_scale", "alike"),
    [
        ("softmax", None, True),
        ("uniform", None, True),
        ("sparsemax", None, False),
        ("entmax15", None, False),
        ("softmax", 1.0, False),
    ],
)
def test_renormalising_and_projecting_again(projection, score_scale, alike, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(projection=projection, score_scale=score_scale)
    made = run(LeaveOneOut, model, tiny_batch(tiny_rows([12])))
    difference = abs(made[HIDDEN][0] - made[REPROJECTED][0]).max()
    assert (difference < 1e-7) == alike, difference


@pytest.mark.parametrize("readout", ["affine", "tanh"])
def test_all_weight_on_one_token(readout, tiny_model, tiny_rows, tiny_batch):
    """Renormalising leaves nothing: the context is the zero vector. Projecting again gives the others weight."""
    model, batch = tiny_model(projection="sparsemax", scale=40.0, readout=readout), tiny_batch(tiny_rows([6]))
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.div_(40)
        encoded = model.encode(**inputs(batch))
        attention = model.attend(*encoded)[0, 1:7]
        assert attention.max() == 1
        place = int(attention.argmax())
        zero = model.decoder(torch.zeros(1, 8, dtype=torch.float64)).double().softmax(-1)[0]
        whole = probabilities(model, batch)
    made = run(LeaveOneOut, model, batch)
    close(made[HIDDEN][0][place], distance(zero, whole))
    assert (made[HIDDEN][0][[t for t in range(6) if t != place]] == 0).all()  # they had no weight
    assert abs(made[REPROJECTED][0][place] - made[HIDDEN][0][place]) > 1e-3


def test_a_text_of_one_token_leaves_the_bias(tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(), tiny_batch(tiny_rows([1]))
    with torch.no_grad():
        bias = model.decoder.context.bias.double().softmax(-1)
    expected = distance(bias, probabilities(model, batch))
    made = run(LeaveOneOut, model, batch)
    assert expected > 0.01
    for column in (TOKENS, HIDDEN, REPROJECTED):
        close(made[column][0], [expected])


@pytest.mark.slow
@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("readout", ["affine", "tanh"])
def test_long_texts_are_taken_in_parts(encoder, query, readout, tiny_model, tiny_rows, tiny_batch, monkeypatch):
    model = tiny_model(encoder=encoder, query=query, readout=readout, projection="sparsemax")
    batch = tiny_batch(tiny_rows([13, 13, 2, 5, 13, 0], pair=query == "text"))
    whole = run(LeaveOneOut, model, batch)
    for limit in (1, 7, 40):
        monkeypatch.setattr(removal, "PLACES_AT_ONCE", limit)
        monkeypatch.setattr(removal, "NUMBERS_AT_ONCE", limit * model.config.hidden_size)
        monkeypatch.setattr(removal, "TEXTS_AT_ONCE", 2)
        parts = run(LeaveOneOut, model, batch)
        for column in LeaveOneOut.columns:
            for one, other in zip(parts[column], whole[column], strict=True):
                close(one, other, atol=1e-6, of=f"{column}, {limit} at once")


def test_more_texts_of_one_length_than_are_taken_at_once(tiny_model, tiny_rows, tiny_batch):
    model = tiny_model()
    rows = tiny_rows([4] * (2 * removal.TEXTS_AT_ONCE + 3))
    found = run(LeaveOneOut, model, tiny_batch(rows))[TOKENS]
    for number in (0, 31, 32, 66):
        whole = probabilities(model, tiny_batch([rows[number]]))
        expected = [distance(probabilities(model, tiny_batch([shorter(rows[number], t)])), whole) for t in range(4)]
        close(found[number], expected)


@pytest.mark.parametrize("readout", ["affine", "tanh"])
@torch.no_grad()
def test_one_token_holding_nearly_all_weight(readout, tiny_model):
    """1 - 1e-9 of the weight: subtracting the token from the total would leave noise."""
    model = tiny_model(readout=readout, scale=1.0, dtype=torch.float32)
    torch.manual_seed(1)
    hidden = torch.randn(1, 6, 8)
    weights = torch.tensor([[1e-10, 2e-10, 0, 1 - 1e-9, 3e-10, 4e-10]], dtype=torch.float64)
    weights[0, 3] = 1 - (weights.sum() - weights[0, 3])
    found = removal.without_state(subject_of(model), hidden, weights.float()).double().softmax(-1)[0]
    precise = tiny_model(readout=readout, scale=1.0, dtype=torch.float64)
    for token in range(6):
        left = weights.clone()
        left[0, token] = 0
        left = left / left.sum()
        expected = precise.decoder((left.unsqueeze(-1) * hidden.double()).sum(1)).softmax(-1)[0]
        close(found[token], expected, atol=1e-6)


def test_steep_softmax_through_the_whole_measure(tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(encoder="average", alignment="dot"), tiny_batch(tiny_rows([6]))
    with torch.no_grad():
        encoded = model.encode(**inputs(batch))
        scores = model.model.alignment(encoded.hidden)[0, 1:7].sort(descending=True).values
        model.model.alignment.query.weight.mul_(22 / float(scores[0] - scores[1]))
        attention = model.attend(*model.encode(**inputs(batch)))[0, 1:7]
        assert 1 - float(attention.double().max()) < 1e-8
    made = run(LeaveOneOut, model, batch)
    precise = model.double()
    whole = probabilities(precise, batch)
    with torch.no_grad():
        hidden, mask, _ = precise.encode(**inputs(batch))
        for token in range(6):
            others = mask.clone()
            others[0, token + 1] = False
            again = precise.decode(hidden, precise.attend(hidden, others)).softmax(-1)[0]
            close(made[HIDDEN][0][token], distance(again, whole), atol=2e-5)
            close(made[TOKENS][0][token], distance(again, whole), atol=2e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_no_markers(encoder, tiny_model):
    """Without markers every token is attendable."""
    model = tiny_model(encoder=encoder, markers=False)
    ids = torch.tensor([[7, 8, 9, 10], [5, 6, 0, 0]])
    batch = {"input_ids": ids, "attention_mask": (ids != 0).long(), "instance_id": ["a", "b"]}
    found = run(LeaveOneOut, model, batch)[TOKENS]
    for text, values in (([7, 8, 9, 10], found[0]), ([5, 6], found[1])):
        whole = probabilities(model, {"input_ids": torch.tensor([text])})
        left = [torch.tensor([text[:token] + text[token + 1 :]]) for token in range(len(text))]
        close(values, [distance(probabilities(model, {"input_ids": ids}), whole) for ids in left])


@pytest.mark.parametrize("projection", ["sparsemax", "entmax15", "entmax"])
@pytest.mark.parametrize("readout", ["affine", "tanh"])
def test_states_without_weight_are_worth_exactly_nothing(projection, readout, tiny_model, tiny_rows, tiny_batch):
    """Rounding noise in their place would break ties that are there."""
    model = tiny_model(encoder="average", projection=projection, readout=readout, entmax_alpha=1.75, scale=6.0)
    batch = tiny_batch(tiny_rows([30, 28, 26]))
    attention = model.attend(*model.encode(**inputs(batch))).detach()
    made = run(LeaveOneOut, model, batch)
    for row, length in enumerate((30, 28, 26)):
        idle = (attention[row, 1 : 1 + length] == 0).numpy()
        assert idle.sum() > 5
        for column in (TOKENS, HIDDEN, REPROJECTED):  # deleting such a token is the same where there is no context
            assert (made[column][row][idle] == 0).all() and (made[column][row][~idle] > 0).all()


def test_total_variation_of_several_classes(tiny_model, tiny_rows, tiny_batch):
    made = run(LeaveOneOut, tiny_model(num_labels=4, scale=6.0), tiny_batch(tiny_rows([8])))
    assert all(0 <= value <= 1 for values in made.values() for value in values[0])
    close(perturbation._distance(torch.tensor([[[0.0, math.log(3)]]]), torch.tensor([[0.5, 0.5]]).double()), [[0.25]])
