"""Models as graphs: torch.export, torch.compile and ONNX give what the model itself gives, at other sizes too."""

import logging
from contextlib import ExitStack, contextmanager

import pytest
import torch
from torch.export import Dim

from attnfaith import AttentionClassifierConfig
from attnfaith.models import projections


MODELS = {
    "bilstm": {"encoder": "bilstm"},
    "bigru of pairs": {"encoder": "bigru", "query": "text", "readout": "tanh", "projection": "sparsemax"},
    "orthogonal lstm": {"encoder": "orthogonal_lstm"},
    "transformer": {"encoder": "transformer", "projection": "entmax15", "num_hidden_layers": 2},
    "cnn of pairs": {"encoder": "cnn", "query": "text", "alignment": "dot", "projection": "sparsegen"},
    "average": {"encoder": "average", "projection": "entmax", "entmax_alpha": 1.25},
    "sentences by transformer": {"encoder": "transformer", "hierarchy": "sentence", "score_scale": 1.0},
}
HALVINGS = 12  # of a bisection, each of which is written out in a graph; more would show nothing new
# the scope makes the tests of a model follow one another, so that it is exported once
every_model = pytest.mark.parametrize("fields", [*MODELS.values()], ids=[*MODELS], scope="module")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning"),  # of torch's own loops
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


@pytest.fixture(scope="module")
def build(tiny_model):
    return lambda fields: tiny_model(scale=1.0, dtype=torch.float32, num_labels=3, **fields).requires_grad_(False)


@pytest.fixture(scope="module")
def batch(tiny_rows, tiny_batch):
    """Factory of texts of different lengths, the second without words."""

    def make(fields, instances, extra=0):
        lengths = [0 if number == 1 else 3 + 2 * number for number in range(instances)]
        inputs = tiny_batch(
            tiny_rows(lengths, pair=fields.get("query") == "text", hierarchy=fields.get("hierarchy", "none"))
        )
        del inputs["instance_id"]
        return {name: torch.nn.functional.pad(values, (0, extra)) for name, values in inputs.items()}

    return make


@pytest.fixture
def other_sizes(batch, fields):
    """Batches of other sizes than the example that a graph is made from."""
    return [batch(fields, 3, extra=2), batch(fields, 1), batch(fields, 7, extra=9)]


def same(actual, model, inputs):
    """Check the outputs of a program against the model's own."""
    expected = model(**inputs)
    for name in ("logits", "attention", "word_attention"):
        if expected.get(name) is not None:
            torch.testing.assert_close(actual[name], expected[name], atol=1e-6, rtol=0)


def of_any_length():
    """Within, torch.export makes a loop of a recurrent layer; else the graph has the length of the example."""
    from torch.export._patches import register_gru_while_loop_decomposition, register_lstm_while_loop_decomposition

    stack = ExitStack()
    stack.enter_context(register_lstm_while_loop_decomposition())
    stack.enter_context(register_gru_while_loop_decomposition())
    return stack


@pytest.fixture(scope="module")
def exported(fields, build, batch):
    """The model as a program; torch.onnx.export would make it as its first step."""
    torch._dynamo.reset()
    example = batch(fields, 4)
    shapes = {name: {0: Dim("rows"), 1: Dim("positions", min=3)} for name in example}
    with quiet(), of_any_length():
        return torch.export.export(build(fields), (), example, dynamic_shapes=shapes)


@every_model
def test_exported_and_compiled(fields, exported, build, batch, other_sizes):
    model, graph = build(fields), exported.module()
    compiled = torch.compile(model, backend="eager", fullgraph=True, dynamic=True)
    for number, inputs in enumerate(other_sizes):
        same(graph(**inputs), model, inputs)
        if number != 1:  # a batch of a single text would have a graph of its own
            same(compiled(**inputs), model, inputs)
    left = batch(fields, 3, extra=2)
    left["attention_mask"] = left["attention_mask"].flip(1)
    for program in (graph, compiled):
        with pytest.raises(RuntimeError, match="padding must be on the right"):
            program(**left)


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin:UserWarning")  # where it goes on in parts
@pytest.mark.parametrize("encoder", ["bilstm", "orthogonal_lstm"])
def test_recurrent_encoders_of_sentences_are_refused_by_name(encoder, build, batch):
    fields = {"encoder": encoder, "hierarchy": "sentence"}
    model, inputs = build(fields), batch(fields, 3)
    with pytest.raises(NotImplementedError, match=f"encoder='{encoder}' with hierarchy='sentence' cannot be exported"):
        torch.export.export(model, (), inputs)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="cannot be exported, nor compiled as one graph"):
        torch.compile(model, backend="eager", fullgraph=True)(**inputs)
    same(torch.compile(model, backend="eager")(**inputs), model, inputs)  # in parts


@pytest.mark.parametrize("projection", ["sparsemax", "entmax15", "entmax"])
def test_compiled_projections_have_their_slopes(projection):
    config = AttentionClassifierConfig(projection=projection, entmax_alpha=1.25)
    mask = torch.arange(6) < torch.tensor([[6], [3], [1]])

    def slope(project):
        scores = torch.randn(3, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
        return torch.autograd.grad(project(scores, mask, config).square().sum(), scores)[0]

    compiled = torch.compile(projections.project, backend="aot_eager", fullgraph=True)
    assert slope(projections.project).abs().max() > 0.01
    torch.testing.assert_close(slope(compiled), slope(projections.project), atol=1e-7, rtol=0)


@pytest.mark.filterwarnings("default")  # those of the exporter are its own
@every_model
def test_onnx(fields, exported, build, batch, other_sizes, tmp_path):
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
    for inputs in other_sizes:
        outputs = session.run(None, {name: values.numpy() for name, values in inputs.items()})
        names = ("logits", "attention", "word_attention")
        same(dict(zip(names, map(torch.from_numpy, outputs), strict=False)), model, inputs)
