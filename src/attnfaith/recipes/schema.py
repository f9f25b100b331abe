"""What a recipe may say: its sections, each key with its type, range, default and one line of help.

pydantic checks types and ranges; rules between keys stand in `__post_init__`. The rules of a model's fields are those of
`AttentionClassifierConfig`, which `model_config` asks: here is only what kind of value they are.
"""

from dataclasses import field, fields, is_dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from attnfaith.data.tokenization import PREPROCESSING
from attnfaith.errors import excerpt
from attnfaith.recipes import selector as selectors
from attnfaith.recipes.arguments import check_arguments
from attnfaith.recipes.pretrained import check_pretrained, completed
from attnfaith.recipes.sections import (
    LARGEST,
    Count,
    NotNegative,
    Positive,
    RecipeError,
    Seed,
    Share,
    section,
)
from attnfaith.recipes.selector import Selection
from attnfaith.recipes.sequences import check_sequences, completed_measure


Part = Annotated[float, Field(gt=0, lt=1)]
PLACES = ("name", "path", "hub_id")  # of the texts, one of them
OWN = ("text", "text_pair", "label", "impermissible", "impermissible_words")
OWN += ("preprocessing", "validation_share", "test_share", "split_seed")
IN_FILES = ("encoding", "delimiter", "quotes")
ON_THE_HUB = ("revision", "config")
_OF = dict.fromkeys(OWN, "it is for own data; leave it out, or give data.path or data.hub_id")
_OF |= dict.fromkeys(IN_FILES, "it is for files; leave it out, or give data.path")
_OF |= dict.fromkeys(ON_THE_HUB, "it is for data sets of the Hub; leave it out, or give data.hub_id")
OWN_DEFAULTS = {"preprocessing": "words", "validation_share": 0.15, "test_share": 0.15, "split_seed": 0}
OWN_DEFAULTS |= {"max_length": 1000}  # tokens: one text of many thousands would need the memory of all others together


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
    """own data: column of the text; null: text, or the only one that it can be"""
    text_pair: str | None = None
    """own data: column of the second text of a pair; null: single texts"""
    label: str | None = None
    """own data: column of the class; null: label, or the only one that it can be"""
    impermissible: str | None = None
    """own data: column that marks words which a deceptive model hides, one 0 or 1 for each word between blanks"""
    impermissible_words: list[str] | None = None
    """own data: these words, case and marks at their ends aside, in place of such a column"""
    impermissible_removed: bool = False
    """train and measure on the texts without these words: what of the labels can be told without them"""
    encoding: str | None = None
    """own data: encoding of the files, such as cp1252; null: UTF-8"""
    delimiter: str | None = None
    """own data: between the fields of a csv; null: what parts its first line"""
    quotes: bool | None = None
    """own data: whether a field of a csv may stand in quotation marks; null: true; false: they are characters like others"""
    preprocessing: str | None = None
    """own data: words, default, characters (of scripts without blanks), whitespace, imdb or sst; null: words"""
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
    """of hierarchical models: words of a sentence; a longer one goes on as another"""
    max_sentences: Count | None = None
    """of hierarchical models: sentences of a text; longer texts are cut and counted"""
    min_df: Count | None = None
    """training texts that a word must occur in to be known; null: the data set's own"""
    tokenizer: str | None = None
    """Hugging Face tokenizer, by its name on the Hub or its folder, in place of the words of the training texts"""
    tokenizer_revision: str | None = None
    """of a tokenizer on the Hub: branch, tag or commit; null: main"""
    vectors: str | None = None
    """file of word vectors (text, .vec, .gz, parquet), here or under the data root; null: random ones"""
    missing_vectors: Literal["zero", "random"] = "zero"
    """vectors of words that the file lacks"""
    vocabulary: Literal["words", "bpe"] | None = None
    """of sentence pairs: words, or byte pairs within words, learned from the training pairs; null: words"""
    vocabulary_size: Count | None = None
    """of sentence pairs: most entries of that vocabulary; null: all words, or 8000 byte pairs"""
    links_from: Annotated[int, Field(ge=0, le=1)] | None = None
    """of sentence pairs of your own: whether their links count words from 0 or 1; null: 0"""
    seed: Seed = 0
    """of generated data and of limits"""

    def __post_init__(self):
        given = [f"data.{key}={excerpt(getattr(self, key))}" for key in PLACES if getattr(self, key) is not None]
        if len(given) > 1:
            raise RecipeError(
                f"{' and '.join(given)}: name a data set of the registry, or a path, or a data set of the Hub, and set the "
                "others to null"
            )
        defaults = {"name": "planted_evidence"}
        if own := self.path is not None or self.hub_id is not None:
            defaults = {**OWN_DEFAULTS, **({"quotes": True} if self.path is not None else {})}
        for key, value in defaults.items():  # written out, so that the recipe is complete
            if getattr(self, key) is None:
                object.__setattr__(self, key, value)
        owned = ON_THE_HUB if self.path is not None else IN_FILES if own else (*OWN, *ON_THE_HUB, *IN_FILES)
        for key in owned:
            if getattr(self, key) != getattr(Data, key):
                raise RecipeError(
                    f"data.{key}={excerpt(getattr(self, key))} with {given[0] if given else 'no own data'}: {_OF[key]}"
                )
        if self.impermissible is not None and self.impermissible_words is not None:
            raise RecipeError(
                f"data.impermissible={excerpt(self.impermissible)} and data.impermissible_words="
                f"{excerpt(self.impermissible_words)}: both say which words are impermissible; leave one out"
            )
        if blank := [word for word in self.impermissible_words or () if len(word.split()) != 1]:
            raise RecipeError(f"data.impermissible_words: {excerpt(blank[0])} is not one word; give words, without blanks")
        if self.impermissible_words == []:
            raise RecipeError("data.impermissible_words=[] names no word; give some, or leave it out")
        if own and self.impermissible_removed and self.impermissible is None and self.impermissible_words is None:
            raise RecipeError(
                "data.impermissible_removed=true with own data that do not say which words are impermissible: give "
                "data.impermissible or data.impermissible_words"
            )
        if own and self.preprocessing not in PREPROCESSING:
            raise RecipeError(
                f"data.preprocessing={excerpt(self.preprocessing)} does not exist; choose one of {', '.join(PREPROCESSING)}"
            )
        if self.arguments and own:
            raise RecipeError(f"data.arguments={excerpt(self.arguments)} are of generated data, and {given[0]} is read")
        if own and self.validation_share + self.test_share >= 1:
            raise RecipeError(
                f"data.validation_share={self.validation_share:g} and data.test_share={self.test_share:g} leave nothing for "
                "training: their sum must be below 1"
            )


@section
class Model:
    """The fields of AttentionClassifierConfig, which says what each may be; or a pretrained model, and its projection."""

    type: Literal["gru", "marian"] | None = None
    """gru or marian: from sequences to sequences, trained on sentence pairs; null: a classifier of texts"""
    encoder: str | None = None
    """bilstm, bigru, lstm, orthogonal_lstm, transformer, cnn, average or embedding; null: bilstm, of type gru bigru"""
    recurrence: Literal["bahdanau", "luong"] | None = None
    """of type gru: whether the decoder attends before its step or after it; null: bahdanau"""
    alignment: str = "additive"
    """additive or dot; of type gru general too"""
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
    """of pretrained models: impermissible words and others attend to their own kind alone, but for the row that answers"""
    score_scale: float | None = None
    """standard deviation that the scores of a text are held at; null: as they are"""
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
    selector: dict[str, Any] | None = None
    """selects the tokens that the classifier reads, by the keys listed below; null: it reads all and attends"""

    def __post_init__(self):
        if self.encoder is None:  # written out, as what follows, so that the recipe is complete
            object.__setattr__(self, "encoder", "bigru" if self.type == "gru" else "bilstm")
        if self.type == "gru" and self.recurrence is None:
            object.__setattr__(self, "recurrence", "bahdanau")
        if self.selector is not None:
            object.__setattr__(self, "selector", selectors.checked(self.selector))


@section
class Training:
    """Settings of the training, by the names of transformers' TrainingArguments where they have one.

    Those that are null become the papers' (Jain & Wallace 2019), or, of a pretrained model, what is usual for fine-tuning.
    select_on is validation: a checkpoint chosen on test would make every test figure a selected one. random_erasure: the
    tests of explanations which delete words then show the model nothing new.
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
    """largest share of its words that each training text loses at each step; 0: none"""
    loss_reduction: Literal["sum", "mean"] | None = None
    """of the losses of a batch, sum or mean; null: sum, of a pretrained model mean"""
    balance_classes: bool = True
    """weigh classes by how rare they are"""
    select_on: str = "validation"
    """the split that the checkpoint is chosen on: validation"""
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
    """others of transformers' TrainingArguments, those listed below"""

    def __post_init__(self):
        """A recipe says what a run is, wherever it goes: it is kept, compared and published."""
        if self.select_on != "validation":
            raise RecipeError(
                f"training.select_on={excerpt(self.select_on)}: checkpoints are selected on 'validation' only; a model "
                "chosen on the split that is reported makes its figures meaningless"
            )
        check_arguments(self.arguments, [key.name for key in fields(self)])


@section
class Objective:
    """What the model is trained for.

    kind: "classification", the labels; "untrained", nothing: the model as it was drawn, with the weights that a training of
    the same data, model and seed starts from, and `training` is not read; "guided", the labels, under the attention of the
    base in place of its own; "adversarial", the base's predictions under an attention far from the base's (Wiegreffe &
    Pinter 2019). The base keeps its outputs (`measure.outputs`) of train and validation, and for a guided model of the
    measured split. weight: half the distance |p - p_base|_1 minus the weight times the divergence of attentions; the lambda
    of Wiegreffe & Pinter's code is half of this one. frozen: only the alignment is trained, from fresh weights: from the
    base's own no divergence has a gradient (Meister et al. 2021 say "adopting" the parameters).
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

    def __post_init__(self):
        if not self.needs_base and self.base is not None:
            raise RecipeError(
                f"objective.base={excerpt(self.base)} with objective.kind={self.kind!r}, which has no part in another run: "
                "set objective.kind to guided or adversarial, or leave out the base"
            )
        if self.needs_base and not self.base:
            raise RecipeError(
                f"objective.kind={self.kind!r} needs objective.base, the folder of the run it is trained against"
            )
        for name in ("weight", "divergence", "frozen"):
            if self.kind != "adversarial" and getattr(self, name) != getattr(Objective, name):
                raise RecipeError(f"objective.{name} is for adversaries; objective.kind={self.kind!r}")

    @property
    def needs_base(self) -> bool:
        """Whether the model is trained against another run."""
        return self.kind in ("guided", "adversarial")


@section
class Penalties:
    """What is added to the loss of each text where a model is trained for the labels; a weight of 0 adds nothing.

    impermissible_mass: attention on impermissible words, lambda of Pruthi et al. (2020). diversity: states that point in one
    direction (Mohankumar et al. 2020). word_tying and masked_language_model: states far from the vectors of their words, and
    states that do not tell a masked word (Tutek & Snajder 2020). They may be taken together.
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
    word_tying_padding: bool | None = None
    """take markers and padding into its mean over tokens; null: false"""
    masked_language_model: NotNegative = 0.0
    """weight of -log p(word) at masked words, predicted from the states"""
    masked_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """share of the words that are masked; null: 0.15"""

    def __post_init__(self):
        for (weight, key), usual in OF_PENALTIES.items():
            value = getattr(self, key)
            if value is not None and not getattr(self, weight):
                raise RecipeError(
                    f"penalties.{key}={excerpt(value)} with penalties.{weight}=0, which adds nothing: set that above 0, or "
                    f"leave out {key}"
                )
            if value is None and getattr(self, weight):  # written out, so that the recipe is complete
                object.__setattr__(self, key, usual)

    @property
    def taken(self) -> dict[str, float]:
        """The penalties whose weight is not 0 -> their weights."""
        return {name: value for name in PENALTIES if (value := getattr(self, name))}


PENALTIES = ("impermissible_mass", "diversity", "word_tying", "masked_language_model")
OF_PENALTIES = {
    ("impermissible_mass", "impermissible_heads"): "mean",
    ("word_tying", "word_tying_distance"): "squared",
    ("word_tying", "word_tying_padding"): False,
    ("masked_language_model", "masked_share"): 0.15,
}


@section
class Measure:
    """What is measured, on which texts."""

    producers: list[str] = field(default_factory=lambda: ["gradient", "gradient_norm", "leave_one_out"])
    """measures of importance and experiments, by file name"""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """keyword arguments of a producer, by its name"""
    level: Literal["sentence", "word"] = "sentence"
    """of hierarchical models: what a record is over, sentences or all words of a text"""
    outputs: list[str] = field(default_factory=list)
    """splits whose attention and predictions are kept, for models trained against this one"""
    split: str = "test"
    """the split that is measured"""
    limit: Count | None = None
    """that many of its texts, drawn at random; null: all"""
    seed: Seed = 0
    """of what is drawn while measuring"""
    batch_tokens: Count = 8192
    """tokens of a batch, padding included"""


@section
class Report:
    """What the report shows."""

    examples: Count = 5
    """texts shown of best and of worst agreement"""
    title: str | None = None
    """of the page"""


@section
class Recipe:
    """A run: data, model, training, its objective and penalties or selection, what to measure, how to report."""

    name: str
    """of the run"""
    output_dir: str
    """folder of the run"""
    seed: Seed = 10
    """of the model and its training"""
    note: str = ""
    """what it reproduces, with the sentence that says so"""
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    training: Training = field(default_factory=Training)
    objective: Objective = field(default_factory=Objective)
    penalties: Penalties = field(default_factory=Penalties)
    selection: Selection = field(default_factory=Selection)
    measure: Measure = field(default_factory=Measure)
    report: Report = field(default_factory=Report)

    def __post_init__(self):
        pretrained, pairs = self.model.pretrained is not None, self.model.type is not None
        object.__setattr__(self, "training", completed(self.training, pretrained, pairs))  # so that the recipe is complete
        check_sequences(self)
        if pairs:
            object.__setattr__(self, "measure", completed_measure(self.measure))
            return
        check_pretrained(self)
        object.__setattr__(self, "selection", selectors.completed_selection(self))
        flat, kind = self.model.hierarchy == "none", self.objective.kind
        for name in ("max_sentence_length", "max_sentences"):
            limit = getattr(self.data, name)
            if limit is not None and flat:
                raise RecipeError(
                    f"data.{name}={limit} with model.hierarchy='none': set model.hierarchy to sentence, or leave it out"
                )
        self._check_tokenizer(flat)
        if self.measure.level == "word" and flat:
            raise RecipeError(
                "measure.level='word' with model.hierarchy='none', whose attention is over words anyway: leave it out"
            )
        if self.measure.level == "word" and kind == "guided":
            raise RecipeError(
                "measure.level='word' with objective.kind='guided', whose attention is given over sentences: leave it out"
            )
        if kind == "guided" and self.measure.producers:
            raise RecipeError(
                f"measure.producers={excerpt(self.measure.producers)} would measure the attention that a guided model "
                "computes, not the one it is given: set measure.producers to []"
            )
        rate = self.training.attention_learning_rate_factor
        if kind == "untrained" and rate != 1:
            raise RecipeError(
                f"training.attention_learning_rate_factor={rate:g} with objective.kind='untrained': nothing learns; leave "
                "it out"
            )
        if kind != "classification" and self.training.random_erasure:
            raise RecipeError(
                f"training.random_erasure={self.training.random_erasure:g} with objective.kind={kind!r}: words are erased "
                "where a model is trained for the labels on its own attention; leave it out"
            )
        if kind != "classification" and (taken := self.penalties.taken):
            name, weight = next(iter(taken.items()))
            raise RecipeError(
                f"penalties.{name}={weight:g} with objective.kind={kind!r}: penalties are added where a model is trained "
                "for the labels on its own attention; leave them out"
            )
        if not pretrained and self.penalties.impermissible_heads == "max":
            raise RecipeError(
                "penalties.impermissible_heads='max' with a model whose attention has one head: it is for model.pretrained; "
                "leave it out"
            )
        if kind == "adversarial" and self.model.projection == "uniform":
            raise RecipeError("objective.kind='adversarial' with model.projection='uniform': uniform attention cannot move")

    def _check_tokenizer(self, flat: bool):
        name = self.data.tokenizer
        if name is None:
            if self.data.tokenizer_revision is not None:
                raise RecipeError(
                    f"data.tokenizer_revision={excerpt(self.data.tokenizer_revision)} is of data.tokenizer, which is not "
                    "given: give it, or leave out the revision"
                )
            return
        if self.data.min_df is not None:
            raise RecipeError(
                f"data.min_df={self.data.min_df} with data.tokenizer={excerpt(name)}, which brings its own vocabulary: "
                "leave out one of them"
            )
        if not flat:
            raise RecipeError(
                f"data.tokenizer={excerpt(name)} with model.hierarchy='sentence', whose tokenizer divides texts into "
                "sentences of words: leave out one of them"
            )


SECTIONS = {key.name: key.type for key in fields(Recipe) if is_dataclass(key.type)}
