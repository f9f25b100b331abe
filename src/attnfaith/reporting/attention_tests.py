"""What each test of attention says of one text, as one number, and which way a number speaks against attention.

This is the one place where a test gets its direction. `suspect` is 1 where a larger number, -1 where a smaller one, is what
one expects of attention that does not show what the model uses. It is declared before anything is measured: a test whose
numbers go the other way is misled, and is not turned round.

The numbers are those of the sections of a report; N: texts of a cell, NaN: undefined.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.divergences import total_variation_distance
from attnfaith.metrics.attention_faithfulness.plausibility import average_precision
from attnfaith.reporting import explanation_tests
from attnfaith.reporting.cells import PREFIX, Cell, measure_label
from attnfaith.reporting.erased_weights import single_weight
from attnfaith.reporting.explanation_tests import column
from attnfaith.reporting.sections import adversary, group_mass, identifiability, map_interventions, permutation
from attnfaith.reporting.spec import per_cell


NO_TEST = ("random", "uniform")
"""Measures that know nothing of the model: attention's agreement with them is no test."""
LARGEST_ODDS = 16.0
"""Log-odds of a probability of 1 in single precision, whose next lower number is 1 - 6e-8."""


@dataclass(frozen=True)
class AttentionTest:
    """label: for reading. suspect: 1 or -1, as above. numbers: [N] of a cell that has the columns `needs`."""

    label: str
    suspect: int
    numbers: Callable[[Cell], np.ndarray]
    needs: tuple[str, ...] = ()


def from_uniform(cell: Cell) -> np.ndarray:
    """Total variation distance of attention from equal weights, 0..1; undefined below two tokens."""
    distances = [np.abs(row - 1 / len(row)).sum() / 2 if len(row) > 1 else np.nan for row in cell.attention]
    return np.array(distances, np.float64)


def first_token_weight(cell: Cell, measure: str) -> np.ndarray:
    """Attention on the token that a measure ranks first (the earlier one on ties), 0..1: of a signed measure the strongest
    evidence for the class. Undefined below two tokens, and where the measure is undefined or equal on all of them.
    """
    weights = np.full(len(cell), np.nan)
    for row, (attention, scores) in enumerate(zip(cell.attention, cell.scores(measure), strict=True)):
        if len(scores) > 1 and not np.isnan(scores).any() and np.ptp(scores) > 0:
            weights[row] = attention[np.argmax(scores)]
    return weights


def smallest_set(cell: Cell) -> np.ndarray:
    """Share of the tokens in the smallest set of weights whose removal changes the decision, 0..1; 1 where none does.
    Undefined below two tokens.
    """
    share = column(cell, "minimal_flip_size") / np.maximum(cell.lengths, 1)
    return np.where(cell.lengths > 1, np.where(np.isnan(share), 1.0, share), np.nan)


def furthest_exact(cell: Cell) -> np.ndarray:
    """The epsilon-max JSD in nats at the smallest epsilon that was asked for; undefined below two tokens."""
    exact = [way for way in adversary.ways(cell) if way.method == "exact"]
    return min(exact, key=lambda way: way.epsilon).jsd if exact else np.full(len(cell), np.nan)


def over_random(cell: Cell, test: str) -> np.ndarray:
    """What a test by erasure says of attention, less what it says of random scores."""
    numbers = _erased(cell)[test]
    return numbers["attention"] - numbers["random"]


@per_cell
def _erased(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    return explanation_tests.scores(cell, ("attention", "random"))


def impermissible_weight(cell: Cell) -> np.ndarray:
    """Attention on the impermissible tokens, 0..1; undefined where the text has none, or no others."""
    return np.array(
        [
            float(np.dot(weights, marks)) if 0 < np.sum(marks) < len(marks) else np.nan
            for weights, marks in zip(cell.attention, records.rows(cell.table, "impermissible"), strict=True)
        ],
        np.float64,
    )


def hidden_influence(cell: Cell) -> np.ndarray:
    """How far the prediction goes without the impermissible tokens (TVD), less attention on them. Undefined likewise."""
    probs = explanation_tests.stacked(cell, "permissible_only_probs")
    weights = impermissible_weight(cell)
    known = ~np.isnan(probs).any(axis=1) & ~np.isnan(weights)
    influence = np.full(len(cell), np.nan)
    if known.any():
        influence[known] = total_variation_distance(cell.probs[known], probs[known]) - weights[known]
    return influence


def punctuation_mass(cell: Cell) -> np.ndarray:
    """Attention on punctuation, 0..1. Undefined where a text has none, or nothing else."""
    groups = group_mass.by_group(cell)
    return groups["punctuation"]["mass"] if "punctuation" in groups else np.full(len(cell), np.nan)


def confidence(cell: Cell) -> np.ndarray:
    """Log-odds of the predicted class, at most LARGEST_ODDS."""
    probability = cell.probs.max(axis=1).astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.minimum(np.log(probability) - np.log1p(-probability), LARGEST_ODDS)


MAPS, ERASED = ("map_permuted_probs", "map_uniform_probs"), explanation_tests.NEEDS
ADVERSARY = tuple(f"adversary_exact_{name}" for name in ("epsilon", "jsd", "bound", "one_token", "certainty"))
ERASURE = ("erasure_probs", "erasure_gradient", "erasure_order")
TESTS: Mapping[str, AttentionTest] = {
    "from_uniform": AttentionTest("attention: TVD from equal weights", -1, from_uniform),
    "permutation": AttentionTest(
        "permuted weights: TVD", -1, lambda cell: permutation.per_text(cell)["permutation_tvd"], ("permuted_probs",)
    ),
    "adversary_exact": AttentionTest("exact adversary: JSD", 1, furthest_exact, ADVERSARY),
    "erasure_flip": AttentionTest(
        "largest weight erased: decision changes",
        -1,
        lambda cell: single_weight(cell, "attention").top_flips,
        ERASURE,
    ),
    "erasure_jsd": AttentionTest(
        "largest weight erased, less random: JSD",
        -1,
        lambda cell: single_weight(cell, "attention").delta,
        ERASURE,
    ),
    "minimal_flip_set": AttentionTest("smallest flipping set: share", 1, smallest_set, ("minimal_flip_size",)),
    "comprehensiveness": AttentionTest(
        "comprehensiveness, less random", -1, lambda cell: over_random(cell, "comprehensiveness"), ERASED
    ),
    "sufficiency": AttentionTest("sufficiency, less random", 1, lambda cell: over_random(cell, "sufficiency"), ERASED),
    "identifiability": AttentionTest(
        "identifiability: width of the largest weight",
        1,
        lambda cell: identifiability.per_text(cell)["identifiability_width"],
        identifiability.SECTION.needs,
    ),
    "conicity": AttentionTest(
        "conicity of the states", 1, lambda cell: column(cell, "conicity_absolute"), ("conicity_absolute",)
    ),
    "punctuation": AttentionTest(
        "attention on punctuation", 1, punctuation_mass, ("group_mass_names", "group_mass", "group_mass_tokens")
    ),
    "value_norm_share": AttentionTest(
        "value norms on what is hidden", 1, lambda cell: column(cell, "value_norm_share"), ("value_norm_share",)
    ),
    "hidden_influence": AttentionTest(
        "change without what is hidden, less attention on it",
        1,
        hidden_influence,
        ("permissible_only_probs", "impermissible"),
    ),
    "plausibility": AttentionTest(
        "plausibility: average precision",
        -1,
        lambda cell: average_precision(cell.attention, records.rows(cell.table, "rationale")),
        ("rationale",),
    ),
    "map_permutation": AttentionTest(
        "permuted maps: TVD", -1, lambda cell: map_interventions.per_text(cell)["map_permutation_tvd"], MAPS[:1]
    ),
    "map_uniform": AttentionTest(
        "uniform maps: TVD", -1, lambda cell: map_interventions.per_text(cell)["map_uniform_tvd"], MAPS[1:]
    ),
}
"""Every test that is not of one measure of importance; those are `tau_<measure>` and `first_<measure>`."""
CONTROLS: Mapping[str, AttentionTest] = {
    "impermissible": AttentionTest("attention on what is to be hidden", -1, impermissible_weight, ("impermissible",)),
    "confidence": AttentionTest("log-odds of the predicted class", -1, confidence),
}
"""No tests of attention: what training asked for, which one needs the words for; and how sure the model is."""


USES = ("importance_*", "impermissible", *{name: None for test in TESTS.values() for name in test.needs})
"""Every column that a test or control may read beside those that each record has."""


def of_measure(name: str) -> dict[str, AttentionTest]:
    """The tests of attention by one measure: agreement with it, and of a measure of inputs attention on the token that it
    ranks first. Measures of states hold attention as a factor, and rank what is attended first.
    """
    label, needs = measure_label(name), (PREFIX + name,)
    tests = {f"tau_{name}": AttentionTest(f"τ with {label}", -1, lambda cell: cell.tau("attention", name), needs)}
    if not name.endswith("_hidden"):
        tests[f"first_{name}"] = AttentionTest(
            f"attention on the first by {label}", -1, lambda cell: first_token_weight(cell, name), needs
        )
    return tests


def tests_of(cell: Cell) -> dict[str, AttentionTest]:
    """The tests that a cell's columns allow: those by its measures first."""
    held = set(cell.table.column_names)
    by_measure = {
        name: test for measure in cell.measures if measure not in NO_TEST for name, test in of_measure(measure).items()
    }
    named = {name: test for name, test in TESTS.items() if set(test.needs) <= held}
    if not set(ERASED) <= held or not {"attention", "random"} <= set(explanation_tests.measures(cell)):
        named = {name: test for name, test in named.items() if test.needs != ERASED}
    return by_measure | named


def controls_of(cell: Cell) -> dict[str, AttentionTest]:
    """The controls that a cell's columns allow."""
    return {name: test for name, test in CONTROLS.items() if set(test.needs) <= set(cell.table.column_names)}


@per_cell
def numbers(cell: Cell) -> dict[str, np.ndarray]:
    """What every test and control says of each text, [N] float64, NaN undefined."""
    every = tests_of(cell) | controls_of(cell)
    return {name: np.asarray(test.numbers(cell), np.float64) for name, test in every.items()}


def named(name: str) -> AttentionTest:
    """The test or control of a name."""
    every = {**TESTS, **CONTROLS}
    return every[name] if name in every else of_measure(name.partition("_")[2])[name]
