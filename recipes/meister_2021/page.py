"""The tables of docs/results/meister_2021.md: cut from the full ones, and as Markdown."""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from attnfaith.support.escaping import Markdown, markdown, markdown_table

from .claims import CASE, CLAIMS, VERDICTS


MODEL = ["dataset", "encoder", "alignment"]
ENDS = [*MODEL, "projection"]
NAMES = {"sst": "SST", "20news_sports": "20News sports", "imdb": "IMDB", "bilstm": "BiLSTM", "transformer": "Transformer"}
SIDES = {"accuracy": "accuracy", "entropy": "hidden_to_input_entropy"}
SIDES |= {f"tau_{name}": f"tau attention–{name}" for name in ("gradient_norm", "leave_one_out", "gradient_norm_hidden")}
SIDES |= {"tau_leave_one_out_reproject_hidden": "tau attention–leave_one_out_reproject_hidden"}


def page_tables(full: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables that the full ones have the rows for."""
    cuts = {
        "side_by_side": ("projections", side_by_side),
        "entropy": ("sweeps", lambda table: table[table["statistic"] == "lambda–entropy of gradient_norm"]),
        "adversaries": ("with_adversaries", adversaries),
        "nulls": ("published_against_nulls", nulls),
        "removed_states": ("against_nulls", removed_states),
        "scores_at_zero": ("scores", lambda table: table[table["lambda"] == 0]),
        "verdicts": ("claims", verdicts),
    }
    return {name: cut(full[table]) for name, (table, cut) in cuts.items() if table in full}


def side_by_side(projections: pd.DataFrame) -> pd.DataFrame:
    """Each statistic under softmax and sparsemax: mean, _std over seeds, _published."""
    rows = projections[projections["projection"].isin(["softmax", "sparsemax"])]
    table = rows.loc[rows["statistic"] == "accuracy", [*ENDS, "n", "n_seeds"]]
    for name, statistic in SIDES.items():
        part = rows.loc[rows["statistic"] == statistic, [*ENDS, "mean", "sd_over_seeds", "published"]]
        table = table.merge(part.set_axis([*ENDS, name, f"{name}_std", f"{name}_published"], axis=1), how="left")
    return table


def adversaries(rows: pd.DataFrame) -> pd.DataFrame:
    keys = [*ENDS, "training", "divergence", "weight"]
    jsd, loss = (rows[rows["statistic"] == name] for name in ("jsd", "accuracy_difference"))
    jsd = jsd[[*keys, "mean"]].rename(columns={"mean": "jsd"})
    return jsd.merge(loss[[*keys, "mean", "ci_low", "ci_high"]].rename(columns={"mean": "accuracy_difference"}))


def nulls(published: pd.DataFrame) -> pd.DataFrame:
    """How many published correlations exceed what needs no training."""
    states = np.where(published["measure"].str.endswith("_hidden"), "states", "inputs")
    groups = published.assign(importance_of=states).groupby(["importance_of", "null", "measure"], sort=True)
    counts = groups["exceeds"].agg(n_published="size", n_exceed=lambda part: (part == "yes").sum()).reset_index()
    return counts.sort_values("importance_of", ascending=False, kind="stable", ignore_index=True)


def removed_states(nulls: pd.DataFrame) -> pd.DataFrame:
    """tau with a removed state's importance, scores projected again: learned, at random places, untrained."""
    rows = nulls[(nulls["measure"] == "leave_one_out_reproject_hidden") & nulls["projection"].isin(["softmax", "sparsemax"])]
    table = rows[[*ENDS, "tau"]].drop_duplicates(ENDS).rename(columns={"tau": "learned"})
    for name in ("random places", "untrained model"):
        part = rows.loc[rows["null"] == name, [*ENDS, "null_tau"]]
        table = table.merge(part.rename(columns={"null_tau": name.replace(" ", "_")}), how="left")
    return table


def verdicts(claims: pd.DataFrame) -> pd.DataFrame:
    """How many cases of each claim come to each verdict."""
    counts = claims.drop_duplicates(CASE).groupby("claim")["verdict"].value_counts().unstack(fill_value=0)
    counts = counts.reindex(index=list(CLAIMS), columns=list(VERDICTS), fill_value=0)
    counts.columns = counts.columns.str.replace(" ", "_")
    counts.insert(0, "sentence", list(CLAIMS.values()))
    return counts.rename_axis("claim").reset_index()


SHOWN = {
    "verdicts": "claim: {claim}. {sentence} | holds: {holds_here} | does not hold: {does_not_hold_here} | "
    "undecided: {undecided_here} | artefact of ties: {artefact_of_ties} | "
    "artefact of the construction: {artefact_of_the_construction} | not measured: {not_measured}",
    "side_by_side": "WHO | projection: {projection} | n: {n} | seeds: {n_seeds} | accuracy: ±accuracy | "
    "entropy of a state's gradient over inputs: ±entropy | τ inputs, gradient norm: ±tau_gradient_norm | "
    "τ inputs, leave-one-out: ±tau_leave_one_out | τ states, gradient norm: ±tau_gradient_norm_hidden | "
    "τ states, leave-one-out re-projected: ±tau_leave_one_out_reproject_hidden",
    "ties": "WHO | importance of inputs: {measure} | τ: <tau> | τ over its ceiling: <tau_over_ceiling> | "
    "softmax attention, cut: <tau_ties_alone> | top-k overlap above chance: <overlap_above_chance> | "
    "AUPRC above chance: <auprc_above_chance>",
    "nulls": "importance of: {importance_of} | measured by: {measure} | held beside: {null} | "
    "published correlations: {n_published} | of these exceed it: {n_exceed}",
    "removed_states": "WHO | projection: {projection} | τ, learned attention: {learned} | "
    "at random places: {random_places} | untrained: {untrained_model}",
    "entropy": "WHO | seeds: {n_seeds} | Kendall's τ of λ and entropy: {mean} | published: {published}",
    "adversaries": "WHO | projection: {projection} | training: {training} | divergence: {divergence} | JSD, nats: {jsd} | "
    "accuracy, difference [95 % over texts]: {accuracy_difference} [{ci_low}, {ci_high}]",
    "effect_kept": "attention's learning rate ×: {attention_rate} | "
    "effect of λ on the entropy that free scores keep: <kept>",
    "scores_at_zero": "scores: {scale} | attention's learning rate ×: {attention_rate} | "
    "share of tokens with weight: {support_share} | accuracy: {accuracy}",
}
"""The columns of each table on the page: {name}; <name> with its interval; ±name with its spread and the published one."""


def to_page(name: str, table: pd.DataFrame) -> str:
    """A table of the page as Markdown."""
    templates = SHOWN[name].replace("WHO", "data: {dataset} | model: {encoder} + {alignment}")
    templates = re.sub(r"<(\w+)>", r"{\1} [{\1_ci_low}, {\1_ci_high}]", templates)
    templates = re.sub(r"±(\w+)", r"{\1} ± {\1_std} / {\1_published}", templates)
    columns = dict(part.split(": ", 1) for part in templates.split(" | "))
    numeric = [is_numeric_dtype(table.get(template.strip("{}"), pd.Series(dtype=str))) for template in columns.values()]
    digits = 3 if name == "ties" else 2
    rows = [{key: shown(value, digits) for key, value in row.items()} for row in table.to_dict("records")]
    lines = [[Markdown(template.format_map(row).replace(" ± —", "")) for template in columns.values()] for row in rows]
    return markdown_table([[Markdown(head) for head in columns], *lines], numeric=numeric)


def shown(value: object, digits: int) -> str:
    """ ".80", "−.06", "1.00", "5,175", "10"; "—" for an undefined number; data sets and encoders by their names."""
    if isinstance(value, str):
        return markdown(NAMES.get(value, value.removesuffix("_hidden").replace("_", " ")))
    if isinstance(value, float) and (np.isnan(value) or not value.is_integer() or abs(value) <= 1):
        text = f"{value:.{digits}f}".replace("-", "−")
        return "—" if np.isnan(value) else text.replace("0.", ".", 1) if abs(value) < 1 else text
    return f"{value:,.0f}"
