"""Is sparse attention more interpretable? What Meister et al. (2021) print, beside ours, and what they left open.

`tables` has the numbers, `claims` judges what the paper says, `page` cuts and shows what stands on the page of the study.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.style import GRADIENT, LEAVE_ONE_OUT, own_style, titled_figure

from . import claims, page
from . import tables as all_tables
from .models import models, sharpness
from .numbers import INPUTS


if TYPE_CHECKING:
    from matplotlib.figure import Figure


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """Tables, those of the page as Markdown too, and the paper's figures of the sweep over lambda.

    Raises StudyError for a file of published numbers that is no such table.
    """
    published = all_tables.published_means(settings.published)
    if not cells:
        return Analysis()
    full = all_tables.tables(cells, published) | {"claims": claims.claims(models(cells), published)}
    made = full | page.page_tables(full)
    texts = {f"{name}.md": page.to_page(name, made[name]) for name in page.SHOWN if name in made}
    figures = {
        "meister_figure2": over_lambda(full, "entropy of", "How even is the importance of inputs?", "normalised entropy"),
        "meister_figure3": over_lambda(full, "tau attention–", "Attention and the importance of inputs", "mean τ"),
    }
    return Analysis(made, texts, {name: figure for name, figure in figures.items() if figure is not None})


@own_style
def over_lambda(full: dict[str, pd.DataFrame], prefix: str, title: str, label: str) -> "Figure | None":
    """Means of a statistic of both measures of inputs with their 95 % intervals against lambda, a panel for each data set
    and model; softmax stands at the left. Diamonds are published. None without a lambda.
    """
    rows = full.get("projections", pd.DataFrame(columns=["statistic", "lambda", "projection", *page.MODEL]))
    rows = rows[(rows["lambda"].notna() | (rows["projection"] == "softmax"))]
    rows = rows.assign(measure=rows["statistic"].astype(str).str.removeprefix(prefix).str.strip())
    rows = rows[rows["measure"].isin(INPUTS)]
    groups = [(names, part) for names, part in rows.groupby(page.MODEL, sort=False) if part["lambda"].notna().any()]
    if not groups:
        return None
    lines, subject = -(-len(groups) // 2), "means over seeds, 95 % intervals · diamonds: published"
    figure = titled_figure(title, None, 10.0, 2.6 * lines, subject=subject, count=rows["n"].max())
    panels = figure.subplots(lines, 2, sharey=True, squeeze=False).ravel()
    for axes, (names, part) in zip(panels, groups, strict=False):
        knobs = np.sort(part["lambda"].dropna().unique())
        left = sharpness(knobs)[0] - 0.5
        for measure, colour in zip(INPUTS, (GRADIENT, LEAVE_ONE_OUT), strict=True):
            mine = part[part["measure"] == measure].sort_values("lambda")
            x = np.where(mine["lambda"].isna(), left, sharpness(mine["lambda"]))
            axes.plot(sharpness(mine["lambda"]), mine["mean"], color=colour, label=measure_label(measure))
            axes.plot(x, mine["mean"], "o", color=colour, markersize=4)
            axes.vlines(x, mine["ci_low"], mine["ci_high"], color=colour, alpha=0.5)
            axes.plot(x, mine["published"], "D", color=colour, markerfacecolor="white")
        ticks = [f"{knob:g}".replace("-", "−") for knob in knobs]
        axes.set_xticks([left, *sharpness(knobs)], ["softmax", *ticks], rotation=90, fontsize=8)
        axes.set_title(f"{names[0]} · {names[1]} + {names[2]}, n = {part['n'].max():,}", fontsize=10, parse_math=False)
        axes.set_ylabel(label)
    for axes in panels[len(groups) :]:
        axes.axis("off")
    panels[0].legend()
    figure.supxlabel("λ, spaced by log(1 − λ): dense to sparse", fontsize=10)
    return figure
