"""Is attention an explanation of a model? The answer in one sentence, by the rules that stand here and on the page.

A rule asks one kind of test and says FOR, AGAINST, or UNDECIDED where its intervals do not decide or the test was not
made. The rules are a convention of these pages; the field has none. Every interval is 95 %, over the texts of one model: of
another seed nothing is said. No rule says FOR from agreement with another measure, or from what other weights do: only what
the model loses without a token, and evidence that is known, can.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


FEWEST_TEXTS = 30
ALPHA = 0.05
MOST = 0.5  # share of tests, or of texts
WEAK = 0.3  # Kendall's tau, in parts of what ties allow; below it the card's word is "may not"
SMALL = 0.05  # change of a prediction (TVD)
HALFWAY = np.log(2) / 2  # nats: half of the largest divergence that there is
FOR, AGAINST, UNDECIDED = "for", "against", "undecided"
HOLDS, FAILS, UNTOLD = "held up", "not reliable", "cannot be told"


@dataclass(frozen=True)
class Interval:
    """A number with the ends of its 95 % interval, NaN undefined; p: corrected for the other tests of its family, NaN where
    there was none to correct for.
    """

    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan

    def above(self, bound: float) -> bool:
        """Whether it is shown to lie above."""
        return bool(self.low > bound and not self.p > ALPHA)

    def below(self, bound: float) -> bool:
        """Whether it is shown to lie below."""
        return bool(self.high < bound and not self.p > ALPHA)


@dataclass(frozen=True)
class Contest:
    """One test of attention: its difference to random scores, and to the best other measure, whose name is `other` ("": none
    was tested). Differences are above 0 where attention does better, whether large or small is good.
    """

    test: str
    to_chance: Interval
    other: str = ""
    to_other: Interval = Interval()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the tables say of one model, as far as the rules ask; Interval() where it was not measured.

    majority: share of the commonest gold class. equal_weights: whether all tokens of a text have the same weight by
    construction. evidence: contests against evidence that is known for sure. erasure: those by what the model says without
    tokens. taus: Kendall's tau of attention with leave-one-out, then with gradient, in parts of what ties allow; between:
    that of the two with each other. unmoved: share of texts whose prediction shuffled weights move by less than SMALL.
    furthest: JSD in nats of the furthest attention with nearly the same prediction. advice: what tests by erasure recommend,
    a sentence; "" where they were not made.
    """

    n: int
    accuracy: Interval = Interval()
    majority: float = np.nan
    equal_weights: bool = False
    evidence: tuple[Contest, ...] = ()
    erasure: tuple[Contest, ...] = ()
    taus: tuple[Interval, Interval] = (Interval(), Interval())
    between: Interval = Interval()
    unmoved: Interval = Interval()
    furthest: Interval = Interval()
    advice: str = ""


@dataclass(frozen=True)
class Finding:
    """What one rule says of a model: FOR, AGAINST or UNDECIDED, and the numbers that say so."""

    verdict: str
    said: str


@dataclass(frozen=True)
class Rule:
    """name: of the test. asks: when it says what, with its thresholds. judge: the rule."""

    name: str
    asks: str
    judge: Callable[[Facts], Finding]


@dataclass(frozen=True)
class Answer:
    """outcome: HOLDS, FAILS or UNTOLD. sentence: the answer. also: what else speaks against attention. instead: which
    measure to show. findings: of each of RULES.
    """

    outcome: str
    sentence: str
    also: tuple[str, ...]
    instead: str
    findings: tuple[Finding, ...]


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _bounds(interval: Interval, show: Callable[[float], str] = "{:.2f}".format) -> str:
    if np.isnan(interval.low):
        return show(interval.value)
    return f"{show(interval.value)} [{show(interval.low)}, {show(interval.high)}]".replace("-", "−")


# ------------------------------------------------------------------------------------------------ what blocks an answer


def too_few(facts: Facts) -> str:
    """Why so many texts tell nothing; "" where they do."""
    measured = "text was measured" if facts.n == 1 else "texts were measured"
    return f"only {facts.n:,} {measured}" if facts.n < FEWEST_TEXTS else ""


def no_better_than_majority(facts: Facts) -> str:
    """Why a model that has learned nothing cannot be explained; "" where it has, and where no text has a label."""
    if np.isnan(facts.accuracy.value) or facts.accuracy.above(facts.majority):
        return ""
    return f"the model is not shown to be better than its commonest class, which is {percent(facts.majority)} of the texts"


# ------------------------------------------------------------------------------------------------ the rules


def equal_weights(facts: Facts) -> Finding:
    if facts.equal_weights:
        return Finding(AGAINST, "all tokens of a text have the same weight, whatever they are")
    return Finding(UNDECIDED, "tokens have weights of their own")


def known_evidence(facts: Facts) -> Finding:
    if not facts.evidence:
        return Finding(UNDECIDED, "what decides the label of a text is not known")
    return _contests(facts.evidence, "finds the tokens that decide the label", "finds them better")


def erasure(facts: Facts) -> Finding:
    if not facts.erasure:
        return Finding(UNDECIDED, "not measured: what the model says without the tokens that attention puts first")
    return _contests(facts.erasure, "tells what the model needs", "tells it better")


def _contests(contests: tuple[Contest, ...], what: str, better: str) -> Finding:
    count = len(contests)
    above, below = (sum(ask(one.to_chance) for one in contests) for ask in (_shown_above, _shown_below))
    beaten = [one.other for one in contests if one.to_other.below(0)]
    tests = "test" if count == 1 else "tests"
    if below > MOST * count:
        return Finding(AGAINST, f"a random order {what} better than attention in {below} of {count} {tests}")
    if len(beaten) > MOST * count:
        names = sorted(set(beaten), key=lambda name: (-beaten.count(name), name))
        another = names[0] if len(names) == 1 else f"another measure ({', '.join(names)})"
        return Finding(AGAINST, f"{another} {what} better than attention in {len(beaten)} of {count} {tests}")
    if above > MOST * count and not beaten:
        tested = any(one.other for one in contests)
        rest = f", and no measure is shown to {_plain(better)}" if tested else ""
        return Finding(FOR, f"attention {what} better than a random order in {above} of {count} {tests}{rest}")
    if all(np.isnan(one.to_chance.low) for one in contests):
        return Finding(UNDECIDED, "random scores, which say what chance does, were not tested beside attention")
    said = f"attention is above a random order in {above} of {count} {tests}, below it in {below}, below another measure in "
    return Finding(UNDECIDED, f"{said}{len(beaten)}")


def _plain(words: str) -> str:
    verb, _, rest = words.partition(" ")
    return f"{verb.removesuffix('s')} {rest}"


def _shown_above(interval: Interval) -> bool:
    return interval.above(0)


def _shown_below(interval: Interval) -> bool:
    return interval.below(0)


def agreement(facts: Facts) -> Finding:
    deletion, gradient = facts.taus
    if np.isnan(deletion.low):
        return Finding(UNDECIDED, "not measured: the order of the tokens by leave-one-out, with an interval")
    said = f"its order of the tokens is little like that of leave-one-out (τ {_bounds(deletion)})"
    known = [deletion] if np.isnan(gradient.low) else [deletion, gradient]
    if not all(tau.below(WEAK) for tau in known):
        return Finding(UNDECIDED, f"τ with leave-one-out is {_bounds(deletion)}, and agreement alone proves nothing")
    if len(known) == 1:
        return Finding(AGAINST, said)
    said = f"{said} and of gradient ({_bounds(gradient)})"
    if facts.between.above(max(deletion.high, gradient.high)):
        return Finding(AGAINST, f"{said}, which agree better with each other ({_bounds(facts.between)})")
    return Finding(UNDECIDED, f"{said}, but these are not shown to agree better with each other")


def shuffled(facts: Facts) -> Finding:
    if np.isnan(facts.unmoved.low):
        return Finding(UNDECIDED, "not measured: what the model says under shuffled weights")
    said = f"shuffled weights move the prediction by less than {SMALL:g} in {_bounds(facts.unmoved, percent)} of the texts"
    return Finding(AGAINST if facts.unmoved.above(MOST) else UNDECIDED, said)


def other_weights(facts: Facts) -> Finding:
    if np.isnan(facts.furthest.low):
        return Finding(UNDECIDED, "not measured: the furthest attention that leaves the prediction nearly as it is")
    said = f"another attention, {_bounds(facts.furthest)} nats away of at most 0.69, gives nearly the same prediction"
    return Finding(AGAINST if facts.furthest.above(HALFWAY) else UNDECIDED, said)


_CONTESTS = (
    f"Against, where attention is shown to be worse than a random order, or than the best other measure, in more than "
    f"{percent(MOST)} of the tests. For, where it is shown to be better than a random order in more than {percent(MOST)}, "
    f"and worse than another measure in none. Shown: the interval of the paired difference is without 0, and p (Holm) is at "
    f"most {ALPHA:g}."
)
RULES = (
    Rule("equal weights", "Against, where every token of a text has the same weight by construction.", equal_weights),
    Rule("known evidence", f"In generated texts, whose label some tokens decide. {_CONTESTS}", known_evidence),
    Rule("erasure", f"What the model says without the tokens that are put first, and of these alone. {_CONTESTS}", erasure),
    Rule(
        "agreement",
        "Against, where the intervals of τ with leave-one-out and gradient, in parts of what ties allow, lie below "
        f"{WEAK:g}, and the two agree better with each other. Never for.",
        agreement,
    ),
    Rule(
        "shuffled weights",
        f"Against, where they move the predictions of more than {percent(MOST)} of the texts by less than {SMALL:g} (TVD): "
        "then the model hardly uses which token has which weight. Never for.",
        shuffled,
    ),
    Rule(
        "other weights",
        f"Against, where an attention with nearly the same prediction is more than {HALFWAY:.3f} nats (half of ln 2) away. "
        "Never for.",
        other_weights,
    ),
)
DECISION = (
    f"It cannot be told below {FEWEST_TEXTS} texts, where the accuracy is not shown to be above the share of the commonest "
    "class, where rules contradict each other, and where none decides. Else one rule against is enough for “not a reliable "
    "explanation”, and one for, with none against, for “held up”. Intervals are 95 %, over texts. One model, of one seed, "
    "is judged: another seed is another model. The rules are a convention of this page."
)


# ------------------------------------------------------------------------------------------------ the answer


def answer(facts: Facts) -> Answer:
    """The answer on one model; where rules say against it, the first of them in the order of RULES gives the reason."""
    findings = tuple(rule.judge(facts) for rule in RULES)
    against = [finding.said for finding in findings if finding.verdict == AGAINST]
    speaking = [finding.said for finding in findings if finding.verdict == FOR]
    blocked = [said for said in (too_few(facts), no_better_than_majority(facts)) if said]
    model = f"this model ({_size(facts)})"
    if blocked or (against and speaking) or not (against or speaking):
        reason = (
            " and ".join(blocked)
            or (f"the tests contradict each other: {speaking[0]}; but {against[0]}" if against else "")
            or "no test of it decides"
        )
        sentence = f"Whether attention explains {model} cannot be told: {reason}."
        return Answer(UNTOLD, sentence, (), _instead(facts), findings)
    if against:
        sentence = f"Attention is not a reliable explanation of {model}: {against[0]}."
        return Answer(FAILS, sentence, tuple(against[1:]), _instead(facts), findings)
    sentence = f"Attention held up as an explanation of {model}: {speaking[0]}."
    return Answer(HOLDS, sentence, tuple(speaking[1:]), _instead(facts), findings)


def _size(facts: Facts) -> str:
    texts = f"{facts.n:,} text{'' if facts.n == 1 else 's'}"
    if np.isnan(facts.accuracy.value):
        return f"accuracy not known, {texts}"
    return f"accuracy {percent(facts.accuracy.value)}, {texts}"


def _instead(facts: Facts) -> str:
    if facts.n < FEWEST_TEXTS:
        return f"What to show instead cannot be told from fewer than {FEWEST_TEXTS} texts."
    if facts.advice:
        return facts.advice
    said = "What to show instead was not tested: add rationale_erasure and random_scores to what is measured."
    if not np.isnan(facts.taus[0].value):
        said += " Until then leave-one-out says what the prediction loses without a token, of one token at a time."
    return said
