"""Classifiers that keep impermissible tokens apart, as subjects: what is checked when one is opened, and what it asks."""

import pytest
import torch

from attnfaith import SelfAttentionClassifierForSequenceClassification
from attnfaith.subjects import Batch, SelfAttention, SubjectError
from attnfaith.subjects.attention import Given
from attnfaith.subjects.checks import check_separation
from tests import tolerances
from tests.small_classifiers import classifier, texts, tokenizer


LENGTHS = (9, 4, 6)
MARKED = torch.tensor([[0, 1, 0, 1, 1, 0, 0, 1, 0], [0, 1, 0, 0] + [0] * 5, [0, 0, 1, 1, 1, 0] + [0] * 3])


def subject(kind="bert", projection="softmax", reduction="last"):
    model = SelfAttentionClassifierForSequenceClassification.of(classifier(kind), projection, separate_impermissible=True)
    return SelfAttention(model.eval(), tokenizer(), reduction)


def batch(of):
    return Batch.of({**texts(of.model, LENGTHS), "impermissible": MARKED}, of)


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
@torch.no_grad()
def test_a_text_is_the_same_alone_and_in_any_batch(projection):
    of = subject(projection=projection)
    whole, order = batch(of), torch.tensor([2, 0, 1])
    logits, attention = of.predict(whole), of.attention(whole)
    torch.testing.assert_close(of.predict(whole.take(order)), logits[order])
    for row, length in enumerate(LENGTHS):
        one = whole.alone(row)
        tolerances.close(of.predict(one)[0], logits[row], depth=4)
        tolerances.close(of.attention(one)[0], attention[row, :length], dtype=torch.float32, depth=4)
    other = Batch.of({**texts(of.model, LENGTHS), "impermissible": MARKED.roll(1, 1)}, of)
    assert not torch.allclose(of.predict(other), logits, atol=1e-4)


def test_deleting_a_token_keeps_the_others_of_their_kind():
    of = subject()
    whole = batch(of)
    stays = whole["attention_mask"].bool()
    stays[:, 2] = False
    for row, length in enumerate(LENGTHS):
        left = [place for place in range(length) if place != 2]
        expected = of.model(
            input_ids=whole["input_ids"][row : row + 1, left],
            attention_mask=torch.ones(1, len(left), dtype=torch.long),
            impermissible=MARKED[row : row + 1, left],
        ).logits
        tolerances.close(of.predict(of.keep(whole, stays))[row : row + 1], expected, depth=4)


@torch.no_grad()
def test_what_is_read_from_a_prefix_is_what_is_read_whole():
    of = subject(reduction={"layers": "last", "head": 1})
    whole = batch(of)
    prefix, rows = of.prefix(whole, 1), torch.tensor([2, 0, 0, 1])
    assert prefix is not None
    uniform = torch.rand(4, MARKED.shape[1], generator=torch.Generator().manual_seed(3))
    inside, matter = of.attendable(whole)[rows], of.matter(whole)[rows]
    edit = Given(of.sites.layers[1], 1, uniform / (uniform * inside).sum(1, keepdim=True), inside, matter)
    plain = of.read(whole.take(rows), edit).logits
    torch.testing.assert_close(of.read(whole.take(rows), edit, after=(prefix, rows)).logits, plain)
    torch.testing.assert_close(of.edited(whole, rows, edit, prefix), plain)


def test_a_batch_that_says_nothing_is_refused():
    of = subject()
    with pytest.raises(
        SubjectError, match=r"^SelfAttentionClassifier.* keeps impermissible tokens apart, and this batch does"
    ):
        of.predict(of.encode(["the old ship"]))


def test_what_a_record_says_of_it():
    assert subject().identity()["separate_impermissible"] is True
    plain = SelfAttention(classifier("bert"), tokenizer())
    assert plain.identity()["separate_impermissible"] is False
    model = SelfAttentionClassifierForSequenceClassification.of(classifier("bert"), separate_impermissible=True).eval()
    same = SelfAttentionClassifierForSequenceClassification.of(classifier("bert")).eval()
    assert SelfAttention(model).digest() != SelfAttention(same).digest()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("eurobert", "its logits depend on all positions of the last layer"),
        ("xlnet", r"its logits depend on positions \[10\] of the last layer"),
        ("openai-gpt", r"its logits depend on positions \[10\] of the last layer"),
        ("convbert", "what it computes of tokens of one kind depends on the other by another way than attention"),
        ("mobilebert", "what it computes of tokens of one kind depends on the other by another way than attention"),
    ],
)
def test_a_model_in_which_kinds_would_meet_is_refused(kind, why):
    SelfAttention(classifier(kind), tokenizer())
    with pytest.raises(SubjectError, match=f"fails the check 'separation': {why}"):
        subject(kind)


def test_a_model_that_forgets_its_mask_is_found_out():
    """One that takes marks and does nothing with them."""

    class Deaf(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = classifier("bert", attn_implementation="eager")

        def forward(self, impermissible=None, **inputs):
            return self.inner(**inputs)

    model = Deaf().eval()
    text = {**texts(model.inner, (9,)), "impermissible": MARKED[:1]}
    said = check_separation(model, text, text["input_ids"].flip(1), 1)
    assert said.startswith("a weight of 0.") and said.endswith("lies between tokens that it is to keep apart")
