"""The fewest tokens whose parts decide, exactly, in the network that DecompX reads; and what the model itself says then.

Shapes: B instances, L input positions, T tokens, C classes, J rivals of the predicted class, C - 1.
"""

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.interventions.subsets import check_absent_model, read_parts
from attnfaith.measurement.options import Absent, Draws, Inputs
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects import whole_logits


TIE = 1e-5  # of the largest part: logits that are closer are equal, for float32 would decide between them by rounding


@register
class FrozenFlipSet(Measure):
    """The fewest tokens whose parts decide, exactly, in the network that DecompX reads; and what the model itself says then.

    How few tokens carry the decision, were attention, divisors and slopes to stay as they are, and whether they do.

    In that frozen network (`importance.decompx`) a difference of two logits is a sum of parts, one for each token, and of a
    part of markers and biases, which stays. Taking a set away takes its parts away. So the smallest set is a sort for each
    rival class, as in `minimal_flip_set`: of all sets of k tokens the k largest parts of (logit of the predicted class -
    logit of the rival) leave least, and the smallest k over all rivals is the smallest there is. Of rivals that need equally
    many the set of the lower class is taken, and the lower class wins a tie, as in every decision. Logits
    that differ by less than 10^-5 of the largest part are a tie.

    The model itself does not stay frozen. So it reads the text without these tokens, and without as many at random, `draws`
    times: how often it agrees is what the exact answer is worth. absent: what becomes of the tokens, see `subjects.removal`.
    inputs: see `importance.decompx`.

    Source: the decomposition, Modarressi et al. 2023; the question, Serrano & Smith 2019, section 5.

    Shapes: B instances, L input positions, T tokens, C classes, J rivals of the predicted class, C - 1.
    """

    name, cost = "frozen_flip_set", "gradient"
    needs = frozenset({"backward rules", "classes", "embeddings", "token deletion"})
    columns = {
        "frozen_flip_set": Column(
            ("T",),
            doc="1 on the fewest tokens without whose parts the frozen network decides otherwise; all 0 where none are",
        ),
        "frozen_flip_size": Column(
            undefined="where no removal changes the frozen decision, or the text is empty",
            doc="tokens in that set, at least 1",
        ),
        "frozen_flip_class": Column(undefined="where the size is", doc="the class that the frozen network then decides for"),
        "frozen_flip_probs": Column(
            ("C",),
            "float64",
            undefined="where the size is",
            doc="what the model itself says when these tokens are taken away",
        ),
        "frozen_flip_random": Column(
            range=(0.0, 1.0),
            undefined="where the size is",
            doc="share of random sets of as many tokens that change the model's own decision",
        ),
    }

    absent: Absent = "deleted"
    inputs: Inputs = "layer"
    draws: Draws = 5

    def check(self, subject, dataset) -> None:
        """Raises SubjectError for an absence that the subject cannot read, and as `importance.decompx` does."""
        check_absent_model(subject, self.absent, "frozen_flip_set")
        subject.check_rules(self.inputs)

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        mask = subject.attendable(batch).cpu().numpy()
        predicted = whole_logits(subject, batch).argmax(1)
        rivals = torch.arange(subject.num_labels - 1, device=predicted.device).expand(len(predicted), -1)
        rivals = rivals + (rivals >= predicted.unsqueeze(1))

        def margins(logits, rows):
            return logits.gather(1, predicted[rows].unsqueeze(1)) - logits.gather(1, rivals[rows])

        shares = subject.relevance(batch, margins, "frozen", self.inputs)
        parts, values = shares.of_places.cpu().numpy(), shares.values.cpu().numpy()
        predicted, rivals = predicted.cpu().numpy(), rivals.cpu().numpy()
        sets, classes, asked = [], [], []
        for row, name in enumerate(batch["instance_id"]):
            chosen, rival = smallest_set(parts[row][:, mask[row]], values[row], rivals[row] < predicted[row])
            random = generator(seed, name, "frozen_flip_set")
            others = [random.permutation(chosen) for _ in range(self.draws)] if chosen.any() else []
            sets.append(chosen)
            classes.append(float(rivals[row, rival]) if chosen.any() else np.nan)
            asked.append(~np.array([chosen, *others])[: len(others) + 1 if others else 0])
        said = read_parts(subject, batch, asked, self.absent)
        flipped = [of_text.argmax(1) != own for of_text, own in zip(said, predicted, strict=True)]
        columns = (
            [chosen.astype(np.float32) for chosen in sets],
            [float(chosen.sum()) if chosen.any() else np.nan for chosen in sets],
            classes,
            [of_text[0] if len(of_text) else np.full(subject.num_labels, np.nan) for of_text in said],
            [float(one[1:].mean()) if len(one) else np.nan for one in flipped],
        )
        return dict(zip(self.columns, columns, strict=True))


def smallest_set(parts: np.ndarray, whole: np.ndarray, lower: np.ndarray) -> tuple[np.ndarray, int]:
    """The fewest tokens (T,) bool to take away so that one of the margins `whole` (J,) is lost, none where there is no such
    set; and the smallest margin then, the first of equal ones.

    parts (J,T): of each margin, what the tokens add to it. lower (J,) bool: a margin of 0 is lost already.
    """
    order = np.argsort(-parts, 1, "stable")
    left = whole[:, None] - np.take_along_axis(parts, order, 1).cumsum(1)
    tie = TIE * np.abs(np.column_stack([parts, whole])).max(1, keepdims=True)
    lost = (left < -tie) | (lower[:, None] & (left <= tie))
    never = parts.shape[1]
    sizes = np.where(lost.any(1), lost.argmax(1), never) if never else np.zeros(len(parts), np.int64)
    rival = int(sizes.argmin())
    chosen = np.zeros(never, bool)
    if sizes[rival] < never:
        chosen[order[rival, : sizes[rival] + 1]] = True
    margins = whole - parts[:, chosen].sum(1)
    return chosen, int((margins <= margins.min() + tie[:, 0]).argmax())
