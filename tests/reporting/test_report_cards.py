"""Cards: the stored ones byte for byte, numbers by another way, the rules of the verdicts, texts that try to format."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import evaluate
import numpy as np
import pyarrow as pa
import pytest
import yaml
from huggingface_hub import ModelCard
from huggingface_hub._eval_results import parse_eval_result_entries

from attnfaith import record as records
from attnfaith.data.registry import DATASETS, facts
from attnfaith.measurement.registry import find, names
from attnfaith.metrics.registration import METRIC_DIR
from attnfaith.models.configuration_rationale_classifier import SAMPLERS
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.projections import PROJECTIONS
from attnfaith.recipes.schema import PENALTIES
from attnfaith.reporting import cards
from attnfaith.reporting.cards import Checkpoint
from attnfaith.reporting.cards import model as model_cards
from attnfaith.reporting.chart import measures_chart
from attnfaith.support.escaping import markdown
from attnfaith.verdict import CANNOT_TELL, RULE
from tests import deception
from tests.records import of_cell


GOLDEN = Path(__file__).parent / "golden"
REPO = "someone/tiny-bilstm"
MEASURES = ("gradient", "gradient_norm", "leave_one_out")
RECIPE = {
    "name": "tiny-bilstm",
    "note": "A note with | and <b>bold</b>\nand [a link](https://example.org).",
    "data": {"name": "sst", "limits": {"train": 100}},
    "model": {"encoder": "bilstm", "readout": "affine"},
    "training": {
        "num_train_epochs": 8,
        "learning_rate": 0.001,
        "weight_decay": 1e-5,
        "per_device_train_batch_size": 32,
        "gradient_accumulation_steps": 1,
    },
    "measure": {"limit": 40},
}
RUN = {
    "status": "complete",
    "versions": {"attnfaith": "0.1.0", "torch": "2.13.0"},
    "dataset": {"name": "sst", "revision": "abc", "dropped": {"train": {"too_short": 3}, "test": {"too_short": 1}}},
    "sizes": {"train": 100, "validation": 20, "test": 40},
    "vocabulary": 1234,
    "epochs": 4.0,
    "best": {"metric": "eval_roc_auc", "value": 0.8705},
    "processes": 1,
    "provenance": {
        "version": "0.1.0",
        "commit": "c0ffee",
        "dirty": False,
        "libraries": {"torch": "2.13.0", "numpy": "2.4.6"},
        "data": {"revision": "abc", "fingerprint": {"train": "f" * 64}},
        "seed": 7,
        "python": "3.11.7",
        "platform": "Linux x86_64",
    },
}


def made_of(table, **settings):
    """The record with what a measurement stores in it."""
    identity = {name: table.column(name)[0].as_py() for name in records.IDENTITY_COLUMNS}
    stored = {
        "identity": identity,
        "label_names": ["negative", "positive | <i>x</i>"],
        "producers": ["gradient", "gradient_norm", "leave_one_out", "permutation"],
        "model": "d" * 64,
        "version": "0.1.0",
        "seed": 0,
        "recipe": RECIPE,
        **settings,
    }
    return records.with_settings(table, [stored])


def permuted(table, seed=5):
    generator = np.random.default_rng(seed)
    lengths = [len(row) for row in records.rows(table, "attention")]
    draws = [generator.dirichlet(np.ones(2), 9 if length > 1 else 0).tolist() for length in lengths]
    field = find("permutation").columns["permuted_probs"].field("permuted_probs")
    return table.append_column(field, pa.array(draws, field.type))


@pytest.fixture
def drawn(draw_record):
    """Forty texts, an empty one and one of a token among them, with permutations and marked evidence."""
    return made_of(permuted(draw_record(40, seed=7, measures=MEASURES, rationale=True)))


def tables():
    return {"agreement": {"rows": 12, "columns": ["checkpoint", "tau_mean"]}, "a_b": {"rows": 3, "columns": ["n"]}}


def rendered(drawn):
    with_figures = ["dispersion_by_scores", "tau_by_measure"]
    repos = {"records_repo": "someone/attnfaith-records", "results_repo": "someone/attnfaith-results"}
    cell = cards.cell_facts(RUN, drawn, model_repo=REPO)
    return {
        "model_card.md": cards.model_card(Checkpoint(RUN, drawn), REPO, facts("sst"), figures=with_figures, **repos),
        "records_card.md": cards.records_card(
            {"tiny-bilstm": cell, "other": {**cell, "dataset": "snli"}},
            repo_id=repos["records_repo"],
            datasets={"snli": facts("snli")},
        ),
        "results_card.md": cards.results_card(tables(), repo_id=repos["results_repo"]),
        "cards_index.md": cards.cards_index({REPO: Checkpoint(RUN, drawn)}),
        "eval_results.yaml": cards.eval_results(Checkpoint({}, drawn), facts("sst"), records_repo=repos["records_repo"])[
            ".eval_results/sst.yaml"
        ],
    }


@pytest.mark.parametrize(
    "name", ["model_card.md", "records_card.md", "results_card.md", "cards_index.md", "eval_results.yaml"]
)
def test_the_stored_card(name, drawn):
    """A changed template, rule or number shows as a diff. Where the change is meant, store what is rendered."""
    assert rendered(drawn)[name] == (GOLDEN / f"{name}.golden").read_text(encoding="utf-8")


def test_the_card_begins_with_the_answer_and_its_chart(drawn, build_record):
    """The sentence and the picture are those of the page."""
    checkpoint = Checkpoint(RUN, drawn)
    text = cards.model_card(Checkpoint(RUN, drawn), REPO, facts("sst"))
    start = text[: text.index("## How to load it")]
    assert f"**May its attention be shown as an explanation?** {checkpoint.verdict.headline}." in start and RULE in text
    ((path, content),) = cards.answer_files(checkpoint, REPO).items()
    chart = measures_chart(checkpoint.cells)
    assert f"![{markdown(chart.words)}]({path})" in start and path == "figures/tiny-bilstm-answer.svg"
    assert ElementTree.fromstring(content)[0].text == chart.title
    bare = build_record([{"attention": [0.6, 0.4], "label": 1}], dataset="sst")
    assert cards.answer_files(Checkpoint({}, bare), REPO) == {}
    assert "answer.svg" not in cards.model_card(Checkpoint(RUN, bare), REPO, facts("sst"))


def test_numbers_are_those_of_the_metric(drawn):
    """By `evaluate`, which computes from columns and not from a record."""
    metric = evaluate.load(str(METRIC_DIR))
    numbers = Checkpoint(RUN, drawn).numbers
    for name in MEASURES:
        measured = metric.compute(
            attention=records.rows(drawn, "attention"), importance=records.rows(drawn, f"importance_{name}")
        )
        tau = numbers[f"kendall_tau.{name}"]
        assert tau.value == pytest.approx(measured["kendall_tau"])
        assert (tau.low, tau.high) == pytest.approx((measured["kendall_tau_ci_low"], measured["kendall_tau_ci_high"]))
        assert tau.n_undefined == measured["kendall_tau_undefined"] == 3 and tau.n == 37
        assert tau.against == pytest.approx(measured["tie_ceiling"])
        overlap = numbers[f"top_k_overlap.{name}"]
        assert (overlap.value, overlap.against) == pytest.approx(
            (measured["top_k_overlap"], measured["top_k_overlap_chance"])
        )
    for key in ("normalised_entropy", "support_size", "share_of_zeros"):
        assert numbers[key].value == pytest.approx(measured[key])
    labels = drawn.column("label").to_numpy()
    predicted = np.stack(records.rows(drawn, "probs")).argmax(1)
    labelled = ~np.isnan(labels)
    assert numbers["accuracy"].value == np.mean(predicted[labelled] == labels[labelled])
    assert numbers["accuracy"].n_undefined == (~labelled).sum() > 0


def test_states_are_left_out_and_all_else_is_what_it_is_without_them(draw_record):
    names = ("leave_one_out", "leave_one_out_hidden", "gradient", "gradient_hidden")
    table = draw_record(40, measures=names)
    without = table.drop_columns([f"importance_{name}" for name in names if name.endswith("_hidden")])
    both, inputs = Checkpoint({}, table), Checkpoint({}, without)
    assert both.numbers.keys() == inputs.numbers.keys() and both.verdict == inputs.verdict
    for name, number in both.numbers.items():
        assert number == pytest.approx(inputs.numbers[name], nan_ok=True)
    assert both.cell.measures == ("leave_one_out", "gradient")
    only_states = draw_record(40, measures=("gradient_hidden",))
    assert not [name for name in Checkpoint({}, only_states).numbers if "gradient" in name]


def test_metadata_reads_back(drawn):
    card = ModelCard(rendered(drawn)["model_card.md"])
    assert card.data.license == "apache-2.0" and card.data.datasets == ["SetFit/sst2"]
    assert card.data.to_dict()["attnfaith"] == {"records": "someone/attnfaith-records", "configuration": "tiny-bilstm"}
    results = {
        (measured.metric_type, (measured.metric_args or {}).get("compared_with")): measured
        for measured in card.data.eval_results
    }
    numbers = Checkpoint(RUN, drawn).numbers
    assert results["accuracy", None].metric_value == pytest.approx(numbers["accuracy"].value, abs=1e-6)
    for name in MEASURES:
        measured, number = results["kendall_tau", name], numbers[f"kendall_tau.{name}"]
        assert measured.metric_value == pytest.approx(number.value, abs=1e-6)
        assert measured.metric_args["ci_low"] == pytest.approx(number.low, abs=1e-6)
        assert (measured.metric_args["n"], measured.metric_args["undefined"]) == (number.n, number.n_undefined)
    assert results["tvd", None].metric_value == pytest.approx(numbers["shuffled.tvd"].value, abs=1e-6)
    entries = parse_eval_result_entries(yaml.safe_load(rendered(drawn)["eval_results.yaml"]))
    tau = next(entry for entry in entries if entry.task_id == "kendall_tau.gradient")
    assert (tau.dataset_id, tau.value) == ("SetFit/sst2", results["kendall_tau", "gradient"].metric_value)
    assert len(entries) == len(card.data.eval_results)


def test_what_is_undefined_is_not_known(build_record):
    table = build_record([{"attention": [1.0], "leave_one_out": [0.3]}], measures=("leave_one_out",))
    assert Checkpoint({}, table).verdict.outcome == CANNOT_TELL
    text = cards.model_card(Checkpoint({"status": "complete"}, table), REPO, facts("sst"))
    assert ".nan" not in text and "nan" not in re.findall(r"\| ([^|]*) \|", text)
    metrics = yaml.safe_load(text.split("---\n")[1])["model-index"][0]["results"][0]["metrics"]
    assert "kendall_tau" not in [metric["type"] for metric in metrics]
    assert "| Kendall’s τ of attention and leave-one-out | undefined | 0 | 1 |  |" in text


NASTY = "</td><script>alert(1)</script> ![x](https://evil.example/p.png) | a\n---\nlicense: mit\n# head `c` {{ 7*7 }} ```"


def test_texts_of_others_format_nothing(drawn):
    table = made_of(drawn, label_names=[NASTY, "b"], recipe=RECIPE | {"note": NASTY}, producers=[NASTY])
    dataset = facts("sst") | {"citation": NASTY, "licence": NASTY, "notes": NASTY}
    run = json.loads(json.dumps(RUN))
    plain = ModelCard(rendered(drawn)["model_card.md"])
    cell = cards.cell_facts(run, table, model_repo=REPO)
    for text in (
        cards.model_card(Checkpoint(run, table), REPO, dataset, figures=["tau_by_measure"]),
        cards.records_card({"c": cell}, repo_id=REPO, datasets={"sst": dataset}),
        cards.results_card({"t": {"rows": 1, "columns": [NASTY]}}, repo_id=REPO),
    ):
        _, front_matter, body = text.split("---\n", 2)
        assert yaml.safe_load(front_matter)["license"] != "mit"
        assert "<script" not in body and "![x]" not in body and "{{ 7\\*7 }}" in body
        assert not re.search(r"^(---|license: mit|# head)", body, re.M)
    assert len(re.findall("^## ", plain.text, re.M)) == len(
        re.findall("^## ", cards.model_card(Checkpoint(run, table), REPO, dataset, figures=["dispersion_by_scores"]), re.M)
    )


@pytest.mark.parametrize("repo_id", ["no-owner", "a/b/c", "a/b--c", 'a/b"c', "a/", "a/b\nc"])
def test_names_that_the_hub_does_not_allow(repo_id, drawn):
    with pytest.raises(ValueError):
        cards.model_card(Checkpoint(RUN, drawn), repo_id, facts("sst"))


def test_no_folder_of_a_machine(drawn):
    table = of_cell(drawn, dataset="/srv/somebody/reviews.csv")
    text = cards.model_card(Checkpoint(RUN, table), REPO, facts("sst"))
    assert "reviews.csv" in text and "/srv" not in text
    cell = cards.cell_facts(RUN, table, model_repo=REPO)
    assert cell["dataset"] == "reviews.csv"


@pytest.mark.parametrize("weights", ["e" * 64, None])
def test_records_of_other_weights_are_refused(drawn, weights):
    with pytest.raises(ValueError, match="not of the same weights"):
        Checkpoint(RUN, [drawn, made_of(drawn, model=weights)])


def test_every_data_set_is_cited():
    assert set(model_cards.CITED["datasets"]) == set(DATASETS)
    for kind in model_cards.CITED.values():
        for keys in kind.values():
            assert isinstance(keys, list) and set(keys) <= set(model_cards.BIBTEX)
    # one that somebody adds is theirs to cite
    assert set(model_cards.CITED["producers"]) <= set(names())
    assert set(model_cards.CITED["projections"]) <= set(PROJECTIONS) | set(SAMPLERS)
    assert set(model_cards.CITED["penalties"]) == set(PENALTIES) == set(model_cards.PENALTIES)
    assert set(model_cards.CITED["encoders"]) <= set(ENCODERS)


@pytest.mark.parametrize(
    ("fields", "cited", "words"),
    [
        ({"impermissible_mass": 0.1, "impermissible_heads": "max"}, "pruthi-etal-2020-learning", "(of the head with most"),
        ({"diversity": 0.5}, "mohankumar-etal-2020-towards", "with a weight of 0.5 (Mohankumar et al. 2020)."),
        ({"masked_language_model": 1.0, "masked_share": 0.15}, "tutek-snajder-2020-staying", "15% of the words masked"),
        ({"encoder": "orthogonal_lstm"}, "mohankumar-etal-2020-towards", "An LSTM that reads onward, each state without"),
    ],
)
def test_training_and_encoder_are_named_and_cited(fields, cited, words):
    tables = (made_of(deception.model(1, texts=12, dataset="sst", **of).table) for of in ({}, fields))
    plain, changed = (cards.model_card(Checkpoint(RUN, table), REPO, facts("sst")) for table in tables)
    assert words in changed and f"{{{cited}," in changed
    assert words not in plain and (
        cited.startswith("pruthi") or f"{{{cited}," not in plain
    )  # every card names Pruthi et al.


@pytest.mark.parametrize(("projection", "classes"), [("softmax", 3), ("sparsegen(0.5)", 30)])
def test_sparse_checkpoints_and_many_classes(draw_record, projection, classes):
    names = [f"name{number}" for number in range(classes)]
    table = made_of(draw_record(20, classes=classes, projection=projection), label_names=names)
    text = cards.model_card(Checkpoint(RUN, table), REPO, facts("planted_evidence"))
    assert ("and needs `pip install entmax`:" in text) == (projection != "softmax")
    assert len(re.findall(r"^\| F1", text, re.M)) == (3 if classes == 3 else 1)
    assert (
        ModelCard(text).data.datasets is None and cards.eval_results(Checkpoint({}, table), facts("planted_evidence")) == {}
    )


@pytest.fixture
def folder(tmp_path, drawn):
    (tmp_path / "run" / "report" / "figures").mkdir(parents=True)
    (tmp_path / "run" / "run.json").write_text(json.dumps(RUN))
    (tmp_path / "run" / "report" / "figures" / "dispersion_by_scores.png").write_bytes(b"png")
    records.save(drawn.drop_columns(["permuted_probs"]), tmp_path / "run" / "record.parquet")
    return tmp_path / "run"


def test_cards_of_folders(folder, tmp_path, drawn):
    written = cards.write_cards({REPO: folder}, tmp_path / "cards", facts)
    names = {path.relative_to(tmp_path / "cards").as_posix() for path in written}
    figures = {f"figures/tiny-bilstm-{name}" for name in ("dispersion_by_scores.png", "answer.svg")}
    assert names == {"README.md", "tiny-bilstm.md"} | figures
    text = (tmp_path / "cards" / "tiny-bilstm.md").read_text()
    table = records.load(folder / "record.parquet")
    assert text == cards.model_card(Checkpoint(RUN, table), REPO, facts("sst"), figures=["dispersion_by_scores"])
    for link in re.findall(r"\]\(((?!http|#)[^)]+)\)", text + (tmp_path / "cards" / "README.md").read_text()):
        assert (tmp_path / "cards" / link).is_file(), link
    # a second measurement of the same weights, beside the first
    records.save(drawn, folder / "interventions.parquet")
    assert "shuffled.tvd" in cards.read_checkpoint(folder).numbers


@pytest.mark.parametrize(
    ("content", "message"), [('{"status": "trained"}', "not complete"), ("{", "cannot be read"), (None, "no run")]
)
def test_folders_that_are_no_finished_run(folder, tmp_path, content, message):
    if content is None:
        (folder / "run.json").unlink()
    else:
        (folder / "run.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        cards.write_cards({REPO: folder}, tmp_path / "cards", facts)
    assert not (tmp_path / "cards").exists()
