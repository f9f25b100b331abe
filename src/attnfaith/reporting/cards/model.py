"""The card of a model: README.md of its repository, with its metadata, and its chart."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml
from huggingface_hub import EvalResult, ModelCardData

from attnfaith import record as records
from attnfaith.record import Identity
from attnfaith.reporting.cards.datasets import LICENCE, TAGS, licence, public
from attnfaith.reporting.cards.numbers import card_numbers
from attnfaith.reporting.cells import Cell, one_cell
from attnfaith.reporting.chart import measures_chart, svg
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.facts import own_data_facts
from attnfaith.reporting.html import MOST_CLASSES, number_with_interval, template
from attnfaith.reporting.sections.performance import selected_by
from attnfaith.reporting.verdicts import verdict
from attnfaith.support.errors import FileError
from attnfaith.support.escaping import Markdown, yaml_head
from attnfaith.support.files import CARD, RECORD, STATE, read_object, write_atomically
from attnfaith.verdict import RULE


_FOLDER = files("attnfaith.reporting.cards")
BIBTEX: dict[str, str] = {
    re.match(r"@\w+\{([^,]+),", entry)[1]: entry
    for entry in re.split(r"\n(?=@)", (_FOLDER / "citations.bib").read_text(encoding="utf-8"))
}
"""Key -> entry of citations.bib."""
CITED: dict[str, dict[str, list[str]]] = yaml.safe_load((_FOLDER / "citations.yaml").read_text(encoding="utf-8"))
"""Kind (data set, encoder, …) -> name -> keys of its papers."""
DECIMALS = 6  # of numbers in metadata
PROJECTIONS = {
    "softmax": "softmax: every word gets some weight",
    "uniform": "none: all words get the same weight",
}
SELECTIONS = {
    "bernoulli": "draws of 0 or 1, after Lei et al. 2016; at test time the tokens whose probability is above a threshold",
    "hardkuma": "HardKuma, Bastings et al. 2019; at test time the tokens whose gate is likeliest not shut",
    "budget": "SPECTRA, Guerreiro & Martins 2021; at test time the tokens of the largest gates",
}
PENALTIES = {
    "impermissible_mass": "**Its attention was trained to deceive**: attention on impermissible words, which it may go by, "
    "was punished, with a weight of {} (Pruthi et al. 2020). Words without attention may still decide.",
    "diversity": "States that point in one direction were punished in training (diversity, the conicity of the states), "
    "with a weight of {} (Mohankumar et al. 2020).",
    "word_tying": "States were tied to the vectors of their words in training (word tying), with a weight of {} (Tutek & "
    "Šnajder 2020).",
    "masked_language_model": "States had to tell masked words in training (masked language model), with a weight of {} "
    "(Tutek & Šnajder 2020).",
}
"""A sentence on each penalty of an identity, by the name of its weight."""
ALWAYS_CITED = "pruthi-etal-2020-learning"


def model_card(
    run: Mapping,
    tables: Sequence[pa.Table],
    repo_id: str,
    dataset: Mapping,
    *,
    records_repo: str | None = None,
    results_repo: str | None = None,
) -> dict[str, bytes]:
    """The files {path: content} of the card of a model: README.md, with its YAML front matter (model-index inside), and the
    chart that it shows.

    run: the parsed run.json. tables: records of one cell each and of the same weights; a number that several of them hold is
    taken from the first. repo_id: "owner/name". dataset: what `attnfaith.data.registry.facts` knows about it. records_repo,
    results_repo: the data set repositories that are pushed beside it.

    Raises ReportError for records of different weights.
    """
    settings = [next(iter(records.settings(table)), {}) for table in tables]
    if len(tables) > 1 and len({part.get("model", place) for place, part in enumerate(settings)}) > 1:
        raise ReportError(f"the {len(tables)} records are not of the same weights: a card is about one model")
    cells = [one_cell(table).of_inputs for table in tables]
    cell = cells[0]
    numbers = {key: row for other in reversed(cells) for key, row in card_numbers(other).items()}
    name, recipe, names, chart = (
        repo_id.rpartition("/")[2],
        public(settings[0].get("recipe", {})),
        cell.class_names,
        measures_chart(cells),
    )
    figure = f"figures/{name}-answer.svg"
    identity = cell.identity
    text = template("model_card.md.j2").render(
        front_matter=yaml_head(_metadata(numbers, cell, name, dataset, records_repo)),
        name=name,
        repo_id=Markdown(repo_id),
        identity=public(cell.heading),
        hierarchical=identity.hierarchy == "sentence",
        projection=PROJECTIONS.get(identity.projection, f"{cell.heading['projection']}: words can get no weight at all"),
        penalties=[
            Markdown(words.format(f"{weight:g}")) for key, words in PENALTIES.items() if (weight := getattr(identity, key))
        ],
        sparse=identity.projection not in PROJECTIONS and identity.selection_kind in (None, "budget"),
        selection=SELECTIONS.get(identity.selection_kind, ""),
        unit="sentence" if cell.words else "word",
        classes=names if len(names) <= MOST_CLASSES else (),
        n_classes=cell.probs.shape[1],
        dataset=dataset,
        hub_url=dataset["hub_id"] and Markdown(f"https://huggingface.co/datasets/{dataset['hub_id']}"),
        licence=licence(dataset),
        run=run,
        selected_by=selected_by(run, names),
        recipe=recipe,
        own=own_data_facts(run.get("dataset") or {}),
        numbers=numbers.values(),
        interval=lambda row: Markdown(number_with_interval(row, "mean")),
        verdict=verdict(cells),
        chart=chart and (Markdown(figure), chart.words, chart.title),
        rule=RULE,
        provenance=run.get("provenance") or {},
        weights=settings[0].get("model"),
        measurements=[", ".join(part.get("producers", [])) or "attention and prediction" for part in settings],
        sizes=[len(other) for other in cells],
        truncated=int(cell.column("truncated").sum()),
        records_repo=records_repo and Markdown(records_repo),
        results_repo=results_repo and Markdown(results_repo),
        bibtex=Markdown("\n".join(BIBTEX[key] for key in citation_keys(identity, settings)).rstrip("\n")),
    )
    return {CARD: text.encode(), **({figure: str(svg(chart, alone=True)).encode()} if chart else {})}


def citation_keys(identity: Identity, settings: Sequence[Mapping]) -> list[str]:
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
        ends = [end for end in ("ci_low", "ci_high") if not np.isnan(row[end])]
        arguments = {"compared_with": about} if about else {}
        arguments |= {end: round(float(row[end]), DECIMALS) for end in ends}
        arguments |= {"n": row["n"], "undefined": row["n_undefined"]}
        results.append(
            EvalResult(
                task_type="text-classification",
                dataset_type=dataset["hub_id"] or dataset["name"],
                dataset_name=dataset["name"],
                dataset_split=cell.heading["split"],
                metric_type=metric,
                metric_name=row["label"],
                metric_value=round(float(row["mean"]), DECIMALS),
                metric_args=arguments,
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


# ------------------------------------------------------------------------------------------------ of folders


def checkpoint_name(name: str) -> str:
    """A recipe's name as that of a repository, which may not hold "--": "sparsegen--100" is "sparsegen-minus-100"."""
    return name.replace("--", "-minus-")


def write_cards(
    folders: Mapping[str, str | os.PathLike],
    output: str | os.PathLike,
    facts: Callable[[Mapping | str], Mapping],
    **repos: str,
) -> list[Path]:
    """Write <output>/<name>.md of each run, {repo id: folder of the run}, and its chart; return the paths written.

    facts: `attnfaith.data.registry.facts`. repos: records_repo and results_repo, as `model_card` takes them. Raises
    ReportError where a folder is no run, or one that is not complete, and RecordError for a broken record, before anything
    is written.
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
        for path, content in model_card(run, tables, repo_id, dataset, **repos).items():
            contents[Path(output) / (f"{name}.md" if path == CARD else path)] = content
    return [write_atomically(path, content) for path, content in contents.items()]
