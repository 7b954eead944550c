"""Converts dump files to arrays, in the device's memory format or another, and .mindir models to ONNX."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from msdump import reading
from msdump.convert.file import FileResult, OutputKind, Source, Target, convert_file
from msdump.encode import dump_message
from msdump.errors import ToolError
from msdump.executors import ExecutorChoice, file_size, map_items
from msdump.return_codes import ReturnCode
from msdump.store import FAILED_LIST
from msdump.store.write import DUMP_MODE, DiskFiles, make_output


@dataclass(slots=True)
class Conversion:
    """The result of converting dump files.

    Attributes:
        output: Directory of the results.
        skipped: Number of files that are no dump files, by suffix.
        results: Result of each dump file, in the order of the files.
    """

    output: str
    skipped: Counter[str] = field(default_factory=Counter)
    results: list[FileResult] = field(default_factory=list)

    @property
    def failed(self) -> list[FileResult]:
        """Results of the files with at least one tensor that was not converted."""
        return [result for result in self.results if result.failures]

    @property
    def code(self) -> int:
        """Return code of msaccucmp: that of the first file with a failure."""
        return next((result.code for result in self.failed), ReturnCode.DONE)

    @property
    def files(self) -> int:
        """Number of files that were written."""
        return sum(result.files for result in self.results)

    @property
    def size(self) -> int:
        """Number of bytes that were written."""
        return sum(result.size for result in self.results)

    @property
    def kept(self) -> int:
        """Number of tensors that were written in their own format, because they need no conversion (ND)."""
        return sum(result.kept for result in self.results)


def convert_files(
    dump_files: SourceFiles,
    output: str,
    target: Target,
    *,
    executor: ExecutorChoice = ExecutorChoice(),  # noqa: B008 - frozen
    progress: Callable[[int], object] = lambda _: None,
) -> Conversion:
    """Convert dump files into a directory, which is created. A tensor that fails is listed in the results.

    ``progress`` is called with the bytes of each file that was converted.

    Raises:
        ToolError: There are no files, or options that exclude each other; nothing is written then.
    """
    _check_target(target, len(dump_files.sources))
    if not dump_files.sources:
        count = dump_files.skipped.total()
        skipped = f"; {count} other files were skipped" if count else ""
        raise ToolError(ReturnCode.PARAMETER, f"no dump file to convert{skipped}")
    # The list of failures of an earlier conversion would be taken for the list of this conversion.
    _make_directory(output, without=FAILED_LIST)
    if target.format:  # before threads import it all at once; needed with -f only
        importlib.import_module("msdump.convert.format")
    conversion = Conversion(output, dump_files.skipped)
    try:
        results = map_items(
            partial(convert_file, target),
            dump_files.sources,
            size=lambda source: file_size(source.path),
            executor=executor,
            name=lambda source: source.path,
            paths=(output, *filter(None, (target.scripts,))),
            progress=progress,
            # scripts of the user's own and torch.save would hold the interpreter
            in_threads=not target.scripts and target.kind is not OutputKind.PT,
        )
        for result in results:
            conversion.results.append(result)
            _write_mappings(result)
    finally:  # the list is written for the files that were done before an error or Ctrl-C, too
        lines = [
            ",".join((result.path, *(failure.tensor for failure in result.failures if failure.tensor)))
            for result in conversion.failed
        ]
        if lines:
            # Names of files are bytes, which need not be UTF-8.
            text = "\n".join((*lines, "")).encode(errors="surrogateescape")
            with _writing() as files:
                files.stream(conversion.output, FAILED_LIST, (text,), DUMP_MODE)
    return conversion


def convert_models(paths: Sequence[str], output: str) -> Conversion:
    """Convert .mindir files to ``{name}.onnx`` in a directory, which is created.

    The operators are the CPU's. A model above 2 GiB has its weights in a file beside it.

    Raises:
        ToolError: Two models have one name, or there is no such directory.
        GraphError: A file is no .mindir, or cannot run here.
        DumpWriteError: A file cannot be written.
    """
    from msdump.graph import loader  # not above: dump files need neither ONNX nor models
    from msdump.training import write_step

    names = [f"{Path(path).stem}.onnx" for path in paths]
    if len(set(names)) < len(names):
        raise ToolError(ReturnCode.PARAMETER, f"two models of one name ({', '.join(sorted(names))})")
    conversion = Conversion(output)
    for path, name in zip(paths, names, strict=True):
        model = loader.standard(path)
        _make_directory(output)
        written = write_step(model, os.path.join(output, name))  # noqa: PTH118 - a text
        conversion.results.append(FileResult(path, len(written), sum(map(file_size, written))))
    return conversion


def _make_directory(output: str, without: str = "") -> None:
    """Make a directory of results, and remove a file of an earlier conversion."""
    try:
        make_output(output)
        if without:
            Path(output, without).unlink(missing_ok=True)
    except OSError as error:
        fault = f"{output}: no directory to write to: {error.strerror or error}"
        raise ToolError(ReturnCode.PATH, fault) from error


def _check_target(target: Target, count: int) -> None:
    """Check options against each other and against the number of dump files."""
    if target.format and target.format not in dump_message.FORMATS:
        import difflib  # imported here: wrong names are rare

        close = difflib.get_close_matches(target.format, dump_message.FORMATS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(dump_message.FORMATS)}"
        raise ToolError(ReturnCode.PARAMETER, (f"unknown format {target.format!r}{hint}"))
    for option, is_given in (("-s", target.shape), ("-o and -i", target.only), ("-c", target.scripts)):
        if is_given and not target.format:
            raise ToolError(ReturnCode.PARAMETER, f"{option} takes effect only with -f")
        if is_given and option != "-c" and count > 1:
            raise ToolError(ReturnCode.PARAMETER, f"{option} is for one dump file, {count} are given")
    if target.shape and (len(target.shape) < 2 or min(target.shape) < 1):  # noqa: PLR2004 - see the message
        fault = f"-s {target.shape} must have two or more dimensions, each greater than 0"
        raise ToolError(ReturnCode.SHAPE, fault)
    if target.scripts:
        from msdump.convert.format import check_scripts  # not above: loads numpy

        check_scripts(target.scripts)
    # Found, not imported: torch takes seconds to import, and only the processes that convert need it.
    if target.kind is OutputKind.PT and importlib.util.find_spec("torch") is None:
        fault = "-t pt needs PyTorch, which is not installed; install torch or use -t npy"
        raise ToolError(ReturnCode.UNSUPPORTED, fault)


def _write_mappings(result: FileResult) -> None:
    """Add a line to ``mapping.csv`` for each name that was too long, unless a former conversion added it."""
    if not result.renamed:
        return
    from msdump.store import MAPPING  # imported here: long names are rare
    from msdump.store.write import parse_mapping

    # In this process, not in the workers: several processes must not append to one file at once.
    with _writing() as files:
        for directory, stand_in, name in result.renamed:
            if stand_in not in parse_mapping(files.read(directory, MAPPING)):
                files.append(directory, MAPPING, f"{stand_in},{name}\n".encode(errors="surrogateescape"), b"")


@contextlib.contextmanager
def _writing() -> Iterator[DiskFiles]:
    files = DiskFiles(DUMP_MODE)
    try:
        yield files
    except OSError as error:
        reason = f"{error.strerror or error}: {error.filename or 'a list of the converted files'}"
        raise ToolError(ReturnCode.WRITE, f"cannot write: {reason}") from error
    finally:
        files.close()


_FOREIGN: Final = frozenset(
    {
        *(".csv", ".json", ".npy", ".npz", ".bin", ".pt", ".txt", ".log", ".tmp", ".md"),
        *(".ir", ".pb", ".pbtxt", ".dot", ".onnx", ".o", ".py", ".sh"),
    }
)
"""Suffixes of other files that lie beside dump files; names of dump files end in a number."""


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The dump files to convert."""

    sources: tuple[Source, ...]  # the files and the directories of their results
    skipped: Counter[str]  # number of other files in the directories, by suffix


def find_sources(dumps: Sequence[str], output: str) -> SourceFiles:
    """Return the dump files in directories, sorted by path in each, and all files that are named themselves.

    Results of a directory's files keep their place below ``output``.

    Raises:
        ToolError: A path does not exist, or two files would have results with the same names.
    """
    skipped: Counter[str] = Counter()
    sources: list[Source] = []
    for path in map(Path, dumps):
        if os.path.isdir(path):
            sources += _in_directory(path.absolute(), Path(output), skipped)
        elif os.path.exists(path):
            sources.append(Source(str(path.absolute()), output))
        else:
            raise ToolError(ReturnCode.PATH, f"{path}: no such file or directory")
    source_of: dict[tuple[str, str], str] = {}
    for source in sources:
        first_path = source_of.setdefault((source.directory, Path(source.path).name), source.path)
        if first_path != source.path:
            fault = f"{source.path} and {first_path} would have results with the same names"
            raise ToolError(ReturnCode.PARAMETER, f"{fault}; convert them one by one")
    return SourceFiles(tuple(sources), skipped)


def _in_directory(root: Path, output: Path, skipped: Counter[str]) -> Iterator[Source]:
    def refuse(error: OSError) -> None:
        raise ToolError(ReturnCode.PATH, f"{error.filename}: {error.strerror}") from error

    for directory, folders, names in reading.walk(str(root), refuse):
        folders[:] = (name for name in folders if name[0] != ".")
        destination = output / Path(directory).relative_to(root)
        for name in names:
            suffix = Path(name).suffix
            if name.startswith(".") or suffix in _FOREIGN:
                skipped[suffix] += 1
            else:
                yield Source(f"{directory}/{name}", str(destination))
