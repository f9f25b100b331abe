"""Cards of releases: models, records and results, as Markdown made from records and run.json.

Every number is computed from the record; every sentence about results is put together from the numbers. Texts that come from
data, recipes and runs are escaped: they show as they are and format nothing. The same inputs give the same bytes.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

import numpy as np
import pyarrow as pa
import yaml
from huggingface_hub import DatasetCardData, EvalResult, ModelCardData

from attnfaith import record as records
from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting import sections
from attnfaith.reporting.cells import CELL, FINGERPRINTS, Cell, ReportError, one_cell, readable
from attnfaith.reporting.charts import svg
from attnfaith.reporting.facts import own_data_facts
from attnfaith.reporting.html import DECLARED, FOLDER, template
from attnfaith.reporting.sections import saliency
from attnfaith.reporting.sections.agreement import TAU, measures_chart
from attnfaith.reporting.sections.performance import selected_by
from attnfaith.reporting.spec import MOST_CLASSES
from attnfaith.reporting.tables import number_with_interval
from attnfaith.reporting.verdicts import verdict
from attnfaith.support.errors import FileError
from attnfaith.support.escaping import Markdown, markdown_table
from attnfaith.support.files import CARD, RECORD, STATE, read_object, write_atomically
from attnfaith.verdict import RULE


BIBTEX: dict[str, str] = {
    re.match(r"@\w+\{([^,]+),", entry)[1]: entry
    for entry in re.split(r"\n(?=@)", (FOLDER / "citations.bib").read_text(encoding="utf-8"))
}
"""Key -> entry of citations.bib."""
CITED: dict[str, dict[str, list[str]]] = yaml.safe_load((FOLDER / "citations.yaml").read_text(encoding="utf-8"))
"""Kind (data set, encoder, …) -> name -> keys of its papers."""
LICENCE = "apache-2.0"  # of code and weights
UNKNOWN_LICENCE = "none is known here to be stated by its publisher; ask before you pass its texts on"
TAG = "attnfaith"  # by which a push recognises its repositories
TAGS = ["attention", "interpretability", "faithfulness", TAG]
DECIMALS = 6  # of numbers in metadata
PLACES = {"path", "gates", "output_dir", "base", "folder", "vectors", "source", "tokenizer", "pretrained", "dataset"}
"""Keys whose values are paths."""


def licence(dataset: Mapping | None) -> str:
    """The terms of a data set's texts, in words."""
    return "see the data set’s own card" if dataset is None else dataset["licence"] or UNKNOWN_LICENCE


def public(value: object, key: str = "") -> object:
    """Settings without the folders of a machine: of an absolute path under a key of PLACES the last part."""
    if isinstance(value, Mapping):
        return {name: public(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [public(item, key) for item in value]
    if key in PLACES and isinstance(value, str) and (value.startswith("~") or PurePath(value).is_absolute()):
        return PurePath(value).name
    return value


def card_numbers(cell: Cell) -> dict[str, dict]:
    """The numbers of a cell's card, means over texts, by their name in metadata, with the measure that attention is compared
    with after a dot: "kendall_tau.gradient". Each is a row of the table `summary` with a label; NaN undefined. Of several of
    one name the first that the record holds is taken, of several epsilons the smallest.
    """
    summary = {name: row for section in sections.of_cell(cell) for name, row in section.summary(cell).items()}
    scores = classification_scores(cell.probs, cell.labels)
    counts = {"n": scores["n_scored"], "n_undefined": scores["n_unscored"], "ci_low": np.nan, "ci_high": np.nan}
    numbers = {"accuracy": {**summary["correct"], "label": "accuracy"}}
    numbers["roc_auc"] = {"label": "area under the ROC curve", "mean": scores["roc_auc"], **counts}
    for measure in cell.inputs:
        label = f"Kendall’s τ of attention and {readable(measure)}"
        numbers[f"kendall_tau.{measure}"] = {**summary[f"{TAU}{measure}"], "label": label}
    for pattern, declared in DECLARED["card"].items():
        quantity = next((name for name in summary if fnmatchcase(name, pattern)), None)
        if quantity:
            label = declared["label"] + (f" within {quantity.rpartition('_')[2]}" if "*" in pattern else "")
            numbers.setdefault(declared["metric"], {**summary[quantity], "label": label})
    for row in saliency.EVIDENCE.rows_of(cell)[:1] if saliency.PLAUSIBILITY.applies(cell) else []:  # that of attention
        label = "average precision of attention against the marked tokens"
        label += "" if np.isnan(row["random_baseline"]) else f" (chance {row['random_baseline']:.3f})"
        numbers["rationale_auprc"] = {**row, "mean": row["auprc_mean"], "label": label}
    return numbers


PENALTIES = ("impermissible_mass", "diversity", "word_tying", "masked_language_model")
"""The weights of an identity's penalties: model_card.md.j2 has a sentence on each."""
ALWAYS_CITED = "pruthi-etal-2020-learning"


def model_card(
    run: Mapping,
    tables: Sequence[pa.Table],
    repo_id: str,
    dataset: Mapping,
    *,
    records_repo: str | None = None,
) -> dict[str, bytes]:
    """The files {path: content} of the card of a model: README.md, with its YAML front matter (model-index inside), and the
    chart that it shows.

    run: the parsed run.json. tables: records of one cell each and of the same weights; a number that several of them hold is
    taken from the first. repo_id: "owner/name". dataset: what `attnfaith.data.registry.facts` knows about it. records_repo:
    the data set that its record and tables are pushed to.

    Raises ReportError for records of different weights.
    """
    settings = [next(iter(records.settings(table)), {}) for table in tables]
    if len(tables) > 1 and len({part.get("model", place) for place, part in enumerate(settings)}) > 1:
        raise ReportError(f"the {len(tables)} records are not of the same weights: a card is about one model")
    cells = [one_cell(table) for table in tables]
    cell, chart, names = cells[0], measures_chart(cells), cells[0].class_names
    numbers = {key: row for other in reversed(cells) for key, row in card_numbers(other).items()}
    name, figure = repo_id.rpartition("/")[2], f"figures/{repo_id.rpartition('/')[2]}-answer.svg"
    text = template("model_card.md.j2").render(
        front_matter=_front_matter(_metadata(numbers, cell, name, dataset, records_repo)),
        name=name,
        repo_id=Markdown(repo_id),
        cell=cell,
        identity=public(cell.heading),
        fields=cell.identity,
        penalties=PENALTIES,
        classes=names if len(names) <= MOST_CLASSES else (),
        dataset=dataset,
        hub_url=dataset["hub_id"] and Markdown(f"https://huggingface.co/datasets/{dataset['hub_id']}"),
        licence=licence(dataset),
        run=run,
        selected_by=selected_by(run, names),
        recipe=public(settings[0].get("recipe", {})),
        own=own_data_facts(run.get("dataset") or {}),
        numbers=numbers.values(),
        interval=lambda row: Markdown(number_with_interval(row, "mean")),
        verdict=verdict(cells),
        chart=chart and (Markdown(figure), chart.words, chart.title),
        rule=RULE,
        weights=settings[0].get("model"),
        measurements=[", ".join(part.get("producers", [])) or "attention and prediction" for part in settings],
        sizes=[len(other) for other in cells],
        records_repo=records_repo and Markdown(records_repo),
        bibtex=Markdown("\n".join(BIBTEX[key] for key in citation_keys(cell.identity, settings)).rstrip("\n")),
    )
    return {CARD: text.encode(), **({figure: str(svg(chart, alone=True)).encode()} if chart else {})}


def citation_keys(identity: records.Identity, settings: Sequence[Mapping]) -> list[str]:
    """The papers that a card cites, as keys of BIBTEX: of its data set, encoder, projection, objective, penalties and
    measurements, and Pruthi et al., whom every card names.
    """
    subjects = {
        "datasets": [identity.dataset],
        "encoders": [identity.encoder],
        "projections": [identity.projection],
        "objectives": [identity.objective],
        "penalties": [name for name in PENALTIES if getattr(identity, name)],
        "producers": [name for part in settings for name in part.get("producers", ())],
    }
    cited = [key for kind, names in subjects.items() for name in names for key in CITED[kind].get(name, ())]
    return list(dict.fromkeys([*cited, ALWAYS_CITED]))


def _metadata(numbers: Mapping[str, Mapping], cell: Cell, name: str, dataset: Mapping, records_repo: str | None) -> dict:
    """The YAML front matter: what the Hub reads."""
    results = []
    for key, row in numbers.items():
        metric, _, about = key.partition(".")
        if np.isnan(row["mean"]):
            continue
        arguments = {"compared_with": about} if about else {}
        arguments |= {end: round(float(row[end]), DECIMALS) for end in ("ci_low", "ci_high") if not np.isnan(row[end])}
        results.append(
            EvalResult(
                task_type="text-classification",
                dataset_type=dataset["hub_id"] or dataset["name"],
                dataset_name=dataset["name"],
                dataset_split=cell.heading["split"],
                metric_type=metric,
                metric_name=row["label"],
                metric_value=round(float(row["mean"]), DECIMALS),
                metric_args=arguments | {"n": row["n"], "undefined": row["n_undefined"]},
            )
        )
    data = ModelCardData(
        language="en" if dataset["hub_id"] and not dataset["own"] else None,
        license=LICENCE,
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=[*TAGS[:-1], "custom_code", TAGS[-1]],
        datasets=[dataset["hub_id"]] if dataset["hub_id"] else None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)),
        model_name=name,
        eval_results=results,
    ).to_dict()
    if records_repo:
        data["attnfaith"] = {"records": records_repo, "configuration": name}
    return json.loads(json.dumps(data))  # plain values only


def _front_matter(data: Mapping) -> Markdown:
    return Markdown(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120))


def checkpoint_name(name: str) -> str:
    """A recipe's name as that of a repository, which may not hold "--": "sparsegen--100" is "sparsegen-minus-100"."""
    return name.replace("--", "-minus-")


def write_cards(
    folders: Mapping[str, str | os.PathLike],
    output: str | os.PathLike,
    facts: Callable[[Mapping | str], Mapping],
    records_repo: str | None = None,
) -> list[Path]:
    """Write <output>/<name>.md of each run, {repo id: folder of the run}, and its chart; return the paths written.

    facts: `attnfaith.data.registry.facts`. records_repo: as `model_card` takes it. Raises ReportError where a folder is no
    run, or one that is not complete, and RecordError for a broken record, before anything is written.
    """
    contents = {}
    for repo_id, folder in folders.items():
        folder = Path(folder)
        try:
            run = read_object(folder / STATE)
        except FileError as error:
            raise ReportError(f"{folder} is no run: {error}; give the output_dir of one") from error
        if run.get("status") != "complete":
            raise ReportError(
                f"{folder} is not complete (its run.json says {run.get('status')!r}): finish it with "
                "--resume_from_checkpoint"
            )
        further = sorted({*folder.glob("*.parquet")} - {folder / RECORD})
        tables = [records.load(path) for path in (folder / RECORD, *further)]
        recipe = next(iter(records.settings(tables[0])), {}).get("recipe", {})
        dataset = facts(recipe.get("data") or one_cell(tables[0]).heading["dataset"])
        name = repo_id.rpartition("/")[2]
        for path, content in model_card(run, tables, repo_id, dataset, records_repo=records_repo).items():
            contents[Path(output) / (f"{name}.md" if path == CARD else path)] = content
    return [write_atomically(path, content) for path, content in contents.items()]


def cell_facts(run: Mapping, record: pa.Table, *, model_repo: str | None) -> dict:
    """The facts about one cell that `records_card` shows, as plain JSON. model_repo: None where the model is on no Hub.

    Raises ValueError for a record of several cells.
    """
    cell = one_cell(record)
    settings = next(iter(records.settings(record)), {})
    provenance = settings.get("provenance") or run.get("provenance") or {}
    columns = {field.name: records.column_of(field) for field in record.schema}
    return {
        "model": cell.identity.model if model_repo is None else model_repo,
        "rows": len(cell),
        **{name: value.item() if isinstance(value, np.generic) else value for name, value in public(cell.heading).items()},
        "producers": list(settings.get("producers", [])),
        "label_names": list(settings.get("label_names", [])),
        "version": settings.get("version"),
        "commit": provenance.get("commit"),
        "columns": {name: {"axes": list(column.axes), "doc": column.doc} for name, column in columns.items()},
    }


def records_card(cells: Mapping[str, Mapping], *, repo_id: str, datasets: Mapping[str, Mapping]) -> str:
    """README.md of a data set repository of records, one configuration per cell: {configuration: `cell_facts`}.

    The shards of a cell are <configuration>/<split>-*.parquet. datasets: name -> what `attnfaith.data.registry.facts` knows
    about it; for the terms of the others the card sends the reader there.
    """
    names = [name for name in CELL if name not in (*FINGERPRINTS, "split")]
    columns = {name: column for cell in reversed(cells.values()) for name, column in cell["columns"].items()}
    lines, configs = [["configuration", "model", *names, "rows", "measured"]], []
    for name, cell in cells.items():
        numbers = [f"{cell['rows']:,}", ", ".join(cell["producers"]), cell["version"]]
        lines.append([name, cell["model"], *(cell[key] for key in names), *numbers])
        files = {"split": cell["split"], "path": f"{name}/{cell['split']}-*.parquet"}
        configs.append({"config_name": name, "data_files": [files]})
    docs = [[name, "".join(f"[{axis}]" for axis in column["axes"]), column["doc"]] for name, column in columns.items()]
    data = DatasetCardData(license="other", license_name="as-the-texts", pretty_name="Records of attention classifiers")
    return template("dataset_card.md.j2").render(
        front_matter=_front_matter({**data.to_dict(), "tags": TAGS, "configs": configs}),
        title=data.pretty_name,
        repo_id=Markdown(repo_id),
        first=next(iter(cells.items())),
        tables=[
            Markdown(markdown_table(rows, numeric=[False] * len(rows[0])))
            for rows in (lines, [["column", "axes", "meaning"], *docs])
        ],
        licences={cell["dataset"]: licence(datasets.get(cell["dataset"])) for cell in cells.values()},
    )
