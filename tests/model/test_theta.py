"""The gate for parameter values: every form, and every refusal."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from ctmoments.errors import ThetaError
from ctmoments.model.library import load_problem
from ctmoments.model.space import Integer, Space
from ctmoments.model.theta import as_theta

SPACE = Space(alpha=(0.1, 0.9), beta=(1, 2), k=0.3)
ONE = Space(alpha=(0.1, 0.9))
EXPECTED = [[0.5, 1.5], [0.6, 1.25]]


@pytest.mark.parametrize(
    "theta",
    [
        EXPECTED,
        np.array(EXPECTED, np.float32).astype(float).round(6),
        {"beta": [1.5, 1.25], "alpha": np.array([0.5, 0.6])},
        {"beta": [1.5, 1.25], "alpha": np.array([0.5, 0.6]), "k": 0.3},
        pd.DataFrame({"beta": [1.5, 1.25], "alpha": [0.5, 0.6]}, index=[5, 9]),
        xr.DataArray(EXPECTED, dims=("point", "parameter")),
        xr.DataArray(np.transpose(EXPECTED), dims=("parameter", "point")),
        xr.DataArray(
            [[1.5, 0.5], [1.25, 0.6]], {"parameter": ["beta", "alpha"]}, ("point", "parameter"), attrs={"a": 1}
        ),
    ],
)
def test_every_form_gives_the_same(theta):
    got = as_theta(SPACE, theta)
    assert got.dims == ("point", "parameter") and got.name == "theta" and got.dtype == np.float64
    assert got["parameter"].values.tolist() == ["alpha", "beta"]
    assert got["point"].values.tolist() == [0, 1] and got["point"].dtype == np.int64
    np.testing.assert_array_equal(got.values, EXPECTED)


def test_the_gate_leaves_what_it_made_alone():
    once = as_theta(SPACE, EXPECTED).assign_attrs(seed="3")
    assert as_theta(SPACE, once).identical(once)


def test_points_keep_their_addresses():
    theta = as_theta(SPACE, EXPECTED).assign_coords(point=[7, 3])
    assert as_theta(SPACE, theta)["point"].values.tolist() == [7, 3]
    assert as_theta(SPACE, theta[1:])["point"].values.tolist() == [3]
    assert as_theta(SPACE, theta[1])["point"].values.tolist() == [3]
    assert as_theta(SPACE, theta.to_pandas())["point"].values.tolist() == [7, 3]


def test_flat_arrays():
    assert as_theta(SPACE, [0.5, 1.5]).values.tolist() == [[0.5, 1.5]]
    assert as_theta(ONE, [0.5, 0.6, 0.7]).values.tolist() == [[0.5], [0.6], [0.7]]
    assert as_theta(ONE, 0.5).values.tolist() == [[0.5]]
    assert as_theta(ONE, [[0.5], [0.6]]).shape == (2, 1)
    assert as_theta(SPACE, {"alpha": 0.5, "beta": 1}).shape == (1, 2)
    assert as_theta(load_problem("sir"), [0.55, 0.00275]).shape == (1, 2)


def test_outside_passes_unless_strict():
    assert as_theta(SPACE, [5, 1.5]).shape == (1, 2)
    with pytest.raises(ThetaError, match=r"'alpha' must lie in \[0.1, 0.9\], got 5.0 at point 1"):
        as_theta(SPACE, [[0.5, 1.5], [5, 1.5]], strict=True)


@pytest.mark.parametrize(
    ("theta", "match"),
    [
        ([], r"must have shape|at least one point"),
        (np.empty((0, 2)), r"`theta` must hold at least one point"),
        (xr.DataArray(np.empty((0, 2)), dims=("point", "parameter")), r"must hold at least one point"),
        ({"alpha": [], "beta": []}, r"must hold at least one point"),
        ([1, 2, 3], r"must have shape \(points, 2\) or \(2,\), in the order alpha, beta; got \(3,\)"),
        (np.ones((2, 2, 2)), r"must have shape"),
        ([[0.5, 1.5], [0.5]], r"rectangle of numbers"),
        ([[0.5, np.nan]], r"'beta' must be finite, got nan at point 0"),
        ([[0.5, np.inf]], r"'beta' must be finite, got inf"),
        (["a", "b"], r"`theta` must be real numbers, got str"),
        ([True, False], r"must be real numbers, got bool"),
        ([0.5, 1j], r"must be real numbers, got complex"),
        (None, r"must be real numbers, got object"),
        ({"alpha": 0.5}, r"every parameter that varies, but 'beta' is missing"),
        ({"alpha": 0.5, "bta": 1}, r"unknown parameter 'bta'. Did you mean 'beta'"),
        ({"alpha": 0.5, "beta": 1, "k": 0.4}, r"'k' is fixed at 0.3 and must be left out or equal it, got 0.4"),
        ({"alpha": [0.5, 0.6], "beta": [1, 1, 1]}, r"flat arrays of one length, got shapes"),
        ({"alpha": [[0.5, 0.6]], "beta": 1}, r"flat arrays of one length"),
        ({"alpha": "x", "beta": 1}, r"'alpha' must be real numbers"),
        (xr.Dataset({"theta": 1}), r"got a Dataset. Give its variable"),
        (xr.DataArray(EXPECTED, dims=("a", "b")), r"must have the dims \(point, parameter\), got \('a', 'b'\)"),
        (xr.DataArray(EXPECTED, {"point": [1, 1]}, ("point", "parameter")), r"must not repeat, got 1 twice"),
        (xr.DataArray(EXPECTED, {"point": [0.5, 1]}, ("point", "parameter")), r"must be whole numbers from 0 on"),
        (xr.DataArray(EXPECTED, {"point": [-1, 1]}, ("point", "parameter")), r"must be whole numbers from 0 on"),
        (xr.DataArray(EXPECTED, {"parameter": ["alpha"] * 2}, ("point", "parameter")), r"parameters must differ"),
        (xr.DataArray(EXPECTED, {"parameter": ["alpha", "c"]}, ("point", "parameter")), r"unknown parameter 'c'"),
    ],
)
def test_refusals(theta, match):
    with pytest.raises(ThetaError, match=match):
        as_theta(SPACE, theta)


def test_integer_dimensions_must_be_whole():
    space = Space(I0=Integer(1, 20))
    assert as_theta(space, [3, 4.0]).values.tolist() == [[3], [4]]
    with pytest.raises(ThetaError, match=r"'I0' must be a whole number, got 3.5 at point 1"):
        as_theta(space, [3, 3.5])
