"""The shape of the code: who imports whom, who prints, how long things may be."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "msdump"
MODULES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}

LONGEST_MODULE = 400
FULLEST_ROOM = 16  # modules beside __init__.py
LONGEST_FUNCTION = 45
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc", "base"}
READERS = {
    *("open", "io.open", "os.open", "os.fdopen", "os.popen", "FileIO", "io.FileIO", "fileinput.input"),
    *("np.load", "np.fromfile", "np.memmap", "np.genfromtxt", "np.loadtxt", "onnx.load", "torch.load"),
    *("zipfile.ZipFile", "importlib.util.spec_from_file_location", "runpy.run_path"),
}
READING_METHODS = {"open", "read_text", "read_bytes"}
WRITES_AND_OPENS_DIRECTORIES = {
    f"store/write/{name}.py" for name in ("directories", "place", "rows", "temporaries")
}
READS_WHAT_IS_OPEN = {
    "tools/preview/archives.py",  # np.load, of a file that the door opened
    "cli/closed_pipe.py",  # /dev/null, to write to
}
MAINS = {
    "cli/documents/schemas.py",
    "config/schema.py",
    "config/reference.py",
    "tools/query/reference.py",
    "training/reference.py",
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


def functions():
    """Yield every function with its module's name, nested ones included."""
    for name, inside in nodes().items():
        yield from (
            (name, node) for node in inside if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        )


def length(function):
    """Return the lines of a function without its docstring."""
    first = function.body[0]
    has_docstring = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    docstring = first.end_lineno - first.lineno + 1 if has_docstring else 0
    return function.end_lineno - function.lineno + 1 - docstring


def users(found):
    """Return the modules in which something is found in a node of the tree."""
    return {name for name, inside in nodes().items() if any(map(found, inside))}


def calls(*names):
    """Return a test of nodes for a call of a function by its plain or dotted name."""
    return lambda node: isinstance(node, ast.Call) and ast.unparse(node.func) in names


def test_imports_go_one_way():
    """import-linter keeps every contract of pyproject.toml."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken." in done.stdout


def test_modules_are_short():
    """No module is longer than 400 lines."""
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}

    assert {} == {name: count for name, count in lines.items() if count > LONGEST_MODULE}


def test_rooms_are_small():
    """No folder of the package holds more than 16 modules: a larger one has rooms without a name."""
    names = (Path(name) for name in MODULES)
    counts = Counter(str(name.parent) for name in names if name.name != "__init__.py")

    assert {} == {room: count for room, count in counts.items() if count > FULLEST_ROOM}


def test_functions_are_short():
    """No function is longer than 45 lines, its docstring aside, and nine of ten have at most 20."""
    lengths = {f"{name}:{function.name}": length(function) for name, function in functions()}

    ordered = sorted(lengths.values())
    assert {} == {name: count for name, count in lengths.items() if count > LONGEST_FUNCTION}
    assert ordered[len(ordered) * 9 // 10] <= 20


def test_no_two_classes_share_a_name():
    """A name of a public class means one thing, wherever it is read."""
    names = Counter(
        node.name
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )

    assert [] == [name for name, count in names.items() if count > 1]


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
            lambda node: isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv"},
            ("env.py",),
        ),
    ],
    ids=["prints", "exits", "reads the environment"],
)
def test_only_one_room_does_it(what, found, rooms):
    """Only the command line prints and exits, only env.py reads the environment."""
    names = users(found)

    assert names, f"nobody {what}: the test looks for the wrong thing"
    assert [name for name in names if not name.startswith(rooms)] == []


def test_forked_children_find_locks_free():
    """Only threads.py makes locks, which a fork renews; a queue of files is made anew as a whole."""
    made = {"threading.Lock", "threading.RLock"}

    def makes_a_lock(node):
        """Tell whether a node makes a lock, or names what makes it."""
        values = (
            [node.func, *node.args, *(each.value for each in node.keywords)]
            if isinstance(node, ast.Call)
            else []
        )
        return any(ast.unparse(value) in made for value in values)

    assert {"threads.py", "store/write/writer_queue.py"} == set(users(makes_a_lock))


def opens_a_file(node):
    """Tell whether a node opens a file by its name, without the door."""
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr in READING_METHODS
    return name in READERS or (is_method and name not in {"reading.read_bytes", "texts.read_bytes"})


def test_files_are_read_through_one_door():
    """Only reading.py opens files to read them: elsewhere a pipe or a device would hang the reader."""
    assert ["reading.py"] == sorted(users(opens_a_file) - WRITES_AND_OPENS_DIRECTORIES - READS_WHAT_IS_OPEN)


@pytest.mark.parametrize(
    ("library", "room"),
    [
        ("pydantic", ("config/", "cli/documents/")),
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
    "config/acl/environment.py",  # makes a directory
    "frontends/torchair/compiler_config.py",  # the same
    "tools/convert/conversion.py",  # removes its list of failures
}


def changes_a_file(node):
    """Tell whether a node makes, changes or removes a file by its name."""
    if not isinstance(node, ast.Call):
        return False
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr in WRITING_METHODS
    return ast.unparse(node.func) in WRITERS or (
        is_method and ast.unparse(node.func) != "reports.write_bytes"
    )


def test_files_are_written_in_one_room():
    """Only the store makes files: it refuses links and leaves nothing half written."""
    names = users(changes_a_file)

    assert {"store/write/place.py", "store/write/rows.py"} <= names
    assert [name for name in sorted(names - NO_FILES) if not name.startswith(WRITING_ROOMS)] == []
