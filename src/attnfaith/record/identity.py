"""Which cell a row belongs to: one trained model, on one set of texts, in typed fields, and its labels for people."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property

from attnfaith.record.column import Column


HEADING = (
    "dataset",
    "texts",
    "training_texts",
    "split",
    "encoder",
    "alignment",
    "projection",
    "vectors",
    "objective",
    "seed",
)
"""Keys of `Identity.heading`: the columns that a table's rows begin with."""
UNKNOWN, UNKNOWN_SEED = "unknown", -1
"""What a field says that nobody knows of a model; of its seed."""
PENALTY_FIELDS = (
    *("impermissible_mass", "impermissible_heads", "diversity", "word_tying", "word_tying_distance", "word_tying_padding"),
    *("masked_language_model", "masked_share"),
)
"""The fields that say what was added to the loss."""


def _field(doc: str, default=MISSING):
    """A field of an identity with what its column says."""
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True)
class Identity:
    """One cell of a record; None where a field does not apply."""

    dataset: str = _field("name of the data set")
    texts: str = _field("fingerprint of the texts that were measured, 12 hexadecimal digits")
    split: str = _field("which part of the data set they are")
    seed: int = _field("seed of the training run; -1 where it is unknown")
    training_texts: str | None = _field("fingerprint of the texts that were trained on", None)
    model: str = _field("kind of model", "attention_classifier")
    encoder: str = _field("what makes states of tokens", "bilstm")
    hierarchy: str = _field("none, or sentence: words are read by sentence, sentences by document", "none")
    level: str = _field(
        "what attention is over: token, sentence, or word (of a hierarchical model, or summed over subwords)", "token"
    )
    alignment: str = _field("what makes a score of a state", "additive")
    score_scale: float | None = _field("standard deviation that the scores of a text are held at", None)
    projection: str = _field("what makes attention of scores", "softmax")
    projection_parameter: float | None = _field("lambda of sparsegen, alpha of entmax", None)
    separate_impermissible: bool | None = _field(
        "of a pretrained model, whether impermissible tokens and others attend to their own kind only", None
    )
    readout: str = _field("the decoder", "affine")
    vectors: str = _field("word vectors at the start: random or pretrained", "random")
    vectors_scale: float | None = _field("standard deviation of random vectors", None)
    vectors_digest: str | None = _field("digest of the file of pretrained vectors, 12 hexadecimal digits", None)
    tokenizer_digest: str | None = _field(
        "digest of the tokenizer that divided the texts, 12 hexadecimal digits; null: by words of the training texts", None
    )
    reduction: str | None = _field(
        "of many layers and heads, how they became the attention that is shown: mean, rollout or flow", None
    )
    reduction_layers: str | None = _field("the layers that were taken: last, all, or the number of one, from 0", None)
    reduction_head: int | None = _field("the head that was taken, from 0; null: the mean of all", None)
    objective: str = _field(
        "what the model was trained for: classification, untrained, adversarial, guided, or unknown", "classification"
    )
    attention_rate: float = _field("learning rate of the alignment over that of the rest", 1.0)
    random_erasure: float = _field("largest share of a text's words erased at a training step", 0.0)
    impermissible_mass: float = _field("weight of the penalty on attention to impermissible words", 0.0)
    impermissible_heads: str | None = _field("how it reads many heads: mean or max", None)
    diversity: float = _field("weight of the penalty on the conicity of the states", 0.0)
    word_tying: float = _field("weight of the penalty on the distance of states from word vectors", 0.0)
    word_tying_distance: str | None = _field("that distance: norm or squared", None)
    word_tying_padding: bool | None = _field("markers and padding are in its mean over tokens", None)
    masked_language_model: float = _field("weight of the penalty on masked words that states do not tell", 0.0)
    masked_share: float | None = _field("share of the words that were masked", None)
    adversary_weight: float | None = _field("weight of the divergence of attentions", None)
    adversary_divergence: str | None = _field("kl or jsd", None)
    adversary_frozen: bool | None = _field("only the alignment was trained", None)
    base_encoder: str | None = _field("encoder of the model that this one was trained against", None)
    base_hierarchy: str | None = _field("its hierarchy", None)
    base_alignment: str | None = _field("its alignment", None)
    base_score_scale: float | None = _field("its scale of scores", None)
    base_projection: str | None = _field("its projection", None)
    base_projection_parameter: float | None = _field("the parameter of its projection", None)
    base_objective: str | None = _field("its objective", None)
    base_impermissible_mass: float | None = _field("its weight of the penalty on attention to impermissible words", None)
    base_impermissible_heads: str | None = _field("how that read many heads", None)
    base_diversity: float | None = _field("its weight of the penalty on conicity", None)
    base_word_tying: float | None = _field("its weight of the penalty on the distance of states from word vectors", None)
    base_word_tying_distance: str | None = _field("that distance", None)
    base_word_tying_padding: bool | None = _field("whether markers and padding were in its mean", None)
    base_masked_language_model: float | None = _field("its weight of the penalty on masked words", None)
    base_masked_share: float | None = _field("share of its words that were masked", None)
    base_adversary_weight: float | None = _field("of an adversary, its weight", None)
    base_adversary_divergence: str | None = _field("of an adversary, its divergence", None)
    base_adversary_frozen: bool | None = _field("of an adversary, whether it was frozen", None)
    attention_kind: str = _field(
        "own; given: the attention of the base, in place of the model's; selection: what a selector gives tokens", "own"
    )
    selection_kind: str | None = _field(
        "of a model that reads a selection, its sampler: bernoulli, hardkuma or budget", None
    )
    selection_encoder: str | None = _field("what makes the states that tokens are selected by", None)
    selection_budget: float | None = _field("largest share of a text's tokens that may be selected; null: no bound", None)
    selection_contiguous: bool | None = _field("what is selected at test time is one window", None)
    selection_threshold: float | None = _field("what a token's value must be above to be selected at test time", None)
    selection_transition: float | None = _field(
        "of a budget, what two neighbours are worth more when both are selected", None
    )
    selection_temperature: float | None = _field("of a budget, what scores are divided by in training", None)
    selection_test_temperature: float | None = _field("the same at test time", None)
    selection_pooling: str | None = _field("what is made of the states of selected tokens: average, max or attention", None)
    selection_reads: str | None = _field("tokens that are not selected are zeroed or deleted", None)
    selection_vectors_shared: bool | None = _field("selector and classifier have the same word vectors", None)
    selection_baseline: str | None = _field("of bernoulli, what costs are compared with: none or moving_average", None)
    selection_sparsity: float | None = _field("of bernoulli, the price of a selected token", None)
    selection_coherence: float | None = _field("of bernoulli, the price of a change, in units of that", None)
    selection_target: float | None = _field("of hardkuma, the share of tokens that training aims at", None)
    selection_lasso: float | None = _field("of hardkuma, the number of changes a token that training aims at", None)
    selection_two_sided: bool | None = _field("of hardkuma, whether it is aimed at from below, too", None)

    @cached_property
    def heading(self) -> dict[str, object]:
        """What a table's rows begin with, by HEADING: labels for people. Nothing reads them back."""
        return {
            "dataset": self.dataset,
            "texts": self.texts,
            "training_texts": self.training_texts or UNKNOWN,
            "split": self.split,
            "encoder": encoder_label(self.encoder, self.hierarchy, self.level, self.tokenizer_digest),
            "alignment": alignment_label(
                self.alignment, self.score_scale, self.reduction_label or self.selection_label, self.separate_impermissible
            ),
            "projection": projection_label(self.projection, self.projection_parameter),
            "vectors": self.vectors_label,
            "objective": self.objective_label,
            "seed": self.seed,
        }

    @property
    def removal_renormalises(self) -> bool:
        """Whether projecting again without an item is dividing the other weights by their sum: what the subject said.

        Not at a fixed scale, which is that of the remaining scores, nor over words, whose sentences become others.
        """
        return self.projection in ("softmax", "uniform") and self.score_scale is None and self.level != "word"

    @property
    def reduction_label(self) -> str:
        """Such as "last layer", "all layers", "layer 3, head 5", "rollout"; "" where attention is one vector anyway."""
        if self.reduction is None:
            return ""
        if self.reduction != "mean":
            return self.reduction
        named = {"last": "last layer", "all": "all layers"}.get(self.reduction_layers, f"layer {self.reduction_layers}")
        return named if self.reduction_head is None else f"{named}, head {self.reduction_head}"

    @property
    def selection_label(self) -> str:
        """Such as "deleted", "transition 0.01, contiguous": how tokens are selected and read, where it is not as usual; ""
        where nothing is selected.
        """
        if self.selection_kind is None:
            return ""
        usual = 0.5 if self.selection_kind == "bernoulli" else 0.0
        parts = [] if self.selection_encoder == self.encoder else [self.selection_encoder]
        parts += [f"transition {self.selection_transition:g}"] if self.selection_transition else []
        parts += [] if self.selection_temperature is None else [f"temperature {self.selection_temperature:g}"]
        if self.selection_test_temperature != self.selection_temperature:
            parts.append(f"at test {self.selection_test_temperature:g}")
        parts += [] if self.selection_threshold == usual else [f"threshold {self.selection_threshold:g}"]
        parts += ["contiguous"] if self.selection_contiguous else []
        parts += [] if self.selection_reads == "zeroed" else [self.selection_reads]
        parts += [] if self.selection_pooling == "average" else [self.selection_pooling]
        return ", ".join(parts + ([] if self.selection_vectors_shared else ["vectors apart"]))

    @property
    def vectors_label(self) -> str:
        """Such as "random(0.25)"."""
        if self.vectors == "random":
            return "random" if self.vectors_scale is None else f"random({self.vectors_scale:g})"
        if self.vectors_digest is None:
            return self.vectors
        return f"{self.vectors}({self.vectors_digest})"

    @property
    def objective_label(self) -> str:
        """Such as "classification", "classification(attention rate x 10)", "classification(impermissible mass 0.1 mean)",
        "adversarial(kl, 0.002)", "guided(...)".
        """
        parts = []
        if self.objective == "adversarial":
            parts = _adversary_parts(self.adversary_weight, self.adversary_divergence, self.adversary_frozen)
            parts += [f"base {part}" for part in self._base_penalties]
        elif self.objective == "guided":
            parts = [self.base_label]
        parts += [] if self.attention_rate == 1 else [f"attention rate x {self.attention_rate:g}"]
        parts += [] if self.random_erasure == 0 else [f"tokens erased {self.random_erasure:g}"]
        parts += _penalty_parts({name: getattr(self, name) for name in PENALTY_FIELDS})
        parts += self._selection_parts
        return f"{self.objective}({', '.join(parts)})" if parts else self.objective

    @property
    def base_label(self) -> str:
        """The model that this one was trained against: its factors, or its objective where that was an adversary's."""
        if self.base_objective == "adversarial":
            parts = _adversary_parts(self.base_adversary_weight, self.base_adversary_divergence, self.base_adversary_frozen)
            return f"adversarial({', '.join(parts)})"
        return "+".join(
            (
                encoder_label(self.base_encoder, self.base_hierarchy),
                alignment_label(self.base_alignment, self.base_score_scale),
                projection_label(self.base_projection, self.base_projection_parameter),
                *self._base_penalties,
            )
        )

    @property
    def _selection_parts(self) -> list[str]:
        """Such as "sparsity 0.01", "coherence 2", "moving average"; "selected 0.13", "lasso 0.02", "two-sided"."""
        parts = [] if self.selection_sparsity is None else [f"sparsity {self.selection_sparsity:g}"]
        parts += [] if self.selection_coherence is None else [f"coherence {self.selection_coherence:g}"]
        parts += ["moving average"] if self.selection_baseline == "moving_average" else []
        parts += [] if self.selection_target is None else [f"selected {self.selection_target:g}"]
        parts += [] if self.selection_lasso is None else [f"lasso {self.selection_lasso:g}"]
        return parts + (["two-sided"] if self.selection_two_sided else [])

    @property
    def _base_penalties(self) -> list[str]:
        return _penalty_parts({name: getattr(self, f"base_{name}") for name in PENALTY_FIELDS})


def _adversary_parts(weight: float, divergence: str, frozen: bool) -> list[str]:
    return [divergence, f"{weight:g}", *(["frozen"] if frozen else [])]


def _penalty_parts(of: Mapping[str, object]) -> list[str]:
    """Such as "impermissible mass 0.1 mean", "diversity 0.5": the penalties of a training, by PENALTY_FIELDS."""
    stated = {
        "impermissible_mass": of["impermissible_heads"],
        "diversity": None,
        "word_tying": f"{of['word_tying_distance']}{' with padding' if of['word_tying_padding'] else ''}",
        "masked_language_model": of["masked_share"] and f"share {of['masked_share']:g}",
    }
    return [
        " ".join(filter(None, (name.replace("_", " "), f"{of[name]:g}", how))) for name, how in stated.items() if of[name]
    ]


def encoder_label(encoder: str, hierarchy: str, level: str = "sentence", tokenizer_digest: str | None = None) -> str:
    """Such as "bigru", "bigru(sentence)", "bigru(sentence, words)", "bigru(tokenizer 0123456789ab)"."""
    parts = [] if hierarchy == "none" else [hierarchy, *(["words"] if level == "word" else [])]
    parts += [f"tokenizer {tokenizer_digest}"] if tokenizer_digest else []
    return f"{encoder}({', '.join(parts)})" if parts else encoder


def alignment_label(alignment: str, score_scale: float | None, reduction: str = "", separate: bool | None = None) -> str:
    """Such as "additive", "additive(scale 1)", "dot(last layer)", "dot(last layer, impermissible apart)"."""
    parts = [] if score_scale is None else [f"scale {score_scale:g}"]
    parts += [reduction] if reduction else []
    parts += ["impermissible apart"] if separate else []
    return f"{alignment}({', '.join(parts)})" if parts else alignment


def projection_label(projection: str, parameter: float | None) -> str:
    """Such as "softmax", "sparsegen(0.5)"."""
    return projection if parameter is None else f"{projection}({parameter:g})"


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
IDENTITY_COLUMNS = {
    **{name: Column(dtype="int64" if name == "seed" else "category", doc=doc) for name, doc in LABELS.items()},
    "cell": Column(dtype="category", doc="all fields of `attnfaith.record.Identity` that are not its defaults, as JSON"),
}
"""How a record names a cell: labels for people, and the fields that tell it from any other."""


def as_columns(identity: Identity, count: int) -> dict[str, list]:
    """The identity as record columns of `count` equal rows."""
    cell = {key.name: value for key in fields(Identity) if (value := getattr(identity, key.name)) != key.default}
    return {name: [value] * count for name, value in {**identity.heading, "cell": json.dumps(cell)}.items()}


def from_row(row: Mapping[str, object]) -> Identity:
    """The identity that a row of a record holds, whatever else is in it."""
    return Identity(**json.loads(row["cell"]))
