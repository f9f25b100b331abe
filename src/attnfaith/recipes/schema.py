"""The keys of a recipe: each with its type, range, default and line of help, and which of them go together.

pydantic checks types and ranges; the configuration of a model checks its fields. A key means something for some kinds of
model, data and objective: its `home`, by the names of `Recipe.homes`. Anywhere else it must be left out, so that no recipe
names what is not done.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import field, fields, is_dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from attnfaith.support.errors import AttnfaithError, cut, excerpt, nearest


class RecipeError(AttnfaithError):
    """A recipe, or options of a command, that cannot be used. The message names the key, its value and what is allowed."""


# A section of a recipe. strict: a text is no number, and 1 is not true.
section = partial(dataclass, frozen=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))

LARGEST = 2**31 - 1  # a count that every library takes
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]  # as numpy takes it
Share = Annotated[float, Field(ge=0, le=1)]
Part = Annotated[float, Field(gt=0, lt=1)]
Below = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Epochs = Annotated[float, Field(gt=0, le=LARGEST)]
Words = Annotated[list[Annotated[str, Field(pattern=r"^\S+$")]], Field(min_length=1)]
Preprocessing = Literal["words", "default", "characters", "whitespace", "imdb", "sst"]
Sampling = Literal["group_by_length", "random", "sequential"]
Goal = Literal["classification", "untrained", "guided", "adversarial"]
Reduction = Literal["sum", "mean"]


def key(default: Any, text: str, home: str = "", usual: Any = None) -> Any:
    """A key of a section.

    default: ... where it must be given. text: the line of help. home: the recipes that have it, one of `Recipe.homes`; ""
    all. usual: the value in place of null; {home: value} where it depends on the recipe, the first home that is its.
    """
    usual = usual if isinstance(usual, dict) else {home: usual}
    text = f"{home}: {text}" if home else text
    if len(usual) > 1:
        text += "; null: " + ", ".join(f"{value} for {kind or 'others'}" for kind, value in usual.items())
    elif usual[home] is not None:
        text += f"; null: {usual[home]}"
    return Field(default, description=text, json_schema_extra={"home": home, "usual": usual})


def make_section(kind: type, values: Mapping, place: str):
    """Return a section from its keys and inner sections. Raises RecipeError with the place of a mistake and its value."""
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_json(json.dumps(values))  # JSON, as strict mode takes no dictionary for a section
    except ValidationError as refusal:
        mistake = refusal.errors(include_url=False)[0]
        path = place + "".join(f"[{step}]" if isinstance(step, int) else f".{cut(step, 60)}" for step in mistake["loc"])
        if mistake["type"] == "unexpected_keyword_argument":
            schema = adapter.json_schema()
            names = [name for part in (schema, *schema.get("$defs", {}).values()) for name in part["properties"]]
            raise RecipeError(f"unknown key {path}{nearest(mistake['loc'][-1], names)}") from refusal
        if mistake["type"] == "missing":
            raise RecipeError(f"{path} is missing") from refusal
        if "error" in mistake.get("ctx", {}):  # a rule between keys, with its own message
            raise mistake["ctx"]["error"] from refusal
        raise RecipeError(f"{path}={excerpt(mistake['input'])}: {mistake['msg']}") from refusal
    except (TypeError, ValueError, RecursionError) as error:
        raise RecipeError(f"{place} holds a value that is none of JSON: {excerpt(error)}") from error


@section
class Removal:
    """Words that all texts of the run lose to the unknown word (ROAR, Hooker et al. 2019)."""

    share: Annotated[Share, Field(gt=0)] = key(..., "share of the words of each text, rounded up")
    by: str = key("random", "which first: by attention, a measure of inputs, absolute_NAME of a signed one, or random")
    base: str | None = key(None, "folder of the run whose model ranks the words, unless they are random")


OURS, SCRATCH, TUNED = "classifiers of this package", "models trained from scratch", "pretrained models"
TO_WORDS, WORDS = "models trained for labels by attention to words", f"{OURS}, trained for labels by attention to words"


@section
class Data:
    """Which texts, in which words: of a data set of the registry, of a file or folder, or of the Hub."""

    name: str | None = key(None, "name of a registered data set; null: planted_evidence, or your own data")
    path: str | None = key(None, "your own data: a file (csv, tsv, jsonl, json, parquet, xlsx) or a folder of files")
    hub_id: str | None = key(None, "your own data: OWNER/NAME of a data set on the Hub", "classifiers")
    revision: str | None = key(None, "branch, tag or commit; null: main", "data sets of the Hub")
    config: str | None = key(None, "its configuration; null: its default", "data sets of the Hub")
    text: str | None = key(None, "column of the text; null: text, or the only candidate", "your own data")
    text_pair: str | None = key(None, "column of the second text of a pair; null: single texts", "your own data")
    label: str | None = key(None, "column of the class; null: label, or the only candidate", "your own data")
    impermissible_words: Words | None = key(None, "words that a deceptive model hides, in any case", "your own data")
    impermissible_removed: bool = key(False, "take the impermissible words out of all texts", "classifiers")
    encoding: str | None = key(None, "encoding of the files, such as cp1252; null: UTF-8", "your own files")
    delimiter: str | None = key(None, "between the fields of a csv; null: read from its first line", "your own files")
    quotes: bool = key(True, "whether a field of a csv may stand in quotation marks", "your own files")
    preprocessing: Preprocessing = key("words", "how a text is divided into words", "your own data")
    validation_share: Part = key(0.15, "share of the texts for validation, if there is no such split", "your own data")
    test_share: Part = key(0.15, "share of the texts for test, if there is no such split", "your own data")
    split_seed: Seed = key(0, "seed of these splits", "your own data")
    arguments: dict[str, Any] = key({}, "arguments of the generator", "generated data")
    limits: dict[str, Count] = key({}, "largest number of rows of each split; they are drawn at random")
    max_length: Count | None = key(None, "most tokens of a text; null: no limit, or 1000 for your own data")
    max_sentence_length: Count | None = key(None, "longer sentences are divided", "model.hierarchy=sentence")
    min_df: Count | None = key(None, "training texts that hold a word of the vocabulary; null: the data set's own", SCRATCH)
    vectors: str | None = key(None, "file of word vectors, on this path or below the data folder; null: random", OURS)
    vocabulary: Literal["words", "bpe"] | None = key(None, "words (null), or bpe for byte pairs", "sentence pairs")
    vocabulary_size: Count | None = key(None, "its size; null: all words, or 8000 byte pairs", "sentence pairs")
    links_from: Literal[0, 1] | None = key(None, "number of the first word in own links; null: 0", "sentence pairs")
    seed: Seed = key(0, "seed of generated data, and of the rows that limits draw")
    removal: Removal | None = key(None, "words that are removed from all texts; null: none", WORDS)

    @property
    def own(self) -> bool:
        """Whether it is read from a file, a folder or the Hub, not by the name of a registered data set."""
        return self.path is not None or self.hub_id is not None

    def __post_init__(self):
        name, value = ("max_length", 1000) if self.own else ("name", "planted_evidence")
        if getattr(self, name) is None:  # written out, so that the data are complete by themselves
            object.__setattr__(self, name, value)


@section
class Selector:
    """The selector of the tokens that the classifier reads: fields of RationaleClassifierConfig, which checks them."""

    kind: Literal["bernoulli", "hardkuma", "budget"] = key(..., "Lei et al. 2016; Bastings et al. 2019; or of SPECTRA")
    budget: Annotated[Share, Field(gt=0)] | None = key(None, "largest share of a text that may be selected; null: all")
    threshold: Below | None = key(None, "tokens above it are selected at test time; null: 0.5 of bernoulli, else 0")


POOLED, PROJECTED = "attention that pools states", "attention with a projection"
STATES, LAYERS = f"{OURS}, and type gru", "encoder transformer, or type marian"


@section
class Model:
    """The fields of AttentionClassifierConfig, which checks them; or a pretrained model, and its projection."""

    type: Literal["gru", "marian"] | None = key(None, "kind of the model; null: a classifier of texts", "sentence pairs")
    encoder: str | None = key(None, "one of `attnfaith list encoders`", STATES, {"type gru": "bigru", "": "bilstm"})
    recurrence: Literal["bahdanau", "luong"] | None = key(None, "where the decoder attends", "type gru", "bahdanau")
    alignment: str = key("additive", "additive or dot", POOLED)
    projection: str = key("softmax", "one of `attnfaith list projections`; for type gru also none", PROJECTED)
    readout: str = key("affine", "affine or tanh", OURS)
    hierarchy: str = key("none", "none, or sentence: attention over words in each sentence, then over sentences", OURS)
    embedding_size: int = key(300, "size of the word vectors; that of data.vectors where a file is given", STATES)
    hidden_size: int | None = key(None, "of a state; null: 256, transformer 128, embedding as embedding_size", SCRATCH)
    alignment_size: int | None = key(None, "size of the additive alignment; null: half of the hidden size", POOLED)
    sparsegen_lambda: float = key(0.0, "λ of sparsegen, below 1; 0 is sparsemax", PROJECTED)
    entmax_alpha: float = key(1.5, "α of entmax, at least 1; 1 is softmax, 2 is sparsemax", PROJECTED)
    separate_impermissible: bool = key(False, "impermissible words attend only to each other", TUNED)
    kernel_sizes: list[int] = key([1, 3, 5, 7], "widths of the filters of the cnn, odd numbers", OURS)
    num_hidden_layers: int = key(2, "number of layers", LAYERS)
    num_attention_heads: int = key(1, "number of attention heads", LAYERS)
    intermediate_size: int = key(128, "size of the feed-forward layer", LAYERS)
    dropout: float = key(0.0, "share of values that training drops, below 1", SCRATCH)
    embedding_std: float = key(0.25, "standard deviation of random word vectors", STATES)
    pretrained: str | None = key(None, "model to fine-tune, with its tokenizer: of the Hub, or a folder", "classifiers")
    revision: str | None = key(None, "branch, tag or commit on the Hub; null: main", TUNED)
    selector: Selector | None = key(None, "selector of the tokens that the classifier reads; null: it reads all", OURS)


TAUGHT = f"{POOLED}, trained for labels"


@section
class Training:
    """Settings of the training, by the names of transformers' TrainingArguments where they have one.

    Null is the value of the papers (Jain & Wallace 2019), or, of a pretrained model, the usual value for fine-tuning (Devlin
    et al. 2019, appendix A.3).
    """

    num_train_epochs: Epochs | None = key(None, "passes over the training texts", usual={OURS: 8, TUNED: 3, "": 10})
    per_device_train_batch_size: Count = key(32, "texts of a training step in each process")
    per_device_eval_batch_size: Count = key(64, "texts of an evaluation step in each process")
    learning_rate: NotNegative | None = key(None, "of the optimiser", usual={OURS: 1e-3, TUNED: 5e-5, "": 2e-3})
    weight_decay: NotNegative | None = key(None, "not of the alignment", usual={OURS: 1e-5, TUNED: 0.01, "": 0.0})
    max_grad_norm: NotNegative | None = key(None, "gradients are clipped to it, 0 never", usual={OURS: 0.0, "": 1.0})
    amsgrad: bool | None = key(None, "whether Adam uses AMSGrad", OURS, {OURS: True, "": False})
    random_erasure: Share = key(0.0, "largest share of words that a training text loses at each step", TAUGHT)
    loss_reduction: Reduction | None = key(None, "of the losses of a batch", "classifiers", {OURS: "sum", "": "mean"})
    balance_classes: bool = key(True, "whether rare classes get a larger weight", "classifiers")
    metric_for_best_model: str | None = key(None, "selects the checkpoint; null: roc_auc of two classes, else accuracy")
    early_stopping_patience: Count | None = key(None, "epochs without a better score before it stops; null: never")
    train_sampling_strategy: Sampling = key("group_by_length", "how batches are drawn")
    use_cpu: bool = key(False, "train on the CPU even if there is a GPU")
    arguments: dict[str, Any] = key({}, "other arguments of transformers' TrainingArguments, such as warmup_steps")


@section
class Objective:
    """The objective of the training.

    untrained: the model as a training of the same seed starts from. guided and adversarial: Wiegreffe & Pinter 2019; the
    adversary's loss is half of |p - p_base|_1 minus the weight times the divergence; their code's lambda is half of it.
    """

    kind: Goal = key("classification", "what the model is trained for: labels, nothing, or against the model of another run")
    base: str | None = key(None, "folder of the run that the model is trained against", "guided or adversarial")
    weight: Positive = key(0.002, "weight λ of the divergence between the attentions", "adversarial")
    divergence: Literal["kl", "jsd"] = key("kl", "kl, or jsd if the attention of the base has zeros", "adversarial")
    frozen: bool = key(False, "train the alignment only and keep the other weights of the base", "adversarial")


MASS, TYING, MASKED = f"penalties.impermissible_mass of {TUNED}", "penalties.word_tying", "masked_language_model"


@section
class Penalties:
    """Penalties on the loss of each text where a model is trained for the labels; a weight of 0 adds nothing.

    Sources: Pruthi et al. 2020 (impermissible mass), Mohankumar et al. 2020 (diversity), Tutek & Snajder 2020 (the others).
    """

    impermissible_mass: NotNegative = key(0.0, "weight of -log(1 - attention on impermissible words)", TO_WORDS)
    impermissible_heads: Literal["mean", "max"] | None = key(
        None, "mean of the heads, or max: the one with most", MASS, "mean"
    )
    diversity: NotNegative = key(0.0, "weight of the mean absolute cosine of the states with their mean", WORDS)
    word_tying: NotNegative = key(0.0, "weight of the distance between states and word vectors of the same size", WORDS)
    word_tying_distance: Literal["norm", "squared"] | None = key(None, "whether it is squared", TYING, "squared")
    masked_language_model: NotNegative = key(0.0, "weight of -log p(word) of masked words by the states", WORDS)
    masked_share: Annotated[Share, Field(gt=0)] | None = key(None, "share of the words that are masked", MASKED, 0.15)


BOTH = "bernoulli or hardkuma"


@section
class Selection:
    """The penalties that train the selection of model.selector with the labels (`attnfaith.training.RationaleConfig`)."""

    sparsity: NotNegative | None = key(None, "cost of each selected token", "bernoulli", 3e-4)
    coherence: NotNegative | None = key(None, "cost of a change between neighbours over sparsity", "bernoulli", 2.0)
    baseline: Literal["none", "moving_average"] | None = key(None, "baseline of REINFORCE", "bernoulli", "none")
    share: Share | None = key(None, "target share of selected tokens; null: the budget, if there is one", "hardkuma", 0.2)
    multiplier: Positive | None = key(None, "first value of the multiplier", "hardkuma", 1e-4)
    multiplier_rate: Positive | None = key(None, "learning rate of the multiplier", "hardkuma", 0.01)
    multiplier_range: list[float] | None = key(None, "[smallest, largest] multiplier; null: no bounds", "hardkuma")
    decay: Below | None = key(None, "of the moving averages", BOTH, {"bernoulli": 0.9, "hardkuma": 0.99})


CHEAP = ["gradient", "gradient_norm", "leave_one_out"]
PRODUCERS = {"guided": [], "sentence pairs": ["attention", "norm", "gradient_x_input"]}
PRODUCERS |= {"attention to your own texts": [*CHEAP, "integrated_gradients", "comprehensiveness"], "": CHEAP}


@section
class Measure:
    """The measures and their texts."""

    producers: list[str] | None = key(None, "names of measures", "models that compute their attention", PRODUCERS)
    options: dict[str, dict[str, Any]] = key({}, "options of the measures, {measure: {option: value}}")
    split: Literal["train", "validation", "test"] = key("test", "split that is measured")
    limit: Count | None = key(None, "number of texts, drawn at random; null: all")
    seed: Seed = key(0, "seed of all random draws of the measures")
    batch_tokens: Count | None = key(None, "tokens of a batch with its padding", usual={"sentence pairs": 2048, "": 8192})


@section
class Report:
    """The contents of the report."""

    examples: Count = key(5, "sentence pairs of lowest and of highest error that the page shows")
    title: str | None = key(None, "title of the page")
    page: bool = key(True, "whether the run writes its page; `attnfaith report RUN` writes it later")


SCHEDULE = {"lr_scheduler_type": "linear", "warmup_steps": 0.1}
"""Of pretrained models and translators: the learning rate rises over a tenth of the updates, then falls to 0."""
REFUSED_ARGUMENTS = (
    *("_", "accelerator", "batch_eval", "dataloader_multi", "ddp_", "debug", "deepspeed", "do_", "enable_jit", "fsdp"),
    *("greater", "hub_", "include_", "label_names", "length_column", "liger", "load_best", "local_rank", "logging_dir"),
    *("optim", "output_dir", "parallelism", "project", "push_to_hub", "remove_unused", "report_to", "resume_from"),
    *("run_name", "seed", "torch_compile", "trackio", "use_liger"),
)
"""Beginnings of the names of TrainingArguments that no recipe sets, as it may come from a stranger."""


@section
class Recipe:
    """A run: data, model, training, its objective and penalties or selection, what to measure, how to report."""

    name: str = key(..., "name of the run")
    output_dir: str = key(..., "folder of the run")
    seed: Seed = key(10, "seed of the model and its training")
    note: str = key("", "a note, such as which claim of which paper the run reproduces")
    plugins: list[str] = key([], "your own Python modules, installed or in the current folder; they are imported first")
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    training: Training = field(default_factory=Training)
    objective: Objective = field(default_factory=Objective)
    penalties: Penalties = field(default_factory=Penalties)
    selection: Selection = field(default_factory=Selection)
    measure: Measure = field(default_factory=Measure)
    report: Report = field(default_factory=Report)

    @property
    def kind(self) -> str:
        """classifier (of this package), pretrained, or translator (a model of sentence pairs)."""
        return "translator" if self.model.type else "pretrained" if self.model.pretrained is not None else "classifier"

    @property
    def reads(self) -> str:
        """What its measures read: "pairs" of sentences, or "texts"."""
        return "pairs" if self.kind == "translator" else "texts"

    @property
    def base(self) -> str | None:
        """Folder of the run whose model this one is trained against, or whose model ranks the words that it lacks."""
        removal = self.data.removal
        return self.objective.base if removal is None else removal.base if removal.by != "random" else None

    def homes(self) -> dict[str, bool]:
        """Return the kinds of recipes that a key may be for, and whether this recipe is of them."""
        data, model, objective, penalties = self.data, self.model, self.objective.kind, self.penalties
        ours, pairs, gru = self.kind == "classifier", self.kind == "translator", model.type == "gru"
        selector = model.selector.kind if model.selector else None
        pooled, labels = ours and selector is None, objective == "classification" and selector is None
        attends = model.type is None or (gru and model.projection not in ("none", "uniform"))
        words = labels and attends and model.hierarchy == "none"
        return {
            "": True,
            "classifiers": not pairs,
            "sentence pairs": pairs,
            "type gru": gru,
            TUNED: self.kind == "pretrained",
            SCRATCH: self.kind != "pretrained",
            OURS: ours,
            STATES: ours or gru,
            LAYERS: ours or model.type == "marian",
            POOLED: pooled or gru,
            PROJECTED: selector is None and model.type != "marian",
            "your own data": data.own and not pairs,
            "your own files": data.path is not None and not pairs,
            "data sets of the Hub": data.hub_id is not None,
            "generated data": not data.own,
            "model.hierarchy=sentence": ours and model.hierarchy != "none",
            "guided or adversarial": objective in ("guided", "adversarial"),
            "adversarial": objective == "adversarial",
            "guided": objective == "guided",
            "models that compute their attention": objective != "guided",
            "attention to your own texts": data.own and not pairs and selector is None,
            TAUGHT: labels and pooled,
            TO_WORDS: words,
            WORDS: words and ours,
            MASS: penalties.impermissible_mass > 0 and self.kind == "pretrained",
            TYING: penalties.word_tying > 0,
            MASKED: penalties.masked_language_model > 0,
            "bernoulli": selector == "bernoulli",
            "hardkuma": selector == "hardkuma",
            BOTH: selector in ("bernoulli", "hardkuma"),
        }

    def keys(self, part: str) -> list[str]:
        """Return the keys of a section that mean something in this recipe."""
        homes, facts = self.homes(), SECTIONS[part].__pydantic_fields__
        return [name for name in facts if homes[facts[name].json_schema_extra["home"]]]

    def __post_init__(self):
        homes, selector = self.homes(), self.model.selector
        for part, kind in SECTIONS.items():
            section, silent = getattr(self, part), {}
            for name, facts in kind.__pydantic_fields__.items():
                home, values = (facts.json_schema_extra[fact] for fact in ("home", "usual"))
                usual = next((usual for kinds, usual in values.items() if homes[kinds]), None)
                value, default = getattr(section, name), facts.get_default(call_default_factory=True)
                if not homes[home] and value not in (default, usual):
                    raise RecipeError(f"{part}.{name}={excerpt(value)} is only for {home}: leave it out")
                if value is None and usual is not None:  # written out, so that the recipe is complete
                    silent[name] = usual
            if "share" in silent and selector.budget is not None:
                silent["share"] = selector.budget
            if part == "training" and self.kind != "classifier":
                silent["arguments"] = SCHEDULE | section.arguments
            object.__setattr__(self, part, replace(section, **silent))
        for wrong, message in self._contradictions():
            if wrong:
                raise RecipeError(message)

    def _contradictions(self) -> Iterator[tuple[bool, str]]:
        """(whether it is true of the recipe, a message)."""
        data, objective, training, pairs = self.data, self.objective, self.training, self.kind == "translator"
        places = [f"data.{key}={excerpt(getattr(data, key))}" for key in ("name", "path", "hub_id") if getattr(data, key)]
        yield len(places) > 1, f"{' and '.join(places)}: set one of them, and the others to null"

        ranked, goal = data.removal is not None and data.removal.by != "random", f"objective.kind={objective.kind!r}"
        yield ranked and not self.base, "data.removal.by needs data.removal.base, the folder of the run that ranks the words"
        against = self.homes()["guided or adversarial"]
        yield against and not self.base, f"{goal} needs objective.base, the folder of the run to train against"
        pooled = self.kind == "classifier" and self.model.selector is None
        misplaced = (pairs and objective.kind != "classification") or (against and not pooled)
        yield misplaced, f"{goal} is only for classifiers of this package whose attention pools states"

        metric, own = training.metric_for_best_model, {key.name for key in fields(training)}
        unknown = pairs and metric not in (None, "loss", "token_accuracy")
        yield unknown, f"training.metric_for_best_model={excerpt(metric)}: of sentence pairs choose loss or token_accuracy"
        for name in training.arguments:
            where = f"set training.{name}" if name in own else "a recipe names no files, code or machines here"
            yield name in own or name.startswith(REFUSED_ARGUMENTS), f"training.arguments.{cut(name, 60)}: {where}"


SECTIONS = {key.name: key.type for key in fields(Recipe) if is_dataclass(key.type)}
