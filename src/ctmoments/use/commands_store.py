"""`ctmoments status`, `verify` and `export`: how far a campaign is, whether its store is right, its moments."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ctmoments.use.arguments import Parser, file_named, whole
from ctmoments.use.commands_simulate import add_on_failure, tell_failures
from ctmoments.use.talk import Talk

FAILED = 1


def _add_store(parser: Parser) -> None:
    parser.add_argument("store", type=Path, metavar="STORE", help="the store of a campaign")


def add_status(parser: Parser) -> None:
    """Arguments of `status`."""
    _add_store(parser)


def run_status(settings: Namespace, talk: Talk) -> None:
    """Tell progress, speed, time left, and how paths end; also beside a running campaign."""
    from ctmoments.simulate.status import campaign_status

    status = campaign_status(settings.store)
    talk.result(str(status), status.to_dict())


def add_verify(parser: Parser) -> None:
    """Arguments of `verify`."""
    _add_store(parser)
    parser.add_argument("--sample", type=whole(0), default=10, metavar="N", help="blocks to simulate again (10)")
    parser.add_argument("--seed", type=whole(), metavar="S", help="fixes which; without it, others each time")


def run_verify(settings: Namespace, talk: Talk) -> int:
    """Recompute checksums and simulate a sample of blocks again; 1 where anything differs."""
    from ctmoments.simulate.status import verify_store

    found = verify_store(settings.store, settings.sample, settings.seed)
    record = {"ok": found.ok, "blocks": found.blocks, "replayed": found.replayed, "complaints": found.complaints}
    talk.result(f"{settings.store}: {'right' if found.ok else 'WRONG'}: {found}", record)
    return 0 if found.ok else FAILED


def add_export(parser: Parser) -> None:
    """Arguments of `export`."""
    _add_store(parser)
    parser.add_argument("out", type=file_named(".nc", ".zarr"), metavar="OUT", help="the file to write: .nc or .zarr")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if there is one")
    add_on_failure(parser)


def run_export(settings: Namespace, talk: Talk) -> None:
    """Write the moments of a finished store."""
    from ctmoments.moments.export import export_store
    from ctmoments.use.files import make_folder

    make_folder(settings.out.absolute().parent)
    data = export_store(settings.store, settings.out, on_failure=settings.on_failure, overwrite=settings.overwrite)
    tell_failures(data, talk)
    points, outputs, paths = data.sizes["point"], data.sizes["output"], int(data.attrs["paths"])
    record = {"out": settings.out, "points": points, "outputs": outputs, "paths": paths}
    talk.result(f"{settings.out}: {points:,} points, {outputs:,} outputs, from {paths:,} paths", record)
