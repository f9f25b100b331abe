"""Which claims of Meister et al. (2021) hold in the records of a study, by stated rules, and the summary in words.

A claim is judged for each data set x model, and where it speaks of several measures of importance for each measure. Numbers
and their 95 % intervals are those of `numbers`. A verdict is reached from intervals alone:

* "holds here", "does not hold here": the interval lies on one side of the bound that the claim's rule names
* "undecided here": it lies on both
* "artefact of ties": the rule is met, and no longer shown to be once ties are taken away
* "artefact of the construction": the rule is met, and not shown to be met better than by what needs no training
* "not measured": the cells it needs are missing

Claims that nothing changes are held to a margin: .05 of entropy or tau, .02 of accuracy. Otherwise many texts would refute,
and few would prove, any of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.stats import Panel

from .evidence import (
    DENSE,
    FAILS,
    HOLDS,
    NO_EVIDENCE,
    SPARSE,
    UNDECIDED,
    Evidence,
    above,
    difference_of,
    mean_of,
    one_level,
    opposite,
    over_levels,
    pair_of_ends,
    sweep_of,
    untrained,
)
from .models import IDENTITY, Model, model_names
from .numbers import (
    INPUTS,
    attention_divergence,
    correct,
    entropy,
    over_states,
    random_support_tau,
    support,
    tau,
    tau_of_ties_alone,
    tau_over_ceiling,
)
from .sweep import is_adversary, score_scale
from .trends import rank_correlation, slope


TIES, CONSTRUCTION, MISSING = "artefact of ties", "artefact of the construction", "not measured"
VERDICTS = (HOLDS, FAILS, TIES, CONSTRUCTION, UNDECIDED, MISSING)
MARGIN, ACCURACY_MARGIN, HALF = 0.05, 0.02, 0.5
FAR = float(np.log(2) / 2)
"""Nats: half of what a Jensen-Shannon divergence can reach."""
STATES_AND_INPUTS = {"gradient_norm_hidden": "gradient_norm", "leave_one_out_reproject_hidden": "leave_one_out"}
"""The paper's measures of states, and the measure of inputs that is taken in the same way."""
CLAIM_COLUMNS = (
    "claim",
    "dataset",
    "model",
    "projection",
    "measure",
    "verdict",
    "statistic",
    "decides",
    "value",
    "ci_low",
    "ci_high",
    "n_seeds",
    "n",
    "published",
)
CHANGE, SWEEP = "sparsemax − softmax", "all lambdas"


@dataclass(frozen=True)
class Finding:
    """What one claim comes to for one model, projection and measure. The verdict rests on the first piece of evidence, the
    rule's own, and on those of `also`.
    """

    projection: str
    measure: str
    verdict: str
    evidence: list[Evidence]
    also: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Claim:
    """number: as in the summary. sentence: what the paper says. rule: what decides. judge: its findings for a model."""

    number: str
    sentence: str
    rule: str
    judge: Callable[[Model], Iterator[Finding]] = field(repr=False)


# ---------------------------------------------------------------------------------------------------------- claims


def _own_token(model: Model) -> Iterator[Finding]:
    for projection in (DENSE, SPARSE):
        own = one_level(model, model.projection(projection), over_states, "hidden_to_input_own")
        if own is None:
            continue
        own_share = mean_of("share of a state's own token", own)
        evidence = [own_share]
        for name, cells in (("", model.projection(projection)), (" before training", untrained(model, projection))):
            panel = one_level(model, cells, over_states, "hidden_to_input_entropy")
            if panel is not None:
                key = "" if name else "hidden_to_input_entropy"
                evidence.append(mean_of(f"normalised entropy of a state's inputs{name}", panel, key))
        yield Finding(projection, "", above(opposite(own_share), -HALF), evidence)


def _fewer_inputs(model: Model) -> Iterator[Finding]:
    pair = pair_of_ends(model, over_states, "hidden_to_input_entropy")
    if pair is not None:
        change = mean_of("difference of the normalised entropy", pair[1].minus(pair[0]), "hidden_to_input_entropy")
        yield Finding(CHANGE, "", above(change, -MARGIN), [change])


def _entropy_of_importance(model: Model, sign: int) -> Iterator[Finding]:
    for measure in INPUTS:
        swept = sweep_of(model, entropy, measure)
        if swept is None:
            continue
        correlation = over_levels(
            "Kendall's tau of lambda and entropy", rank_correlation, *swept, f"lambda–entropy of {measure}"
        )
        shrinks = _support_over_lambda(model)
        evidence = [correlation, over_levels("slope of the entropy per decade", slope, *swept), shrinks]
        if sign < 0:
            yield Finding(SWEEP, measure, above(opposite(correlation)), evidence)
        else:
            yield _if_sparser(Finding(SWEEP, measure, above(correlation), evidence), shrinks)


def _support_over_lambda(model: Model) -> Evidence:
    return over_levels("Kendall's tau of lambda and support size", rank_correlation, *sweep_of(model, support))


def _if_sparser(finding: Finding, shrinks: Evidence) -> Finding:
    """The same, undecided where lambda does not make attention sparser: what the claim speaks of did not take place."""
    if shrinks.high < 0:
        return finding
    return replace(finding, verdict=UNDECIDED, also=(shrinks,))


def _rises(model: Model) -> Iterator[Finding]:
    return _entropy_of_importance(model, 1)


def _as_printed(model: Model) -> Iterator[Finding]:
    return _entropy_of_importance(model, -1)


def _inputs_not_higher(model: Model) -> Iterator[Finding]:
    for measure in INPUTS:
        pair = pair_of_ends(model, tau, measure)
        if pair is None:
            continue
        dense, sparse = pair
        rise = mean_of("difference of tau", sparse.minus(dense), f"tau attention–{measure}")
        over = pair_of_ends(model, tau_over_ceiling, measure)
        evidence = [rise, mean_of("difference of tau over its ceiling", over[1].minus(over[0]))]
        cut = one_level(model, model.projection(SPARSE), tau_of_ties_alone, measure, partners=model.dense)
        verdict, also = above(opposite(rise), -MARGIN), ()
        if (beyond := difference_of(sparse, cut)) is not None:
            evidence.append(mean_of("difference of tau to softmax cut to the same support", beyond))
            if verdict == HOLDS and above(opposite(evidence[-1]), -MARGIN) == FAILS:
                verdict, also = TIES, (evidence[-1],)
        yield Finding(CHANGE, measure, verdict, evidence, also)


def _falls(model: Model) -> Iterator[Finding]:
    for measure in INPUTS:
        swept = sweep_of(model, tau, measure)
        if swept is None:
            continue
        x, plain = swept
        fall = over_levels("slope of tau per decade", slope, x, plain)
        evidence = [fall, over_levels("slope of tau over its ceiling", slope, *sweep_of(model, tau_over_ceiling, measure))]
        left = evidence[-1]
        alone = sweep_of(model, tau_of_ties_alone, measure, partners=model.dense)
        if alone is not None and plain.minus(alone[1]).filled.sum() > 1:
            evidence.append(over_levels("slope of tau of softmax cut to the same support", slope, *alone))
            left = over_levels("slope of tau less that of softmax so cut", slope, x, plain.minus(alone[1]))
            evidence.append(left)
        shrinks = _support_over_lambda(model)
        evidence.append(shrinks)
        verdict, also = above(opposite(fall)), ()
        if verdict == HOLDS and above(opposite(left)) != HOLDS:
            verdict, also = TIES, (left,)
        yield _if_sparser(Finding(SWEEP, measure, verdict, evidence, also), shrinks)


def _nulls(model: Model, projection: str, measure: str) -> dict[str, Panel]:
    """tau of attention at random places and of the untrained model, as far as they are there."""
    nulls = {
        "random places": one_level(model, model.projection(projection), random_support_tau, measure),
        "an untrained model": one_level(model, untrained(model, projection), tau, measure),
    }
    return {name: panel for name, panel in nulls.items() if panel is not None}


def _against_nulls(finding: Finding, beyond: Sequence[Evidence]) -> Finding:
    """The same, an artefact of the construction where it holds and something that needs no training is not exceeded."""
    reached = tuple(null for null in beyond if above(null) != HOLDS)
    return replace(finding, verdict=CONSTRUCTION, also=reached) if finding.verdict == HOLDS and reached else finding


def _states_above_inputs(model: Model) -> Iterator[Finding]:
    for projection in (DENSE, SPARSE):
        for measure, input_measure in STATES_AND_INPUTS.items():
            states, inputs = (one_level(model, model.projection(projection), tau, name) for name in (measure, input_measure))
            if (difference := difference_of(states, inputs)) is None:
                continue
            excess = mean_of(f"tau less that with {measure_label(input_measure)} of inputs", difference)
            evidence = [excess, mean_of("tau", states, f"tau attention–{measure}")]
            for name, null in _nulls(model, projection, measure).items():
                if (beyond := difference_of(states, null)) is not None:
                    evidence.append(mean_of(f"tau less that of {name}", beyond))
            yield _against_nulls(Finding(projection, measure, above(excess), evidence), evidence[2:])


def _more_when_sparse(model: Model) -> Iterator[Finding]:
    for measure in STATES_AND_INPUTS:
        pair = pair_of_ends(model, tau, measure)
        if pair is None:
            continue
        rise = pair[1].minus(pair[0])
        difference = mean_of("difference of tau", rise, f"tau attention–{measure}")
        evidence = [difference]
        nulls = [_nulls(model, projection, measure) for projection in (DENSE, SPARSE)]
        for name in nulls[0]:
            if (beyond := difference_of(rise, difference_of(nulls[1].get(name), nulls[0][name]))) is not None:
                evidence.append(mean_of(f"difference of tau less that of {name}", beyond))
        yield _against_nulls(Finding(CHANGE, measure, above(difference), evidence), evidence[1:])


def _adversaries(model: Model) -> Iterator[Finding]:
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in model.cells:
        if is_adversary(cell) and score_scale(cell) is None and cell.heading["projection"] not in (DENSE, "uniform"):
            groups.setdefault((cell.heading["projection"], cell.heading["objective"]), []).append(cell)
    for (projection, _), cells in groups.items():
        bases = {cell.heading["seed"]: cell for cell in model.projection(projection)}
        jsd = one_level(model, cells, attention_divergence, partners=bases)
        change = difference_of(model.panel([cells], correct), model.panel([list(bases.values())], correct))
        if jsd is None or change is None:
            continue
        identity = cells[0].identity
        training = "frozen" if identity.adversary_frozen else "unfrozen"
        divergence = mean_of("JSD to the base's attention (nats)", jsd, "jsd", training)
        accuracy = mean_of("difference of accuracy", change, "accuracy_difference", training)
        evidence = [divergence, accuracy]
        seeds = list(bases.values())
        if len(seeds) > 1:
            following = {one.heading["seed"]: other for one, other in zip(seeds, seeds[1:] + seeds[:1], strict=True)}
            evidence.append(
                mean_of("JSD between seeds of the base", model.panel([seeds], attention_divergence, partners=following))
            )
        far, accurate = above(divergence, FAR), above(accuracy, -ACCURACY_MARGIN)
        verdict = HOLDS if far == accurate == HOLDS else FAILS if FAILS in (far, accurate) else UNDECIDED
        label = f"{training}, weight {identity.adversary_weight:g} on {identity.adversary_divergence.upper()}"
        yield Finding(projection, label, verdict, evidence, (accuracy,))


def _accuracy(model: Model) -> Iterator[Finding]:
    pair = pair_of_ends(model, correct)
    if pair is None:
        return
    change = mean_of("difference of accuracy", pair[1].minus(pair[0]))
    evidence = [change, *(mean_of(f"accuracy, {name}", panel) for name, panel in zip((DENSE, SPARSE), pair, strict=True))]
    if (swept := sweep_of(model, correct)) is not None:
        evidence.append(over_levels("slope of accuracy per decade", slope, *swept))
    yield Finding(CHANGE, "", above(change, -ACCURACY_MARGIN), evidence)


NULLED = (_states_above_inputs, _more_when_sparse)
"""The judges that hold a claim against what needs no training."""

CLAIMS = (
    Claim(
        "1",
        "An encoder state depends on many inputs, not on its own token alone (Table 1)",
        f"holds where a state's own token has less than {HALF:g} of the importance of all inputs for that state.",
        _own_token,
    ),
    Claim(
        "2",
        "Sparse attention does not make states depend on fewer inputs (Table 1)",
        f"holds where sparsemax lowers the normalised entropy by less than {MARGIN:g}.",
        _fewer_inputs,
    ),
    Claim(
        "3a",
        "The importance of inputs is spread more evenly as attention gets sparser (the sentence on Table 2)",
        "holds where lambda and the entropy of the importance are positively correlated; undecided where lambda does not "
        "clearly shrink the support.",
        _rises,
    ),
    Claim(
        "3b",
        "Lambda and the entropy of the importance of inputs are negatively correlated (the numbers of Table 2)",
        "holds where they are. It contradicts 3a: at most one of the two can hold.",
        _as_printed,
    ),
    Claim(
        "4a",
        "Attention agrees with the importance of inputs no better under sparsemax than under softmax (Table 6, upper half)",
        f"holds where sparsemax raises tau by less than {MARGIN:g}; an artefact of ties where it does raise tau against "
        "softmax attention cut to the same support.",
        _inputs_not_higher,
    ),
    Claim(
        "4b",
        "Attention agrees with the importance of inputs less as it gets sparser (Figure 3)",
        "holds where tau falls with lambda; an artefact of ties where it falls no faster than for softmax attention cut to "
        "the same support (without a softmax model: where tau over its ceiling does not fall); undecided where lambda does "
        "not clearly shrink the support.",
        _falls,
    ),
    Claim(
        "5a",
        "Attention agrees with the importance of states better than with that of inputs (Table 6)",
        "holds where tau is higher; an artefact of the construction where tau is not higher than that of attention at "
        "random places or of an untrained model.",
        _states_above_inputs,
    ),
    Claim(
        "5b",
        "Attention agrees with the importance of states better when it is sparse (Table 6, lower half)",
        "holds where sparsemax raises tau; an artefact of the construction where it does not raise it further than it does "
        "at random places or in an untrained model.",
        _more_when_sparse,
    ),
    Claim(
        "6",
        "Sparse attention has adversaries too: other attention, as good a model (Table 5)",
        f"holds where the divergence is above {FAR:.3f} nats, half of its maximum, and accuracy falls by less than "
        f"{ACCURACY_MARGIN:g}.",
        _adversaries,
    ),
    Claim(
        "7",
        "Sparse attention costs no accuracy (what the comparisons take for granted)",
        f"holds where sparsemax loses less than {ACCURACY_MARGIN:g} of accuracy.",
        _accuracy,
    ),
)


# ------------------------------------------------------------------------------------------------------- the table


def claims(groups: Sequence[Model], published: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per claim x data set x model x projection x measure x statistic. decides: whether the verdict rests on it,
    "yes" or "no"; the first row is the number that the claim's rule names.

    value with its 95 % interval ci_low, ci_high over seeds and texts; n: texts with a value, summed over n_seeds seeds and
    over lambdas. published: the paper's value of the same statistic where it has one, of a difference the difference of its
    two values. Where nothing was measured, for models of the published table too, the row holds the verdict alone.
    """
    rows = []
    names, published = names_of(groups), _as_texts(published)
    for claim in CLAIMS:
        for model, (dataset, name) in zip(groups, names, strict=True):
            head = {"claim": claim.number, "dataset": dataset, "model": name}
            findings = list(claim.judge(model)) or [Finding("", "", MISSING, [])]
            for finding in findings:
                labels = {"projection": finding.projection, "measure": finding.measure, "verdict": finding.verdict}
                for place, evidence in enumerate(finding.evidence or [NO_EVIDENCE]):
                    decides = evidence.statistic and (place == 0 or any(evidence is other for other in finding.also))
                    row = head | labels | _row(evidence) | {"decides": "yes" if decides else "no"}
                    rows.append(row | {"published": _said(published, model, finding, evidence)})
        rows.extend({**row, "claim": claim.number} for row in _never_measured(groups, published))
    return pd.DataFrame(rows, columns=list(CLAIM_COLUMNS))


def _as_texts(published: pd.DataFrame | None) -> pd.DataFrame | None:
    """The published numbers with what names them as texts, "" where a field is empty."""
    if published is None:
        return None
    keys = ["dataset", "encoder", "alignment", "projection", "training", "statistic"]
    named = published[keys].astype(object)
    return published.assign(**named.where(named.notna(), "").astype(str))


def names_of(groups: Sequence[Model]) -> list[tuple[str, str]]:
    """Data set and name of each model."""
    named = model_names(pd.DataFrame([model.heading for model in groups], columns=list(IDENTITY)))
    return [tuple(name.split(" · ", 1)) for name in named]


def _row(evidence: Evidence) -> dict:
    numbers = {"statistic": evidence.statistic, "value": evidence.value, "ci_low": evidence.low, "ci_high": evidence.high}
    return {**numbers, "n_seeds": evidence.n_seeds, "n": evidence.n}


def _said(published: pd.DataFrame | None, model: Model, finding: Finding, evidence: Evidence) -> float:
    """The published value, NaN where there is none."""
    if published is None or not evidence.key:
        return np.nan
    names = ("dataset", "encoder", "alignment")
    mine = published[(published[list(names)] == [model.heading[name] for name in names]).all(axis=1)]
    mine = mine[(mine["statistic"] == evidence.key) & (mine["training"] == evidence.training)]
    if finding.projection in (CHANGE, DENSE, SPARSE) and not evidence.training:
        values = {name: mine.loc[mine["projection"] == name, "mean"] for name in (DENSE, SPARSE)}
        wanted = (SPARSE, DENSE) if finding.projection == CHANGE else (finding.projection,)
        if any(len(values[name]) != 1 for name in wanted):
            return np.nan
        first, *rest = (float(values[name].iloc[0]) for name in wanted)
        return first - sum(rest)
    return float(mine["mean"].iloc[0]) if len(mine) == 1 else np.nan


def _never_measured(groups: Sequence[Model], published: pd.DataFrame | None) -> Iterator[dict]:
    """A row for each data set x model of the published table that the study has no cell of."""
    if published is None:
        return
    known = {(model.heading["dataset"], model.name) for model in groups}
    for dataset, encoder, alignment in dict.fromkeys(published[["dataset", "encoder", "alignment"]].itertuples(index=False)):
        if encoder and (dataset, f"{encoder} + {alignment}") not in known:
            nothing = {"projection": "", "measure": "", "verdict": MISSING, "decides": "no", **_row(NO_EVIDENCE)}
            yield {"dataset": dataset, "model": f"{encoder} + {alignment}", **nothing, "published": np.nan}
