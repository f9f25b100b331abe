"""The verdict: may the attention of a model be shown as which words mattered?

One rule. Page, card, notebook, terminal and Space all read it, so the same record gets the same verdict everywhere.

The rule compares three orders of the words of a text: by attention, by one importance measure that is named beforehand
(the reference: the size of integrated gradients, or leave-one-out where gradients cannot be had), and at random. For each
order it asks how much the model loses when the words that come first are deleted. The ratio

    (attention - random) / (reference - random)

of the mean losses is 1 where attention ranks words as well as the reference, and 0 where it ranks them like chance.

Shapes: N texts.
"""

from dataclasses import dataclass, field

import numpy as np

from attnfaith.stats import ratio_intervals, rounded, wilson_interval
from attnfaith.support.errors import counted


SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of a text's words that are deleted; the losses are averaged."""
MIN_TEXTS = 100
MIN_CLASS_TEXTS = 50
GOOD, POOR = 0.8, 0.5
"""Bands of the ratio, calibrated on planted models with texts of 10 to 30 words and two classes."""
GOOD_CLASS = 0.5
GOOD_PRECISION, POOR_PRECISION = 0.8, 0.5
BOUNDS = (GOOD, POOR, GOOD_PRECISION, POOR_PRECISION)
"""No printed number is rounded across one of these."""
DRAWS = 2000

MAY_SHOW = "may be shown"
BESIDE = "only beside"
DO_NOT_SHOW = "do not show"
CANNOT_TELL = "cannot be told"
OUTCOMES = (MAY_SHOW, BESIDE, DO_NOT_SHOW, CANNOT_TELL)

RULE = (
    f"Attention uniform by construction: do not show it. Fewer than {MIN_TEXTS} different texts, or an accuracy that is not "
    "above the share of the commonest class (Wilson interval): cannot be told. "
    "Otherwise the top 1, 5, 10, 20 and 50 % of a text's words are deleted, and the log-odds of the predicted class that "
    "are lost are averaged. Let ρ = (attention − random) / (reference − random). "
    "The reference is not shown to be above random: cannot be told. "
    f"The 95 % interval of ρ lies below {POOR:g}: do not show attention. It lies at or above {GOOD:g}, and ρ is at least "
    f"{GOOD_CLASS:g} in every predicted class of {MIN_CLASS_TEXTS} texts or more: attention may be shown. "
    "Everything else: show it only beside the reference. "
    f"Where the words that decide are known, an average precision below {POOR_PRECISION:g} forbids showing attention, and "
    f"one below {GOOD_PRECISION:g} allows it only beside the reference. "
    "Permutation, adversary and τ never decide: they answer whether these weights are the only ones."
)
"""The rule in words, as pages and cards print it."""


@dataclass(frozen=True)
class Interval:
    """A number with its 95 % interval over texts; NaN where undefined."""

    value: float = np.nan
    low: float = np.nan
    high: float = np.nan

    def __str__(self) -> str:
        value, low, high = (rounded(number, BOUNDS).replace("-", "−") for number in (self.value, self.low, self.high))
        return value if np.isnan(self.low) else f"{value} [{low}, {high}]"


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The numbers of a model that the rule reads.

    attention, reference, random (N,): log-odds of the predicted class that a text loses, on average over `SHARES`, when the
    words that come first are deleted; NaN undefined. predicted (N,): the predicted class. labels (N,): the gold class, NaN
    where it is not known. reference_name: of the importance measure. uniform: all words of a text have the same weight by
    construction. precision (N,): average precision of attention against the words that decide; NaN where they are not known.
    evidence, evidence_random (N,): log-odds lost without those words, and without as many words drawn at random.
    """

    attention: np.ndarray
    reference: np.ndarray
    random: np.ndarray
    predicted: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    reference_name: str
    uniform: bool = False
    precision: np.ndarray = field(default_factory=lambda: np.zeros(0))
    evidence: np.ndarray = field(default_factory=lambda: np.zeros(0))
    evidence_random: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Verdict:
    """outcome: one of `OUTCOMES`. headline: at most eight words. reason: one sentence. advice: what to do, one sentence.
    ratio: ρ with its interval, NaN where it was not computed. n: texts with all three losses. remarks: what the verdict
    does not cover, a sentence each.
    """

    outcome: str
    headline: str
    reason: str
    advice: str
    ratio: Interval = Interval()
    n: int = 0
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([f"{self.headline}.", self.reason, self.advice, *self.remarks])


SCOPE = "This is about this model and these texts; another seed is another model."


def accuracy_interval(predicted: np.ndarray, labels: np.ndarray) -> Interval:
    """Return the accuracy over the texts whose label is known, with its 95 % Wilson interval."""
    labelled = ~np.isnan(labels)
    n = int(labelled.sum())
    if not n:
        return Interval()
    correct = int((predicted[labelled] == labels[labelled]).sum())
    return Interval(correct / n, *wilson_interval(correct, n))


def commonest_share(labels: np.ndarray) -> float:
    """Return the share of the commonest gold class; NaN without labels."""
    labels = labels[~np.isnan(labels)]
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels)) if len(labels) else np.nan


def mean_interval(values: np.ndarray) -> Interval:
    """Return the mean of values (N,) with its 95 % bootstrap interval over texts."""
    return _quotient(values, np.ones(len(values)))


def ratio_interval(attention: np.ndarray, reference: np.ndarray, random: np.ndarray) -> Interval:
    """Return ρ of losses (N,) with its 95 % bootstrap interval over texts; NaN where the reference is as good as random."""
    return _quotient(attention - random, reference - random)


def _quotient(above: np.ndarray, below: np.ndarray) -> Interval:
    if not len(above) or below.mean() == 0:
        return Interval()
    low, high = ratio_intervals(above[:, None], below[:, None], draws=DRAWS)[0]
    return Interval(float(above.mean() / below.mean()), float(low), float(high))


def judge(losses: Losses) -> Verdict:
    """Return the verdict on a model by `RULE`."""
    if losses.uniform:
        return Verdict(
            DO_NOT_SHOW,
            "Do not show it: all weights are equal",
            "Every word of a text has the same weight by construction, whatever it is.",
            f"Show {losses.reference_name} instead.",
        )
    defined = ~np.isnan([losses.attention, losses.reference, losses.random]).any(axis=0)
    n = int(defined.sum())
    blocked = _too_few(losses, n) or _nothing_to_compare_with(losses, defined)
    if blocked:
        return Verdict(CANNOT_TELL, "Cannot be told from these texts", *blocked, n=n, remarks=(SCOPE,))
    ratio = ratio_interval(losses.attention[defined], losses.reference[defined], losses.random[defined])
    failed, unjudged = _classes(losses, defined)
    outcome, reason = _by_ratio(losses, ratio, failed)
    headline, advice = {
        MAY_SHOW: (
            "May be shown as a ranking of words",
            "Show it as a ranking. It need not hold all words that mattered.",
        ),
        BESIDE: (
            f"Show it only beside {losses.reference_name}",
            f"Show {losses.reference_name} beside it, never attention alone.",
        ),
        DO_NOT_SHOW: (f"Do not show it: show {losses.reference_name}", f"Show {losses.reference_name} instead."),
    }[outcome]
    few = (f"Too few texts are predicted {', '.join(unjudged)} to judge them alone.",) if unjudged else ()
    return Verdict(outcome, headline, reason, advice, ratio, n, (*few, SCOPE))


def _too_few(losses: Losses, n: int) -> tuple[str, str] | None:
    """The reason and the advice where texts are few or the model no better than the commonest class; or None."""
    if n < MIN_TEXTS:
        texts = counted(n, "different text")
        return f"Only {texts} can be judged; at least {MIN_TEXTS} are needed.", f"Measure {MIN_TEXTS - n} more."
    accuracy, commonest = accuracy_interval(losses.predicted, losses.labels), commonest_share(losses.labels)
    if accuracy.low <= commonest:
        return (
            f"The model is not shown to be better than naming the commonest class: its accuracy is {accuracy}, that of the "
            f"commonest class {commonest:.2f}.",
            "Train the model further, or measure more texts.",
        )
    return None


def _nothing_to_compare_with(losses: Losses, defined: np.ndarray) -> tuple[str, str] | None:
    """The reason and the advice where the reference is not above random; or None."""
    if mean_interval((losses.reference - losses.random)[defined]).low > 0:
        return None
    return (
        f"The reference, {losses.reference_name}, is not shown to rank words better than chance.",
        "Measure more texts.",
    )


def _classes(losses: Losses, defined: np.ndarray) -> tuple[list[str], list[str]]:
    """The predicted classes in which attention falls short, and those with too few texts to be judged."""
    failed, unjudged = [], []
    for number in np.unique(losses.predicted[defined]).astype(int):
        members = defined & (losses.predicted == number)
        attention, reference, random = losses.attention[members], losses.reference[members], losses.random[members]
        if members.sum() < MIN_CLASS_TEXTS:
            unjudged.append(losses.class_names[number])
        elif mean_interval(reference - random).low > 0:
            if ratio_interval(attention, reference, random).value < GOOD_CLASS:
                failed.append(losses.class_names[number])
        elif not mean_interval(attention - random).low > 0:
            failed.append(losses.class_names[number])
    return failed, unjudged


def _by_ratio(losses: Losses, ratio: Interval, failed: list[str]) -> tuple[str, str]:
    """The outcome and the reason where ρ is known."""
    reference, precision = losses.reference_name, _precision(losses)
    scale, found = f"ρ = {ratio}; 1 is as well as it, 0 is chance", f"average precision {rounded(precision, BOUNDS)}"
    if ratio.high < POOR:
        return DO_NOT_SHOW, f"Attention ranks words much worse than {reference} ({scale})."
    if precision < POOR_PRECISION:
        return (
            DO_NOT_SHOW,
            f"Attention misses the words that are known to decide: {found}.",
        )
    if ratio.low < GOOD:
        return BESIDE, f"Attention is not shown to rank words as well as {reference} ({scale})."
    if failed:
        return BESIDE, f"Attention ranks words as well as {reference}, but not in texts predicted {', '.join(failed)}."
    if precision < GOOD_PRECISION:
        return (
            BESIDE,
            f"Attention misses some words that are known to decide: {found}.",
        )
    return MAY_SHOW, f"Attention ranks words about as well as {reference} ({scale})."


def _precision(losses: Losses) -> float:
    """Mean average precision against known evidence; infinity without it, or where the model does not use it."""
    used = losses.evidence - losses.evidence_random
    precision = losses.precision[~np.isnan(losses.precision)]
    if not len(precision) or not mean_interval(used[~np.isnan(used)]).low > 0:
        return np.inf
    return float(precision.mean())
