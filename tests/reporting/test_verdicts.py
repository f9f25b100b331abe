"""From a record to the verdict; page, card, notebook and terminal have the same one."""

import numpy as np
import pytest
from markupsafe import escape

import attnfaith
from attnfaith.data.registry import facts
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.reporting import cards, sections
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.notebook import Overview
from attnfaith.reporting.page import render_page
from attnfaith.reporting.verdicts import losses, verdict
from attnfaith.verdict import BESIDE, CANNOT_TELL, DO_NOT_SHOW, MAY_SHOW
from tests.records import build
from tests.sections import appended


def measured(ratio, count=120, gold=None, different=120):
    """A cell of `different` texts in turn. Each loses 2 by the reference, 1 at random; by attention as the ratio says."""
    texts = [
        {
            "tokens": [f"w{row % different}", "a", "b"],
            "attention": [0.5, 0.3, 0.2],
            "probs": [[0.9, 0.1], [0.1, 0.9]][row % 2],
            "label": row % 2,
            "leave_one_out": [3, 2, 1],
            **({} if gold is None else {"gold": gold}),
        }
        for row in range(count)
    ]
    text = {
        "orders": ["attention", "absolute_integrated_gradients"],
        "losses": [1 + ratio, 2.0],
        "random": 1.0,
        "evidence": 3.0,
        "evidence_random": 1.0,
    }
    columns = {f"comprehensiveness_{name}": [value] * count for name, value in text.items()}
    table = build(texts, measures=("leave_one_out",), rationale=gold is not None)
    return one_cell(appended(table, "comprehensiveness", **columns))


@pytest.mark.parametrize(("ratio", "outcome"), [(1.0, MAY_SHOW), (0.6, BESIDE), (0.1, DO_NOT_SHOW)])
def test_a_record_has_one_verdict_on_page_card_and_notebook(ratio, outcome):
    cell = measured(ratio)
    numbers, expected = losses(cell), verdict([cell])
    assert numbers.reference_name == "integrated gradients" and set(numbers.attention) == {1 + ratio}
    assert expected.outcome == outcome and attnfaith.Record(cell.table).verdict == expected
    page = render_page([cell], sections.frames([cell]), title="t", facts={}, n_examples=1)
    card = cards.model_card({"status": "complete"}, [cell.table], "someone/model", facts("sst"))["README.md"].decode()
    notebook = Overview([cell])
    assert f">{expected.headline}</p>" in page and escape(expected.reason) in page
    assert f"{expected.headline}." in card and expected.advice in card
    for words in (expected.headline, expected.reason, expected.advice):
        assert words in str(notebook) and str(escape(words)) in notebook.html()


@pytest.mark.parametrize(("different", "outcome"), [(99, CANNOT_TELL), (100, MAY_SHOW)])
def test_a_repeated_text_counts_once(different, outcome):
    cell = measured(1.0, count=240, different=different)
    repeated, numbers = verdict([cell]), losses(cell)
    assert (repeated.outcome, repeated.n) == (outcome, different)
    for values in (numbers.labels, numbers.attention, numbers.reference):
        assert np.isnan(values).tolist() == [row >= different for row in range(240)]


def test_losses_that_were_not_measured_cannot_be_judged():
    table = measured(1.0).table
    without = table.drop_columns([name for name in table.column_names if name.startswith("comprehensiveness")])
    assert verdict([one_cell(without)]).outcome == CANNOT_TELL
    assert verdict([one_cell(without), one_cell(table)]).outcome == MAY_SHOW


@pytest.mark.parametrize(("gold", "outcome"), [([1, 0, 0], MAY_SHOW), ([0, 0, 1], DO_NOT_SHOW)])
def test_marked_evidence_is_read(gold, outcome):
    """Attention puts the first token first: precision 1, or 1/3 where the last decides."""
    assert verdict([measured(1.0, gold=gold)]).outcome == outcome


def test_measured_losses_are_those_of_texts_without_their_first_words(tiny_model):
    """By a second route: each word is taken out of the string and the text is read anew."""
    tokenizer = build_tokenizer(["a b c d e"], preprocessing="whitespace")
    model = tiny_model(encoder="bilstm", vocab_size=len(tokenizer), num_labels=3).double()
    texts, names = ["a b c d", "e d c", "b"], ["integrated_gradients", "comprehensiveness"]
    options = {"comprehensiveness": {"shares": [0.5], "draws": 64}}
    record = attnfaith.measure(model, texts, measures=names, options=options, tokenizer=tokenizer, progress=False)

    def log_odds(words, predicted):
        logits = model(**tokenizer(" ".join(words), return_tensors="pt")).logits[0].detach().numpy()
        return logits[predicted] - np.log(np.exp(np.delete(logits, predicted)).sum())

    for row, text in zip(record.table.to_pylist(), texts, strict=True):
        words, predicted = text.split(), int(np.argmax(row["probs"]))
        half = -(-len(words) // 2)
        for scores, lost in zip(
            ("attention", "importance_integrated_gradients"), row["comprehensiveness_losses"], strict=True
        ):
            rest = [words[token] for token in sorted(np.argsort(-np.abs(row[scores]))[half:])]
            expected = log_odds(words, predicted) - log_odds(rest, predicted)
            assert lost == pytest.approx(expected, rel=1e-6, abs=1e-9)
        assert np.isnan(row["comprehensiveness_evidence"])
    assert row["comprehensiveness_random"] == pytest.approx(lost)  # one word: every order is the same
