"""What was measured of one checkpoint, each number with its interval, and what its attention may be used for.

The verdicts follow from the numbers by the rules of `RULES`, a convention of the cards, which print it; the field has none.
An interval is the 95 % percentile bootstrap over texts. A rule asks the end of the interval that speaks against the use.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.errors import counted
from attnfaith.metrics.attention_faithfulness.support_agreement import top_k_overlap
from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting.cards import hiding, stacks
from attnfaith.reporting.cells import Cell, measure_label, one_cell
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.render import frame, frames
from attnfaith.reporting.sections import adversary, erasure, permutation
from attnfaith.reporting.sections.agreement import agreement_table, reference_measure
from attnfaith.reporting.sections.dispersion import INPUTS_OF_STATES, instance_dispersion
from attnfaith.reporting.sections.plausibility import plausibility_table
from attnfaith.stats import estimate, mean


ALIKE, PARTLY = 0.5, 0.3  # as in `sections.agreement.DEGREES`: "a similar order", "a somewhat similar order"
MOST_MISSED = 0.05
SMALL = 0.05  # change of a prediction (TVD)
HALFWAY = np.log(2) / 2  # nats
NO_TIES = 0.9995
CONTEXT_FREE = ("average", "embedding")  # encoders whose states hold their own token only
MAY, CARE, MAY_NOT, UNKNOWN = "may", "with care", "may not", "not known"


class Number(NamedTuple):
    """A mean over texts.

    value with its 95 % interval low, high; n: the texts it is over; n_undefined: those it leaves out; group, label: what it
    is; against: chance, or what ties allow; note: words on it. NaN undefined.
    """

    group: str
    label: str
    value: float
    low: float
    high: float
    n: int
    n_undefined: int
    against: float = np.nan
    note: str = ""


class Use(NamedTuple):
    """Something attention could be used for: its verdict, and the numbers that give it. name: of the rule that decided."""

    name: str
    what: str
    verdict: str
    reason: str


class Checkpoint:
    """A trained model as its records show it: what it reads, not its encoder's states.

    run: the parsed run.json. tables: its records, of one cell each and of the same weights, or that cell; what several of
    them hold is taken from the first.

    Raises ReportError where there is no record, a record holds several cells, or two are of different weights.
    """

    def __init__(self, run: Mapping, tables: "pa.Table | Cell | Sequence[pa.Table]"):
        tables = [tables] if isinstance(tables, pa.Table | Cell) else list(tables)
        if not tables:
            raise ReportError("a card needs a record of the model; none was given")
        self.run = run
        self._measured = [one_cell(table) for table in tables]
        self.cells = [cell.of_inputs for cell in self._measured]
        self.settings = [next(iter(records.settings(cell.table)), {}) for cell in self.cells]
        weights = [part.get("model") for part in self.settings]
        if len(tables) > 1 and (None in weights or len(set(weights)) > 1):
            shown = ", ".join(str(digest)[:12] for digest in weights)
            raise ReportError(f"the records are not of the same weights ({shown}): a card is of one model")

    @property
    def cell(self) -> Cell:
        return self.cells[0]

    @property
    def heading(self) -> dict:
        return self.cell.heading

    @property
    def recipe(self) -> Mapping:
        """The recipe of the run; {} where the record does not hold it."""
        return self.settings[0].get("recipe", {})

    @property
    def unit(self) -> str:
        """What one weight belongs to."""
        return "sentence" if self.cell.words else "word"

    @cached_property
    def numbers(self) -> dict[str, Number]:
        """Every number of the card by its key, in the order of the table."""
        numbers: dict[str, Number] = {}
        for measured in MEASURED:
            for cell in self._measured:
                for key, number in measured(cell).items():
                    numbers.setdefault(key, number)
        return numbers

    @cached_property
    def scores(self) -> dict[str, float]:
        """`classification_scores` of the first record."""
        return classification_scores(self.cell.probs, self.cell.labels)

    @cached_property
    def uses(self) -> list[Use]:
        """What attention may be used for, in the order of the card."""
        if self.heading["projection"] == "uniform":
            reason = f"every {self.unit} of a text has the same weight"
            return [Use("anything", f"to say anything about a {self.unit}", MAY_NOT, reason)]
        return [use for rule in USES if (use := rule(self)) is not None]

    def of_kind(self, kind: str) -> dict[str, Number]:
        """The numbers whose key is <kind>.<measure>, by that measure."""
        parts = {key: key.split(".") for key in self.numbers}
        return {part[1]: self.numbers[key] for key, part in parts.items() if len(part) == 2 and part[0] == kind}


# ------------------------------------------------------------------------------------------------ numbers


def _number(group: str, label: str, values: np.ndarray, against: float = np.nan, note: str = "") -> Number:
    """The mean of values [N] per text, NaN undefined."""
    defined = values[~np.isnan(values)]
    value, low, high = estimate("", defined).values()
    return Number(group, label, value, low, high, len(defined), len(values) - len(defined), against, note)


def _of_row(group: str, label: str, row: Mapping, name: str, n: str = "n", *, bounds: str = "", **more) -> Number:
    """A number that a table holds already; bounds: what precedes ci_low and ci_high there."""
    low, high = row[f"{bounds}ci_low"], row[f"{bounds}ci_high"]
    return Number(group, label, row[name], low, high, int(row[n]), int(row["n_undefined"]), **more)


def _performance(cell: Cell) -> dict[str, Number]:
    correct = np.where(np.isnan(cell.labels), np.nan, cell.predicted == cell.labels)
    return {"accuracy": _number("classification", "accuracy", correct)}


def _agreement(cell: Cell) -> dict[str, Number]:
    """Rank correlation of attention with each importance of inputs, and of two of those with each other."""
    group, numbers = "agreement with importance", {}
    table = agreement_table([cell])
    for row in table[table["class"] == "overall"].to_dict("records"):
        first, second = row["pair"].split("–")
        if second in cell.measures and second not in cell.of_inputs.measures:
            continue
        label = f"Kendall’s τ of {measure_label(first)} and {measure_label(second)}"
        note = ""
        if row["n"] and row["tie_ceiling"] < NO_TIES:
            note = f"ties allow {row['tie_ceiling']:.3f}; over that, {row['tau_over_ceiling']:.3f}"
        key = f"kendall_tau.{second}" if first == "attention" else f"kendall_tau.{first}.{second}"
        numbers[key] = _of_row(group, label, row, "tau_mean", against=row["tie_ceiling"], note=note)
    for name in cell.of_inputs.measures:
        overlap, chance = top_k_overlap(cell.attention, cell.scores(name))
        chance = mean(chance[~np.isnan(chance)])
        label = f"share of the heaviest fifth of tokens among the fifth that {measure_label(name)} puts first"
        numbers[f"top_k_overlap.{name}"] = _number(group, label, overlap, chance, _chance(chance))
    return numbers


def _chance(chance: float) -> str:
    return "" if np.isnan(chance) else f"chance {chance:.3f}"


def _heaviest(cell: Cell) -> dict[str, Number]:
    """Whether the heaviest token is the one that the reference measure puts first, and how often that one has little weight.

    Of several heaviest tokens one is drawn, in expectation; any of several most important ones will do. Undefined below two
    tokens and where all tokens are as important.
    """
    measure = reference_measure(cell.of_inputs)
    if measure is None:
        return {}
    hits, chance, little, none = (np.full(len(cell), np.nan) for _ in range(4))
    for row, (weights, scores) in enumerate(zip(cell.attention, cell.scores(measure), strict=True)):
        if len(weights) < 2 or not np.ptp(scores) > 0:  # of NaN neither
            continue
        first, heaviest = scores == scores.max(), weights == weights.max()
        hits[row], chance[row] = np.mean(first[heaviest]), np.mean(first)
        little[row] = np.mean(weights[first] < 1 / len(weights))
        none[row] = np.mean(weights[first] == 0)
    group, label, expected = "the most important token", measure_label(measure), mean(chance[~np.isnan(chance)])
    start = f"texts where the token that {label} puts first has"
    return {
        f"heaviest_is_first.{measure}": _number(
            group, f"texts where the heaviest token is the one that {label} puts first", hits, expected, _chance(expected)
        ),
        f"first_is_light.{measure}": _number(group, f"{start} less than an equal share of the weight", little),
        f"first_is_weightless.{measure}": _number(group, f"{start} no weight", none),
    }


def _concentration(cell: Cell) -> dict[str, Number]:
    values, group = instance_dispersion(cell), "concentration"
    numbers = {
        "normalised_entropy": _number(group, "entropy over its maximum; 1: all tokens alike", values["entropy attention"]),
        "support_size": _number(group, "tokens with weight", values["support attention"]),
        "share_of_zeros": _number(group, "share of a text’s tokens without weight", values["zeros attention"]),
    }
    if (own := f"own {INPUTS_OF_STATES}") in values:
        label = "share of its own token in what a state depends on"
        numbers["own_share"] = _number("what is attended to", label, values[own])
    return numbers


def _shuffled(column: str, cell: Cell) -> dict[str, Number]:
    """What the same weights do in another order."""
    if column not in cell.table.column_names:
        return {}
    distance, flips = permutation.changes(cell, column)
    draws = max((len(rows) for rows in records.rows(cell.table, column)), default=0)
    small = np.where(np.isnan(distance), np.nan, distance < SMALL)
    group, start = "other weights, same states", f"weights shuffled {draws} times: "
    return {
        "shuffled.tvd": _number(group, f"{start}median change of the prediction (TVD)", distance),
        "shuffled.small": _number(group, f"{start}texts that move by less than {SMALL:g}", small),
        "shuffled.flips": _number(group, f"{start}share of draws that change the decision", flips),
    }


def _adversary(cell: Cell) -> dict[str, Number]:
    """At the smallest epsilon of the record; the exact solution where it holds one, else the search."""
    rows = frame(adversary.TABLE, [cell])
    if rows.empty:
        return {}
    rows = rows[(rows["class"] == "overall") & (rows["epsilon"] == rows["epsilon"].min())].to_dict("records")
    row = next((row for row in rows if row["method"] == "exact"), rows[0])
    largest = "largest" if row["method"] == "exact" and row["share_exact"] == 1 else "largest found"
    group, start = "other weights, same states", f"attention that moves the prediction by at most {row['epsilon']:g}: "
    label = f"{start}its {largest} distance from the model’s (JSD in nats)"
    numbers = {"adversary.jsd": _of_row(group, label, row, "jsd_mean", against=np.log(2), note="at most ln 2 = 0.693")}
    if row["method"] == "exact":
        label = f"{start}texts where one token can have all the weight"
        numbers["adversary.one_token"] = _of_row(group, label, row, "share_one_token", bounds="share_one_token_")
    return numbers


def _erasure(cell: Cell) -> dict[str, Number]:
    tables = frames(erasure.SECTION, [cell])
    if not tables:
        return {}
    numbers, group = {}, "weights removed"
    flips, several = tables["erasure_decision_flips"], tables["erasure_multi_weight"]
    words = {"only_top": "without the largest weight but not without a random other one", "only_random": "the reverse"}
    for outcome, text in words.items():
        (row,) = flips[(flips["ranking"] == "attention") & (flips["outcome"] == outcome)].to_dict("records")
        numbers[f"erasure.{outcome}"] = _of_row(group, f"texts whose decision changes: {text}", row, "share")
    several = several[(several["removal"] == "renormalised") & several["allow_empty"]]
    for ranking, text in (("attention", "by decreasing weight"), ("minimum", "smallest set")):
        for row in several[several["ranking"] == ranking].to_dict("records"):
            label = f"share of tokens removed until the decision changes: {text}"
            note = f"never changes in {row['n_never']:,}"
            numbers[f"removed.{ranking}"] = _of_row(group, label, row, "fraction_mean", "n_averaged", note=note)
    return numbers


def _maps(cell: Cell) -> dict[str, Number]:
    """Of a stack of layers: what is left out of what is shown, and what other maps do."""
    return {key: _number(*given) for key, given in stacks.numbers(cell, SMALL).items()}


def _hidden(cell: Cell) -> dict[str, Number]:
    """Of words that the model should not need, and of states."""
    return {key: _number(*given) for key, given in hiding.numbers(cell).items()}


def _plausibility(cell: Cell) -> dict[str, Number]:
    table = plausibility_table([cell])
    rows = table[table["scores"] == "attention"].to_dict("records")
    if not rows:
        return {}
    group, label = "evidence that people marked", "average precision of attention against the marked tokens"
    chance = rows[0]["random_baseline"]
    return {"rationale_auprc": _of_row(group, label, rows[0], "auprc_mean", against=chance, note=_chance(chance))}


MEASURED: tuple[Callable[[Cell], dict[str, Number]], ...] = (
    _performance,
    _agreement,
    _heaviest,
    _concentration,
    partial(_shuffled, "permuted_probs"),
    partial(_shuffled, "random_support_probs"),  # fewer draws of the same
    _adversary,
    _maps,
    _hidden,
    _erasure,
    _plausibility,
)


# ------------------------------------------------------------------------------------------------ words


def percent(share: float) -> str:
    """ "12.3 %"."""
    return f"{100 * share:.1f} %"


def in_words(number: Number, show: Callable[[float], str] = "{:.2f}".format) -> str:
    """The number with its interval, as a sentence has it; "undefined" where it is."""
    if np.isnan(number.value):
        return "undefined"
    if np.isnan(number.low):
        return show(number.value)
    return f"{show(number.value)} [{show(number.low)}, {show(number.high)}]"


def _verdict(least: float) -> str:
    return MAY if least >= ALIKE else CARE if least >= PARTLY else MAY_NOT


def _seeing(checkpoint: Checkpoint) -> Use:
    unit = checkpoint.unit
    if stacks.is_stack(checkpoint.cell.identity):
        what, reason = stacks.seeing(checkpoint.cell.identity, unit)
        markers = checkpoint.numbers.get("marker_attention")
        if markers is not None and not np.isnan(markers.value):
            reason += f" On markers, which are not shown, lie {in_words(markers, percent)} of it."
        return Use("seeing", what, MAY, reason)
    reason = "That is what attention is."
    if _mixes(checkpoint):
        reason += f" A state of this encoder holds more than its own {unit}"
        own = checkpoint.numbers.get("own_share")
        known = own is not None and not np.isnan(own.value)
        reason += f": that one makes up {percent(own.value)} of what the state depends on." if known else "."
    what = f"to see how the model weights the encoder states of a text’s {unit}s when it averages them"
    return Use("seeing", what, MAY, reason)


def _mixes(checkpoint: Checkpoint) -> bool:
    """Whether a state holds more than its own token: by the encoder's `contextual`, which older records do not hold."""
    return checkpoint.settings[0].get("contextual", checkpoint.cell.identity.encoder not in CONTEXT_FREE)


def _ranking(checkpoint: Checkpoint) -> Use:
    unit = checkpoint.unit
    what = f"to rank the {unit}s of a text by their importance for the prediction"
    defined = {name: number for name, number in checkpoint.of_kind("kendall_tau").items() if not np.isnan(number.low)}
    if not defined:
        return Use("ranking", what, UNKNOWN, "No correlation with an importance measure is known with an interval.")
    verdict = _verdict(min(number.low for number in defined.values()))
    parts = [f"with {measure_label(name)} {in_words(number)}" for name, number in defined.items()]
    reason = f"Kendall’s τ of attention {'; '.join(parts)}; 1 is the same order, 0 no relation."
    between = checkpoint.numbers.get("kendall_tau.gradient.leave_one_out")
    if between is not None and not np.isnan(between.value):
        reason += f" Gradient and leave-one-out reach {between.value:.2f} with each other."
    if (lowest := min(number.against for number in defined.values())) < NO_TIES:
        reason += (
            f" {unit[0].upper()}{unit[1:]}s of equal weight are not ranked, which keeps the mean τ at {lowest:.2f} or below."
        )
    return Use("ranking", what, verdict, reason)


def _picking(checkpoint: Checkpoint) -> Use:
    unit = checkpoint.unit
    what = f"to pick out a few {unit}s of a text as the most important ones"
    defined = {name: number for name, number in checkpoint.of_kind("top_k_overlap").items() if not np.isnan(number.low)}
    if not defined:
        return Use("picking", what, UNKNOWN, "No overlap with an importance measure is known with an interval.")
    above = all(number.low > number.against for number in defined.values())
    verdict = _verdict(min(number.low for number in defined.values())) if above else MAY_NOT
    parts = [f"{measure_label(name)} {in_words(number, percent)}" for name, number in defined.items()]
    reason = (
        f"Of the heaviest fifth of the {unit}s of a text (fewer where fewer have weight), so many are among as many that a "
        f"measure puts first: {'; '.join(parts)}. By chance {percent(max(number.against for number in defined.values()))}."
    )
    return Use("picking", what, verdict, reason)


def _naming(checkpoint: Checkpoint) -> Use:
    unit = checkpoint.unit
    what = f"to name the one {unit} that mattered most"
    for measure, number in checkpoint.of_kind("heaviest_is_first").items():
        if np.isnan(number.low):
            continue
        verdict = _verdict(number.low) if number.low > number.against else MAY_NOT
        reason = (
            f"The heaviest {unit} is {_most('one', measure)} in {in_words(number, percent)} of {counted(number.n)}; "
            f"a {unit} drawn at random would be in {percent(number.against)}."
        )
        return Use("naming", what, verdict, reason)
    return Use("naming", what, UNKNOWN, f"No measure that says which {unit} that is gives an interval.")


def _most(unit: str, measure: str) -> str:
    if measure == "leave_one_out":
        return f"the {unit} whose deletion changes the prediction most"
    return f"the {unit} of most {measure_label(measure)}"


def _unused(checkpoint: Checkpoint) -> Use:
    """Whether little weight means little importance: none at all where there are zeros, else less than an equal share."""
    unit, zeros = checkpoint.unit, checkpoint.numbers["share_of_zeros"]
    sparse = zeros.value > 0
    having = "no weight" if sparse else "less than an equal share of the weight"
    what = f"to say that a {unit} with {having} did not matter"
    for measure, number in checkpoint.of_kind("first_is_weightless" if sparse else "first_is_light").items():
        if np.isnan(number.high):
            continue
        verdict = MAY_NOT if number.high > MOST_MISSED else CARE if _mixes(checkpoint) else MAY
        most = _most(unit, measure)
        reason = f"{most[0].upper()}{most[1:]} has {having} in {in_words(number, percent)} of {counted(number.n)}."
        if _mixes(checkpoint):
            reason += f" A {unit} can also act through the states of others."
        return Use("unused", what, verdict, reason)
    return Use("unused", what, UNKNOWN, f"No measure that says which {unit}s mattered gives an interval.")


def _reason(checkpoint: Checkpoint) -> Use:
    what = "as the reason for a decision: these weights, and no others, lead to it"
    numbers = checkpoint.numbers
    shift, distance = (numbers.get(key) for key in ("shuffled.tvd", "adversary.jsd"))
    parts, against, known = [], False, False
    if shift is None or np.isnan(shift.low):
        parts.append("What shuffled weights do is not known.")
    else:
        small, flips, known = numbers["shuffled.small"], numbers["shuffled.flips"], True
        against |= small.low > 0.5
        parts.append(
            f"Shuffling the weights over the text moves the prediction by less than {SMALL:g} in "
            f"{in_words(small, percent)} of {counted(small.n)}, and changes {percent(flips.value)} of the decisions."
        )
    if distance is None or np.isnan(distance.low):
        parts.append("What weights chosen by an adversary do is not known.")
    else:
        known = True
        against |= distance.low > HALFWAY
        kind = distance.label.partition(":")[0]
        parts.append(f"An {kind} can be {in_words(distance)} nats from the model’s own; at 0.69 the two share no weight.")
    return Use("reason", what, MAY_NOT if against else CARE if known else UNKNOWN, " ".join(parts))


def _plausible(checkpoint: Checkpoint) -> Use | None:
    number = checkpoint.numbers.get("rationale_auprc")
    if number is None:
        return None
    what = f"to point at the {checkpoint.unit}s that people marked as evidence"
    if np.isnan(number.low):
        return Use("plausible", what, UNKNOWN, "No interval of the average precision is known.")
    verdict = MAY_NOT if number.low <= number.against else MAY if number.low >= ALIKE else CARE
    reason = f"Average precision {in_words(number)}; a random order reaches {number.against:.2f}. "
    reason += "It says what looks convincing, not what the model used."
    return Use("plausible", what, verdict, reason)


def _audit(checkpoint: Checkpoint) -> Use:
    what = f"to show that the model does not use {checkpoint.unit}s that it should not"
    reason = (
        "Whatever the numbers: a model can be trained to keep its decisions and move its attention away from such "
        "words (Pruthi et al. 2020)."
    )
    reason += hiding.audit(checkpoint.numbers, percent, in_words)
    return Use("audit", what, MAY_NOT, reason)


USES: tuple[Callable[[Checkpoint], Use | None], ...] = (
    _seeing,
    _ranking,
    _picking,
    _naming,
    _unused,
    _reason,
    _plausible,
    _audit,
)
RULES = (
    f"To rank: τ with each measure is at least {ALIKE:g} (may) or {PARTLY:g} (with care). To pick out: so is the share of "
    "words, and it is above chance. To name: so is the share of texts. That it did not matter: the most important one has "
    f"so little weight in at most {percent(MOST_MISSED)} of the texts (may; with care where the encoder mixes what it "
    "reads). As the reason: may not where shuffled weights move the predictions of more than half of the texts by less than "
    f"{SMALL:g}, or where an attention with nearly the same prediction can be {HALFWAY:.3f} nats (half of ln 2) away; "
    f"otherwise with care, since no test proves it. Evidence: average precision is at least {ALIKE:g} (may), or above "
    "chance (with care). Compared is the end of the 95 % interval that speaks against the use. The thresholds are a "
    "convention of these cards."
)
"""The rules of `USES`, as the card prints them."""
