"""``msdump convert``: converts dump files to arrays that numpy loads, in the device's format or another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import click

from msdump.cli import messages, options
from msdump.cli import output as documents
from msdump.cli.output import Document, Shape
from msdump.cli.program import FAILED, leave
from msdump.convert import (
    Conversion,
    ConvertFailure,
    FileResult,
    OutputKind,
    Target,
    convert_files,
    find_sources,
)
from msdump.errors import plural
from msdump.executors import ExecutorChoice
from msdump.store import FAILED_LIST

DOCUMENT: Final = Document(
    Shape(Conversion, "output files bytes=size skipped results", name="ConvertDocument"),
    Shape(FileResult, "path files bytes=size kept failures"),
    Shape(ConvertFailure, "tensor? message code"),
)

_MOST_ERRORS: Final = 10
_SHAPE: Final = re.compile(r"\d+(,\d+)*")


def _parse_shape(_ctx: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    if not _SHAPE.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not a shape such as 1,3,224,224")
    return tuple(map(int, text.split(",")))


def _split(_ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for text in texts for path in text.split(",") if path)


@click.command(name="convert")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[FILE|DIR]...")
@click.option(
    # vendor: -d, --dump_file and commas. Positional paths exist because a shell expands patterns to them.
    *("-d", "--dump-file", "--dump_file", "dumps"),
    multiple=True,
    metavar="PATH[,PATH]...",
    callback=_split,
    help="More of them, several with commas.",
)
@click.option(
    "-out", "--output", default=".", show_default=True, type=click.Path(), help="Directory of the results."
)
@click.option(
    "-f", "--format", "form", metavar="FORMAT", help="Convert tensors to this format, such as NCHW."
)
@click.option(
    *("-s", "--shape"),
    metavar="N,N,...",
    callback=_parse_shape,
    help="Shape in that format, for a single file (default: the original shape).",
)
@click.option(
    "-o", "--output-index", type=click.IntRange(min=0), help="Convert this output of a single file only."
)
@click.option(
    "-i", "--input-index", type=click.IntRange(min=0), help="Convert this input of a single file only."
)
@click.option(
    *("-c", "--custom", "scripts"),
    default="",
    type=click.Path(),
    metavar="DIR",
    help="Conversions of your own: DIR/format_convert/convert_SOURCE_to_TARGET.py.",
)
@click.option(
    "-v", "--version", type=click.IntRange(1, 2), default=2, show_default=True, help="Version of the files."
)
@click.option(
    *("-t", "--type", "kind"),
    type=click.Choice([str(kind) for kind in OutputKind]),
    default="npy",
    show_default=True,
    help="What tensors are written as.",
)
@options.executor
@documents.option
@messages.verbose_in_full  # vendor: -v is the version of the files
def command(
    *,
    paths: tuple[str, ...],
    dumps: tuple[str, ...],
    output: str,
    form: str | None,
    shape: tuple[int, ...],
    output_index: int | None,
    input_index: int | None,
    scripts: str,
    version: int,
    kind: str,
    executor: ExecutorChoice,
) -> None:
    """Convert dump files, also all files in directories and below, to arrays.

    Without -f tensors keep the device's layout. A tensor of format ND has the host's
    layout already and stays as it is. Files with the suffixes of other kinds, such as
    .csv, are skipped. Exit codes: 0 done, 1 something was not converted, 2 something
    given is wrong and nothing was converted, 130 interrupted.
    """
    if output_index is not None and input_index is not None:
        raise click.UsageError("-o excludes -i")
    if not (paths or dumps):
        raise click.UsageError("give the dump files, or a directory of them")
    indices = {"output": output_index, "input": input_index}
    only = next(((section, index) for section, index in indices.items() if index is not None), None)
    target = Target(form or "", OutputKind(kind), shape, only, scripts, version)
    dump_files = find_sources((*paths, *dumps), output)
    with messages.bar("files", len(dump_files.sources)) as bar:
        result = convert_files(dump_files, output, target, executor=executor, progress=bar)
    for line in _errors(result):
        messages.say(f"error: {line}")
    documents.show(DOCUMENT, result, _lines(result, target))
    if result.failed:
        leave(FAILED)


def _lines(conversion: Conversion, target: Target) -> Iterator[str]:
    converted = plural(sum(bool(result.files) for result in conversion.results), "dump file")
    yield f"converted {converted} to {plural(conversion.files, 'file')}, {conversion.size:,} bytes"
    yield f"into      {conversion.output}"
    if conversion.kept:
        kept = plural(conversion.kept, "tensor")
        yield f"kept      {kept} of ND, which is the host's layout, not {target.format}"
    if conversion.skipped:
        kinds = sorted(conversion.skipped.items())
        counts = ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in kinds)
        yield f"skipped   {plural(conversion.skipped.total(), 'file')} of other kinds ({counts})"
    if conversion.failed:
        failures = sum(len(result.failures) for result in conversion.failed)
        yield f"failed    {plural(len(conversion.failed), 'dump file')}, {plural(failures, 'error')};"
        yield f"          see {conversion.output}/{FAILED_LIST}"


def _errors(conversion: Conversion) -> Iterator[str]:
    lines = [
        f"{result.path}: {failure.tensor}: {failure.message}" if failure.tensor else failure.message
        for result in conversion.failed
        for failure in result.failures
    ]
    most = len(lines) if messages.verbosity() else _MOST_ERRORS
    yield from lines[:most]
    if len(lines) > most:
        yield f"and {len(lines) - most:,} more (--verbose shows all)"
