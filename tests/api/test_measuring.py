"""What a notebook uses: a model and texts, as people have them, to a record, with the numbers of the command line."""

import shutil
import subprocess
import sys

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import attnfaith
from attnfaith import cli, record, runs
from attnfaith.api.measuring import DEFAULTS
from attnfaith.measurement.registry import by_cost, find, names
from attnfaith.reporting import sections
from attnfaith.subjects import Pooled
from tests.tiny_recipes import tiny_tree
from tests.toy_subject import Toy


pytestmark = pytest.mark.slow


CHEAP = {"measures": ["gradient"], "progress": False}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run, reported with one small figure."""
    from attnfaith import recipes
    from tests.figures import REPORT, one_small_figure

    folder = tmp_path_factory.mktemp("api") / "run"
    measure = {"producers": ["gradient", "lime", "permutation"], "options": {"lime": {"samples": 8}}}
    tree = tiny_tree(folder, measure=measure)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(REPORT, one_small_figure())
        runs.run(recipes.build(tree))
    return folder


@pytest.fixture(scope="module")
def texts(run):
    """The texts that the run was measured on, as its data set gives them."""
    from attnfaith import recipes
    from attnfaith.runs import load_data

    return load_data(recipes.load(run / "recipe.yaml")).splits["test"]


@pytest.fixture(scope="module")
def some(texts):
    return texts["text"][:6]


@pytest.fixture(scope="module")
def made(run, some):
    """A small record with a signed measure, labels and experiments."""
    measures = ["gradient", "leave_one_out", "gradient_x_input", "permutation"]
    return attnfaith.measure(run, some, [0, 1] * 3, measures, progress=False)


# ------------------------------------------------------------------------------------------------ the same numbers


@pytest.mark.gate
def test_the_numbers_are_those_of_the_command_line(run, texts, tmp_path):
    """Every column of the record, identity included, to the bit."""
    options = {"lime": {"samples": 8}}
    how = {"measures": ["gradient", "lime", "permutation"], "options": options, "progress": False}
    ours = attnfaith.measure(run, texts, name="planted_evidence", split="test", **how)
    cli.main(["measure", str(run), "--output", str(tmp_path / "cli.parquet")])
    theirs = attnfaith.load(tmp_path / "cli.parquet")
    assert ours.table.schema == theirs.table.schema and len(ours.table.column_names) > 20
    for name in theirs.table.column_names:
        columns = [["instance_id", name] if name != "instance_id" else [name]] * 2
        assert record.equal(*(one.table.select(c) for one, c in zip((ours, theirs), columns, strict=True))), name
    assert ours == theirs == attnfaith.load(run)
    assert record.settings(ours.table)[0]["model"] == record.settings(theirs.table)[0]["model"]


def test_all_ways_to_give_a_model(run, some, tmp_path):
    from transformers import AutoTokenizer, TextClassificationPipeline

    model = attnfaith.AttentionClassifierForSequenceClassification.from_pretrained(run / "model")
    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    alone = shutil.copytree(run / "model", tmp_path / "alone")
    first = attnfaith.measure(run, some, **CHEAP)
    for way, more in (
        (str(run), {}),
        (run / "model", {}),
        (model, {}),
        (model, {"tokenizer": tokenizer}),
        (model, {"tokenizer": run / "model"}),
        (Pooled(model, tokenizer), {}),
        (TextClassificationPipeline(model=model, tokenizer=tokenizer), {}),
    ):
        other = attnfaith.measure(way, some, **CHEAP, **more)
        same = [name for name in first.table.column_names if name not in record.IDENTITY_COLUMNS]
        assert record.equal(first.table.select(same), other.table.select(same)), way
    assert [cell.identity.seed for cell in first.cells] == [3]
    without_run = attnfaith.measure(alone, some, **CHEAP)
    unknown = without_run.cells[0]
    assert (unknown.identity.seed, unknown.identity.objective) == (-1, "unknown")
    assert "· seed" not in repr(without_run) and "unknown" not in repr(unknown.heading["vectors"])


def test_all_ways_to_give_texts(run, texts, tmp_path):
    frame = pd.DataFrame({"review": texts["text"][:6], "topic": ["positive", "negative", None] * 2})
    frame.to_csv(tmp_path / "reviews.csv", index=False)
    frame.to_json(tmp_path / "reviews.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "reviews.parquet")
    named = datasets.Features(
        {"review": datasets.Value("string"), "topic": datasets.ClassLabel(names=["positive", "negative"])}
    )
    rows = {"review": texts["text"][:6], "topic": [0, 1, -1] * 2}  # numbered the other way round than in the model
    columns = {"text": "review", "label": "topic", **CHEAP, "name": "t"}
    first = attnfaith.measure(run, texts["text"][:6], [1, 0, None] * 2, **CHEAP, name="t")
    assert first.per_text()["label"].tolist() == [1, 0, pd.NA] * 2
    given = [tmp_path / f"reviews.{kind}" for kind in ("csv", "jsonl", "parquet")]
    for one in (frame, datasets.Dataset.from_dict(rows, named), datasets.Dataset.from_pandas(frame), *given, str(given[0])):
        assert attnfaith.measure(run, one, **columns) == first
    plain = texts["text"][:6]
    for one in (tuple(plain), np.array(plain), pd.Series(plain), (text for text in plain)):
        labels = np.array([1, 0, 1, 1, 0, 1])
        assert attnfaith.measure(run, one, labels, **CHEAP).per_text()["label"].tolist() == labels.tolist()
    assert attnfaith.measure(run, given[0], text="review", **CHEAP).cells[0].identity.dataset == "reviews"


# ------------------------------------------------------------------------------------------------ what is chosen and said


def test_defaults_are_what_the_model_is_capable_of(run, some, capsys):
    kept = attnfaith.measure(run, [*some[:3], ""])
    made = record.settings(kept.table)[0]["producers"]
    assert {*made} == {*DEFAULTS["pooled"], "token_logits"}
    assert made == sorted(made, key=lambda name: by_cost(find(name))), "importance first, cheap measures before dear ones"
    bias, attention = record.rows(kept.table, "token_logits_bias"), record.rows(kept.table, "attention")
    for row, values in enumerate(record.rows(kept.table, "token_logits")):
        odds = np.exp(attention[row] @ values.reshape(-1, len(bias[row])) + bias[row])
        assert (odds / odds.sum()).tolist() == pytest.approx(record.rows(kept.table, "probs")[row].tolist(), abs=1e-5)
    assert "1 of 4 texts: without a word" in capsys.readouterr().err
    attnfaith.measure(Toy(), ["7 12", "8 9 10"])
    assert "attnfaith" not in capsys.readouterr().err.replace("measuring", "")

    class Blind(Toy):
        capabilities = frozenset({"classes", "token deletion"})

    assert attnfaith.measure(Blind(), ["7 12", "8 9 10"]).measures == ["leave_one_out"]
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "gradient is left out" in line]
    assert "embeddings" in said and "embedding length" in said


# ------------------------------------------------------------------------------------------------ a subject of one's own


def test_a_subject_of_ones_own_has_a_whole_record(tmp_path):
    texts = ["7 12 9", "8 9 10 11", "30", "7 7 8"]
    kept = attnfaith.measure(Toy(), texts, [0, 1, None, 1], ["gradient", "leave_one_out", "permutation"], progress=False)
    identity = kept.cells[0].identity
    assert (identity.model, identity.encoder, identity.alignment, identity.seed) == ("toy", "embedding", "unknown", -1)
    made = record.settings(kept.table)[0]
    assert made["model"] == Toy().digest() != Toy(seed=1).digest()
    assert kept.table.column("tokens").to_pylist() == [text.split() for text in texts]
    assert "toy" not in repr(kept) and "embedding + softmax" in repr(kept) and "unknown" not in repr(kept)
    kept.save(tmp_path / "toy.parquet")
    assert attnfaith.load(tmp_path / "toy.parquet") == kept
    assert kept.report(tmp_path / "report").is_file()
    assert len(kept.summary()) and "attention" in str(kept.show(1))
    assert attnfaith.compare(kept, attnfaith.measure(Toy(seed=1), texts, **CHEAP)).n_texts == 4


# ------------------------------------------------------------------------------------------------ the record in hand


def test_frames_say_what_the_table_holds(made):
    cell = made.cells[0]
    agreement = made.agreement().set_index("measure")
    assert list(agreement.index) == list(cell.measures)
    report = sections.frames([cell])["agreement"]
    overall = report[report["class"] == "overall"].set_index("pair")
    for measure in cell.measures:
        row, tau = agreement.loc[measure], cell.tau("attention", measure)
        assert row["tau_mean"] == overall.loc[f"attention–{measure}", "tau_mean"]
        assert row["tau_median"] == np.nanmedian(tau) and row["n"] + row["n_undefined"] == len(made)
    scores = made.scores()
    assert len(scores) == cell.lengths.sum() and scores["instance_id"].nunique() == (cell.lengths > 0).sum()
    np.testing.assert_array_equal(scores["attention"], np.concatenate(cell.attention))
    last = scores[scores["instance_id"] == cell.instance_ids[-1]]
    assert last["position"].tolist() == list(range(cell.lengths[-1]))
    assert last["token"].tolist() == made.table.column("tokens")[-1].as_py()
    per_text, summary = made.per_text(), made.summary().set_index("quantity")
    assert per_text["instance_id"].tolist() == cell.instance_ids and per_text["label"].tolist() == [0, 1] * 3
    for name, row in summary.iterrows():
        assert row["mean"] == pytest.approx(per_text[name].mean(), nan_ok=True)
        assert row["n"] == per_text[name].notna().sum() and row["n"] + row["n_undefined"] == len(made)


def replaced(table, name, rows):
    place = table.column_names.index(name)
    return table.set_column(place, table.schema.field(place), pa.array(rows, table.schema.field(place).type))


def test_equality_and_length(made):
    assert made == attnfaith.Record(made.table) and made != "a record" and len(made) == 6
    values = made.table.column("attention").to_pylist()
    for change in (
        lambda t: t.slice(1),
        lambda t: t.drop_columns(["importance_gradient"]),
        lambda t: t.take([1, 0, 2, 3, 4, 5]),
    ):
        assert made != attnfaith.Record(change(made.table))
    assert made != attnfaith.Record(replaced(made.table, "attention", [row[::-1] for row in values]))
    undefined = [[float("nan")] * len(row) for row in values]
    one, other = (attnfaith.Record(replaced(made.table, "importance_gradient", undefined)) for _ in range(2))
    assert one == other != made
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)
    with pytest.raises(record.RecordError, match="without rows"):
        attnfaith.Record(made.table.slice(0, 0))


def test_the_listing_is_of_all_measures(run):
    listing = attnfaith.measures()
    assert set(listing.index) == set(names()) and set(listing["kind"]) == {"importance", "intervention"}
    html = listing._repr_html_()
    assert all(what.split("(")[0].strip().replace("&", "&amp;") in html for what in listing["what"]) and "..." not in html
    assert isinstance(listing[listing["kind"] == "importance"], type(listing))


def test_the_public_surface():
    names = ["Record", "compare", "load", "measure", "measures", "AttnfaithError"]
    assert set(names) <= set(attnfaith.__all__)
    assert dir(attnfaith) == sorted([*attnfaith.__all__, "__version__"])


def test_records_are_read_and_compared_without_torch(made, tmp_path):
    path = made.save(tmp_path / "r.parquet")
    script = (
        "import sys, attnfaith\n"
        f"record = attnfaith.load({str(path)!r})\n"
        "record._repr_html_(), record.show(0).html(), record.summary()\n"
        "attnfaith.compare(record, record)\n"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
