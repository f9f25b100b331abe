"""Any text classifier of transformers as a subject: rows that matter, batches, texts, markers, and refusals."""

import functools

import pytest
import torch
from datasets import Dataset

from attnfaith.subjects import Batch, Edit, SelfAttention, SubjectError, base
from attnfaith.subjects.attention import rows_that_matter
from tests import tolerances
from tests.small_classifiers import classifier, texts, tokenizer


LENGTHS = (9, 4, 6, 9)

# two layers, each of attention and a feed-forward network
close = functools.partial(tolerances.close, dtype=torch.float32, depth=4)


def open_subject(kind="bert", reduction="last", **fields):
    return SelfAttention(classifier(kind, **fields), tokenizer(kind != "gpt2"), reduction)


def batch(subject, lengths=LENGTHS):
    return Batch.of(texts(subject.model, lengths), subject)


ROWS = {"bert": "first", "squeezebert": "first", "deberta-v2": "first", "convbert": "first", "eurobert": "all"}
ROWS |= dict.fromkeys(("gpt2", "gpt_oss", "xlnet", "t5", "bart"), "last")


@pytest.mark.parametrize(("kind", "rows"), [*ROWS.items()])
def test_rows_that_matter_are_those_that_logits_depend_on(kind, rows):
    """By paths, and by changing the outputs of one row alone: by more than rounding does."""
    subject = open_subject(kind)
    some = batch(subject)
    matter = subject.read(some, rows=True).rows
    expected = torch.zeros_like(matter)
    for row, length in enumerate(LENGTHS):
        expected[row, {"first": slice(0, 1), "last": slice(length - 1, length), "all": slice(0, length)}[rows]] = True
    assert torch.equal(matter, expected)

    class Doubled(Edit):
        def __init__(self, place):
            self.place = torch.tensor([place])

        def output(self, read):
            own, last = read.output, subject.sites.layers[-1]
            return own.index_add(2, self.place, own[:, :, :1]) if read.number == last else own

    text = some.alone(1)
    with torch.no_grad():
        plain = subject.predict(text)
        changes = [float((subject.read(text, Doubled(place)).logits - plain).abs().max()) for place in range(LENGTHS[1])]
    rounding = tolerances.of(plain, depth=subject.sites.maps)
    assert [change > rounding for change in changes] == expected[1, : LENGTHS[1]].tolist()


def test_logits_alone_are_made_by_the_models_own_attention(monkeypatch):
    """What is read or changed is computed step by step, and gives the same logits."""
    subject, function = open_subject(), torch.nn.functional.scaled_dot_product_attention
    some, calls = batch(subject), []

    def noted(*arguments, **options):
        calls.append(len(arguments))
        return function(*arguments, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noted)
    with torch.no_grad(), subject.evaluating():
        logits = subject.predict(some)
        assert len(calls) == subject.depth
        close(subject.read(some, Edit(), keep=()).logits, logits)
        subject.attention(some)
    assert len(calls) == subject.depth


def test_rounding_is_no_path_and_does_not_hide_one():
    """Of four rows: one through a tanh that gives exactly 1; one that is masked; one whose slope is lost; one beside it."""
    output = torch.ones(1, 1, 4, 2, requires_grad=True)
    attended = torch.tensor([[1, 0, 1, 0]])
    first, masked, lost, _unread = output.sum((1, 3)).unbind(1)
    logits = torch.stack([(first + 100).tanh() + 0 * masked, first * 1e-30 * (lost * 1e-30)], 1)
    (slope,) = torch.autograd.grad(logits.sum(), [output], retain_graph=True)
    assert not slope.any()
    assert rows_that_matter(logits, output, attended).tolist() == [[True, False, True, False]]
    unmasked = torch.stack([first.tanh() + masked], 1)
    assert rows_that_matter(unmasked, output, attended).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("kind", ["bert", "gpt2", "xlnet"])
def test_padding_is_on_the_right_and_has_any_id_and_masked_positions_are_not_read(kind):
    subject = open_subject(kind)
    plain = texts(subject.model, (9, 4))
    left = {name: torch.stack([values[0], values[1].roll(5)]) for name, values in plain.items()}
    holed = {**plain, "attention_mask": plain["attention_mask"].index_fill(1, torch.tensor([2]), 0)}
    for refused, count in ((left, 1), (holed, 2)):
        with pytest.raises(SubjectError, match=f"{count} of 2 texts .* attention_mask"):
            Batch.of(refused, subject)
    filled = {**plain, "input_ids": plain["input_ids"].masked_fill(plain["attention_mask"] == 0, 7)}
    logits = subject.predict(Batch.of(plain, subject))
    assert torch.equal(subject.predict(Batch.of(filled, subject)), logits)  # GPT-2 finds the end by the id
    hidden = Batch.of(plain, subject).take(torch.arange(2))
    hidden["attention_mask"] = holed["attention_mask"]
    logits = subject.predict(hidden)
    close(subject.predict(hidden.take(torch.tensor([1]), 4))[0], logits[1])
    if kind != "gpt2":
        hidden["input_ids"] = plain["input_ids"].index_fill(1, torch.tensor([2]), 11)
        close(subject.predict(hidden), logits)


@pytest.mark.parametrize("kind", ["mbart", "ctrl", "ibert", "gemma3", "roformer"])
def test_embeddings_of_the_ids_are_read_as_the_ids(kind):
    """Of types that scale, share or quantise them."""
    subject = open_subject(kind)
    some = batch(subject)
    embedded = subject.embed(some).detach().requires_grad_()
    logits = subject.predict(some, embedded)
    close(logits, subject.predict(some))
    close(subject.vocabulary()[some["input_ids"]], embedded)
    (slope,) = torch.autograd.grad(logits[:, 0].sum(), [embedded])
    inside = slope.abs().sum(2) > 0
    assert inside[some["attention_mask"] == 0].sum() == 0 and bool(inside.any(1).all())
    step = torch.zeros_like(embedded)
    step[1, 2] = 1e-2 * slope[1, 2].sign()
    with torch.no_grad():
        ahead, behind = (subject.predict(some, embedded + sign * step)[1, 0] for sign in (1, -1))
    assert float(ahead - behind) == pytest.approx(float(2 * (step * slope).sum()), rel=0.1)


def test_the_attention_shown_is_the_named_reduction_on_tokens_of_the_text():
    """By the maps that the model itself returns."""
    subject = open_subject()
    some = subject.encode(["the old ship sank slowly", "a film", ""])
    with subject.evaluating(), torch.no_grad():
        inputs = {name: some[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
        returned = subject.model(**inputs, output_attentions=True).attentions
    inside = subject.attendable(some)
    assert inside.sum(1).tolist() == [5, 2, 0]
    for reduction, row in (
        ("last", returned[1].mean(1)[:, 0]),
        ("all", (returned[0] + returned[1]).mean(1)[:, 0] / 2),
        ({"layers": 0, "head": 3}, returned[0][:, 3, 0]),
    ):
        reduced = subject.shown_by(reduction)
        weights_on_text, expected = reduced.attention(Batch.of(some, reduced)), (row * inside).double()
        close(weights_on_text[:2], expected[:2] / expected[:2].sum(1, keepdim=True))
        assert not weights_on_text[2].any()


def test_a_saturated_tanh_hides_no_row_and_a_dead_relu_leaves_none():
    subject, dead = open_subject(), open_subject("distilbert")
    plain = subject.attention(batch(subject))
    with torch.no_grad():
        subject.model.bert.pooler.dense.bias += 100  # tanh gives 1
        dead.model.pre_classifier.bias -= 100  # ReLU gives 0
    assert torch.equal(subject.attention(batch(subject)), plain)
    with pytest.raises(SubjectError, match="the logits of 2 of 2 texts do not depend on the last layer"):
        dead.attention(batch(dead, (5, 4)))


def test_texts_beyond_the_positions_are_cut_and_marked_as_truncated():
    subject = open_subject(max_position_embeddings=12)
    rows = subject.rows(Dataset.from_dict({"instance_id": ["0", "1"], "text": ["the old ship " * 9, "a film"]}))
    assert rows["truncated"][:] == [True, False] and rows["length"][:] == [12, 4] and len(rows["tokens"][0]) == 10
    pairs = {"instance_id": ["0"], "text": ["the old ship " * 9], "text_pair": ["a film"]}
    rows = subject.rows(Dataset.from_dict(pairs))
    assert rows["length"][:] == [12] and rows["text_of_token"][0] == [0] * 7 + [1] * 2
    with pytest.raises(SubjectError, match="20 tokens, and the model has 12 positions"):
        subject.check({"length": [20, 1]})


@pytest.mark.parametrize(("kind", "limit"), [("bert", 64), ("roberta", 63), ("opt", 64), ("t5", None)])
def test_the_limit_is_how_far_the_model_has_positions(kind, limit):
    """The longest text is read, and one token more is not, or has no place of its own."""
    subject = SelfAttention(classifier(kind))
    assert base.position_limit(subject) == limit
    if limit is not None:
        subject.predict(batch(subject, (limit,)))
        with pytest.raises((IndexError, RuntimeError)):
            subject.predict(batch(subject, (limit + 1,)))


def test_an_encoder_and_decoder_answers_at_the_one_end_of_a_text():
    subject = open_subject("t5", {"layers": "last", "head": 0})
    some = subject.encode(["the old ship sank", "a film", ""])
    assert subject.read(some, rows=True).rows.nonzero().tolist() == [[0, 5], [1, 3], [2, 1]]
    close(subject.predict(subject.encode(["a film"]))[0], subject.predict(some)[1])
    with pytest.raises(SubjectError, match="text '1' has 2 end markers"):
        subject.encode(["a film", "the [SEP] ship"])
    with pytest.raises(SubjectError, match="text '0' has 0 end markers"):
        SelfAttention(subject.model, tokenizer(markers=False)).encode(["a film"])
