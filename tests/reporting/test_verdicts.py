"""From a record to the verdict, and that page, card, notebook and terminal say the same."""

import numpy as np
import pyarrow as pa
import pytest
from markupsafe import escape

import attnfaith
from attnfaith.data.registry import facts
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.measurement.registry import find
from attnfaith.reporting import cards, sections
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.html import unbroken
from attnfaith.reporting.notebook import Overview
from attnfaith.reporting.page.page import render_page
from attnfaith.reporting.verdicts import losses, verdict
from attnfaith.verdict import BESIDE, CANNOT_TELL, DO_NOT_SHOW, MAY_SHOW
from tests.records import build


def measured(ratio: float, count: int = 120, gold=None, order: str = "absolute_integrated_gradients", different=120):
    """A record of `different` texts in turn. Each loses 2 by the reference, 1 at random; by attention as the ratio says."""
    instances = [
        {
            "tokens": [f"w{row % different}", "a", "b"],
            "attention": [0.5, 0.3, 0.2],
            "probs": [[0.9, 0.1], [0.1, 0.9]][row % 2],
            "label": row % 2,
            "leave_one_out": [3, 2, 1],
        }
        | ({} if gold is None else {"gold": gold})
        for row in range(count)
    ]
    table = build(instances, measures=("leave_one_out",), rationale=gold is not None)
    values = {
        "orders": [["attention", order]] * count,
        "losses": [[1 + ratio, 2.0]] * count,
        "random": [1.0] * count,
        "evidence": [3.0] * count,
        "evidence_random": [1.0] * count,
    }
    for end, column in values.items():
        name = f"comprehensiveness_{end}"
        field = find("comprehensiveness").columns[name].field(name)
        table = table.append_column(field, pa.array(column, field.type))
    return table


@pytest.mark.parametrize(("ratio", "outcome"), [(1.0, MAY_SHOW), (0.6, BESIDE), (0.1, DO_NOT_SHOW)])
def test_a_record_has_its_verdict(ratio, outcome):
    read = losses(one_cell(measured(ratio)))
    assert read.reference_name == "integrated gradients" and set(read.attention) == {1 + ratio}
    assert verdict([one_cell(measured(ratio))]).outcome == outcome


def test_a_repeated_text_counts_once():
    repeated = verdict([one_cell(measured(1.0, count=240, different=99))])
    assert (repeated.outcome, repeated.n) == (CANNOT_TELL, 99)
    assert verdict([one_cell(measured(1.0, count=240, different=100))]).outcome == MAY_SHOW


def test_what_was_not_measured_cannot_be_told():
    table = measured(1.0)
    without = table.drop_columns([name for name in table.column_names if name.startswith("comprehensiveness")])
    assert verdict([one_cell(without)]).outcome == CANNOT_TELL
    assert verdict([one_cell(without), one_cell(table)]).outcome == MAY_SHOW


@pytest.mark.parametrize(("gold", "outcome"), [([1, 0, 0], MAY_SHOW), ([0, 0, 1], DO_NOT_SHOW)])
def test_marked_evidence_is_read(gold, outcome):
    """Attention puts the first token first: precision 1, or 1/3 where the last decides."""
    assert verdict([one_cell(measured(1.0, gold=gold))]).outcome == outcome


@pytest.mark.parametrize("ratio", [1.0, 0.6, 0.1])
def test_page_card_and_notebook_say_the_same(ratio):
    cell = one_cell(measured(ratio))
    expected = verdict([cell])
    page = render_page([cell], sections.frames([cell]), [[]], title="t", facts={}, n_examples=1)
    card = cards.model_card(cards.Checkpoint({"status": "complete"}, cell.table), "someone/model", facts("sst"))
    notebook = Overview([cell])
    assert f">{expected.headline}</p>" in page and unbroken(escape(expected.reason)) in page
    assert f"{expected.headline}." in card and expected.advice in card
    assert attnfaith.Record(cell.table).verdict == expected
    for words in (expected.headline, expected.reason, expected.advice):
        assert words in str(notebook) and str(escape(words)) in notebook.html()


def test_measured_losses_are_those_of_texts_without_their_first_words(tiny_model):
    """By a second route: each word is taken out of the string and the text is read anew."""
    tokenizer = build_tokenizer(["a b c d e"], preprocessing="whitespace")
    model = tiny_model(encoder="bilstm", vocab_size=len(tokenizer), num_labels=3).double()
    texts = ["a b c d", "e d c", "b"]
    options = {"comprehensiveness": {"shares": [0.5], "draws": 64}}
    names = ["integrated_gradients", "comprehensiveness"]
    record = attnfaith.measure(model, texts, measures=names, options=options, tokenizer=tokenizer, progress=False)

    def log_odds(words, predicted):
        encoded = tokenizer(" ".join(words), return_tensors="pt")
        logits = model(**encoded).logits[0].detach().numpy()
        return logits[predicted] - np.log(np.exp(np.delete(logits, predicted)).sum())

    for row, text in enumerate(texts):
        words = text.split()
        predicted = int(np.argmax(record.table["probs"][row].as_py()))
        whole = log_odds(words, predicted)
        half = -(-len(words) // 2)
        for place, scores in enumerate(("attention", "importance_integrated_gradients")):
            order = np.argsort(-np.abs(record.table[scores][row].as_py()))
            rest = [words[token] for token in sorted(order[half:])]
            lost = record.table["comprehensiveness_losses"][row].as_py()[place]
            assert lost == pytest.approx(whole - log_odds(rest, predicted), rel=1e-6, abs=1e-9)
        assert np.isnan(record.table["comprehensiveness_evidence"][row].as_py())
    assert record.table["comprehensiveness_random"][2].as_py() == pytest.approx(lost)  # one word: every order is the same
