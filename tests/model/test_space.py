"""The box: unit coordinates there and back, membership, refusals."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctmoments.errors import ModelError, ThetaError
from ctmoments.model.space import Integer, Linear, Log, Space

SPACE = Space(alpha=(0.1, 0.9), beta=Log(0.00125, 0.00325), I0=Integer(1, 20), k=0.3)


def test_what_a_space_holds():
    assert SPACE.parameters == ("alpha", "beta", "I0")
    assert SPACE.fixed == {"k": 0.3}
    assert list(SPACE.dimensions.values()) == [Linear(0.1, 0.9), Log(0.00125, 0.00325), Integer(1, 20)]
    np.testing.assert_array_equal(SPACE.low, [0.1, 0.00125, 1])
    np.testing.assert_array_equal(SPACE.high, [0.9, 0.00325, 20])
    assert repr(SPACE) == str(SPACE) == "Space(alpha=(0.1, 0.9), beta=Log(0.00125, 0.00325), I0=Integer(1, 20), k=0.3)"
    assert eval(repr(SPACE), {"Space": Space, "Log": Log, "Integer": Integer}) == SPACE  # our own text
    assert pickle.loads(pickle.dumps(SPACE)) == SPACE and hash(SPACE) == hash(eval(repr(SPACE)))
    assert Space(a=(0, 1), b=(0, 1)) != Space(b=(0, 1), a=(0, 1))


@given(st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=1, max_size=20))
def test_unit_coordinates_there_and_back(rows):
    unit = np.array(rows)
    theta = SPACE.from_unit(unit)
    assert SPACE.contains(theta).all()
    back = SPACE.to_unit(theta)
    np.testing.assert_allclose(back[:, :2], unit[:, :2], atol=1e-13)
    assert (np.abs(back[:, 2] - unit[:, 2]) <= 0.5 / 20 + 1e-12).all()  # the centre of its part
    np.testing.assert_array_equal(SPACE.from_unit(back)[:, 2], theta[:, 2])


def test_values_in_the_middle():
    got = SPACE.from_unit(np.full((1, 3), 0.5))[0]
    np.testing.assert_allclose(got, [0.5, np.sqrt(0.00125 * 0.00325), 11], rtol=1e-14)


def test_integer_parts_are_equal():
    values, counts = np.unique(Integer(3, 7).from_unit((np.arange(1000) + 0.5) / 1000), return_counts=True)
    assert values.tolist() == [3, 4, 5, 6, 7] and counts.tolist() == [200] * 5


def test_contains():
    theta = np.array([[0.1, 0.00325, 20], [0.9001, 0.002, 3], [0.5, 0.002, 3.5], [0.5, 0.002, 21], [np.nan, 0.002, 3]])
    assert SPACE.contains(theta).tolist() == [True, False, False, False, False]


def test_outside_the_box_has_unit_coordinates_outside():
    assert (SPACE.to_unit([[1.0, 0.004, 25]]) > 1).all()


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ((0.9, 0.1), r"parameter 'alpha': Linear: `low` must be below `high`, got 0.9 and 0.1"),
        ((0.5, 0.5), r"`low` must be below `high`"),
        ((float("nan"), 1), r"`low` of Linear must be a finite number, got nan"),
        ((0, float("inf")), r"`high` of Linear must be a finite number, got inf"),
        ((-1e308, 1e308), r"`high` - `low` must be finite"),
        ((False, True), r"`low` of Linear must be a finite number, got False"),
        (("0", "1"), r"`low` of Linear must be a finite number, got '0'"),
        ((1, 2, 3), r"parameter 'alpha' must be a pair \(low, high\), Log\(...\), Integer\(...\) or a fixed number"),
        ((0, 10**400), r"`high` of Linear must be a finite number, got 1000"),
        ("0.3", r"parameter 'alpha' must be a pair .* got '0.3'"),
        (True, r"parameter 'alpha' must be a pair .* got True"),
        (None, r"parameter 'alpha' must be a pair .* got None"),
        (float("nan"), r"parameter 'alpha' must be a finite number, got nan"),
    ],
)
def test_entries_refused(entry, match):
    with pytest.raises(ModelError, match=match):
        Space(alpha=entry)


def test_dimensions_refused():
    with pytest.raises(ModelError, match="Log: `low` must be above 0, got 0"):
        Log(0, 1)
    with pytest.raises(ModelError, match=r"Integer: `low` must be a whole number .* got 1\.5"):
        Integer(1.5, 3)
    with pytest.raises(ModelError, match=r"Integer: `high` must be a whole number of at most 2\^52"):
        Integer(0, 2**53)
    with pytest.raises(ModelError, match="must have at least one parameter that varies, got none"):
        Space(k=3)
    with pytest.raises(ModelError, match="must not be a word of the grammar, got 'time'"):
        Space(time=(0, 1))
    with pytest.raises(ThetaError, match=r"values must have shape \(points, 3\), got \(3,\)"):
        SPACE.to_unit([1, 2, 3])
    with pytest.raises(ThetaError, match=r"unit coordinates must lie in \[0, 1\]"):
        SPACE.from_unit([[0.5, 1.5, 0.5]])
