"""The two directories of a comparison, and the items to compare in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msdump.errors import ToolError
from msdump.tools.compare.pairing import dump_folder, dump_folders, fusion_rules, pairs
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind
from msdump.tools.compare.pairing.fusion_rules import FusionRules, RuleOperator
from msdump.tools.compare.pairing.pairs import Pair, Ruled
from msdump.tools.return_codes import ReturnCode

Item = tuple[int, str] | tuple[RuleOperator, ...]
"""Number and name of an operator, or the operators with the same originals."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The two directories of a comparison and the graph files that say which operators belong together.

    Attributes:
        dumped: The directory that is examined.
        golden: The directory that it is compared with.
        rules: Graph file of the examined network (``-f``), None where the operators have the same names.
        unfused: Graph file of the golden network where it was compiled without fusion (``-cf``).
    """

    dumped: Folder
    golden: Folder
    rules: FusionRules | None = None
    unfused: FusionRules | None = None

    def bytes(self) -> int:
        """Return the size of all files in bytes, of which each item is taken to read its share."""
        return sum(
            Path(file.path).stat().st_size for side in (self.dumped, self.golden) for file in side.files
        )

    def groups(self, chosen: frozenset[int] | None = None) -> list[Item]:
        """Return the items that are compared one after the other: operators, or groups of a graph file.

        Args:
            chosen: Numbers of the groups that are wanted, None: all.
        """
        if self.rules is None:
            # In the order of the examined execution; operators that only golden has come last.
            return list(enumerate(dict.fromkeys((*self.dumped.operators, *self.golden.operators))))
        groups = self.rules.groups.items()
        return [operators for index, operators in groups if chosen is None or index in chosen]

    def called(self, item: Item) -> str:
        """Return what an item is called in messages."""
        operators = [
            each if isinstance(each, str) else each.name for each in item if not isinstance(each, int)
        ]
        return f"{self.dumped.path}: {', '.join(operators)}"

    def pairs(self, item: Item) -> list[Pair]:
        """Return the pairs of an item of ``groups``."""
        if self.rules is None:
            return pairs.of_name(self.dumped, self.golden, item)  # type: ignore[arg-type]  # groups made it
        return Ruled(self.dumped, self.golden, self.rules, self.unfused).pairs(item)  # type: ignore[arg-type]


def open_sides(dumped: str, golden: str, rules: str = "", unfused: str = "", *, version: int = 2) -> Sides:
    """Read two directories and the graph files of a comparison.

    Args:
        dumped: Directory that is examined; also one above it, if there is only one below.
        golden: Directory that it is compared with; the same holds.
        rules: Graph file of the examined network, "" for none.
        unfused: Graph file of the golden network where it was compiled without fusion, "" for none.
        version: Version of the dump files: 2, or 1 for plain messages.

    Raises:
        ToolError: A directory or a file cannot be used, or these files cannot be compared so.
        DumpReadError: A directory cannot be listed.
    """
    dumped_folder, golden_folder = (
        dump_folder.read(dump_folders.lowest(path), version) for path in (dumped, golden)
    )
    _check(dumped_folder, golden_folder, has_rules=bool(rules), has_unfused=bool(unfused))
    return Sides(
        dumped_folder,
        golden_folder,
        fusion_rules.read(rules) if rules else None,
        fusion_rules.read(unfused) if unfused else None,
    )


def _check(dumped: Folder, golden: Folder, *, has_rules: bool, has_unfused: bool) -> None:
    """Refuse directories and graph files that do not belong together.

    Raises:
        ToolError: Names the option that is missing or too much.
    """
    is_golden = golden.kind is FolderKind.GOLDEN
    faults = (
        (
            has_unfused and not has_rules,
            ReturnCode.PARAMETER,
            "-cf is the graph without fusion; -f, the one with it, is missing",
        ),
        (
            has_rules and dumped.kind is FolderKind.GOLDEN,
            ReturnCode.DUMP_KIND,
            f"{dumped.path} holds {dumped.kind}, which no graph file (-f) describes",
        ),
        (
            is_golden and dumped.kind is not FolderKind.GOLDEN and not has_rules,
            ReturnCode.PARAMETER,
            f"{golden.path} holds {golden.kind}: -f, the model's graph file, must tell whose they are",
        ),
        (
            is_golden and has_unfused,
            ReturnCode.PARAMETER,
            f"{golden.path} holds {golden.kind}, which -cf does not describe",
        ),
        (
            has_rules and not has_unfused and golden.kind is FolderKind.DUMPS,
            ReturnCode.PARAMETER,
            f"{golden.path} holds {golden.kind}: beside -f, -cf must give the graph that they were made by",
        ),
    )
    for is_fault, code, message in faults:
        if is_fault:
            raise ToolError(code, message)
