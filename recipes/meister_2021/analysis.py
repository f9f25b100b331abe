"""Is sparse attention more interpretable? What Meister et al. (2021) print, beside ours, and what they left open.

`sparsity.tables` and `sparsity.figures` are the paper's. `sparsity.questions` asks what it left open, and `sparsity.summary`
judges what it says and puts both into words: summary.md.

Source: Meister, Lazov, Augenstein & Cotterell (2021), Is Sparse Attention more Interpretable?
"""

from collections.abc import Sequence

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell

from ..shared import read_published
from .sparsity import figures, question_figures, questions, summary
from .sparsity import tables as of_the_paper


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """Tables and figures of the paper and of the open questions, and summary.md.

    Raises StudyError for published numbers that are none.
    """
    published = None
    if settings.published is not None:
        published = read_published(settings.published, [*of_the_paper.PUBLISHED, "source"], ["mean", "std"])
    of_the_paper.read_published(published)
    if not cells:
        return Analysis()
    answers = questions.tables(cells, published)
    return Analysis(
        of_the_paper.tables(cells, published) | answers,
        {"summary.md": summary.summary(answers, cells, published)},
        figures.figures(cells, published) | question_figures.figures(answers, cells),
    )
