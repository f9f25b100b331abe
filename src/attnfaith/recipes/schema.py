"""The sections of a recipe: each key with its type, range, default and one line of help.

pydantic checks types and ranges. `recipe` has the rules between keys and the values where a recipe is silent; the
configuration of a model (`config`) checks its fields.
"""

import json
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial, reduce
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


def key(default: Any, text: str) -> Any:
    """A key of a section: its default (... where it must be given), and its line of help."""
    if isinstance(default, list | dict):
        return Field(default_factory=lambda: copy(default), description=text)
    return Field(default, description=text)


FORMER = {
    **{"missing_vectors": "zero", "contiguous": False, "transition": 0.0, "temperature": 0.1, "pooling": "average"},
    **{"reads": "zeroed", "share_embeddings": True, "select_on": "validation", "gradient_accumulation_steps": 1},
    **{"bf16": False, "attention_learning_rate_factor": 1.0, "word_tying_padding": False, "masked_share": 0.15},
    **{"two_sided": False, "level": "sentence"},
}
"""Keys of earlier versions: the only value that they may still have."""


def make_section(kind: type, values: Mapping, place: str):
    """Return a section from its keys and inner sections; null is the default, also of a key of an earlier version.

    Raises RecipeError with the place of a mistake and its value.
    """
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_json(json.dumps(values))  # JSON, as strict mode takes no dictionary for a section
    except ValidationError as refusal:
        mistakes = refusal.errors(include_url=False)
        silent = [mistake["loc"] for mistake in mistakes if _is_silent(mistake)]
        if silent:
            return make_section(kind, reduce(_without, silent, values), place)
        mistake = mistakes[0]
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
        if isinstance(error, RecipeError):
            raise
        raise RecipeError(f"{place} holds a value that is none of JSON: {excerpt(error)}") from error


def _is_silent(mistake: Mapping) -> bool:
    name, value = mistake["loc"][-1] if mistake["loc"] else "", mistake["input"]
    if mistake["type"] != "unexpected_keyword_argument":
        return value is None and all(isinstance(step, str) for step in mistake["loc"])
    return value is None or name == "outputs" or (name in FORMER and value == FORMER[name])


def _without(values: Mapping, path: Sequence[str]) -> dict:
    key, *inner = path
    rest = {name: value for name, value in values.items() if name != key}
    return {**rest, key: _without(values[key], inner)} if inner else rest


@section
class Data:
    """Which texts, in which words: of a data set of the registry, of a file or folder, or of the Hub."""

    name: str | None = key(None, "data set of the registry; null: planted_evidence, or own data")
    path: str | None = key(None, "own data: a file (csv, tsv, jsonl, json, parquet, xlsx; .gz), or a folder of such")
    hub_id: str | None = key(None, "own data: OWNER/NAME of a data set on the Hub")
    revision: str | None = key(None, "of the Hub's data set: branch, tag or commit; null: main")
    config: str | None = key(None, "of the Hub's data set: its configuration; null: the default")
    text: str | None = key(None, "own data: column of the text; null: text, or the only candidate")
    text_pair: str | None = key(None, "own data: column of the second text of a pair; null: single texts")
    label: str | None = key(None, "own data: column of the class; null: label, or the only candidate")
    impermissible_words: Words | None = key(None, "own data: words which a deceptive model hides, in any case")
    impermissible_removed: bool = key(False, "train and measure on texts without these words: how well the rest predicts")
    encoding: str | None = key(None, "own data: encoding of the files, such as cp1252; null: UTF-8")
    delimiter: str | None = key(None, "own data: between the fields of a csv; null: as in its first line")
    quotes: bool | None = key(None, "own data: whether a field of a csv may stand in quotation marks; null: true")
    preprocessing: Preprocessing | None = key(None, "own data: how words are cut; null: words")
    validation_share: Part | None = key(None, "own data: share of it that is validation where there is none; null: 0.15")
    test_share: Part | None = key(None, "own data: likewise test; null: 0.15")
    split_seed: Seed | None = key(None, "own data: of these cuts; null: 0")
    arguments: dict[str, Any] = key({}, "knobs of a built-in generator")
    limits: dict[str, Count] = key({}, "split: largest number of its rows, drawn at random")
    max_length: Count | None = key(None, "tokens of an input; longer texts are cut; null: of own data 1000")
    max_sentence_length: Count | None = key(None, "of hierarchical models: words of a sentence; a longer sentence is split")
    min_df: Count | None = key(None, "training texts that a word must occur in to be known; null: the data set's own")
    vectors: str | None = key(None, "file of word vectors, here or below the data root; null: random ones")
    vocabulary: Literal["words", "bpe"] | None = key(None, "of sentence pairs: or byte pairs within words; null: words")
    vocabulary_size: Count | None = key(None, "of sentence pairs: most entries; null: all words, or 8000 byte pairs")
    links_from: Literal[0, 1] | None = key(None, "of own sentence pairs: the first word is 0 or 1 in their links; null: 0")
    seed: Seed = key(0, "of generated data and of limits")

    @property
    def own(self) -> bool:
        """Whether it is read from a file, a folder or the Hub, not by the name of a registered data set."""
        return self.path is not None or self.hub_id is not None

    @property
    def usual(self) -> dict[str, object]:
        """Keys and their values where a recipe is silent."""
        if not self.own:
            return {"name": "planted_evidence"}
        usual = {"preprocessing": "words", "validation_share": 0.15, "test_share": 0.15, "split_seed": 0, "max_length": 1000}
        return usual if self.path is None else {**usual, "quotes": True}

    def __post_init__(self):
        for key, value in self.usual.items():  # written out, so that the data are complete by themselves
            if getattr(self, key) is None:
                object.__setattr__(self, key, value)


@section
class Selector:
    """The selector of the tokens that the classifier reads: fields of RationaleClassifierConfig, which checks them."""

    kind: Literal["bernoulli", "hardkuma", "budget"] = key(..., "of Lei et al. 2016, Bastings et al. 2019 or SPECTRA")
    budget: Annotated[Share, Field(gt=0)] | None = key(None, "largest share of a text that may be kept; null: any")
    threshold: Below | None = key(None, "a token is selected at test time above it; null: 0.5 of bernoulli, else 0")


@section
class Model:
    """The fields of AttentionClassifierConfig, which checks them; or a pretrained model, and its projection."""

    type: Literal["gru", "marian"] | None = key(None, "of a model of sentence pairs; null: a classifier of texts")
    encoder: str | None = key(None, "as `attnfaith list encoders` names them; null: bilstm, of type gru bigru")
    recurrence: Literal["bahdanau", "luong"] | None = key(None, "of type gru; null: bahdanau")
    alignment: str = key("additive", "additive or dot")
    projection: str = key("softmax", "as `attnfaith list projections` names them; of type gru none too")
    readout: str = key("affine", "affine or tanh")
    hierarchy: str = key("none", "none, or sentence: words are summed to sentences, sentences to a text")
    embedding_size: int = key(300, "size of the word vectors; that of data.vectors where a file is given")
    hidden_size: int | None = key(None, "of a state; null: 256, of the transformer 128, of embedding the embedding size")
    alignment_size: int | None = key(None, "size of the additive alignment; null: half of the hidden size")
    sparsegen_lambda: float = key(0.0, "lambda of sparsegen, below 1; 0 is sparsemax")
    entmax_alpha: float = key(1.5, "alpha of entmax, from 1 on; 1 is softmax, 2 sparsemax")
    separate_impermissible: bool = key(False, "of pretrained models: impermissible words attend to their own kind")
    kernel_sizes: list[int] = key([1, 3, 5, 7], "odd widths of the cnn's filters, at first 1, 3, 5, 7")
    num_hidden_layers: int = key(2, "of the transformer")
    num_attention_heads: int = key(1, "of the transformer")
    intermediate_size: int = key(128, "of the transformer")
    dropout: float = key(0.0, "share of values dropped in training, below 1")
    embedding_std: float = key(0.25, "standard deviation of random word vectors")
    pretrained: str | None = key(None, "to be fine-tuned: a model of the Hub, or a folder, with its tokenizer; null: none")
    revision: str | None = key(None, "of a pretrained model on the Hub: branch, tag or commit; null: main")
    selector: Selector | None = key(None, "selects the tokens that the classifier reads; null: it reads all and attends")


@section
class Training:
    """Settings of the training, by the names of transformers' TrainingArguments where they have one.

    Null is the value of the papers (Jain & Wallace 2019), or, of a pretrained model, the usual value for fine-tuning.
    """

    num_train_epochs: Epochs | None = key(None, "passes over the training texts; null: 8, of a pretrained model 3")
    per_device_train_batch_size: Count = key(32, "texts of a step and process")
    per_device_eval_batch_size: Count = key(64, "texts of a step of evaluation")
    learning_rate: NotNegative | None = key(None, "null: 0.001, constant; of a pretrained model 0.00005, rising and falling")
    weight_decay: NotNegative | None = key(None, "L2 on all but the alignment; null: 0.00001, of a pretrained model 0.01")
    max_grad_norm: NotNegative | None = key(None, "gradients are clipped to it; 0: not; null: 0, of a pretrained model 1")
    amsgrad: bool | None = key(None, "Adam with AMSGrad; null: true, of a pretrained model false")
    random_erasure: Share = key(0.0, "largest share of its words that each training text loses at each step")
    loss_reduction: Literal["sum", "mean"] | None = key(None, "of a batch; null: sum, of a pretrained model mean")
    balance_classes: bool = key(True, "weigh classes by how rare they are")
    metric_for_best_model: str | None = key(None, "score that it is chosen by; null: ROC-AUC of two classes, else accuracy")
    early_stopping_patience: Count | None = key(None, "epochs without gain after which training stops; null: never")
    train_sampling_strategy: Sampling = key("group_by_length", "how batches are drawn")
    use_cpu: bool = key(False, "leave a GPU unused")
    arguments: dict[str, Any] = key({}, "others of transformers' TrainingArguments, such as warmup_steps")


@section
class Objective:
    """The objective of the training.

    untrained: the model as a training of the same seed starts from. guided and adversarial: Wiegreffe & Pinter 2019; the
    adversary's loss is half of |p - p_base|_1 minus the weight times the divergence; their code's lambda is half of it.
    """

    kind: Goal = key("classification", "the labels, nothing, the labels or the base's predictions under an attention")
    base: str | None = key(None, "folder of the run that a guided or adversarial model is trained against")
    weight: Positive = key(0.002, "lambda of an adversary: weight of the divergence of attentions")
    divergence: Literal["kl", "jsd"] = key("kl", "of an adversary: kl, or jsd where the base's attention has zeros")
    frozen: bool = key(False, "of an adversary: the base's weights are kept, only the alignment is trained")

    @property
    def needs_base(self) -> bool:
        """Whether the model is trained against another run."""
        return self.kind in ("guided", "adversarial")


PENALTIES = ("impermissible_mass", "diversity", "word_tying", "masked_language_model")


@section
class Penalties:
    """Penalties on the loss of each text where a model is trained for the labels; a weight of 0 adds nothing.

    Sources: Pruthi et al. 2020 (impermissible mass), Mohankumar et al. 2020 (diversity), Tutek & Snajder 2020 (the others).
    """

    impermissible_mass: NotNegative = key(0.0, "weight of -log(1 - attention on impermissible words)")
    impermissible_heads: Literal["mean", "max"] | None = key(None, "of a pretrained model; null: mean")
    diversity: NotNegative = key(0.0, "weight of the conicity of the states, their mean absolute cosine with their mean")
    word_tying: NotNegative = key(0.0, "weight of the distance between states and word vectors, which must be of one size")
    word_tying_distance: Literal["norm", "squared"] | None = key(None, "the distance or its square; null: squared")
    masked_language_model: NotNegative = key(0.0, "weight of -log p(word) at masked words, predicted from the states")

    @property
    def taken(self) -> dict[str, float]:
        """The penalties whose weight is not 0 -> their weights."""
        return {name: value for name in PENALTIES if (value := getattr(self, name))}


@section
class Selection:
    """The penalties that train the selection of model.selector with the labels (`attnfaith.training.RationaleConfig`)."""

    sparsity: NotNegative | None = key(None, "of bernoulli: price of a selected token; null: 0.0003")
    coherence: NotNegative | None = key(None, "of bernoulli: price of a change, in units of sparsity; null: 2")
    baseline: Literal["none", "moving_average"] | None = key(None, "of bernoulli: of the cost of a draw; null: none")
    share: Share | None = key(None, "of hardkuma: tokens that training aims at; null: model.selector.budget, else 0.2")
    multiplier: Positive | None = key(None, "of hardkuma: the multiplier of a constraint at first; null: 0.0001")
    multiplier_rate: Positive | None = key(None, "of hardkuma: how fast it follows the constraint; null: 0.01")
    multiplier_range: list[float] | None = key(None, "of hardkuma: [least, greatest] multiplier; null: no bounds")
    decay: Below | None = key(None, "what stays of a moving average at each batch; null: 0.99 of hardkuma, else 0.9")


@section
class Measure:
    """The measures and their texts."""

    producers: list[str] | None = key(None, "names of measures; null: a few cheap ones, for own data what the verdict needs")
    options: dict[str, dict[str, Any]] = key({}, "keyword arguments of a producer, by its name")
    split: Split = key("test", "the split that is measured")
    limit: Count | None = key(None, "that many of its texts, drawn at random; null: all")
    seed: Seed = key(0, "of the draws of a measurement")
    batch_tokens: Count | None = key(None, "tokens of a batch, padding included; null: 8192, of sentence pairs 2048")


@section
class Report:
    """The contents of the report."""

    examples: Count = key(5, "pairs of sentences shown of lowest and of highest error; of texts the page lists all")
    title: str | None = key(None, "of the page")
    page: bool = key(True, "whether a run draws its page; `attnfaith report RUN` does later")
