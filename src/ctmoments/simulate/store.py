"""The campaign store: one SQLite file that holds exactly the blocks that were finished, whatever happens.

In: blocks (`StoredBlock`), each written in one transaction by the one writer. Out: the same blocks, every one behind
its checksum, and their merged sums. `docs/store.md` describes the schema. Nothing here knows how blocks are made.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ctmoments.errors import FileError
from ctmoments.simulate.blocks import Task
from ctmoments.simulate.encode import checksum, pack, unpack
from ctmoments.simulate.lock import WriterLock

APPLICATION = 0x63746D6F  # "ctmo", in the header of the file
FORMAT = 1
PATIENCE = 60.0  # seconds that a commit waits for readers
SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE layers (layer INTEGER PRIMARY KEY, points INTEGER NOT NULL, checksum BLOB NOT NULL,
                     labels BLOB NOT NULL, theta BLOB NOT NULL);
CREATE TABLE editions (edition INTEGER PRIMARY KEY, outputs INTEGER NOT NULL, times TEXT NOT NULL,
                       checksum BLOB NOT NULL);
CREATE TABLE blocks (block INTEGER PRIMARY KEY, edition INTEGER NOT NULL, row_first INTEGER NOT NULL,
                     row_end INTEGER NOT NULL, first INTEGER NOT NULL, "end" INTEGER NOT NULL,
                     failed INTEGER NOT NULL, events INTEGER NOT NULL, checksum BLOB NOT NULL,
                     seconds REAL NOT NULL, written REAL NOT NULL, note TEXT NOT NULL,
                     statuses BLOB NOT NULL, sums BLOB NOT NULL, UNIQUE (edition, row_first, first));
"""


@dataclass(frozen=True)
class StoredBlock:
    """A finished task: what a worker hands over and a row of `blocks` holds."""

    task: Task
    sums: bytes
    statuses: bytes
    failed: int
    events: int
    note: str  # the first traceback of a callable, or nothing
    seconds: float  # what it took; not part of the checksum

    def checksum(self, edition: int) -> bytes:
        """Over everything that numbers depend on."""
        t = self.task
        key = (edition, t.row_first, t.row_end, t.first, t.end, self.failed, self.events)
        return checksum(key, self.note, self.statuses, self.sums)


@dataclass(frozen=True)
class BlockRow:
    """A block's entry without its payload."""

    number: int
    task: Task
    failed: int
    events: int
    seconds: float
    written: float


class Store:
    """An open store. Every method raises `FileError` with one line where the file cannot give or take what is asked."""

    def __init__(self, path: str | Path, write: bool = False) -> None:
        self.path = Path(path)
        if write and not self.path.parent.is_dir():
            raise FileError(f"{self.path.parent} must be an existing folder; make it, or name another store.")
        if not write and not self.path.is_file():
            raise FileError(f"{self.path} must be a campaign store; there is no such file.")
        self._lock = WriterLock(self.path) if write else None
        try:
            with self._errors():
                self._connection = self._connect(write)
            self.empty = self._check_format()
        except BaseException:
            self._release()
            raise

    def _connect(self, write: bool) -> sqlite3.Connection:
        # a reader, too, may have to roll back what a killed writer left: not mode=ro
        uri = f"{self.path.absolute().as_uri()}?mode={'rwc' if write else 'rw'}"
        connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
        connection.text_factory = lambda data: data.decode(errors="replace")  # damage is for checksums to find
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def close(self) -> None:
        """Close the file and let the next writer in."""
        self._connection.close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what can go wrong, in one line

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter from damaged names in the schema
            text = " ".join(str(error).split())
            if "full" in text:
                hint = "Free some space, then run again with resume: what is written stays."
            elif "readonly" in text or "unable to open" in text:
                hint = "The file and its folder must be readable and writable."
            elif isinstance(error, sqlite3.OperationalError) and ("locked" in text or "I/O" in text):
                hint = "Run again with resume: what is written stays."
            else:
                hint = "It is damaged or no store: restore a copy, or delete it and run again for the same numbers."
            raise FileError(f"{self.path}: {text}. {hint}") from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; on disk when it is left."""
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _rows(self, query: str, values: tuple = ()) -> list[tuple]:
        with self._errors():
            return self._connection.execute(query, values).fetchall()

    def _do(self, statement: str, values: tuple = ()) -> None:
        with self._errors():
            self._connection.execute(statement, values)

    def _check_format(self) -> bool:
        """Whether the file is still empty; anything but our format is refused."""
        application, version = (self._rows(f"PRAGMA {name}")[0][0] for name in ("application_id", "user_version"))
        tables = self._rows("SELECT count(*) FROM sqlite_master")[0][0]
        if application == version == tables == 0:
            return True
        if application != APPLICATION:
            raise FileError(f"{self.path} must be a campaign store of ctmoments, got another SQLite file.")
        if version != FORMAT:
            raise FileError(f"{self.path}: this version reads stores of format {FORMAT}, got format {version}.")
        return False

    def check_pages(self) -> None:
        """Let SQLite look at its own structure."""
        answer = self._rows("PRAGMA integrity_check(1)")[0][0]
        if answer != "ok":
            raise FileError(
                f"{self.path}: {answer.splitlines()[-1]}. It is damaged: restore a copy, or delete it and run again."
            )

    # ---- writing: inside `transaction`

    def create_tables(self) -> None:
        """Make an empty file a store."""
        for statement in SCHEMA.split(";")[:-1]:
            self._do(statement)
        self._do(f"PRAGMA application_id = {APPLICATION}")
        self._do(f"PRAGMA user_version = {FORMAT}")

    def set_meta(self, name: str, value: object) -> None:
        """Write or replace one entry; any JSON value."""
        text = json.dumps(value)
        self._do("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (name, text, checksum(name, text)))

    def add_layer(self, labels: np.ndarray, theta: np.ndarray) -> None:
        """Add rows to the design."""
        data = pack([labels]), pack([theta])
        layer = len(self._rows("SELECT layer FROM layers"))
        self._do("INSERT INTO layers VALUES (?, ?, ?, ?, ?)",
                 (layer, len(theta), checksum(layer, theta.shape, *data), *data))  # fmt: skip

    def add_edition(self, times: tuple[float, ...], outputs: int) -> None:
        """Begin to collect sums at other output times; blocks of earlier editions stay until `drop_editions`."""
        edition, text = self.edition + 1 if self.has_edition else 0, json.dumps(times)
        self._do("INSERT INTO editions VALUES (?, ?, ?, ?)", (edition, outputs, text, checksum(edition, outputs, text)))

    def add_block(self, edition: int, block: StoredBlock, expected: bytes) -> None:
        """Write a block whose checksum, taken where it was made, is `expected`."""
        if block.checksum(edition) != expected:
            raise FileError(f"{self.path}: a block of {block.task} was damaged on its way here; nothing was written.")
        t = block.task
        row = (edition, t.row_first, t.row_end, t.first, t.end, block.failed, block.events, expected, block.seconds,
               time.time(), block.note, block.statuses, block.sums)  # fmt: skip
        self._do(f"INSERT INTO blocks VALUES (NULL{', ?' * len(row)})", row)

    def drop_block(self, number: int) -> None:
        """Remove a block, so that it is simulated again."""
        self._do("DELETE FROM blocks WHERE block = ?", (number,))

    def drop_editions(self, before: int) -> None:
        """Remove what earlier editions hold."""
        self._do("DELETE FROM blocks WHERE edition < ?", (before,))
        self._do("DELETE FROM editions WHERE edition < ?", (before,))

    # ---- reading

    def meta(self, name: str):
        """One entry."""
        rows = self._rows("SELECT value, checksum FROM meta WHERE name = ?", (name,))
        if not rows or checksum(name, rows[0][0]) != rows[0][1]:
            raise self._damaged(f"its entry {name!r} is {'damaged' if rows else 'missing'}")
        return json.loads(rows[0][0])

    def design(self, parameters: int) -> tuple[np.ndarray, np.ndarray]:
        """Labels and parameter values of every row."""
        labels, theta = [], []
        for layer, points, expected, *data in self._rows("SELECT * FROM layers ORDER BY layer"):
            if layer != len(labels) or checksum(layer, (points, parameters), *data) != expected:
                raise self._damaged(f"layer {len(labels)} of its design is damaged")
            labels.append(unpack(data[0], [(points,)])[0])
            theta.append(unpack(data[1], [(points, parameters)])[0])
        if len(labels) != self.meta("layers"):
            raise self._damaged(f"its design must have {self.meta('layers')} layers, got {len(labels)}")
        return np.concatenate(labels), np.concatenate(theta)

    @property
    def has_edition(self) -> bool:
        """Whether any edition was begun."""
        return bool(self._rows("SELECT 1 FROM editions LIMIT 1"))

    @property
    def edition(self) -> int:
        """The newest edition."""
        return self.editions()[-1][0]

    def editions(self) -> list[tuple[int, int, tuple[float, ...]]]:
        """(edition, outputs, times) of each, oldest first."""
        found = []
        for edition, outputs, text, expected in self._rows("SELECT * FROM editions ORDER BY edition"):
            if checksum(edition, outputs, text) != expected:
                raise self._damaged(f"edition {edition} is damaged")
            found.append((edition, outputs, tuple(json.loads(text))))
        if not found:
            raise self._damaged("it holds no edition")
        return found

    def blocks(self, edition: int) -> list[BlockRow]:
        """Every block of an edition, without its sums."""
        query = (
            'SELECT block, row_first, row_end, first, "end", failed, events, seconds, written FROM blocks '
            "WHERE edition = ? ORDER BY row_first, first"
        )
        rows = self._rows(query, (edition,))
        if not all(isinstance(value, int) for row in rows for value in row[:7]):
            raise self._damaged("the ranges of its blocks are damaged")
        return [BlockRow(row[0], Task(*row[1:5]), *row[5:]) for row in rows]

    def block_numbers(self) -> list[int]:
        """Every row of `blocks`, of whatever edition."""
        return [number for (number,) in self._rows("SELECT block FROM blocks NOT INDEXED ORDER BY block")]

    def read_block(self, number: int) -> StoredBlock:
        """A block with its sums, its checksum compared."""
        query = (
            'SELECT edition, checksum, row_first, row_end, first, "end", sums, statuses, failed, events, note, seconds '
            "FROM blocks WHERE block = ?"
        )
        rows = self._rows(query, (number,))
        if not rows:
            raise self._damaged(f"block {number} is missing")
        edition, expected, *values = rows[0]
        block = StoredBlock(Task(*values[:4]), *values[4:])
        if block.checksum(edition) != expected:
            raise DamagedBlock(f"{self.path}: block {number} does not match its checksum. Run again with resume.")
        return block

    def _damaged(self, what: str) -> FileError:
        return FileError(f"{self.path}: {what}: restore a copy, or delete it and run again for the same numbers.")


class DamagedBlock(FileError):
    """A block that does not match its checksum: its numbers are not used."""
