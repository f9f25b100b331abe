"""LP-SparseMAP of a chain of binary variables with a budget: the solver behind `rationale_samplers.budget`.

Shapes: B instances, T tokens, V selections that a solution is an average of, at most T + 1.

The problem: over all averages (z, p) of selections y in {0,1}^T of at most `count` tokens, with p_t the average of
y_t y_(t+1), the largest of u.z + transition * sum_t p_t - |z|^2 / 2. It is solved by an active set of selections (Nocedal &
Wright 2006, 16.5; Niculae et al. 2018, SparseMAP): alternately the best average of the current set, and the selection that
would raise it most, by a Viterbi search over two states and the number of selected tokens, until none would.
"""

import torch


TOLERANCE = 1e-9  # of gains and of weights, at scores of the size of 1
MOST_ROUNDS = 100  # times T: never reached, since each round raises the objective


def best_selections(scores: torch.Tensor, count: torch.Tensor, transition: float) -> torch.Tensor:
    """Return (B,T) bool: the selection of at most count (B,) tokens with the largest sum of scores (B,T), float64 and minus
    infinity without a token, and of `transition` for each two selected neighbours.

    Exact, in T steps over all numbers of selected tokens at once.
    """
    batch, length = scores.shape
    most = int(count.max()) if batch else 0
    # best sums by number of selected tokens, where the last token is skipped and where it is selected
    skipped = scores.new_full((batch, most + 1), -torch.inf)
    skipped[:, 0] = 0
    selected = torch.full_like(skipped, -torch.inf)
    stayed, paired = [], []  # whether the token before a skipped one, and before a selected one, is selected
    for place in range(length):
        stayed.append(selected > skipped)
        after = selected + transition
        paired.append(after > skipped)
        entered = torch.maximum(skipped, after)[:, :-1] + scores[:, place, None]
        skipped = torch.maximum(skipped, selected)
        selected = torch.nn.functional.pad(entered, (1, 0), value=-torch.inf)
    allowed = torch.arange(most + 1, device=scores.device) <= count[:, None]
    ends = torch.stack([skipped, selected], -1).masked_fill(~allowed[..., None], -torch.inf).flatten(1).argmax(1)
    spent, state = ends // 2, ends % 2 == 1
    chosen = torch.zeros_like(scores, dtype=torch.bool)
    rows = torch.arange(batch, device=scores.device)
    for place in reversed(range(length)):
        chosen[:, place] = state
        before = (spent - state.long()).clamp(min=0)
        state = torch.where(state, paired[place][rows, before], stayed[place][rows, spent])
        spent = before
    return chosen


class Average:
    """The best average of some selections of one text: `rows` (V,T) their tokens, `gains` (V,) their linear objectives,
    `weights` (V,) their weights.
    """

    def __init__(self, scores: torch.Tensor, transition: float):
        self.scores, self.transition = scores, transition
        self.rows, self.gains, self.weights = scores.new_zeros(0, len(scores)), scores.new_zeros(0), scores.new_zeros(0)

    @property
    def values(self) -> torch.Tensor:
        """z (T,)."""
        return self.weights @ self.rows

    def worth(self, row: torch.Tensor) -> torch.Tensor:
        """Return the linear part of the objective for a selection (T,)."""
        return row @ self.scores + self.transition * (row[1:] * row[:-1]).sum()

    def gain(self, row: torch.Tensor) -> float:
        """Return the slope of the objective in a selection's weight, at the expense of the current ones."""
        return float(self.worth(row) - row @ self.values - self.weights @ (self.gains - self.rows @ self.values))

    def add(self, row: torch.Tensor) -> None:
        """Add a selection (T,) and move to the best average."""
        self._append(row)
        while len(self.weights) > 1:
            system = torch.nn.functional.pad(self.rows @ self.rows.t(), (0, 1, 0, 1), value=1.0)
            system[-1, -1] = 0
            target = torch.linalg.solve(system, torch.cat([self.gains, self.gains.new_ones(1)]))[:-1]
            if bool((target >= -TOLERANCE).all()):
                self.weights = target.clamp(min=0)
                break
            self._move(target - self.weights, 1.0)
        self.weights = self.weights / self.weights.sum()

    def _append(self, row: torch.Tensor) -> None:
        """Append a row with weight 0; move towards an affine mixture of the others until another weight is 0."""
        mixed = row.new_zeros(0)
        depends = False
        if len(self.rows):
            matrix = torch.nn.functional.pad(self.rows, (0, 1), value=1.0).t()
            wanted = torch.nn.functional.pad(row, (0, 1), value=1.0)
            mixed = torch.linalg.lstsq(matrix, wanted.unsqueeze(1), driver="gelsd").solution[:, 0]
            depends = float((matrix @ mixed - wanted).abs().max()) < 1e-7
        self.rows = torch.cat([self.rows, row.unsqueeze(0)])
        self.gains = torch.cat([self.gains, self.worth(row).reshape(1)])
        self.weights = torch.cat([self.weights, self.weights.new_full((1,), float(len(self.weights) == 0))])
        if depends:
            self._move(torch.cat([-mixed, mixed.new_ones(1)]), torch.inf)

    def _move(self, direction: torch.Tensor, most: float) -> None:
        """Move along a direction until a weight is 0, which is removed, or `most` is reached."""
        falling = direction < 0
        steps = torch.where(falling, self.weights / -direction.where(falling, -1), torch.inf)
        step, first = steps.min(0)
        self.weights = (self.weights + min(float(step), most) * direction).clamp(min=0)
        stays = torch.arange(len(steps)) != first
        self.rows, self.gains, self.weights = self.rows[stays], self.gains[stays], self.weights[stays]


def averages(scores: torch.Tensor, mask: torch.Tensor, count: torch.Tensor, transition: float) -> list[Average]:
    """Return the solution of each text; scores (B,T) in float64. The search for next selections is batched."""
    solutions = [Average(row, transition) for row in scores]
    unsolved = torch.arange(len(scores))
    slopes = scores
    for _ in range(MOST_ROUNDS * max(1, scores.shape[1])):
        chosen = best_selections(slopes.masked_fill(~mask[unsolved], -torch.inf), count[unsolved], transition).to(scores)
        rising = []
        for number, row in zip(unsolved.tolist(), chosen, strict=True):
            solution = solutions[number]
            scale = 1 + float(solution.scores.abs().max()) if len(row) else 1.0
            if not len(solution.weights) or solution.gain(row) > TOLERANCE * scale:
                solution.add(row)
                rising.append(number)
        if not rising:
            return solutions
        unsolved = torch.tensor(rising)
        slopes = torch.stack([solutions[number].scores - solutions[number].values for number in rising])
    raise ArithmeticError(f"no solution after {MOST_ROUNDS} rounds a token: the scores are not finite, or too large")


class SequenceBudget(torch.autograd.Function):
    """The gates, and their Jacobian: dz is du projected onto the differences of the selections with weight."""

    @staticmethod
    def forward(ctx, scores, mask, count, transition):
        place = scores.device
        scores, mask, count = (values.detach().cpu() for values in (scores, mask, count))
        ctx.spans, gates = [], torch.zeros_like(scores)
        for row, solution in enumerate(averages(scores, mask, count, transition)):
            gates[row] = solution.values
            rows = solution.rows[solution.weights > TOLERANCE]
            ctx.spans.append(torch.linalg.qr((rows[1:] - rows[:1]).t())[0].to(place))
        return (gates * mask).to(place)

    @staticmethod
    def backward(ctx, slopes):
        return torch.stack([span @ (span.t() @ slope) for span, slope in zip(ctx.spans, slopes, strict=True)]), *[None] * 3


def sequence_budget(scores: torch.Tensor, mask: torch.Tensor, count: torch.Tensor, transition: float) -> torch.Tensor:
    """Return gates (B,T) in float64, solved on the CPU; see above.

    Raises ValueError for scores that are not finite.
    """
    if not bool(scores.isfinite().all()):
        raise ValueError("the selector's scores are not finite: the training diverged, or the checkpoint is broken")
    return SequenceBudget.apply(scores, mask, count, transition)
