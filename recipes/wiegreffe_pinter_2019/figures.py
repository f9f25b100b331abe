"""Figures of Wiegreffe & Pinter's comparisons: attention and predictions of other models beside a base's."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnfaith.reporting.cells import Cell
from attnfaith.reporting.style import PALETTE, class_groups, note, own_style, titled_figure

from .stability import (
    BIN_NAMES,
    BINS,
    FAMILY,
    RETRAINED,
    UNIFORM,
    Comparison,
    _key,
    bases,
    comparisons_of,
    is_adversary,
    trade_off,
)


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def figures(cells: Sequence[Cell]) -> "dict[str, Figure]":
    """The figures of the protocol, of the first base of each family, and the trade-off over all of its bases."""
    drawn = {}
    families: dict[tuple, list[Cell]] = {}
    for base in bases(cells):
        families.setdefault(_key(base, FAMILY), []).append(base)
    for members in families.values():
        pairs = [pair for pair in comparisons_of(members[0], cells) if pair.name != UNIFORM]
        prefix = f"{members[0].heading['dataset']}-{members[0].heading['encoder']}"
        if pairs:
            drawn[f"{prefix}-attention_of_other_models"] = attention_of_other_models(pairs)
            drawn[f"{prefix}-attention_and_prediction"] = attention_and_prediction(pairs)
        if any(is_adversary(other) for pair in pairs for other in pair.others):
            drawn[f"{prefix}-trade_off"] = trade_off_curve(members, cells)
    return drawn


def _panels(title: str, pairs: Sequence[Comparison], height: float) -> "tuple[Figure, list[Axes]]":
    columns = min(3, len(pairs))
    lines = -(-len(pairs) // columns)
    figure = titled_figure(title, pairs[0].base, 4.0 * max(2, columns), height * lines)
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for empty in axes[len(pairs) :]:
        empty.set_visible(False)
    for panel, pair in zip(axes, pairs, strict=False):
        defined = pair.jsd[~np.isnan(pair.jsd)]
        mean = f", mean {defined.mean():.2f}" if len(defined) else ""
        undefined = f" ({len(pair.jsd) - len(defined):,} undefined)" if len(defined) < len(pair.jsd) else ""
        models = f"{len(pair.others)} models" if len(pair.others) > 1 else "1 model"
        panel.set_title(f"{pair.name}\n{models}{mean}, n = {len(defined):,}{undefined}", fontsize=10)
    return figure, list(axes[: len(pairs)])


@own_style
def attention_of_other_models(pairs: Sequence[Comparison]) -> "Figure":
    """Per-instance JSD between a base's attention and that of other seeds and adversaries, one panel each, same axes.

    Violins by the base's largest weight in four bins of .25 and by its predicted class; the bar is the median, the number
    the instances of the bin. The dashed line is ln 2, the greatest JSD. Source: Wiegreffe & Pinter (2019), sections 3, 4.
    """
    figure, panels = _panels("How far from the base's attention?", pairs, 3.2)
    base = pairs[0].base
    largest = np.array([row.max() if len(row) else np.nan for row in base.attention], dtype=np.float64)
    groups = class_groups(base)
    width = 0.8 / len(groups)
    for panel, pair in zip(panels, pairs, strict=True):
        for number, ((name, members), colour) in enumerate(zip(groups, PALETTE, strict=False)):
            shift = (number - (len(groups) - 1) / 2) * width
            for place, (low, high) in enumerate(zip(BINS[:-1], BINS[1:], strict=True)):
                inside = (largest >= low) & ((largest < high) | (place == 3)) & members
                _violin(panel, pair.jsd[inside & ~np.isnan(pair.jsd)], place + shift, width * 0.9, colour)
            panel.plot([], [], color=colour, linewidth=6, alpha=0.5, label=name)
        panel.axhline(np.log(2), color="#777777", linewidth=1, linestyle=(0, (4, 2)))
        panel.set_ylim(0, 0.76)
        panel.set_xticks(range(4), BIN_NAMES, fontsize=9)
        panel.set_xlabel("base's largest weight")
    panels[0].set_ylabel("JSD of attentions (nats)")
    panels[0].legend(loc="upper left", bbox_to_anchor=(0, 0.9), title="base predicts", fontsize=8, title_fontsize=8)
    return figure


def _violin(axes: "Axes", values: np.ndarray, place: float, width: float, colour: str) -> None:
    """A violin with its median and n; below five values, the values themselves."""
    if len(values) >= 5 and np.ptp(values) > 1e-9:
        body = axes.violinplot(values, [place], widths=width, showextrema=False)["bodies"][0]
        body.set(facecolor=colour, edgecolor=colour, alpha=0.45)
    else:
        axes.scatter(np.full(len(values), place), values, s=8, color=colour, linewidths=0)
    if len(values):
        middle = np.median(values)
        axes.plot([place - width / 3, place + width / 3], [middle, middle], color=colour, linewidth=2)
    axes.text(place, 0.705, f"{len(values):,}", ha="center", va="bottom", fontsize=7, color=colour)


@own_style
def attention_and_prediction(pairs: Sequence[Comparison]) -> "Figure":
    """Per instance, how far the prediction of other seeds and adversaries moved (TVD) and how far their attention (JSD).

    A model whose points lie high and to the left attends elsewhere and says the same. The cross is the mean.
    Source: Wiegreffe & Pinter (2019), section 4.
    """
    figure, panels = _panels("Other attention, same prediction?", pairs, 3.0)
    for panel, pair in zip(panels, pairs, strict=True):
        defined = ~np.isnan(pair.jsd) & ~np.isnan(pair.tvd)
        if defined.any():
            tvd, jsd = pair.tvd[defined], pair.jsd[defined]
            panel.scatter(tvd, jsd, s=6, color=PALETTE[4], alpha=0.35, linewidths=0, rasterized=True)
            panel.plot(tvd.mean(), jsd.mean(), marker="+", markersize=14, markeredgewidth=2.5, color=PALETTE[1])
        else:
            note(panel, "no text has a defined JSD")
        panel.axhline(np.log(2), color="#777777", linewidth=1, linestyle=(0, (4, 2)))
        panel.set(xlim=(-0.02, 1), ylim=(0, 0.72), xlabel="TVD of predictions")
    panels[0].set_ylabel("JSD of attentions (nats)")
    return figure


@own_style
def trade_off_curve(base_cells: Sequence[Cell], cells: Sequence[Cell]) -> "Figure":
    """Mean TVD against mean JSD of the adversaries, one curve over their weights, beside other seeds and uniform attention.

    Bars: 95 % bootstrap intervals over instances. Source: Wiegreffe & Pinter (2019), section 4, figure 5.
    """
    table = trade_off(base_cells, cells)
    figure = titled_figure("What an adversary can reach", base_cells[0], 9.0, 4.2)
    axes = figure.add_subplot()
    curves = table[table["divergence"] != ""].groupby(["frozen", "divergence"], sort=False)
    drawn = [(f"adversary, {d}" + (", frozen" if f == "yes" else ""), rows, "-") for (f, d), rows in curves]
    drawn += [(name, table[table["model"] == name], "") for name in (RETRAINED, UNIFORM)]
    for (name, rows, line), colour in zip(drawn, PALETTE, strict=False):
        if not len(rows):
            continue
        rows = rows.sort_values("weight")
        errors = [
            np.abs(rows[[f"{of}_ci_low", f"{of}_ci_high"]].to_numpy().T - rows[f"{of}_mean"].to_numpy())
            for of in ("tvd", "jsd")
        ]
        n_bases = rows["n_seeds"].max()
        label = f"{name} ({n_bases} base{'s' if n_bases > 1 else ''})"
        axes.errorbar(
            rows["tvd_mean"], rows["jsd_mean"], *errors[::-1], color=colour, label=label, linestyle=line, marker="o", ms=5
        )
        for row in rows.itertuples():
            if line:
                fewer = f"\n({row.n_seeds} base{'s' if row.n_seeds > 1 else ''})" if row.n_seeds < n_bases else ""
                axes.annotate(
                    f"λ {row.weight:g}{fewer}", (row.tvd_mean, row.jsd_mean), (6, -2), textcoords="offset points", va="top"
                )
    axes.axhline(np.log(2), color="#777777", linewidth=1, linestyle=(0, (4, 2)))
    axes.set(ylim=(0, 0.72), xlabel="mean TVD of predictions to the base", ylabel="mean JSD of attentions (nats)")
    axes.set_xlim(left=0)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
