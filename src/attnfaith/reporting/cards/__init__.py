"""Cards of releases: models, records and results, as Markdown made from records and run.json.

Every number is computed from the record; every sentence about results is put together from the numbers. Texts that come from
data, recipes and runs are escaped: they show as they are and format nothing. The same inputs give the same bytes.
"""

from attnfaith.reporting.cards.datasets import cell_facts, records_card, results_card
from attnfaith.reporting.cards.model import checkpoint_name, model_card, write_cards
from attnfaith.reporting.cards.numbers import card_numbers


__all__ = [
    "card_numbers",
    "cell_facts",
    "checkpoint_name",
    "model_card",
    "records_card",
    "results_card",
    "write_cards",
]
