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
from attnfaith.support.errors import cut, excerpt


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
    "pretrained": f"{ATTENTION} pretrained revision separate_impermissible",
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
        for applies, home, names in self._rules():
            part, *keys = names.split()
            section = getattr(self, part)
            for key in (key for key in fields(section) if not applies and (key.name in keys or not keys)):
                default = key.default if key.default_factory is MISSING else key.default_factory()
                value = getattr(section, key.name)
                if value not in (default, usual.get(part, {}).get(key.name)):
                    raise RecipeError(f"{part}.{key.name}={excerpt(value)} is only for {home}: leave it out")
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
        pairs, selector = self.kind == "translator", self.model.selector
        producers = ["attention", "norm", "gradient_x_input"] if pairs else ["gradient", "gradient_norm", "leave_one_out"]
        if self.data.own and not pairs and selector is None:
            producers += ["integrated_gradients", "comprehensiveness"]  # what the verdict needs
        details = {key: value for key, (weight, value) in PENALTY_DETAILS.items() if getattr(self.penalties, weight)}
        selection = {} if selector is None else dict(SELECTION[selector.kind])
        if "share" in selection and selector.budget is not None:
            selection["share"] = selector.budget
        return {
            "data": self.data.usual,
            "model": {"encoder": "bilstm"} if self.model.type != "gru" else {"encoder": "bigru", "recurrence": "bahdanau"},
            "training": TRAINING[self.kind],
            "penalties": details,
            "selection": selection,
            "measure": {
                "producers": [] if self.objective.kind == "guided" else producers,
                "batch_tokens": 2048 if pairs else 8192,
            },
        }

    def _rules(self) -> Iterator[tuple[bool, str, str]]:
        """(whether the keys may be set, what they are for, a section and its keys; without keys all of them)."""
        data, model, objective, selector = self.data, self.model, self.objective.kind, self.model.selector
        ours, pairs, selects = self.kind == "classifier", self.kind == "translator", selector is not None
        plain, flat = ours and not selects, ours and model.hierarchy == "none"  # plain: attention pools states
        own = "text text_pair label impermissible_words preprocessing validation_share test_share split_seed"
        yield data.own and not pairs, "own data with classes (data.path or data.hub_id)", f"data {own}"
        yield data.path is not None and not pairs, "files (data.path)", "data encoding delimiter quotes"
        yield data.hub_id is not None, "data sets of the Hub (data.hub_id)", "data revision config"
        yield not data.own, "generated data", "data arguments"
        yield self.kind != "pretrained", "a vocabulary of the training texts", "data min_df"
        yield ours and not flat, "model.hierarchy=sentence", "data max_sentence_length"
        yield ours, "classifiers of this package", "data vectors"
        yield pairs, "sentence pairs (model.type)", "data vocabulary vocabulary_size links_from"
        yield not pairs, "classifiers", "data hub_id impermissible_removed missing_vectors"

        own = MODEL_KEYS[model.type or self.kind].split()
        others = " ".join(key.name for key in fields(Model) if key.name not in own)
        yield False, "another kind of model", f"model {others}"
        weighs = "alignment alignment_size projection sparsegen_lambda entmax_alpha score_scale"
        weighed = not selects or selector.pooling == "attention"
        yield weighed, "model.selector.pooling=attention", f"model {weighs}"

        labels = objective == "classification"
        yield self.objective.needs_base, "objective.kind guided or adversarial", "objective base"
        yield objective == "adversarial", "objective.kind=adversarial", "objective weight divergence frozen"
        yield labels and not selects, "models trained for labels by their own attention", "penalties"
        yield pairs or model.hierarchy == "none", "models without model.hierarchy", "penalties"
        yield ours, "classifiers of this package", "penalties diversity word_tying masked_language_model"
        for key, (weight, _) in PENALTY_DETAILS.items():
            yield getattr(self.penalties, weight) > 0, f"penalties.{weight} above 0", f"penalties {key}"
        own = SELECTION[selector.kind] if selects else ()
        others = " ".join(key.name for key in fields(Selection) if key.name not in own)
        yield False, "another model.selector.kind" if selects else "model.selector", f"selection {others}"

        yield labels and plain, "classifiers of this package trained for labels", "training random_erasure"
        yield ours, "classifiers of this package", "training amsgrad"
        learns = ours and weighed and objective != "untrained"
        yield learns, "classifiers of this package that learn attention", "training attention_learning_rate_factor"
        yield not pairs, "classifiers", "training loss_reduction balance_classes"
        yield objective != "guided", "models that compute their attention", "measure producers"

    def _contradictions(self) -> Iterator[tuple[bool, str]]:
        """(whether keys contradict each other, the message)."""
        data, model, objective, training = self.data, self.model, self.objective, self.training
        pairs, kind, mass = self.kind == "translator", objective.kind, self.penalties.impermissible_mass
        places = [f"data.{key}={excerpt(getattr(data, key))}" for key in ("name", "path", "hub_id") if getattr(data, key)]
        yield len(places) > 1, f"{' and '.join(places)}: set one of them, and the others to null"
        nothing = data.own and data.validation_share + data.test_share >= 1
        yield nothing, "data.validation_share and data.test_share leave nothing for training: their sum must be below 1"
        unmarked = data.own and data.impermissible_removed and data.impermissible_words is None
        yield unmarked, "data.impermissible_removed needs data.impermissible_words"

        lacks = objective.needs_base and not objective.base
        yield lacks, f"objective.kind={kind!r} needs objective.base, the folder of the run that it is trained against"
        plain = self.kind == "classifier" and model.selector is None
        other = (pairs and kind != "classification") or (objective.needs_base and not plain)
        yield other, f"objective.kind={kind!r} is only for classifiers of this package whose attention pools states"
        uniform = kind == "adversarial" and model.projection == "uniform"
        yield uniform, "objective.kind='adversarial' with model.projection='uniform': uniform attention cannot move"
        heads = self.penalties.impermissible_heads == "max" and self.kind != "pretrained"
        yield heads, "penalties.impermissible_heads='max' is only for model.pretrained: other attention has one head"
        still = pairs and mass > 0 and (model.type != "gru" or model.projection in ("none", "uniform"))
        yield still, "penalties.impermissible_mass of sentence pairs needs model.type=gru, with attention that can change"

        metric = training.metric_for_best_model
        wrong = pairs and metric not in (None, "loss", "token_accuracy")
        yield wrong, f"training.metric_for_best_model={excerpt(metric)}: of sentence pairs choose loss or token_accuracy"
        own = [key.name for key in fields(training)]
        for name in training.arguments:
            where = f"set training.{name}" if name in own else "a recipe names no files, code or machines here"
            yield name in own or name.startswith(REFUSED_ARGUMENTS), f"training.arguments.{cut(name, 60)}: {where}"


SECTIONS = sections_of(Recipe)
