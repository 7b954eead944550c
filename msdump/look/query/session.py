"""A session of questions: the views over all sources, each made when a question first mentions it.

Sources are dumps, packs, and results of comparisons, each with a label.

PACK/msdump_pack.json               numbers of rows; written last, so that a pack is complete or none
PACK/statistics/rank=0/*.parquet    the rows of a view, the rank in the files as well
"""

from __future__ import annotations

import enum
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from msdump import reading
from msdump.errors import DumpReadError, ToolError, cause_of
from msdump.executors import ExecutorChoice
from msdump.judge import reports
from msdump.look.query import engine, views
from msdump.look.query.columns import TEXT, VIEWS, Column
from msdump.look.query.engine import Table
from msdump.look.query.views import OpenedDump
from msdump.read import check_whole, open_dump, read_json
from msdump.return_codes import ReturnCode
from msdump.store import STATISTICS
from msdump.store.write import make_output

MANIFEST: Final = "msdump_pack.json"

_LABELLED: Final = re.compile(r"(?P<label>[A-Za-z_][A-Za-z0-9_.-]*)=(?P<path>.+)", re.DOTALL)


class QuestionedKind(enum.Enum):
    """Kind of a source."""

    DUMP = enum.auto()
    PACK = enum.auto()
    COMPARISON = enum.auto()


@dataclass(frozen=True, slots=True)
class QuestionedSource:
    """A source; its label stands in the column ``dump`` or ``comparison``."""

    label: str
    path: str
    kind: QuestionedKind


def parse_sources(texts: Sequence[str]) -> tuple[QuestionedSource, ...]:
    """Return the sources that a command line names, each as PATH or NAME=PATH.

    Raises:
        DumpReadError: Nothing stands at a path, or a file that is no result of a comparison.
        ToolError: Two have the same label.
    """
    sources: dict[str, QuestionedSource] = {}
    for text in texts:
        labelled = None if os.path.lexists(text) else _LABELLED.fullmatch(text)
        label, path = labelled.group("label", "path") if labelled else (text.rstrip("/") or "/", text)
        if os.path.isdir(path):
            is_pack = os.path.lexists(os.path.join(path, MANIFEST))  # noqa: PTH118 - the text as it was given
            kind = QuestionedKind.PACK if is_pack else QuestionedKind.DUMP
        elif not os.path.lexists(path):
            message = "no such file or directory; a dump, a pack or a result of compare is needed"
            raise DumpReadError(path, message)
        elif Path(path).suffix == ".json":
            kind = QuestionedKind.COMPARISON
        else:
            message = "no directory of a dump or pack, and no .json file of msdump compare"
            raise DumpReadError(path, message)
        if sources.setdefault(label, QuestionedSource(label, path, kind)).path != path:
            message = f"two sources are called {label!r}; give each another name: NAME=PATH"
            raise ToolError(ReturnCode.PARAMETER, message)
    return tuple(sources.values())


def is_named(text: str) -> bool:
    """Return whether a text is NAME=PATH of an existing path."""
    labelled = _LABELLED.fullmatch(text)
    return labelled is not None and os.path.lexists(labelled["path"])


FORMAT: Final = 1
"""Version of the form of packs."""


def check_pack(folder: str) -> None:
    """Refuse (DumpReadError) a directory that is no pack of this form."""
    path = f"{folder}/{MANIFEST}"
    manifest = read_json(path)
    form = manifest.get("format") if isinstance(manifest, dict) else None
    if form != FORMAT:
        message = f"a pack of form {form!r}; this msdump reads form {FORMAT}: pack the dump again"
        raise DumpReadError(path, message)


def select_pack(
    folder: str, view: str, fault: Callable[[str], object], find_fault: Callable[[str], str] | None
) -> str | None:
    """Return the SQL that reads a view of a pack, None where the pack has no row of it.

    ``fault`` gets messages about files that are left out: irregular ones (DuckDB would wait for the
    writer of a pipe), and damaged ones, of which ``find_fault`` returns the fault of a SELECT.
    """
    columns = ", ".join(f'"{column.name}"' for column in VIEWS[view])
    select = f"select {columns} from read_parquet([{{}}], hive_partitioning = false)"
    listed: list[str] = []
    for path in sorted(map(str, Path(folder, view).rglob("*.parquet"))):
        file = engine.pattern(path)
        try:
            reading.open_file(path).close()
            why = "" if find_fault is None else find_fault(select.format(file))
        except OSError as error:
            why = cause_of(error)
        if why:
            fault(f"{path}: {why}; the file is left out: pack the dump again")
        else:
            listed.append(file)
    return select.format(", ".join(listed)) if listed else None


_SELECT: Final = re.compile(
    r"(?:\s|--.*\n)*(?:\(|(?:select|from|with|values|table|(un)?pivot)\b)", re.IGNORECASE
)
"""Matches statements that return many rows; DuckDB counts DESCRIBE as the same type of statement."""

_ZONED: Final = re.compile(r"(TIMESTAMP\w*) WITH TIME ZONE")
"""Matches types of moments: cast to the type without a zone, as DuckDB needs pytz to convert them."""

_BITS: Final = 63  # of an integer column (BIGINT), without the sign

_WORD: Final = re.compile(r"[a-z]+")
_ROWS: Final[Mapping[str, Callable[[OpenedDump], Iterator[engine.Cells]]]] = MappingProxyType(
    {
        "tensors": views.tensor_rows,
        "operators": views.operator_rows,
        "files": views.file_rows,
        "runs": views.run_rows,
    }
)
"""Functions that yield the rows of a dump's views, all except ``statistics``."""

_OF_PLACE: Final = frozenset({"dump", "network", "directory", "path", "rank", "graph", "iteration"})
_OF_OPERATOR: Final = frozenset({"op_type", "op_name", "task_id", "stream_id", "timestamp"})
"""Columns of ``statistics`` that come from the names of acl's tables, in addition to ``_OF_PLACE``."""

_UNTIMED: Final = """
select * exclude (first, last) replace (
    coalesce(started, make_timestamp(first)) as started, coalesce(ended, make_timestamp(last)) as ended)
from _runs left join (
    select dump, directory, min(timestamp) as first, max(timestamp) as last
    from statistics group by dump, directory) using (dump, directory)
"""
"""SQL of the view of runs: a run without files gets its times from its rows of statistics."""

_SAVED: Final = f"""
select distinct dump, directory, op_type, op_name, io, slot from statistics
where parse_filename(path) = '{STATISTICS}'
"""
"""SQL of the tensors with a row in a table of statistics; all others are measured from their files."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows that answer a question."""

    columns: tuple[tuple[str, str], ...]  # names and types of the columns; no two have the same name
    fetch: Callable[[int], list[tuple[Any, ...]]]  # returns the next rows, at most the given number


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack that was written.

    Attributes:
        path: The directory.
        rows: Number of rows of each view that has some.
        warnings: Parts of the sources that could not be read.
    """

    path: str
    rows: Mapping[str, int]
    warnings: list[str]


class Session:
    """A database of views over sources."""

    def __init__(
        self,
        sources: Sequence[QuestionedSource],
        *,
        measures: bool,
        executor: ExecutorChoice,
        progress: Callable[[int], object] = lambda _: None,
        is_read_only: bool = False,
    ) -> None:
        """Open the sources.

        ``measures``: tensors without a row of statistics are measured from their files, and ``progress`` is
        called with the bytes of each directory. ``is_read_only``: questions see the sources alone, no file,
        no setting, no other database.

        Raises:
            NotAvailableError: DuckDB is not installed.
            DumpReadError: A source cannot be read.
        """
        self._connection = engine.connect()
        self._memory = engine.MemoryFiles()
        self._open = ExitStack()
        self._open.callback(self._memory.close)
        self._open.callback(self._connection.close)
        self._sources = sources
        self._measured = partial(views.measured_rows, executor=executor, progress=progress)
        self._measures = measures
        self._is_read_only = is_read_only
        self._tables: list[Table] = []
        self._is_plain = False
        self._is_checked = False
        self._made: dict[str, list[str]] = {}  # parts of the views
        self._find_fault: Callable[[str], str] | None = None  # of packs, once one is damaged
        self.faults: dict[str, None] = {}  # messages about parts of the sources that could not be read
        with self._open:
            dumps = self._of(QuestionedKind.DUMP)
            self._dumps = [
                OpenedDump(each.label, each.path, open_dump(each.path), self.faults) for each in dumps
            ]
            for source in self._of(QuestionedKind.PACK):
                check_pack(source.path)
            if is_read_only:
                with _tool_errors():
                    self._prepare(" ".join(VIEWS))
                self._connection.execute("set enable_external_access = false; set lock_configuration = true")
            self._open = self._open.pop_all()

    def __enter__(self) -> Self:
        """Return the session."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the database and the files in memory."""
        self._open.close()

    def ask(self, question: str) -> Answer:
        """Return the answer to the last of the statements in a text of SQL.

        Raises:
            ToolError: The text is no SQL, or names a view or column that is not there.
            DumpReadError: A source cannot be read.
        """
        with _tool_errors():
            statements = self._connection.extract_statements(question)
            for statement in statements:
                kind = None  # UPDATE EXTENSIONS is not among the library's types
                with suppress(ValueError):
                    kind = statement.type
                if kind in {None, engine.library().StatementType.LOAD}:
                    message = "a question installs, updates and loads no extensions"
                    raise ToolError(ReturnCode.PARAMETER, message)
            if not statements:
                raise ToolError(ReturnCode.PARAMETER, "the question is empty")
            self._prepare(question)
            return [self._run(statement) for statement in statements][-1]

    def save(self, question: str, path: str) -> int:
        """Write the answer to a question as a Parquet file and return the number of its rows.

        Raises:
            ToolError: As for ``ask``, or the file cannot be written.
        """
        # DuckDB would put a file in the place of a pipe or a device
        if os.path.exists(path) and not os.path.isfile(path):
            message = f"{path}: not a regular file: a Parquet file cannot be written there; give another path"
            raise ToolError(ReturnCode.WRITE, message)
        text = question.strip().rstrip(";")
        options = "format parquet, use_tmp_file true"
        ((count,),) = self.ask(
            f"copy ({text}\n) to {engine.literal(os.path.realpath(path))} ({options})"
        ).fetch(1)
        return int(count)

    def write_pack(self, folder: str) -> Pack:
        """Write every view that has rows as Parquet files, a directory for each rank.

        Raises:
            ToolError: The directory holds something, cannot be written to, or there is nothing to pack.
        """
        reports.check_empty(folder)
        try:
            make_output(folder)
        except OSError as error:
            message = f"{folder}: cannot be made: {error.strerror or error}"
            raise ToolError(ReturnCode.WRITE, message) from error
        packed: dict[str, int] = {}
        for view in VIEWS:
            # count reads every cell before a file is written: for an unreadable one tables are rewritten
            ((count, *_),) = self.ask(f"select count(*), count(columns(*)) from {view}").fetch(1)
            if count:
                place = os.path.join(folder, view)  # noqa: PTH118 - the text as it was given
                options = "format parquet, partition_by (rank), write_partition_columns true"
                self.ask(f"copy (from {view}) to {engine.literal(place)} ({options})")
                packed[view] = int(count)
        if not packed:
            raise ToolError(ReturnCode.NO_DUMP_FILE, "nothing to pack: the dumps have no files")
        manifest = {"format": FORMAT, "msdump": metadata.version("msdump"), "rows": packed}
        reports.write(folder, MANIFEST, [json.dumps(manifest, indent=2) + "\n"])
        return Pack(folder, packed, [*self.faults])

    def _of(self, kind: QuestionedKind) -> Iterator[QuestionedSource]:
        return (source for source in self._sources if source.kind is kind)

    def _run(self, statement: Any) -> Answer:
        library = engine.library()
        try:
            return self._answer(statement)
        except (library.BinderException, library.CatalogException, library.ParserException):
            raise  # an error of the question
        except library.Error:
            has_files = self._tables or any(self._of(QuestionedKind.PACK))
            if self._is_plain or self._is_read_only or not has_files:
                raise
        # a table or a pack has an unreadable cell: rewrite tables in memory, leave out files of packs
        self._make_plain()
        self._find_fault = partial(engine.fault_of, self._connection)
        for view, parts in self._made.items():
            if view == "statistics":
                self._make_statistics()
            else:
                self._view(view, parts)
        return self._answer(statement)

    def _make_plain(self) -> None:
        self._tables = [
            each
            for table in self._tables
            for each in engine.plain(table, self._connection, self._memory, self._fault)
        ]
        self._is_plain = True

    def _answer(self, statement: Any) -> Answer:
        # An unreadable row may be the last one: the answer is computed completely before a row is shown.
        is_select = _SELECT.match(statement.query)
        if is_select:
            query = statement.query.strip().rstrip(";")
            self._connection.execute(f"create or replace temp table _answer as ({query}\n)")
            statement = "from _answer"
        result = self._connection.execute(statement)
        columns = _unique((title, str(kind)) for title, kind, *_ in result.description or ())
        if not is_select:
            rows = iter(result.fetchall())  # the few rows of DESCRIBE, SUMMARIZE, EXPLAIN
            return Answer(columns, lambda count: [*islice(rows, count)])
        quoted = ((title.replace('"', '""'), _ZONED.sub(r"\1", kind), kind) for title, kind in columns)
        in_utc = ", ".join(f'cast("{name}" as {new}) as "{name}"' for name, new, old in quoted if new != old)
        if in_utc:
            result = self._connection.execute(f"select * replace ({in_utc}) from _answer")

        def fetch(count: int) -> list[tuple[Any, ...]]:
            with _tool_errors():
                rows: list[tuple[Any, ...]] = result.fetchmany(count)
                return rows

        return Answer(columns, fetch)

    def _prepare(self, question: str) -> None:
        """Make the views that a question mentions."""
        words = {*_WORD.findall(question.lower())} & VIEWS.keys()
        if not words:  # for SHOW TABLES: all views, empty unless a question mentioned them
            text = "; ".join(f"create view if not exists {view} as {_nothing(view)}" for view in VIEWS)
            self._connection.execute(text)
        if "runs" in words:  # times of runs come from statistics, too
            words |= {"statistics"}
        for view in VIEWS:
            if view in words and view not in self._made:
                self._make(view)
        if self._is_checked or self._made.keys().isdisjoint(("statistics", "tensors")):
            return
        self._is_checked = True
        filed = {}
        for each in self._dumps:
            for directory in each.iterations():
                with suppress(DumpReadError):  # reported by the view of tensors
                    if os.path.isfile(f"{directory.path}/{STATISTICS}") and directory.tensor_files:
                        filed[each.label, each.below(directory.path)] = directory
        if not filed:
            return
        # the tensors that lost their file or their row of statistics are logged
        self._prepare("statistics")
        rows: defaultdict[tuple[str, str], set[tuple[Any, ...]]] = defaultdict(set)
        (statement,) = self._connection.extract_statements(_SAVED)
        for label, folder, *tensor in self._run(statement).fetch(sys.maxsize):
            rows[label, folder].add(tuple(tensor))
        for place, directory in filed.items():
            check_whole(directory.tensor_files, rows[place], directory.path)

    def _make(self, view: str) -> None:
        if view == "statistics":
            self._tables = [
                table for each in self._dumps for table in views.statistic_tables(each, self._memory)
            ]
            self._is_plain = False
            if self._is_read_only:
                self._make_plain()
            if self._measures:
                self._insert("_measured", VIEWS[view], chain.from_iterable(map(self._measured, self._dumps)))
            self._make_statistics()
            return
        rows: Iterable[engine.Cells]
        if view == "comparisons":
            results = self._of(QuestionedKind.COMPARISON)
            rows = chain.from_iterable(views.comparison_rows(each.path, each.label) for each in results)
        else:
            rows = chain.from_iterable(map(_ROWS[view], self._dumps))
        self._insert(f"_{view}", VIEWS[view], rows)
        self._view(view, [_UNTIMED if view == "runs" else f"select * from _{view}"])

    def _make_statistics(self) -> None:
        groups: dict[tuple[str, ...], list[Table]] = {}
        for table in self._tables:
            groups.setdefault(table.titles, []).append(table)
        parts = ["select * from _measured"] if self._measures else []
        for number, (titles, group) in enumerate(groups.items()):
            known = _OF_PLACE if "Op Name" in titles else _OF_PLACE | _OF_OPERATOR
            readable = Column("readable", TEXT, "the path that it is read by")
            names = (readable, *(each for each in VIEWS["statistics"] if each.name in known))
            rows = ({**table.place, "readable": table.readable} for table in group)
            self._insert(f"_places_{number}", names, rows)
            parts.append(engine.select(group, f"_places_{number}"))
        self._view("statistics", parts)

    def _insert(self, table: str, columns: Sequence[Column], rows: Iterable[engine.Cells]) -> None:
        """Make a table of rows; one with a number that the database cannot hold is a fault, and left out."""

        def fits(row: engine.Cells) -> bool:
            for name, cell in row.items():
                for each in cell if isinstance(cell, list | tuple) else (cell,):
                    if isinstance(each, int) and abs(each) >> _BITS:
                        place = "/".join(str(row[part]) for part in ("dump", "directory") if part in row)
                        self._fault(f"{place}: {name} {each} is no number of 64 bits; it is left out")
                        return False
            return True

        engine.insert(self._connection, table, columns, filter(fits, rows))

    def _view(self, view: str, parts: list[str]) -> None:
        """Make a view of parts, and of packs; a column that a part lacks is NULL."""
        of_packs = (
            select_pack(source.path, view, self._fault, self._find_fault)
            for source in self._of(QuestionedKind.PACK)
        )
        selects = []
        for part in parts:
            titles = {title for title, *_ in self._connection.execute(f"{part} limit 0").description}
            cells = (f'"{each.name}"' if each.name in titles else _null(each) for each in VIEWS[view])
            selects.append(f"select {', '.join(cells)} from ({part})")
        selects += filter(None, of_packs)
        text = " union all ".join(selects) or _nothing(view)
        kind = "temp table" if self._is_read_only else "view"
        try:
            self._connection.execute(f"create or replace {kind} {view} as {text}")
        except engine.library().Error:
            if self._find_fault is not None:
                raise
            self._find_fault = partial(engine.fault_of, self._connection)
            self._view(view, parts)
        self._made[view] = parts

    def _fault(self, message: str) -> None:
        self.faults[message] = None


@contextmanager
def _tool_errors() -> Iterator[None]:
    """Raise errors of DuckDB, and of cells that Python has no value for, as a ToolError."""
    try:
        yield
    except (engine.library().Error, UnicodeEncodeError, OverflowError) as error:
        raise ToolError(ReturnCode.PARAMETER, f"the question fails: {engine.message(error)}") from error


def _null(column: Column) -> str:
    return f'cast(null as {column.type}) as "{column.name}"'


def _nothing(view: str) -> str:
    return f"select {', '.join(map(_null, VIEWS[view]))} where false"


def _unique(columns: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return columns with a number behind a name that comes again.

    >>> _unique([("a", "BIGINT"), ("a", "VARCHAR")])
    (('a', 'BIGINT'), ('a_1', 'VARCHAR'))
    """
    kinds: dict[str, str] = {}
    for title, kind in columns:
        name, number = title, 0
        while name in kinds:
            number += 1
            name = f"{title}_{number}"
        kinds[name] = kind
    return tuple(kinds.items())
