"""Which tests of attention tell a model that was trained to hide what it uses from an honest one?

Models come in pairs: of one identity but for the weight of the penalty on attention to impermissible words, 0 in the honest
one, above in the deceiving one, so with the same data, texts, encoder and seed. Every test says one number of each text
(`attention_tests`), and the area under the ROC curve (AUC) says how well it tells the texts of the two models apart: the
probability that a text of the deceiving model looks more suspicious than one of the honest model, in the direction that was
declared beforehand. 1: without an error. .5: not at all. Below: the test takes the honest model for the deceiving one.

A model that is less sure of itself changes most of these numbers, deceit or not. The matched AUC compares texts of about
the same confidence alone: those in one stratum of the log-odds of the predicted class, STRATUM wide. Strata and not nearest
neighbours: no pair depends on the order of the texts or on a choice among equals, and every text that has a partner
counts. Of the log-odds and not of the probability, most of whose texts lie in its last hundredth. What difference is
left within strata stands in the table of the models, and the control `confidence` should come out near .5.

Source of the models: Pruthi et al. (2020). The comparison is this library's own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith.record import Identity
from attnfaith.reporting import attention_tests
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.comparison_figures import forest
from attnfaith.reporting.pairings import KEYS, Pairing, mean_of_means, pairings
from attnfaith.reporting.sections.performance import per_text as correctness
from attnfaith.reporting.separation import Separation
from attnfaith.reporting.spec import Section, Table
from attnfaith.stats import LEVEL, holm


if TYPE_CHECKING:
    from matplotlib.figure import Figure

STRATUM = 0.25
"""Width of a stratum of log-odds: the probabilities .5 and .562, or .95 and .961."""
TOLD, MISLED, UNTOLD, ONE_SEED, UNDEFINED = "uncovers", "misled", "cannot be told", "one seed", "undefined"
COMPARISON = ("n_seeds", "auc", "ci_low", "ci_high", "p_value", "p_holm", "verdict")
COLUMNS = (
    *(*KEYS, "test", "label", "kind", "over", "seed", "n_honest", "n_deceiving", "n_undefined_honest"),
    *("n_undefined_deceiving", "mean_honest", "mean_deceiving", *COMPARISON, "share_matched"),
    *(f"matched_{name}" for name in COMPARISON),
)
MODELS = (
    *(*KEYS, "n_seeds", "n_texts", "accuracy_honest", "accuracy_deceiving", "hidden_honest", "hidden_deceiving"),
    *("confidence_honest", "confidence_deceiving", "imbalance", "imbalance_matched", "share_matched"),
)


def honest_twin(identity: Identity) -> Identity:
    """The model that was trained in the same way but for the penalty on attention to impermissible words."""
    return replace(identity, impermissible_mass=0.0, impermissible_heads=None)


def uncovered_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """Which tests tell deceiving models from honest ones: a row per pairing and test for each seed, and for all seeds.

    kind: "test", or "control" of what is no test of attention. over: "texts" of the two models of one seed, or "seeds and
    texts" (seed "all"). n_honest, n_deceiving: texts with a number, summed over seeds; n_undefined_...: those without.
    mean_...: of the numbers, over texts and then seeds. auc: as above, of all texts; matched_auc: of those of about the same
    confidence; share_matched: numbers that have a partner of that kind. n_seeds: those with an AUC. ci_low, ci_high: 95 %
    intervals, over seeds and texts where there are two seeds or more (`stats.over_seeds_and_texts`). p_value: of .5; p_holm:
    corrected by Holm for all tests of the pairing, those of the matched ones by themselves. verdict, of all seeds:
    "uncovers", or "misled" for an AUC below .5, where p_holm is at most .05, so that the interval is without .5; else
    "cannot be told". One seed has no verdict: it speaks of two models. Neither has a control.
    """
    frames = [_of_pairing(pairing) for pairing in pairings(cells, honest_twin)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=COLUMNS)


def _of_pairing(pairing: Pairing) -> pd.DataFrame:
    strata = _strata(pairing)
    rows = [row for name, kind in pairing.tests.items() for row in _rows(pairing, strata, name, kind)]
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    asked = (table["kind"] == "test") & (table["seed"] == "all")
    for start in ("", "matched_"):
        corrected = np.full(len(table), np.nan)
        corrected[asked] = holm(table.loc[asked, f"{start}p_value"])
        judged = zip(table[f"{start}auc"], corrected, table[f"{start}n_seeds"], asked, strict=True)
        table[f"{start}p_holm"] = corrected
        table[f"{start}verdict"] = [verdict(*numbers) if is_asked else "" for *numbers, is_asked in judged]
    return table


def verdict(auc: float, p_holm: float, n_seeds: int) -> str:
    """What an AUC over seeds and texts shows of a test."""
    if np.isnan(auc):
        return UNDEFINED
    if n_seeds < 2:
        return ONE_SEED
    return UNTOLD if p_holm > LEVEL else TOLD if auc > 0.5 else MISLED


def _strata(pairing: Pairing) -> tuple[np.ndarray, np.ndarray]:
    """The stratum of each text, by the confidence of the honest and of the deceiving models, [S, N] int each."""
    honest, deceiving = (np.floor(np.nan_to_num(odds) / STRATUM).astype(np.int64) for odds in pairing.numbers("confidence"))
    return honest, deceiving


def _rows(pairing: Pairing, strata: tuple[np.ndarray, np.ndarray], name: str, kind: str) -> Iterator[dict[str, object]]:
    """A test's row of each seed, and of all."""
    test, seeds = attention_tests.named(name), list(pairing.plain)
    sides = dict(zip(("honest", "deceiving"), zip(pairing.numbers(name), pairing.held, strata, strict=True), strict=True))
    for seed in (*seeds, "all"):
        part = slice(None) if seed == "all" else [seeds.index(seed)]
        row = {**pairing.heading, "test": name, "label": test.label, "kind": kind}
        row |= {"over": "seeds and texts" if seed == "all" else "texts", "seed": str(seed)}
        for side, (values, held, _) in sides.items():
            defined = ~np.isnan(values[part])
            row |= {f"n_{side}": int(defined.sum()), f"n_undefined_{side}": int((held[part] & ~defined).sum())}
            row[f"mean_{side}"] = mean_of_means(values[part])
        (honest, _, of_honest), (deceiving, _, of_deceiving) = sides.values()
        suspicion = test.suspect * deceiving[part], test.suspect * honest[part]
        matched = Separation(*suspicion, of_deceiving[part], of_honest[part])
        row |= _compared("", Separation(*suspicion)) | {"share_matched": matched.partnered} | _compared("matched_", matched)
        yield row


def _compared(start: str, separation: Separation) -> dict[str, float]:
    value, low, high, p_value = separation.estimate
    numbers = {"n_seeds": int(separation.known.sum()), "auc": value, "ci_low": low, "ci_high": high, "p_value": p_value}
    return {f"{start}{name}": number for name, number in numbers.items()}


def models_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """What the two models of each pairing are like, means over texts and then seeds, and how far matching made them alike.

    n_texts: of one seed. accuracy_...: of texts with a label. hidden_...: attention on the words to be hidden.
    confidence_...: log-odds of the predicted class. imbalance: their difference, deceiving - honest, over the standard
    deviation within models, mean over seeds; imbalance_matched: the same over the pairs of texts of one stratum.
    share_matched: texts that have a partner of the other model in their stratum.
    """
    rows = []
    for pairing in pairings(cells, honest_twin):
        row = {**pairing.heading, "n_seeds": len(pairing.plain), "n_texts": len(pairing.texts)}
        for name, values in (
            ("accuracy", pairing.values(lambda cell: correctness(cell)["correct"])),
            ("hidden", pairing.numbers("impermissible")),
            ("confidence", pairing.numbers("confidence")),
        ):
            row |= {f"{name}_{side}": mean_of_means(of) for side, of in zip(("honest", "deceiving"), values, strict=True)}
        row |= _balance(*pairing.numbers("confidence"), *_strata(pairing))
        rows.append(row)
    return pd.DataFrame(rows, columns=MODELS)


def _balance(honest: np.ndarray, deceiving: np.ndarray, of_honest: np.ndarray, of_deceiving: np.ndarray) -> dict[str, float]:
    whole, within = [], []
    for seed in range(len(honest)):
        one, other = (values[seed][~np.isnan(values[seed])] for values in (deceiving, honest))
        spread = np.sqrt((one.var() + other.var()) / 2)
        whole.append((one.mean() - other.mean()) / spread if spread else np.nan)
        strata = [of[seed][~np.isnan(values[seed])] for of, values in ((of_deceiving, deceiving), (of_honest, honest))]
        shared = np.intersect1d(*strata)
        pairs = np.array([np.sum(strata[0] == stratum) * np.sum(strata[1] == stratum) for stratum in shared])
        gaps = np.array([one[strata[0] == stratum].mean() - other[strata[1] == stratum].mean() for stratum in shared])
        within.append(np.sum(pairs * gaps) / np.sum(pairs) / spread if spread and len(shared) else np.nan)
    return {
        "imbalance": float(np.mean(whole)),
        "imbalance_matched": float(np.mean(within)),
        "share_matched": Separation(deceiving, honest, of_deceiving, of_honest).partnered,
    }


def figures(tables: Mapping[str, pd.DataFrame]) -> "dict[str, Figure]":
    """Of each data set, all tests and their AUC with its interval."""
    table = tables.get("uncovered", pd.DataFrame(columns=COLUMNS))
    shown = table[table["seed"] == "all"]
    return {
        f"{dataset}-uncovered": forest(
            part,
            "Which tests tell a deceiving model from an honest one?",
            f"{dataset} · 95 % intervals over seeds and texts (over texts where there is one seed)",
            "1: uncovers without an error; .5: says nothing; below: misled.\nBelow the dotted line: no tests",
        )
        for dataset, part in shown.groupby("dataset", sort=False)
    }


NOTE = (
    "Texts of the deceiving model against texts of the honest one: the probability that the former looks more suspicious, "
    "in a direction declared beforehand. Matched: texts of about the same confidence."
)
SECTION = Section(
    name="uncovered",
    source="models of Pruthi et al. (2020)",
    place=95,
    needs=("probs", "attention", "label"),
    uses=(
        "importance_*",
        "impermissible",
        "rationale",
        *(name for test in attention_tests.TESTS.values() for name in test.needs),
    ),
    tables=(
        Table(name="uncovered", frame=uncovered_table, note=NOTE, over_seeds=True),
        Table(name="uncovered_models", frame=models_table, over_seeds=True),
    ),
    across_figures=figures,
    reported=False,
)
