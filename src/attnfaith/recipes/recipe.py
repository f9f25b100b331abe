"""A whole recipe: which keys go together, and their values where a recipe is silent.

A key means something for some kinds of model, data and objective; `Recipe._rules` is the one table of that. Anywhere else
the key must be left out, so that no recipe names what is not done.
"""

from collections.abc import Iterator
from dataclasses import MISSING, field, fields, replace

from attnfaith.recipes.schema import (
    Data,
    Measure,
    Model,
    Objective,
    Penalties,
    RecipeError,
    Report,
    Seed,
    Selection,
    Training,
    section,
    sections_of,
)
from attnfaith.support.errors import excerpt


TRAINING = {
    "classifier": {  # the papers' (Jain & Wallace 2019)
        "num_train_epochs": 8,
        "learning_rate": 1e-3,
        "weight_decay": 1e-5,
        "max_grad_norm": 0.0,
        "amsgrad": True,
        "loss_reduction": "sum",
    },
    "pretrained": {  # usual for fine-tuning with AdamW (Devlin et al. 2019, appendix A.3)
        "num_train_epochs": 3,
        "learning_rate": 5e-5,
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
        "amsgrad": False,
        "loss_reduction": "mean",
    },
    "translator": {
        "num_train_epochs": 10,
        "learning_rate": 2e-3,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "amsgrad": False,
        "loss_reduction": "mean",
    },
}
"""Training settings where a recipe is silent."""
SCHEDULE = {"lr_scheduler_type": "linear", "warmup_steps": 0.1}
"""Of pretrained models and translators: the learning rate rises over a tenth of the updates, then falls to 0."""
SELECTION = {
    "bernoulli": {"sparsity": 3e-4, "coherence": 2.0, "baseline": "none", "decay": 0.9},
    "hardkuma": {
        "share": 0.2,
        "multiplier": 1e-4,
        "multiplier_rate": 0.01,
        "two_sided": False,
        "decay": 0.99,
        "lasso": None,
        "multiplier_range": None,
    },
    "budget": {},
}
"""The keys of `selection` that mean something for each kind of selector, and their values where a recipe is silent."""
PENALTY_DETAILS = {
    "impermissible_heads": ("impermissible_mass", "mean"),
    "word_tying_distance": ("word_tying", "squared"),
    "word_tying_padding": ("word_tying", False),
    "masked_share": ("masked_language_model", 0.15),
}
"""Keys that describe a penalty: the key of its weight, and their value where that is above 0 and a recipe is silent."""
ATTENTION = "projection sparsegen_lambda entmax_alpha"
MODEL_KEYS = {
    "gru": f"{ATTENTION} type encoder recurrence alignment embedding_size hidden_size alignment_size score_scale dropout "
    "embedding_std",
    "marian": "type hidden_size num_hidden_layers num_attention_heads intermediate_size dropout",
    "pretrained": f"{ATTENTION} pretrained revision separate_impermissible selector",
    "classifier": f"{ATTENTION} encoder alignment query readout hierarchy embedding_size hidden_size alignment_size "
    "score_scale kernel_sizes num_hidden_layers num_attention_heads intermediate_size dropout embedding_std selector",
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

    name: str
    """of the run"""
    output_dir: str
    """folder of the run"""
    seed: Seed = 10
    """of the model and its training"""
    note: str = ""
    """what it reproduces, with the sentence of the paper"""
    plugins: list[str] = field(default_factory=list)
    """Python modules with data sets, measures and models of your own, installed or in the current folder; imported first"""
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
        for applies, home, keys in self._rules():
            for name, key in () if applies else (word.split(".") for word in keys.split()):
                part = getattr(self, name)
                for entry in fields(part) if key == "*" else [part.__dataclass_fields__[key]]:
                    default = entry.default if entry.default_factory is MISSING else entry.default_factory()
                    value = getattr(part, entry.name)
                    if value not in (default, usual.get(name, {}).get(entry.name)):
                        raise RecipeError(f"{name}.{entry.name}={excerpt(value)} is only for {home}: leave it out")
        for wrong, message in self._contradictions():
            if wrong:
                raise RecipeError(message)
        for name, values in usual.items():  # written out, so that the recipe is complete
            part = getattr(self, name)
            values = {key: value for key, value in values.items() if getattr(part, key) is None}
            if name == "training" and self.kind != "classifier":
                values["arguments"] = SCHEDULE | part.arguments
            object.__setattr__(self, name, replace(part, **values))

    def _usual(self) -> dict[str, dict[str, object]]:
        """Section -> key -> its value where the recipe is silent."""
        pairs, selector = self.kind == "translator", self.model.selector
        producers = ["attention", "norm", "gradient_x_input"] if pairs else ["gradient", "gradient_norm", "leave_one_out"]
        if self.data.own and not pairs and selector is None:
            producers += ["integrated_gradients", "comprehensiveness"]  # what the verdict needs
        details = {key: value for key, (weight, value) in PENALTY_DETAILS.items() if getattr(self.penalties, weight)}
        selection = {} if selector is None else dict(SELECTION[selector.kind])
        if "share" in selection and selector.budget is not None:
            selection["share"] = selector.budget
        model = {"encoder": "bilstm"} if self.model.type != "gru" else {"encoder": "bigru", "recurrence": "bahdanau"}
        return {
            "data": self.data.usual,
            "model": model,
            "training": TRAINING[self.kind],
            "penalties": details,
            "selection": selection,
            "measure": {
                "producers": [] if self.objective.kind == "guided" else producers,
                "batch_tokens": 2048 if pairs else 8192,
            },
        }

    def _rules(self) -> Iterator[tuple[bool, str, str]]:
        """(whether the keys may be set, what they are for, the keys)."""
        data, model, kind, selector = self.data, self.model, self.objective.kind, self.model.selector
        pairs, pretrained, selects = self.kind == "translator", self.kind == "pretrained", selector is not None
        plain = self.kind == "classifier" and not selects  # attention pools states
        weighed = selects and selector.pooling == "attention"
        hierarchy = model.hierarchy != "none"

        own = "data.text data.text_pair data.label data.impermissible data.impermissible_words data.preprocessing "
        own += "data.validation_share data.test_share data.split_seed"
        yield data.own and not pairs, "own data with classes (data.path or data.hub_id)", own
        yield data.path is not None and not pairs, "files (data.path)", "data.encoding data.delimiter data.quotes"
        yield data.hub_id is not None, "data sets of the Hub (data.hub_id)", "data.revision data.config"
        yield not pairs, "classifiers", "data.hub_id data.impermissible_removed data.missing_vectors"
        yield not data.own, "generated data", "data.arguments"
        yield hierarchy, "model.hierarchy=sentence", "data.max_sentence_length data.max_sentences"
        yield data.tokenizer is not None, "data.tokenizer", "data.tokenizer_revision"
        yield data.tokenizer is None and not pretrained, "a vocabulary of the training texts", "data.min_df"
        flat = self.kind == "classifier" and not hierarchy
        yield flat, "models of this package that read words in a row", "data.tokenizer"
        yield self.kind == "classifier", "classifiers of this package", "data.vectors"
        yield pairs, "sentence pairs (model.type)", "data.vocabulary data.vocabulary_size data.links_from"

        model_kind = model.type or self.kind
        for key in (key.name for key in fields(Model)):
            homes = [name for name, keys in MODEL_KEYS.items() if key in keys.split()]
            yield model_kind in homes, f"{' and '.join(homes)} models, and this is a {model_kind} model", f"model.{key}"
        yield not selects, "models without model.selector", "model.hierarchy model.query model.separate_impermissible"
        scores = "model.alignment model.alignment_size model.projection model.sparsegen_lambda model.entmax_alpha"
        yield not selects or weighed, "model.selector.pooling=attention", f"{scores} model.score_scale"

        yield self.objective.needs_base, "objective.kind guided or adversarial", "objective.base"
        adversarial = "objective.weight objective.divergence objective.frozen"
        yield kind == "adversarial", "objective.kind=adversarial", adversarial
        labels = kind == "classification"
        yield labels and not selects, "models trained for labels by their own attention", "penalties.*"
        yield not pairs, "classifiers", "penalties.diversity penalties.word_tying penalties.masked_language_model"
        for key, (weight, _) in PENALTY_DETAILS.items():
            yield getattr(self.penalties, weight) > 0, f"penalties.{weight} above 0", f"penalties.{key}"
        own = SELECTION[selector.kind] if selects else {}
        rest = " ".join(f"selection.{key.name}" for key in fields(Selection) if key.name not in own)
        yield False, "another model.selector.kind" if selects else "model.selector", rest

        yield labels and plain, "classifiers of this package trained for labels", "training.random_erasure"
        yield self.kind == "classifier", "classifiers of this package", "training.amsgrad"
        rate = (plain or (weighed and not pretrained)) and kind != "untrained"
        yield rate, "classifiers of this package with attention", "training.attention_learning_rate_factor"
        yield not pairs, "classifiers", "training.loss_reduction training.balance_classes"
        yield plain, "classifiers that others can be trained against", "measure.outputs"
        yield hierarchy and kind != "guided", "model.hierarchy=sentence with attention of its own", "measure.level"
        yield kind != "guided", "models that compute their attention", "measure.producers"

    def _contradictions(self) -> Iterator[tuple[bool, str]]:
        """(whether keys contradict each other, the message)."""
        data, model, objective, training = self.data, self.model, self.objective, self.training
        pairs, penalties, kind = self.kind == "translator", self.penalties, objective.kind
        places = [f"data.{key}={excerpt(getattr(data, key))}" for key in ("name", "path", "hub_id") if getattr(data, key)]
        yield len(places) > 1, f"{' and '.join(places)}: set one of them, and the others to null"
        if data.own:
            parts = f"data.validation_share={data.validation_share:g} and data.test_share={data.test_share:g}"
            nothing = data.validation_share + data.test_share >= 1
            yield nothing, f"{parts} leave nothing for training: their sum must be below 1"
            marks = [key for key in ("impermissible", "impermissible_words") if getattr(data, key) is not None]
            yield len(marks) == 2, "data.impermissible and data.impermissible_words both name words: leave one out"
            needs = "data.impermissible_removed needs data.impermissible or data.impermissible_words, with own data"
            yield data.impermissible_removed and not marks, needs

        lacks = objective.needs_base and not objective.base
        yield lacks, f"objective.kind={kind!r} needs objective.base, the folder of the run that it is trained against"
        only = f"objective.kind={kind!r} is only for classifiers of this package whose attention pools states"
        plain = self.kind == "classifier" and model.selector is None
        yield (pairs and kind != "classification") or (objective.needs_base and not plain), only
        uniform = kind == "adversarial" and model.projection == "uniform"
        yield uniform, "objective.kind='adversarial' with model.projection='uniform': uniform attention cannot move"
        heads = penalties.impermissible_heads == "max" and self.kind != "pretrained"
        yield heads, "penalties.impermissible_heads='max' is only for model.pretrained: other attention has one head"
        still = pairs and (model.type != "gru" or model.projection in ("none", "uniform"))
        moves = "penalties.impermissible_mass of sentence pairs needs model.type=gru, with attention that can change"
        yield still and penalties.impermissible_mass > 0, moves

        metric = pairs and training.metric_for_best_model not in (None, "loss", "token_accuracy")
        choice = f"training.metric_for_best_model={excerpt(training.metric_for_best_model)}: of sentence pairs choose"
        yield metric, f"{choice} one of loss, token_accuracy"
        own = [key.name for key in fields(training)]
        elsewhere = {name: f"set training.{name}" for name in own} | {"seed": "set seed", "output_dir": "set output_dir"}
        for name in training.arguments:
            where = elsewhere.get(name, "a recipe sets none that names files or the Hub, loads code or divides the work")
            yield name in own or name.startswith(REFUSED_ARGUMENTS), f"training.arguments.{name[:60]}: {where}"
        bounds = self.selection.multiplier_range
        ordered = bounds is None or (len(bounds) == 2 and bounds[0] < bounds[1])
        yield not ordered, f"selection.multiplier_range={excerpt(bounds)} must be [least, greatest]"
        up = bounds is not None and self.selection.two_sided and bounds[0] >= 0
        yield up, f"selection.multiplier_range={excerpt(bounds)} with selection.two_sided needs a least below 0"


SECTIONS = sections_of(Recipe)
