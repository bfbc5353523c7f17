"""Problem files: exact round trips, stable text, every wrong key refused by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctmoments.errors import FileError, ModelError
from ctmoments.model.library import list_problems, load_model, load_problem
from ctmoments.model.model import Model
from ctmoments.model.problem import Problem
from ctmoments.model.space import Integer, Log, Space
from ctmoments.model.toml import problem_from_toml

EXAMPLE = """
[model]
species = { S = "766 - I0", I = "I0", R = 0 }
constants = { c = 1.0 }
reactions = ["S + I -> 2 I : c*beta*S*I", "I -> R : alpha*I"]
[space]
alpha = [0.1, 0.9]
beta = { low = 0.00125, high = 0.00325, scale = "log" }
I0 = { low = 1, high = 20, scale = "integer" }
[observe]
outputs = ["I"]
times = { start = 1, stop = 13, step = 1 }
"""


def test_the_file_of_the_design_page():
    problem = problem_from_toml(EXAMPLE)
    assert problem.model.parameters == problem.space.parameters == ("alpha", "beta", "I0")
    assert problem.space == Space(alpha=(0.1, 0.9), beta=Log(0.00125, 0.00325), I0=Integer(1, 20))
    assert problem.times == tuple(range(1, 14))
    assert problem_from_toml(problem.to_toml()) == problem


@pytest.mark.parametrize("name", list_problems())
def test_library_problems_round_trip(name, tmp_path):
    problem = load_problem(name)
    problem.save(tmp_path / "p.toml")
    assert load_problem(tmp_path / "p.toml") == load_problem(str(tmp_path / "p.toml")) == problem
    assert load_problem(tmp_path / "p.toml").to_toml() == problem.to_toml() == (tmp_path / "p.toml").read_text()
    assert load_model(tmp_path / "p.toml") == load_model(name) == problem.model


FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    bounds=st.tuples(FINITE, FINITE).filter(lambda b: b[0] < b[1]),
    constant=FINITE,
    amount=st.integers(0, 2**52),
    times=st.lists(st.floats(0, 1e6), min_size=1, max_size=6, unique=True).map(sorted),
    texts=st.tuples(TEXT, TEXT, TEXT, TEXT),
    swap=st.booleans(),
)
def test_any_problem_round_trips(bounds, constant, amount, times, texts, swap):
    model = Model(
        {"X": amount, "Y": "2^3"},
        ["k", "a"][:: -1 if swap else 1],
        ["birth: 0 -> X : if(X < c, k, -a)", "X -> Y @ a"],
        {"c": constant},
        name=texts[3],
    )
    space = Space(k=bounds, a=Log(0.1, 1 / 3))
    problem = Problem(model, space, ["X", "0.25*X + Y"], times, *texts[:3])
    text = problem.to_toml()
    assert problem_from_toml(text) == problem
    assert problem_from_toml(text).to_toml() == text


@pytest.mark.parametrize("count", [8, 9, 200])
def test_many_species_and_constants(count):
    names = [f"X{i}" for i in range(count)]
    model = Model(dict.fromkeys(names, 1), ["k"], ["X0 -> X1 @ k"], {f"c{i}": i / 7 for i in range(count)})
    problem = Problem(model, Space(k=(0, 1)), "X1", [1])
    assert problem_from_toml(problem.to_toml()) == problem
    assert max(map(len, problem.to_toml().splitlines())) < 300


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ("{ start = 0, stop = 1, step = 0.1 }", [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        ("{ start = 2, stop = 2, step = 1 }", [2]),
        ("[0.5, 2]", [0.5, 2]),
    ],
)
def test_times(times, expected):
    text = EXAMPLE.replace("{ start = 1, stop = 13, step = 1 }", times)
    assert problem_from_toml(text).times == tuple(expected)


def test_equally_spaced_times_are_written_as_a_range():
    problem = load_problem("sir")
    assert "times = { start = 1, stop = 13, step = 1 }" in problem.to_toml()
    tenths = Problem(problem.model, problem.space, "I", [i / 10 for i in range(1, 8)])
    assert "times = { start = 0.1, stop = 0.7, step = 0.1 }" in tenths.to_toml()


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("[observe]", "[obsrve]", r"here.toml: top level: unknown key 'obsrve'. Did you mean 'observe'"),
        ("constants", "constant", r"\[model\]: unknown key 'constant'. Did you mean 'constants'"),
        ("outputs", "output", r"\[observe\]: unknown key 'output'. Did you mean 'outputs'"),
        ("low = 1,", "lo = 1,", r"\[space\] 'I0': unknown key 'lo'. Did you mean 'low'"),
        ("step = 1", "stp = 1", r"times: unknown key 'stp'. Did you mean 'sto?e?p'"),
        ("step = 1", "step = 5", r"`stop` must be `start` plus whole steps above 0, got start 1, stop 13, step 5"),
        ("step = 1", "step = 0", r"plus whole steps above 0"),
        ("step = 1", "step = 1e-9", r"must be at most 1000000, got 12000000001"),
        ("step = 1", "step = '1'", r"`step` must be a finite number, got '1'"),
        ("step = 1", "step = nan", r"`step` must be a finite number, got nan"),
        ('"log"', '"logarithmic"', r"`scale` must be one of linear, log, integer, got 'logarithmic'"),
        ("low = 0.00125", "low = -1", r"\[space\] 'beta': Log: `low` must be above 0"),
        ("low = 1,", "low = true,", r"\[space\] 'I0': `low` of Integer must be a finite number, got True"),
        ("alpha = [0.1, 0.9]", "alpha = [0.1]", r"parameter 'alpha' must be a pair"),
        ("alpha = [0.1, 0.9]", "alpha = true", r"parameter 'alpha' must be a pair .* got True"),
        ("alpha = [0.1, 0.9]", "", r"'alpha' in its rate must be a species"),
        ("times = ", "# ", r"\[observe\] must hold 'times', got only outputs"),
        ("reactions = ", "# ", r"\[model\] must hold 'reactions'"),
        ("R = 0", "R = 1979-05-27", r"initial amount of 'R': an expression must be text"),
        ("c = 1.0", "c = inf", r"constant 'c' must be a finite number, got inf"),
        ('outputs = ["I"]', "outputs = 3", r"`observe` must be a species"),
        ("[model]", "name = 3\n[model]", r"`name` must be text, got 3"),
        ("[space]", "[[space]]", r"\[space\] must be a mapping"),
    ],
)
def test_wrong_files_are_refused_by_name(old, new, match):
    assert old in EXAMPLE
    with pytest.raises(ModelError, match=match):
        problem_from_toml(EXAMPLE.replace(old, new, 1), "here.toml")


def test_unreadable_files(tmp_path):
    with pytest.raises(FileError, match=r"'siir' must be a built-in problem or the path of a file. Did you mean 'sir'"):
        load_problem("siir")
    with pytest.raises(FileError, match=r"none\.toml must be a readable file: No such file"):
        load_problem(tmp_path / "none.toml")
    with pytest.raises(FileError, match="a problem must be a name or a path, got 3"):
        load_problem(3)
    (tmp_path / "a.toml").write_text("a = ?")
    with pytest.raises(FileError, match=r"a\.toml must be valid TOML: .*line 1"):
        load_problem(tmp_path / "a.toml")
    (tmp_path / "b.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(FileError, match=r"b\.toml must be text in UTF-8"):
        load_problem(tmp_path / "b.toml")
    (tmp_path / "c.toml").write_text("a = " + "[" * 5000)
    with pytest.raises(FileError, match=r"c\.toml must be"):
        load_problem(tmp_path / "c.toml")
    (tmp_path / "d.yaml").write_text("")
    with pytest.raises(FileError, match=r"d\.yaml must end in \.toml, got '\.yaml'"):
        load_problem(tmp_path / "d.yaml")
    with pytest.raises(FileError, match=r"must end in \.toml, got 'x\.txt'"):
        load_problem("sir").save("x.txt")


def test_a_model_alone(tmp_path):
    path = tmp_path / "m.toml"
    path.write_text('[model]\nspecies = { X = 1 }\nreactions = ["X -> 0 @ k"]\nparameters = ["k"]\n')
    assert load_model(path) == Model({"X": 1}, ["k"], ["X -> 0 @ k"])
    path.write_text('[model]\nspecies = { X = 1 }\nreactions = ["X -> 0 @ k"]\n')
    with pytest.raises(ModelError, match=r"m\.toml: \[model\] must list its `parameters`"):
        load_model(path)
    path.write_text("name = 'x'\n")
    with pytest.raises(ModelError, match=r"m\.toml: \[model\] must be a mapping"):
        load_model(path)
