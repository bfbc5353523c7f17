"""The parts of the exact solver: the compiled step against NumPy, the lattice, the enumeration, the meeting time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moments.chains import closure

from ctmoments.errors import SizeError
from ctmoments.moments import exact_blocks
from ctmoments.moments.exact_chain import Chain
from ctmoments.moments.exact_kernel import aligned_zeros, apply_powers, reference_steps
from ctmoments.moments.exact_lattice import Rows, Window, dilate, make_lattice, make_operator
from ctmoments.moments.exact_states import output_ranges, reachable_states, survey_job
from ctmoments.moments.exact_sweep import ForwardSweep, poisson_weights

EPIDEMIC = Chain(
    np.array([30, 2, 0]), np.array([[-1, 0], [1, -1], [0, 1]]), lambda x: np.stack([0.06 * x[0] * x[1], 0.5 * x[1]])
)
DIMERS = Chain(
    np.array([9, 0]), np.array([[-2, 2, 1], [1, -1, 0]]), lambda x: np.stack([x[0] * (x[0] - 1), x[1], 3.0 + 0 * x[0]])
)


def window_around(chain, counts, order=None):
    lattice = make_lattice(chain.start, chain.changes, order)
    zero = np.zeros(1, np.int64)
    start = Rows(np.array([lattice.first_key]), zero, zero + 1)
    return Window(lattice, dilate(lattice, start, np.array(counts)))


class TestKernel:
    @pytest.mark.parametrize("count", [1, 3, 4, 9])
    @pytest.mark.parametrize("degree", [0, 1, 2, 19])
    @pytest.mark.parametrize("forward", [True, False])
    def test_compiled_is_the_reference(self, count, degree, forward):
        window = window_around(EPIDEMIC, (25, 12))
        operator = make_operator(EPIDEMIC, window, aligned_zeros)
        generator = np.random.default_rng(1)
        vectors = aligned_zeros((count, window.box))
        vectors[:, window.positions] = generator.random((count, len(window.positions)))
        weights = generator.random(degree + 1)
        table = window.table(forward)
        got = apply_powers(weights, vectors, aligned_zeros(vectors.shape), operator.coefficients, table, window.lag)
        want = reference_steps(weights, vectors, operator.coefficients, table)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14 * want.max())

    @pytest.mark.parametrize("chain, counts", [(EPIDEMIC, (25, 12)), (DIMERS, (9, 7, 5))])
    def test_backward_is_the_transpose_and_forward_the_generator(self, chain, counts):
        window = window_around(chain, counts)
        operator = make_operator(chain, window, aligned_zeros)
        n = len(window.positions)
        unit = aligned_zeros((n, window.box))
        unit[np.arange(n), window.positions] = 1.0
        one_step = np.array([0.0, 1.0])
        forward, backward = (
            apply_powers(
                one_step, unit, aligned_zeros(unit.shape), operator.coefficients, window.table(side), window.lag
            )[:, window.positions]
            for side in (True, False)
        )
        np.testing.assert_array_equal(forward, backward.T)
        place = {tuple(state): i for i, state in enumerate(window.states.T)}
        rates = chain.rates(window.states)
        for i in np.flatnonzero(window.valid):
            row = np.zeros(n)
            row[i] = 1.0
            for change, rate in zip(chain.changes.T, rates[:, i], strict=True):
                row[i] -= rate / operator.rate
                there = place.get(tuple(window.states[:, i] + change))
                if there is not None:
                    row[there] += rate / operator.rate
            np.testing.assert_allclose(forward[i], row, atol=1e-15)


class TestLattice:
    @given(st.integers(1, 4), st.integers(1, 5), st.randoms(use_true_random=False))
    def test_basis_spans_exactly_the_reactions(self, species, reactions, random):
        changes = np.array([[random.randint(-3, 3) for _ in range(reactions)] for _ in range(species)])
        order = random.sample(range(species), species)
        lattice = make_lattice(np.zeros(species, int), changes, order)
        assert lattice.dims == np.linalg.matrix_rank(changes)
        kept = lattice.groups >= 0
        np.testing.assert_array_equal(lattice.basis @ lattice.moves[:, lattice.groups[kept]], changes[:, kept])
        assert not changes[:, ~kept].any()

    def test_window_holds_each_state_once(self):
        window = window_around(EPIDEMIC, (25, 25), (1, 2, 0))
        valid = window.states[:, window.valid].T
        assert len({tuple(x) for x in valid}) == len(valid) == window.valid.sum()
        assert len(set(window.positions.tolist())) == len(window.positions)
        assert all((s, i) in {(x[0], x[1]) for x in valid} for s, i in [(30, 2), (5, 27), (30, 0), (18, 2)])


class TestStates:
    @pytest.mark.parametrize("chain", [EPIDEMIC, DIMERS])
    def test_reachable_states_are_those_of_a_plain_search(self, chain):
        if chain is DIMERS:
            chain = Chain(chain.start, chain.changes[:, :2], lambda x: DIMERS.rates(x)[:2])
        changes = [tuple(change) for change in chain.changes.T]
        plain = closure(tuple(chain.start), changes, lambda x: chain.rates(np.array(x)[:, None])[:, 0])
        found = reachable_states(chain, 10_000)
        assert sorted(map(tuple, found.T.tolist())) == [tuple(map(int, state)) for state in plain]

    def test_sir_is_enumerated(self):
        chain = Chain(np.array([763, 3, 0]), EPIDEMIC.changes, EPIDEMIC.rates)
        assert reachable_states(chain, 300_000).shape[1] == 294_522
        with pytest.raises(SizeError, match="More than max_states = 200,000"):
            reachable_states(chain, 200_000)

    def test_ranges(self):
        low, high = output_ranges(EPIDEMIC, np.array([[1, 0, 0], [0, 1, 0], [0, 2, -1]]))
        assert low.tolist() == [0, 0, -32] and high.tolist() == [30, 32, 64]
        assert output_ranges(DIMERS, np.eye(2, dtype=int)) is None

    def test_order_runs_along_the_long_species(self):
        telegraph = Chain(
            np.array([0, 1, 0]),
            np.array([[0, 0, 1, -1], [-1, 1, 0, 0], [1, -1, 0, 0]]),
            lambda x: np.stack([0.5 * x[1], 0.3 * x[2], 20 * x[2], x[0]]),
        )
        order = survey_job(telegraph, 5.0).order
        assert make_lattice(telegraph.start, telegraph.changes, order).pivots[-1] == 0

    def test_survey_is_right_within_a_factor_of_four(self):
        chain = Chain(np.array([763, 3, 0]), EPIDEMIC.changes, lambda x: EPIDEMIC.rates(x) * [[0.04], [0.9]])
        survey = survey_job(chain, 13.0)
        assert 40_000 < survey.states < 640_000  # 160,000
        assert 1_500 < survey.jumps < 24_000  # 6,000


class TestSweeps:
    def passage(self, budget=1e-12):
        chain = EPIDEMIC
        sweep = ForwardSweep(chain, make_lattice(chain.start, chain.changes), 4.0, budget, 10**5)
        for duration in (0.5, 0.5, 1.0, 2.0):
            sweep.advance(duration, lambda used: None)
        return sweep.passage

    def test_every_meeting_time_gives_the_same(self, monkeypatch):
        passage = self.passage()
        _, centred = exact_blocks.centred_outputs(passage, lambda x: np.stack([x[1], x[0] + 0.5 * x[1]]))
        found = []
        for meeting in range(5):
            monkeypatch.setattr(exact_blocks, "best_meeting", lambda costs, meeting=meeting: meeting)
            found.append(exact_blocks.second_moments(EPIDEMIC, passage, centred, lambda cost: None))
        for other in found[1:]:
            np.testing.assert_allclose(other, found[0], rtol=1e-11, atol=1e-11)

    def test_best_meeting_is_the_cheapest(self):
        costs = np.array([1.0, 1.0, 5.0, 9.0, 2.0])
        work = [sum(costs[i] * i for i in range(m)) + sum(costs[i] * (5 - i) for i in range(m, 5)) for m in range(6)]
        assert exact_blocks.best_meeting(costs) == int(np.argmin(work))

    @pytest.mark.parametrize("budget", [1e-4, 1e-7, 1e-10])
    def test_loss_stays_within_the_budget_and_is_what_is_missing(self, budget):
        loose, tight = self.passage(budget), self.passage(1e-13)
        assert 0 < loose.lost <= 1.1 * budget
        for there, truth in zip(loose.distributions, tight.distributions, strict=True):
            difference = truth.moved(there.window).values - there.values
            assert difference.min() >= -1e-13  # what stays is never too much
            assert difference.sum() <= loose.lost + 1e-12

    @pytest.mark.parametrize("mean", [0.3, 20.0, 700.0, 5000.0])
    def test_poisson_weights(self, mean):
        weights = poisson_weights(mean, 1e-12)
        assert 1 - 2e-12 <= weights.sum() <= 1 + 1e-12
        assert weights @ np.arange(len(weights)) == pytest.approx(mean, rel=1e-9)
