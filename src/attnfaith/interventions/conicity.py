"""Conicity of states: how narrow the cone is that the states of a text's tokens lie in."""

import torch

from attnfaith.measurement.options import StateLayer
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects import SubjectError


EPSILON = 1e-6  # of the lengths in a cosine, as in the authors' code


@register
class Conicity(Measure):
    """Conicity of states: how narrow the cone is that the states of a text's tokens lie in.

    How alike the states of a text's tokens are: where all point one way, other weights give nearly the same sum.

    The alignment to the mean of a state h_i among h_1..h_n is ATM(h_i) = cos(h_i, (h_1 + .. + h_n) / n); conicity is its
    mean over i. It is 1 where all states point one way and 0 where they sum to zero; n states of one length that are
    orthogonal to one another have 1 / sqrt(n), so short texts have more of it. A state of zeros counts as 0.
    Much of it says that the weights matter little, not which are right.

    Two definitions are in use. `conicity_absolute` takes |cos|, as the code of Mohankumar et al. does, which leaves begin,
    end and padding out. `conicity_signed` takes cos, as their formula is written and as the code of Tutek & Šnajder has it;
    that code counts padding too, so that a text's number depends on the batch that it is in, which is not followed here.

    States are those that attention is over; of sentences or words, theirs. Of a stack of layers they are what `layer` gives:
    the last one, or a number from 0 on; markers are left out, and no norm behind the whole stack is applied.

    Undefined (NaN): a text of fewer than two tokens, whose cosine with itself says nothing. Nothing is random.

    Source: Mohankumar et al. 2020, section 3.1.
    """

    name, cost = "conicity", "reading"
    needs = frozenset({"token states"})
    columns = {
        "conicity_absolute": Column(
            (),
            "float64",
            range=(0.0, 1.0),
            undefined="the text has fewer than two tokens",
            doc="mean over the tokens of a text of |cos| between a token's state and the mean of all; markers left out",
        ),
        "conicity_signed": Column(
            (),
            "float64",
            range=(-1.0, 1.0),
            undefined="the text has fewer than two tokens",
            doc="the same of cos, with its sign",
        ),
    }

    layer: StateLayer = "last"

    def check(self, subject, dataset) -> None:
        """Raises SubjectError for a layer that the subject has not."""
        if self.layer != "last" and self.layer >= subject.depth:
            raise SubjectError(
                f"layer={self.layer}: there is none of that number; the model has {subject.depth}, counted from 0"
            )

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        mask = subject.attendable(batch)
        states = subject.token_states(batch, subject.depth - 1 if self.layer == "last" else self.layer).double()
        states = torch.where(mask.unsqueeze(2), states, 0.0)
        counts = mask.sum(1)
        mean = states.sum(1, keepdim=True) / counts.clamp(min=1)[:, None, None]
        cosines = torch.cosine_similarity(states, mean, dim=2, eps=EPSILON).clamp(-1, 1) * mask
        counts = torch.where(counts > 1, counts, torch.nan)
        return {
            "conicity_absolute": (cosines.abs().sum(1) / counts).tolist(),
            "conicity_signed": (cosines.sum(1) / counts).tolist(),
        }
