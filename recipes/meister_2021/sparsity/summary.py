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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence
from attnfaith.reporting.cells import Cell, match, measure_label
from attnfaith.reporting.tables import _markdown_text, to_markdown

from .adversaries import adversary_settings, is_adversary
from .numbers import (
    IDENTITY,
    INPUTS,
    MEASURES,
    Model,
    Panel,
    correct,
    entropy,
    interval,
    levels_of,
    model_names,
    models,
    moved,
    over_states,
    random_support_tau,
    rank_correlation,
    remembered,
    sharpness,
    slope,
    support,
    tau,
    tau_of_ties_alone,
    tau_over_ceiling,
)
from .sweep import is_untrained, score_scale, sparsegen_lambda


HOLDS, FAILS, UNDECIDED = "holds here", "does not hold here", "undecided here"
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
DENSE, SPARSE, CHANGE, SWEEP = "softmax", "sparsemax", "sparsemax − softmax", "all lambdas"


@dataclass(frozen=True)
class Evidence:
    """A number that a verdict rests on. key: the statistic of the published table that it is, "" where it is none; with a
    training of an adversary ("frozen", "unfrozen").
    """

    statistic: str
    value: float
    low: float
    high: float
    n_seeds: int
    n: int
    key: str = ""
    training: str = ""


NO_EVIDENCE = Evidence("", np.nan, np.nan, np.nan, 0, 0)


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


# -------------------------------------------------------------------------------------------------------- evidence


def _mean(statistic: str, panel: Panel, key: str = "", training: str = "") -> Evidence:
    """The mean of a panel of one level."""
    low, high = panel.intervals()
    numbers = float(panel.means[0]), float(low[0]), float(high[0]), int(panel.n_seeds[0]), int(panel.n[0])
    return Evidence(statistic, *numbers, key, training)


def _over(statistic: str, take: Callable, x: np.ndarray, panel: Panel, key: str = "") -> Evidence:
    """A statistic of the means of the filled levels: `slope` or `rank_correlation`."""
    value, draws = moved(take, x, panel)
    low, high = map(float, interval(draws))
    return Evidence(statistic, value, low, high, int(panel.n_seeds.max()), int(panel.n[panel.filled].sum()), key)


def _one(
    model: Model, cells: Sequence[Cell], number: Callable, *arguments: str, **beside: Mapping[int, Cell]
) -> Panel | None:
    """A panel of one level; None where nothing has a value."""
    panel = model.panel([cells], number, *arguments, **beside)
    return panel if panel is not None and panel.n[0] else None


def _pair(model: Model, number: Callable, *arguments: str) -> tuple[Panel, Panel] | None:
    """A number of the softmax and of the sparsemax cells; None where one is missing."""
    dense, sparse = (_one(model, model.projection(name), number, *arguments) for name in (DENSE, SPARSE))
    return None if _less(sparse, dense) is None else (dense, sparse)


def _sweep(model: Model, number: Callable, *arguments: str, **beside: Mapping[int, Cell]) -> tuple[np.ndarray, Panel] | None:
    """`sharpness` and a number at each lambda; None below two filled levels."""
    levels = levels_of(model.plain, sparsegen_lambda)
    panel = model.panel(list(levels.values()), number, *arguments, **beside)
    return (sharpness(levels), panel) if panel is not None and panel.filled.sum() > 1 else None


def _less(first: Panel | None, second: Panel | None) -> Panel | None:
    """The difference of two panels of one level; None where one is missing or no text has both."""
    if first is None or second is None:
        return None
    difference = first.minus(second)
    return difference if difference.n[0] else None


def _untrained(model: Model, projection: str) -> list[Cell]:
    cells = [cell for cell in model.cells if is_untrained(cell) and score_scale(cell) is None]
    return [cell for cell in cells if cell.heading["projection"] == projection]


def above(found: Evidence, bound: float = 0.0) -> str:
    """ "holds here" where the interval lies above the bound, "does not hold here" where it lies below it."""
    return HOLDS if found.low > bound else FAILS if found.high < bound else UNDECIDED


def opposite(found: Evidence) -> Evidence:
    return Evidence(found.statistic, -found.value, -found.high, -found.low, found.n_seeds, found.n)


# ---------------------------------------------------------------------------------------------------------- claims


def _own_token(model: Model) -> Iterator[Finding]:
    for projection in (DENSE, SPARSE):
        own = _one(model, model.projection(projection), over_states, "hidden_to_input_own")
        if own is None:
            continue
        found = _mean("share of a state's own token", own)
        evidence = [found]
        for name, cells in (("", model.projection(projection)), (" before training", _untrained(model, projection))):
            panel = _one(model, cells, over_states, "hidden_to_input_entropy")
            if panel is not None:
                key = "" if name else "hidden_to_input_entropy"
                evidence.append(_mean(f"normalised entropy of a state's inputs{name}", panel, key))
        yield Finding(projection, "", above(opposite(found), -HALF), evidence)


def _fewer_inputs(model: Model) -> Iterator[Finding]:
    pair = _pair(model, over_states, "hidden_to_input_entropy")
    if pair is not None:
        found = _mean("difference of the normalised entropy", pair[1].minus(pair[0]), "hidden_to_input_entropy")
        yield Finding(CHANGE, "", above(found, -MARGIN), [found])


def _entropy_of_importance(model: Model, sign: int) -> Iterator[Finding]:
    for measure in INPUTS:
        swept = _sweep(model, entropy, measure)
        if swept is None:
            continue
        found = _over("Kendall's tau of lambda and entropy", rank_correlation, *swept, f"lambda–entropy of {measure}")
        shrinks = _support_over_lambda(model)
        evidence = [found, _over("slope of the entropy per decade", slope, *swept), shrinks]
        if sign < 0:
            yield Finding(SWEEP, measure, above(opposite(found)), evidence)
        else:
            yield _if_sparser(Finding(SWEEP, measure, above(found), evidence), shrinks)


def _support_over_lambda(model: Model) -> Evidence:
    return _over("Kendall's tau of lambda and support size", rank_correlation, *_sweep(model, support))


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
        pair = _pair(model, tau, measure)
        if pair is None:
            continue
        dense, sparse = pair
        found = _mean("difference of tau", sparse.minus(dense), f"tau attention–{measure}")
        over = _pair(model, tau_over_ceiling, measure)
        evidence = [found, _mean("difference of tau over its ceiling", over[1].minus(over[0]))]
        cut = _one(model, model.projection(SPARSE), tau_of_ties_alone, measure, beside=model.dense)
        verdict, also = above(opposite(found), -MARGIN), ()
        if (beyond := _less(sparse, cut)) is not None:
            evidence.append(_mean("difference of tau to softmax cut to the same support", beyond))
            if verdict == HOLDS and above(opposite(evidence[-1]), -MARGIN) == FAILS:
                verdict, also = TIES, (evidence[-1],)
        yield Finding(CHANGE, measure, verdict, evidence, also)


def _falls(model: Model) -> Iterator[Finding]:
    for measure in INPUTS:
        swept = _sweep(model, tau, measure)
        if swept is None:
            continue
        x, plain = swept
        found = _over("slope of tau per decade", slope, x, plain)
        evidence = [found, _over("slope of tau over its ceiling", slope, *_sweep(model, tau_over_ceiling, measure))]
        left = evidence[-1]
        alone = _sweep(model, tau_of_ties_alone, measure, beside=model.dense)
        if alone is not None and plain.minus(alone[1]).filled.sum() > 1:
            evidence.append(_over("slope of tau of softmax cut to the same support", slope, *alone))
            left = _over("slope of tau less that of softmax so cut", slope, x, plain.minus(alone[1]))
            evidence.append(left)
        shrinks = _support_over_lambda(model)
        evidence.append(shrinks)
        verdict, also = above(opposite(found)), ()
        if verdict == HOLDS and above(opposite(left)) != HOLDS:
            verdict, also = TIES, (left,)
        yield _if_sparser(Finding(SWEEP, measure, verdict, evidence, also), shrinks)


def _nulls(model: Model, projection: str, measure: str) -> dict[str, Panel]:
    """tau of attention at random places and of the untrained model, as far as they are there."""
    found = {
        "random places": _one(model, model.projection(projection), random_support_tau, measure),
        "an untrained model": _one(model, _untrained(model, projection), tau, measure),
    }
    return {name: panel for name, panel in found.items() if panel is not None}


def _against_nulls(finding: Finding, beyond: Sequence[Evidence]) -> Finding:
    """The same, an artefact of the construction where it holds and something that needs no training is not exceeded."""
    reached = tuple(null for null in beyond if above(null) != HOLDS)
    return replace(finding, verdict=CONSTRUCTION, also=reached) if finding.verdict == HOLDS and reached else finding


def _states_above_inputs(model: Model) -> Iterator[Finding]:
    for projection in (DENSE, SPARSE):
        for measure, input_measure in STATES_AND_INPUTS.items():
            states, inputs = (_one(model, model.projection(projection), tau, name) for name in (measure, input_measure))
            if (difference := _less(states, inputs)) is None:
                continue
            found = _mean(f"tau less that with {measure_label(input_measure)} of inputs", difference)
            evidence = [found, _mean("tau", states, f"tau attention–{measure}")]
            for name, null in _nulls(model, projection, measure).items():
                if (beyond := _less(states, null)) is not None:
                    evidence.append(_mean(f"tau less that of {name}", beyond))
            yield _against_nulls(Finding(projection, measure, above(found), evidence), evidence[2:])


def _more_when_sparse(model: Model) -> Iterator[Finding]:
    for measure in STATES_AND_INPUTS:
        pair = _pair(model, tau, measure)
        if pair is None:
            continue
        rise = pair[1].minus(pair[0])
        found = _mean("difference of tau", rise, f"tau attention–{measure}")
        evidence = [found]
        nulls = [_nulls(model, projection, measure) for projection in (DENSE, SPARSE)]
        for name in nulls[0]:
            if (beyond := _less(rise, _less(nulls[1].get(name), nulls[0][name]))) is not None:
                evidence.append(_mean(f"difference of tau less that of {name}", beyond))
        yield _against_nulls(Finding(CHANGE, measure, above(found), evidence), evidence[1:])


@remembered
def _divergence(cell: Cell, base: Cell) -> np.ndarray:
    """JSD (nats) of two models' attention on the same text, NaN for an empty one or where the base lacks it."""
    rows, others = match(cell, base)
    found = np.full(len(cell), np.nan)
    found[rows] = jensen_shannon_divergence([cell.attention[i] for i in rows], [base.attention[j] for j in others])
    return found


def _adversaries(model: Model) -> Iterator[Finding]:
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in model.cells:
        if is_adversary(cell) and score_scale(cell) is None and cell.heading["projection"] not in (DENSE, "uniform"):
            groups.setdefault((cell.heading["projection"], cell.heading["objective"]), []).append(cell)
    for (projection, objective), cells in groups.items():
        bases = {cell.heading["seed"]: cell for cell in model.projection(projection)}
        jsd = _one(model, cells, _divergence, beside=bases)
        change = _less(model.panel([cells], correct), model.panel([list(bases.values())], correct))
        if jsd is None or change is None:
            continue
        settings = adversary_settings(objective)
        training = "frozen" if settings["frozen"] == "yes" else "unfrozen"
        found = _mean("JSD to the base's attention (nats)", jsd, "jsd", training)
        accuracy = _mean("difference of accuracy", change, "accuracy_difference", training)
        evidence = [found, accuracy]
        seeds = list(bases.values())
        if len(seeds) > 1:
            following = {one.heading["seed"]: other for one, other in zip(seeds, seeds[1:] + seeds[:1], strict=True)}
            evidence.append(_mean("JSD between seeds of the base", model.panel([seeds], _divergence, beside=following)))
        far, accurate = above(found, FAR), above(accuracy, -ACCURACY_MARGIN)
        verdict = HOLDS if far == accurate == HOLDS else FAILS if FAILS in (far, accurate) else UNDECIDED
        label = f"{training}, weight {settings['weight']:g} on {str(settings['divergence']).upper()}"
        yield Finding(projection, label, verdict, evidence, (accuracy,))


def _accuracy(model: Model) -> Iterator[Finding]:
    pair = _pair(model, correct)
    if pair is None:
        return
    found = _mean("difference of accuracy", pair[1].minus(pair[0]))
    evidence = [found, *(_mean(f"accuracy, {name}", panel) for name, panel in zip((DENSE, SPARSE), pair, strict=True))]
    if (swept := _sweep(model, correct)) is not None:
        evidence.append(_over("slope of accuracy per decade", slope, *swept))
    yield Finding(CHANGE, "", above(found, -ACCURACY_MARGIN), evidence)


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
                for place, found in enumerate(finding.evidence or [NO_EVIDENCE]):
                    decides = found.statistic and (place == 0 or any(found is other for other in finding.also))
                    row = head | labels | _row(found) | {"decides": "yes" if decides else "no"}
                    rows.append(row | {"published": _said(published, model, finding, found)})
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


def _row(found: Evidence) -> dict:
    numbers = {"statistic": found.statistic, "value": found.value, "ci_low": found.low, "ci_high": found.high}
    return {**numbers, "n_seeds": found.n_seeds, "n": found.n}


def _said(published: pd.DataFrame | None, model: Model, finding: Finding, found: Evidence) -> float:
    """The published value, NaN where there is none."""
    if published is None or not found.key:
        return np.nan
    names = ("dataset", "encoder", "alignment")
    mine = published[(published[list(names)] == [model.heading[name] for name in names]).all(axis=1)]
    mine = mine[(mine["statistic"] == found.key) & (mine["training"] == found.training)]
    if finding.projection in (CHANGE, DENSE, SPARSE) and not found.training:
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


# -------------------------------------------------------------------------------------------------------- the text


def summary(tables: Mapping[str, pd.DataFrame], cells: Sequence[Cell], published: pd.DataFrame | None = None) -> str:
    """The summary as Markdown: verdicts, the numbers that decide them, and the open questions. Every number, verdict and
    count is read from the tables.
    """
    table = tables["claims"]
    parts = [
        "# Is sparse attention more interpretable? What the records say\n",
        _opening(table, cells),
        RULES,
        "## In short\n",
        *_in_short(table),
        "## The claims at a glance\n",
        to_markdown(_overview(table)),
        "## The claims one by one\n",
        *(_claim(claim, table[table["claim"] == claim.number]) for claim in CLAIMS),
        "## What the paper left open\n",
        *(f"### {title}\n\n{_answer(tables, names, write)}" for title, names, write in OPEN),
    ]
    return "\n".join(parts)


def _answer(tables: Mapping[str, pd.DataFrame], names: Sequence[str], write: Callable[..., list[str]]) -> str:
    """The lines that `write` makes of the named tables; "Not measured." where the first of them is missing."""
    if names[0] not in tables:
        return "Not measured.\n"
    given = (tables.get(name) for name in names)
    found = [None if table is None else table.assign(who=model_names(table)) for table in given]
    return _bullets(write(*found))


def _bullets(lines: Iterable[str]) -> str:
    return "".join(f"* {_markdown_text(line)}\n" for line in lines)


def _opening(table: pd.DataFrame, cells: Sequence[Cell]) -> str:
    verdicts = table.drop_duplicates(CASE)["verdict"].value_counts()
    counts = ", ".join(f"{name} {verdicts[name]}" for name in VERDICTS if name in verdicts)
    groups = models(cells)
    lines = []
    for model, (dataset, name) in zip(groups, names_of(groups), strict=True):
        lambdas = ", ".join(f"{value:g}".replace("-", "−") for value in levels_of(model.plain, sparsegen_lambda))
        seeds = [str(seed) for seed in sorted({cell.heading["seed"] for cell in model.plain})]
        texts = max(len(cell) for cell in model.cells)
        lines.append(
            f"{dataset} · {name}: {len(model.cells)} models, {texts:,} texts; "
            f"{'lambda ' + lambdas if lambdas else 'no lambda'}; seed{'s' * (len(seeds) != 1)} {', '.join(seeds) or 'none'}"
        )
    said = (
        f"Written from the records of {len(cells):,} models by rules, not by hand. Verdicts on the claims of Meister et al. "
    )
    return f"{said}(2021), each for one data set, model, measure and projection: {counts}.\n\n{_bullets(lines)}"


RULES = """\
Numbers are means over seeds of means over texts, with 95 % intervals [lower, upper] of a bootstrap that draws seeds, then
texts. Few seeds make few draws: with three, an interval reaches about as far as the lowest and the highest seed; with one,
it speaks of the texts only, and another seed may lie outside of it. n counts a text once for each seed, and for each lambda
where a number is of all. A decade is a tenfold 1 / (1 − lambda), the factor by which sparsegen sharpens scores; a slope is
that of one straight line over all lambdas, also where a number rises first and falls later (see the figures).

A verdict is one of: holds here, does not hold here (the interval lies on one or the other side of the rule’s bound),
undecided here (it lies on both), artefact of ties (the rule is met, and no longer shown to be once ties are taken away),
artefact of the construction (it is met, and not shown to be met better than by what needs no training), not measured. No
correction is made for judging many claims.
"""

CASE = ["claim", "dataset", "model", "projection", "measure"]
"""What a verdict is of."""


def _in_short(table: pd.DataFrame) -> Iterator[str]:
    """For each verdict the claims that come to it: in how many cases, and the lowest and the highest of each number that
    decides, with its interval.
    """
    for verdict in VERDICTS:
        mine = table[table["verdict"] == verdict]
        if verdict == MISSING or not len(mine):
            continue
        lines = []
        for claim in CLAIMS:
            every = table[(table["claim"] == claim.number) & (table["verdict"] != MISSING)]
            part = mine[mine["claim"] == claim.number]
            if len(part):
                count = _count(len(part.drop_duplicates(CASE)), len(every.drop_duplicates(CASE)))
                lines.append(f"{claim.number}. {claim.sentence}: {count} cases; {'; '.join(_ranges(part))}")
        yield f"{verdict[0].upper()}{verdict[1:]}:\n\n{_bullets(lines)}"
    missing = table[table["verdict"] == MISSING].groupby(["dataset", "model"], sort=False)["claim"]
    if len(missing):
        lines = [
            f"{dataset} · {model}: claim{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
            for (dataset, model), numbers in missing
        ]
        yield f"Not measured:\n\n{_bullets(lines)}"


def _ranges(part: pd.DataFrame) -> Iterator[str]:
    """Each number that decides some cases: its lowest and highest value over the cases, and where they are."""
    for statistic, rows in part[part["decides"] == "yes"].groupby("statistic", sort=False):
        known = rows.dropna(subset="value").sort_values("value", kind="stable").to_dict("records")
        ends = [f"{_ends_of(row)} ({_where(row)})" for row in (known if len(known) < 2 else (known[0], known[-1]))]
        yield f"{statistic} {' to '.join(ends) if ends else 'undefined'}"


def _where(row: Mapping) -> str:
    return ", ".join(
        filter(None, (f"{row['dataset']} · {row['model']}", row["projection"], _measure_in_words(row["measure"])))
    )


def _overview(table: pd.DataFrame) -> pd.DataFrame:
    """Claims x models; where the measures of a claim come to different verdicts, how many to each."""

    def cell(verdicts: pd.Series) -> str:
        counts = verdicts.value_counts()
        if len(counts) == 1:
            return str(counts.index[0])
        return "; ".join(f"{name} ({counts[name]} of {len(verdicts)})" for name in VERDICTS if name in counts)

    once = table.drop_duplicates(CASE)
    rows = []
    for claim in CLAIMS:
        row = {"claim": f"{claim.number}. {claim.sentence}"}
        for (dataset, model), part in once[once["claim"] == claim.number].groupby(["dataset", "model"], sort=False):
            row[f"{dataset} · {model}"] = cell(part["verdict"])
        rows.append(row)
    return pd.DataFrame(rows)


def _claim(claim: Claim, rows: pd.DataFrame) -> str:
    lines = []
    for _, part in rows.groupby(CASE, sort=False):
        first = part.iloc[0]
        about = ", ".join(filter(None, (first["projection"], _measure_in_words(first["measure"]))))
        line = f"{first['dataset']} · {first['model']}{f' ({about})' if about else ''}: **{first['verdict']}**"
        evidence = [_evidence_in_words(row) for row in part.to_dict("records") if row["statistic"]]
        if claim.judge in NULLED and evidence and not part["statistic"].str.contains("random places|untrained").any():
            evidence.append("no null was measured")
        lines.append("; ".join([line, *evidence]))
    return f"### {claim.number}. {claim.sentence}\n\nRule: {claim.rule}\n\n{_bullets(lines)}"


def _measure_in_words(measure: str) -> str:
    if measure not in MEASURES:
        return measure
    return measure_label(measure.removesuffix("_hidden")) + (" of states" if measure.endswith("_hidden") else " of inputs")


def _evidence_in_words(row: Mapping) -> str:
    said = "" if np.isnan(row["published"]) else f"; published {_number(row['published'])}"
    seeds = f"{row['n_seeds']} seed{'' if row['n_seeds'] == 1 else 's'}"
    return f"{row['statistic']} {_ends_of(row)} ({seeds}, n = {row['n']:,}{said})"


def _ends_of(row: Mapping) -> str:
    return with_ends(row["value"], row["ci_low"], row["ci_high"])


def _number(value: float) -> str:
    shown = f"{value:.3f}"
    return "0.000" if shown == "-0.000" else shown.replace("-", "−")


def with_ends(value: float, low: float, high: float) -> str:
    """ "0.123 [0.100, 0.150]", without the interval where there is none."""
    if np.isnan(value):
        return "undefined"
    return _number(value) if np.isnan(low) else f"{_number(value)} [{_number(low)}, {_number(high)}]"


def _ends(row: Mapping, name: str) -> str:
    return with_ends(row[name], row[f"{name}_ci_low"], row[f"{name}_ci_high"])


def _count(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}"


def _is_input(measures: pd.Series) -> pd.Series:
    return measures.isin(INPUTS)


def _on_ties(falls: pd.DataFrame) -> list[str]:
    lines = []
    for row in falls[_is_input(falls["measure"])].to_dict("records"):
        line = (
            f"{row['who']}, {_measure_in_words(row['measure'])}: per decade of 1 / (1 − lambda) tau moves by "
            f"{_ends(row, 'tau_slope')}, tau over its ceiling by {_ends(row, 'tau_over_ceiling_slope')}"
        )
        if not np.isnan(row["tau_ties_alone_slope"]):
            line += f", that of softmax attention cut to the same support by {_ends(row, 'tau_ties_alone_slope')}"
        if np.isnan(row["left_after_ceiling"]):
            rises = row["tau_slope_ci_low"] > 0
            lines.append(f"{line}. Tau {'rises' if rises else 'does not clearly fall'}: there is no fall to explain.")
            continue
        left = _ends(row, "left_after_ceiling")
        line += f". Share of the fall that is left (below 0: a rise): {left} after division by the ceiling"
        if not np.isnan(row["left_beyond_ties"]):
            line += f", {_ends(row, 'left_beyond_ties')} beyond what ties alone do to softmax attention"
        lines.append(line + ".")
    return lines


def _on_nulls(nulls: pd.DataFrame, published: pd.DataFrame | None) -> list[str]:
    lines = []
    for source, table in (("correlations of trained models", nulls), ("published correlations of Table 6", published)):
        if table is None:
            continue
        for place, inputs in (("inputs", True), ("states", False)):
            for null, part in table[_is_input(table["measure"]) == inputs].groupby("null", sort=False):
                above = part["exceeds"] == "yes"
                line = f"{_count(int(above.sum()), len(part))} {source} with importance of {place} exceed the null “{null}”"
                lowest, highest = (_number(value) for value in (part["null_tau"].min(), part["null_tau"].max()))
                mean = f"the null’s own tau lies between {lowest} and {highest}"
                counts = [
                    f"{who} {_count(int((rows['exceeds'] == 'yes').sum()), len(rows))}"
                    for who, rows in part.groupby("who", sort=False)
                ]
                lines.append(f"{line}; {mean}. By model: {', '.join(counts)}.")
    fixed = nulls[(nulls["measure"] == "gradient_norm_hidden") & nulls["null_measure"].str.startswith("random_support")]
    if len(fixed):
        lines.append(
            "At random places attention is held fixed in the gradient. A state’s gradient norm is then its weight times a "
            "constant under an affine read-out, tau is 1 by construction, and no correlation can exceed it; here that tau "
            f"lies between {_number(fixed['null_tau'].min())} and {_number(fixed['null_tau'].max())}."
        )
    return lines


def _on_detached(table: pd.DataFrame) -> list[str]:
    lines = []
    for place, part in table.groupby("place", sort=False):
        low, high = part["tau_detached"].min(), part["tau_detached"].max()
        moved = part.loc[part["difference"].abs().idxmax()]
        clear = (part["difference_ci_low"] > 0) | (part["difference_ci_high"] < 0)
        lines.append(
            f"Gradient in {place}: with attention held fixed tau lies between {_number(low)} and {_number(high)}; in "
            f"{_count(int(clear.sum()), len(part))} rows the interval of the difference to the gradient through attention "
            f"excludes 0. It is largest for {moved['who']} {moved['projection']}: {_ends(moved, 'difference')}."
        )
    return lines


def _on_removal(table: pd.DataFrame) -> list[str]:
    lines = []
    for who, part in table.groupby("who", sort=False):
        most = part.loc[part["tokens_that_differ"].idxmax()]
        clear = (part["difference_ci_low"] > 0) | (part["difference_ci_high"] < 0)
        moved = part.loc[part["difference"].abs().idxmax()]
        lines.append(
            f"{who}: the two importances differ for at most {_ends(most, 'tokens_that_differ')} of the tokens "
            f"({most['projection']}); tau changes in {_count(int(clear.sum()), len(part))} projections, most by "
            f"{_ends(moved, 'difference')} ({moved['projection']})."
        )
    return lines


MOVES = ("falls", "rises", "unclear")
AGREEMENTS = {"tau": "tau", "overlap_above_chance": "top-k overlap above chance", "auprc_above_chance": "AUPRC above chance"}


def _on_other_agreements(table: pd.DataFrame, trend: pd.DataFrame | None) -> list[str]:
    if trend is None:
        return [f"{len(table)} rows, of which no model has two lambdas: how they move was not measured."]
    lines = []
    for (who, measure), part in trend[_is_input(trend["measure"])].groupby(["who", "measure"], sort=False):
        told = []
        for row in part.to_dict("records"):
            beyond = "" if np.isnan(row["beyond_cut_slope"]) else f"; beyond softmax so cut {_ends(row, 'beyond_cut_slope')}"
            told.append(f"{AGREEMENTS[row['agreement']]} {row['moves']} ({_ends(row, 'slope')}{beyond})")
        lines.append(f"{who}, {_measure_in_words(measure)}, slope per decade: {'; '.join(told)}.")
    for who, part in trend[~_is_input(trend["measure"])].groupby("who", sort=False):
        told = []
        for agreement, rows in part.groupby("agreement", sort=False):
            counts = rows["moves"].value_counts()
            words = ", ".join(f"{name} for {counts[name]}" for name in MOVES if name in counts)
            told.append(f"{AGREEMENTS[agreement]} {words}")
        lines.append(f"{who}, importance of states, of {part['measure'].nunique()} measures: {'; '.join(told)}.")
    return lines


def _variant(row: Mapping) -> str:
    scale = "free scores" if row["scale"] == "free" else f"scores of standard deviation {row['scale']}"
    return f"{scale}, attention rate x {row['attention_rate']:g}"


def _on_temperature(undone: pd.DataFrame) -> list[str]:
    lines = []
    for row in undone[undone["statistic"] == "entropy"].to_dict("records"):
        line = (
            f"{row['who']}, {_variant(row)}: the entropy of attention moves by {_ends(row, 'slope')} per decade of "
            f"1 / (1 − lambda); rank correlation with lambda {_ends(row, 'kendall')}"
        )
        if not np.isnan(row["kept"]):
            line += (
                f"; the lambda that does the same to scores of fixed scale moves by {_ends(row, 'kept')} decades per decade "
                f"(1: the model undoes nothing, 0: everything), over {row['n_kept']} lambdas"
            )
        lines.append(line + ".")
    return lines


def _on_entmax(trend: pd.DataFrame) -> list[str]:
    names = {"support_share": "share of tokens with weight", "entropy": "entropy of attention", "accuracy": "accuracy"}
    names |= {f"tau_{measure}": f"tau with {_measure_in_words(measure)}" for measure in INPUTS}
    lines = []
    for who, part in trend.groupby("who", sort=False):
        rows = {row["statistic"]: row for row in part.to_dict("records")}
        told = [
            f"{words} {rows[name]['moves']} ({_ends(rows[name], 'slope')} per unit of alpha, rank correlation "
            f"{_ends(rows[name], 'kendall')})"
            for name, words in names.items()
            if name in rows
        ]
        lines.append(f"{who}: {'; '.join(told)}.")
    return lines


OPEN: tuple[tuple[str, tuple[str, ...], Callable[..., list[str]]], ...] = (
    ("(a) How much of the fall of tau is ties?", ("question_a_fall",), _on_ties),
    ("(b) What exceeds the nulls?", ("question_b_nulls", "question_b_published"), _on_nulls),
    ("(c) Attention held fixed", ("question_c_detached",), _on_detached),
    ("(d) A state removed: renormalised or projected again", ("question_d_removal",), _on_removal),
    ("(e) Agreement that ties do not limit", ("question_e_without_ties", "question_e_trend"), _on_other_agreements),
    ("(f) Is lambda a temperature that the model undoes?", ("question_f_undone",), _on_temperature),
    ("(g) Entmax as the knob", ("question_g_trend",), _on_entmax),
)
"""Title of each open question, the tables that answer it, and what puts them into words."""
