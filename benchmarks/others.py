"""The same SIR job in other simulators, each in an environment of its own, one core: nanoseconds an event.

    python benchmarks/others.py [--paths 2000] [--only bngsim rebop] [--work benchmarks/build/others] [--json]

The script makes a virtual environment for each tool below the work folder (kept; they are large) and installs the tool
there, pinned as measured; nothing of it enters the project's own environment. Each tool runs in a subprocess and times
itself: import and preparation (parsing, compiling) by the wall, then the paths three times by processor time, of which
the least counts. The events a path takes are counted by our exact simulation, the same number for everyone. A tool's
mean has to agree with ours, else it did another job.
GillesPy2 needs g++ and make where it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ALPHA, BETA, TIMES = 0.55, 0.00275, 13
OUR_PATHS = 100_000
TOOLS = {  # name: (requirements, what runs)
    "bioscrape": ("bioscrape==1.4.1", "SSASimulator on the C interface, one call a path"),
    "bngsim": ("bngsim==0.16.0", "method ssa, run_replicates on one processor"),
    "GillesPy2": ("gillespy2==1.8.3", "SSACSolver: compiled C++, all paths in one run"),
    "COPASI": ("python-copasi==4.48.311 numpy", "direct method, one call a path"),
    "libroadrunner": ("libroadrunner==2.10.0", "integrator gillespie, one call a path"),
    "rebop": ("rebop==0.9.2", "mass action, one call a path"),
}

SBML = f"""<?xml version="1.0" encoding="UTF-8"?>
<sbml xmlns="http://www.sbml.org/sbml/level3/version1/core" level="3" version="1">
<model id="sir" substanceUnits="item" extentUnits="item" timeUnits="second" volumeUnits="litre">
<listOfCompartments><compartment id="c" size="1" spatialDimensions="3" constant="true"/></listOfCompartments>
<listOfSpecies>
<species id="S" compartment="c" initialAmount="763" hasOnlySubstanceUnits="true" boundaryCondition="false"
 constant="false"/>
<species id="I" compartment="c" initialAmount="3" hasOnlySubstanceUnits="true" boundaryCondition="false"
 constant="false"/>
<species id="R" compartment="c" initialAmount="0" hasOnlySubstanceUnits="true" boundaryCondition="false"
 constant="false"/>
</listOfSpecies>
<listOfParameters>
<parameter id="alpha" value="{ALPHA}" constant="true"/><parameter id="beta" value="{BETA}" constant="true"/>
</listOfParameters>
<listOfReactions>
<reaction id="infection" reversible="false" fast="false">
<listOfReactants><speciesReference species="S" stoichiometry="1" constant="true"/>
<speciesReference species="I" stoichiometry="1" constant="true"/></listOfReactants>
<listOfProducts><speciesReference species="I" stoichiometry="2" constant="true"/></listOfProducts>
<kineticLaw><math xmlns="http://www.w3.org/1998/Math/MathML">
<apply><times/><ci>beta</ci><ci>S</ci><ci>I</ci></apply></math></kineticLaw></reaction>
<reaction id="recovery" reversible="false" fast="false">
<listOfReactants><speciesReference species="I" stoichiometry="1" constant="true"/></listOfReactants>
<listOfProducts><speciesReference species="R" stoichiometry="1" constant="true"/></listOfProducts>
<kineticLaw><math xmlns="http://www.w3.org/1998/Math/MathML">
<apply><times/><ci>alpha</ci><ci>I</ci></apply></math></kineticLaw></reaction>
</listOfReactions>
</model></sbml>
"""


# Each worker runs in the tool's environment: it imports, prepares, and returns a function paths -> I, (paths, TIMES).


def prepare_bioscrape():
    import numpy as np
    from bioscrape.random import py_seed_random
    from bioscrape.simulator import ModelCSimInterface, SSASimulator
    from bioscrape.types import Model

    model = Model(
        species=["S", "I", "R"],
        reactions=[
            (["S", "I"], ["I", "I"], "massaction", {"k": BETA}),
            (["I"], ["R"], "massaction", {"k": ALPHA}),
        ],
        initial_condition_dict={"S": 763, "I": 3, "R": 0},
    )
    interface = ModelCSimInterface(model)
    interface.py_set_initial_time(0.0)
    simulator, times = SSASimulator(), np.arange(0.0, TIMES + 1)
    column = model.get_species_index("I")
    py_seed_random(1)
    return lambda paths: np.array(
        [simulator.py_simulate(interface, times).py_get_result()[1:, column] for _ in range(paths)]
    )


def prepare_bngsim():
    import bngsim
    import numpy as np

    model = bngsim.Model.from_sbml_string(SBML)
    simulator = bngsim.Simulator(model, method="ssa")
    column = [name.split("(")[0] for name in model.species_names].index("I")

    def simulate(paths):
        results = simulator.run_replicates(paths, t_span=(0, TIMES), n_points=TIMES + 1, seed=1, num_processors=1)
        return np.array([result.species[1:, column] for result in results])

    return simulate


def prepare_gillespy2():
    import gillespy2
    import numpy as np

    model = gillespy2.Model(name="sir")
    for name, value in (("alpha", ALPHA), ("beta", BETA)):
        model.add_parameter(gillespy2.Parameter(name=name, expression=value))
    for name, value in (("S", 763), ("I", 3), ("R", 0)):
        model.add_species(gillespy2.Species(name=name, initial_value=value, mode="discrete"))
    model.add_reaction(
        gillespy2.Reaction(
            name="infection", reactants={"S": 1, "I": 1}, products={"I": 2}, propensity_function="beta*S*I"
        )
    )
    model.add_reaction(
        gillespy2.Reaction(name="recovery", reactants={"I": 1}, products={"R": 1}, propensity_function="alpha*I")
    )
    model.timespan(gillespy2.TimeSpan(np.arange(0.0, TIMES + 1)))
    solver = gillespy2.SSACSolver(model)  # compiles here
    return lambda paths: np.array([path["I"][1:] for path in solver.run(number_of_trajectories=paths, seed=1)])


def prepare_copasi():
    import COPASI
    import numpy as np

    data = COPASI.CRootContainer.addDatamodel()
    if not data.importSBMLFromString(SBML):
        raise RuntimeError("COPASI did not read the model")
    task = data.getTask("Time-Course")
    task.setMethodType(COPASI.CTaskEnum.Method_directMethod)
    task.getMethod().getParameter("Use Random Seed").setBoolValue(True)
    seed = task.getMethod().getParameter("Random Seed")
    problem = task.getProblem()
    problem.setAutomaticStepSize(False)
    problem.setDuration(TIMES)
    problem.setStepNumber(TIMES)
    problem.setTimeSeriesRequested(True)

    def one_path(number):
        seed.setUIntValue(number + 1)
        # initialised for each path (8 % of the time): only there is the seed read, and every path is the same without
        if not (task.initializeRaw(COPASI.CCopasiTask.OUTPUT_UI) and task.processRaw(True)):
            raise RuntimeError(COPASI.CCopasiMessage.getAllMessageText())
        series = task.getTimeSeries()
        column = next(k for k in range(series.getNumVariables()) if series.getTitle(k) == "I")
        return [series.getData(step, column) for step in range(1, TIMES + 1)]

    return lambda paths: np.array([one_path(number) for number in range(paths)])


def prepare_libroadrunner():
    import numpy as np
    import roadrunner

    model = roadrunner.RoadRunner(SBML)
    model.setIntegrator("gillespie")
    model.integrator.variable_step_size = False
    model.integrator.seed = 1

    def one_path():
        model.reset()
        return np.asarray(model.simulate(0, TIMES, TIMES + 1, ["I"]))[1:, 0].copy()

    return lambda paths: np.array([one_path() for _ in range(paths)])


def prepare_rebop():
    import numpy as np
    import rebop

    model = rebop.Gillespie()
    model.add_reaction(BETA, ["S", "I"], ["I", "I"])
    model.add_reaction(ALPHA, ["I"], ["R"])
    start = {"S": 763, "I": 3, "R": 0}
    return lambda paths: np.array(
        [model.run(start, TIMES, TIMES, rng=seed, var_names=["I"])["I"].values[1:] for seed in range(paths)]
    )


def processor_time() -> float:
    """Seconds of processor time, of finished children too (GillesPy2 runs a program): other work does not show."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def least(job, rounds: int = 3) -> tuple:
    """The least processor time of a few rounds, and what the last one returned."""
    times = []
    for _ in range(rounds):
        start = processor_time()
        result = job()
        times.append(processor_time() - start)
    return min(times), result


def work(tool: str, paths: int) -> dict:
    """Run by the tool's own Python: prepare, one path to warm up, then the timed rounds."""
    begin = time.perf_counter()
    simulate = globals()[f"prepare_{tool.lower()}"]()
    simulate(1)
    prepared = time.perf_counter()
    seconds, values = least(lambda: simulate(paths))
    return {
        "prepare_s": prepared - begin,
        "seconds": seconds,
        "mean": values.mean(axis=0).tolist(),
        "variance": values.var(axis=0, ddof=1).tolist(),
    }


# The driver


def install(tool: str, folder: Path) -> Path:
    """The Python of the tool's environment, made on the first call.

    Copied, not linked: GillesPy2 follows the link and then misses its SCons.
    """
    python = folder / tool / "bin" / "python"
    stamp = folder / tool / "installed"
    if not stamp.exists():
        subprocess.run([sys.executable, "-m", "venv", "--copies", folder / tool], check=True, capture_output=True)
        pip = [python, "-m", "pip", "install", "--quiet", *TOOLS[tool][0].split()]
        subprocess.run(pip, check=True, capture_output=True, text=True)
        stamp.touch()
    return python


def measure(tool: str, paths: int, folder: Path) -> dict:
    """What a tool's subprocess reports, or the reason why there is nothing."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [str(Path(__file__).resolve()), "--worker", tool, "--paths", str(paths)]
    try:
        python = install(tool, folder)
        with tempfile.TemporaryDirectory() as scratch:
            done = subprocess.run(
                [python, *command],
                check=True,
                capture_output=True,
                text=True,
                timeout=300,
                env=environment,
                cwd=scratch,
            )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "").strip().splitlines() or [str(error)]
        return {"problem": lines[-1][:100]}
    except subprocess.TimeoutExpired:
        return {"problem": "more than 300 s"}


def our_moments() -> dict:
    """Events a path, mean and variance of I, from 100,000 exact paths of ours; the time of a second run."""
    begin = time.perf_counter()
    import numpy as np

    import ctmoments as ctm

    problem = ctm.load_problem("sir")
    ctm.simulate_moments(problem, [ALPHA, BETA], replicates=1, seed=1, threads=1)
    prepared = time.perf_counter()
    seconds, data = least(
        lambda: ctm.simulate_moments(problem, [ALPHA, BETA], replicates=OUR_PATHS, seed=1, threads=1, progress=False)
    )
    return {
        "prepare_s": prepared - begin,
        "seconds": seconds,
        "events": data.attrs["events"] / OUR_PATHS,
        "mean": data["mean"].values[0].tolist(),
        "variance": np.diagonal(data["cov"].values[0]).tolist(),
    }


def largest_z(report: dict, paths: int, ours: dict) -> float:
    """The largest distance of a tool's mean from ours, in standard errors of both."""
    rows = zip(report["mean"], report["variance"], ours["mean"], ours["variance"], strict=True)
    return max(abs(a - b) / (va / paths + vb / OUR_PATHS) ** 0.5 for a, va, b, vb in rows)


def compare(names: list[str], paths: int, folder: Path) -> list[dict]:
    """One row a tool, ours first."""
    ours = our_moments()
    rows = [
        {
            "tool": "ctmoments",
            "version": "this tree",
            "how": "simulate_moments on one thread",
            "ns_per_event": ours["seconds"] / (OUR_PATHS * ours["events"]) * 1e9,
            "prepare_s": ours["prepare_s"],
            "largest_z": 0.0,
        }
    ]
    for tool in names:
        report = measure(tool, paths, folder)
        row = {"tool": tool, "version": TOOLS[tool][0].split()[0].split("==")[1], "how": TOOLS[tool][1]}
        if "problem" in report:
            row["problem"] = report["problem"]
        else:
            row["ns_per_event"] = report["seconds"] / (paths * ours["events"]) * 1e9
            row["prepare_s"] = report["prepare_s"]
            row["largest_z"] = largest_z(report, paths, ours)
        rows.append(row)
        print(f"{tool}: done", file=sys.stderr)
    return rows


def show(rows: list[dict]) -> str:
    """The rows as a Markdown table."""
    ours = rows[0]["ns_per_event"]
    lines = [
        "| tool | version | ns an event | times ours | import + prepare, s | largest z of the mean | how |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "problem" in row:
            figures = f"not measured: {row['problem']} | | | "
        else:
            ns = row["ns_per_event"]
            figures = f"{ns:.3g} | {ns / ours:.0f} | {row['prepare_s']:.2f} | {row['largest_z']:.1f}"
        lines.append(f"| {row['tool']} | {row['version']} | {figures} | {row['how']} |")
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paths", type=int, default=2000)
    parser.add_argument("--only", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "build" / "others")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", choices=TOOLS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.worker, options.paths)))
        return
    options.work.mkdir(parents=True, exist_ok=True)
    rows = compare(options.only, options.paths, options.work.resolve())
    print(json.dumps(rows) if options.json else show(rows))


if __name__ == "__main__":
    main()
