"""Draw terminals with the output of real commands as SVG pictures: scripts/pictures.py FOLDER."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from msdump.record import IO
from msdump.store import names

ROOT: Final = Path(__file__).resolve().parents[1]
READ: Final = ("graphs", "sample_nets")
WIDTH: Final = 66  # of a door's picture, in columns
HEIGHT: Final = 14  # in lines
# Fonts of the reader's machine: a picture loads nothing from the network.
FORMAT: Final = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code, monospace", "Fira Code, ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace"
)
MODEL: Final = """
cp graphs/mini.onnx model.onnx
export DEVICE_TARGET=Ascend
"""
MINI: Final = f"""{MODEL}
cp sample_nets/mini/data_dump.json .
export MS_DIAGNOSTIC_DATA_PATH=$PWD/dump
"""
FAULTY: Final = """
export MINDSPORE_DUMP_CONFIG=$PWD/graphs/torch_export/data_dump.json
python graphs/torch_export/break_it.py faulty.onnx
MS_DIAGNOSTIC_DATA_PATH=$PWD/golden msdump run graphs/torch_export.onnx > /dev/null
MS_DIAGNOSTIC_DATA_PATH=$PWD/mine msdump run faulty.onnx > /dev/null
unset MINDSPORE_DUMP_CONFIG
"""
OVERFLOW: Final = """
python sample_nets/build.py overflow --out . > /dev/null
mv overflow_b1_s0.onnx half.onnx
"""
STYLES: Final = {
    r"^\$ .*": "bold bright_white",
    r"^# .*": "italic bright_black",
    r"^\$": "bold green",
    r"^(written|ran|dumped|into|loss|verdict|fault|others)\b": "cyan",
    r"Default/[\w/.-]+|norm/\w+": "yellow",
    r"\b\w+\.py:\d+: .*": "green",
    r"[▁-█]+": "green",
}
# The fields of a tensor file's name.
FIELDS: Final = (
    ("op_type", "operator type", "bright_cyan"),
    ("op_name", "full name of the operator", "yellow"),
    ("task_id", "task", "bright_blue"),
    ("stream_id", "stream", "bright_black"),
    ("timestamp", "time in microseconds", "magenta"),
    ("io", "input or output", "green"),
    ("slot", "number of the input or output", "bright_blue"),
    ("format", "memory format", "bright_magenta"),
    ("dtype", "element type", "bright_red"),
)


@dataclass(frozen=True)
class Scene:
    """The commands of one picture.

    Attributes:
        title: The title of the window.
        width: Columns of the terminal.
        prepare: A script that runs first, unseen.
        shown: The lines of the picture's script: comments and commands.
        crop: Whether long lines are cut at the width; else they are wrapped.
    """

    title: str
    width: int
    prepare: str
    shown: tuple[str, ...]
    crop: bool = False

    def lines(self, programs: str | Path = "") -> list[str]:
        """Run the scene in a new folder and return the lines that its terminal shows.

        ``programs`` is a folder of programs to prefer to the environment's.

        Raises:
            CalledProcessError: A command fails.
        """
        with tempfile.TemporaryDirectory() as folder:
            for name in READ:
                (Path(folder) / name).symlink_to(ROOT / name)
            script = [self.prepare]
            for line in self.shown:
                shown = f"$ {line}" if line and not line.startswith("#") else line
                script += [f"printf '%s\\n' {shlex.quote(shown)}", line]
            path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}".removeprefix(":")
            done = subprocess.run(
                ["bash", "-euc", "\n".join(script)],
                cwd=folder,
                env={"PATH": path, "HOME": folder, "PYTHONPATH": str(ROOT), "COLUMNS": str(self.width)},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            return done.stdout.replace(folder, "~").splitlines()

    def terminal(self, programs: str | Path = "") -> list[Text]:
        """Return the lines in colours, none wider than the terminal."""
        fitted = (
            line
            for each in self.lines(programs)
            for line in ([_cut(each, self.width)] if self.crop else _wrapped(each, self.width))
        )
        return [styled(line) for line in fitted]


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _wrapped(line: str, width: int) -> list[str]:
    label = re.match(r"(\w+ {2,}| *)", line)
    indent = " " * len(label[0]) if label else ""
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False) or [""]


SCENES: Final = {
    "readme": Scene(
        "msdump",
        100,
        MODEL + OVERFLOW + FAULTY,
        (
            "# Dump every operator into MindSpore's files",
            "msdump init --yes | head -1",
            "msdump run model.onnx --config data_dump.json --device-target Ascend",
            "",
            "# Name the operator that is wrong",
            "msdump compare mine golden | head -3",
            "",
            "# Choose the operators that stay in float32",
            "msdump diff half.onnx --mine Ascend:force_fp16 --advise 0.01 | head -7",
        ),
    ),
    "dump": Scene(
        "Dump",
        WIDTH,
        MODEL,
        (
            "msdump init --yes | head -1",
            "msdump run model.onnx --config data_dump.json",
            "msdump show dump | head -7",
        ),
        crop=True,
    ),
    "find": Scene("Find the fault", WIDTH, FAULTY, ("msdump compare mine golden | head -4",)),
    "train": Scene(
        "Train and ranks",
        WIDTH,
        f"{MINI}export MINDSPORE_DUMP_CONFIG=$PWD/data_dump.json\n",
        (
            "msdump train-graph model.onnx -o step.onnx",
            "msdump run step.onnx --train --steps 4 | grep loss",
            'msdump trend dump "Gradients/*conv1*" --stat l2norm',
        ),
    ),
}


def file_name() -> list[Text]:
    """Return the name of a file that a dump holds, and the meaning of each field in the field's colour."""
    scene = Scene(
        "", 200, MINI, ("msdump run model.onnx --config data_dump.json", "ls dump/*/rank_0/Mini/0/0")
    )
    name = next(line for line in scene.lines() if line.startswith("Conv2D") and ".output." in line)
    fields = names.parse(name)
    whole, meanings = Text(), []
    for attribute, meaning, style in FIELDS:
        value = getattr(fields, attribute)
        text = value.value if isinstance(value, IO) else str(value)
        whole.append(text, style).append(".")
        meanings.append(Text.assemble((f"{text:36}", style), meaning))
    whole.append("npy")
    return [*whole.wrap(Console(), WIDTH), Text(), *meanings]


def draw(lines: list[Text], title: str, width: int, name: str) -> str:
    """Return an SVG of a terminal that shows lines, wrapped at its width.

    Args:
        lines: The lines.
        title: The title of the window.
        width: Columns of the terminal.
        name: The identifier of the picture's styles.
    """
    console = Console(
        record=True, file=io.StringIO(), width=width, color_system="truecolor", legacy_windows=False
    )
    for line in lines:
        console.print(line, highlight=False)
    return console.export_svg(title=title, code_format=FORMAT, unique_id=name)


def styled(line: str) -> Text:
    """Return a line of a terminal in colours."""
    text = Text(line)
    for pattern, style in STYLES.items():
        text.highlight_regex(pattern, style)
    return text


def main(folder: Path) -> None:
    """Write all pictures into a folder; the pictures of the doors have one height."""
    pictures = {name: (scene.title, scene.width, scene.terminal()) for name, scene in SCENES.items()}
    pictures["reference"] = ("Reference", WIDTH, file_name())
    for name, (title, width, lines) in pictures.items():
        rows = [*lines, *[Text()] * (HEIGHT - len(lines))] if width == WIDTH else lines
        path = folder / f"{name}.svg"
        path.write_text(draw(rows, title, width, name), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
