"""Diagnostics by plain loops over states, maps and positions."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.metrics.pairwise import cosine_similarity

from attnfaith.data.in_memory import texts_in_memory
from attnfaith.data.taggers import UNIVERSAL
from attnfaith.interventions.targets import softmax
from attnfaith.measurement.registry import find
from attnfaith.models.decoders import BARRED
from attnfaith.subjects import SelfAttention, SubjectError, opened, subject_of
from tests import tolerances
from tests.interventions.test_flip_sets import asked
from tests.measuring import run
from tests.small_classifiers import classifier, tokenizer
from tests.taggers import BY_LETTER, offer


TEXTS = ["the old ships sailed slowly !", "a new ship sank", "", "! . !", "never bad ."]


# --------------------------------------------------------------------------------------- conicity


class Given:
    """A subject of two layers, of which nothing but states (B,T,H) is known; a state of NaN is no token's."""

    kind, num_labels, level, pad_token_id, device = "states of the tests", 2, "token", 0, torch.device("cpu")
    can = capabilities = frozenset({"token states"})
    depth = 2

    def __init__(self, *layers):
        self.layers = [torch.tensor(states) for states in layers]

    def attendable(self, batch):
        return ~self.layers[0].isnan().any(2)

    def token_states(self, batch, layer):
        return self.layers[layer]


def of_states(*texts, **options):
    """(absolute, signed) of each text, given by its states."""
    longest, size = max(map(len, texts)), len(texts[0][0])
    padded = [[*states, *[[np.nan] * size] * (longest - len(states))] for states in texts]
    other = np.where(np.isnan(padded), np.nan, 1.0).tolist()
    ids = {"input_ids": torch.ones(len(texts), longest, dtype=torch.long)}
    return list(zip(*run("conicity", Given(other, padded), ids, **options).values(), strict=True))


def test_closed_forms():
    orthogonal = (3 * np.eye(4)).tolist()
    values = of_states(
        orthogonal,
        [[1.0, 2.0, 0.0, 0.0], [2.0, 4.0, 0.0, 0.0]],  # one way
        [[1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]],  # no mean
        [[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]],
        [[3.0, 4.0, 0.0, 0.0], [3.0, -4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]],  # cos 3/5 twice, and a state of zeros
    )
    np.testing.assert_allclose(values, [(0.5, 0.5), (1, 1), (0, 0), (1, 1 / 3), (0.4, 0.4)], atol=1e-12)


def loops(states):
    """Of one text (T,H), as the paper writes it."""
    mean = sum(states) / len(states)
    cosines = [float(one @ mean) / (np.sqrt(one @ one) * np.sqrt(mean @ mean)) for one in states]
    return sum(map(abs, cosines)) / len(states), sum(cosines) / len(states)


@pytest.mark.parametrize("hierarchy", ["none", "sentence", "word"])
@pytest.mark.parametrize("encoder", ["bilstm", "average", "embedding"])
def test_pooled_states_by_plain_loops(encoder, hierarchy, tiny_model, tiny_rows):
    subject = subject_of(tiny_model(encoder=encoder, hierarchy=hierarchy))
    batch = subject.collate(tiny_rows((9, 0, 12, [9], 7), hierarchy=hierarchy))
    hidden, mask, _ = subject.encoded(batch)
    measured = run("conicity", subject, batch)
    for row, inside in enumerate(mask):
        states = hidden[row, inside].double().numpy()
        values = measured["conicity_absolute"][row], measured["conicity_signed"][row]
        if len(states) < 2:
            assert np.isnan(values).all()
            continue
        np.testing.assert_allclose(values, loops(states), atol=1e-9)
        cosines = cosine_similarity(states, states.mean(0, keepdims=True))
        np.testing.assert_allclose(values, (np.abs(cosines).mean(), cosines.mean()), atol=1e-9)
    with pytest.raises(SubjectError, match=r"layer=1: .* the model has 1, counted from 0"):
        find("conicity")(layer=1).check(subject, None)


@pytest.mark.parametrize("kind", ["bert", "albert", "distilbert"])  # an albert's layers are one module
@torch.no_grad()
def test_states_that_a_classifier_gives_out(kind):
    """Those of the last layer, or of another, of tokens alone; texts are read alone, so without padding."""
    subject = SelfAttention(classifier(kind), tokenizer())
    batch = subject.encode(TEXTS)
    assert subject.depth > 1
    for layer in ("last", 0, subject.depth - 1):
        measured = run("conicity", subject, batch, layer=layer)
        for row in range(len(TEXTS)):
            text = batch.alone(row)
            with subject.evaluating():
                every = subject.model(**subject.model_inputs(text), output_hidden_states=True).hidden_states
            states = every[-1 if layer == "last" else layer + 1][subject.attendable(text)].double().numpy()
            values = measured["conicity_absolute"][row], measured["conicity_signed"][row]
            np.testing.assert_allclose(values, loops(states) if len(states) > 1 else (np.nan, np.nan), atol=1e-5)
    first, last = (run("conicity", subject, batch, layer=layer)["conicity_signed"][0] for layer in (0, "last"))
    assert abs(first - last) > 1e-3


# --------------------------------------------------------------------------------------- groups


MARKED = [["ships", "slowly"], [], [], ["!"], ["never", "bad", "."]]


def of_texts(kind="bert", reduction="last"):
    """A subject and its batch as a measurement has it: with what tokens are called, and marks."""
    subject = SelfAttention(classifier(kind), tokenizer(kind == "bert"), reduction)
    rows = [{**row, "instance_id": str(number)} for number, row in enumerate(subject.rows(texts_in_memory(TEXTS)).to_list())]
    batch = subject.collate(rows)
    batch |= {name: [row[name] for row in rows] for name in ("tokens", "word_of_token")}
    batch["impermissible"] = torch.zeros_like(batch["input_ids"])
    inside = subject.attendable(batch)
    for row, words in enumerate(MARKED):
        own = [part in words for part in words_of_tokens(batch, row)]
        batch["impermissible"][row, inside[row]] = torch.tensor(own, dtype=torch.long)
    return subject, batch


def words_of_tokens(batch, row):
    """The word that each token of a text is of."""
    owners = batch["word_of_token"][row]
    words = {}
    for token, owner in zip(batch["tokens"][row], owners, strict=True):
        words[owner] = words.get(owner, "") + token.removeprefix("##")
    return [words[owner] for owner in owners]


@torch.no_grad()
def heads_of(subject, batch, row):
    """(H,L) of one text: the last layer's rows of [CLS], by the model's own account."""
    text = batch.alone(row)
    with subject.evaluating():
        maps = subject.model(**subject.model_inputs(text), output_attentions=True).attentions
    return text, maps[-1][0, :, 0].double().numpy()


def test_by_the_maps_that_a_model_gives_out(tmp_path, monkeypatch):
    offer(tmp_path, monkeypatch, "by_letter", BY_LETTER)
    subject, batch = of_texts()
    measured = run("group_mass", subject, batch, tagger="by_letter")
    names = ["impermissible", "punctuation", *UNIVERSAL, "markers"]
    assert measured["group_mass_names"] == [names] * len(TEXTS)
    for row in range(len(TEXTS)):
        text, heads = heads_of(subject, batch, row)
        inside, words = subject.attendable(text)[0].numpy(), words_of_tokens(batch, row)
        groups = {
            "impermissible": [word in MARKED[row] for word in words],
            "punctuation": [word in ("!", ".") for word in words],
            "DET": [word[0] == "t" for word in words],
            "NOUN": [word[0] == "s" for word in words],
            "PUNCT": [word in ("!", ".") for word in words],
        }
        groups["X"] = [not any(of_word) for of_word in zip(groups["DET"], groups["NOUN"], groups["PUNCT"], strict=True)]
        for place, name in enumerate(names):
            marks = np.zeros(len(inside), bool)
            if name == "markers":
                marks = ~inside
            elif name in groups:
                marks[inside] = groups[name]
            assert measured["group_mass_tokens"][row][place] == marks.sum()
            values = measured["group_mass"][row][place], measured["group_mass_head_max"][row][place]
            if not marks.any() or not (inside & ~marks).any():
                assert np.isnan(values).all(), name
                continue
            of_heads = heads[:, marks].sum(1)
            np.testing.assert_allclose(values, (of_heads.mean(), of_heads.max()), atol=1e-5, err_msg=name)


@pytest.mark.parametrize("hierarchy", ["none", "sentence", "word"])
def test_pooled_models(hierarchy, tiny_model, tiny_rows):
    """At each level by a loop over positions; a sentence is impermissible where one of its words is."""
    subject = subject_of(tiny_model(encoder="bigru", hierarchy=hierarchy))
    rows = tiny_rows((9, 0, 12, [9], 7), hierarchy=hierarchy)
    batch = subject.collate(rows)
    batch["impermissible"] = (batch["input_ids"] % 4 == 1).long()
    batch["tokens"] = [["..." if place == 1 else token for place, token in enumerate(row["tokens"])] for row in rows]
    measured = run("group_mass", subject, batch)
    assert measured["group_mass_names"] == [["impermissible", "punctuation"]] * 5 and "group_mass_head_max" not in measured
    mask, items = subject.attendable(batch), subject.items(batch)
    some = 0
    for row in range(5):
        weights = subject.attention(batch)[row, mask[row]].double().numpy()
        marks = np.zeros(len(weights), bool)
        if items is None:
            marks = batch["impermissible"][row, mask[row]].bool().numpy()
        else:
            for item, mark in zip(items[row].tolist(), batch["impermissible"][row].tolist(), strict=True):
                if item >= 0 and mark:
                    marks[item] = True
        defined = marks.any() and not marks.all()
        some += defined
        np.testing.assert_allclose(measured["group_mass"][row][0], weights[marks].sum() if defined else np.nan, atol=1e-6)
        np.testing.assert_allclose(measured["group_mass"][row][1], weights[1] if len(weights) > 1 else np.nan, atol=1e-6)
        assert list(measured["group_mass_tokens"][row]) == [marks.sum(), int(len(weights) > 1)]
    assert some


def test_what_is_refused(tiny_model, monkeypatch):
    with pytest.raises(ValueError, match="no tagger is called 'flair'"):
        find("group_mass")(tagger="flair")
    subject = subject_of(tiny_model(hierarchy="sentence"))
    monkeypatch.setattr("attnfaith.interventions.diagnostics.tagger_of", lambda name: None)  # as one that is installed
    with pytest.raises(SubjectError, match="level='word'"):
        find("group_mass")(tagger="denckring").check(subject, None)
    find("group_mass")().check(subject, None)


# --------------------------------------------------------------------------------------- impermissible


DEFINED = (0, 3)  # texts with impermissible tokens and others


@torch.no_grad()
def values_of(subject, text, layer):
    """(H,L,D) of one text, by the layer's own linear module."""
    inner = subject.model.bert
    with subject.evaluating():
        states = inner(**subject.model_inputs(text), output_hidden_states=True).hidden_states[layer]
    attention = inner.encoder.layer[layer].attention.self
    return attention.value(states)[0].unflatten(1, (attention.num_attention_heads, -1)).transpose(0, 1).double().numpy()


@pytest.mark.parametrize("reduction", ["last", {"layers": 0}, {"layers": "last", "head": 1}])
def test_values_of_heads(reduction):
    """As the authors' code has it: lengths of values by head, markers in the sum, the mean and the largest of heads."""
    subject, batch = of_texts(reduction=reduction)
    measured = run("value_norm_share", subject, batch)
    for row in range(len(TEXTS)):
        values = measured["value_norm_share"][row], measured["value_norm_share_head_max"][row]
        if row not in DEFINED:
            assert np.isnan(values).all()
            continue
        text = batch.alone(row)
        layer = subject.reduction.chosen(subject.depth)[0]
        lengths = np.linalg.norm(values_of(subject, text, layer), axis=2)
        shares = [sum(one[place] for place in np.flatnonzero(batch["impermissible"][row])) / sum(one) for one in lengths]
        shares = shares if subject.reduction.head is None else shares[subject.reduction.head :][:1]
        np.testing.assert_allclose(values, (np.mean(shares), np.max(shares)), atol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@torch.no_grad()
def test_texts_without_them_are_read(kind):
    """The same words written as a text of their own."""
    subject, batch = of_texts(kind)
    measured = run("permissible_only", subject, batch)["permissible_only_probs"]
    for row, text in enumerate(TEXTS):
        if row not in DEFINED:
            assert np.isnan(measured[row]).all() and len(measured[row]) == subject.num_labels
            continue
        ids = batch["input_ids"][row][batch["attention_mask"][row].bool() & (batch["impermissible"][row] == 0)]
        with subject.evaluating():
            given = {"input_ids": ids[None], "token_type_ids": torch.zeros_like(ids)[None]}
            probs = subject.model(**given).logits.double().softmax(-1)[0]
        assert len(ids) < batch["attention_mask"][row].sum(), text
        tolerances.close(measured[row], probs, dtype=torch.float32, depth=4)


@pytest.mark.parametrize("name", ["permissible_only", "value_norm_share"])
def test_nothing_is_marked(name):
    subject = SelfAttention(classifier("bert"), tokenizer())
    with pytest.raises(SubjectError, match=f"^'{name}' needs 'impermissible' in the batch"):
        run(name, subject, subject.encode(TEXTS))
    with pytest.raises(SubjectError, match=f"^'{name}' needs marks .* data.impermissible"):
        find(name)().check(subject, Dataset.from_dict({"tokens": [["a"]]}))
    find(name)().check(subject, Dataset.from_dict({"impermissible": [[0, 1]]}))


# --------------------------------------------------------------------------------------- logits


CELLS = (
    {"encoder": "bilstm", "projection": "softmax"},
    {"encoder": "cnn", "projection": "sparsemax", "num_labels": 3},
    {"encoder": "embedding", "projection": "uniform", "query": "text"},
    {"encoder": "bigru", "projection": "softmax", "hierarchy": "sentence"},
)
LENGTHS = (7, 0, [9], 4, 12)


def prediction(columns, row, attention):
    """The prediction under an attention (T,), from the columns alone."""
    logits = attention @ columns["token_logits"][row].astype(np.float64) + columns["token_logits_bias"][row]
    return softmax(logits)


def test_by_hand():
    """Two tokens, two classes: values are what each token says alone, and the bias what is said of nothing."""
    model, batch = asked([([3, 1], [[1.0, 0.0], [0.0, 2.0]]), ([], [])], [0.5, -0.5])
    columns = run("token_logits", model, batch)
    assert columns["token_logits"][0].tolist() == [[1.0, 0.0], [0.0, 2.0]] and columns["token_logits"][1].shape == (0, 2)
    assert [values.tolist() for values in columns["token_logits_bias"]] == [[0.5, -0.5]] * 2
    np.testing.assert_allclose(prediction(columns, 0, np.array([0.75, 0.25])), softmax(np.array([1.25, 0.0])))


@pytest.mark.parametrize("fields", CELLS, ids=lambda fields: "-".join(map(str, fields.values())))
def test_any_attention_gives_what_the_model_says(fields, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(**fields)
    rows = tiny_rows(LENGTHS, pair=fields.get("query") == "text", hierarchy=fields.get("hierarchy", "none"))
    subject, batch = opened(model, tiny_batch(rows))
    columns, generator = run("token_logits", model, batch), np.random.default_rng(0)
    mask = subject.attendable(batch).numpy()
    other = generator.dirichlet(np.ones(mask.shape[1]), len(mask)) * mask
    other /= np.maximum(other.sum(1, keepdims=True), 1e-30)
    logits = subject.intervene(batch, torch.from_numpy(other[:, None]).float())[:, 0].double().detach()
    for row, keep in enumerate(mask):
        np.testing.assert_allclose(prediction(columns, row, other[row][keep]), logits[row].softmax(-1).numpy(), atol=2e-6)


def test_barred_classes_have_no_numbers():
    model, batch = asked([([1, 1], [[1.0, 0.0, 3.0]] * 2)], [0.0, 0.0, 0.0])
    batch["answer_mask"] = torch.tensor([[True, False, True]])
    model.bias = torch.tensor([0.0, BARRED, 0.0], dtype=torch.float64)
    columns = run("token_logits", model, batch)
    assert np.isnan(columns["token_logits_bias"][0]).tolist() == [False, True, False]
    np.testing.assert_array_equal(columns["token_logits"][0], [[1.0, np.nan, 3.0]] * 2)
