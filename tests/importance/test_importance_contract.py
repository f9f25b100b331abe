"""What every measure of importance and every experiment keeps to: tested for a new file because it exists."""

import copy
import functools
import itertools
import math
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from transformers import BatchEncoding, BertForSequenceClassification

from attnfaith import SelfAttentionClassifierForSequenceClassification, record
from attnfaith.data.collation import OF_POSITIONS
from attnfaith.draws import default_dtype
from attnfaith.importance import state_lengths
from attnfaith.interventions import climb
from attnfaith.measurement.registry import classes, find, names
from attnfaith.models import projections
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.hierarchy import HIERARCHIES
from attnfaith.subjects import Rationales, SelfAttention, SubjectError, subject_of
from attnfaith.subjects.words import WordLevel
from tests.gates import untrained
from tests.impermissible import marked
from tests.measuring import run
from tests.small_classifiers import classifier, tokenizer
from tests.small_rationales import KINDS as RATIONALES
from tests.small_rationales import rationale_model
from tests.toy_subject import Toy


PRODUCERS = names()
LEVELS = (*HIERARCHIES, "word")  # what attention is over: tokens, sentences, the words of sentences
LAYOUTS = (  # query and hierarchy
    ("learned", "none"),
    ("text", "none"),
    ("learned", "none"),
    ("text", "none"),
    ("learned", "sentence"),
    ("learned", "word"),
)
READOUTS, ALIGNMENTS = ("affine", "tanh"), ("additive", "dot")


def latin_square():
    """Encoders by projections, each layout once in every row and column: every two values of any two factors meet.

    Three that meet nowhere show nothing new: encoders make states, projections make weights of scores, decoders read the
    states so weighted, and none is told of another. What knows an encoder, the fast engines, meets all that they enter.
    """
    for row, encoder in enumerate(ENCODERS):
        for column, projection in enumerate(projections.PROJECTIONS):
            query, hierarchy = LAYOUTS[(row + column) % len(LAYOUTS)]
            readout, alignment = READOUTS[(row + column // 2) % 2], ALIGNMENTS[(row + 2 * column) // 3 % 2]
            yield {
                "encoder": encoder,
                "projection": projection,
                "query": query,
                "hierarchy": hierarchy,
                "readout": readout,
                "alignment": alignment,
            }


CELLS = {"-".join(fields.values()): fields for fields in latin_square()}
# One cell of each encoder, which together have every projection and every layout; all other cells are slow.
FAST_COLUMNS = dict(zip(ENCODERS, (0, 1, 3, 5, 2, 4, 1, 3), strict=True))
FAST = {
    name
    for name, fields in CELLS.items()
    if fields["projection"] == list(projections.PROJECTIONS)[FAST_COLUMNS[fields["encoder"]]]
}
UNKNOWN = 1
FEW_TEXTS = (7, 0, [9])  # where the model is asked about every attention
TEXTS = (7, 0, [9], [UNKNOWN] * 4, 3, [12] * 5, 6)
COMPANIES = (((0,), 0), ((2,), 5), ((1, 1), 0), ((3, 1), 0), ((6, 5, 4), 5))  # texts measured together, and padding more
OPTIONS = {  # of producers that take long with their own
    "permutation": {"draws": 20},
    "adversary_search": {"steps": 6},
    "adversary_exact": {"epsilons": [0.05]},
    "kernel_shap": {"samples": 8},
    "lime": {"samples": 8},
    "integrated_gradients": {"tolerance": 1e6},
    "aopc_limits": {"exact_tokens": 3, "beam": 2},  # a beam of 1 breaks ties by rounding, where tokens have no weight
    "weight_aopc_limits": {"exact_tokens": 6, "beam": 2},
    "map_adversary": {"steps": 3, "restarts": 2},
}
FLOORS = ("random_scores", "uniform_scores")  # ask a model for nothing but the lengths of texts
WEIGHTLESS = (*FLOORS, "conicity", "diffmask", "value_norm_share")  # ask a model for no attention
# How far a column may differ where the arithmetic does, in the last digits of float32: above 1e-6 only where a choice
# between equally good answers is part of the method (math.inf: the shape alone is compared).
TOLERANCE = {
    # what is left of sums that nearly cancel
    "integrated_gradients_residual": 1e-5,
    "integrated_gradients_residual_hidden": 1e-5,
    "deeplift_residual": 1e-5,
    "adversary_exact_attention": 1e-5,  # a mixture's weights are differences of scores, divided by one another
    # what a unit near 0 keeps of its relevance, |y| / (|y| + epsilon), has a slope of up to 1 / epsilon, 1000
    "importance_lrp": 1e-4,
    "importance_lrp_hidden": 1e-4,
    "lrp_residual": 1e-4,
    "lrp_unaccounted": 1e-5,  # rounding is what it measures
}


@pytest.fixture(scope="session")
def tiny_rows(tiny_rows):
    return lambda *texts, **fields: marked(tiny_rows(*texts, **fields))


@pytest.fixture(params=PRODUCERS)
def producer(request):
    return find(request.param)


@pytest.fixture(autouse=True, scope="module")
def _short_searches():
    """Halvings of a segment: searches go every way they have, to fewer digits, which are other tests' business."""
    bisected = projections._bisected
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(projections, "_bisected", lambda scores, alpha, dim, _, one: bisected(scores, alpha, dim, 24, one))
        patched.setattr(climb, "STEPS", 12)
        patched.setattr(climb, "STEPS_ASKED", 8)
        yield


@pytest.fixture(scope="module")
def shared_model(tiny_model):
    """`tiny_model`, made once for all producers: each leaves a model as it was, as a test here has it."""
    return functools.cache(tiny_model)


def options_of(producer, model, batch):
    """Those of OPTIONS, and of what has to be trained on the model: something of its kind that nobody trained."""
    name = producer.name
    if name == "diffmask" and subject_of(model).capabilities >= producer.needs:
        return {"gates": untrained(model, batch)}
    return OPTIONS.get(name, {})


def measured(producer, model, batch, seed=0):
    """{column: one array per instance}, float64 or text, in the order of the batch's instances."""
    options = options_of(producer, model, batch)
    return {
        name: [np.asarray(v, None if np.asarray(v).dtype.kind == "U" else np.float64) for v in values]
        for name, values in run(producer, model, batch, seed=seed, **options).items()
    }


STACKED = {"alti", "attn_lrp", "chefer", "decompx", "flow", "globenc", "rollout", "value_zeroing"}
STACKED |= {"frozen_flip_set", "map_adversary", "map_erasure", "map_permutation", "map_uniform", "marker_attention"}
NOT_AFFINE = {"exact_contribution", "token_logits", "weight_aopc_limits"}
TOY = {"attention_norm", "conicity", "exact_contribution", "gradient_hidden_to_input", "identifiability", "lrp"}
TOY |= {"diffmask", "value_norm_share"}
CLASSIFIER = {"exact_contribution", "gradient_hidden_to_input", "lrp", "token_logits", "weight_aopc_limits"}
"""All that refuses a subject: what is of stacks of layers alone; logits that are not affine in attention; the toy, without
states and without our layers; and classifiers of transformers, of which one head of one layer is shown.
"""


def refused(producer, model, batch):
    """Whether the producer is one of those that cannot measure this model, and says so."""
    subject, name = subject_of(model), producer.name
    if isinstance(subject, SelfAttention):
        refusing = CLASSIFIER
    elif isinstance(subject, Toy | Rationales):
        refusing = TOY | STACKED | NOT_AFFINE
    else:
        refusing = STACKED | (NOT_AFFINE if subject.level == "word" or subject.config.readout != "affine" else set())
    if name in refusing:
        with pytest.raises(
            SubjectError, match=f"^'{name}' needs '.*, which this subject .* lacks; subjects that can have it"
        ):
            measured(producer, model, batch)
    return name in refusing


def same(values, expected, exact=False):
    assert values.keys() == expected.keys()
    for name in values:
        for one, other in zip(values[name], expected[name], strict=True):
            assert one.shape == other.shape, name
            if exact or one.dtype.kind == "U":
                np.testing.assert_array_equal(one, other, err_msg=name)
            else:
                np.testing.assert_allclose(one, other, atol=TOLERANCE.get(name, 1e-6), rtol=2e-5, err_msg=name)


def check(made, producer, model, rows):
    """Columns, lengths and values as declared. Undefined is NaN, and the column says when."""
    assert list(made) == list(producer.columns_for(subject_of(model)))
    for name in made:
        column = producer.columns[name]
        assert isinstance(column, record.Column) and column.doc
        for row, values in zip(rows, made[name], strict=True):
            assert values.dtype.kind == "U" or column.undefined or np.isfinite(values).all(), name
            for axis, size in zip(column.axes, values.shape, strict=True):
                assert size == {"T": len(row["tokens"]), "C": model.num_labels}.get(axis, size), name
            if name.startswith("importance_"):
                assert column.axes == ("T",) and (column.signed or (values >= 0).all())


def test_there_are_producers():
    assert {"gradient", "gradient_norm", "leave_one_out", "permutation"} <= set(PRODUCERS)


def test_what_the_metric_compares(producer):
    assert set(producer.metric) <= {"counterfactual_attention", "counterfactual_probs"}
    assert set(producer.metric.values()) <= set(producer.columns)


def test_every_two_values_of_two_factors_meet():
    values = [ENCODERS, projections.PROJECTIONS, dict.fromkeys(LAYOUTS), READOUTS, ALIGNMENTS]
    cells = [
        (c["encoder"], c["projection"], (c["query"], c["hierarchy"]), c["readout"], c["alignment"]) for c in CELLS.values()
    ]
    for one, other in itertools.combinations(range(len(values)), 2):
        assert {(c[one], c[other]) for c in cells} == set(itertools.product(values[one], values[other]))


def test_fast_cells_have_every_factor():
    for factor in ("encoder", "projection", "query", "hierarchy", "readout", "alignment"):
        assert {CELLS[name][factor] for name in FAST} == {fields[factor] for fields in CELLS.values()}, factor
    assert len(FAST) == len(ENCODERS)


@pytest.fixture(scope="module")
def cell(tiny_model, tiny_rows):
    """Factory of a model whose embeddings are not trained, its twin, all of which is and whose dropout is .5, instances, and
    batches of some of them as a measurement has them, in which things are kept.

    Made once for all producers, as a measurement has it: what one of them did to a model or a batch, the next would show.
    """

    @functools.cache
    def make(name):
        fields = CELLS[name]
        level = fields["hierarchy"]
        fields = {**fields, "num_labels": 2 + (fields["encoder"] == "cnn"), "sparsegen_lambda": 0.3, "entmax_alpha": 1.25}
        model, twin = tiny_model(**fields), tiny_model(**fields, dropout=0.5)
        for one, other in zip(pooled(model).parameters(), pooled(twin).parameters(), strict=True):
            assert torch.equal(one, other)
        pooled(model).model.embeddings.weight.requires_grad_(False)
        rows = tiny_rows(FEW_TEXTS if level == "word" else TEXTS, pair=fields["query"] == "text", hierarchy=level)
        subject, batches = subject_of(model), {}
        for places, more in COMPANIES:
            if max(places) < len(rows):
                batches[places] = batch = subject.collate([rows[place] for place in places])
                for key in {"input_ids", "attention_mask", *OF_POSITIONS} & set(batch):
                    batch[key] = torch.nn.functional.pad(batch[key], (0, more))
                subject.attention(batch)
        return model, twin, rows, subject, batches

    return make


def pooled(model):
    """The model itself, also of one over the words of sentences."""
    return getattr(model, "classifier", model) if isinstance(model, WordLevel) else model


@contextmanager
def left_as_it_was(model):
    """Within, and after it: neither weights nor what is trained nor gradients change, and the model stays in eval mode."""
    model = pooled(model)
    model.zero_grad()
    model.decoder.context.bias.grad = torch.full_like(model.decoder.context.bias, 7.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainable = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    yield
    assert not model.training
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == trainable
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for name, parameter in model.named_parameters():
        if name == "decoder.context.bias":
            assert parameter.grad.eq(7.0).all()
        else:
            assert parameter.grad is None, name


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in CELLS])
def test_contract(producer, name, cell, tiny_batch):
    model, twin, rows, subject, batches = cell(name)
    batch = tiny_batch(rows)
    with left_as_it_was(model):
        if refused(producer, model, batch):
            return
        whole = measured(producer, model, batch)

        check(whole, producer, model, rows)

        # the seed decides; dropout is off, and what is trained is nothing to a measure
        same(measured(producer, twin, batch), whole, exact=True)

        # neither company, order, nor padding, nor that it is a measurement's batch, in which things are kept; texts of one
        # word and of none, alone or all of them
        for places, some in batches.items():
            same(
                measured(producer, subject, some),
                {key: [values[place] for place in places] for key, values in whole.items()},
            )


SUBJECTS = {  # what a plain batch is tried on
    "tokens": {},
    "answers": {"num_labels": 3, "readout": "tanh", "projection": "sparsemax", "encoder": "transformer"},
    "pairs": {"query": "text", "encoder": "cnn"},
    "sentences": {"hierarchy": "sentence", "encoder": "bigru"},
    "words": {"hierarchy": "word", "readout": "tanh"},
    "toy": None,
}


@pytest.fixture(params=SUBJECTS)
def a_model(request, shared_model, tiny_rows):
    """A model and instances that suit it."""
    fields = SUBJECTS[request.param]
    if fields is None:
        return Toy(), tiny_rows(FEW_TEXTS)
    hierarchy = fields.get("hierarchy", "none")
    return shared_model(**fields), tiny_rows(FEW_TEXTS, pair="query" in fields, hierarchy=hierarchy)


def test_a_plain_batch_of_a_tokenizer(producer, a_model, tiny_batch):
    """Ids are row numbers; nothing is written into the batch; a subject says the same of its own batch."""
    model, rows = a_model
    rows = [{**row, "instance_id": str(number)} for number, row in enumerate(rows)]
    named = tiny_batch(rows)
    plain = BatchEncoding({name: values for name, values in named.items() if name != "instance_id"})
    if refused(producer, model, plain):
        return
    names = set(plain)
    values = measured(producer, model, plain)
    assert set(plain) == names
    same(values, measured(producer, model, named), exact=True)
    subject = subject_of(model)
    same(values, measured(producer, subject, subject.collate(rows)), exact=True)
    check(values, producer, model, rows)


def keeps_to_the_contract(producer, subject, model, rows) -> None:
    """What a subject is measured by does not depend on batch, order or padding, and the model stays as it was."""
    batch = subject.collate(rows)
    if refused(producer, subject, batch):
        return
    before = {name: value.clone() for name, value in model.state_dict().items()}
    whole = measured(producer, subject, batch)
    check(whole, producer, subject, rows)
    alone = [measured(producer, subject, subject.collate([row])) for row in rows]
    same({name: [one[name][0] for one in alone] for name in whole}, whole)
    turned = measured(producer, subject, subject.collate(rows[::-1]))
    same({name: values[::-1] for name, values in turned.items()}, whole)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def test_contract_of_the_toy(producer, tiny_rows):
    toy = Toy(num_labels=3)
    keeps_to_the_contract(producer, toy, toy, tiny_rows(TEXTS))


@pytest.mark.slow
@pytest.mark.parametrize("kind", RATIONALES)
def test_contract_of_classifiers_that_read_a_selection(producer, kind, tiny_rows):
    """What is selected is hard, and depends on the text alone."""
    model = rationale_model(kind, num_labels=3)
    keeps_to_the_contract(producer, subject_of(model), model, tiny_rows(TEXTS))


OF_CLASSIFIERS = {"bert": ([1], [2]), "gpt2": ([], []), "bert apart": ([1], [2])}  # the markers before and after a text


class MaskedForSequenceClassification(BertForSequenceClassification):
    """A BERT that keeps impermissible tokens apart by a mask (B,1,L,L) of its own, made pair by pair."""

    def forward(self, input_ids, attention_mask, token_type_ids=None, impermissible=None, **more):
        added = torch.full((*input_ids.shape, input_ids.shape[1]), torch.finfo(torch.float32).min)
        for text, marks in enumerate(impermissible.bool().tolist()):
            for query, key in itertools.product(range(len(marks)), repeat=2):
                allowed = query == 0 or (key > 0 and marks[query] == marks[key])
                if allowed and attention_mask[text, key]:
                    added[text, query, key] = 0
        return super().forward(input_ids, attention_mask=added.unsqueeze(1), token_type_ids=token_type_ids, **more)


@pytest.fixture(scope="module")
def a_classifier(tiny_rows):
    """Factory of a small classifier of transformers, of which one head is shown, and texts that suit it."""

    @functools.cache
    def make(kind):
        before, after = OF_CLASSIFIERS[kind]
        rows = tiny_rows((4, 0, [9], [12] * 2))
        for row in rows:
            row["input_ids"] = [*before, *row["input_ids"][1:-1], *after]
        rows = marked(rows)
        model, draws = classifier(kind.split()[0]), torch.Generator().manual_seed(1)
        with torch.no_grad():  # as they are drawn they are 0, and what is left of a text without its tokens is rounding
            for name, values in model.named_parameters():
                if name.endswith("bias"):
                    values += 0.1 * torch.randn(values.shape, generator=draws)
        if kind == "bert apart":
            model = SelfAttentionClassifierForSequenceClassification.of(model, separate_impermissible=True).eval()
            for row in rows:
                row["impermissible"] = [
                    int(0 < place < len(row["input_ids"]) - 1 and place % 3 == 2) for place in range(len(row["input_ids"]))
                ]
        return SelfAttention(model, tokenizer(bool(before)), {"layers": "last", "head": 1}), rows

    return make


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_CLASSIFIERS)
def test_contract_of_classifiers_of_transformers(producer, kind, a_classifier):
    """An encoder whose first row matters and a decoder whose last one does, which has no markers: nothing of a text is left
    where all its tokens are deleted.
    """
    subject, rows = a_classifier(kind)
    computed_by = subject.model.config._attn_implementation
    keeps_to_the_contract(producer, subject, subject.model, rows)
    assert subject.model.config._attn_implementation == computed_by and not subject.model.training
    assert computed_by == ("eager" if kind == "bert apart" else "sdpa")


@pytest.mark.slow
def test_kinds_that_are_kept_apart_are_measured_as_in_a_model_that_masks_them_itself(producer, a_classifier):
    """Which tokens are impermissible goes with every batch that a producer makes of texts, their parts and copies."""
    subject, rows = a_classifier("bert apart")
    if refused(producer, subject, subject.collate(rows)):
        return
    config = copy.deepcopy(subject.model.model.config)
    config.separate_impermissible = True
    model = MaskedForSequenceClassification._from_config(config, attn_implementation="eager").eval()
    model.load_state_dict(subject.model.model.state_dict())
    naive = SelfAttention(model, subject.tokenizer, subject.reduction)
    same(measured(producer, naive, naive.collate(rows)), measured(producer, subject, subject.collate(rows)))
    marked_otherwise = [{**row, "impermissible": [0] * len(row["input_ids"])} for row in rows]
    if producer.name not in ("random_scores", "uniform_scores"):
        other = measured(producer, subject, subject.collate(marked_otherwise))
        mine = measured(producer, subject, subject.collate(rows))
        assert any(not np.array_equal(a, b) for name in mine for a, b in zip(mine[name], other[name], strict=True))


def test_what_a_subject_lacks_is_named(tiny_model, tiny_rows, a_classifier):
    """Producers say what they need in words that are known, and the list of those that refuse is whole."""
    for subject, refusing in (
        (Toy(), TOY | STACKED | NOT_AFFINE),
        (a_classifier("bert")[0], CLASSIFIER),
        (subject_of(tiny_model(readout="tanh")), NOT_AFFINE | STACKED),
        (subject_of(tiny_model(hierarchy="word")), NOT_AFFINE | STACKED),
        (subject_of(tiny_model()), STACKED),
    ):
        assert {cls.name for cls in classes() if not subject.capabilities >= cls.needs} == refusing


def test_an_exception_leaves_the_model_as_it_was(producer, tiny_model, tiny_rows, tiny_batch, monkeypatch):
    model = tiny_model()
    if refused(producer, model, tiny_batch(tiny_rows([4, 2]))):
        return
    monkeypatch.setattr(type(model), "attend", lambda *_args: 1 / 0)
    monkeypatch.setattr(state_lengths, "norm_gradients", lambda *_args: 1 / 0)
    if producer.name in WEIGHTLESS:
        monkeypatch.setattr(type(model), "attendable", lambda *_args, **_given: 1 / 0)
    if not refused(producer, model, tiny_batch(tiny_rows([4, 2]))):
        with pytest.raises(ZeroDivisionError):
            measured(producer, model, tiny_batch(tiny_rows([4, 2])))
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.is_grad_enabled()


def test_the_default_dtype_changes_no_draw(producer, shared_model, tiny_rows, a_classifier):
    """The same seed draws the same, and a model is read in its own dtype."""
    subject, rows = subject_of(shared_model()), tiny_rows((7, 2))
    if not subject.capabilities >= producer.needs:
        subject, rows = a_classifier("bert")
    expected = measured(producer, subject, subject.collate(rows), seed=3)
    with default_dtype(torch.float64):
        same(measured(producer, subject, subject.collate(rows), seed=3), expected)


@pytest.mark.parametrize("hierarchy", LEVELS)
def test_works_inside_no_grad(producer, hierarchy, shared_model, tiny_rows, tiny_batch):
    model, rows = shared_model(hierarchy=hierarchy), tiny_rows([4, 2], hierarchy=hierarchy)
    batch = tiny_batch(rows)
    if refused(producer, model, batch):
        return
    outside = measured(producer, model, batch)
    with torch.no_grad():
        same(measured(producer, model, batch), outside, exact=True)


@pytest.mark.parametrize(
    ("encoder", "projection"),
    [(encoder, name) for encoder in ("bilstm", "transformer", "average") for name in ("softmax", "sparsemax")]
    + [("bilstm", name) for name in ("sparsegen", "entmax15", "entmax", "uniform")],
)
def test_constant_vectors(producer, encoder, projection, shared_model, tiny_rows, tiny_batch):
    model = shared_model(encoder=encoder, projection=projection, embedding_std=0.0)
    rows = tiny_rows([6, 3])
    if not refused(producer, model, tiny_batch(rows)):
        check(measured(producer, model, tiny_batch(rows)), producer, model, rows)


@pytest.mark.parametrize("hierarchy", LEVELS)
def test_half_precision(producer, hierarchy, shared_model, tiny_rows, tiny_batch):
    model = shared_model(scale=1.0, hierarchy=hierarchy)
    rows = tiny_rows([6, 3], hierarchy=hierarchy)
    if refused(producer, model, tiny_batch(rows)):
        return
    full = measured(producer, model, tiny_batch(rows))
    rough = measured(producer, shared_model(scale=1.0, hierarchy=hierarchy, dtype=torch.bfloat16), tiny_batch(rows))
    check(rough, producer, model, rows)
    for name in [name for name in full if name.startswith("importance_")]:  # an experiment may choose other tokens
        for one, other in zip(rough[name], full[name], strict=True):
            np.testing.assert_allclose(one, other, atol=0.05 * max(1, math.ceil(np.abs(other).max())), err_msg=name)


def test_columns_make_a_record(producer, shared_model, tiny_rows, tiny_batch):
    """What a producer returns and what it declares fit together as the record wants it."""
    model, rows = shared_model(), tiny_rows(TEXTS)
    if refused(producer, model, tiny_batch(rows)):
        return
    subject = subject_of(model)
    attention = subject.attention(subject.collate(rows))
    columns = record.as_columns(record.Identity("x", "x", "x", 0), len(rows)) | {
        "instance_id": [row["instance_id"] for row in rows],
        "tokens": [row["tokens"] for row in rows],
        "label": [None] * len(rows),
        "truncated": [False] * len(rows),
        "probs": [[0.5, 0.5]] * len(rows),
        "attention": [a[1 : 1 + len(row["tokens"])].tolist() for a, row in zip(attention, rows, strict=True)],
    }
    batch = tiny_batch(rows)
    columns |= run(producer, model, batch, seed=0, **options_of(producer, model, batch))
    declared = producer.columns_for(subject)
    made = record.build(columns, declared)
    assert set(declared) <= set(made.column_names)
