"""The card of a model: README.md of its repository, with its metadata, and its `.eval_results/`."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath

import numpy as np
import pyarrow as pa
import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCardData, eval_result_entries_to_yaml

from attnfaith import __version__
from attnfaith.escaping import Markdown, yaml_head
from attnfaith.record import Identity
from attnfaith.reporting.blocks import MOST_CLASSES
from attnfaith.reporting.cards import citations, penalties
from attnfaith.reporting.cards.findings import Checkpoint, Number, only_reason
from attnfaith.reporting.cards.markdown import check_name, template
from attnfaith.reporting.own_data import in_words
from attnfaith.reporting.sections import figure_words
from attnfaith.reporting.sections.performance import selected_by
from attnfaith.reporting.tables import format_number
from attnfaith.verdict import RULE


FIGURES = ("gradient_vs_leave_one_out", "permutation_by_max_attention", "attention_overview")  # of these, two at most
DECIMALS = 6  # of numbers in metadata
LICENCE = "apache-2.0"  # of code and weights
ENCODERS = {
    "bilstm": "a bidirectional LSTM",
    "bigru": "a bidirectional GRU",
    "lstm": "an LSTM that reads onward",
    "orthogonal_lstm": "an LSTM that reads onward, each state without its part along the mean of those before",
    "transformer": "a small Transformer",
    "cnn": "parallel convolutions",
    "average": "one layer on each word alone",
    "embedding": "the word vectors themselves",
}
PROJECTIONS = {
    "softmax": "softmax: every word gets some weight",
    "uniform": "none: all words get the same weight",
}
SELECTIONS = {
    "bernoulli": "draws of 0 or 1, after Lei et al. 2016; at test time the tokens whose probability is above a threshold",
    "hardkuma": "HardKuma, Bastings et al. 2019; at test time the tokens whose gate is likeliest not shut",
    "budget": "SPECTRA, Guerreiro & Martins 2021; at test time the tokens of the largest gates",
}
UNKNOWN_LICENCE = "none is known here to be stated by its publisher; ask before you pass its texts on"
DECODERS = {"affine": "an affine layer", "tanh": "a layer with tanh and an affine one"}
# what each number of the card is called in the metadata: its kind -> metric
METRICS = {
    "accuracy": "accuracy",
    "kendall_tau": "kendall_tau",
    "top_k_overlap": "top_k_overlap",
    "normalised_entropy": "normalised_entropy",
    "share_of_zeros": "share_of_zeros",
    "shuffled.tvd": "tvd",
    "shuffled.flips": "flip_fraction",
    "adversary.jsd": "jsd",
    "rationale_auprc": "rationale_auprc",
}


def model_card(
    run: Mapping,
    record: "pa.Table | Sequence[pa.Table]",
    *,
    repo_id: str,
    dataset: Mapping,
    figures: Sequence[str] = (),
    records_repo: str | None = None,
    results_repo: str | None = None,
) -> str:
    """README.md of a model repository, with its YAML front matter (model-index inside).

    run: the parsed run.json. record: the run's record, of one cell, or several of the same weights, the run's own first;
    recipe and names of the classes are read from its settings. repo_id: "owner/name". dataset: what
    `attnfaith.data.registry.facts` says of it. figures: names of the report's figures that are at hand (the stems of
    report/figures/*.png); the card shows those of `card_figures`. records_repo, results_repo: the data set repositories
    that are pushed beside it, named where they are given.

    Raises ValueError for a name that the Hub does not allow, a record of several cells, and records of other weights.
    """
    return card_of(
        Checkpoint(run, record), repo_id, dataset, figures=figures, records_repo=records_repo, results_repo=results_repo
    )


def card_of(
    checkpoint: Checkpoint,
    repo_id: str,
    dataset: Mapping,
    *,
    figures: Sequence[str] = (),
    records_repo: str | None = None,
    results_repo: str | None = None,
) -> str:
    name = check_name(repo_id).partition("/")[2]
    identity = public(checkpoint.heading)
    groups: dict[str, list[Number]] = {}
    for number in checkpoint.numbers.values():
        groups.setdefault(number.group, []).append(number)
    return template("model_card.md.j2").render(
        front_matter=yaml_head(_metadata(checkpoint, repo_id, dataset, records_repo)),
        name=name,
        repo_id=Markdown(repo_id),
        identity=identity,
        encoder=_encoder_in_words(checkpoint.cell.identity),
        projection=PROJECTIONS.get(identity["projection"], f"{identity['projection']}: words can get no weight at all"),
        penalties=penalties.sentences(checkpoint.cell.identity),
        sparse=identity["projection"] not in PROJECTIONS and checkpoint.cell.identity.selection_kind in (None, "budget"),
        selection=selection_in_words(checkpoint.cell.identity),
        unit=checkpoint.unit,
        decoder=DECODERS.get(checkpoint.recipe.get("model", {}).get("readout"), "a decoder"),
        classes=checkpoint.cell.class_names if len(checkpoint.cell.class_names) <= MOST_CLASSES else (),
        n_classes=checkpoint.cell.probs.shape[1],
        pair=dataset["pair"],
        dataset=dataset,
        hub_url=dataset["hub_id"] and Markdown(f"https://huggingface.co/datasets/{dataset['hub_id']}"),
        licence=licence(dataset),
        run=checkpoint.run,
        selected_by=selected_by(checkpoint.run, checkpoint.cell.class_names),
        recipe=public(checkpoint.recipe),
        left_out=_left_out(checkpoint),
        own=in_words(checkpoint.run.get("dataset") or {}),
        accuracy=checkpoint.numbers["accuracy"],
        scores=checkpoint.scores,
        class_scores=_class_scores(checkpoint),
        groups={group: rows for group, rows in groups.items() if group != "classification"},
        verdict=checkpoint.verdict,
        only_reason=only_reason(checkpoint),
        answer_picture=_answer_picture(checkpoint, repo_id),
        rule=RULE,
        figures=_pictures(checkpoint, repo_id, figures),
        provenance=_provenance(checkpoint),
        measurements=[_measured(settings) for settings in checkpoint.settings],
        sizes=[len(cell) for cell in checkpoint.cells],
        truncated=int(np.sum(checkpoint.cell.table.column("truncated").to_pylist())),
        random_vectors=checkpoint.cell.identity.vectors == "random",
        records_repo=records_repo and Markdown(check_name(records_repo)),
        results_repo=results_repo and Markdown(check_name(results_repo)),
        bibtex=Markdown(citations.bibtex(citations.keys(checkpoint)).rstrip("\n")),
        shown=shown,
        number=format_number,
        version=__version__,
    )


def selection_in_words(identity: Identity) -> str:
    """Which tokens a model reads at test time; "" where it reads all."""
    if identity.selection_kind is None:
        return ""
    said = SELECTIONS[identity.selection_kind]
    if identity.selection_budget is not None:
        said += f", at most {identity.selection_budget:.0%} of them"
    return said + (", in one window" if identity.selection_contiguous else "")


def _encoder_in_words(identity: Identity) -> str:
    hierarchical = identity.hierarchy == "sentence"
    twice = ", once over the words of a sentence and once over sentences"
    return ENCODERS.get(identity.encoder, identity.encoder) + (twice if hierarchical else "")


def public(value: object) -> object:
    """Settings without the folders of a machine: of an absolute path the last part."""
    if isinstance(value, Mapping):
        return {key: public(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [public(item) for item in value]
    return PurePath(value).name if isinstance(value, str) and PurePath(value).is_absolute() else value


def shown(number: Number) -> Markdown:
    """ "0.123 [0.100, 0.150]"."""
    interval = "" if np.isnan(number.low) else f" [{format_number(number.low)}, {format_number(number.high)}]"
    return Markdown(format_number(number.value) + interval)


def _rounded(value: float) -> float:
    return round(float(value), DECIMALS)


def _metric_values(checkpoint: Checkpoint) -> list[tuple[str, str, float, dict]]:
    """(metric, name for reading, value, arguments) of every defined number that goes into metadata."""
    values = []
    for key, number in checkpoint.numbers.items():
        kind, _, about = key.partition(".")
        metric = METRICS.get(key, METRICS.get(kind))
        if metric is None or np.isnan(number.value):
            continue
        arguments = {"compared_with": about} if kind in METRICS and about else {}
        bounds = {"ci_low": number.low, "ci_high": number.high}
        arguments |= {name: _rounded(bound) for name, bound in bounds.items() if not np.isnan(bound)}
        values.append(
            (metric, number.label, _rounded(number.value), arguments | {"n": number.n, "undefined": number.n_undefined})
        )
    roc_auc = checkpoint.scores["roc_auc"]
    if not np.isnan(roc_auc):
        values.insert(1, ("roc_auc", "area under the ROC curve", _rounded(roc_auc), {"n": checkpoint.scores["n_scored"]}))
    return values


def _metadata(checkpoint: Checkpoint, repo_id: str, dataset: Mapping, records_repo: str | None) -> dict:
    """The YAML front matter: what the Hub reads."""
    identity = checkpoint.heading
    on = {
        "task_type": "text-classification",
        "dataset_type": dataset["hub_id"] or dataset["name"],
        "dataset_name": dataset["name"],
        "dataset_split": identity["split"],
    }
    results = [
        EvalResult(**on, metric_type=metric, metric_name=name, metric_value=value, metric_args=arguments)
        for metric, name, value, arguments in _metric_values(checkpoint)
    ]
    data = ModelCardData(
        language="en" if dataset["hub_id"] and not dataset["own"] else None,
        license=LICENCE,
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=["attention", "interpretability", "faithfulness", "custom_code", "attnfaith"],
        datasets=[dataset["hub_id"]] if dataset["hub_id"] else None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)),
        model_name=repo_id.partition("/")[2],
        eval_results=results,
    ).to_dict()
    if records_repo:
        data["attnfaith"] = {"records": records_repo, "configuration": repo_id.partition("/")[2]}
    return json.loads(json.dumps(data))  # plain values only


def eval_results(
    record: "pa.Table | Sequence[pa.Table]", *, dataset: Mapping, records_repo: str | None = None
) -> dict[str, str]:
    """{path in the model repository: YAML} of its `.eval_results/`; {} where the data set has no repository on the Hub.

    The numbers of the model-index in the Hub's newer form, one entry a number; its task is the metric, with what it compares
    attention with: "kendall_tau.gradient".
    """
    if not dataset["hub_id"]:
        return {}
    checkpoint = Checkpoint({}, record)
    source = f"https://huggingface.co/datasets/{check_name(records_repo)}" if records_repo else None
    entries = []
    for metric, name, value, arguments in _metric_values(checkpoint):
        about = arguments.pop("compared_with", None)
        interval = f", 95 % interval {arguments['ci_low']} to {arguments['ci_high']}" if "ci_low" in arguments else ""
        entries.append(
            EvalResultEntry(
                dataset_id=dataset["hub_id"],
                task_id=metric if about is None else f"{metric}.{about}",
                value=value,
                source_url=source,
                source_name="the record" if source else None,
                notes=f"{name}, {checkpoint.heading['split']}, n = {arguments['n']}{interval}",
            )
        )
    return {f".eval_results/{dataset['name'].replace('/', '--')}.yaml": _yaml_list(eval_result_entries_to_yaml(entries))}


def _yaml_list(entries: list) -> str:
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=120)


def _left_out(checkpoint: Checkpoint) -> dict[str, int]:
    """Texts that the training left out, by reason."""
    reasons: Counter[str] = Counter()
    for part in (checkpoint.run.get("dataset") or {}).get("dropped", {}).values():
        reasons.update(part)
    return {reason.replace("_", " "): count for reason, count in reasons.items() if count}


def _class_scores(checkpoint: Checkpoint) -> list[tuple[str, float, int]]:
    """Name, F1 and texts of each class; [] of very many classes."""
    scores, names, count = checkpoint.scores, checkpoint.cell.class_names, checkpoint.cell.probs.shape[1]
    named = [
        names[number] if number < len(names) else str(number) for number in range(count if count <= MOST_CLASSES else 0)
    ]
    return [(name, scores[f"f1_class_{n}"], scores[f"support_class_{n}"]) for n, name in enumerate(named)]


def card_figures(repo_id: str, names: Sequence[str]) -> dict[str, str]:
    """{path in the model repository: name of the report's figure} of the figures that the card shows; its PNG belongs there.

    The path holds the checkpoint's name, so that cards of many checkpoints can lie in one folder.
    """
    name = check_name(repo_id).partition("/")[2]
    return {f"figures/{name}-{figure}.png": figure for figure in [one for one in FIGURES if one in names][:2]}


def answer_files(checkpoint: Checkpoint, repo_id: str) -> dict[str, bytes]:
    """{path in the model repository: content} of the chart beside the answer; {} where no measure was taken."""
    from attnfaith.reporting.page.chart import measures_chart, svg

    drawn = measures_chart(checkpoint.cells)
    return {} if drawn is None else {_answer_path(repo_id): str(svg(drawn, alone=True)).encode()}


def _answer_path(repo_id: str) -> str:
    return f"figures/{check_name(repo_id).partition('/')[2]}-answer.svg"


def _answer_picture(checkpoint: Checkpoint, repo_id: str) -> tuple[Markdown, str, str] | None:
    """Path, alternative text and title of the chart beside the answer."""
    from attnfaith.reporting.page.chart import measures_chart

    drawn = measures_chart(checkpoint.cells)
    return None if drawn is None else (Markdown(_answer_path(repo_id)), drawn.words, drawn.title)


def _pictures(checkpoint: Checkpoint, repo_id: str, names: Sequence[str]) -> list[tuple[Markdown, str, str]]:
    """Path, alternative text and caption."""
    chosen = card_figures(repo_id, names)
    return [(Markdown(path), *figure_words(checkpoint.cell, figure)) for path, figure in chosen.items()]


def _provenance(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """What is known of how the model came to be; what is not known is said."""
    run = checkpoint.run
    known = run.get("provenance") or {}
    dataset = known.get("data") or {}
    commit = known.get("commit")
    if commit and known.get("dirty"):
        commit += ", with uncommitted changes"
    libraries = known.get("libraries") or {k: v for k, v in run.get("versions", {}).items() if k != "attnfaith"}
    rows = {
        "attnfaith": known.get("version") or run.get("versions", {}).get("attnfaith"),
        "commit": commit,
        "libraries": ", ".join(f"{name} {version}" for name, version in libraries.items()),
        "Python": known.get("python"),
        "platform": known.get("platform"),
        "data": dataset.get("revision") or checkpoint.heading["texts"],
        "fingerprint of the data": _fingerprint(dataset.get("fingerprint")),
        "weights (SHA-256)": checkpoint.settings[0].get("model"),
    }
    if known.get("of") == "measurement":
        rows["covers"] = "the measurement; of the training it was not recorded"
    return [(name, str(value) if value else "not recorded") for name, value in rows.items()]


def _fingerprint(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{split} {str(digest)[:16]}" for split, digest in value.items())
    return str(value or "")


def _measured(settings: Mapping) -> str:
    """One line about a record: what was measured, and by which version."""
    known, said = settings.get("provenance") or {}, ", ".join(settings.get("producers", [])) or "attention and prediction"
    for name, value in {
        "seed": settings.get("seed"),
        "attnfaith": settings.get("version"),
        "commit": known.get("commit"),
    }.items():
        said += f"; {name} {'not recorded' if value is None else value}"
    return said + (" with uncommitted changes" if known.get("dirty") else "")


def licence(dataset: Mapping | None) -> str:
    """What is known of the terms of a data set's texts."""
    return "see the data set’s own card" if dataset is None else dataset["licence"] or UNKNOWN_LICENCE
