"""The shape of the code: who imports whom, who prints, how large each room may be."""

import ast
import functools
import importlib
import operator
import sys
from pathlib import Path

import pytest

from scripts import budget
from tests.world import ROOT, completed

PACKAGE = ROOT / "msdump"
MODULES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}

VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc", "base"}
READERS = {
    *("open", "io.open", "os.open", "os.fdopen", "os.popen", "FileIO", "io.FileIO", "fileinput.input"),
    *("np.load", "np.fromfile", "np.memmap", "np.genfromtxt", "np.loadtxt", "onnx.load", "torch.load"),
    *("zipfile.ZipFile", "importlib.util.spec_from_file_location", "runpy.run_path"),
}
READING_METHODS = {"open", "read_text", "read_bytes"}
WRITES_AND_OPENS_DIRECTORIES = {f"store/write/{name}.py" for name in ("directories", "place", "rows")}
READS_WHAT_IS_OPEN = {
    "judge/inputs.py",  # np.load, of a file that the door opened
    "read/msprobe.py",  # torch.load, of bytes that the door read
    "cli/streams.py",  # /dev/null, to write to
}
MAINS = {
    "cli/documents.py",
    "config/reference.py",
    "look/query/columns.py",
}  # they also write a page when run


@functools.cache
def trees():
    """Return the syntax tree of every module by its name."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


@functools.cache
def nodes():
    """Return every node of every module, in it or deeper, by the module's name."""
    return {name: tuple(ast.walk(tree)) for name, tree in trees().items()}


@pytest.fixture(scope="module", autouse=True)
def _trees():
    """Let the trees go at the end: a million objects, through which others' garbage collector would walk."""
    yield
    trees.cache_clear()
    nodes.cache_clear()


def users(found):
    """Return the modules in which something is found in a node of the tree."""
    return {name for name, inside in nodes().items() if any(map(found, inside))}


def dotted(node):
    """Return the name of a variable, or the dotted name of an attribute; "" for other expressions."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def calls(*names):
    """Return a test of nodes for a call of a function by its plain or dotted name."""
    return lambda node: isinstance(node, ast.Call) and dotted(node.func) in names


def test_imports_go_one_way():
    """import-linter keeps every contract of pyproject.toml."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"

    done = completed(sys.executable, "-c", code, cwd=ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken." in done.stdout


def test_rooms_keep_their_budgets():
    """No room has more lines, tokens or vague words than tests/budgets.csv allows, which may only fall."""
    found, allowed = budget.measured(), budget.budgets()

    # a commit that must raise a row says why in its body; a new room takes its lines from another one
    assert {} == {
        room: (size, allowed.get(room))
        for room, size in found.items()
        if room not in allowed or any(map(operator.gt, size, allowed[room]))
    }
    # a house that shrinks by a hundred lines lowers its budgets, too: make budget
    assert [] == [
        room for room in allowed if room not in found or found[room].lines + 100 < allowed[room].lines
    ]


def test_names_say_what_is_inside():
    """No module or room is named after nothing in particular."""
    parts = {part for name in MODULES for part in Path(name).with_suffix("").parts}

    assert parts & VAGUE == set()


@pytest.mark.parametrize(
    ("what", "found", "rooms"),
    [
        ("prints", calls("print", "click.echo", "sys.stdout.write", "sys.stderr.write"), ("cli/",)),
        ("exits", calls("sys.exit", "exit", "quit", "os._exit"), ("cli/", *MAINS)),
        (
            "reads the environment",
            lambda node: isinstance(node, ast.Attribute) and dotted(node) in {"os.environ", "os.getenv"},
            ("env.py",),
        ),
        (
            "parses JSON",
            calls("json.load", "json.loads"),
            # configurations, files of dumps, names in .ir files; then texts that msdump itself wrote
            (
                "config/source.py",
                "read/files.py",
                "read/ir.py",
                "communication/mpi.py",
                "cli/run.py",
                "capture/watch.py",
                "graph/names.py",
            ),
        ),
    ],
    ids=["prints", "exits", "reads the environment", "parses JSON"],
)
def test_only_one_room_does_it(what, found, rooms):
    """Only the command line prints and exits, only env.py reads the environment, two loaders parse JSON."""
    names = users(found)

    assert names, f"nobody {what}: the test looks for the wrong thing"
    assert [name for name in names if not name.startswith(rooms)] == []


def test_forked_children_find_locks_free():
    """Only threads.py makes locks, which a fork renews; a queue of files is made anew as a whole."""
    made = {"threading.Lock", "threading.RLock"}

    def makes_a_lock(node):
        """Return whether a node makes a lock, or names its maker."""
        values = (
            [node.func, *node.args, *(each.value for each in node.keywords)]
            if isinstance(node, ast.Call)
            else []
        )
        return any(dotted(value) in made for value in values)

    assert {"threads.py"} == set(users(makes_a_lock))


def opens_a_file(node):
    """Tell whether a node opens a file by its name, without the door."""
    if not isinstance(node, ast.Call):
        return False
    name = dotted(node.func)
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr in READING_METHODS
    return name in READERS or (is_method and name not in {"reading.read_bytes", "files.read_bytes"})


def test_files_are_read_through_one_door():
    """Only reading.py opens files to read them: elsewhere a pipe or a device would hang the reader."""
    assert ["reading.py"] == sorted(users(opens_a_file) - WRITES_AND_OPENS_DIRECTORIES - READS_WHAT_IS_OPEN)


@pytest.mark.parametrize(
    ("library", "room"),
    [
        ("pydantic", ("config/", "cli/documents.py")),
        ("onnxruntime", "execute/"),
        ("onnx", ("graph/", "training/")),
        ("click", "cli/"),
        ("rich", "cli/"),
    ],
)
def test_library_has_one_room(library, room):
    """Each heavy library is imported in one room only, also where the import is local."""

    def found(node):
        if isinstance(node, ast.Import):
            return any(alias.name.partition(".")[0] == library for alias in node.names)
        return isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == library

    names = users(found)

    assert names
    assert [name for name in names if not name.startswith(room)] == []


TREES_OF_ROOMS = {"judge", "look"}  # its folders are rooms of their own


def room_of(module):
    """Return the room of a dotted module below the package, "" for one that lies in no folder."""
    parts = module.split(".")
    depth = 2 if parts[0] in TREES_OF_ROOMS and (PACKAGE / "/".join(parts[:2])).is_dir() else 1
    return ".".join(parts[:depth]) if (PACKAGE / parts[0]).is_dir() else ""


def inner_imports(tree, room):
    """Yield a module's imports from inside of other rooms, as "module" or "module: name"."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("msdump.")):
            continue
        module = node.module.removeprefix("msdump.")
        door = PACKAGE / module.replace(".", "/")
        if room_of(module) in {"", room}:
            continue
        if not door.is_dir():
            yield module
            continue
        public = getattr(importlib.import_module(node.module), "__all__", ())
        yield from (f"{module}: {alias.name}" for alias in node.names if alias.name not in public)


def test_rooms_import_each_other_through_doors():
    """A room imports from others the names that they list (``__init__.pyi``), from none of their modules."""
    found = {
        name: list(inner_imports(tree, room_of(name.removesuffix(".py").replace("/", "."))))
        for name, tree in trees().items()
    }

    assert {} == {name: inner for name, inner in found.items() if inner}


INNER_IMPORTS_OF_TESTS = 190
"""How many imports of tests go past the doors; the number only falls."""


def test_tests_go_through_doors():
    """Tests import names that rooms list; no new test is bound to a module inside of one."""
    inner = [
        each
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for each in inner_imports(ast.parse(path.read_text(encoding="utf-8")), "tests")
    ]

    assert len(inner) <= INNER_IMPORTS_OF_TESTS


def test_every_room_has_a_place_in_the_layers():
    """A new module or room must be put into the order of the imports."""
    layers = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    assert [room for room in {Path(name).parts[0] for name in MODULES} if not is_placed(room, layers)] == []


def is_placed(room, layers):
    """Tell whether the layers of pyproject.toml hold a room; the package itself stands above them."""
    return room == "__init__.py" or f"msdump.{room.removesuffix('.py')}" in layers


WRITERS = {
    *(
        "np.save",
        "np.savez",
        "np.savetxt",
        "onnx.save",
        "mmap.ACCESS_WRITE",
        "shutil.move",
        "shutil.copyfile",
    ),
    *(
        "os.mkdir",
        "os.makedirs",
        "os.replace",
        "os.rename",
        "os.unlink",
        "os.remove",
        "os.link",
        "os.symlink",
    ),
    *(
        "os.chmod",
        "os.fchmod",
        "os.truncate",
        "os.ftruncate",
        "tempfile.mkdtemp",
        "tempfile.NamedTemporaryFile",
    ),
}
WRITING_METHODS = {"write_text", "write_bytes", "tofile", "mkdir", "unlink", "rename", "chmod", "touch"}
WRITING_ROOMS = ("store/", "execute/weights.py", *MAINS)  # weights: a temporary file without a name
NO_FILES = {
    "config/acl/plan.py",  # makes a directory
    "frontends/torchair/compiler_config.py",  # the same
    "convert/conversion.py",  # removes its list of failures
}


def changes_a_file(node):
    """Tell whether a node makes, changes or removes a file by its name."""
    if not isinstance(node, ast.Call):
        return False
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr in WRITING_METHODS
    return dotted(node.func) in WRITERS or (is_method and dotted(node.func) != "reports.write_bytes")


def test_files_are_written_in_one_room():
    """Only the store makes files: it refuses links and leaves nothing half written."""
    names = users(changes_a_file)

    assert {"store/write/place.py", "store/write/rows.py"} <= names
    assert [name for name in sorted(names - NO_FILES) if not name.startswith(WRITING_ROOMS)] == []
