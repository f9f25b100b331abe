"""What a notebook uses: a model and texts, as people have them, to a record, with the numbers of the command line."""

import shutil
import subprocess
import sys

import datasets
import numpy as np
import pandas as pd
import pytest
from transformers import AutoTokenizer, TextClassificationPipeline

import attnfaith
from attnfaith import cli, recipes, record, runs
from attnfaith.api.measuring import DEFAULTS
from attnfaith.measurement.registry import by_cost, find, names
from attnfaith.reporting import sections
from attnfaith.subjects import Pooled
from tests.records import replaced
from tests.tiny_recipes import tiny_tree
from tests.toy_subject import Toy


pytestmark = pytest.mark.slow
CHEAP = {"measures": ["gradient"], "progress": False}
MEASURE = {"producers": ["gradient", "lime", "permutation"], "options": {"lime": {"samples": 8}}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api") / "run"
    runs.run(recipes.build(tiny_tree(folder, measure=MEASURE, report={"page": False})))
    return folder


@pytest.fixture(scope="module")
def texts(run):
    """The texts that the run was measured on, as its data set gives them."""
    return runs.load_data(recipes.load(run / "recipe.yaml")).splits["test"]


@pytest.fixture(scope="module")
def measured(run, texts):
    """A small record with a signed measure, labels and experiments."""
    measures = ["gradient", "leave_one_out", "gradient_x_input", "permutation"]
    return attnfaith.measure(run, texts["text"][:6], [0, 1] * 3, measures, progress=False)


@pytest.mark.gate
def test_the_numbers_are_those_of_the_command_line(run, texts, tmp_path):
    """Every column of the record, identity included, to the bit."""
    how = {"measures": MEASURE["producers"], "options": MEASURE["options"], "progress": False}
    own = attnfaith.measure(run, texts, name="planted_evidence", split="test", **how)
    cli.main(["measure", str(run), "--output", str(tmp_path / "cli.parquet")])
    other = attnfaith.load(tmp_path / "cli.parquet")
    assert own.table.schema == other.table.schema and len(own.table.column_names) > 20
    assert own == other == attnfaith.load(run)
    assert record.settings(own.table)[0]["model"] == record.settings(other.table)[0]["model"]


def test_all_ways_to_give_a_model(run, texts, tmp_path):
    some = texts["text"][:6]
    model = attnfaith.AttentionClassifierForSequenceClassification.from_pretrained(run / "model")
    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    alone = shutil.copytree(run / "model", tmp_path / "alone")
    first = attnfaith.measure(run, some, **CHEAP)
    columns = [name for name in first.table.column_names if name not in record.IDENTITY_COLUMNS]
    for source, more in (
        (str(run), {}),
        (run / "model", {"device": -1}),
        (model, {}),
        (model, {"tokenizer": run / "model"}),
        (Pooled(model, tokenizer), {}),
        (TextClassificationPipeline(model=model, tokenizer=tokenizer), {}),
    ):
        other = attnfaith.measure(source, some, **CHEAP, **more)
        assert record.equal(first.table.select(columns), other.table.select(columns)), source
    without_run = attnfaith.measure(alone, some, **CHEAP)
    identity = without_run.cells[0].identity
    assert (identity.seed, identity.objective) == (-1, "unknown") and "· seed" not in repr(without_run)


def test_all_ways_to_give_texts(run, texts, tmp_path):
    frame = pd.DataFrame({"review": texts["text"][:6], "topic": ["positive", "negative", None] * 2})
    frame.to_csv(tmp_path / "reviews.csv", index=False)
    frame.to_json(tmp_path / "reviews.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "reviews.parquet")
    classes = datasets.ClassLabel(names=["positive", "negative"])  # numbered the other way round than in the model
    features = datasets.Features({"review": datasets.Value("string"), "topic": classes})
    numbered = datasets.Dataset.from_dict({"review": texts["text"][:6], "topic": [0, 1, -1] * 2}, features)
    columns = {"text": "review", "label": "topic", **CHEAP, "name": "t"}
    first = attnfaith.measure(run, texts["text"][:6], [1, 0, None] * 2, **CHEAP, name="t")
    assert first.per_text()["label"].tolist() == [1, 0, pd.NA] * 2
    paths = [tmp_path / f"reviews.{kind}" for kind in ("csv", "jsonl", "parquet")]
    for source in (frame, numbered, datasets.Dataset.from_pandas(frame), *paths, str(paths[0])):
        assert attnfaith.measure(run, source, **columns) == first
    plain, labels = texts["text"][:6], np.array([1, 0, 1, 1, 0, 1])
    for source in (tuple(plain), np.array(plain), pd.Series(plain), (text for text in plain)):
        assert attnfaith.measure(run, source, labels, **CHEAP).per_text()["label"].tolist() == labels.tolist()


def test_defaults_are_what_the_model_is_capable_of(run, texts, capsys):
    record_of_defaults = attnfaith.measure(run, [*texts["text"][:3], ""])
    producers = record.settings(record_of_defaults.table)[0]["producers"]
    assert {*producers} == {*DEFAULTS["pooled"], "token_logits"}
    assert producers == sorted(producers, key=lambda name: by_cost(find(name)))
    assert "1 of 4 texts: without a word" in capsys.readouterr().err

    class Blind(Toy):
        capabilities = frozenset({"classes", "token deletion"})

    assert attnfaith.measure(Blind(), ["7 12", "8 9 10"]).measures == ["leave_one_out"]
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "gradient is left out" in line]
    assert "embeddings" in line and "embedding length" in line


def test_a_subject_of_ones_own_has_a_whole_record(tmp_path):
    texts = ["7 12 9", "8 9 10 11", "30", "7 7 8"]
    own = attnfaith.measure(Toy(), texts, [0, 1, None, 1], ["gradient", "leave_one_out", "permutation"], progress=False)
    identity = own.cells[0].identity
    assert (identity.model, identity.encoder, identity.alignment, identity.seed) == ("toy", "embedding", "unknown", -1)
    assert record.settings(own.table)[0]["model"] == Toy().digest() != Toy(seed=1).digest()
    assert own.table.column("tokens").to_pylist() == [text.split() for text in texts]
    own.save(tmp_path / "toy.parquet")
    assert attnfaith.load(tmp_path / "toy.parquet") == own and own.report(tmp_path / "report").is_file()
    assert len(own.summary()) and "attention" in str(own.show(1))
    assert len(attnfaith.compare(own, attnfaith.measure(Toy(seed=1), texts, **CHEAP)).texts) == 4


def test_frames_hold_what_the_table_holds(measured):
    (cell,) = measured.cells
    agreement = measured.agreement().set_index("measure")
    report = sections.frames([cell])["agreement"]
    overall = report[report["class"] == "overall"].set_index("pair")
    for measure in cell.measures:
        row, tau = agreement.loc[measure], cell.tau("attention", measure)
        assert row["tau_mean"] == overall.loc[f"attention–{measure}", "tau_mean"]
        assert row["tau_median"] == np.nanmedian(tau) and row["n"] + row["n_undefined"] == len(measured)
    scores = measured.scores()
    assert len(scores) == cell.lengths.sum() and scores["instance_id"].nunique() == (cell.lengths > 0).sum()
    np.testing.assert_array_equal(scores["attention"], np.concatenate(cell.attention))
    last = scores[scores["instance_id"] == cell.instance_ids[-1]]
    assert last["position"].tolist() == list(range(cell.lengths[-1]))
    assert last["token"].tolist() == measured.table.column("tokens")[-1].as_py()
    per_text, summary = measured.per_text(), measured.summary().set_index("quantity")
    assert per_text["instance_id"].tolist() == cell.instance_ids and per_text["label"].tolist() == [0, 1] * 3
    for name, row in summary.iterrows():
        assert row["mean"] == pytest.approx(per_text[name].mean(), nan_ok=True)
        assert row["n"] == per_text[name].notna().sum() and row["n"] + row["n_undefined"] == len(measured)
    of_tau = summary.loc[[f"tau attention–{measure}" for measure in agreement.index]]
    np.testing.assert_allclose(of_tau[["ci_low", "ci_high"]], agreement[["ci_low", "ci_high"]], rtol=1e-12)


def test_equality(measured):
    table, attention = measured.table, measured.table.column("attention").to_pylist()
    assert measured == attnfaith.Record(table) and measured != "a record"
    for other in (table.slice(1), table.drop_columns(["importance_gradient"]), table.take([1, 0, 2, 3, 4, 5])):
        assert measured != attnfaith.Record(other)
    undefined = [attnfaith.Record(replaced(table, "importance_gradient", [[np.nan] * len(row) for row in attention]))] * 2
    assert undefined[0] == undefined[1] != measured
    with pytest.raises(record.RecordError, match="without rows"):
        attnfaith.Record(table.slice(0, 0))


def test_the_listing_has_all_measures():
    listing = attnfaith.measures()
    assert set(listing.index) == set(names()) and set(listing["kind"]) == {"importance", "intervention"}
    assert dir(attnfaith) == sorted([*attnfaith.__all__, "__version__"])


def test_records_are_read_and_compared_without_torch(measured, tmp_path):
    script = (
        "import sys, attnfaith\n"
        f"record = attnfaith.load({str(measured.save(tmp_path / 'r.parquet'))!r})\n"
        "record._repr_html_(), record.show(0).html(), record.summary()\n"
        "attnfaith.compare(record, record)\n"
        "print({'torch', 'transformers', 'datasets'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
