"""Status, verification and export of a store."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import xarray as xr

import ctmoments as ctm
from ctmoments.errors import FileError, InputError
from ctmoments.moments.estimate import simulate_moments, store_moments
from ctmoments.moments.export import export_store
from ctmoments.simulate.campaign import campaign_design
from ctmoments.simulate.design import sample_design
from ctmoments.simulate.status import campaign_status, verify_store
from ctmoments.simulate.store import Store

SIR = ctm.load_problem("sir")
DESIGN = sample_design(SIR, 9, seed=3)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "campaign.sqlite"
    simulate_moments(SIR, DESIGN, 21, seed=5, store=path, block_paths=40)
    return path


def drop(path, number):
    with Store(path, write=True) as held, held.transaction():
        held.drop_block(number)


def test_status_of_a_finished_campaign(path):
    status = campaign_status(path)
    assert status.finished and status.paths == status.paths_done == 189 and status.blocks == 9
    data = store_moments(path)
    np.testing.assert_array_equal(status.statuses, data["status_count"].values)
    assert status.events == data.attrs["events"]
    assert "finished" in str(status) and "9 points x 21 replicates: 189 of 189 paths" in str(status)
    assert json.loads(json.dumps(status.to_dict()))["statuses"]["finished"] == int(data["status_count"][:, 0].sum())


def test_status_of_an_unfinished_campaign_beside_its_writer(path):
    drop(path, 4)
    with Store(path, write=True):
        status = campaign_status(path)
    assert not status.finished and status.paths_done == 168
    assert status.paths_per_second > 0 and status.seconds_left == pytest.approx(21 / status.paths_per_second)
    assert "88.9% done" in str(status)


def test_points_that_fail_are_named(tmp_path):
    model = ctm.Model({"X": 3}, ["k"], ["0 -> X : k - X"])  # negative once X passes k
    problem = ctm.Problem(model, ctm.Space(k=(1, 1000)), observe="X", times=[1])
    theta = ctm.as_theta(problem, [[900.0], [5.5]]).assign_coords(point=[3, 8])
    simulate_moments(problem, theta, 10, store=tmp_path / "a.sqlite")
    status = campaign_status(tmp_path / "a.sqlite")
    assert status.failed == status.statuses[1, 2] > 0
    assert f"point 8: finished {status.statuses[1, 0]}" in str(status) or f"bad_rate {status.failed}" in str(status)
    assert list(status.to_dict()["failing_points"]) == ["8"]


def test_a_sound_store_is_verified(path):
    report = verify_store(path, sample=4, seed=1)
    assert report.ok and (report.blocks, report.replayed) == (9, 4)
    assert str(report) == "9 blocks match their checksums, 4 simulated again to the same bits"


def test_numbers_that_simulation_does_not_give_are_found(path):
    with Store(path, write=True) as held:
        number = next(block.number for block in held.blocks(0) if block.task.row_first == 2)
        block = held.read_block(number)
        wrong = type(block)(**{**vars(block), "events": block.events + 1})
        with held.transaction():
            held.drop_block(number)
            held.add_block(0, wrong, wrong.checksum(0))
    report = verify_store(path, sample=9)
    assert not report.ok and "(rows 2 to 3, replicates 0 to 21) gives other numbers" in str(report)


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_export(path, suffix):
    out = path.with_name(f"moments{suffix}")
    pytest.importorskip("zarr" if suffix == ".zarr" else "h5py")
    with warnings.catch_warnings():
        data = export_store(path, out)
    with xr.open_dataset(out, engine="h5netcdf" if suffix == ".nc" else "zarr") as back:
        xr.testing.assert_identical(back.load(), data)
    with pytest.raises(FileError, match=r"exists already; allow it to be overwritten"):
        export_store(path, out)
    export_store(path, out, overwrite=True)
    assert sorted(file.name for file in path.parent.iterdir() if file.name.startswith(".")) == []


def test_export_refusals(path):
    pytest.importorskip("h5py")
    with pytest.raises(InputError, match=r"`out` must end in .nc or .zarr, got 'x.csv'"):
        export_store(path, "x.csv")
    with pytest.raises(FileError, match="cannot be written"):
        export_store(path, path.parent / "missing" / "x.nc")
    drop(path, 2)
    with pytest.raises(FileError, match="must be finished"):
        export_store(path, path.with_name("x.nc"))
    assert not path.with_name("x.nc").exists()


def test_the_design_comes_back(path):
    assert campaign_design(path).identical(DESIGN)


@pytest.mark.parametrize("read", [campaign_status, verify_store, store_moments, campaign_design])
def test_no_store(read, tmp_path):
    with pytest.raises(FileError, match="must be a campaign store; there is no such file"):
        read(tmp_path / "none.sqlite")
    assert list(tmp_path.iterdir()) == []
