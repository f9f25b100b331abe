"""The contract of every measure, importance and intervention, over every kind of subject."""

import functools
from contextlib import contextmanager

import entmax
import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from attnfaith import SelfAttentionClassifierForSequenceClassification
from attnfaith.data.collation import POSITION_COLUMNS
from attnfaith.interventions import adversary
from attnfaith.measurement.registry import classes, find, names
from attnfaith.subjects import Rationales, SelfAttention, SubjectError, subject_of
from tests.gates import untrained
from tests.measuring import marked, run
from tests.small_classifiers import classifier, tokenizer
from tests.small_rationales import KINDS as RATIONALES
from tests.small_rationales import rationale_model
from tests.toy_subject import Toy


POOLED = {  # every encoder, projection, query, hierarchy, read-out and alignment at least once
    "bilstm": {},
    "lstm": {"projection": "entmax15", "hierarchy": "sentence"},
    "bigru": {"projection": "sparsemax", "hierarchy": "sentence"},
    "transformer": {"projection": "sparsegen", "sparsegen_lambda": 0.3, "query": "text", "alignment": "dot"},
    "cnn": {"projection": "entmax", "entmax_alpha": 1.25, "query": "text", "readout": "tanh", "num_labels": 5},
    "orthogonal_lstm": {"projection": "uniform", "readout": "tanh"},
    "average": {"projection": "sparsemax", "alignment": "dot"},
    "embedding": {"query": "text", "hierarchy": "sentence"},
}
MARKERS = {"bert": ([1], [2]), "gpt2": ([], []), "bert apart": ([1], [2])}  # before and after a text
CELLS = ["bilstm", "lstm", "bigru", "transformer", "cnn", "bert", "gpt2", "bernoulli"]
CELLS += [
    pytest.param(name, marks=pytest.mark.slow) for name in (*POOLED, "toy", "bert apart", *RATIONALES) if name not in CELLS
]
UNKNOWN = 1
TEXTS = (7, 0, [9], [UNKNOWN] * 4, 3, [12] * 5, 6)
FEW_TEXTS = (7, 0, [9], [12] * 2)  # where one text takes long
COMPANIES = (((0,), 0), ((2,), 5), ((1, 1), 0), ((3, 1), 0), ((6, 5, 4), 5))  # texts measured together, and padding more
OPTIONS = {  # of measures that take long with their own
    "permutation": {"draws": 20},
    "adversary_search": {"steps": 6},
    "adversary_exact": {"epsilons": [0.05]},
    "kernel_shap": {"samples": 8},
    "lime": {"samples": 8},
    "integrated_gradients": {"tolerance": 1e6},
    "aopc_limits": {"exact_tokens": 3, "beam": 2},  # a beam of 1 breaks ties by rounding, where tokens have no weight
    "map_adversary": {"steps": 3, "restarts": 2},
}
WEIGHTLESS = (
    "random_scores",
    "uniform_scores",
    "conicity",
    "diffmask",
    "gradient_hidden_to_input",
    "value_norm_share",
)  # ask a model for no attention
TOLERANCE = {  # what differs by more than 1e-6 where the arithmetic is in another order
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
STACKED = {"alti", "attn_lrp", "chefer", "decompx", "globenc", "rollout", "value_zeroing"}
STACKED |= {"frozen_flip_set", "map_adversary", "map_erasure", "map_permutation", "map_uniform", "marker_attention"}
NOT_AFFINE = {"adversary_exact", "exact_contribution", "minimal_flip_set", "token_logits"}
STATELESS = {"attention_norm", "conicity", "exact_contribution", "gradient_hidden_to_input", "identifiability", "lrp"}
STATELESS |= {"diffmask", "value_norm_share"}
CLASSIFIER = {"adversary_exact", "adversary_search", "erasure", "minimal_flip_set", "permutation", "random_support"}
CLASSIFIER |= {"exact_contribution", "gradient_hidden_to_input", "lrp", "token_logits"}


@pytest.fixture(params=names())
def measure(request):
    return find(request.param)


@pytest.fixture(autouse=True, scope="module")
def _short_searches():
    """Halvings of a segment: searches go every way they have, to fewer digits, which are other tests' business."""
    bisected = entmax.entmax_bisect
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(entmax, "entmax_bisect", lambda scores, alpha, n_iter: bisected(scores, alpha, n_iter=24))
        patched.setattr(adversary, "STEPS", 12)
        yield


@pytest.fixture(scope="module")
def cell(tiny_model, tiny_rows):
    """Factory of a subject with dropout, its model and texts, made once: the next measure shows any change."""

    @functools.cache
    def make(name):
        if name in POOLED:
            fields = {"encoder": name, **POOLED[name]}
            level = fields.get("hierarchy", "none")
            model = tiny_model(**fields, dropout=0.5)
            model.model.embeddings.weight.requires_grad_(False)
            texts = TEXTS
            rows = marked(tiny_rows(texts, pair=fields.get("query") == "text", hierarchy=level))
            subject = subject_of(model)
        elif name in MARKERS:
            subject, model, rows = transformers_cell(name, tiny_rows(FEW_TEXTS))
        else:
            model = Toy(num_labels=3) if name == "toy" else rationale_model(name, num_labels=3)
            subject, rows = subject_of(model), marked(tiny_rows(TEXTS if name == "toy" else FEW_TEXTS))
        return subject, model, [{**row, "instance_id": str(number)} for number, row in enumerate(rows)]

    return make


def transformers_cell(name, rows):
    """A classifier of transformers: an encoder, or a decoder, which has no markers."""
    before, after = MARKERS[name]
    rows = marked([{**row, "input_ids": [*before, *row["input_ids"][1:-1], *after]} for row in rows])
    model, draws = classifier(name.split()[0]), torch.Generator().manual_seed(1)
    with torch.no_grad():  # biases that are drawn are 0, and what is left of a text without its tokens would be rounding
        for parameter, values in model.named_parameters():
            if parameter.endswith("bias"):
                values += 0.1 * torch.randn(values.shape, generator=draws)
    if name == "bert apart":
        model = SelfAttentionClassifierForSequenceClassification.of(model, separate_impermissible=True).eval()
        for row in rows:
            last = len(row["input_ids"]) - 1
            row["impermissible"] = [int(0 < place < last and place % 3 == 2) for place in range(last + 1)]
    return SelfAttention(model, tokenizer(bool(before))), model, rows


def options_of(measure, model, batch):
    """Those of OPTIONS, and gates that nobody trained."""
    if measure.name == "diffmask" and subject_of(model).capabilities >= measure.needs:
        return {"gates": untrained(model, batch)}
    return OPTIONS.get(measure.name, {})


def measured(measure, model, batch, seed=0):
    """{column: one value per instance}, in the order of the batch's instances."""
    return run(measure, model, batch, seed=seed, **options_of(measure, model, batch))


def arrays(values):
    """The values of a column as arrays of float64 or text."""
    return [np.asarray(value, None if np.asarray(value).dtype.kind == "U" else np.float64) for value in values]


def refusing(subject):
    """The names of all measures that refuse a subject."""
    if isinstance(subject, SelfAttention):
        return CLASSIFIER
    if isinstance(subject, Toy | Rationales):
        return STATELESS | STACKED | NOT_AFFINE
    return STACKED | (NOT_AFFINE if subject.config.readout != "affine" else set())


def refused(measure, model, batch):
    """Whether the measure cannot measure this model, and says so."""
    refuses = measure.name in refusing(subject_of(model))
    if measure.name == "lrp" and getattr(getattr(model, "config", None), "encoder", "") == "orthogonal_lstm":
        with pytest.raises(ValueError, match="lrp has no rule for OnwardOrthogonalLSTM"):
            measured(measure, model, batch)
        return True
    if refuses:
        with pytest.raises(SubjectError, match=f"^'{measure.name}' needs '"):
            measured(measure, model, batch)
    return refuses


def same(values, expected, exact=False):
    assert values.keys() == expected.keys()
    for name in values:
        for actual, wanted in zip(arrays(values[name]), arrays(expected[name]), strict=True):
            assert actual.shape == wanted.shape, name
            if exact or actual.dtype.kind == "U":
                np.testing.assert_array_equal(actual, wanted, err_msg=name)
            else:
                np.testing.assert_allclose(actual, wanted, atol=TOLERANCE.get(name, 1e-6), rtol=2e-5, err_msg=name)


def check(columns, measure, subject, rows):
    """Columns, lengths and values as declared. Undefined is NaN, and the column documents when."""
    declared = measure.columns_for(subject)
    assert columns.keys() == declared.keys()
    for name, column in declared.items():
        for row, values in zip(rows, arrays(columns[name]), strict=True):
            assert values.dtype.kind == "U" or column.undefined or np.isfinite(values).all(), name
            for axis, size in zip(column.axes, values.shape, strict=True):
                assert size == {"T": len(row["tokens"]), "C": subject.num_labels}.get(axis, size), name
            if name.startswith("importance_"):
                assert column.axes == ("T",) and (column.signed or (values >= 0).all())


@contextmanager
def left_as_it_was(model):
    """After it weights, gradients, what is trained, and eval mode are as before."""
    parameters = dict(model.named_parameters())
    own = {name: (values.clone(), values.requires_grad) for name, values in parameters.items()}
    trained = next(values for values in parameters.values() if values.requires_grad)
    trained.grad = torch.full_like(trained, 7.0)
    yield
    assert not model.training
    assert trained.grad.eq(7.0).all()
    trained.grad = None
    for name, values in parameters.items():
        assert torch.equal(values, own[name][0]) and values.requires_grad == own[name][1] and values.grad is None, name


@pytest.mark.parametrize("name", CELLS)
def test_contract(measure, name, cell):
    subject, model, rows = cell(name)
    with left_as_it_was(model):
        if refused(measure, subject, subject.collate(rows)):
            return
        whole = measured(measure, subject, subject.collate(rows))
        check(whole, measure, subject, rows)

        # the seed decides: dropout is off, and gradients are taken also where nobody asks for any
        with torch.no_grad():
            same(measured(measure, subject, subject.collate(rows)), whole, exact=True)

        # a model and the batch of a tokenizer, into which nothing is written
        if name not in MARKERS:
            tensors = ("input_ids", "attention_mask", *POSITION_COLUMNS)
            plain = BatchEncoding({key: values for key, values in subject.collate(rows).items() if key in tensors})
            keys = set(plain)
            same(measured(measure, model, plain), whole, exact=True)
            assert set(plain) == keys

        # neither company, order nor padding; texts of one word and of none, alone or all of them
        for places, more in COMPANIES:
            if max(places) < len(rows):
                batch = subject.collate([rows[place] for place in places])
                for key in {"input_ids", "attention_mask", *POSITION_COLUMNS} & set(batch):
                    batch[key] = torch.nn.functional.pad(batch[key], (0, more))
                same(
                    measured(measure, subject, batch),
                    {key: [values[place] for place in places] for key, values in whole.items()},
                )


def test_the_list_of_measures_that_refuse_is_whole(tiny_model, cell):
    for subject in (
        *(Toy(), cell("bert")[0], subject_of(tiny_model())),
        *(subject_of(tiny_model(**fields)) for fields in ({"readout": "tanh"}, {"hierarchy": "sentence"})),
    ):
        assert {cls.name for cls in classes() if not subject.capabilities >= cls.needs} == refusing(subject)


def test_an_exception_leaves_the_model_as_it_was(measure, tiny_model, tiny_rows, tiny_batch, monkeypatch):
    model, batch = tiny_model(), tiny_batch(marked(tiny_rows([4, 2])))
    if refused(measure, model, batch):
        return
    monkeypatch.setattr(type(model), "attend", lambda *_args: 1 / 0)
    if measure.name in WEIGHTLESS:
        monkeypatch.setattr(type(model), "attendable", lambda *_args, **_given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        measured(measure, model, batch)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.is_grad_enabled()
