"""The command `ctmoments`: finds the verb, reads its arguments, runs it, and turns errors into one line and a code.

In: words of a command line. Out: an exit code: 0 done, 1 failed, 2 bad input, 130 interrupted, 141 nobody reads on.
Results go to stdout, progress and messages to stderr. A verb's module is imported when the verb is called, and loads
what it needs when it runs, so that `ctmoments --help` answers at once.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from ctmoments.errors import CtmomentsError, InputError, nearest
from ctmoments.use.arguments import Parser, add_common, parse
from ctmoments.use.talk import Talk


class Verb(NamedTuple):
    """Where a verb stands, and what it does in a few words."""

    module: str  # in this package; holds `add_<verb>(parser)` and `run_<verb>(settings, talk)`
    help: str


VERBS = {
    "learn": Verb("commands_learn", "learn the map: mean and covariance over the whole box, from a budget of paths"),
    "predict": Verb("commands_map", "tell what a map says at values"),
    "score": Verb("commands_map", "tell how far a map is from the truth"),
    "whiten": Verb("commands_map", "whiten fresh paths with a map"),
    "info": Verb("commands_model", "list the built-in problems, or describe one, or a file"),
    "check": Verb("commands_model", "say whether a problem file is valid"),
    "simulate": Verb("commands_simulate", "simulate a design: means and covariances from exact paths"),
    "exact": Verb("commands_moments", "solve the master equation: exact means and covariances"),
    "equations": Verb("commands_moments", "derive the moment equations, and say whether they close"),
    "status": Verb("commands_store", "tell how far a campaign is"),
    "verify": Verb("commands_store", "check a campaign's store: checksums, and a sample simulated again"),
    "export": Verb("commands_store", "write the moments of a finished campaign to a file"),
    "selftest": Verb("commands_selftest", "check that this machine computes what it should"),
}

DONE, FAILED, BAD_INPUT, INTERRUPTED, NO_READER = 0, 1, 2, 130, 141
HELP = ("-h", "--help", "help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    verbose = "--verbose" in words
    try:
        code = _run(words, verbose)
        sys.stdout.flush()
        return code
    except InputError as error:
        return _fail(error, BAD_INPUT)
    except CtmomentsError as error:
        return _fail(error, FAILED)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter complains at its end
        return NO_READER
    except OSError as error:
        return _fail(f"{error.filename or 'file'}: {error.strerror or error}", FAILED)
    except MemoryError:
        return _fail("not enough memory; ask for fewer points or outputs", FAILED)
    except Exception as error:
        if verbose:
            raise
        text = f"{type(error).__name__}: {error} (--verbose shows where)"
        return _fail(f"internal error, please report it: {text}", FAILED)


def _run(words: list[str], verbose: bool) -> int:
    if not words or words[0] in HELP:
        verb = words[1] if len(words) > 1 and words[0] == "help" else ""
        if not verb:
            print(overview())
            return DONE
        words = [verb, "--help"]
    if words[0] in ("--version", "-V"):
        from ctmoments import __version__

        print(f"ctmoments {__version__}")
        return DONE
    name = words[0]
    if name not in VERBS:
        raise InputError(f"{name!r} must be a verb. {nearest(name, VERBS)}")
    module = importlib.import_module(f"ctmoments.use.{VERBS[name].module}")
    settings = parse(parser_of(name), words[1:])
    talk = Talk(quiet=settings.quiet, verbose=settings.verbose, json=settings.json)
    with warnings.catch_warnings():
        warnings.showwarning = talk.warning
        warnings.simplefilter("default" if verbose else "ignore")
        warnings.simplefilter("always", UserWarning)  # ours; those of other libraries are for developers
        return getattr(module, f"run_{name}")(settings, talk) or DONE


def parser_of(name: str) -> Parser:
    """The parser of a verb."""
    module = importlib.import_module(f"ctmoments.use.{VERBS[name].module}")
    parser = Parser(prog=f"ctmoments {name}", description=VERBS[name].help[0].upper() + VERBS[name].help[1:] + ".")
    getattr(module, f"add_{name}")(parser)
    add_common(parser)
    return parser


def overview() -> str:
    """What `ctmoments --help` prints."""
    width = max(map(len, VERBS))
    lines = [f"  {name:{width}}  {verb.help}" for name, verb in VERBS.items()]
    return "\n".join(
        [
            "The mean and the covariance of a continuous-time Markov chain, at every parameter value.",
            "",
            "usage: ctmoments VERB ...",
            "",
            *lines,
            "",
            "`ctmoments VERB --help` tells more; `ctmoments --version` tells the version.",
        ]
    )


def _fail(reason: object, code: int) -> int:
    text = " ".join(str(reason).split())
    print(f"ctmoments: {text}", file=sys.stderr)
    return code
