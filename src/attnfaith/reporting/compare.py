"""Records side by side, over what all of them hold: the same texts, the same numbers, and how sure a difference is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pyarrow as pa
from markupsafe import Markup

from attnfaith import record as records
from attnfaith.reporting import sections
from attnfaith.reporting.cells import KINDS, Cell, ReportError, describe, differing_keys, readable, split_cells
from attnfaith.reporting.charts import INK, Bar, Chart, svg
from attnfaith.reporting.html import template
from attnfaith.reporting.sections.agreement import TAU
from attnfaith.reporting.tables import Grid, as_text, p_in_words, short_number, signed
from attnfaith.stats import LEVEL, bca_interval, estimate, holm, over_seeds_of_texts, ratio, seeds_in_words, sign_flip_tests
from attnfaith.support.errors import counted
from attnfaith.support.escaping import html, printable


MOST_NAMED = 6  # quantities, seeds or texts that a note names
KEYS = ("quantity", "first", "second", "over")
Seeds = Mapping[int, Cell]
"""The cells of one side by seed, in order."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two sides or more, every other one held against the first; in a notebook and at a prompt it shows itself.

    sides: names in order. texts: the ids of those that all sides have. notes: what was compared and what was left out, a
    sentence each. frame: a row for each number and each side but the first:

    * quantity: the number, one per text: "tau attention–gradient", "correct" (1 where the predicted class is the gold one),
      "permutation_tvd" and what else the records hold
    * over: what the interval is over, "texts" or, where both sides have several seeds, "seeds and texts"
    * n_texts, n_left_out: texts on which the means rest, and shared ones on which one side is undefined
    * mean_first, mean_second, difference (second - first): means over seeds of means over texts; ci_low, ci_high: the 95 %
      interval of the difference, paired by text (and seed), NaN below two texts
    * p_value: `sign_flip_tests` over texts, `over_seeds_and_texts` over seeds and texts. p_holm: corrected for all rows
    * seeds: of seeds that fall apart, which have no interval, how many are higher, and each; else ""
    * verdict: "higher" or "lower" (the second than the first) where p_holm is at most .05 and the interval is without 0;
      "cannot be told" else, which never means equal; "undefined" without a value
    """

    sides: tuple[str, ...]
    texts: tuple[str, ...]
    notes: tuple[str, ...]
    frame: pd.DataFrame

    @property
    def grid(self) -> Grid:
        """The table for reading."""
        heads = [""] if len(self.sides) == 2 else ["", "second"]
        lines, columns = [], ("mean of first", "of second", "difference", "95 % interval", "p (Holm)", "second is")
        for row in self.frame.to_dict("records"):
            low, high, difference = (short_number(row[name], "+") for name in ("ci_low", "ci_high", "difference"))
            interval = row["seeds"] or (low if np.isnan(row["ci_low"]) else f"{low} to {high}")
            means = (short_number(row[name]) for name in ("mean_first", "mean_second"))
            names = (readable(row["quantity"]), row["second"])[: len(heads)]
            lines.append((*names, *means, difference, interval, p_in_words(row["p_holm"]), row["verdict"]))
        caption = f"first: {self.sides[0]}" + (f", second: {self.sides[1]}" if len(heads) == 1 else "")
        return Grid(caption, (*heads, *columns), tuple(lines), len(heads))

    def __str__(self) -> str:
        table = pd.DataFrame(self.grid.rows, columns=self.grid.columns).set_index("").rename_axis(None)
        return "\n".join([*map(printable, (*self.notes, "", self.grid.caption)), as_text(table, None)])

    __repr__ = __str__

    def html(self) -> str:
        """The same as HTML, all text in it escaped."""
        return "\n".join([*(f"<p>{html(note)}</p>" for note in self.notes), template("grid.html.j2").render(grid=self.grid)])

    _repr_html_ = html


def compare(tables: Sequence[pa.Table], names: Sequence[str], *, mix_versions: bool = False) -> Comparison:
    """Compare two records or more over the texts and numbers that all of them hold, every other one against the first.

    Records of models that differ in nothing but their seed are one side, with an interval over seeds and texts; where two of
    these have one seed too, each record is a side of its own. Sides are paired by text: same instance id, same words. Seeds
    are paired by their number, or in order where no number is on both sides.

    names: of the records, for people. mix_versions: also numbers that different versions of the package made.

    Raises ReportError for fewer than two records, no text in common, or no number that all hold; RecordError where
    different versions of the package made one.
    """
    cells = [(str(name), cell) for name, table in zip(names, tables, strict=True) for cell in split_cells(table)]
    if len(cells) < 2:
        raise ReportError(f"a comparison needs two models or more; given: {', '.join(map(str, names)) or 'none'}")
    if not mix_versions:
        records.check_one_version(tables)
    sides, texts = _sides(cells), _shared_texts(cells)
    numbers = {cell: pd.DataFrame(sections.numbers(cell), index=cell.instance_ids).loc[texts] for _, cell in cells}
    held = dict.fromkeys(name for table in numbers.values() for name in table.columns)
    shared = [name for name in held if all(name in table.columns for table in numbers.values())]
    if not shared:
        raise ReportError(f"no number is in all records (some hold {_listed(held)}): measure them with the same producers")
    (first, first_seeds), *rest = sides.items()
    frames, notes = [], _notes(sides, cells, texts)
    for name, seeds in rest:
        paired = [(seed, seed) for seed in first_seeds if seed in seeds] or list(zip(first_seeds, seeds, strict=False))
        if len(first_seeds) + len(seeds) > 2:
            words = _listed(f"{seed} and {other}" for seed, other in paired)
            notes.append(f"Seeds of the first side and of {name} that are paired: {words}.")
        left, right = (
            np.stack([numbers[side[seed]][shared].to_numpy(np.float64) for seed in chosen])  # [S, N, Q]
            for side, chosen in zip((first_seeds, seeds), zip(*paired, strict=True), strict=True)
        )
        frames.append(_rows(left, right, shared, len(rest) * len(shared)).assign(first=first, second=name))
    frame = pd.concat(frames, ignore_index=True)
    frame["p_holm"] = holm(frame["p_value"])
    sure = (frame["p_holm"] <= LEVEL) & ((frame["ci_low"] > 0) | (frame["ci_high"] < 0))
    direction = np.where(frame["difference"] > 0, "higher", "lower")
    frame["verdict"] = np.where(frame["difference"].isna(), "undefined", np.where(sure, direction, "cannot be told"))
    frame = frame[[*KEYS, *(name for name in frame if name not in KEYS)]]
    if left_out := [name for name in held if name not in shared]:
        notes.append(f"Not compared, as not all have them: {_listed(left_out)}.")
    return Comparison(tuple(sides), tuple(texts), tuple(notes), frame)


def _sides(cells: Sequence[tuple[str, Cell]]) -> dict[str, Seeds]:
    """Cells that differ in nothing but their seed together, by the name of the side: that of the record; of several seeds,
    what tells this kind of model from the others.
    """
    groups: dict[records.Identity, list[tuple[str, Cell]]] = {}
    for name, cell in cells:
        groups.setdefault(replace(cell.identity, seed=0), []).append((name, cell))
    keys, sides = differing_keys([cell for _, cell in cells], KINDS), []
    for group in groups.values():
        seeds = {cell.identity.seed: cell for _, cell in sorted(group, key=lambda pair: pair[1].identity.seed)}
        if len(groups) > 1 and len(seeds) == len(group) > 1:
            kind = " ".join(str(group[0][1].heading[key]) for key in keys)
            sides.append((kind or group[0][0], seeds))
        else:
            sides += [(name, {cell.identity.seed: cell}) for name, cell in group]
    names = [name for name, _ in sides]
    numbered = {}
    for place, (name, seeds) in enumerate(sides):
        numbered[f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name] = seeds
    return numbered


def _shared_texts(cells: Sequence[tuple[str, Cell]]) -> list[str]:
    """The ids of the instances that all cells have, and read alike, in order: the draws do not depend on that of rows."""
    shared: dict = {}
    for place, (name, cell) in enumerate(cells):
        words = [cell.queries or [[]] * len(cell)]
        words += [cell.table.column(part).to_pylist() for part in ("tokens", "target_tokens") if cell.has(part)]
        texts = dict(zip(cell.instance_ids, zip(*words, strict=True), strict=True))
        shared = {key: words for key, words in shared.items() if texts.get(key) == words} if place else texts
        if not shared:
            raise ReportError(
                f"{cells[0][0]} and {name} have no text in common (one id with the same words): measure both on the "
                "same split of one data set, read by the same tokenizer"
            )
    return sorted(shared)


def _rows(left: np.ndarray, right: np.ndarray, names: Sequence[str], family: int) -> pd.DataFrame:
    """A row for each number of two sides [S,N,Q], without what depends on other rows. family: rows corrected together."""
    differences = right - left
    defined = ~np.isnan(differences)
    n_texts, single = defined.any(axis=0).sum(axis=0), len(differences) == 1
    by_seed = {  # [S, Q], means over texts, without what is undefined on either side
        name: pd.DataFrame(ratio(np.where(defined, side, 0).sum(axis=1), defined.sum(axis=1)))
        for name, side in (("mean_first", left), ("mean_second", right), ("difference", differences))
    }
    if single:
        estimates = [list(estimate("", column, interval=bca_interval).values()) for column in differences[0].T]
        p_values = np.where(n_texts < 2, np.nan, sign_flip_tests(differences[0], draws=max(9999, 100 * family)))
    else:
        reach = [1.0 if name == "correct" else 2.0 if name.startswith(TAU) else np.inf for name in names]
        columns = zip(np.moveaxis(differences, 2, 0), reach, strict=True)
        estimates = [over_seeds_of_texts(column, bounds=(-most, most)) for column, most in columns]
        p_values = [each.p_value for each in estimates]
    value, low, high = np.transpose([each[:3] for each in estimates])
    apart = ~np.isnan(value) & np.isnan(low) & (not single)
    return pd.DataFrame(
        {
            "quantity": names,
            "over": "texts" if single else "seeds and texts",
            "n_texts": n_texts,
            "n_left_out": differences.shape[1] - n_texts,
            **{name: means.mean() for name, means in by_seed.items()},
            "ci_low": low,
            "ci_high": high,
            "p_value": p_values,
            "seeds": [seeds_in_words(own, 0) if apart[place] else "" for place, own in by_seed["difference"].items()],
        }
    )


def _notes(sides: Mapping[str, Seeds], cells: Sequence[tuple[str, Cell]], texts: Sequence[str]) -> list[str]:
    """What is compared, a sentence each."""
    notes = [f"{len(sides)} sides over the {counted(len(texts))} that all have; intervals are paired by text."]
    for name, seeds in sides.items():
        heading = next(iter(seeds.values())).heading
        seed = _listed(seeds) if len(seeds) > 1 else heading["seed"]
        notes.append(f"{name}: {describe({**heading, 'seed': seed})}")
    longer = [f"{name} {len(cell) - len(texts)}" for name, cell in cells if len(cell) > len(texts)]
    return notes + ([f"Texts left out, which not all have or read alike: {_listed(longer)}."] if longer else [])


def _listed(values: Iterable) -> str:
    values = list(map(str, values))
    return ", ".join(values[:MOST_NAMED]) + (f" and {len(values) - MOST_NAMED} more" if len(values) > MOST_NAMED else "")


PREFERRED = ("integrated_gradients", "leave_one_out", "gradient")
"""Measures of the sentences, the first MOST_TAUS of those that are there; else the first of the table."""
MOST_TAUS = 2
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
COLOURS = ("var(--a)", "var(--b)")


def comparison_page(comparison: Comparison) -> str:
    """Return the HTML of one page: what differs in sentences, a chart of agreement, and the table."""
    letters = dict(zip(comparison.sides, LETTERS, strict=False))
    colours = dict.fromkeys(letters, INK) | dict(zip(letters, COLOURS, strict=False))
    return template("compare.html.j2").render(
        title="What differs?",
        sides=[(letter, name, colours[name]) for name, letter in letters.items()],
        sentences=list(sentences(comparison, letters)),
        chart=_chart(comparison, letters, colours),
        grid=comparison.grid,
        notes=comparison.notes,
    )


def sentences(comparison: Comparison, letters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(sentence, its numbers) of each other side: accuracy first, then agreement with at most two measures."""
    first = letters[comparison.sides[0]]
    for name, rows in comparison.frame.groupby("second", sort=False):
        second = letters.get(name, name)
        by_quantity = {row["quantity"]: row for row in rows.to_dict("records")}
        words = {"correct": ("{} is right more often than {}.", "Which is right more often")}
        taus = [TAU + measure for measure in PREFERRED if TAU + measure in by_quantity]
        taus = taus or [quantity for quantity in by_quantity if quantity.startswith(TAU)]
        for quantity in taus[:MOST_TAUS]:
            order = f"orders words more as {readable(quantity.removeprefix(TAU))} does"
            words[quantity] = f"The attention of {{}} {order} than that of {{}}.", f"Whose attention {order}"
        for quantity, (more, question) in words.items():
            if row := by_quantity.get(quantity):
                higher = (second, first) if row["verdict"] == "higher" else (first, second)
                differs = row["verdict"] in ("higher", "lower")
                unit = "τ " if quantity.startswith(TAU) else ""
                numbers = f"{first} {unit}{signed(row['mean_first'])}, {second} {unit}{signed(row['mean_second'])}"
                if not np.isnan(row["ci_low"]):
                    low, high, difference = (short_number(row[end]) for end in ("ci_low", "ci_high", "difference"))
                    numbers += f"; difference {difference} [{low}, {high}]".replace("-", "−")
                    if not differs and (row["ci_low"] > 0 or row["ci_high"] < 0):
                        numbers += f", corrected p {p_in_words(row['p_holm'])}"
                sentence = more.format(*higher) if differs else f"{question} cannot be told."
                yield sentence, f"{numbers}, {counted(int(row['n_texts']))}."


def _chart(comparison: Comparison, letters: Mapping[str, str], colours: Mapping[str, str]) -> Markup | None:
    """Mean tau of every side with each measure of inputs. None where no tau is defined."""
    rows = comparison.frame[comparison.frame["quantity"].str.startswith(TAU) & comparison.frame["difference"].notna()]
    rows = rows[~rows["quantity"].str.endswith("_hidden")]
    first, bars = comparison.sides[0], []
    for quantity, sides in rows.groupby("quantity", sort=False):
        means = {first: sides["mean_first"].iloc[0], **dict(zip(sides["second"], sides["mean_second"], strict=True))}
        marks = tuple((mean, colours.get(side, INK)) for side, mean in means.items())
        bars.append(Bar(readable(quantity.removeprefix(TAU)), marks))
    axis = f"Mean Kendall’s τ of {' and of '.join(list(letters.values())[:2])}, 1 the same order"
    return svg(Chart("taus", "Agreement of attention with each measure", axis, tuple(bars), chance=0.0)) if bars else None
