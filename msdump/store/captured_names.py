"""The names of the tensors that torch.compile captures, in graph files and of dumped files.

    {node}-{target}.{INPUT, OUTPUT}.{place}                 mm-aten.mm.default.OUTPUT.0
    {node}-{target}.{INPUT, OUTPUT}.{place}.{time}.npy

``layouts`` tells where the files stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msdump.record import IO
from msdump.store.templates import PART, Field, Template

_NAME: Final = Template(
    "{node}-{target}.{io}.{place}[.{time}.npy]",
    {
        "node": Field("[^-/]+"),
        "target": PART,
        "io": Field("INPUT|OUTPUT", lambda text: IO(text.lower()), lambda io: io.upper()),
        "place": Field(
            r"[0-9]+(?:\.[0-9]+)*",
            lambda text: tuple(map(int, text.split("."))),
            lambda place: ".".join(map(str, place)),
        ),
        "time": Field("[0-9]{20}"),
    },
)


@dataclass(frozen=True, slots=True)
class CapturedTensorName:
    """The fields of the name of a tensor that a captured node reads or makes; ``str`` gives the name.

    >>> str(CapturedTensorName("mm", "aten.mm.default", IO.OUTPUT, (0,)))
    'mm-aten.mm.default.OUTPUT.0'
    >>> str(CapturedTensorName("cat", "aten.cat.default", IO.INPUT, (0, 2), "20240112093000000042"))
    'cat-aten.cat.default.INPUT.0.2.20240112093000000042.npy'

    Attributes:
        node: Name of the captured node.
        target: What the node calls.
        io: Input or output.
        place: Index of the tensor; for a tensor in a list, the index of the list and that in it.
        time: When its file was written, ``YYYYMMDDHHMMSS`` and microseconds; None in graph files.
    """

    node: str
    target: str
    io: IO
    place: tuple[int, ...]
    time: str | None = None

    def __str__(self) -> str:
        """Return the name."""
        return _NAME.format(self)


def parse(name: str) -> CapturedTensorName | None:
    """Return the fields of a captured tensor's name, with or without a file's time; None for others.

    >>> parse("mm-aten.mm.default.OUTPUT.0").target
    'aten.mm.default'
    """
    fields = _NAME.parse(name)
    return None if fields is None else CapturedTensorName(**fields)
