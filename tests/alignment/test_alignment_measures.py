"""Measures of alignment, each against a second route to the same numbers, and as they are read: alone, together, turned."""

import functools

import numpy as np
import pytest
import torch

from attnfaith.measurement.registry import find, names
from attnfaith.subjects.pairs import of_sources, of_targets, word_sums
from tests import tolerances
from tests.measuring import run, run_pairs
from tests.small_translators import KINDS, PAIRS, batch, subject


NAMES = names("pairs")
CHEAP = {"integrated_gradients": {"tolerance": 1e6}, "cross_permutation": {"draws": 2}}
GIVEN = ("input_ids", "attention_mask", "decoder_input_ids")
PAIR = PAIRS[0]


close = functools.partial(tolerances.close, dtype=torch.float32, depth=8)  # an encoder and a decoder of two layers


@pytest.fixture(autouse=True)
def mode():
    with torch.no_grad():
        yield


def measured(name, kind, some, **options):
    with subject(kind).evaluating():
        return run(name, subject(kind), some, reads="pairs", **{**CHEAP.get(name, {}), **options})


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


class Seen:
    """A context: what modules of a model were given and gave, by name."""

    def __init__(self, model):
        self.model, self.given, self.made = model, {}, {}

    def __enter__(self):
        self.handles = [
            module.register_forward_hook(lambda module, args, found, name=name: self._keep(name, args, found))
            for name, module in self.model.named_modules()
        ]
        return self

    def _keep(self, name, args, found):
        self.made[name] = found[0] if isinstance(found, tuple) else found
        if args and isinstance(args[0], torch.Tensor):
            self.given[name] = args[0]

    def __exit__(self, *error):
        for handle in self.handles:
            handle.remove()


# ---------------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("name", NAMES)
def test_a_measure_gives_what_it_declares(name):
    cls = find(name, "pairs")
    found = measured(name, "marian", batch("marian"))
    assert set(found) == set(cls.columns_for(subject("marian")))
    sizes = {"L": 2, "A": 4, "R": 2, "K": 2}
    for column, values in found.items():
        for (source, target), value in zip(PAIRS, values, strict=True):
            counts = sizes | {"T": len(source.split()), "G": len(target.split())}
            assert np.shape(value) == tuple(counts[axis] for axis in cls.columns[column].axes), column
            low, high = cls.columns[column].range or (None, None)
            assert low is None or np.nanmin(value) >= low
            assert high is None or np.nanmax(value) <= high + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["marian", "t5", "bahdanau"])
@pytest.mark.parametrize("name", NAMES)
def test_a_pair_is_measured_as_alone_whatever_is_beside_it(name, kind):
    """In a batch with longer pairs, in another order, and padded further."""
    together, reversed_ones = batch(kind), batch(kind, PAIRS[::-1])
    reversed_ones["instance_id"] = ["2", "1", "0"]
    together, turned = measured(name, kind, together), measured(name, kind, reversed_ones)
    for row in (0, 1):
        alone = batch(kind, PAIRS[row : row + 1])
        alone["instance_id"] = [str(row)]
        alone = measured(name, kind, alone)
        for column, values in together.items():
            close(values[row], alone[column][0], condition=10)
            close(values[row], turned[column][2 - row], condition=10)


# ---------------------------------------------------------------------------------------------- attention and norms


@pytest.mark.parametrize("kind", KINDS)
def test_attention(kind):
    of, pair = subject(kind), batch(kind, [PAIR])
    with of.evaluating():
        output = of.model(**{name: pair[name] for name in GIVEN}, output_attentions=True)
    tokens = torch.cat(output.cross_attentions).numpy()
    found = measured("attention", kind, pair)
    expected = to_words(pair, tokens)
    close(found["alignment_attention"][0], expected)
    close(found["alignment_attention_mean"][0], expected.mean(1))
    close(found["alignment_marker_mass"][0] + expected.sum(-1), np.ones(expected.shape[:-1]))
    assert (found["alignment_marker_mass"][0] > 0).all()


def cross_vectors(model, pair, output):
    """(L,N,S,E) of a Marian: sum over heads of weight times out_proj(v_proj(state)), by its modules' weights."""
    states, layers = output.encoder_last_hidden_state[0], []
    for layer, weights in zip(model.model.decoder.layers, output.cross_attentions, strict=True):
        part = layer.encoder_attn
        values = part.v_proj(states).reshape(len(states), part.num_heads, -1)
        whole = 0
        for head in range(part.num_heads):
            columns = part.out_proj.weight[:, head * part.head_dim : (head + 1) * part.head_dim]
            whole = whole + weights[0, head][:, :, None] * (values[:, head] @ columns.T)[None]
        layers.append(whole)
    return torch.stack(layers)


@pytest.mark.parametrize("kind", ["marian", "mbart"])
def test_norm_by_the_modules_weights(kind):
    of, pair = subject(kind), batch(kind, [PAIR])
    with of.evaluating():
        output = of.model(**{name: pair[name] for name in GIVEN}, output_attentions=True)
    lengths = cross_vectors(of.model, pair, output).norm(dim=-1).numpy()
    close(measured("norm", kind, pair)["alignment_norm"][0], to_words(pair, lengths))


@pytest.mark.parametrize("kind", ["bahdanau", "luong"])
def test_norm_of_recurrent_translators_is_what_a_source_token_adds_to_the_output(kind):
    of, pair = subject(kind), batch(kind, [PAIR])
    output = of.model(**{name: pair[name] for name in GIVEN}, output_attentions=True)
    hidden, weights = output.encoder_last_hidden_state[0], output.cross_attentions[0][0, 0]
    lengths = torch.stack([weights[:, s] * of.model.read_out.context(hidden[s]).norm() for s in range(len(hidden))], 1)
    close(measured("norm", kind, pair)["alignment_norm"][0], to_words(pair, lengths[None].numpy()))


# ---------------------------------------------------------------------------------------------- value zeroing


@pytest.mark.parametrize("kind", ["marian", "mbart", "t5"])
def test_value_zeroing_by_editing_what_the_value_projection_gives(kind):
    """In one layer at a time, so that what it is given stays: no other layer is fed."""
    of, pair = subject(kind), batch(kind, [PAIR])
    values = "layer.1.EncDecAttention.v" if kind == "t5" else "encoder_attn.v_proj"
    given = {name: pair[name] for name in GIVEN}
    measured_ones = measured("value_zeroing", kind, pair)["alignment_value_zeroing"][0]
    for layer, block in enumerate(of.sites.blocks):
        with of.evaluating():
            with Seen(of.model) as own:
                of.model(**given)
            expected = []
            for word in range(len(PAIR[0].split())):
                gone = pair["source_words"][0] == word
                handle = of.model.get_submodule(f"{block}.{values}").register_forward_hook(
                    lambda module, args, found, gone=gone: found * ~gone[None, :, None]
                )
                with Seen(of.model) as changed:
                    of.model(**given)
                handle.remove()
                expected.append(
                    1 - torch.cosine_similarity(own.made[block][0].double(), changed.made[block][0].double(), -1)
                )
        means = torch.einsum("rgn,nt->rgt", of_targets(pair, 0), torch.stack(expected, 1))
        close(measured_ones[layer], means, condition=10)
        assert measured_ones[layer].max() > 1e-3


@pytest.mark.parametrize("kind", ["bahdanau", "luong"])
def test_value_zeroing_of_recurrent_translators_at_the_first_word(kind):
    """Before the first step nothing is other: zeroed states weigh in the sum, and no weight is."""
    of, pair = subject(kind), batch(kind, [PAIR])
    model, given = of.model, {name: pair[name] for name in GIVEN}
    (own,) = of.results_without(pair, of_sources(pair, 0).T > 0)
    attend = model.decoder.attend
    with Seen(model) as seen:
        model(**given)
    read = []
    for word in range(len(PAIR[0].split())):
        gone = pair["source_words"] == word
        model.decoder.attend = lambda *asked, gone=gone: attend(*asked).masked_fill(
            gone if asked[1].dim() == 2 else gone[:, None], 0
        )
        with Seen(model) as changed:
            model(**given)
        del model.decoder.attend
        read.append(changed.made["read_out"][0, 0])
    close(own[0], seen.made["read_out"][0])
    close(own[1][:, 0], torch.stack(read))


# ---------------------------------------------------------------------------------------------- ALTI


def nearness(vectors, state):
    """Rows of shares of vectors (N,M,E) in states (N,E), by loops."""
    rows = np.zeros(vectors.shape[:2])
    for n, own in enumerate(np.asarray(state, np.float64)):
        for m, vector in enumerate(np.asarray(vectors[n], np.float64)):
            rows[n, m] = max(0.0, np.abs(own).sum() - np.abs(own - vector).sum())
    return rows / rows.sum(1, keepdims=True)


def own_vectors(part, states, weights):
    """(N,S,E): what attention adds for each source position, by the weights of its modules."""
    values = part.v_proj(states).reshape(len(states), part.num_heads, -1)
    of_heads = [
        weights[head][:, :, None]
        * (values[:, head] @ part.out_proj.weight[:, head * part.head_dim : (head + 1) * part.head_dim].T)[None]
        for head in range(part.num_heads)
    ]
    return sum(of_heads)


def normed(norm, vectors, given):
    """Vectors (N,M,E) through a layer norm whose scale is that of given (N,E)."""
    deviation = torch.sqrt(given.var(-1, unbiased=False) + norm.eps)
    return norm.weight * (vectors - vectors.mean(-1, keepdim=True)) / deviation[:, None, None]


def self_shares(part, norm, seen, name, weights):
    """Shares of a post-norm block over itself: module names of the attention, `name`, and of the norm that follows."""
    state = seen.residual[name]
    vectors = own_vectors(part, state, weights) + torch.eye(len(state))[:, :, None] * state[None]
    given = state + seen.made[f"{name}"][0]
    return nearness(normed(norm, vectors, given), norm(given))


def test_alti_by_sums_over_every_vector():
    """Of a Marian, whose norms stand behind: each vector by hand, in the cross-attention of each layer, and through all."""
    of, pair = subject("marian"), batch("marian", [PAIR])
    model = of.model.model
    with of.evaluating(), Seen(of.model) as seen:
        output = of.model(**{name: pair[name] for name in GIVEN}, output_attentions=True)
    seen.residual = {}
    whole = np.eye(pair["input_ids"].shape[1])
    for number, layer in enumerate(model.encoder.layers):
        name = f"model.encoder.layers.{number}.self_attn"
        seen.residual[name] = seen.given[f"model.encoder.layers.{number}"][0]
        weights = output.encoder_attentions[number][0]
        whole = self_shares(layer.self_attn, layer.self_attn_layer_norm, seen, name, weights) @ whole
    crossed, total = [], np.zeros((pair["labels"].shape[1], len(whole)))
    for number, layer in enumerate(model.decoder.layers):
        block = f"model.decoder.layers.{number}"
        seen.residual[f"{block}.self_attn"] = seen.given[block][0]
        weights = output.decoder_attentions[number][0]
        of_target = self_shares(layer.self_attn, layer.self_attn_layer_norm, seen, f"{block}.self_attn", weights)
        before = seen.made[f"{block}.self_attn_layer_norm"][0]
        vectors = own_vectors(layer.encoder_attn, output.encoder_last_hidden_state[0], output.cross_attentions[number][0])
        given = before + seen.made[f"{block}.encoder_attn"][0]
        vectors = normed(layer.encoder_attn_layer_norm, torch.cat([vectors, before[:, None]], 1), given)
        shares = nearness(vectors, layer.encoder_attn_layer_norm(given))
        crossed.append(shares[:, :-1])
        total = shares[:, :-1] @ whole + shares[:, -1:] * (of_target @ total)
    found = measured("alti", "marian", pair)
    close(found["alignment_alti"][0], to_words(pair, np.stack(crossed)), condition=10)
    close(found["alignment_alti_total"][0], to_words(pair, total), condition=10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_vectors_of_a_state_and_its_biases_are_the_state(kind):
    """The sum of all vectors is the state but for biases: what is left is the same in all rows, norms' scales aside."""
    of, pair = subject(kind), batch(kind, [PAIR])
    with of.evaluating():
        for block in of.cross_parts(pair):
            whole = torch.cat([parts.sum(1) for _, parts in block.all()])
            left = block.whole - whole
            if getattr(block, "middle", None) is None:
                close(left, left[:1].expand_as(left), of_size=float(block.whole.abs().max()))
            else:  # biases too go through a norm whose scale is each row's
                assert float((left - left.mean(0)).abs().max()) < 0.1 * float(block.whole.abs().max())
            assert float(whole.abs().max()) > 0.1


# ---------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize(("kind", "step", "within"), [("marian", 1e-5, 1e-6), ("luong", 1e-5, 1e-6), ("t5", 2e-3, 1e-3)])
def test_gradients_by_finite_differences_in_double(kind, step, within):
    """T5 takes norms and weights in float32 in any case, so that its steps have to be larger."""
    of, pair = subject(kind).in_double(), batch(kind, [PAIR])
    embedded = of.embed(pair)
    noise = torch.randn(embedded.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with of.evaluating():
        lengths = run_pairs("gradient", of, pair)["alignment_gradient"][0]
        products = run_pairs("gradient_x_input", of, pair)["alignment_gradient_x_input"][0]

        def slopes(way):
            up, down = (word_sums(pair, of.log_probs(pair, embedded + sign * step * way))[0] for sign in (1, -1))
            return ((up - down) / (2 * step)).numpy()

        for word in (0, 5):
            place = (pair["source_words"][0] == word)[:, None]
            np.testing.assert_allclose(products[:, word], slopes(embedded * place), rtol=1e-4, atol=within)
            steepest = np.abs(slopes(noise * place))
            assert (steepest <= lengths[:, word] * float((noise * place).norm()) * (1 + 1e-4) + within).all()
    assert (lengths > 0).all()


@pytest.mark.parametrize("kind", ["marian", "bahdanau"])
def test_integrated_gradients_are_complete(kind):
    of, pair = subject(kind), batch(kind, [PAIR])
    found = measured("integrated_gradients", kind, pair, baseline="zero")
    embedded = of.embed(pair)
    nothing = torch.where((pair["source_words"] >= 0)[..., None], 0.0, embedded)
    with of.evaluating():
        difference = (word_sums(pair, of.log_probs(pair)) - word_sums(pair, of.log_probs(pair, nothing)))[0]
    parts, residual = found["alignment_integrated_gradients"][0], found["integrated_gradients_residual"][0]
    close(parts.sum(1) - residual, difference, condition=10)
    assert (np.abs(residual) <= 0.01 * np.maximum(np.abs(parts).max(1), difference.abs().numpy()) + 1e-4).all()


# ---------------------------------------------------------------------------------------------- occlusion


@pytest.mark.parametrize("kind", KINDS)
def test_occlusion_by_sentences_without_a_word(kind):
    of, pair = subject(kind), batch(kind, [PAIR])
    found = measured("occlusion", kind, pair)["alignment_occlusion"][0]
    words = PAIR[0].split()
    with of.evaluating():
        whole = word_sums(pair, of.log_probs(pair))[0]
        for word in range(len(words)):
            shorter = of.encode([(" ".join(words[:word] + words[word + 1 :]), PAIR[1])])
            less = word_sums(shorter, of.log_probs(shorter))[0]
            close(found[:, word], whole - less, of_size=float(whole.abs().max()))
