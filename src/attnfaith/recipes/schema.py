"""The sections of a recipe: each key with its type, range, default and one line of help.

pydantic checks types and ranges. `recipe` has the rules between keys and the values where a recipe is silent; the
configuration of a model (`config`) checks its fields.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from attnfaith.support.errors import AttnfaithError, closest, cut, excerpt


class RecipeError(AttnfaithError):
    """A recipe that cannot be used. The message names the key, its value, and the allowed values."""


# A section of a recipe. strict: a text is no number, and 1 is not true. The text below a key is its line of help.
section = partial(
    dataclass,
    frozen=True,
    config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True),
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


def make_section(kind: type, values: Mapping, place: str):
    """Return a section from its keys and inner sections. Raises RecipeError with the place of a mistake and the value."""
    try:
        return TypeAdapter(kind).validate_json(json.dumps(values))  # JSON, as strict mode takes no dictionary for a section
    except ValidationError as refusal:
        mistake = refusal.errors(include_url=False)[0]
        path = place + "".join(f"[{step}]" if isinstance(step, int) else f".{cut(str(step), 60)}" for step in mistake["loc"])
        if mistake["type"] == "unexpected_keyword_argument":
            if mistake["input"] is None:  # of another version, which writes out every key
                return make_section(kind, _without(values, *mistake["loc"]), place)
            *steps, name = mistake["loc"]
            for step in steps:
                kind = sections_of(kind).get(step, kind)
            near = closest(str(name), kind.__pydantic_fields__)
            hint = f"did you mean {near}?" if near else f"there are {cut(', '.join(kind.__pydantic_fields__), 400)}"
            raise RecipeError(f"unknown key {path}; {hint}") from refusal
        if mistake["type"] == "missing":
            raise RecipeError(f"{path} is missing") from refusal
        if "error" in mistake.get("ctx", {}):  # a rule between keys, with its own message
            raise mistake["ctx"]["error"] from refusal
        raise RecipeError(f"{path}={excerpt(mistake['input'])}: {mistake['msg']}") from refusal
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, RecipeError):
            raise
        raise RecipeError(f"{place} holds a value that is none of JSON: {excerpt(error)}") from error


def _without(values: Mapping, key: str, *inner: str) -> dict:
    if inner:
        return {**values, key: _without(values[key], *inner)}
    return {name: value for name, value in values.items() if name != key}


def sections_of(kind: type) -> dict[str, type]:
    """Return the keys of a section that are sections themselves, optional ones too."""
    hints = {name: (key.annotation, *get_args(key.annotation)) for name, key in kind.__pydantic_fields__.items()}
    return {name: part for name, parts in hints.items() for part in parts if dataclasses.is_dataclass(part)}


@section
class Data:
    """Which texts, in which words: of a data set of the registry, of a file or folder, or of the Hub."""

    name: str | None = None
    """data set of the registry; null: planted_evidence, or own data"""
    path: str | None = None
    """own data: a file (csv, tsv, jsonl, json, parquet, xlsx; .gz), or a folder with train, validation and test"""
    hub_id: str | None = None
    """own data: OWNER/NAME of a data set on the Hub"""
    revision: str | None = None
    """of the Hub's data set: branch, tag or commit; null: main"""
    config: str | None = None
    """of the Hub's data set: its configuration; null: the default"""
    text: str | None = None
    """own data: column of the text; null: text, or the only candidate"""
    text_pair: str | None = None
    """own data: column of the second text of a pair; null: single texts"""
    label: str | None = None
    """own data: column of the class; null: label, or the only candidate"""
    impermissible_words: Annotated[list[Annotated[str, Field(pattern=r"^\S+$")]], Field(min_length=1)] | None = None
    """own data: words which a deceptive model hides, case and marks at their ends aside"""
    impermissible_removed: bool = False
    """train and measure on the texts without these words: how well the rest predicts the labels"""
    encoding: str | None = None
    """own data: encoding of the files, such as cp1252; null: UTF-8"""
    delimiter: str | None = None
    """own data: between the fields of a csv; null: as in its first line"""
    quotes: bool | None = None
    """own data: whether a field of a csv may stand in quotation marks; null: true; false: they are characters like others"""
    preprocessing: Literal["words", "default", "characters", "whitespace", "imdb", "sst"] | None = None
    """own data: how words are cut, characters for scripts without blanks; null: words"""
    validation_share: Part | None = None
    """own data: share of the texts of each class that is validation where there is none; null: 0.15"""
    test_share: Part | None = None
    """own data: likewise test; null: 0.15"""
    split_seed: Seed | None = None
    """own data: of these cuts; null: 0"""
    arguments: dict[str, Any] = field(default_factory=dict)
    """knobs of a built-in generator"""
    limits: dict[str, Count] = field(default_factory=dict)
    """split: largest number of its rows, drawn at random"""
    max_length: Count | None = None
    """tokens of an input, markers included; longer texts are cut and counted; null: no limit, of own data 1000"""
    max_sentence_length: Count | None = None
    """of hierarchical models: words of a sentence; a longer sentence is split"""
    min_df: Count | None = None
    """training texts that a word must occur in to be known; null: the data set's own"""
    vectors: str | None = None
    """file of word vectors (text, .vec, .gz, parquet), here or under the data root; null: random ones"""
    missing_vectors: Literal["zero"] = "zero"
    """words that the file lacks have a vector of zeros"""
    vocabulary: Literal["words", "bpe"] | None = None
    """of sentence pairs: words, or byte pairs within words, learned from the training pairs; null: words"""
    vocabulary_size: Count | None = None
    """of sentence pairs: most entries of that vocabulary; null: all words, or 8000 byte pairs"""
    links_from: Annotated[int, Field(ge=0, le=1)] | None = None
    """of sentence pairs of your own: whether their links count words from 0 or 1; null: 0"""
    seed: Seed = 0
    """of generated data and of limits"""

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

    kind: Literal["bernoulli", "hardkuma", "budget"]
    """draws of 0 or 1 (Lei et al. 2016), of fractions too (Bastings et al. 2019), or a budget (SPECTRA, 2021)"""
    encoder: str | None = None
    """of the states that tokens are selected by; null: of the kind of model.encoder, with weights of its own"""
    budget: Annotated[float, Field(gt=0, le=1)] | None = None
    """largest share of its tokens that a text may keep; of bernoulli and hardkuma at test time only; null: no bound"""
    contiguous: Literal[False] = False
    """selected tokens need not be one window"""
    transition: Annotated[float, Field(ge=0, le=0)] = 0.0
    """two selected neighbours have no bonus"""
    temperature: Positive | None = None
    """of a budget: the divisor of scores; null: 0.1"""
    test_temperature: None = None
    """it is the same at test time"""
    threshold: Below | None = None
    """lower bound of a selected token's value at test time; null: 0.5 of bernoulli, else 0"""
    pooling: Literal["average", "max", "attention"] = "average"
    """how the classifier pools the states of selected tokens; attention: by model.alignment and model.projection"""
    reads: Literal["zeroed"] = "zeroed"
    """tokens that are not selected keep their places as zeros"""
    share_embeddings: Literal[True] = True
    """selector and classifier have the same word vectors"""

    def __post_init__(self):
        if self.kind == "budget" and self.temperature is None:
            object.__setattr__(self, "temperature", 0.1)


@section
class Model:
    """The fields of AttentionClassifierConfig, which checks them; or a pretrained model, and its projection."""

    type: Literal["gru", "marian"] | None = None
    """gru or marian: from sequences to sequences, trained on sentence pairs; null: a classifier of texts"""
    encoder: str | None = None
    """bilstm, bigru, lstm, orthogonal_lstm, transformer, cnn, average or embedding; null: bilstm, of type gru bigru"""
    recurrence: Literal["bahdanau", "luong"] | None = None
    """of type gru: whether the decoder attends before its step or after it; null: bahdanau"""
    alignment: str = "additive"
    """additive or dot"""
    projection: str = "softmax"
    """softmax, sparsemax, sparsegen, entmax15, entmax or uniform (of pretrained models not uniform); of type gru none too"""
    query: str | None = None
    """learned or text; null: text for pairs, else learned"""
    readout: str = "affine"
    """affine or tanh"""
    hierarchy: str = "none"
    """none, or sentence: words are summed to sentences, sentences to a text"""
    embedding_size: int = 300
    """size of the word vectors; that of data.vectors where a file is given"""
    hidden_size: int | None = None
    """size of a state; null: 256, of the transformer 128, of embedding the embedding size"""
    alignment_size: int | None = None
    """size of the additive alignment; null: half of the hidden size"""
    sparsegen_lambda: float = 0.0
    """lambda of sparsegen, below 1; 0 is sparsemax"""
    entmax_alpha: float = 1.5
    """alpha of entmax, from 1 on; 1 is softmax, 2 sparsemax"""
    separate_impermissible: bool = False
    """of pretrained models: impermissible words and others attend to their own kind alone, except for the answer"""
    score_scale: None = None
    """the scores of a text are as they are"""
    kernel_sizes: list[int] = field(default_factory=lambda: [1, 3, 5, 7])
    """odd widths of the cnn's filters"""
    num_hidden_layers: int = 2
    """of the transformer"""
    num_attention_heads: int = 1
    """of the transformer"""
    intermediate_size: int = 128
    """of the transformer"""
    dropout: float = 0.0
    """share of values dropped in training, below 1"""
    embedding_std: float = 0.25
    """standard deviation of random word vectors"""
    pretrained: str | None = None
    """to be fine-tuned: a model of the Hub by its name, or its folder, with its tokenizer; null: a model of this package"""
    revision: str | None = None
    """of a pretrained model on the Hub: branch, tag or commit; null: main"""
    selector: Selector | None = None
    """selects the tokens that the classifier reads, by its own keys; null: it reads all and attends"""


@section
class Training:
    """Settings of the training, by the names of transformers' TrainingArguments where they have one.

    Null is the value of the papers (Jain & Wallace 2019), or, of a pretrained model, the usual value for fine-tuning.
    """

    num_train_epochs: Annotated[float, Field(gt=0, le=LARGEST)] | None = None
    """passes over the training texts; null: 8, of a pretrained model 3"""
    per_device_train_batch_size: Count = 32
    """texts of a step and process"""
    per_device_eval_batch_size: Count = 64
    """texts of a step of evaluation"""
    gradient_accumulation_steps: Count = 1
    """batches of an update"""
    learning_rate: NotNegative | None = None
    """of Adam, constant unless arguments says otherwise; null: 0.001, of a pretrained model 0.00005, rising and falling"""
    weight_decay: NotNegative | None = None
    """L2 on all but the alignment, of a pretrained model AdamW's on all but biases and norms; null: 0.00001, and 0.01"""
    max_grad_norm: NotNegative | None = None
    """gradients are clipped to it; 0: not; null: 0, of a pretrained model 1"""
    amsgrad: bool | None = None
    """Adam with AMSGrad; null: true, of a pretrained model false"""
    attention_learning_rate_factor: NotNegative = 1.0
    """learning rate of the alignment over that of the rest"""
    random_erasure: Share = 0.0
    """largest share of its words that each training text loses at each step, as in tests that delete words; 0: none"""
    loss_reduction: Literal["sum", "mean"] | None = None
    """of the losses of a batch, sum or mean; null: sum, of a pretrained model mean"""
    balance_classes: bool = True
    """weigh classes by how rare they are"""
    select_on: Literal["validation"] = "validation"
    """the split that the checkpoint is chosen on; a model chosen on test would have meaningless figures"""
    metric_for_best_model: str | None = None
    """score that it is chosen by; null: ROC-AUC of two classes, else accuracy"""
    early_stopping_patience: Count | None = None
    """epochs without gain after which training stops; null: never"""
    train_sampling_strategy: Literal["group_by_length", "random", "sequential"] = "group_by_length"
    """how batches are drawn"""
    bf16: bool = False
    """train in bfloat16"""
    use_cpu: bool = False
    """leave a GPU unused"""
    arguments: dict[str, Any] = field(default_factory=dict)
    """others of transformers' TrainingArguments, such as warmup_steps; none of files, code, the Hub or machines"""


@section
class Objective:
    """The objective of the training.

    untrained: the model as a training of the same seed starts from. guided and adversarial: Wiegreffe & Pinter 2019; the
    adversary's loss is half of |p - p_base|_1 minus the weight times the divergence; their code's lambda is half of it.
    """

    kind: Literal["classification", "untrained", "guided", "adversarial"] = "classification"
    """the labels, nothing, the labels under the base's attention, or the base's predictions under another attention"""
    base: str | None = None
    """folder of the run that a guided or adversarial model is trained against"""
    weight: Positive = 0.002
    """lambda of an adversary: weight of the divergence of attentions"""
    divergence: Literal["kl", "jsd"] = "kl"
    """of an adversary: kl, or jsd where the base's attention has zeros"""
    frozen: bool = False
    """of an adversary: the base's weights are kept, only the alignment is trained"""

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

    impermissible_mass: NotNegative = 0.0
    """weight of -log(1 - attention on impermissible words); the data must mark them"""
    impermissible_heads: Literal["mean", "max"] | None = None
    """of a pretrained model's heads: the mean, or the head with most of it; null: mean"""
    diversity: NotNegative = 0.0
    """weight of the conicity of the states, the mean of their absolute cosines with their mean"""
    word_tying: NotNegative = 0.0
    """weight of the distance between states and word vectors, which must be of one size"""
    word_tying_distance: Literal["norm", "squared"] | None = None
    """the distance or its square; null: squared"""
    word_tying_padding: Literal[False] | None = None
    """its mean is over words alone"""
    masked_language_model: NotNegative = 0.0
    """weight of -log p(word) at masked words, predicted from the states"""
    masked_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """share of the words that are masked; null: 0.15"""

    @property
    def taken(self) -> dict[str, float]:
        """The penalties whose weight is not 0 -> their weights."""
        return {name: value for name in PENALTIES if (value := getattr(self, name))}


@section
class Selection:
    """The penalties that train the selection of model.selector with the labels (`attnfaith.training.RationaleConfig`)."""

    sparsity: NotNegative | None = None
    """of bernoulli: price of a selected token; null: 0.0003"""
    coherence: NotNegative | None = None
    """of bernoulli: price of a change from one token to the next, in units of sparsity; null: 2"""
    baseline: Literal["none", "moving_average"] | None = None
    """of bernoulli: the baseline of the cost of a draw; null: none"""
    share: Share | None = None
    """of hardkuma: the share of tokens that training aims at; null: model.selector.budget, else 0.2"""
    lasso: None = None
    """the number of changes from token to token is left free"""
    multiplier: Positive | None = None
    """of hardkuma: the multiplier of a constraint at first; null: 0.0001"""
    multiplier_rate: Positive | None = None
    """of hardkuma: how fast it follows the constraint; null: 0.01"""
    multiplier_range: list[float] | None = None
    """of hardkuma: least and greatest multiplier, [least, greatest]; null: no bounds"""
    two_sided: Literal[False] | None = None
    """the multiplier of hardkuma is never negative, as in the authors' code"""
    decay: Below | None = None
    """how much of a moving average stays at each batch; null: 0.99 of hardkuma, 0.9 of bernoulli's baseline"""


@section
class Measure:
    """The measures and their texts."""

    producers: list[str] | None = None
    """measures of importance and experiments; null: gradient, gradient_norm, leave_one_out, and for your own data
    what the verdict needs; for pairs attention, norm, …"""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """keyword arguments of a producer, by its name"""
    level: Literal["sentence"] = "sentence"
    """what a record of a hierarchical model is over"""
    outputs: list[Split] = field(default_factory=list)
    """of earlier versions, and read no more: what a model trained against this one needs is computed for it"""
    split: Split = "test"
    """the split that is measured"""
    limit: Count | None = None
    """that many of its texts, drawn at random; null: all"""
    seed: Seed = 0
    """of the draws of a measurement"""
    batch_tokens: Count | None = None
    """tokens of a batch, padding included; null: 8192, of sentence pairs 2048"""


@section
class Report:
    """The contents of the report."""

    examples: Count = 5
    """pairs of sentences shown of lowest and of highest error; of texts the page lists all"""
    title: str | None = None
    """of the page"""
    page: bool = True
    """whether a run draws its page (`attnfaith report RUN` does later); the cells of a study do not unless it sets this"""
