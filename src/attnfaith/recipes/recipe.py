"""A whole recipe: which keys go together, and their values where a recipe is silent.

A key means something for some kinds of model, data and objective; `Recipe._rules` is the one table of that. Anywhere else
the key must be left out, so that no recipe names what is not done.
"""

from collections.abc import Iterator
from dataclasses import field, fields, is_dataclass, replace

from attnfaith.recipes import schema
from attnfaith.recipes.schema import RecipeError, key, section
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

    name: str = key(..., "of the run")
    output_dir: str = key(..., "folder of the run")
    seed: schema.Seed = key(10, "of the model and its training")
    note: str = key("", "what it reproduces, with the sentence of the paper")
    plugins: list[str] = key([], "Python modules of your own, installed or in the current folder; imported first")
    data: schema.Data = field(default_factory=schema.Data)
    model: schema.Model = field(default_factory=schema.Model)
    training: schema.Training = field(default_factory=schema.Training)
    objective: schema.Objective = field(default_factory=schema.Objective)
    penalties: schema.Penalties = field(default_factory=schema.Penalties)
    selection: schema.Selection = field(default_factory=schema.Selection)
    measure: schema.Measure = field(default_factory=schema.Measure)
    report: schema.Report = field(default_factory=schema.Report)

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
        for message, wrong in self._contradictions().items():
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
            "data": self.data.usual,
            "model": {"encoder": "bilstm"} if self.model.type != "gru" else {"encoder": "bigru", "recurrence": "bahdanau"},
            "training": TRAINING[self.kind],
            "penalties": {
                "impermissible_heads": "mean" if penalties.impermissible_mass else None,
                "word_tying_distance": "squared" if penalties.word_tying else None,
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
        yield self.penalties.impermissible_mass > 0, "penalties.impermissible_mass", "penalties impermissible_heads"
        yield self.penalties.word_tying > 0, "penalties.word_tying", "penalties word_tying_distance"
        others = {key.name for key in fields(self.selection)} - {*(SELECTION[selector.kind] if selector else ())}
        yield False, "another model.selector.kind", " ".join(["selection", *sorted(others)])

        yield labels and pooled, "classifiers of this package trained for labels", "training random_erasure"
        yield ours, "classifiers of this package", "training amsgrad"
        yield not pairs, "classifiers", "training loss_reduction balance_classes"
        yield objective != "guided", "models that compute their attention", "measure producers"

    def _contradictions(self) -> dict[str, bool]:
        """Message -> whether it is true of the recipe."""
        data, model, objective, training = self.data, self.model, self.objective, self.training
        pairs, kind, mass = self.kind == "translator", objective.kind, self.penalties.impermissible_mass
        places = [f"data.{key}={excerpt(getattr(data, key))}" for key in ("name", "path", "hub_id") if getattr(data, key)]
        pooled, metric = self.kind == "classifier" and model.selector is None, training.metric_for_best_model
        unmoved = model.type != "gru" or model.projection in ("none", "uniform")
        messages = {
            f"{' and '.join(places)}: set one of them, and the others to null": len(places) > 1,
            f"objective.kind={kind!r} needs objective.base, the folder of the run that it is trained against": (
                objective.needs_base and not objective.base
            ),
            f"objective.kind={kind!r} is only for classifiers of this package whose attention pools states": (
                (pairs and kind != "classification") or (objective.needs_base and not pooled)
            ),
            "objective.kind='adversarial' with model.projection='uniform': uniform attention cannot move": (
                kind == "adversarial" and model.projection == "uniform"
            ),
            "penalties.impermissible_heads='max' is only for model.pretrained: other attention has one head": (
                self.penalties.impermissible_heads == "max" and self.kind != "pretrained"
            ),
            "penalties.impermissible_mass of sentence pairs needs model.type=gru, with attention that can change": (
                pairs and mass > 0 and unmoved
            ),
            f"training.metric_for_best_model={excerpt(metric)}: of sentence pairs choose loss or token_accuracy": (
                pairs and metric not in (None, "loss", "token_accuracy")
            ),
        }
        own = {key.name for key in fields(training)}
        for name in training.arguments:
            where = f"set training.{name}" if name in own else "a recipe names no files, code or machines here"
            messages[f"training.arguments.{cut(name, 60)}: {where}"] = name in own or name.startswith(REFUSED_ARGUMENTS)
        return messages


SECTIONS = {key.name: key.type for key in fields(Recipe) if is_dataclass(key.type)}
