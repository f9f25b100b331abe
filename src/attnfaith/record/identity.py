"""The identity of a cell, one trained model on one set of texts: typed fields, and labels for people."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from attnfaith.support.errors import RecordError
from attnfaith.support.files import RECIPE


UNKNOWN, UNKNOWN_SEED = "unknown", -1
"""The value of an unknown field, and of an unknown seed."""
LABELS = {
    "dataset": "name of the data set",
    "texts": "fingerprint of the texts that were measured, 12 hexadecimal digits",
    "training_texts": "fingerprint of the texts that were trained on; unknown where it is not known",
    "split": "which part of the data set the texts are",
    "encoder": "what makes states of tokens, with what sets it apart in brackets",
    "alignment": "what makes a score of a state, with what sets it apart in brackets",
    "projection": "what makes attention of scores, with its parameter in brackets",
    "vectors": "word vectors at the start: random or pretrained, with their scale or digest in brackets",
    "objective": "what the model was trained for, with what was added to the loss in brackets",
    "seed": "seed of the training run; -1 where it is unknown",
}
"""The labels in `Identity.heading`, with which the rows of a table begin, and their meanings."""


@dataclass(frozen=True)
class Identity:
    """One cell of a record; None where a field does not apply."""

    dataset: str
    texts: str  # fingerprint of the texts that were measured, 12 hexadecimal digits
    split: str
    seed: int  # of the training run; -1 where it is unknown
    training_texts: str | None = None  # fingerprint of the texts that were trained on

    # the model
    model: str = "attention_classifier"
    encoder: str = "bilstm"
    hierarchy: str = "none"  # or sentence: words are read by sentence, sentences by document
    level: str = "token"  # what attention is over: token, sentence, or word (of pairs of sentences)
    alignment: str = "additive"
    projection: str = "softmax"
    projection_parameter: float | None = None  # lambda of sparsegen, alpha of entmax
    separate_impermissible: bool | None = None  # impermissible tokens and others attend to their own kind only
    readout: str = "affine"
    vectors: str = "random"  # word vectors at the start, or pretrained
    vectors_scale: float | None = None  # standard deviation of random vectors
    vectors_digest: str | None = None  # of the file of pretrained vectors, 12 hexadecimal digits
    tokenizer_digest: str | None = None  # None: texts are divided into the words of the training texts
    reduction: str | None = None  # how layers and heads became the attention that is shown: mean or rollout
    reduction_layers: str | None = None  # last, all, or the number of one, from 0
    reduction_head: int | None = None  # the number of one, from 0; None: the mean of all

    # its training
    objective: str = "classification"  # or translation, untrained, adversarial, guided, unknown
    attention_rate: float = 1.0  # learning rate of the alignment over that of the rest
    random_erasure: float = 0.0  # largest share of a text's words erased at a training step
    impermissible_mass: float = 0.0  # weight of the penalty on attention to impermissible words
    impermissible_heads: str | None = None  # how it reads many heads: mean or max
    diversity: float = 0.0  # weight of the penalty on the conicity of the states
    word_tying: float = 0.0  # weight of the penalty on the distance of states from word vectors
    word_tying_distance: str | None = None  # norm or squared
    masked_language_model: float = 0.0  # weight of the penalty on masked words that states do not tell
    masked_share: float | None = None  # share of the words that were masked
    adversary_weight: float | None = None  # weight of the divergence of attentions
    adversary_divergence: str | None = None  # kl or jsd
    adversary_frozen: bool | None = None  # only the alignment was trained
    base: str | None = None  # `model_label` of the model that this one was trained against
    base_penalties: str | None = None  # what was added to that model's loss

    # what its attention is, and how a selection was made
    attention_kind: str = "own"  # given: that of the base, in place of its own; selection: what a selector gives tokens
    selection_kind: str | None = None  # bernoulli, hardkuma or budget
    selection_encoder: str | None = None
    selection_budget: float | None = None  # largest share of a text's tokens; None: no bound
    selection_threshold: float | None = None  # a token is selected at test time above it
    selection_temperature: float | None = None  # of a budget: what scores are divided by
    selection_pooling: str | None = None  # average, max or attention
    selection_baseline: str | None = None  # of bernoulli, what costs are compared with: none or moving_average
    selection_sparsity: float | None = None  # of bernoulli, the price of a selected token
    selection_coherence: float | None = None  # of bernoulli, the price of a change, in units of that
    selection_target: float | None = None  # of hardkuma, the share of tokens that training aims at

    @property
    def heading(self) -> dict[str, object]:
        """Labels for people, by LABELS, with which a table's rows begin. Nothing reads them back."""
        hierarchy = "" if self.hierarchy == "none" else self.hierarchy
        apart = "impermissible apart" if self.separate_impermissible else ""
        return {
            **{name: getattr(self, name) for name in LABELS},
            "training_texts": self.training_texts or UNKNOWN,
            "encoder": labelled(self.encoder, hierarchy, ("tokenizer", self.tokenizer_digest)),
            "alignment": labelled(self.alignment, self.attention_label, apart),
            "projection": labelled(self.projection, self.projection_parameter),
            "vectors": labelled(self.vectors, self.vectors_scale if self.vectors == "random" else self.vectors_digest),
            "objective": self.objective_label,
        }

    @property
    def removal_renormalises(self) -> bool:
        """Whether projecting again without an item is dividing the other weights by their sum."""
        return self.projection in ("softmax", "uniform")

    @property
    def model_label(self) -> str:
        """Such as "bilstm+additive+softmax", encoder, alignment and projection; of an adversary its objective."""
        if self.objective == "adversarial":
            return labelled("adversarial", *self._adversary)
        return "+".join(str(self.heading[name]) for name in ("encoder", "alignment", "projection"))

    @property
    def attention_label(self) -> str:
        """How layers and heads became one attention ("last layer", "layer 3, head 5", "rollout"), or how tokens are
        selected, where it is not the default ("temperature 0.1, max"); "" for one vector of attention.
        """
        if self.reduction is not None:
            named = {"last": "last layer", "all": "all layers"}.get(self.reduction_layers, f"layer {self.reduction_layers}")
            return labelled("", named, ("head", self.reduction_head)) if self.reduction == "mean" else self.reduction
        if self.selection_kind is None:
            return ""
        usual = {
            "encoder": self.encoder,
            "threshold": 0.5 if self.selection_kind == "bernoulli" else 0.0,
            "pooling": "average",
        }
        own = {name: getattr(self, f"selection_{name}") for name in usual}
        own = {name: None if value == usual[name] else value for name, value in own.items()}
        temperature, threshold = ("temperature", self.selection_temperature), ("threshold", own["threshold"])
        return labelled("", own["encoder"], temperature, threshold, own["pooling"])

    @property
    def objective_label(self) -> str:
        """Such as "classification(diversity 0.5)", "adversarial(kl, 0.002)", "guided(bilstm+additive+softmax)"."""
        against = {
            "adversarial": (*self._adversary, ("base", self.base_penalties)),
            "guided": ("+".join(filter(None, (self.base, self.base_penalties))),),
        }
        return labelled(
            self.objective,
            *against.get(self.objective, ()),
            ("attention rate x", None if self.attention_rate == 1 else self.attention_rate),
            ("tokens erased", self.random_erasure or None),
            *self.penalties,
            ("sparsity", self.selection_sparsity),
            ("coherence", self.selection_coherence),
            "moving average" if self.selection_baseline == "moving_average" else "",
            ("selected", self.selection_target),
        )

    @property
    def penalties(self) -> list[str]:
        """What was added to the loss, such as ["impermissible mass 0.1 mean", "diversity 0.5"]."""
        details = {
            "impermissible_mass": self.impermissible_heads,
            "diversity": None,
            "word_tying": self.word_tying_distance,
            "masked_language_model": None if self.masked_share is None else f"share {self.masked_share:g}",
        }
        weights = {name: weight for name in details if (weight := getattr(self, name))}
        return [f"{name.replace('_', ' ')} {weight:g} {details[name] or ''}".strip() for name, weight in weights.items()]

    @property
    def _adversary(self) -> list[str | float | None]:
        return [self.adversary_divergence, self.adversary_weight, "frozen" if self.adversary_frozen else ""]


def labelled(name: str, *parts: str | float | tuple[str, str | float | None] | None) -> str:
    """Return a name with its parts in brackets, such as "sparsegen(0.5)", or the parts alone where the name is "".

    A part is a value, or its name and the value; those of None or "" are left out.
    """
    words = []
    for part in parts:
        word, value = part if isinstance(part, tuple) else ("", part)
        if value not in (None, ""):
            words.append(f"{word} {value if isinstance(value, str) else format(value, 'g')}".strip())
    inside = ", ".join(words)
    return f"{name}({inside})" if name and inside else name or inside


def as_columns(identity: Identity, count: int) -> dict[str, list]:
    """Return the identity as record columns of `count` equal rows."""
    cell = {key.name: value for key in fields(Identity) if (value := getattr(identity, key.name)) != key.default}
    return {name: [value] * count for name, value in {**identity.heading, "cell": json.dumps(cell)}.items()}


def from_row(row: Mapping[str, object]) -> Identity:
    """Return the identity of a row of a record. Raises RecordError where the row's column cell holds none."""
    try:
        return Identity(**json.loads(row["cell"]))
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"column 'cell' does not say which model was measured ({error}): measure the model anew"
        ) from error


def model_fields(model) -> dict[str, object]:
    """Return the fields of an identity that the model section of a recipe decides, without those of word vectors. Of a
    model from sequences to sequences also its hidden size, by which a study tells models apart.
    """
    names = ("encoder", "hierarchy", "alignment", "projection", "readout")
    parameter = {"sparsegen": model.sparsegen_lambda, "entmax": model.entmax_alpha}.get(model.projection)
    fields = {**{name: getattr(model, name) for name in names}, "projection_parameter": parameter}
    if model.selector is not None:
        selector = model.selector
        fields |= {f"selection_{name}": getattr(selector, name) for name in ("kind", "budget", "threshold")}
        fields |= {"alignment": "selector", "projection": selector.kind, "projection_parameter": selector.budget}
    if model.type is not None:
        fields |= {"model": model.type, "readout": model.recurrence, "hidden_size": model.hidden_size}
    if model.pretrained is not None:  # its kind is read from its files, when it is trained
        fields["separate_impermissible"] = model.separate_impermissible
        fields["encoder"] = model.pretrained if model.revision is None else f"{model.pretrained}@{model.revision}"
    return fields


def objective_fields(recipe) -> dict[str, object]:
    """Return the fields of an identity about a model's objective."""
    objective, selection = recipe.objective, ("baseline", "sparsity", "coherence")
    fields = {
        "objective": objective.kind if recipe.model.type is None else "translation",
        "random_erasure": recipe.training.random_erasure,
        **vars(recipe.penalties),
        **{f"selection_{name}": getattr(recipe.selection, name) for name in selection},
        "selection_target": recipe.selection.share,
    }
    if objective.kind == "adversarial":
        fields |= {f"adversary_{name}": getattr(objective, name) for name in ("weight", "divergence", "frozen")}
    return fields


def training_fields(recipe, read: Callable) -> dict[str, object]:
    """Return `objective_fields`, and those of the run that the model is trained against. read: reads that run's recipe."""
    fields = objective_fields(recipe)
    if recipe.objective.base is None:
        return fields
    recipe = read(Path(recipe.objective.base) / RECIPE)
    base = Identity("", "", "", UNKNOWN_SEED, **model_fields(recipe.model), **objective_fields(recipe))
    return {**fields, "base": base.model_label, "base_penalties": ", ".join(base.penalties) or None}
