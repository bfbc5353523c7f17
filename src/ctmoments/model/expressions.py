"""Rate expressions, in one place to import from: the tree, its text, its calculus.

`tree.py` holds the nodes, `grammar.py` reads text, `calculus.py` evaluates, simplifies and differentiates,
`latex.py` writes formulas.
"""

from ctmoments.model.calculus import differentiate, evaluate, simplify, vanishes_below
from ctmoments.model.grammar import FUNCTIONS, MAX_DEPTH, MAX_LENGTH, RESERVED, parse_expression
from ctmoments.model.latex import to_latex
from ctmoments.model.tree import ARITY, Call, Expression, Name, Number, free_names, substitute, to_text, walk

__all__ = [
    "ARITY",
    "FUNCTIONS",
    "MAX_DEPTH",
    "MAX_LENGTH",
    "RESERVED",
    "Call",
    "Expression",
    "Name",
    "Number",
    "differentiate",
    "evaluate",
    "free_names",
    "parse_expression",
    "simplify",
    "substitute",
    "to_latex",
    "to_text",
    "vanishes_below",
    "walk",
]
