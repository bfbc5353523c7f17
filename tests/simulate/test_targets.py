"""Kernels are emitted for any machine: ARM and CUDA code comes out of the same emitter, and calls no C library."""

import re

import llvmlite.binding as llvm
import pytest

import ctmoments as ctm
from ctmoments.simulate.direct import DirectKernel
from ctmoments.simulate.graph import build_graph
from ctmoments.simulate.network import lower
from ctmoments.simulate.sparse import SparseKernel
from ctmoments.simulate.sumkernel import emit_sums

OWN = {"attend", "renew", "look", "simulate", "add_up"}


def rates_of_every_kind() -> ctm.Problem:
    model = ctm.Model(
        {"X": 5, "Y": 2},
        ["k"],
        [
            "X -> Y : k*X*exp(-Y/10)",
            "Y -> X : hill(Y, k, 2.5) + log(1 + Y) + sqrt(Y)",
            "0 -> X : if(X > 3 and not Y >= 9, floor(X/2), max(X, Y)^k)",
            "Y -> 0 : Y^3/100",
        ],
    )
    return ctm.Problem(model, ctm.Space(k=(1, 2)), observe=["X", "X + Y"], times=[1, 2])


def assembly(text: str, triple: str, cpu: str) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        pytest.skip(f"this llvmlite was built without {triple}: {error}")
    module = llvm.parse_assembly(text)
    module.triple = triple
    module.verify()
    return target.create_target_machine(cpu=cpu, opt=2).emit_assembly(module)


def called(text: str, pattern: str) -> set[str]:
    return {name.lstrip("_") for name in re.findall(pattern, text)}


@pytest.mark.parametrize("width", [1, 2, 4])
def test_arm(width):
    problem = rates_of_every_kind()
    for text in (DirectKernel(lower(problem), width, 4).text(), emit_sums(width, 4)):
        code = assembly(text, "aarch64-unknown-linux-gnu", "neoverse-n1")
        assert "fmadd" in code or "fmla" in code
        assert called(code, r"\bbl\s+([\w.]+)") <= OWN


def test_sparse_on_arm():
    graph = build_graph(lower(rates_of_every_kind()))
    code = assembly(SparseKernel(graph, 2, 4).text(), "aarch64-unknown-linux-gnu", "neoverse-n1")
    assert called(code, r"\bbl\s+([\w.]+)") <= OWN


def test_cuda_one_lane_a_thread():
    code = assembly(DirectKernel(lower(rates_of_every_kind()), 1, 1).text(), "nvptx64-nvidia-cuda", "sm_80")
    assert "fma.rn.f64" in code and "div.rn.f64" in code  # correctly rounded, as on the CPU
    assert ".extern" not in code  # nothing is called that is not in the module
