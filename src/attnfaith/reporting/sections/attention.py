"""Attention by itself: how evenly it is spread, and on which tokens it lies."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from attnfaith.metrics.attention_faithfulness.dispersion import normalised_entropy, share_of_zeros, support_size
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.figures import RANGES, drawing, ranges
from attnfaith.reporting.render import interval_in_words
from attnfaith.reporting.spec import Quantity, Section, per_cell
from attnfaith.stats import mean
from attnfaith.support.errors import counted


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
        if cell.has(f"{INPUTS_OF_STATES}_{kind}"):
            rows = [row.astype(np.float64) for row in cell.rows(f"{INPUTS_OF_STATES}_{kind}")]
            values[f"{kind} {INPUTS_OF_STATES}"] = np.array([mean(row[~np.isnan(row)]) for row in rows])
    return values


def entropies(cell: Cell) -> dict[str, np.ndarray]:
    """The entropies of `dispersion`, [N], by the label of their scores."""
    numbers = {name.removeprefix("entropy "): values for name, values in dispersion(cell).items() if name[:8] == "entropy "}
    labels = {name: "inputs of a state" if name == INPUTS_OF_STATES else measure_label(name) for name in numbers}
    return {labels[name]: values for name, values in numbers.items()}


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
    figure=drawing(
        "dispersion_by_scores",
        partial(ranges, bounds=(-0.02, 1.02)),
        "How evenly attention and importance are spread",
        entropies,
        "entropy of a text over its maximum (0: one token has all, 1: all have the same)",
        alt="Range of the entropy over its maximum in single texts, one line each.",
        caption=f"How evenly attention and importance are spread over the tokens of single texts ({RANGES}).",
    ),
)


def conicity(cell: Cell) -> dict[str, np.ndarray]:
    """conicity_absolute and conicity_signed: how alike a text's states are, -1..1; conicity_orthogonal, of as many
    orthogonal states; NaN below two tokens.
    """
    values = {name: cell.column(name) for name in ("conicity_absolute", "conicity_signed")}
    lengths = np.where(np.isnan(values["conicity_absolute"]), np.nan, cell.lengths)
    return {**values, "conicity_orthogonal": 1 / np.sqrt(lengths)}


CONICITY = Section(
    name="conicity",
    source="Mohankumar et al. (2020), section 3.1",
    place=46,
    needs=("conicity_absolute", "conicity_signed", "probs", "attention"),
    per_text=conicity,
    compared=("conicity_absolute", "conicity_signed"),
    by_class=True,
    quantities={
        "conicity_absolute": Quantity("absolute cosine"),
        "conicity_signed": Quantity("signed cosine"),
        "conicity_orthogonal": Quantity("of as many orthogonal states"),
    },
    caption="Conicity of states",
    note="Mean over the tokens of a text of the cosine between a token’s state and the mean of all, by its size (as in the "
    "code of Mohankumar et al.) and with its sign. 1: all states point one way, so that other weights give nearly the same "
    "sum; n orthogonal states of one length have 1/√n. Undefined: texts of fewer than two tokens.",
)


# ---------- where


MARKER_ATTENTION = Section(
    name="marker_attention",
    place=45,
    needs=("marker_attention", "probs"),
    by_class=True,
    quantities={"marker_attention": Quantity("share of attention on markers", above=0.5)},
    caption="Attention on markers",
    note="Share of attention that lies on no token of the text but on markers such as [CLS] and [SEP]. The rest, divided by "
    "its sum, is shown.",
    sentences=(
        "On average {marker_attention.mean:.0%} of the attention lies on markers{marker_attention.interval}, more than half "
        "in {marker_attention.share:.0%} of {marker_attention.texts}: the weights of tokens are parts of the rest.",
    ),
)

IMPERMISSIBLE, MARKERS, PUNCTUATION = "impermissible", "markers", "punctuation"


@per_cell
def group_mass(cell: Cell) -> dict[str, np.ndarray]:
    """How much of attention lies on groups of tokens, by group in lower case, [N] in 0..1.

    group_mass_<group>: NaN where a text has no token of the group, or no others. group_mass_head_max_<group>: of a model
    with many heads. group_tokens_<group>: the group's share of the tokens where the mass is defined; NaN of markers.
    group_whole_<group>: the mass over all texts with tokens, 0 where there is none of the group and 1 where there are no
    others, as published means have it.
    """
    columns = {name: cell.stacked(name) for name in ("group_mass", "group_mass_head_max") if cell.has(name)}
    shares = cell.stacked("group_mass_tokens") / np.where(cell.lengths > 0, cell.lengths, np.nan)[:, None]
    groups = cell.shared("group_mass_names")
    defined = ~np.isnan(columns["group_mass"])
    markers = np.array([name == MARKERS for name in groups])
    columns["group_tokens"] = np.where(defined & ~markers, shares, np.nan)
    columns["group_whole"] = np.where(defined, columns["group_mass"], np.minimum(shares, 1))
    return {
        f"{start}_{name.lower()}": values[:, place] for start, values in columns.items() for place, name in enumerate(groups)
    }


def _group_sentences(cell: Cell) -> Iterator[str]:
    rows = {row["quantity"]: row for row in GROUP_MASS.summary(cell)}
    for name, label in ((IMPERMISSIBLE, "impermissible tokens"), (PUNCTUATION, PUNCTUATION)):
        row = rows.get(f"group_mass_{name}")
        if row and row["n"]:
            yield (
                f"On average {row['mean']:.1%} of the attention lies on {label}{interval_in_words(row)}, which are "
                f"{rows[f'group_tokens_{name}']['mean']:.1%} of the tokens of {counted(row['n'])}."
            )
        elif row:
            yield f"No text has both {label} and other tokens, so that attention could choose between them."


GROUP_MASS = Section(
    name="group_mass",
    source="Pruthi et al. (2020), section 3; Mohankumar et al. (2020), section 5.4",
    place=47,
    needs=("group_mass_names", "group_mass", "group_mass_tokens", "attention"),
    uses=("group_mass_head_max",),
    per_text=group_mass,
    compared=("group_mass_*",),
    quantities={
        "group_mass_head_max_*": Quantity("attention on {}, in the head with most"),
        "group_mass_*": Quantity("attention on {}", above=0.5),
        "group_tokens_*": Quantity("share of tokens, {}"),
        "group_whole_*": Quantity("attention on {}, all texts"),
    },
    caption="Attention on groups of tokens",
    note="Sum of the weights on the tokens of a group, mean over the texts that have such tokens and others. All texts: 0 "
    "where there is no such token and 1 where there is no other, as published means have it. Of a model with many heads it "
    "is a share of the whole rows, markers included; the head with most: of each text by itself. Groups overlap. Little "
    "attention on impermissible tokens does not show that the model does without them: it may be trained to hide them.",
    sentences=_group_sentences,
)


@per_cell
def value_norm_share(cell: Cell) -> dict[str, np.ndarray]:
    """value_norm_share, the impermissible tokens' share of the length of all vectors, 0..1, and that in the head with most;
    value_norm_attention, the attention on the same tokens; value_norm_excess, the first less the second, -1..1. NaN where
    a text has no impermissible token, or no others.
    """
    columns = {name: cell.column(name) for name in ("value_norm_share", "value_norm_share_head_max") if cell.has(name)}
    shares = columns["value_norm_share"]
    pairs = zip(cell.attention, cell.rows("impermissible"), strict=True)
    weights = np.array([weights[np.asarray(marked, bool)].sum() for weights, marked in pairs], np.float64)
    attention = np.where(np.isnan(shares), np.nan, weights)
    return {**columns, "value_norm_attention": attention, "value_norm_excess": shares - attention}


VALUE_NORM_SHARE = Section(
    name="value_norm_share",
    source="the code of Pruthi et al. (2020)",
    place=48,
    needs=("value_norm_share", "impermissible", "probs", "attention"),
    uses=("value_norm_share_head_max",),
    per_text=value_norm_share,
    compared=("value_norm_share", "value_norm_excess"),
    by_class=True,
    quantities={
        "value_norm_share": Quantity("share of length"),
        "value_norm_share_head_max": Quantity("share of length in the head with most"),
        "value_norm_attention": Quantity("attention on them"),
        "value_norm_excess": Quantity("length less attention"),
    },
    caption="Length of impermissible tokens’ vectors",
    note="Sum of the lengths of the vectors that attention weighs, of impermissible tokens as a share of all; beside it the "
    "attention on them. Long vectors under little weight suggest that they are read all the same; they do not prove it. Of "
    "a model with many heads vectors are the heads’ values, markers included. Undefined: texts without impermissible "
    "tokens, or with no others.",
)
