"""What attention is like: how evenly it is spread, and where it lies."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.columns import flatten
from attnfaith.metrics.attention_faithfulness.dispersion import normalised_entropy, share_of_zeros, support_size
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.explanation_tests import column, shared, stacked
from attnfaith.reporting.figures import RANGES, ranges, ranges_in_words
from attnfaith.reporting.render import interval_in_words
from attnfaith.reporting.spec import Drawing, Quantity, Section, per_cell
from attnfaith.support.errors import counted


if TYPE_CHECKING:
    from matplotlib.figure import Figure

INPUTS_OF_STATES = "hidden_to_input"


# ---------- how evenly


@per_cell
def dispersion(cell: Cell) -> dict[str, np.ndarray]:
    """How evenly scores share out a text, [N] float64 each, NaN where undefined.

    For "attention" and each of the cell's measures: "entropy <scores>", entropy over its maximum, 0..1, undefined below two
    tokens and where all scores are zero; "support <scores>", tokens above zero; "zeros <scores>", share of tokens at zero,
    0..1. A text with a negative score is undefined in that measure. Where the cell has the columns, "entropy
    hidden_to_input" and "own hidden_to_input": mean over the states p of a text of the entropy of g_{h_p}, how far a state
    depends on each input, and of the share g_{h_p}(x_p) of its own input, both 0..1, over the states where they are defined.
    """
    values = {}
    for name in ("attention", *cell.measures):
        scores = [None if (row < 0).any() else row for row in cell.scores(name)]
        values[f"entropy {name}"] = normalised_entropy(scores)
        values[f"support {name}"] = support_size(scores)
        values[f"zeros {name}"] = share_of_zeros(scores)
    for kind in ("entropy", "own"):
        if (name := f"{INPUTS_OF_STATES}_{kind}") in cell.table.column_names:
            values[f"{kind} {INPUTS_OF_STATES}"] = _means_of_defined(records.rows(cell.table, name))
    return values


def _means_of_defined(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Mean of the numbers of each row that are not NaN, [N]; NaN where there is none."""
    values, layout = flatten(rows, INPUTS_OF_STATES)
    defined = ~np.isnan(values)
    counts = layout.sum(defined)
    return np.where(counts > 0, layout.sum(np.where(defined, values, 0)) / np.maximum(counts, 1), np.nan)


def entropies(cell: Cell) -> dict[str, np.ndarray]:
    """The entropies of `dispersion`, [N], by the label of their scores."""
    numbers = {name.removeprefix("entropy "): values for name, values in dispersion(cell).items() if name[:8] == "entropy "}
    return {"inputs of a state" if name == INPUTS_OF_STATES else measure_label(name): of for name, of in numbers.items()}


def dispersion_by_scores(cell: Cell) -> "Figure":
    """Entropy over its maximum in single texts: a line for attention, for each measure and for the inputs of states."""
    axis = "entropy of a text over its maximum (0: one token has all, 1: all have the same)"
    return ranges(cell, "How evenly attention and importance are spread", entropies(cell), (-0.02, 1.02), axis)


def _dispersion_words(cell: Cell) -> tuple[str, str]:
    alt = f"Range of the entropy over its maximum in single texts, one line each. {ranges_in_words(entropies(cell))}."
    return alt, f"How evenly attention and importance are spread over the tokens of single texts ({RANGES})."


DISPERSION = Section(
    name="dispersion",
    source="Meister et al. (2021), sections 3 and 4",
    place=40,
    needs=("attention",),
    uses=("importance_*", "hidden_to_input_entropy", "hidden_to_input_own"),
    per_text=dispersion,
    compared=(),
    quantities={
        "entropy hidden_to_input": Quantity("entropy of what a state depends on"),
        "own hidden_to_input": Quantity("share of its own token in what a state depends on"),
        "entropy *": Quantity("entropy of {}"),
        "support *": Quantity("tokens above zero, {}"),
        "zeros *": Quantity("share of tokens at zero, {}"),
    },
    caption="Dispersion of attention and importance",
    note="How evenly the tokens of a text share attention or importance: entropy over its maximum, 0 where one token has "
    "all and 1 where all have the same. Undefined: texts of fewer than two tokens, with all scores zero or with one below.",
    figures=(Drawing("dispersion_by_scores", dispersion_by_scores, _dispersion_words),),
)


def conicity(cell: Cell) -> dict[str, np.ndarray]:
    """conicity_absolute and conicity_signed: how alike a text's states are, -1..1; NaN below two tokens."""
    return {name: column(cell, name) for name in ("conicity_absolute", "conicity_signed")}


def _with_orthogonal(cell: Cell) -> dict[str, np.ndarray]:
    values = conicity(cell)
    lengths = np.where(np.isnan(values["conicity_absolute"]), np.nan, cell.lengths)
    return {**values, "conicity_orthogonal": 1 / np.sqrt(lengths)}


CONICITY = Section(
    name="conicity",
    source="Mohankumar et al. (2020), section 3.1",
    place=46,
    needs=("conicity_absolute", "conicity_signed", "probs", "attention"),
    per_text=_with_orthogonal,
    compared=("conicity_absolute", "conicity_signed"),
    by_class=True,
    quantities={
        "conicity_absolute": Quantity("absolute cosine"),
        "conicity_signed": Quantity("signed cosine"),
        "conicity_orthogonal": Quantity("of as many orthogonal states"),
    },
    caption="Conicity of states",
    note="Mean over the tokens of a text of the cosine between a token’s state and the mean of all, by its size (as in the "
    "code of Mohankumar et al.) and with its sign; markers and padding are left out. 1: all states point one way, so that "
    "other weights give nearly the same sum. It is never 0 of few tokens: n orthogonal states of one length have 1/√n. "
    "Undefined: texts of fewer than two tokens.",
    sentences=(
        "The conicity of a text’s states is {conicity_absolute.mean:.2f}{conicity_absolute.interval} on average over "
        "{conicity_absolute.texts}; as many orthogonal states would have {conicity_orthogonal.mean:.2f}. At 1 all point one "
        "way, and other weights would give nearly the same sum. It does not say which weights are right.",
    ),
)


# ---------- where


MARKER_ATTENTION = Section(
    name="marker_attention",
    place=45,
    needs=("marker_attention", "probs"),
    per_text=lambda cell: {"marker_attention": column(cell, "marker_attention")},
    by_class=True,
    quantities={"marker_attention": Quantity("share of attention on markers", above=0.5)},
    caption="Attention on markers",
    note="Share of the rows that are shown that lies on no token of the text but on markers such as [CLS] and [SEP]. What "
    "is shown of a text is the rest, divided by its sum.",
    sentences=(
        "On average {marker_attention.mean:.0%} of the attention that is shown lies on markers{marker_attention.interval}, "
        "more than half in {marker_attention.share:.0%} of {marker_attention.texts}: the weights of tokens are parts of the "
        "rest.",
    ),
)

GROUP_HEADS = "group_mass_head_max"
IMPERMISSIBLE, MARKERS, PUNCTUATION = "impermissible", "markers", "punctuation"


@per_cell
def group_mass(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """How much of attention lies on groups of tokens, {group: {number: [N] in 0..1}}.

    mass: NaN where a text has no token of the group, or no other. whole: the same over all texts that have tokens, 0 where
    there is none of the group and 1 where there is no other, as published means have it. tokens: the group's share of the
    tokens where the mass is defined; NaN of markers. head_max: of a model with many heads.
    """
    names = shared(cell, "group_mass_names")
    masses, token_counts = stacked(cell, "group_mass"), stacked(cell, "group_mass_tokens")
    heads = stacked(cell, GROUP_HEADS) if GROUP_HEADS in cell.table.column_names else None
    lengths = np.where(cell.lengths > 0, cell.lengths, np.nan)
    groups = {}
    for place, name in enumerate(names):
        mass, shares = masses[:, place], token_counts[:, place] / lengths
        groups[name] = {
            "mass": mass,
            "whole": np.where(np.isnan(mass), np.minimum(shares, 1), mass),
            "tokens": np.where(np.isnan(mass) | (name == MARKERS), np.nan, shares),
        }
        if heads is not None:
            groups[name]["head_max"] = heads[:, place]
    return groups


GROUP_NUMBERS = {"mass": "group_mass", "head_max": GROUP_HEADS, "tokens": "group_tokens", "whole": "group_whole"}


def _group_numbers(cell: Cell) -> dict[str, np.ndarray]:
    """group_mass_<group in lower case> of each text, and so on for the others of GROUP_NUMBERS."""
    groups = group_mass(cell)
    return {
        f"{start}_{name.lower()}": values[kind]
        for kind, start in GROUP_NUMBERS.items()
        for name, values in groups.items()
        if kind in values
    }


def _group_sentences(cell: Cell) -> Iterator[str]:
    rows = {row["quantity"]: row for row in GROUP_MASS.summary(cell)}
    for name, label in ((IMPERMISSIBLE, "impermissible tokens"), (PUNCTUATION, PUNCTUATION)):
        row = rows.get(f"group_mass_{name}")
        if row is None:
            continue
        if not row["n"]:
            yield f"No text has both {label} and other tokens, so that attention could choose between them."
            continue
        text = (
            f"On average {row['mean']:.1%} of the attention lies on {label}{interval_in_words(row)}, which are "
            f"{rows[f'group_tokens_{name}']['mean']:.1%} of the tokens of {counted(row['n'])}"
        )
        if f"{GROUP_HEADS}_{name}" in rows:
            text += f"; {rows[f'{GROUP_HEADS}_{name}']['mean']:.1%} in the head that has most there"
        yield f"{text}."
        if name == IMPERMISSIBLE:
            yield "Little attention on them does not say that the model does without them: it may be trained to hide them."


GROUP_MASS = Section(
    name="group_mass",
    source="Pruthi et al. (2020), section 3; Mohankumar et al. (2020), section 5.4",
    place=47,
    needs=("group_mass_names", "group_mass", "group_mass_tokens", "attention"),
    uses=(GROUP_HEADS,),
    per_text=_group_numbers,
    compared=("group_mass_*",),
    quantities={
        f"{GROUP_HEADS}_*": Quantity("attention on {}, in the head with most"),
        "group_mass_*": Quantity("attention on {}", above=0.5),
        "group_tokens_*": Quantity("share of tokens, {}"),
        "group_whole_*": Quantity("attention on {}, all texts"),
    },
    caption="Attention on groups of tokens",
    note="Sum of the weights on the tokens of a group, mean over the texts that have such tokens and others; undefined: the "
    "rest. All texts: 0 where there is no such token and 1 where there is no other, as published means have it. Of a model "
    "with many heads it is a share of the whole rows, of which markers take a part; the head with most: of each text, the "
    "one of those shown whose mass is largest. Groups overlap. Parts of speech are a tagger’s estimate.",
    sentences=_group_sentences,
)

NORM_HEADS = "value_norm_share_head_max"


@per_cell
def value_norm_share(cell: Cell) -> dict[str, np.ndarray]:
    """value_norm_share, the impermissible tokens' share of the length of all vectors, 0..1, and that in the head with most;
    value_norm_attention, the attention shown on the same tokens; value_norm_excess, the first less the second, -1..1. NaN
    where a text has no impermissible token, or no other.
    """
    shares, marks = column(cell, "value_norm_share"), records.rows(cell.table, "impermissible")
    shown = [weights[np.asarray(marked, bool)].sum() for weights, marked in zip(cell.attention, marks, strict=True)]
    attention = np.where(np.isnan(shares), np.nan, np.array(shown, np.float64))
    heads = {NORM_HEADS: column(cell, NORM_HEADS)} if NORM_HEADS in cell.table.column_names else {}
    return {"value_norm_share": shares, **heads, "value_norm_attention": attention, "value_norm_excess": shares - attention}


VALUE_NORM_SHARE = Section(
    name="value_norm_share",
    source="the code of Pruthi et al. (2020)",
    place=48,
    needs=("value_norm_share", "impermissible", "probs", "attention"),
    uses=(NORM_HEADS,),
    per_text=value_norm_share,
    compared=("value_norm_share", "value_norm_excess"),
    by_class=True,
    quantities={
        "value_norm_share": Quantity("share of length"),
        NORM_HEADS: Quantity("share of length in the head with most"),
        "value_norm_attention": Quantity("attention shown on them"),
        "value_norm_excess": Quantity("length less attention"),
    },
    caption="Length of impermissible tokens’ vectors",
    note="Sum of the lengths of the vectors that attention weighs, of impermissible tokens as a share of all; beside it the "
    "attention shown on them. Where the share of length is far above that of attention, a little weight is enough to carry "
    "them. Of a model with many heads vectors are the heads’ values, markers included. Undefined: texts without "
    "impermissible tokens, or with no other.",
    sentences=(
        "Impermissible tokens have {value_norm_share.mean:.1%} of the length of all vectors that attention weighs"
        "{value_norm_share.interval} and {value_norm_attention.mean:.1%} of the attention shown (means over "
        "{value_norm_share.texts}). Long vectors under little weight suggest that they are read all the same; they do not "
        "prove it.",
    ),
)
