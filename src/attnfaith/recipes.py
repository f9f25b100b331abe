"""Recipes: one YAML per run, read into frozen dataclasses. Unknown keys and wrong types stop before any work is done."""

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from attnfaith.errors import AttnfaithError


class RecipeError(AttnfaithError):
    """A recipe that cannot be used. The message says where, what was given, what is allowed."""


@dataclass(frozen=True)
class Data:
    """Which texts, in which words.

    name: data set of the registry. arguments: knobs of a built-in generator. limits: split -> largest number of rows,
    drawn at random. max_length: tokens of an input, markers included; longer texts are cut and counted. Of hierarchical
    models, max_sentence_length: words of a sentence, a longer one goes on as another; max_sentences: of a text, longer ones
    are cut and counted. min_df: least
    document frequency of a word, None takes the data set's own. vectors: file of pretrained word vectors (text, .vec, .gz
    or parquet; also looked for under the data root), None draws random ones. missing_vectors: words the file lacks. seed:
    of generated data and of limits.
    """

    name: str = "planted_evidence"
    arguments: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    max_length: int | None = None
    max_sentence_length: int | None = None
    max_sentences: int | None = None
    min_df: int | None = None
    vectors: str | None = None
    missing_vectors: Literal["zero", "random"] = "zero"
    seed: int = 0


@dataclass(frozen=True)
class Model:
    """Fields of AttentionClassifierConfig.

    query None: "text" for pairs, else "learned". hidden_size None: 256 (128 for the transformer, the embedding size for
    `embedding`). embedding_size is that of `data.vectors` where a file is given.
    """

    encoder: str = "bilstm"
    alignment: str = "additive"
    projection: str = "softmax"
    query: str | None = None
    readout: str = "affine"
    hierarchy: Literal["none", "sentence"] = "none"
    embedding_size: int = 300
    hidden_size: int | None = None
    alignment_size: int | None = None
    sparsegen_lambda: float = 0.0
    entmax_alpha: float = 1.5
    score_scale: float | None = None
    kernel_sizes: list[int] = field(default_factory=lambda: [1, 3, 5, 7])
    num_hidden_layers: int = 2
    num_attention_heads: int = 1
    intermediate_size: int = 128
    dropout: float = 0.0
    embedding_std: float = 0.25

    def __post_init__(self):
        """What the configuration refuses of a projection, said before a study starts: no model is loaded for it."""
        if not -math.inf < self.sparsegen_lambda < 1:
            raise RecipeError(
                f"model.sparsegen_lambda={self.sparsegen_lambda:g}: sparsegen needs a finite lambda < 1 (0 is sparsemax)"
            )
        if not 1 <= self.entmax_alpha < math.inf:
            raise RecipeError(
                f"model.entmax_alpha={self.entmax_alpha:g}: entmax needs a finite alpha >= 1 (1 softmax, 2 sparsemax)"
            )
        if self.score_scale is not None and not 0 < self.score_scale < math.inf:
            raise RecipeError(
                f"model.score_scale={self.score_scale:g}: scores are held at a finite deviation above 0, or none"
            )


@dataclass(frozen=True)
class Training:
    """The papers' settings (Jain & Wallace 2019), by the names of transformers' TrainingArguments where they have one.

    Any other of their names goes into `arguments`. metric_for_best_model None: ROC-AUC for two classes, else accuracy.
    select_on is validation: a checkpoint chosen on test would make every test figure a selected one. random_erasure: at each
    step every training text loses a share of its words drawn from 0 to this, so that the tests of explanations which delete
    words show the model nothing new; 0 none.
    """

    num_train_epochs: float = 8
    per_device_train_batch_size: int = 32
    per_device_eval_batch_size: int = 64
    gradient_accumulation_steps: int = 1
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    max_grad_norm: float = 0.0
    amsgrad: bool = True
    attention_learning_rate_factor: float = 1.0
    random_erasure: float = 0.0
    loss_reduction: Literal["sum", "mean"] = "sum"
    balance_classes: bool = True
    select_on: str = "validation"
    metric_for_best_model: str | None = None
    early_stopping_patience: int | None = None
    train_sampling_strategy: Literal["group_by_length", "random", "sequential"] = "group_by_length"
    bf16: bool = False
    use_cpu: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        """A recipe says what a run is, wherever it goes: it is kept, compared and published."""
        if not 0 <= self.random_erasure <= 1:
            raise RecipeError(
                f"training.random_erasure={self.random_erasure:g}: the largest share of a text's words to erase lies in 0..1"
            )
        if "hub_token" in self.arguments:
            raise RecipeError(
                "training.arguments.hub_token: a recipe is published, and an access token in it would be too: take it out, "
                "log in with `hf auth login` or set HF_TOKEN, and give --push_to_hub to train.py"
            )
        if found := [name for name in self.arguments if name == "push_to_hub" or name.startswith("hub_")]:
            raise RecipeError(
                f"training.arguments.{found[0]}: a recipe says what a run is, not where it goes: take it out, and give "
                "--push_to_hub, --hub_model_id OWNER/NAME, --hub_private_repo or --hub_revision to train.py"
            )


@dataclass(frozen=True)
class Objective:
    """What the model is trained for.

    kind: "classification", the labels; "untrained", nothing: the model as it was drawn, with the weights that a training of
    the same data, model and seed starts from, and `training` is not read; "guided", the labels, under the attention of the
    base in place of its own; "adversarial", the base's predictions under an attention far from the base's (Wiegreffe &
    Pinter 2019). base: folder of
    the run it is trained against, which keeps its outputs (`measure.outputs`) of train and validation, and for a guided
    model of the measured split. weight: lambda of an adversary, half the distance |p - p_base|_1 minus lambda times the
    divergence of attentions; the lambda of Wiegreffe & Pinter's code is half of this one. divergence: "kl", or "jsd" where
    the base's attention has zeros. frozen: the adversary has the base's weights, and only its alignment is trained, from
    fresh ones: from the base's own no divergence has a gradient (Meister et al. 2021 say "adopting" the parameters).
    """

    kind: Literal["classification", "untrained", "guided", "adversarial"] = "classification"
    base: str | None = None
    weight: float = 0.002
    divergence: Literal["kl", "jsd"] = "kl"
    frozen: bool = False

    def __post_init__(self):
        if not self.needs_base and self.base is not None:
            raise RecipeError(
                f"objective.base={self.base!r} with objective.kind={self.kind!r}, which has no part in another run: set "
                "objective.kind to guided or adversarial, or leave out the base"
            )
        if self.needs_base and not self.base:
            raise RecipeError(
                f"objective.kind={self.kind!r} needs objective.base, the folder of the run it is trained against"
            )
        if not 0 < self.weight < math.inf:
            raise RecipeError(f"objective.weight={self.weight:g} must be a finite number above 0")
        for name in ("weight", "divergence", "frozen"):
            if self.kind != "adversarial" and getattr(self, name) != getattr(Objective, name):
                raise RecipeError(f"objective.{name} is for adversaries; objective.kind={self.kind!r}")

    @property
    def needs_base(self) -> bool:
        """Whether the model is trained against another run."""
        return self.kind in ("guided", "adversarial")


@dataclass(frozen=True)
class Measure:
    """producers: measures of importance and experiments, by file name. options: keyword arguments of a producer, by its
    name. level: what a record of a hierarchical model is over, its sentences or all words of a document; another level is
    another record of the same trained model. split, limit: which instances, None all. outputs: splits whose attention and
    predictions the run keeps in outputs/, over sentences, for models that are trained against it.
    """

    producers: list[str] = field(default_factory=lambda: ["gradient", "gradient_norm", "leave_one_out"])
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    level: Literal["sentence", "word"] = "sentence"
    outputs: list[str] = field(default_factory=list)
    split: str = "test"
    limit: int | None = None
    seed: int = 0
    batch_tokens: int = 8192

    def __post_init__(self):
        for name in ("limit", "batch_tokens"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise RecipeError(f"measure.{name}={value} must be at least 1")


@dataclass(frozen=True)
class Report:
    """examples: texts shown of best and of worst agreement."""

    examples: int = 5
    title: str | None = None

    def __post_init__(self):
        if self.examples < 1:
            raise RecipeError(f"report.examples={self.examples}: a report shows at least 1 text")


@dataclass(frozen=True)
class Recipe:
    """A run: data, model, training and its objective, what to measure, how to report.

    note: what it reproduces, with the sentence that says so.
    """

    name: str
    output_dir: str
    seed: int = 10
    note: str = ""
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    training: Training = field(default_factory=Training)
    objective: Objective = field(default_factory=Objective)
    measure: Measure = field(default_factory=Measure)
    report: Report = field(default_factory=Report)

    def __post_init__(self):
        for name in ("max_sentence_length", "max_sentences"):
            limit = getattr(self.data, name)
            if limit is not None and self.model.hierarchy == "none":
                raise RecipeError(
                    f"data.{name}={limit} with model.hierarchy='none': set model.hierarchy to sentence, or leave it out"
                )
            if limit is not None and limit < 1:
                raise RecipeError(f"data.{name}={limit} must be at least 1")
        if self.measure.level == "word" and self.model.hierarchy == "none":
            raise RecipeError(
                "measure.level='word' with model.hierarchy='none', whose attention is over words anyway: leave it out"
            )
        if self.measure.level == "word" and self.objective.kind == "guided":
            raise RecipeError(
                "measure.level='word' with objective.kind='guided', whose attention is given over sentences: leave it out"
            )
        if self.training.select_on != "validation":
            raise RecipeError(
                f"training.select_on={self.training.select_on!r}: checkpoints are selected on 'validation' only; a model "
                "chosen on the split that is reported makes its figures meaningless"
            )
        if self.objective.kind == "guided" and self.measure.producers:
            raise RecipeError(
                f"measure.producers={self.measure.producers} would measure the attention that a guided model computes, not "
                "the one it is given: set measure.producers to []"
            )
        rate = self.training.attention_learning_rate_factor
        if self.objective.kind == "untrained" and rate != 1:
            raise RecipeError(
                f"training.attention_learning_rate_factor={rate:g} with objective.kind='untrained': nothing learns; leave "
                "it out"
            )
        if self.objective.kind != "classification" and self.training.random_erasure:
            raise RecipeError(
                f"training.random_erasure={self.training.random_erasure:g} with objective.kind={self.objective.kind!r}: "
                "words are erased where a model is trained for the labels on its own attention; leave it out"
            )
        if self.objective.kind == "adversarial" and self.model.projection == "uniform":
            raise RecipeError("objective.kind='adversarial' with model.projection='uniform': uniform attention cannot move")


class Loader(yaml.SafeLoader):
    """YAML 1.2's floats, 1e-3 is a number, and no key twice."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if twice := sorted({key for key in keys if isinstance(key, str) and keys.count(key) > 1}):
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes the strings that Loader would read as numbers."""


for _kind in (Loader, _Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?((\d+\.\d*|\.\d+)([eE][-+]?\d+)?|\d+[eE][-+]?\d+)$"),
        list("-+0123456789."),
    )


def load(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply command-line overrides: `--seed 3`, `--model.encoder cnn` or, where only one section has that
    key, `--encoder cnn`. Values are YAML; a key without a value is true.

    Raises RecipeError for a file that is missing or not YAML, an unknown key, a wrong type.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecipeError(f"no recipe at {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not UTF-8 text: {error}") from error
    return parse(text, overrides, str(path))


def parse(text: str, overrides: Sequence[str] = (), source: str = "the recipe") -> Recipe:
    """A recipe from YAML text; see `load`."""
    try:
        tree = yaml.load(text, Loader=Loader)
    except yaml.YAMLError as error:
        raise RecipeError(f"{source} is not YAML: {error}") from error
    if not isinstance(tree, dict):
        raise RecipeError(f"{source} must hold keys and values, such as 'name: quickstart'")
    for key, value in parse_overrides(overrides):
        _set(tree, key, value)
    return build(tree)


def build(tree: Mapping) -> Recipe:
    """A recipe from nested dictionaries. Raises RecipeError for an unknown key or a wrong type."""
    return _convert(Recipe, tree, "recipe")


def dump(recipe: Recipe) -> str:
    """The recipe as YAML, complete: every default is written out."""
    return yaml.dump(dataclasses.asdict(recipe), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def parse_overrides(arguments: Sequence[str]) -> list[tuple[str, Any]]:
    """[(dotted key, value)] from `--key value`, `--key=value` and `--flag`."""
    found, rest = [], list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or word == "--":
            raise RecipeError(f"'{word}' is not an override; write --key value, for example --training.learning_rate 1e-4")
        key, separator, text = word[2:].partition("=")
        if not separator:
            text = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        try:
            found.append((_resolve(key), yaml.load(text, Loader=Loader)))
        except yaml.YAMLError as error:
            raise RecipeError(f"--{key}: {text!r} is not a YAML value: {error}") from error
    return found


def _sections() -> dict[str, type]:
    return {f.name: f.type for f in dataclasses.fields(Recipe) if dataclasses.is_dataclass(f.type)}


def _resolve(key: str) -> str:
    """The full dotted key for a possibly short one."""
    sections = _sections()
    names = [f.name for f in dataclasses.fields(Recipe)]
    if key in sections:
        raise RecipeError(
            f"--{key} is a section; name a key of it, such as --{key}.{dataclasses.fields(sections[key])[0].name}"
        )
    if "." in key or key in names:
        return key
    homes = [name for name, section in sections.items() if key in [f.name for f in dataclasses.fields(section)]]
    if len(homes) == 1:
        return f"{homes[0]}.{key}"
    if homes:
        raise RecipeError(f"--{key} is in several sections; write one of {', '.join(f'--{home}.{key}' for home in homes)}")
    known = [*(n for n in names if n not in sections), *(f.name for s in sections.values() for f in dataclasses.fields(s))]
    raise RecipeError(unknown("option", f"--{key}", sorted({f"--{name}" for name in known})))


def _set(tree: dict, key: str, value) -> None:
    *path, last = key.split(".")
    for name in path:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise RecipeError(f"--{key}: '{name}' is a value, not a section")
    tree[last] = value


def unknown(what: str, given: str, known: Sequence[str]) -> str:
    """The message for a name nobody has: the nearest known one, and all of them."""
    near = difflib.get_close_matches(given, known, 1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"unknown {what} {given}{hint} Known: {', '.join(known)}"


def _convert(hint, value, where: str):
    """The value as its type hint demands; RecipeError names the place, the value and what is allowed."""
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise RecipeError(f"{where} must hold keys and values, not {value!r}")
        hints = {f.name: f.type for f in dataclasses.fields(hint)}
        for key in value:
            if key not in hints:
                raise RecipeError(unknown("key", f"{where}.{key}", [f"{where}.{name}" for name in hints]))
        required = [f.name for f in dataclasses.fields(hint) if f.default is f.default_factory is dataclasses.MISSING]
        if missing := [name for name in required if name not in value]:
            raise RecipeError(f"{where} lacks {missing}")
        return hint(**{key: _convert(hints[key], item, f"{where}.{key}") for key, item in value.items()})
    origin, parameters = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is Literal:
        if value in parameters:
            return value
        raise RecipeError(f"{where}={value!r} is not one of {', '.join(map(repr, parameters))}")
    if origin is types.UnionType:
        if value is None and type(None) in parameters:
            return None
        return _convert(next(option for option in parameters if option is not type(None)), value, where)
    if origin is list and isinstance(value, list):
        return [_convert(parameters[0], item, f"{where}[{index}]") for index, item in enumerate(value)]
    if origin is dict and isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise RecipeError(f"{where} has the key {wrong[0]!r}; its keys must be words")
        return {key: _convert(parameters[1], item, f"{where}.{key}") for key, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and not (isinstance(value, bool) and hint is not bool):
        return value
    wanted = getattr(hint, "__name__", str(hint)) if origin is None else str(hint)
    raise RecipeError(f"{where}={value!r} is a {type(value).__name__}; it must be a {wanted}")
