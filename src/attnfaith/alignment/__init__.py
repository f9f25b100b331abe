"""Importance of source words for target words, in models from sequences to sequences. One class a measure."""

from attnfaith.measurement.registry import Measure


__all__ = ["PairMeasure"]


class PairMeasure(Measure):
    """A measure that reads pairs one at a time, so without padding."""

    reads = "pairs"

    def of_pair(self, subject, pair) -> tuple:
        """The values of one pair, one for each of `columns_for(subject)`."""
        raise NotImplementedError

    def __call__(self, subject, batch) -> dict[str, list]:
        return self.in_columns(subject, [self.of_pair(subject, batch.alone(row)) for row in range(len(batch))])
