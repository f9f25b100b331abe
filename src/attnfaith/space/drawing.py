"""The HTML of the Space's own answers; what the report's page shows stands in a frame that can reach nothing."""

from collections.abc import Sequence

from attnfaith.escaping import html
from attnfaith.space.answers import Prediction


CSS = """
.space-answer table { border-collapse: collapse; width: 100%; }
.space-answer table th, .space-answer table td { padding: .3em .6em; text-align: right; border: 0 !important; }
.space-answer table tr { border-bottom: 1px solid #8886; }
.space-answer table th:first-child, .space-answer table td:first-child { text-align: left; }
.space-answer td:first-child { min-width: 9rem; overflow-wrap: anywhere; }
.space-answer .flips { font-weight: bold; }
.space-answer .scroll { overflow-x: auto; }
.space-answer .problem { border-left: 4px solid #d55e00; padding: .5em .8em; }
.space-frame { width: 100%; height: 85vh; min-height: 30rem; border: 1px solid #8886; border-radius: 6px; background: #fff; }
"""
MOST_CLASSES = 8


def framed(page: str) -> str:
    """A whole page in a frame: its own scripts run, and reach neither this page nor its origin, cookies or windows."""
    return f'<iframe class="space-frame" title="Report" sandbox="allow-scripts" srcdoc="{html(page)}"></iframe>'


def problem(text: str) -> str:
    return f'<div class="space-answer"><p class="problem" role="alert"><strong>Not answered:</strong> {html(text)}</p></div>'


def table(rows: Sequence[Prediction], classes: Sequence[str], heading: str) -> str:
    """Predictions beside one another; of many classes those that are most probable anywhere."""
    highest = sorted(range(len(classes)), key=lambda c: -max(row.probs[c] for row in rows))[:MOST_CLASSES]
    shown = sorted(highest)
    names = "".join(f'<th scope="col">{html(classes[number])}</th>' for number in shown)
    ends = '<th scope="col">TVD from the first</th><th scope="col">decision</th>'
    head = f'<tr><th scope="col">{html(heading)}</th>{names}{ends}</tr>'
    body = "".join(_row(row, shown, classes) for row in rows)
    left = f"<p>The {MOST_CLASSES} most probable of {len(classes)} classes.</p>" if len(classes) > MOST_CLASSES else ""
    return f'<div class="space-answer"><div class="scroll"><table>{head}{body}</table></div>{left}</div>'


def _row(row: Prediction, shown: Sequence[int], classes: Sequence[str]) -> str:
    probs = "".join(f"<td>{row.probs[number]:.3f}</td>" for number in shown)
    decided = html(classes[int(row.probs.argmax())]) + (" (flips)" if row.flips else "")
    kind = ' class="flips"' if row.flips else ""
    return f"<tr{kind}><td>{html(row.name)}</td>{probs}<td>{row.tvd:.3f}</td><td>{decided}</td></tr>"
