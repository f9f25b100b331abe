"""Which claims of Meister et al. (2021) hold in the records of a study, by data set, model, measure and projection.

A verdict is reached from 95 % intervals over seeds and texts; where seeds fall apart or all give one number there is none,
and all seeds must lie on one side. "holds here", "does not hold here": the interval lies on one side of a bound.
"undecided here": it lies on both, or (3a, 4b) lambda does not clearly shrink the support. "artefact of ties": met, and no
longer shown to be once ties are taken away. "artefact of the construction": met, and not shown to be met better than by what
needs no training. Claims that nothing changes have a margin: otherwise many texts would refute, and few would prove, any of
them. No correction is made for judging many claims.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from attnfaith.reporting.cells import measure_label
from attnfaith.stats import Estimate, seeds_in_words

from .models import Levels, Model, Panel, minus, moves_at_all, rank_correlation, slope
from .numbers import INPUTS
from .tables import Published


CLAIMS = {
    "1": "An encoder state depends on many inputs, not on its own token alone (Table 1)",
    "2": "Sparse attention does not make states depend on fewer inputs (Table 1)",
    "3a": "The importance of inputs is spread more evenly as attention gets sparser (the sentence on Table 2)",
    "3b": "Lambda and the entropy of the importance of inputs are negatively correlated (the numbers of Table 2)",
    "4a": "Attention agrees with the importance of inputs no better under sparsemax than under softmax "
    "(Table 6, upper half)",
    "4b": "Attention agrees with the importance of inputs less as it gets sparser (Figure 3)",
    "5a": "Attention agrees with the importance of states better than with that of inputs (Table 6)",
    "5b": "Attention agrees with the importance of states better when it is sparse (Table 6, lower half)",
    "6": "Sparse attention has adversaries too: other attention, as good a model (Table 5)",
    "7": "Sparse attention costs no accuracy (what the comparisons take for granted)",
}
HOLDS, FAILS, UNDECIDED = "holds here", "does not hold here", "undecided here"
TIES, CONSTRUCTION, MISSING = "artefact of ties", "artefact of the construction", "not measured"
VERDICTS = (HOLDS, FAILS, UNDECIDED, TIES, CONSTRUCTION, MISSING)
DENSE, SPARSE, CHANGE, ALL = "softmax", "sparsemax", "sparsemax − softmax", "all lambdas"
MARGIN, ACCURACY_MARGIN, HALF, FAR = 0.05, 0.02, 0.5, float(np.log(2) / 2)
STATES_AND_INPUTS = {"gradient_norm_hidden": "gradient_norm", "leave_one_out_reproject_hidden": "leave_one_out"}
CASE = ["claim", "dataset", "model", "vectors", "projection", "measure"]

NOTHING = {"statistic": "", "n_seeds": 0, "n": 0}
Finding = tuple[str, str, str, str, list[dict]]
"""Claim, projection, measure, verdict, and the numbers that decide it: first the one that the rule names."""


def mean_of(statistic: str, panel: Panel) -> dict:
    """The mean of a panel of one level, with its interval."""
    counts = {"n_seeds": int(panel.n_seeds[0]), "n": int(panel.n[0])}
    return {"statistic": statistic} | _number(panel.estimate(0), panel.by_seed[0]) | counts


def over_lambdas(statistic: str, take: Callable, levels: Levels, panel: Panel) -> dict:
    """The slope or rank correlation of the means of the filled levels, taken in each seed, with its interval."""
    means = np.where(panel.filled, panel.by_seed.T, np.nan)
    return levels.counted(panel) | {"statistic": statistic} | _number(panel.trend(levels.x, take), take(levels.x, means))


def _number(estimate: Estimate, by_seed: np.ndarray) -> dict:
    """A number with its interval. seeds: in place of an interval where there is none, how many are above 0, and each. ends:
    what a verdict is reached from, the ends of the interval or, without one, of the seeds.
    """
    by_seed = by_seed[~np.isnan(by_seed)]
    number = dict(zip(("value", "ci_low", "ci_high"), estimate[:3], strict=True))
    if not np.isnan(estimate.ci_low) or not len(by_seed):
        return number | {"seeds": "", "ends": estimate[1:3]}
    return number | {"seeds": seeds_in_words(by_seed, 0), "ends": (by_seed.min(), by_seed.max())}


def above(number: dict, bound: float = 0.0) -> str:
    low, high = number["ends"]
    return HOLDS if low > bound else FAILS if high < bound else UNDECIDED


def below(number: dict, bound: float = 0.0) -> str:
    low, high = number["ends"]
    return HOLDS if high < bound else FAILS if low > bound else UNDECIDED


def change(model: Model, name: str) -> Panel | None:
    """A number under sparsemax less that under softmax; None where one is missing."""
    return minus(model.at(SPARSE)(name), model.at(DENSE)(name))


def judge(model: Model) -> Iterator[Finding]:
    own, entropy, accuracy = "share of a state's own token", "difference of the entropy", "difference of accuracy"
    for claim, projection, statistic, panel, rule, bound in (
        ("1", DENSE, own, model.at(DENSE)("hidden_to_input_own"), below, HALF),
        ("1", SPARSE, own, model.at(SPARSE)("hidden_to_input_own"), below, HALF),
        ("2", CHANGE, entropy, change(model, "hidden_to_input_entropy"), above, -MARGIN),
        ("7", CHANGE, accuracy, change(model, "accuracy"), above, -ACCURACY_MARGIN),
    ):
        if panel is not None:
            number = mean_of(statistic, panel)
            yield claim, projection, "", rule(number, bound), [number]
    for measure in INPUTS:
        yield from over_the_sweep(model, measure)
        yield from between_its_ends(model, measure)
    for measure, inputs in STATES_AND_INPUTS.items():
        yield from of_states(model, measure, inputs)
    yield from of_adversaries(model)


def over_the_sweep(model: Model, measure: str) -> Iterator[Finding]:
    """3a, 3b and 4b: lambda and the entropy of importance are positively, negatively correlated; tau falls with lambda, an
    artefact of ties where it falls no faster than for softmax attention cut to the same support (without softmax: where tau
    over its ceiling does not fall). 3a and 4b are undecided where lambda does not make attention sparser.
    """
    levels = model.lambdas()
    entropy, tau, support = (levels(name) for name in (f"entropy_{measure}", f"tau_{measure}", "support"))
    if not moves_at_all(support):
        return
    shrinks = over_lambdas("Kendall's tau of lambda and support size", rank_correlation, levels, support)
    sparser = shrinks["ends"][1] < 0
    if moves_at_all(entropy):
        number = over_lambdas("Kendall's tau of lambda and entropy", rank_correlation, levels, entropy)
        yield "3a", ALL, measure, *((above(number), [number]) if sparser else (UNDECIDED, [number, shrinks]))
        yield "3b", ALL, measure, below(number), [number]
    if moves_at_all(tau):
        fall = over_lambdas("slope of tau per decade", slope, levels, tau)
        statistic, left = "slope of tau less that of softmax so cut", minus(tau, levels(f"cut_tau_{measure}"))
        if not moves_at_all(left):
            statistic, left = "slope of tau over its ceiling", levels(f"tau_over_ceiling_{measure}")
        beyond = over_lambdas(statistic, slope, levels, left)
        verdict = (TIES, [fall, beyond]) if below(fall) == HOLDS != below(beyond) else (below(fall), [fall])
        yield "4b", ALL, measure, *(verdict if sparser else (UNDECIDED, [fall, shrinks]))


def between_its_ends(model: Model, measure: str) -> Iterator[Finding]:
    """4a: sparsemax raises tau by less than the margin; an artefact of ties where it does against softmax so cut."""
    if (rise := change(model, f"tau_{measure}")) is not None:
        numbers, sparse = [mean_of("difference of tau", rise)], model.at(SPARSE)
        verdict, beyond = below(numbers[0], MARGIN), minus(sparse(f"tau_{measure}"), sparse(f"cut_tau_{measure}"))
        if verdict == HOLDS and beyond is not None:
            number = mean_of("difference of tau to softmax cut to the same support", beyond)
            if below(number, MARGIN) == FAILS:
                verdict, numbers = TIES, [*numbers, number]
        yield "4a", CHANGE, measure, verdict, numbers


def of_states(model: Model, measure: str, inputs: str) -> Iterator[Finding]:
    """5a, 5b: tau with states is above that with inputs; sparsemax raises it. Both against what needs no training."""
    nulls = {}
    for end in (DENSE, SPARSE):
        level = model.at(end)
        untrained = model.at(end, trained=False)(f"tau_{measure}")
        nulls[end] = {"random places": level(f"random_tau_{measure}"), "an untrained model": untrained}
        if (excess := minus(level(f"tau_{measure}"), level(f"tau_{inputs}"))) is not None:
            number = mean_of(f"tau less that with {measure_label(inputs)} of inputs", excess)
            beyond = {name: minus(level(f"tau_{measure}"), null) for name, null in nulls[end].items()}
            yield "5a", end, measure, *_against_nulls(number, beyond, "tau")
    if (rise := change(model, f"tau_{measure}")) is not None:
        beyond = {name: minus(rise, minus(nulls[SPARSE][name], null)) for name, null in nulls[DENSE].items()}
        yield "5b", CHANGE, measure, *_against_nulls(mean_of("difference of tau", rise), beyond, "difference of tau")


def _against_nulls(number: dict, beyond: dict[str, Panel | None], name: str) -> tuple[str, list[dict]]:
    """An artefact of the construction where the claim holds and something that needs no training is not exceeded."""
    nulls = [mean_of(f"{name} less that of {null}", panel) for null, panel in beyond.items() if panel is not None]
    reached = [null for null in nulls if above(null) != HOLDS] if above(number) == HOLDS else []
    return CONSTRUCTION if reached else above(number), [number, *reached]


def of_adversaries(model: Model) -> Iterator[Finding]:
    """6: the divergence is above half of its maximum, and accuracy falls by less than its margin."""
    for levels in model.adversaries():
        head, jsd = levels.heads[0], levels("jsd")
        loss = minus(levels("accuracy"), model.at(head["projection"])("accuracy"))
        if head["projection"] not in (DENSE, "uniform") and jsd is not None and loss is not None:
            numbers = [mean_of("JSD to the base's attention (nats)", jsd), mean_of("difference of accuracy", loss)]
            both = {above(numbers[0], FAR), above(numbers[1], -ACCURACY_MARGIN)}
            verdict = next(name for name in (FAILS, UNDECIDED, HOLDS) if name in both)
            label = f"{head['training']}, weight {head['weight']:g} on {head['divergence'].upper()}"
            yield "6", head["projection"], label, verdict, numbers


def claims(groups: Sequence[Model], published: Published) -> pd.DataFrame:
    """One row per CASE and number that decides its verdict, first the one that the claim's rule names.

    n: texts with a value, summed over n_seeds seeds and over lambdas. Where nothing was measured, for models of the
    published table too, the row holds the verdict alone.
    """
    findings = {(model.heading["dataset"], model.name, model.heading["vectors"]): list(judge(model)) for model in groups}
    never = {(dataset, f"{encoder} + {alignment}", ""): [] for dataset, encoder, alignment, *_ in published if encoder}
    measured = {names[:2] for names in findings}
    findings |= {names: [] for names in never if names[:2] not in measured}
    rows = []
    for claim in CLAIMS:
        for names, cases in findings.items():
            mine = [case for case in cases if case[0] == claim] or [(claim, "", "", MISSING, [NOTHING])]
            for _, projection, measure, verdict, numbers in mine:
                head = dict(zip(CASE, (claim, *names, projection, measure), strict=True))
                rows += [head | {"verdict": verdict} | number for number in numbers]
    columns = [*CASE, "verdict", "statistic", "value", "ci_low", "ci_high", "seeds", "n_seeds", "n"]
    return pd.DataFrame(rows).reindex(columns=columns)
