"""The results as the HTML of the page: numbers with their meanings, a histogram, the rows of an instance as bars.

All text that comes from outside is escaped.

Shapes: N instances, T tokens of one instance.
"""

import functools
import html
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa

from .reading import cut


FOLDER = Path(__file__).parent
MAX_DRAWN = 400  # tokens of a picture; nobody reads more, and they make the page slow
BINS = np.linspace(-1, 1, 21)
# heading -> how the statistics below it begin
GROUPS = {
    "Instances": ("n",),
    "Concentration of attention": ("normalised_entropy", "support_size", "share_of_zeros"),
    "Agreement with importance": ("kendall_tau", "tie_ceiling", "top_k_overlap", "support_auprc"),
    "Change of the prediction": ("tvd", "flip_fraction"),
    "Distance of the attentions": ("jsd",),
}


def safe(text):
    """Text for HTML: escaped, and without the halves of letters that UTF-8 cannot hold."""
    return html.escape(str(text).encode("utf-8", "replace").decode())


def block(content):
    return f'<div class="faithfulness">{content}</div>'


def _minus(number):
    return number.replace("-", "\u2212")  # as wide as the plus


def _number(value):
    """A count as it is, a statistic to three decimals, NaN as "undefined"."""
    if math.isnan(value):
        return "undefined"
    return f"{value:,}" if isinstance(value, int) else _minus(f"{value:.3f}")


@functools.cache
def meanings():
    """Statistic -> (meaning, range, direction), from the card's table of output values."""
    statistics = {}
    for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[0].startswith("`"):
            statistics |= {
                name: tuple(cell.replace("`", "") for cell in cells[1:]) for name in re.findall(r"`(\w+)`", cells[0])
            }
    return statistics


def numbers_html(results):
    """The main numbers as tiles, then all of them with range and meaning, grouped by the question they answer."""
    tiles = [_tile(*tile) for tile in _tiles(results)]
    rows = []
    for heading, beginnings in GROUPS.items():
        names = [name for name in results if name in beginnings or name.startswith(tuple(f"{one}_" for one in beginnings))]
        if names:
            rows.append(f'<tr><th colspan="4" scope="rowgroup">{heading}</th></tr>')
        for name in names:
            meaning, extent, direction = meanings()[re.sub(r"_class_\d+", "_class_0", name)]
            said = f"{meaning}; {direction}" if direction else meaning
            rows.append(
                f'<tr><td><code>{safe(name)}</code></td><td class="number">{_number(results[name])}</td>'
                f'<td>{safe(extent)}</td><td class="quiet">{safe(said)}</td></tr>'
            )
    head = "<tr><th>Statistic</th><th>Value</th><th>Range</th><th>Meaning</th></tr>"
    return block(
        f'<div class="tiles">{"".join(tiles)}</div>'
        f"<details><summary>All {len(results)} numbers</summary>"
        f'<div class="wide"><table>{head}{"".join(rows)}</table></div></details>'
    )


def _tile(label, value, note):
    return f'<div class="tile"><span>{label}</span><b>{_number(value)}</b><span class="quiet">{note}</span></div>'


def _tiles(results):
    yield "Instances", results["n"], ""
    if "kendall_tau" in results:
        low, high = results["kendall_tau_ci_low"], results["kendall_tau_ci_high"]
        interval = "undefined" if math.isnan(low) else f"{_number(low)} to {_number(high)}"
        yield "Kendall’s τ-b, mean", results["kendall_tau"], f"95 % interval: {interval}"
        over = _number(results["kendall_tau_over_ceiling"])
        yield "Highest τ-b that ties allow", results["tie_ceiling"], f"τ-b over it: {over}"
    if "normalised_entropy" in results:
        note = f"tokens with weight, mean: {results['support_size']:.1f}"
        yield "Entropy of attention over its maximum", results["normalised_entropy"], note
    if "tvd" in results:
        note = f"decisions changed: {_number(results['flip_fraction'])}"
        yield "Total variation distance", results["tvd"], note
    if "jsd" in results:
        yield "Jensen-Shannon divergence", results["jsd"], "nats; at most 0.693"


def histogram_html(tau):
    """How many instances have which tau-b, [N] with NaN where undefined; bins of 0.1, the mean as a dashed line."""
    defined = tau[~np.isnan(tau)]
    undefined = len(tau) - len(defined)
    title = f"Kendall’s τ-b between attention and importance, {len(defined):,} of {len(tau):,} instances"
    note = f"; undefined for {undefined:,}" if undefined else ""
    heading = f'<p class="title">{title}{note}</p>'
    if not len(defined):
        return block(heading + '<p class="quiet">τ-b needs two tokens and scores that are not all equal.</p>')
    counts, _ = np.histogram(defined, BINS)
    left, right, top, bottom = 52, 748, 34, 200
    high = max(counts.max(), 1)

    def across(value):
        return left + (value + 1) / 2 * (right - left)

    def up(count):
        return bottom - count / high * (bottom - top)

    parts = []
    for count in sorted({0, high // 2, high} if high > 1 else {0, 1}):
        parts.append(
            f'<line x1="{left}" x2="{right}" y1="{up(count):.1f}" y2="{up(count):.1f}" stroke="currentColor" opacity=".18"/>'
            f'<text x="{left - 8}" y="{up(count) + 4:.1f}" text-anchor="end">{count:,}</text>'
        )
    for count, low, end in zip(counts, BINS[:-1], BINS[1:], strict=True):
        if count:
            parts.append(
                f'<rect x="{across(low) + 1:.1f}" y="{up(count):.1f}" width="{across(end) - across(low) - 2:.1f}" '
                f'height="{bottom - up(count):.1f}" fill="var(--attention)" rx="1">'
                f"<title>{count:,} between {low:.1f} and {end:.1f}</title></rect>"
            )
    for tick in (-1, -0.5, 0, 0.5, 1):
        parts.append(f'<text x="{across(tick):.1f}" y="{bottom + 20}" text-anchor="middle">{_minus(f"{tick:g}")}</text>')
    mean = float(defined.mean())
    anchor = "end" if mean > 0.7 else "start"
    parts.append(
        f'<line x1="{across(mean):.1f}" x2="{across(mean):.1f}" y1="{top - 8}" y2="{bottom}" stroke="var(--importance)" '
        f'stroke-width="2" stroke-dasharray="6 4"/><text x="{across(mean) + (-6 if anchor == "end" else 6):.1f}" '
        f'y="{top - 10}" text-anchor="{anchor}">mean {_number(mean)}</text>'
    )
    axis = f'<text x="{(left + right) / 2}" y="{bottom + 44}" text-anchor="middle">τ-b of an instance</text>'
    picture = f'<svg viewBox="0 0 760 252" role="img" aria-label="{title}, mean {_number(mean)}">'
    return block(f"{heading}{picture}{''.join(parts)}{axis}</svg>")


def bars_html(columns, row):
    """One instance, a line per token: attention to the left, importance to the right, each to the scale of its own row."""
    if "attention" not in columns:
        return ""
    if not 0 <= row < len(columns["attention"]):
        return block(f'<p class="quiet">There is no row {row}.</p>')
    rows = {name: columns[name][row] for name in ("attention", "importance") if name in columns}
    title = f'<p class="title">Row {row}{_tau_of(columns, row)}</p>'
    known = {name: values for name, values in rows.items() if values is not None}
    length = max((len(values) for values in known.values()), default=0)
    if not length:
        return block(f'{title}<p class="quiet">This row has no tokens, or is undefined.</p>')
    shown = min(length, MAX_DRAWN)
    tokens = _shown_tokens(columns, row, shown)
    cells = {name: _bar_cells(name, known[name], shown) if name in known else ["<td></td>" * 3] * shown for name in rows}
    both = "importance" in rows
    lines = [
        f'<tr>{cells["attention"][place]}<td class="token"><bdi>{safe(tokens[place])}</bdi></td>'
        f"{cells['importance'][place] if both else ''}</tr>"
        for place in range(shown)
    ]
    ends = '<th class="number">importance</th><th class="number rank">rank</th>' if both else ""
    head = f'<tr><th class="number rank">rank</th><th class="number">attention</th><th></th><th></th><th></th>{ends}</tr>'
    cut = f'<p class="quiet">The first {shown} of {length:,} tokens.</p>' if shown < length else ""
    return block(f'{title}{cut}<div class="bars"><table>{head}{"".join(lines)}</table></div>')


def _tau_of(columns, row):
    return f": τ-b {_number(float(columns['tau'][row]))}" if "tau" in columns else ""


def _shown_tokens(columns, row, shown):
    if "tokens" not in columns:
        return list(range(shown))
    tokens = columns["tokens"][row]
    tokens = tokens.values[:shown].to_pylist() if isinstance(tokens, pa.ListScalar) else tokens[:shown]
    return [cut(token) for token in tokens]


def _bar_cells(name, values, shown):
    """Cells of the first `shown` values: rank, number and a bar from zero, for importance the other way round.

    Ranks are what tau compares: 1 is the largest, "=" marks a tie.
    """
    values = np.asarray(values, dtype=np.float64)
    _, group, count = np.unique(-values, return_inverse=True, return_counts=True)
    ranks, tied = (np.cumsum(count) - count + 1)[group], (count > 1)[group]
    finite = np.where(np.isfinite(values), values, 0)
    low, high = min(finite.min(), 0), max(finite.max(), 0)
    extent = (high - low) or 1
    lines = []
    for place in range(shown):
        size = finite[place]
        start = "auto" if name == "attention" else f"{(min(size, 0) - low) / extent:.2%}"
        style = f"background:var(--{name});margin-left:{start};width:{abs(size) / extent:.2%}"
        cells = [
            f'<td class="number quiet rank">{ranks[place]}{"=" if tied[place] else ""}</td>',
            f'<td class="number">{_minus(f"{values[place]:.3g}")}</td>',
            f'<td class="bar"><div class="{"some" if size else "none"}" style="{style}"></div></td>',
        ]
        lines.append("".join(cells if name == "attention" else [cells[2], cells[1], cells[0]]))
    return lines
