"""Cards of releases: models, records, results and their index, as Markdown made from records and run.json.

Every number is computed from the record; every sentence about results is put together from the numbers by rules that the
card prints. Texts that come from data, recipes and runs are escaped: they show as they are and format nothing. The same
inputs give the same bytes.
"""

from attnfaith.reporting.cards.checkpoint import Checkpoint, read_checkpoint
from attnfaith.reporting.cards.model import answer_files, card_figures, eval_results, model_card
from attnfaith.reporting.cards.shared import (
    cards_index,
    cell_facts,
    checkpoint_name,
    records_card,
    results_card,
    write_cards,
)


__all__ = [
    "Checkpoint",
    "answer_files",
    "card_figures",
    "cards_index",
    "cell_facts",
    "checkpoint_name",
    "eval_results",
    "model_card",
    "read_checkpoint",
    "records_card",
    "results_card",
    "write_cards",
]
