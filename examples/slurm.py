"""A campaign on Slurm: a scheduler here, workers in jobs, the store on this machine. See docs/slurm.md."""

from __future__ import annotations

import argparse

from dask_jobqueue import SLURMCluster

import ctmoments as ctm
from ctmoments.simulate.campaign import Where, run_campaign
from ctmoments.simulate.status import campaign_status


def main() -> None:
    """Start a scheduler, ask for jobs, run the campaign on them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--account")
    parser.add_argument("--queue")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--cores", type=int, default=16, help="of each job: one worker process each")
    parser.add_argument("--walltime", default="08:00:00")
    parser.add_argument("--interface", help="network interface that workers can reach, such as ib0")
    parser.add_argument("--dry-run", action="store_true", help="print the batch script and stop")
    asked = parser.parse_args()

    # what is simulated: yours to change
    problem = ctm.load_problem("sir")
    theta = ctm.sample_design(problem, points=5000, seed=1)
    replicates, seed, store = 200, 1, "sir.sqlite"

    with SLURMCluster(
        account=asked.account, queue=asked.queue, cores=asked.cores, processes=asked.cores, walltime=asked.walltime,
        memory=f"{2 * asked.cores}GB", interface=asked.interface,
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
        job_script_prologue=["export OPENBLAS_NUM_THREADS=1"],
    ) as cluster:  # fmt: skip
        if asked.dry_run:
            print(cluster.job_script())
            return
        cluster.scale(jobs=asked.jobs)
        where = Where(scheduler=cluster.scheduler_address)
        run_campaign(problem, theta, replicates, seed, store=store, resume=True, where=where)
        print(campaign_status(store))


if __name__ == "__main__":
    main()
