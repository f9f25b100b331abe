"""Models as graphs: torch.export, torch.compile and ONNX give what the model itself gives, at other sizes too."""

import logging
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
import torch
from torch.export import Dim

from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification
from attnfaith.models import projections


MARK = 4  # between sentences
SIZES = {"vocab_size": 20, "embedding_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
SIZES |= {"num_labels": 3, "embedding_std": 1.0}
MODELS = {
    "bilstm": {"encoder": "bilstm"},
    "bigru of pairs": {"encoder": "bigru", "query": "text", "readout": "tanh", "projection": "sparsemax"},
    "orthogonal lstm": {"encoder": "orthogonal_lstm"},
    "transformer": {"encoder": "transformer", "projection": "entmax15", "num_hidden_layers": 2},
    "cnn of pairs": {"encoder": "cnn", "query": "text", "alignment": "dot", "projection": "sparsegen"},
    "average": {"encoder": "average", "projection": "entmax", "entmax_alpha": 1.25},
    "embedding": {"encoder": "embedding", "score_scale": 1.0, "markers": False},
    "sentences by cnn": {"encoder": "cnn", "hierarchy": "sentence", "projection": "uniform"},
    "sentences by transformer": {"encoder": "transformer", "hierarchy": "sentence"},
}
HALVINGS = 12  # of a bisection, each of which is written out in a graph; more would show nothing new
every_model = pytest.mark.parametrize(
    "fields",
    [*MODELS.values()],
    ids=[*MODELS],
    scope="module",  # tests of a model follow one another, so that it is exported once
)

pytestmark = [
    pytest.mark.slow,
    # of torch's own loops, and of its own way into functions with a slope of their own
    pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.autograd.function.Function.* should not be instantiated:DeprecationWarning"),
]


@contextmanager
def quiet():
    """Within, torch writes no log of its tracing."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(logging.getLogger("torch.__trace"), "handlers", [])
        yield


@pytest.fixture(autouse=True, scope="module")
def _short_searches():
    bisected = projections._bisected
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            projections, "_bisected", lambda scores, alpha, dim, _, item: bisected(scores, alpha, dim, HALVINGS, item)
        )
        yield


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    with quiet():
        yield


def build(fields):
    torch.default_generator.manual_seed(0)
    config = AttentionClassifierConfig(**{**SIZES, **fields})
    return AttentionClassifierForSequenceClassification(config).eval().requires_grad_(False)


def batch(fields, instances, extra=0):
    """Texts of different lengths, the second without words, padded by `extra` more than they need."""
    generator = np.random.default_rng(instances)
    rows = []
    for number in range(instances):
        words = generator.integers(5, 20, 0 if number == 1 else 3 + 2 * number)
        words[2::4] = MARK
        ids, types = [2, *words, 3], [0] * (len(words) + 2)
        if fields.get("query") == "text":
            ids, types = [*ids, 2, *generator.integers(5, 20, 1 + number % 3), 3], types + [1] * (3 + number % 3)
        rows.append((ids, types))
    width = max(len(ids) for ids, _ in rows) + extra
    inputs = {
        "input_ids": torch.tensor([[*ids, *[0] * (width - len(ids))] for ids, _ in rows]),
        "attention_mask": torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in rows]),
    }
    if fields.get("query") == "text":
        inputs["token_type_ids"] = torch.tensor([[*types, *[0] * (width - len(types))] for _, types in rows])
    return inputs


def other_sizes(fields):
    """Batches of other sizes than the example that a graph is made from."""
    return [batch(fields, 3, extra=2), batch(fields, 1), batch(fields, 7, extra=9)]


def same(actual, expected):
    for name in ("logits", "attention", "word_attention"):
        if expected[name] is not None:
            torch.testing.assert_close(actual[name], expected[name], atol=1e-6, rtol=0)


def outputs_of(model, inputs):
    outputs = model(**inputs)
    return {name: outputs.get(name) for name in ("logits", "attention", "word_attention")}


def padded_on_the_left(inputs):
    return {**inputs, "attention_mask": inputs["attention_mask"].flip(1)}


def of_any_length():
    """Within, torch.export makes a loop of a recurrent layer; else the graph has the length of the example."""
    from torch.export._patches import register_gru_while_loop_decomposition, register_lstm_while_loop_decomposition

    stack = ExitStack()
    stack.enter_context(register_lstm_while_loop_decomposition())
    stack.enter_context(register_gru_while_loop_decomposition())
    return stack


@pytest.fixture(scope="module")
def exported(fields):
    """The model as a program; torch.onnx.export would make it as its first step."""
    torch._dynamo.reset()
    example = batch(fields, 4)
    shapes = {name: {0: Dim("rows"), 1: Dim("positions", min=3)} for name in example}
    with quiet(), of_any_length():
        return torch.export.export(build(fields), (), example, dynamic_shapes=shapes)


@every_model
def test_exported_and_compiled(fields, exported):
    model, graph = build(fields), exported.module()
    compiled = torch.compile(model, backend="eager", fullgraph=True, dynamic=True)
    for number, inputs in enumerate(other_sizes(fields)):
        same(graph(**inputs), outputs_of(model, inputs))
        if number != 1:  # a batch of a single text would have a graph of its own
            same(compiled(**inputs), outputs_of(model, inputs))
    for program in (graph, compiled):
        with pytest.raises(RuntimeError, match="padding must be on the right"):
            program(**padded_on_the_left(batch(fields, 3, extra=2)))


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin:UserWarning")  # where it goes on in parts
@pytest.mark.parametrize("encoder", ["bilstm", "orthogonal_lstm"])
def test_recurrent_encoders_of_sentences_are_refused_by_name(encoder):
    fields = {"encoder": encoder, "hierarchy": "sentence"}
    model, inputs = build(fields), batch(fields, 3)
    with pytest.raises(NotImplementedError, match=f"encoder='{encoder}' with hierarchy='sentence' cannot be exported"):
        torch.export.export(model, (), inputs)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="cannot be exported, nor compiled as one graph"):
        torch.compile(model, backend="eager", fullgraph=True)(**inputs)
    same(torch.compile(model, backend="eager")(**inputs), outputs_of(model, inputs))  # in parts


@pytest.mark.parametrize("projection", ["sparsemax", "entmax15", "entmax"])
def test_compiled_projections_have_their_slopes(projection):
    config = AttentionClassifierConfig(projection=projection, entmax_alpha=1.25)
    mask = torch.arange(6) < torch.tensor([[6], [3], [1]])

    def slope(project):
        scores = torch.randn(3, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
        (result,) = torch.autograd.grad(project(scores, mask, config).square().sum(), scores)
        return result

    compiled = torch.compile(projections.project, backend="aot_eager", fullgraph=True)
    assert slope(projections.project).abs().max() > 0.01
    torch.testing.assert_close(slope(compiled), slope(projections.project), atol=1e-7, rtol=0)


@pytest.mark.filterwarnings("default")  # those of the exporter are its own
@every_model
def test_onnx(fields, exported, tmp_path):
    import onnxruntime

    model, example = build(fields), batch(fields, 4)
    if fields["encoder"] == "bilstm":  # as users do: for a recurrent layer the exporter itself has to make the loop
        shapes = {name: {0: Dim.DYNAMIC, 1: Dim.DYNAMIC} for name in example}
        program = torch.onnx.export(model, kwargs=example, dynamic_shapes=shapes, dynamo=True, verbose=False)
    else:
        with of_any_length():  # as the program is made: else recurrent layers are written out step by step, to no use
            program = torch.onnx.export(exported, dynamo=True, verbose=False)
    program.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    names = ("logits", "attention", "word_attention")
    for inputs in other_sizes(fields):
        result = session.run(None, {name: values.numpy() for name, values in inputs.items()})
        same(dict(zip(names, map(torch.from_numpy, result), strict=False)), outputs_of(model, inputs))
