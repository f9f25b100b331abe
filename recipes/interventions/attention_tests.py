"""Every test of attention as one number per text, and which way a number speaks against attention.

`suspect` is 1 where a larger number, -1 where a smaller one, is what one expects of attention that does not show what the
model uses. This is the one place where a test gets its direction, before anything is measured: a test whose numbers go the
other way is misled, and is not turned round. The numbers are those of a report's sections. N: texts of a cell.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attnfaith.metrics.attention_faithfulness.divergences import total_variation_distance
from attnfaith.reporting.cells import PREFIX, Cell, per_cell, readable
from attnfaith.reporting.sections import adversary, attention, changes, saliency

from ..shared import Number, Twins, pick


NO_TEST = ("random", "uniform")
"""Measures that know nothing of the model: attention's agreement with them is no test."""
LARGEST_ODDS = 16.0
"""Log-odds of a probability of 1 in single precision, whose next lower number is 1 - 6e-8."""


@dataclass(frozen=True)
class AttentionTest:
    """label: for reading. suspect: 1 or -1, as above. numbers: [N] of a cell with the column `needs`. kind: "control" is no
    test of attention. most: the largest difference that two models can have.
    """

    label: str
    suspect: int
    numbers: Number
    needs: str = "attention"
    kind: str = "test"
    most: float = 1.0


def from_uniform(cell: Cell) -> np.ndarray:
    """Total variation distance of attention from equal weights, 0..1; undefined below two tokens."""
    distances = [np.abs(row - 1 / len(row)).sum() / 2 if len(row) > 1 else np.nan for row in cell.attention]
    return np.array(distances, np.float64)


def first_token_weight(cell: Cell, measure: str) -> np.ndarray:
    """Attention on the token that a measure ranks first (the earlier one on ties), 0..1. Undefined below two tokens, and
    where the measure is undefined or equal on all of them.
    """
    weights = np.full(len(cell), np.nan)
    for row, (own, scores) in enumerate(zip(cell.attention, cell.scores(measure), strict=True)):
        if len(scores) > 1 and not np.isnan(scores).any() and np.ptp(scores) > 0:
            weights[row] = own[np.argmax(scores)]
    return weights


def smallest_set(cell: Cell) -> np.ndarray:
    """Share of the tokens in the smallest set of weights whose removal changes the decision; 1 where none does. Undefined
    below two tokens.
    """
    share = cell.column("minimal_flip_size") / np.maximum(cell.lengths, 1)
    return np.where(cell.lengths > 1, np.where(np.isnan(share), 1.0, share), np.nan)


def furthest_exact(cell: Cell) -> np.ndarray:
    """The epsilon-max JSD in nats at the smallest epsilon that was asked for; undefined below two tokens."""
    exact = [way for way in adversary.ways(cell) if way.method == "exact"]
    return min(exact, key=lambda way: way.epsilon).jsd if exact else np.full(len(cell), np.nan)


def over_random(test: str) -> Number:
    """A test by erasure of attention, less the same of random scores."""
    return lambda cell: _erased(cell)[test]["attention"] - _erased(cell)[test]["random"]


@per_cell
def _erased(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    return saliency.scores(cell, ("attention", "random"))


def impermissible_weight(cell: Cell) -> np.ndarray:
    """Attention on the impermissible tokens, 0..1; undefined where the text has none, or no others."""
    pairs = zip(cell.attention, cell.rows("impermissible"), strict=True)
    weights = [float(np.dot(row, marks)) if 0 < np.sum(marks) < len(marks) else np.nan for row, marks in pairs]
    return np.array(weights, np.float64)


def hidden_influence(cell: Cell) -> np.ndarray:
    """How far the prediction goes without the impermissible tokens (TVD), less attention on them. Undefined likewise."""
    return total_variation_distance(cell.probs, cell.stacked("permissible_only_probs")) - impermissible_weight(cell)


def punctuation_mass(cell: Cell) -> np.ndarray:
    """Attention on punctuation, 0..1. Undefined where a text has none, or nothing else."""
    return attention.group_mass(cell).get("group_mass_punctuation", np.full(len(cell), np.nan))


def confidence(cell: Cell) -> np.ndarray:
    """Log-odds of the predicted class, at most LARGEST_ODDS."""
    probability = cell.probs.max(axis=1).astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.minimum(np.log(probability) - np.log1p(-probability), LARGEST_ODDS)


def of_column(name: str) -> Number:
    return lambda cell: cell.column(name)


ERASED = "rationale_erasure_measures"
flips = pick(changes.erasure, "erasure_top_flips_attention")
moved = pick(changes.erasure, "erasure_delta_jsd_attention")
permuted = pick(changes.PERMUTATION.per_text, "permutation_tvd")
width = pick(adversary.identifiability, "identifiability_width")
permuted_maps = pick(changes.MAP_PERMUTATION.per_text, "map_permutation_tvd")
TESTS: Mapping[str, AttentionTest] = {
    "from_uniform": AttentionTest("attention: TVD from equal weights", -1, from_uniform),
    "permutation": AttentionTest("permuted weights: TVD", -1, permuted, "permuted_probs"),
    "adversary_exact": AttentionTest("exact adversary: JSD", 1, furthest_exact, "adversary_exact_jsd"),
    "erasure_flip": AttentionTest("largest weight erased: decision changes", -1, flips, "erasure_probs"),
    "erasure_jsd": AttentionTest("largest weight erased, less random: JSD", -1, moved, "erasure_probs", most=2),
    "minimal_flip_set": AttentionTest("smallest flipping set: share", 1, smallest_set, "minimal_flip_size"),
    "comprehensiveness": AttentionTest(
        "comprehensiveness, less random", -1, over_random("comprehensiveness"), ERASED, most=2
    ),
    "sufficiency": AttentionTest("sufficiency, less random", 1, over_random("sufficiency"), ERASED, most=2),
    "identifiability": AttentionTest("identifiability: width of the largest weight", 1, width, "identifiability_low"),
    "conicity": AttentionTest("conicity of the states", 1, of_column("conicity_absolute"), "conicity_absolute"),
    "punctuation": AttentionTest("attention on punctuation", 1, punctuation_mass, "group_mass"),
    "value_norm_share": AttentionTest("value norms on what is hidden", 1, of_column("value_norm_share"), "value_norm_share"),
    "hidden_influence": AttentionTest(
        "change without what is hidden, less attention on it", 1, hidden_influence, "permissible_only_probs", most=2
    ),
    "map_permutation": AttentionTest("permuted maps: TVD", -1, permuted_maps, "map_permuted_probs"),
    # what training asked for, which one needs the words for; and how sure the model is
    "impermissible": AttentionTest(
        "attention on what is to be hidden", -1, impermissible_weight, "impermissible", "control"
    ),
    "confidence": AttentionTest("log-odds of the predicted class", -1, confidence, kind="control", most=np.inf),
}
"""Every test and control that is not of one measure of importance; those are `tau_<measure>` and `first_<measure>`."""


def of_measure(name: str) -> dict[str, AttentionTest]:
    """The tests of attention by one measure: agreement with it, and of a measure of inputs attention on the token that it
    ranks first. Measures of states hold attention as a factor, and rank what is attended first.
    """
    label, needs = readable(name), PREFIX + name
    tests = {f"tau_{name}": AttentionTest(f"τ with {label}", -1, lambda cell: cell.tau("attention", name), needs, most=2)}
    if not name.endswith("_hidden"):
        tests[f"first_{name}"] = AttentionTest(
            f"attention on the first by {label}", -1, lambda cell: first_token_weight(cell, name), needs
        )
    return tests


def named(name: str) -> AttentionTest:
    """The test or control of a name."""
    return TESTS[name] if name in TESTS else of_measure(name.partition("_")[2])[name]


def tests_of(cell: Cell) -> dict[str, AttentionTest]:
    """The tests that a cell's columns allow, those by its measures first, and then the controls."""
    tests = {name: test for measure in cell.measures if measure not in NO_TEST for name, test in of_measure(measure).items()}
    tests |= {name: test for name, test in TESTS.items() if cell.has(test.needs)}
    erased = cell.has(ERASED) and {"attention", "random"} <= set(saliency.measures(cell))
    return {name: test for name, test in tests.items() if erased or test.needs != ERASED}


@per_cell
def numbers(cell: Cell) -> dict[str, np.ndarray]:
    """Every test and control of each text, {name: [N] float64}."""
    return {name: np.asarray(test.numbers(cell), np.float64) for name, test in tests_of(cell).items()}


def shared_tests(pair: Twins) -> dict[str, AttentionTest]:
    """The tests and controls that both models of a seed have."""
    both = [(tests_of(cell), tests_of(pair.changed[seed])) for seed, cell in pair.plain.items()]
    return {name: test for plain, changed in both for name, test in plain.items() if name in changed}


def values(pair: Twins, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A test of each text by the plain and by the changed models, [S, N] each."""
    return pair.values(pick(numbers, name))
