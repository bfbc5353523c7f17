"""One writer: a lock on a file beside the store, held by the operating system and freed with the process.

The lock is not on the store itself: closing any handle on an SQLite file drops SQLite's own locks of that process.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ctmoments.errors import FileError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


class WriterLock:
    """Held from construction to `release`, or to the end of the process however it ends."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".lock")
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise FileError(f"{store} must be in a folder that can be written to: {error.strerror}.") from None
        try:
            _lock(self._file)
        except OSError:
            holder = os.read(self._file, 200).decode(errors="replace").strip() or "another process"
            os.close(self._file)
            raise FileError(
                f"{store} is being written by {holder}; a store has one writer. Wait for it, or stop it."
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)

    def release(self) -> None:
        """Let the next writer in. The file stays: removing it would let two writers hold two locks."""
        os.ftruncate(self._file, 0)
        os.close(self._file)


def _lock(file: int) -> None:
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    import msvcrt

    os.lseek(file, 1000, os.SEEK_SET)  # a byte far behind the holder's name, so that others can read that
    msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
