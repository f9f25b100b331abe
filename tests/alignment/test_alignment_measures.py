"""Measures of alignment, each against a second route to the same numbers, and as they are read: alone, together, turned."""

import copy
import functools

import numpy as np
import pytest
import torch

from attnfaith.measurement.registry import find, names
from attnfaith.subjects import subject_of
from attnfaith.subjects.translator import of_targets, word_sums
from tests import tolerances
from tests.measuring import run, run_pairs
from tests.small_translators import INPUTS, KINDS, PAIRS, batch, subject, tokenizer


NAMES = names("pairs")
CHEAP = {"integrated_gradients": {"tolerance": 1e6}, "cross_permutation": {"draws": 2}}
PAIR = PAIRS[0]


close = functools.partial(tolerances.close, dtype=torch.float32, depth=8)  # an encoder and a decoder of two layers


@pytest.fixture(autouse=True)
def mode():
    with torch.no_grad():
        yield


def measured(name, kind, some, **options):
    with subject(kind).evaluating():
        return run(name, subject(kind), some, reads="pairs", **{**CHEAP.get(name, {}), **options})


def outputs_of(kind, pair):
    with subject(kind).evaluating():
        return subject(kind).model(**{name: pair[name] for name in INPUTS}, output_attentions=True)


def to_words(pair, tokens):
    """(...,2,G,T) of (...,N,S), by loops."""
    source, target = pair["source_words"][0].tolist(), pair["target_words"][0].tolist()
    words = np.zeros((*tokens.shape[:-2], 2, max(target) + 1, max(source) + 1))
    for g in range(max(target) + 1):
        rows = [row for row, word in enumerate(target) if word == g]
        for t in range(max(source) + 1):
            columns = [column for column, word in enumerate(source) if word == t]
            for later in (0, 1):
                values = np.stack([tokens[..., row + later, column] for row in rows for column in columns])
                words[..., later, g, t] = values.sum(0) / len(rows)
    return words


class Calls:
    """A context: the first argument and the result of each module of a model, by name."""

    def __init__(self, model):
        self.model, self.inputs, self.results = model, {}, {}

    def __enter__(self):
        self.handles = [
            module.register_forward_hook(lambda module, args, result, name=name: self._keep(name, args, result))
            for name, module in self.model.named_modules()
        ]
        return self

    def _keep(self, name, args, result):
        self.results[name] = result[0] if isinstance(result, tuple) else result
        if args and isinstance(args[0], torch.Tensor):
            self.inputs[name] = args[0]

    def __exit__(self, *error):
        for handle in self.handles:
            handle.remove()


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "marian") for name in NAMES]
    + [pytest.param(name, kind, marks=pytest.mark.slow) for name in NAMES for kind in ("t5", "bahdanau")],
)
def test_contract(name, kind):
    """What is declared; a pair is the same in a batch with longer pairs, alone, and in another order."""
    cls, turned = find(name, "pairs"), batch(kind, PAIRS[::-1])
    if lacking := cls.needs - subject(kind).capabilities:
        with pytest.raises(ValueError, match=sorted(lacking)[0]):
            measured(name, kind, batch(kind))
        return
    turned["instance_id"] = ["2", "1", "0"]
    together, turned = measured(name, kind, batch(kind)), measured(name, kind, turned)
    assert set(together) == set(cls.columns_for(subject(kind)))
    layers, heads = subject(kind).attention(batch(kind)).shape[1:3]
    for row, (source, target) in enumerate(PAIRS):
        alone = batch(kind, PAIRS[row : row + 1])
        alone["instance_id"] = [str(row)]
        alone = measured(name, kind, alone)
        counts = {"L": layers, "A": heads, "R": 2, "K": 2, "T": len(source.split()), "G": len(target.split())}
        for column, values in together.items():
            close(values[row], alone[column][0], condition=10)
            close(values[row], turned[column][2 - row], condition=10)
            assert np.shape(values[row]) == tuple(counts[axis] for axis in cls.columns[column].axes), column
            low, high = cls.columns[column].range or (None, None)
            assert low is None or np.nanmin(values[row]) >= low
            assert high is None or np.nanmax(values[row]) <= high + 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_attention(kind):
    pair = batch(kind, [PAIR])
    expected = to_words(pair, torch.cat(outputs_of(kind, pair).cross_attentions).numpy())
    columns = {name: values[0] for name, values in measured("attention", kind, pair).items()}
    close(columns["alignment_attention"], expected)
    close(columns["alignment_attention_mean"], expected.mean(1))
    close(columns["alignment_marker_mass"] + expected.sum(-1), np.ones(expected.shape[:-1]))
    assert (columns["alignment_marker_mass"] > 0).all()


def vectors_of(part, states, weights):
    """(N,S,E): what a module of attention adds for each source position, by its weights."""
    values = part.v_proj(states).reshape(len(states), part.num_heads, -1)
    heads = []
    for head in range(part.num_heads):
        columns = part.out_proj.weight[:, head * part.head_dim : (head + 1) * part.head_dim]
        heads.append(weights[head][:, :, None] * (values[:, head] @ columns.T)[None])
    return sum(heads)


@pytest.mark.parametrize("kind", ["marian", "mbart", "bahdanau", "luong"])
def test_norm_by_the_modules_weights(kind):
    """Of recurrent translators, what a source token adds to the output layer."""
    pair, model = batch(kind, [PAIR]), subject(kind).model
    output = outputs_of(kind, pair)
    states, crosses = output.encoder_last_hidden_state[0], output.cross_attentions
    if kind in ("bahdanau", "luong"):
        lengths = [crosses[0][0, 0] * model.read_out.context(states).norm(dim=-1)]
    else:
        parts = zip(model.model.decoder.layers, crosses, strict=True)
        lengths = [vectors_of(layer.encoder_attn, states, weights[0]).norm(dim=-1) for layer, weights in parts]
    close(measured("norm", kind, pair)["alignment_norm"][0], to_words(pair, torch.stack(lengths).numpy()))


@pytest.mark.parametrize("kind", ["marian", "mbart", "t5"])
def test_value_zeroing_by_editing_what_the_value_projection_gives(kind):
    """In one layer at a time, so that its input stays: no other layer is fed."""
    own, pair = subject(kind), batch(kind, [PAIR])
    values = "layer.1.EncDecAttention.v" if kind == "t5" else "encoder_attn.v_proj"
    inputs = {name: pair[name] for name in INPUTS}
    zeroed = measured("value_zeroing", kind, pair)["alignment_value_zeroing"][0]
    with own.evaluating():
        for layer, block in enumerate(own.sites.blocks):
            with Calls(own.model) as plain:
                own.model(**inputs)
            distances = []
            for word in range(len(PAIR[0].split())):
                gone = pair["source_words"][0] == word
                handle = own.model.get_submodule(f"{block}.{values}").register_forward_hook(
                    lambda module, args, result, gone=gone: result * ~gone[None, :, None]
                )
                with Calls(own.model) as changed:
                    own.model(**inputs)
                handle.remove()
                states = (calls.results[block][0].double() for calls in (plain, changed))
                distances.append(1 - torch.cosine_similarity(*states, -1))
            close(zeroed[layer], torch.einsum("rgn,nt->rgt", of_targets(pair, 0), torch.stack(distances, 1)), condition=10)
            assert zeroed[layer].max() > 1e-3


def nearness(vectors, state):
    """Shares (N,M) of vectors (N,M,E) in states (N,E)."""
    state = state.double()
    shares = state.abs().sum(-1, keepdim=True) - (state[:, None] - vectors.double()).abs().sum(-1)
    shares = shares.clamp(min=0).numpy()
    return shares / shares.sum(1, keepdims=True)


def normed(norm, vectors, scaled_by):
    """Vectors (N,M,E) through a layer norm whose scale is that of scaled_by (N,E)."""
    deviation = torch.sqrt(scaled_by.var(-1, unbiased=False) + norm.eps)
    return norm.weight * (vectors - vectors.mean(-1, keepdim=True)) / deviation[:, None, None]


def test_alti_by_sums_over_every_vector():
    """Of a Marian, whose norms stand behind: each vector by hand, in the cross-attention of each layer, and through all."""
    own, pair = subject("marian"), batch("marian", [PAIR])
    model = own.model.model
    with Calls(own.model) as calls:
        output = outputs_of("marian", pair)

    def self_shares(block, layer, weights):
        """Shares of a block over itself, from the state that its layer reads."""
        state = calls.inputs[block][0]
        vectors = vectors_of(layer.self_attn, state, weights) + torch.eye(len(state))[:, :, None] * state[None]
        whole = state + calls.results[f"{block}.self_attn"][0]
        return nearness(normed(layer.self_attn_layer_norm, vectors, whole), layer.self_attn_layer_norm(whole))

    mixed = np.eye(pair["input_ids"].shape[1])
    for number, layer in enumerate(model.encoder.layers):
        mixed = self_shares(f"model.encoder.layers.{number}", layer, output.encoder_attentions[number][0]) @ mixed
    crossed, total = [], np.zeros((pair["labels"].shape[1], len(mixed)))
    for number, layer in enumerate(model.decoder.layers):
        block, weights = f"model.decoder.layers.{number}", output.cross_attentions[number][0]
        of_target = self_shares(block, layer, output.decoder_attentions[number][0])
        before = calls.results[f"{block}.self_attn_layer_norm"][0]
        vectors = vectors_of(layer.encoder_attn, output.encoder_last_hidden_state[0], weights)
        whole = before + calls.results[f"{block}.encoder_attn"][0]
        vectors = normed(layer.encoder_attn_layer_norm, torch.cat([vectors, before[:, None]], 1), whole)
        shares = nearness(vectors, layer.encoder_attn_layer_norm(whole))
        crossed.append(shares[:, :-1])
        total = shares[:, :-1] @ mixed + shares[:, -1:] * (of_target @ total)
    columns = measured("alti", "marian", pair)
    close(columns["alignment_alti"][0], to_words(pair, np.stack(crossed)), condition=10)
    close(columns["alignment_alti_total"][0], to_words(pair, total), condition=10)


@pytest.mark.parametrize(("kind", "step", "within"), [("marian", 1e-5, 1e-6), ("luong", 1e-5, 1e-6), ("t5", 2e-3, 1e-3)])
def test_gradients_by_finite_differences_in_double(kind, step, within):
    """T5 takes norms and weights in float32 in any case, so that its steps have to be larger."""
    own = subject_of(copy.deepcopy(subject(kind).model).double(), tokenizer())
    pair = batch(kind, [PAIR])
    embedded = own.embed(pair)
    noise = torch.randn(embedded.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with own.evaluating():
        lengths = run_pairs("gradient", own, pair)["alignment_gradient"][0]
        products = run_pairs("gradient_x_input", own, pair)["alignment_gradient_x_input"][0]

        def slopes(way):
            up, down = (word_sums(pair, own.log_probs(pair, embedded + sign * step * way))[0] for sign in (1, -1))
            return ((up - down) / (2 * step)).numpy()

        for word in (0, 5):
            place = (pair["source_words"][0] == word)[:, None]
            np.testing.assert_allclose(products[:, word], slopes(embedded * place), rtol=1e-4, atol=within)
            steepest = np.abs(slopes(noise * place))
            assert (steepest <= lengths[:, word] * float((noise * place).norm()) * (1 + 1e-4) + within).all()
    assert (lengths > 0).all()


@pytest.mark.parametrize("kind", ["marian", "bahdanau"])
def test_integrated_gradients_are_complete(kind):
    own, pair = subject(kind), batch(kind, [PAIR])
    columns = measured("integrated_gradients", kind, pair, baseline="zero")
    nothing = torch.where((pair["source_words"] >= 0)[..., None], 0.0, own.embed(pair))
    with own.evaluating():
        difference = (word_sums(pair, own.log_probs(pair)) - word_sums(pair, own.log_probs(pair, nothing)))[0]
    parts, residual = columns["alignment_integrated_gradients"][0], columns["integrated_gradients_residual"][0]
    close(parts.sum(1) - residual, difference, condition=10)
    assert (np.abs(residual) <= 0.01 * np.maximum(np.abs(parts).max(1), difference.abs().numpy()) + 1e-4).all()


@pytest.mark.parametrize("kind", ["marian", "t5", "luong"])
def test_occlusion_by_sentences_without_a_word(kind):
    own, pair, words = subject(kind), batch(kind, [PAIR]), PAIR[0].split()
    falls = measured("occlusion", kind, pair)["alignment_occlusion"][0]
    with own.evaluating():
        whole = word_sums(pair, own.log_probs(pair))[0]
        for word in range(len(words)):
            shorter = own.encode([(" ".join(words[:word] + words[word + 1 :]), PAIR[1])])
            less = word_sums(shorter, own.log_probs(shorter))[0]
            close(falls[:, word], whole - less, of_size=float(whole.abs().max()))


def test_a_baseline_of_padding_needs_a_padding_token(monkeypatch):
    monkeypatch.setattr(type(subject("luong")), "pad_token_id", None)
    with pytest.raises(ValueError, match="baseline='padding'"):
        run_pairs("integrated_gradients", subject("luong"), batch("luong"), baseline="padding")
