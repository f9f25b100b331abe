"""Linear programmes over one set of attentions, one after the other: each starts where the last one ended, and has a proof.

T: tokens; r: equations.
"""

import highspy
import numpy as np

from attnfaith.errors import AttnfaithError


DUAL_SIMPLEX, PRIMAL_SIMPLEX = 1, 4  # with the primal one a vertex stays one when the costs change
TOLERANCE = 1e-10  # of feasibility and of reduced costs: the least that HiGHS takes
SETTINGS = {
    "presolve": "off",
    "simplex_strategy": PRIMAL_SIMPLEX,
    "threads": 1,
    "primal_feasibility_tolerance": TOLERANCE,
    "dual_feasibility_tolerance": TOLERANCE,
}
LOOSER = {"primal_feasibility_tolerance": 1e-7, "dual_feasibility_tolerance": 1e-7}  # what HiGHS takes by itself
OTHERWISE = ({}, {"simplex_strategy": DUAL_SIMPLEX}, {"presolve": "on"}, LOOSER, {"solver": "ipm", **LOOSER})
"""How a programme that the solver gave up is tried anew from the beginning, one way after the other. The gap to the bound
shows what the last digits are worth: the bound holds however a vertex was found.
"""


class Programmes:
    """min c.x over {x >= 0, |rows x - rows a| <= slack}, a set of attentions x (T,) around a given one, a.

    attention a (T,): non-negative, summing to 1. rows (r,T): what is to stay; 1 is a combination of those with slack 0, so
    that x sums to 1. slack (r,): how far each may go; None for nowhere, and then rows are orthonormal.

    Where nothing may go anywhere and there are more equations than directions that are left free, x = a + N z, N (T,T-r) an
    orthonormal basis of these directions, is the smaller programme of the same set.
    """

    def __init__(self, attention: np.ndarray, rows: np.ndarray, slack: np.ndarray | None = None):
        length, equations = len(attention), len(rows)
        self.attention, self.rows, self.slack, self.basis = attention, rows, slack, None
        unbounded = highspy.kHighsInf
        if slack is None and length - equations < equations:
            self.basis = np.linalg.qr(rows.T, mode="complete")[0][:, equations:]
            free = np.full(self.basis.shape[1], unbounded)
            self._open(self.basis, (-attention, np.full(length, unbounded)), (-free, free))
        else:
            kept, room = rows @ attention, np.zeros(equations) if slack is None else slack
            self._open(rows, (kept - room, kept + room), (np.zeros(length), np.full(length, unbounded)))

    def _open(self, matrix, of_rows, of_columns) -> None:
        programme = highspy.HighsLp()
        programme.num_row_, programme.num_col_ = matrix.shape
        programme.col_cost_ = np.zeros(matrix.shape[1])
        programme.row_lower_, programme.row_upper_ = of_rows
        programme.col_lower_, programme.col_upper_ = of_columns
        entries = programme.a_matrix_
        entries.format_ = highspy.MatrixFormat.kColwise
        entries.start_ = np.arange(matrix.shape[1] + 1) * len(matrix)
        entries.index_ = np.tile(np.arange(len(matrix)), matrix.shape[1])
        entries.value_ = matrix.T.ravel()
        self.places = np.arange(matrix.shape[1], dtype=np.int32)
        self.solver = highspy.Highs()
        self.solver.silent()
        for name, value in SETTINGS.items():
            self.solver.setOptionValue(name, value)
        self.solver.passModel(programme)

    def minimise(self, costs: np.ndarray) -> tuple[np.ndarray, float]:
        """A vertex x (T,) of least c.x for costs c (T,), and a bound that no attention of the set goes below.

        The bound holds whatever the solver did: with g = c minus any combination y of the rows, c.x is y.(rows x) + g.x,
        which is at least y.(rows a) - |y|.slack + min g, since x sums to 1. It equals c.x at an optimum.

        Raises AttnfaithError where the solver ends without one.
        """
        self.solver.changeColsCost(len(self.places), self.places, costs if self.basis is None else costs @ self.basis)
        self.solver.run()
        if self.solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            self._try_otherwise()
        solution = self.solver.getSolution()
        values, prices = np.array(solution.col_value), np.array(solution.row_dual)
        if self.basis is None:
            rest, lost = costs - prices @ self.rows, 0.0 if self.slack is None else np.abs(prices) @ self.slack
        else:
            values = self.attention + self.basis @ values
            rest, lost = prices + self.basis @ (self.basis.T @ (costs - prices)), 0.0
        return np.maximum(values, 0), float((costs - rest) @ self.attention - lost + rest.min())

    def _try_otherwise(self) -> None:
        """Solve the same programme from the beginning, not from where the last one ended, in another way each time."""
        for settings in OTHERWISE:
            self.solver.clearSolver()
            for name, value in settings.items():
                self.solver.setOptionValue(name, value)
            self.solver.run()
            status = self.solver.getModelStatus()
            for name in settings:
                self.solver.setOptionValue(name, SETTINGS.get(name, "choose"))
            if status == highspy.HighsModelStatus.kOptimal:
                return
        raise AttnfaithError(
            f"a linear programme over the attentions of {len(self.attention)} tokens has no solution "
            f"({self.solver.modelStatusToString(status)}): are states and attention finite?"
        )
