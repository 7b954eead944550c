"""``msdump convert``: dump files to arrays in the device's memory format or another, a .mindir to ONNX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import click

from msdump import convert
from msdump.cli import messages, options, sections
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

_ONNX: Final = "onnx"
_MOST_ERRORS: Final = 10
_SHAPE: Final = re.compile(r"\d+(,\d+)*")


def _parse_shape(_ctx: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    if not _SHAPE.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not a shape such as 1,3,224,224")
    return tuple(map(int, text.split(",")))


_conversion: Final = sections.Section("Conversion")


@click.command(name="convert", cls=sections.Command)
@click.argument(
    "paths",
    nargs=-1,
    type=click.Path(),
    metavar="[FILE|DIR]...",
    help="Dump files, or directories of them; .mindir files for -t onnx.",
)
@sections.selection(
    # vendor: -d, --dump_file and commas. Positional paths exist because a shell expands patterns to them.
    "-d",
    "--dump-file",
    "--dump_file",
    "dumps",
    multiple=True,
    metavar="PATH[,PATH]...",
    callback=lambda _ctx, _option, texts: tuple(path for text in texts for path in text.split(",") if path),
    help="More dump files or directories. (repeatable)",
)
@sections.selection(
    "-o", "--output-index", type=click.IntRange(min=0), help="Convert only this output of a single file."
)
@sections.selection(
    "-i", "--input-index", type=click.IntRange(min=0), help="Convert only this input of a single file."
)
@sections.selection("-v", "--version", type=click.IntRange(1, 2), default=2, help="Version of the files.")
@_conversion("-f", "--format", "form", metavar="FORMAT", help="Memory format of the results, such as NCHW.")
@_conversion(
    "-s",
    "--shape",
    metavar="N,N,...",
    callback=_parse_shape,
    show_default="the original shape",
    help="Shape in that format, for a single file.",
)
@_conversion(
    "-c",
    "--custom",
    "scripts",
    default="",
    type=click.Path(),
    metavar="DIR",
    help="Directory of user-defined conversions: DIR/format_convert/convert_SOURCE_to_TARGET.py.",
)
@sections.output("-out", "--output", default=".", type=click.Path(), help="Directory of the results.")
@sections.output(
    "-t",
    "--type",
    "kind",
    type=click.Choice([*map(str, OutputKind), _ONNX]),
    default="npy",
    help="File type of the results.",
)
@documents.option
@options.executor
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
    """Convert dump files to arrays or to another format.

    Directories are searched with all directories below. Without -f the tensors keep the memory
    format of the device. Tensors of format ND have the format of the host and stay as they are.
    Other files, such as .csv files, are skipped.

    With -t onnx the files are .mindir models of MindSpore, and become ONNX models.

    Examples:
        msdump convert dump_data -out arrays
        msdump convert dump_data -out arrays -f NCHW
        msdump convert net.mindir -out models -t onnx

    Exit codes:
        0  All tensors are converted.
        1  A tensor was not converted.
        2  A path or an option is wrong. Nothing was converted.
    """
    if output_index is not None and input_index is not None:
        raise click.UsageError("-o excludes -i")
    if not (paths or dumps):
        raise click.UsageError("give the dump files, or a directory of them")
    if kind == _ONNX:
        if form or shape or scripts or output_index is not None or input_index is not None:
            raise click.UsageError("-f, -s, -c, -o and -i are for dump files, -t onnx is for .mindir files")
        models = convert.convert_models((*paths, *dumps), output)  # loads ONNX where a model is given
        text = f"converted {plural(len(models.results), 'model')} to {plural(models.files, 'file')}"
        documents.show(DOCUMENT, models, (f"{text}, {models.size:,} bytes", f"into      {output}"))
        return
    indices = {"output": output_index, "input": input_index}
    only = next(((section, index) for section, index in indices.items() if index is not None), None)
    target = Target(form or "", OutputKind(kind), shape, only, scripts, version)
    dump_files = find_sources((*paths, *dumps), output)
    with messages.bar("files", len(dump_files.sources)) as bar:
        result = convert_files(dump_files, output, target, executor=executor, progress=bar)
    errors = [
        f"{each.path}: {failure.tensor}: {failure.message}" if failure.tensor else failure.message
        for each in result.failed
        for failure in each.failures
    ]
    most = len(errors) if messages.verbosity() else _MOST_ERRORS
    errors[most:] = [f"and {len(errors) - most:,} more (--verbose shows all)"] * (len(errors) > most)
    for error in errors:
        messages.say(f"error: {error}")
    documents.show(DOCUMENT, result, _lines(result, target))
    if result.failed:
        leave(FAILED)


def _lines(conversion: Conversion, target: Target) -> Iterator[str]:
    converted = plural(sum(bool(result.files) for result in conversion.results), "dump file")
    yield f"converted {converted} to {plural(conversion.files, 'file')}, {conversion.size:,} bytes"
    yield f"into      {conversion.output}"
    if conversion.kept:
        kept = plural(conversion.kept, "tensor")
        yield f"kept      {kept} of ND, the host's layout, instead of {target.format}"
    if conversion.skipped:
        kinds = sorted(conversion.skipped.items())
        counts = ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in kinds)
        yield f"skipped   {plural(conversion.skipped.total(), 'file')} of other kinds ({counts})"
    if conversion.failed:
        failures = sum(len(result.failures) for result in conversion.failed)
        yield f"failed    {plural(len(conversion.failed), 'dump file')}, {plural(failures, 'error')};"
        yield f"          see {conversion.output}/{FAILED_LIST}"
