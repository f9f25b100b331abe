"""The keys of a recipe: each with its type, range, default and line of help, and which of them go together.

pydantic checks types and ranges; the configuration of a model (`config`) checks its fields. A key means something for some
kinds of model, data and objective; `Recipe._rules` is the one table of that. Anywhere else the key must be left out, so that
no recipe names what is not done.
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
    """A recipe that cannot be used. The message names the key, its value, and the allowed values."""


# A section of a recipe. strict: a text is no number, and 1 is not true.
section = partial(
    dataclass,
    frozen=True,
    config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False),
)

Split = Literal["train", "validation", "test"]
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
Sampler = Literal["bernoulli", "hardkuma", "budget"]
Reduction = Literal["sum", "mean"]
Heads = Literal["mean", "max"]


def key(default: Any, text: str) -> Any:
    """A key of a section: its default (... where it must be given), and its line of help."""
    return Field(default, description=text)


FORMER = {
    "attention_learning_rate_factor": 1.0,
    "bf16": False,
    "contiguous": False,
    "gradient_accumulation_steps": 1,
    "level": "sentence",
    "missing_vectors": "zero",
    "pooling": "average",
    "reads": "zeroed",
    "select_on": "validation",
    "share_embeddings": True,
    "temperature": 0.1,
    "transition": 0.0,
    "two_sided": False,
    "word_tying_padding": False,
}
"""Keys of earlier versions: the only value that they may still have."""


FREE = ("arguments", "options", "set")
"""Keys whose values are passed on as they are."""


def make_section(kind: type, values: Mapping, place: str):
    """Return a section from its keys and inner sections; null is the default, also of a key of an earlier version.

    Raises RecipeError with the place of a mistake and its value.
    """
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_json(json.dumps(_stated(values)))  # JSON, as strict mode takes no dictionary for a section
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


def _stated(values: Any) -> Any:
    """The values without keys that are null, and keys of earlier versions with the only value that they had."""
    if not isinstance(values, Mapping):
        return values
    stated = {name: value for name, value in values.items() if value is not None and FORMER.get(name, ...) != value}
    return {name: value if name in FREE else _stated(value) for name, value in stated.items() if name != "outputs"}


@section
class Data:
    """Which texts, in which words: of a data set of the registry, of a file or folder, or of the Hub."""

    name: str | None = key(None, "name of a registered data set; null: planted_evidence, or your own data")
    path: str | None = key(None, "your own data: a file (csv, tsv, jsonl, json, parquet, xlsx) or a folder of files")
    hub_id: str | None = key(None, "your own data: OWNER/NAME of a data set on the Hub")
    revision: str | None = key(None, "branch, tag or commit of the data set on the Hub; null: main")
    config: str | None = key(None, "configuration of the data set on the Hub; null: its default")
    text: str | None = key(None, "your own data: column of the text; null: text, or the only candidate")
    text_pair: str | None = key(None, "your own data: column of the second text of a pair; null: single texts")
    label: str | None = key(None, "your own data: column of the class; null: label, or the only candidate")
    impermissible_words: Words | None = key(None, "your own data: words that a deceptive model hides, in any case")
    impermissible_removed: bool = key(False, "take the impermissible words out of all texts")
    encoding: str | None = key(None, "your own data: encoding of the files, such as cp1252; null: UTF-8")
    delimiter: str | None = key(None, "your own data: character between the fields of a csv; null: read from its first line")
    quotes: bool = key(True, "your own data: whether a field of a csv may stand in quotation marks")
    preprocessing: Preprocessing = key("words", "your own data: how a text is divided into words")
    validation_share: Part = key(0.15, "your own data: share of the texts for validation, if there is no such split")
    test_share: Part = key(0.15, "your own data: share of the texts for test, if there is no such split")
    split_seed: Seed = key(0, "your own data: seed of these splits")
    arguments: dict[str, Any] = key({}, "arguments of a generated data set")
    limits: dict[str, Count] = key({}, "largest number of rows of each split; they are drawn at random")
    max_length: Count | None = key(None, "most tokens of a text; null: no limit, or 1000 for your own data")
    max_sentence_length: Count | None = key(None, "hierarchical models: longer sentences are divided")
    min_df: Count | None = key(None, "training texts that hold a word of the vocabulary; null: the data set's own")
    vectors: str | None = key(None, "file of word vectors, on this path or below the data folder; null: random vectors")
    vocabulary: Literal["words", "bpe"] | None = key(None, "sentence pairs: words (null), or bpe for byte pairs")
    vocabulary_size: Count | None = key(None, "sentence pairs: its size; null: all words, or 8000 byte pairs")
    links_from: Literal[0, 1] | None = key(None, "your own sentence pairs: number of the first word in the links; null: 0")
    seed: Seed = key(0, "seed of generated data, and of the rows that limits draw")

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

    kind: Sampler = key(..., "bernoulli (Lei et al. 2016), hardkuma (Bastings et al. 2019) or budget (SPECTRA)")
    budget: Annotated[Share, Field(gt=0)] | None = key(None, "largest share of a text that may be selected; null: all")
    threshold: Below | None = key(None, "tokens above it are selected at test time; null: 0.5 of bernoulli, else 0")


@section
class Model:
    """The fields of AttentionClassifierConfig, which checks them; or a pretrained model, and its projection."""

    type: Literal["gru", "marian"] | None = key(None, "kind of a model for sentence pairs; null: a classifier of texts")
    encoder: str | None = key(None, "one of `attnfaith list encoders`; null: bilstm, or bigru for type gru")
    recurrence: Literal["bahdanau", "luong"] | None = key(None, "type gru: where the decoder attends; null: bahdanau")
    alignment: str = key("additive", "additive or dot")
    projection: str = key("softmax", "one of `attnfaith list projections`; for type gru also none")
    readout: str = key("affine", "affine or tanh")
    hierarchy: str = key("none", "none, or sentence: attention over words in each sentence, then over sentences")
    embedding_size: int = key(300, "size of the word vectors; that of data.vectors where a file is given")
    hidden_size: int | None = key(None, "size of a state; null: 256, transformer 128, embedding as embedding_size")
    alignment_size: int | None = key(None, "size of the additive alignment; null: half of the hidden size")
    sparsegen_lambda: float = key(0.0, "λ of sparsegen, below 1; 0 is sparsemax")
    entmax_alpha: float = key(1.5, "α of entmax, at least 1; 1 is softmax, 2 is sparsemax")
    separate_impermissible: bool = key(False, "pretrained models: impermissible words attend only to each other")
    kernel_sizes: list[int] = key([1, 3, 5, 7], "widths of the filters of the cnn, odd numbers")
    num_hidden_layers: int = key(2, "layers of the transformer")
    num_attention_heads: int = key(1, "attention heads of the transformer")
    intermediate_size: int = key(128, "size of the feed-forward layer of the transformer")
    dropout: float = key(0.0, "share of values that training drops, below 1")
    embedding_std: float = key(0.25, "standard deviation of random word vectors")
    pretrained: str | None = key(None, "model to fine-tune, with its tokenizer: a name on the Hub or a folder; null: none")
    revision: str | None = key(None, "branch, tag or commit of the pretrained model on the Hub; null: main")
    selector: Selector | None = key(None, "selector of the tokens that the classifier reads; null: it reads all tokens")


@section
class Training:
    """Settings of the training, by the names of transformers' TrainingArguments where they have one.

    Null is the value of the papers (Jain & Wallace 2019), or, of a pretrained model, the usual value for fine-tuning.
    """

    num_train_epochs: Epochs | None = key(None, "passes over the training texts; null: 8, pretrained models 3")
    per_device_train_batch_size: Count = key(32, "texts of a training step in each process")
    per_device_eval_batch_size: Count = key(64, "texts of an evaluation step in each process")
    learning_rate: NotNegative | None = key(None, "null: 0.001; pretrained models 0.00005, with warm-up and decay")
    weight_decay: NotNegative | None = key(None, "of all weights but the alignment's; null: 1e-5, pretrained models 0.01")
    max_grad_norm: NotNegative | None = key(None, "gradients are clipped to it; null: 0 (never), pretrained models 1")
    amsgrad: bool | None = key(None, "whether Adam uses AMSGrad; null: true, pretrained models false")
    random_erasure: Share = key(0.0, "largest share of words that a training text loses at each step")
    loss_reduction: Reduction | None = key(None, "of the losses of a batch; null: sum, pretrained models mean")
    balance_classes: bool = key(True, "whether rare classes get a larger weight")
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
    base: str | None = key(None, "guided, adversarial: folder of the run that the model is trained against")
    weight: Positive = key(0.002, "adversarial: weight λ of the divergence between the attentions")
    divergence: Literal["kl", "jsd"] = key("kl", "adversarial: kl, or jsd if the attention of the base has zeros")
    frozen: bool = key(False, "adversarial: train the alignment only and keep the other weights of the base")

    @property
    def needs_base(self) -> bool:
        """Whether the model is trained against another run."""
        return self.kind in ("guided", "adversarial")


@section
class Penalties:
    """Penalties on the loss of each text where a model is trained for the labels; a weight of 0 adds nothing.

    Sources: Pruthi et al. 2020 (impermissible mass), Mohankumar et al. 2020 (diversity), Tutek & Snajder 2020 (the others).
    """

    impermissible_mass: NotNegative = key(0.0, "weight of -log(1 - attention on impermissible words)")
    impermissible_heads: Heads | None = key(None, "pretrained models: mean of the heads (null), or max: the one with most")
    diversity: NotNegative = key(0.0, "weight of the conicity: the mean absolute cosine of the states with their mean")
    word_tying: NotNegative = key(0.0, "weight of the distance between states and word vectors of the same size")
    word_tying_distance: Literal["norm", "squared"] | None = key(None, "whether the distance is squared; null: squared")
    masked_language_model: NotNegative = key(0.0, "weight of -log p(word) at masked words, predicted from the states")
    masked_share: Annotated[Share, Field(gt=0)] | None = key(None, "share of the words that are masked; null: 0.15")


@section
class Selection:
    """The penalties that train the selection of model.selector with the labels (`attnfaith.training.RationaleConfig`)."""

    sparsity: NotNegative | None = key(None, "bernoulli: cost of each selected token; null: 0.0003")
    coherence: NotNegative | None = key(
        None, "bernoulli: cost of a change between neighbours, as a multiple of sparsity; null: 2"
    )
    baseline: Literal["none", "moving_average"] | None = key(None, "bernoulli: baseline of REINFORCE; null: none")
    share: Share | None = key(None, "hardkuma: target share of selected tokens; null: model.selector.budget, else 0.2")
    multiplier: Positive | None = key(None, "hardkuma: first value of the multiplier; null: 0.0001")
    multiplier_rate: Positive | None = key(None, "hardkuma: learning rate of the multiplier; null: 0.01")
    multiplier_range: list[float] | None = key(None, "hardkuma: [smallest, largest] multiplier; null: no bounds")
    decay: Below | None = key(None, "decay of the moving averages; null: 0.99 for hardkuma, else 0.9")


@section
class Measure:
    """The measures and their texts."""

    producers: list[str] | None = key(
        None, "names of measures; null: a few cheap measures; for your own data those of the verdict"
    )
    options: dict[str, dict[str, Any]] = key({}, "options of the measures, {measure: {option: value}}")
    split: Split = key("test", "split that is measured")
    limit: Count | None = key(None, "number of texts, drawn at random; null: all")
    seed: Seed = key(0, "seed of all random draws of the measures")
    batch_tokens: Count | None = key(None, "tokens of a batch with its padding; null: 8192, sentence pairs 2048")


@section
class Report:
    """The contents of the report."""

    examples: Count = key(5, "sentence pairs of lowest and of highest error that the page shows")
    title: str | None = key(None, "title of the page")
    page: bool = key(True, "whether the run writes its page; `attnfaith report RUN` writes it later")


# ------------------------------------------------------------------------------------------------ the whole


SETTINGS = ("num_train_epochs", "learning_rate", "weight_decay", "max_grad_norm", "amsgrad", "loss_reduction")
TRAINING = {
    name: dict(zip(SETTINGS, values, strict=True))
    for name, values in {
        "classifier": (8, 1e-3, 1e-5, 0.0, True, "sum"),  # the papers' (Jain & Wallace 2019)
        "pretrained": (3, 5e-5, 0.01, 1.0, False, "mean"),  # usual for fine-tuning (Devlin et al. 2019, appendix A.3)
        "translator": (10, 2e-3, 0.0, 1.0, False, "mean"),
    }.items()
}
"""Training settings where a recipe is silent."""
SCHEDULE = {"lr_scheduler_type": "linear", "warmup_steps": 0.1}
"""Of pretrained models and translators: the learning rate rises over a tenth of the updates, then falls to 0."""
SELECTION = {
    "bernoulli": {"sparsity": 3e-4, "coherence": 2.0, "baseline": "none", "decay": 0.9},
    "hardkuma": {"share": 0.2, "multiplier": 1e-4, "multiplier_rate": 0.01, "decay": 0.99, "multiplier_range": None},
    "budget": {},
}
"""The keys of `selection` that mean something for each kind of selector, and their values where a recipe is silent."""
ATTENTION = "projection sparsegen_lambda entmax_alpha"
PROJECTION = (*ATTENTION.split(), "separate_impermissible")
"""The keys of the model section about the attention of a pretrained model."""
MODEL_KEYS = {
    "gru": f"{ATTENTION} type encoder recurrence alignment embedding_size hidden_size alignment_size dropout embedding_std",
    "marian": "type hidden_size num_hidden_layers num_attention_heads intermediate_size dropout",
    "pretrained": f"{ATTENTION} pretrained revision separate_impermissible",
    "classifier": f"{ATTENTION} encoder alignment readout hierarchy embedding_size hidden_size alignment_size kernel_sizes "
    "num_hidden_layers num_attention_heads intermediate_size dropout embedding_std selector",
}
"""The keys of the model section that each kind of model has."""
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

    def __post_init__(self):
        usual = self._usual()
        for applies, home, names in self._rules():
            part, *keys = names.split()
            facts = SECTIONS[part].__pydantic_fields__
            for name in () if applies else keys or facts:
                value, default = getattr(getattr(self, part), name), facts[name].get_default(call_default_factory=True)
                if value not in (default, usual.get(part, {}).get(name)):
                    raise RecipeError(f"{part}.{name}={excerpt(value)} is only for {home}: leave it out")
        for wrong, message in self._contradictions():
            if wrong:
                raise RecipeError(message)
        for part, values in usual.items():  # written out, so that the recipe is complete
            section = getattr(self, part)
            values = {key: value for key, value in values.items() if getattr(section, key) is None}
            if part == "training" and self.kind != "classifier":
                values["arguments"] = SCHEDULE | section.arguments
            object.__setattr__(self, part, replace(section, **values))

    def _usual(self) -> dict[str, dict[str, object]]:
        """Section -> key -> its value where the recipe is silent."""
        pairs, selector, penalties = self.kind == "translator", self.model.selector, self.penalties
        producers = ["attention", "norm", "gradient_x_input"] if pairs else ["gradient", "gradient_norm", "leave_one_out"]
        if self.data.own and not pairs and selector is None:
            producers += ["integrated_gradients", "comprehensiveness"]  # what the verdict needs
        selection = {} if selector is None else dict(SELECTION[selector.kind])
        if "share" in selection and selector.budget is not None:
            selection["share"] = selector.budget
        return {
            "model": {"encoder": "bilstm"} if self.model.type != "gru" else {"encoder": "bigru", "recurrence": "bahdanau"},
            "training": TRAINING[self.kind],
            "penalties": {
                "impermissible_heads": "mean" if penalties.impermissible_mass else None,
                "word_tying_distance": "squared" if penalties.word_tying else None,
                "masked_share": 0.15 if penalties.masked_language_model else None,
            },
            "selection": selection,
            "measure": {
                "producers": [] if self.objective.kind == "guided" else producers,
                "batch_tokens": 2048 if pairs else 8192,
            },
        }

    def _rules(self) -> Iterator[tuple[bool, str, str]]:
        """(whether the keys may be set, what they are for, a section and its keys; without keys all of them)."""
        data, model, objective, selector = self.data, self.model, self.objective.kind, self.model.selector
        ours, pairs, labels = self.kind == "classifier", self.kind == "translator", objective == "classification"
        pooled, flat = ours and selector is None, model.hierarchy == "none"
        own = "text text_pair label impermissible_words preprocessing validation_share test_share split_seed"
        yield data.own and not pairs, "own data with classes (data.path or data.hub_id)", f"data {own}"
        yield data.path is not None and not pairs, "files (data.path)", "data encoding delimiter quotes"
        yield data.hub_id is not None, "data sets of the Hub (data.hub_id)", "data revision config"
        yield not data.own, "generated data", "data arguments"
        yield self.kind != "pretrained", "a vocabulary of the training texts", "data min_df"
        yield ours and not flat, "model.hierarchy=sentence", "data max_sentence_length"
        yield ours, "classifiers of this package", "data vectors"
        yield pairs, "sentence pairs (model.type)", "data vocabulary vocabulary_size links_from"
        yield not pairs, "classifiers", "data hub_id impermissible_removed"

        others = {key.name for key in fields(model)} - {*MODEL_KEYS[model.type or self.kind].split()}
        yield False, "another kind of model", f"model {' '.join(sorted(others))}"
        yield selector is None, "models without model.selector", f"model alignment alignment_size {ATTENTION}"

        yield self.objective.needs_base, "objective.kind guided or adversarial", "objective base"
        yield objective == "adversarial", "objective.kind=adversarial", "objective weight divergence frozen"
        yield labels and selector is None, "models trained for labels by their own attention", "penalties"
        yield pairs or flat, "models without model.hierarchy", "penalties"
        yield ours, "classifiers of this package", "penalties diversity word_tying masked_language_model"
        many = self.penalties.impermissible_mass > 0 and self.kind == "pretrained"
        yield many, "penalties.impermissible_mass of model.pretrained", "penalties impermissible_heads"
        yield self.penalties.word_tying > 0, "penalties.word_tying", "penalties word_tying_distance"
        yield self.penalties.masked_language_model > 0, "penalties.masked_language_model", "penalties masked_share"
        others = {key.name for key in fields(self.selection)} - {*(SELECTION[selector.kind] if selector else ())}
        yield False, "another model.selector.kind", " ".join(["selection", *sorted(others)])

        yield labels and pooled, "classifiers of this package trained for labels", "training random_erasure"
        yield ours, "classifiers of this package", "training amsgrad"
        yield not pairs, "classifiers", "training loss_reduction balance_classes"
        yield objective != "guided", "models that compute their attention", "measure producers"

    def _contradictions(self) -> Iterator[tuple[bool, str]]:
        """(whether it is true of the recipe, a message)."""
        data, model, objective, training = self.data, self.model, self.objective, self.training
        pairs, mass = self.kind == "translator", self.penalties.impermissible_mass
        shares = data.validation_share, data.test_share
        places = [f"data.{key}={excerpt(getattr(data, key))}" for key in ("name", "path", "hub_id") if getattr(data, key)]
        yield len(places) > 1, f"{' and '.join(places)}: set one of them, and the others to null"
        yield data.own and sum(shares) >= 1, f"data.validation_share and data.test_share={shares} leave none for training"

        goal, against = f"objective.kind={objective.kind!r}", objective.needs_base
        pooled = self.kind == "classifier" and model.selector is None
        yield (
            against and not objective.base,
            f"{goal} needs objective.base, the folder of the run that it is trained against",
        )
        misplaced = (pairs and objective.kind != "classification") or (against and not pooled)
        yield misplaced, f"{goal} is only for classifiers of this package whose attention pools states"
        unmoved = objective.kind == "adversarial" and model.projection == "uniform"
        yield unmoved, f"{goal} with model.projection='uniform': uniform attention cannot move"
        unmoved = pairs and mass > 0 and (model.type != "gru" or model.projection in ("none", "uniform"))
        yield unmoved, "penalties.impermissible_mass of sentence pairs needs model.type=gru, with attention that can change"

        metric, own = training.metric_for_best_model, {key.name for key in fields(training)}
        unknown = pairs and metric not in (None, "loss", "token_accuracy")
        yield unknown, f"training.metric_for_best_model={excerpt(metric)}: of sentence pairs choose loss or token_accuracy"
        for name in training.arguments:
            where = f"set training.{name}" if name in own else "a recipe names no files, code or machines here"
            yield name in own or name.startswith(REFUSED_ARGUMENTS), f"training.arguments.{cut(name, 60)}: {where}"


SECTIONS = {key.name: key.type for key in fields(Recipe) if is_dataclass(key.type)}
