"""Cards: the stored ones byte for byte, numbers by another way, texts that try to format, folders of runs."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard

from attnfaith import record as records
from attnfaith.data.registry import DATASETS, facts
from attnfaith.measurement.registry import names
from attnfaith.models.configuration_rationale_classifier import THRESHOLDS
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.projections import PROJECTIONS
from attnfaith.recipes.schema import Penalties
from attnfaith.reporting import cards
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.sections import agreement
from attnfaith.reporting.sections.changes import changes
from attnfaith.reporting.verdicts import verdict
from attnfaith.support.escaping import markdown
from attnfaith.verdict import RULE
from tests import deception
from tests.records import build, draw, of_cell
from tests.sections import with_permutations


GOLDEN = Path(__file__).parent / "golden"
REPO, RECORDS_REPO = "someone/tiny-bilstm", "someone/attnfaith-records"
MEASURES = ("gradient", "gradient_norm", "leave_one_out")
SST = facts("sst")
RUN, RECIPE = (json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8")) for name in ("run", "recipe"))


def with_settings(table, **settings):
    """The record with what a measurement stores in it."""
    stored = {
        "identity": {name: table.column(name)[0].as_py() for name in records.IDENTITY_COLUMNS},
        "label_names": ["negative", "positive | <i>x</i>"],
        "producers": ["gradient", "gradient_norm", "leave_one_out", "permutation"],
        "model": "d" * 64,
        "version": "0.1.0",
        "seed": 0,
        "recipe": RECIPE,
        **settings,
    }
    return records.with_settings(table, [stored])


@pytest.fixture(scope="module")
def table():
    """Forty texts, an empty one and one of a token among them, with permutations and marked evidence."""
    return with_settings(with_permutations(draw(40, seed=7, measures=MEASURES, rationale=True), seed=5))


def card(run, table, dataset=SST, **repos):
    """README.md and the chart."""
    files = cards.model_card(run, [table], REPO, dataset, **repos)
    return files.pop("README.md").decode(), files


@pytest.fixture(scope="module")
def rendered(table):
    """Every card, as it is stored: write a changed one to golden/<name>.golden where the change is meant."""
    cell = cards.cell_facts(RUN, table, model_repo=REPO)
    cells = {"tiny-bilstm": cell, "other": {**cell, "dataset": "snli"}}
    return {
        "model_card.md": card(RUN, table, records_repo=RECORDS_REPO)[0],
        "records_card.md": cards.records_card(cells, repo_id=RECORDS_REPO, datasets={"snli": facts("snli")}),
    }


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.golden")), ids=lambda path: path.stem)
def test_the_stored_card(path, rendered):
    assert rendered[path.stem] == path.read_text(encoding="utf-8")


def test_the_card_begins_with_the_verdict_and_its_chart(rendered, table):
    text, cell = rendered["model_card.md"], one_cell(table)
    start = text[: text.index("## How to load it")]
    assert f"**May its attention be shown as an explanation?** {verdict([cell]).headline}." in start and RULE in text
    ((path, content),) = card(RUN, table)[1].items()
    chart = agreement.measures_chart([cell])
    assert f"![{markdown(chart.words)}]({path})" in start and path == "figures/tiny-bilstm-answer.svg"
    assert ElementTree.fromstring(content)[0].text == chart.title
    bare, figures = card(RUN, build([{"attention": [0.6, 0.4], "label": 1}], dataset="sst"))
    assert figures == {} and "answer.svg" not in bare


def test_numbers_are_those_of_the_tables(table):
    cell = one_cell(table)
    numbers, taus = cards.card_numbers(cell), agreement.TABLE.frame([cell]).set_index(["pair", "class"])
    assert numbers["accuracy"]["mean"] == np.nanmean(np.where(np.isnan(cell.labels), np.nan, cell.predicted == cell.labels))
    for measure in MEASURES:
        row = taus.loc[(f"attention–{measure}", "overall")]
        expected = row[["tau_mean", "ci_low", "ci_high", "n"]].tolist()
        assert [numbers[f"kendall_tau.{measure}"][name] for name in ("mean", "ci_low", "ci_high", "n")] == expected
    moved = changes(cell, "permuted_probs")[0]
    assert numbers["tvd"]["mean"] == np.nanmean(moved) and numbers["tvd"]["share_beyond"] == np.nanmean(
        np.where(np.isnan(moved), np.nan, moved < 0.05)
    )


def test_metadata_reads_back(rendered, table):
    data, numbers = ModelCard(rendered["model_card.md"]).data, cards.card_numbers(one_cell(table))
    assert data.license == "apache-2.0" and data.datasets == ["SetFit/sst2"]
    assert data.to_dict()["attnfaith"] == {"records": RECORDS_REPO, "configuration": "tiny-bilstm"}
    results = {(result.metric_type, (result.metric_args or {}).get("compared_with")): result for result in data.eval_results}
    assert ("roc_auc", None) in results
    for name, number in numbers.items():
        metric, _, about = name.partition(".")
        result = results[metric, about or None]
        assert result.metric_value == pytest.approx(number["mean"], abs=1e-6)
        if metric != "roc_auc":
            assert result.metric_args["ci_low"] == pytest.approx(number["ci_low"], abs=1e-6)
        assert (result.metric_args["n"], result.metric_args["undefined"]) == (number["n"], number["n_undefined"])


def test_numbers_that_are_undefined_are_not_in_the_metadata():
    table = build([{"attention": [1.0], "leave_one_out": [0.3]}], measures=("leave_one_out",))
    text, _ = card({"status": "complete"}, table)
    assert ".nan" not in text and "nan" not in re.findall(r"\| ([^|]*) \|", text)
    metrics = yaml.safe_load(text.split("---\n")[1])["model-index"][0]["results"][0]["metrics"]
    assert "kendall_tau" not in [metric["type"] for metric in metrics]
    assert "| Kendall’s τ of attention and leave-one-out | undefined | 0 | 1 |" in text


HOSTILE = "</td><script>alert(1)</script> ![x](https://evil.example/p.png) | a\n---\nlicense: mit\n# head `c` {{ 7*7 }} ```"


def test_texts_of_others_format_nothing_and_name_no_folder(table, rendered):
    recipe = RECIPE | {"note": HOSTILE}
    hostile = with_settings(table, label_names=[HOSTILE, "b"], recipe=recipe, producers=[HOSTILE])
    dataset = SST | {"citation": HOSTILE, "licence": HOSTILE, "notes": HOSTILE}
    cell = cards.cell_facts(RUN, hostile, model_repo=REPO)
    model_card, _ = card(RUN, hostile, dataset)
    for text in (
        model_card,
        cards.records_card({"c": cell}, repo_id=REPO, datasets={"sst": dataset}),
    ):
        _, front_matter, body = text.split("---\n", 2)
        assert yaml.safe_load(front_matter)["license"] != "mit"
        assert "<script" not in body and "![x]" not in body and "{{ 7\\*7 }}" in body
        assert not re.search(r"^(---|license: mit|# head)", body, re.M)
    assert len(re.findall("^## ", rendered["model_card.md"], re.M)) == len(re.findall("^## ", model_card, re.M))
    own = of_cell(table, dataset="/srv/somebody/reviews.csv")
    text, _ = card(RUN, own)
    assert "reviews.csv" in text and "/srv" not in text
    assert cards.cell_facts(RUN, own, model_repo=REPO)["dataset"] == "reviews.csv"


def test_inputs_that_are_refused(table):
    for weights in ("e" * 64, ""):
        with pytest.raises(ValueError, match="not of the same weights"):
            cards.model_card(RUN, [table, with_settings(table, model=weights)], REPO, SST)


def test_every_data_set_and_measure_is_cited():
    assert set(cards.CITED["datasets"]) == set(DATASETS)
    assert {key for kind in cards.CITED.values() for keys in kind.values() for key in keys} <= set(cards.BIBTEX)
    assert set(cards.CITED["producers"]) <= set(names())
    assert set(cards.CITED["projections"]) <= set(PROJECTIONS) | set(THRESHOLDS)
    weights = {name for name, value in vars(Penalties()).items() if value == 0}
    assert set(cards.CITED["penalties"]) == weights == set(cards.PENALTIES)
    assert set(cards.CITED["encoders"]) <= set(ENCODERS)


def test_training_to_deceive_is_named_and_cited():
    fields = {"impermissible_mass": 0.1, "diversity": 0.5, "encoder": "orthogonal_lstm"}
    tables = (with_settings(deception.model(1, texts=12, dataset="sst", **more).table) for more in ({}, fields))
    plain, changed = (card(RUN, table)[0] for table in tables)
    for words in ("**Its attention was trained to deceive**", "with a weight of 0.5", "{mohankumar-etal-2020-towards,"):
        assert words in changed and words not in plain


# ---------- folders of runs


@pytest.fixture
def folder(tmp_path, table):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps(RUN))
    records.save(table.drop_columns(["permuted_probs"]), run / "record.parquet")
    return run


def test_cards_of_folders(folder, tmp_path, table):
    written = cards.write_cards({REPO: folder}, tmp_path / "cards", facts)
    names = {path.relative_to(tmp_path / "cards").as_posix() for path in written}
    assert names == {"tiny-bilstm.md", "figures/tiny-bilstm-answer.svg"}
    text = (tmp_path / "cards" / "tiny-bilstm.md").read_text()
    assert text == card(RUN, records.load(folder / "record.parquet"))[0] and "shuffled weights" not in text
    records.save(table, folder / "interventions.parquet")  # a second measurement of the same weights
    cards.write_cards({REPO: folder}, tmp_path / "cards", facts)
    assert "shuffled weights" in (tmp_path / "cards" / "tiny-bilstm.md").read_text()


@pytest.mark.parametrize(
    ("content", "message"), [('{"status": "trained"}', "not complete"), ("{", "cannot be read"), (None, "no run")]
)
def test_folders_that_are_no_finished_run(folder, tmp_path, content, message):
    (folder / "run.json").unlink() if content is None else (folder / "run.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        cards.write_cards({REPO: folder}, tmp_path / "cards", facts)
    assert not (tmp_path / "cards").exists()
