"""summary.md: the verdicts on the paper's claims, and the answers to the open questions, in words.

Every number, verdict and count is read from the tables of `claims` and `questions`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from attnfaith.escaping import markdown_sentence
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.tables import to_markdown

from .claims import CLAIMS, MISSING, NULLED, VERDICTS, Claim, names_of
from .models import levels_of, model_names, models
from .numbers import INPUTS, MEASURES
from .sweep import sparsegen_lambda


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
    named = [None if table is None else table.assign(who=model_names(table)) for table in given]
    return _bullets(write(*named))


def _bullets(lines: Iterable[str]) -> str:
    return "".join(f"* {markdown_sentence(line)}\n" for line in lines)


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
        largest = part.loc[part["difference"].abs().idxmax()]
        clear = (part["difference_ci_low"] > 0) | (part["difference_ci_high"] < 0)
        lines.append(
            f"Gradient in {place}: with attention held fixed tau lies between {_number(low)} and {_number(high)}; in "
            f"{_count(int(clear.sum()), len(part))} rows the interval of the difference to the gradient through attention "
            f"excludes 0. It is largest for {largest['who']} {largest['projection']}: {_ends(largest, 'difference')}."
        )
    return lines


def _on_removal(table: pd.DataFrame) -> list[str]:
    lines = []
    for who, part in table.groupby("who", sort=False):
        most = part.loc[part["tokens_that_differ"].idxmax()]
        clear = (part["difference_ci_low"] > 0) | (part["difference_ci_high"] < 0)
        largest = part.loc[part["difference"].abs().idxmax()]
        lines.append(
            f"{who}: the two importances differ for at most {_ends(most, 'tokens_that_differ')} of the tokens "
            f"({most['projection']}); tau changes in {_count(int(clear.sum()), len(part))} projections, most by "
            f"{_ends(largest, 'difference')} ({largest['projection']})."
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
