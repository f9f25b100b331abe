"""The card of a model: README.md of its repository, with its metadata, and its `.eval_results/`."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import PurePath

import numpy as np
import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCardData, eval_result_entries_to_yaml
from huggingface_hub.utils import HFValidationError, validate_repo_id

from attnfaith.record import Identity
from attnfaith.reporting.cards.checkpoint import Checkpoint, Number, only_reason
from attnfaith.reporting.chart import measures_chart, svg
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.facts import own_data_facts
from attnfaith.reporting.html import MOST_CLASSES, template
from attnfaith.reporting.sections import figure_words
from attnfaith.reporting.sections.performance import selected_by
from attnfaith.reporting.tables import format_number
from attnfaith.support.escaping import Markdown, yaml_head
from attnfaith.verdict import RULE


_FOLDER = files("attnfaith.reporting.cards")
BIBTEX: dict[str, str] = {
    re.match(r"@\w+\{([^,]+),", entry)[1]: entry
    for entry in re.split(r"\n(?=@)", (_FOLDER / "citations.bib").read_text(encoding="utf-8"))
}
"""Key -> entry of citations.bib."""
CITED: dict[str, dict[str, list[str]]] = yaml.safe_load((_FOLDER / "citations.yaml").read_text(encoding="utf-8"))
"""Kind (data set, encoder, …) -> name -> keys of its papers."""
PENALTIES = ("impermissible_mass", "diversity", "word_tying", "masked_language_model")
"""As an identity names their weights."""
FIGURES = ("tau_by_measure", "permutation_by_max_attention", "dispersion_by_scores")  # of these, two at most
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
DECODERS = {"affine": "an affine layer", "tanh": "a layer with tanh and an affine one"}
UNKNOWN_LICENCE = "none is known here to be stated by its publisher; ask before you pass its texts on"
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
"""Names in the metadata, by the key of a number or of a kind of numbers."""


def check_name(repo_id: str) -> str:
    """Return the name of a repository. Raises ReportError for anything but an "owner/name" that the Hub allows."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ReportError(str(error)) from error
    if repo_id.count("/") != 1:
        raise ReportError(f"{repo_id!r} is no name of a repository: give owner/name")
    return repo_id


def model_card(
    checkpoint: Checkpoint,
    repo_id: str,
    dataset: Mapping,
    *,
    figures: Sequence[str] = (),
    records_repo: str | None = None,
    results_repo: str | None = None,
) -> str:
    """README.md of a model repository, with its YAML front matter (model-index inside).

    repo_id: "owner/name". dataset: what `attnfaith.data.registry.facts` knows about it. figures: names of the report's
    figures that are at hand (the stems of report/figures/*.png); the card shows those of `card_figures`. records_repo,
    results_repo: the data set repositories that are pushed beside it.

    Raises ReportError for a name that the Hub does not allow.
    """
    name = check_name(repo_id).partition("/")[2]
    cell, run, heading = checkpoint.cell, checkpoint.run, public(checkpoint.heading)
    identity, projection = cell.identity, heading["projection"]
    twice = ", once over the words of a sentence and once over sentences" if identity.hierarchy == "sentence" else ""
    groups: dict[str, list[Number]] = {}
    for key, number in checkpoint.numbers.items():
        if key != "accuracy":
            groups.setdefault(number.group, []).append(number)
    dropped: Counter[str] = Counter()
    for counts in (run.get("dataset") or {}).get("dropped", {}).values():
        dropped.update(counts)
    chart, names = measures_chart(checkpoint.cells), cell.class_names
    pictures = [(Markdown(path), *figure_words(cell, figure)) for path, figure in card_figures(repo_id, figures).items()]
    return template("model_card.md.j2").render(
        front_matter=yaml_head(_metadata(checkpoint, repo_id, dataset, records_repo)),
        name=name,
        repo_id=Markdown(repo_id),
        identity=heading,
        encoder=ENCODERS.get(identity.encoder, identity.encoder) + twice,
        projection=PROJECTIONS.get(projection, f"{projection}: words can get no weight at all"),
        penalties=penalties_in_words(identity),
        sparse=projection not in PROJECTIONS and identity.selection_kind in (None, "budget"),
        selection=selection_in_words(identity),
        unit=checkpoint.unit,
        decoder=DECODERS.get(checkpoint.recipe.get("model", {}).get("readout"), "a decoder"),
        classes=names if len(names) <= MOST_CLASSES else (),
        n_classes=cell.probs.shape[1],
        dataset=dataset,
        hub_url=dataset["hub_id"] and Markdown(f"https://huggingface.co/datasets/{dataset['hub_id']}"),
        licence=licence(dataset),
        run=run,
        selected_by=selected_by(run, names),
        recipe=public(checkpoint.recipe),
        left_out={reason.replace("_", " "): count for reason, count in dropped.items() if count},
        own=own_data_facts(run.get("dataset") or {}),
        accuracy=checkpoint.numbers["accuracy"],
        scores=checkpoint.scores,
        class_scores=_class_scores(checkpoint),
        groups=groups,
        verdict=checkpoint.verdict,
        only_reason=only_reason(checkpoint),
        answer_picture=chart and (Markdown(_answer_path(repo_id)), chart.words, chart.title),
        rule=RULE,
        figures=pictures,
        provenance=_provenance(checkpoint),
        measurements=[_measured(settings) for settings in checkpoint.settings],
        sizes=[len(cell) for cell in checkpoint.cells],
        truncated=int(cell.column("truncated").sum()),
        records_repo=records_repo and Markdown(check_name(records_repo)),
        results_repo=results_repo and Markdown(check_name(results_repo)),
        bibtex=Markdown("\n".join(BIBTEX[key] for key in citation_keys(checkpoint)).rstrip("\n")),
        in_numbers=in_numbers,
        number=format_number,
    )


def citation_keys(checkpoint: Checkpoint) -> list[str]:
    """The papers that the card of a checkpoint cites, as keys of BIBTEX: of its data set, encoder, projection, objective,
    penalties and measurements, and Pruthi et al., whom every card names.
    """
    identity = checkpoint.cell.identity
    subjects = {
        "datasets": [identity.dataset],
        "encoders": [identity.encoder],
        "projections": [identity.projection],
        "objectives": [identity.objective],
        "penalties": [name for name in PENALTIES if getattr(identity, name)],
        "producers": [name for settings in checkpoint.settings for name in settings.get("producers", ())],
    }
    cited = [key for kind, names in subjects.items() for name in names for key in CITED[kind].get(name, ())]
    return list(dict.fromkeys([*cited, "pruthi-etal-2020-learning"]))


def selection_in_words(identity: Identity) -> str:
    """The tokens that a model reads at test time, in words; "" where it reads all."""
    if identity.selection_kind is None:
        return ""
    budget = "" if identity.selection_budget is None else f", at most {identity.selection_budget:.0%} of them"
    return SELECTIONS[identity.selection_kind] + budget + (", in one window" if identity.selection_contiguous else "")


def penalties_in_words(identity: Identity) -> list[Markdown]:
    """A sentence on each penalty, with its weight and source; [] of a model that was trained for the labels alone."""
    heads = " (of the head with most of it)" if identity.impermissible_heads == "max" else ""
    distance = "squared distance" if identity.word_tying_distance == "squared" else "distance"
    padding = ", markers and padding in its mean" if identity.word_tying_padding else ""
    share = "" if identity.masked_share is None else f", {100 * identity.masked_share:g}% of the words masked"
    sentences = {
        "impermissible_mass": "**Its attention was trained to deceive**: attention on impermissible words, which it may go "
        f"by, was punished{heads}, with a weight of {{}} (Pruthi et al. 2020). Words without attention may still decide.",
        "diversity": "States that point in one direction were punished in training (diversity, the conicity of the states), "
        "with a weight of {} (Mohankumar et al. 2020).",
        "word_tying": f"States were tied to the vectors of their words in training (word tying, the {distance}{padding}), "
        "with a weight of {} (Tutek & Šnajder 2020).",
        "masked_language_model": f"States had to tell masked words in training (masked language model{share}), with a "
        "weight of {} (Tutek & Šnajder 2020).",
    }
    weights = {name: getattr(identity, name) for name in PENALTIES}
    return [Markdown(sentences[name].format(f"{weight:g}")) for name, weight in weights.items() if weight]


def public(value: object) -> object:
    """Settings without the folders of a machine: of an absolute path the last part."""
    if isinstance(value, Mapping):
        return {key: public(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [public(item) for item in value]
    return PurePath(value).name if isinstance(value, str) and PurePath(value).is_absolute() else value


def in_numbers(number: Number) -> Markdown:
    """ "0.123 [0.100, 0.150]"."""
    interval = "" if np.isnan(number.low) else f" [{format_number(number.low)}, {format_number(number.high)}]"
    return Markdown(format_number(number.value) + interval)


def _metric_values(checkpoint: Checkpoint) -> list[tuple[str, str, float, dict]]:
    """(metric, name for reading, value, arguments) of every defined number that goes into metadata."""
    values = []
    for key, number in checkpoint.numbers.items():
        kind, _, about = key.partition(".")
        metric = METRICS.get(key, METRICS.get(kind))
        if metric is None or np.isnan(number.value):
            continue
        arguments = {"compared_with": about} if kind in METRICS and about else {}
        if not np.isnan(number.low):
            arguments |= {"ci_low": round(float(number.low), DECIMALS), "ci_high": round(float(number.high), DECIMALS)}
        arguments |= {"n": number.n, "undefined": number.n_undefined}
        values.append((metric, number.label, round(float(number.value), DECIMALS), arguments))
    roc_auc, n = checkpoint.scores["roc_auc"], {"n": checkpoint.scores["n_scored"]}
    if not np.isnan(roc_auc):
        values.insert(1, ("roc_auc", "area under the ROC curve", round(float(roc_auc), DECIMALS), n))
    return values


def _metadata(checkpoint: Checkpoint, repo_id: str, dataset: Mapping, records_repo: str | None) -> dict:
    """The YAML front matter: what the Hub reads."""
    name = repo_id.partition("/")[2]
    on = {
        "task_type": "text-classification",
        "dataset_type": dataset["hub_id"] or dataset["name"],
        "dataset_name": dataset["name"],
        "dataset_split": checkpoint.heading["split"],
    }
    results = [
        EvalResult(**on, metric_type=metric, metric_name=label, metric_value=value, metric_args=arguments)
        for metric, label, value, arguments in _metric_values(checkpoint)
    ]
    data = ModelCardData(
        language="en" if dataset["hub_id"] and not dataset["own"] else None,
        license=LICENCE,
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=["attention", "interpretability", "faithfulness", "custom_code", "attnfaith"],
        datasets=[dataset["hub_id"]] if dataset["hub_id"] else None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)),
        model_name=name,
        eval_results=results,
    ).to_dict()
    if records_repo:
        data["attnfaith"] = {"records": records_repo, "configuration": name}
    return json.loads(json.dumps(data))  # plain values only


def eval_results(checkpoint: Checkpoint, dataset: Mapping, *, records_repo: str | None = None) -> dict[str, str]:
    """{path in the model repository: YAML} of its `.eval_results/`; {} where the data set has no repository on the Hub.

    The numbers of the model-index in the Hub's newer form, one entry a number; its task is the metric, with what it compares
    attention with: "kendall_tau.gradient".
    """
    if not dataset["hub_id"]:
        return {}
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
    text = yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False, allow_unicode=True, width=120)
    return {f".eval_results/{dataset['name'].replace('/', '--')}.yaml": text}


def _class_scores(checkpoint: Checkpoint) -> list[tuple[str, float, int]]:
    """Name, F1 and texts of each class; [] of very many classes."""
    scores, names, count = checkpoint.scores, checkpoint.cell.class_names, checkpoint.cell.probs.shape[1]
    names = [*names, *map(str, range(len(names), count))]
    classes = range(count if count <= MOST_CLASSES else 0)
    return [(names[n], scores[f"f1_class_{n}"], scores[f"support_class_{n}"]) for n in classes]


def card_figures(repo_id: str, names: Sequence[str]) -> dict[str, str]:
    """{path in the model repository: name of the report's figure} of the figures that the card shows; its PNG belongs there.

    The path holds the checkpoint's name, so that cards of many checkpoints can lie in one folder.
    """
    name = check_name(repo_id).partition("/")[2]
    return {f"figures/{name}-{figure}.png": figure for figure in [figure for figure in FIGURES if figure in names][:2]}


def answer_files(checkpoint: Checkpoint, repo_id: str) -> dict[str, bytes]:
    """{path in the model repository: content} of the chart beside the answer; {} where no measure was taken."""
    chart = measures_chart(checkpoint.cells)
    return {} if chart is None else {_answer_path(repo_id): str(svg(chart, alone=True)).encode()}


def _answer_path(repo_id: str) -> str:
    return f"figures/{check_name(repo_id).partition('/')[2]}-answer.svg"


def _provenance(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """How the model came to be, each (heading, value); "not recorded" where that is so."""
    run = checkpoint.run
    provenance, versions = run.get("provenance") or {}, run.get("versions", {})
    dataset, commit = provenance.get("data") or {}, provenance.get("commit")
    libraries = provenance.get("libraries") or {name: version for name, version in versions.items() if name != "attnfaith"}
    digests = dataset.get("fingerprint") or {}
    rows = {
        "attnfaith": provenance.get("version") or versions.get("attnfaith"),
        "commit": f"{commit}, with uncommitted changes" if commit and provenance.get("dirty") else commit,
        "libraries": ", ".join(f"{name} {version}" for name, version in libraries.items()),
        "Python": provenance.get("python"),
        "platform": provenance.get("platform"),
        "data": dataset.get("revision") or checkpoint.heading["texts"],
        "fingerprint of the data": ", ".join(f"{split} {str(digest)[:16]}" for split, digest in digests.items()),
        "weights (SHA-256)": checkpoint.settings[0].get("model"),
    }
    if provenance.get("of") == "measurement":
        rows["covers"] = "the measurement; of the training it was not recorded"
    return [(name, str(value) if value else "not recorded") for name, value in rows.items()]


def _measured(settings: Mapping) -> str:
    """One line about a record: what was measured, and by which version."""
    provenance = settings.get("provenance") or {}
    parts = [", ".join(settings.get("producers", [])) or "attention and prediction"]
    values = {"seed": settings.get("seed"), "attnfaith": settings.get("version"), "commit": provenance.get("commit")}
    parts += [f"{name} {'not recorded' if value is None else value}" for name, value in values.items()]
    return "; ".join(parts) + (" with uncommitted changes" if provenance.get("dirty") else "")


def licence(dataset: Mapping | None) -> str:
    """The terms of a data set's texts, in words."""
    return "see the data set’s own card" if dataset is None else dataset["licence"] or UNKNOWN_LICENCE
