"""The graph files that MindSpore and GE save by themselves, beside a dump or without one."""

import re

import pytest

from msdump import env
from msdump.errors import DumpWriteError
from tests.dump import nets, o2
from tests.encode.ge_oracle import parsed
from tests.world import CPU, O2, compiled_config

ASCEND = {"device_target": "Ascend"}


@pytest.fixture
def place(door):
    """Save graphs in a directory of the test."""
    door.monkeypatch.setenv(env.SAVE_GRAPHS_PATH, str(door.folder / "saved"))
    door.monkeypatch.setenv(env.GE_GRAPH_PATH, str(door.folder / "ge"))
    return door


def saved(door, **context):
    """Load a network; return the files of its graphs by name, their numbers left out."""
    door.load(nets.exp_plus_one(), **context)
    folder = door.folder / "saved"
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return {re.sub(r"_\d{4}(?=\.|$)", "", path.name): path.read_text() for path in files}


LEVELS = {
    "unset": (None, set()),
    "0": ("0", set()),
    "1": ("1", {"trace_code_graph"}),
    "2": ("2", {"trace_code_graph", "graph_build_0.ir"}),
    "3": ("3", {"trace_code_graph", "trace_code_graph.dot", "graph_build_0.ir", "graph_build_0.dot"}),
}


@pytest.mark.parametrize(("level", "expected"), LEVELS.values(), ids=LEVELS)
def test_levels(place, level, expected):
    """MS_DEV_SAVE_GRAPHS says how much is saved."""
    if level is not None:
        place.monkeypatch.setenv(env.SAVE_GRAPHS, level)

    assert expected == saved(place, **CPU).keys()


NAMES = {
    "CPU": (CPU, ["Default/Exp-op0", "Default/Add-op0"]),
    "O0": ({**ASCEND, "jit_level": "O0"}, ["Default/Exp-op0", "Default/Add-op0"]),
    "O1": ({**ASCEND, "jit_level": "O1"}, ["Default/Exp-op0Add-op0"]),
    "O2": (O2, ["Default/Exp-op0", "Default/Add-op0"]),
}


@pytest.mark.parametrize(("context", "expected"), NAMES.values(), ids=NAMES)
def test_names(place, context, expected):
    """The file has the names of kernels; under O2 from before the backend fuses them."""
    place.monkeypatch.setenv(env.SAVE_GRAPHS, "1")

    text = saved(place, **context)["trace_code_graph"]

    found = re.findall(r"full_name_with_scope: \((Default/(?!Return|MakeTuple)[^)]+)\)", text)
    assert expected == found


def test_bad_level(place, caplog):
    """A wrong level is logged, and saves nothing."""
    place.monkeypatch.setenv(env.SAVE_GRAPHS, "all")

    assert {} == saved(place, **CPU)
    assert ["MS_DEV_SAVE_GRAPHS = 'all': must be 0, 1, 2 or 3; no graphs are saved"] == caplog.messages


def test_every_graph_has_a_number_of_its_own(place):
    """Two networks leave two files."""
    place.monkeypatch.setenv(env.SAVE_GRAPHS, "1")

    for _ in range(2):
        place.load(nets.exp_plus_one(), **CPU)

    assert 2 == len(list((place.folder / "saved").iterdir()))


def ge_files(door):
    """Return the stages of which there are files."""
    return sorted(path.name.partition("_graph_")[2].partition("_")[2] for path in door.folder.glob("ge/*/*"))


def test_ge_shows_what_it_compiles(place):
    """DUMP_GE_GRAPH needs no dump: the stages of O2's compilation have files, the last one fused kernels."""
    place.monkeypatch.setenv(env.GE_GRAPH, "2")
    place.monkeypatch.setenv(env.GE_GRAPH_FORMAT, "ge_proto")

    place.load(nets.exp_plus_one(), **O2)

    assert 6 == len(ge_files(place))
    (last,) = place.folder.glob("ge/*/*_Build.txt")
    assert "Default/Exp-op0Add-op0" in [op.name for op in parsed(last.read_bytes()).graph[0].op]


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_only_whole_graphs_are_compiled(place, level):
    """O0 and O1 know no graph engine."""
    place.monkeypatch.setenv(env.GE_GRAPH, "2")

    place.load(nets.exp_plus_one(), **ASCEND, jit_level=level)

    assert [] == ge_files(place)


@pytest.mark.parametrize(("through_ge", "expected"), [("1", ["Build.txt"]), ("0", [])], ids=["GE", "O2"])
def test_a_dump_through_ge_shows_its_graph(place, through_ge, expected):
    """A dump that GE's options turn on has the Build file without asking; any other has none."""
    place.monkeypatch.setenv(env.ENABLE_GE_DUMP, through_ge)

    o2.load(place, nets.exp_plus_one())

    assert expected == ge_files(place)


ASKED = {
    "saved": ({env.SAVE_GRAPHS: "3"}, CPU, env.SAVE_GRAPHS_PATH, 4),
    "GE": ({env.GE_GRAPH: "1"}, O2, env.GE_GRAPH_PATH, 10),
}


def ask(door, kind, place, **own):
    """Load a network with a dump and graph files; return it and the number of these files."""
    variables, context, variable, count = ASKED[kind]
    for name, value in variables.items():
        door.monkeypatch.setenv(name, value)
    door.monkeypatch.setenv(variable, str(place))
    if kind == "saved":
        door.configure(**own)
        return door.load(nets.exp_plus_one(), **context), count
    blocks = compiled_config(door.path)
    blocks["msdump"] = blocks.get("msdump", {}) | own
    door.configure(blocks)
    return door.load(nets.exp_plus_one(), **context), count


@pytest.mark.parametrize("kind", ASKED)
def test_a_dump_counts_graph_files(door, tmp_path, kind):
    """Graph files beside a dump are in its summary like the files of its tree."""
    network, count = ask(door, kind, tmp_path / "graphs")

    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "data_dump.json"]
    files += door.path.rglob("data_dump.json")
    assert count == len([path for path in (tmp_path / "graphs").rglob("*") if path.is_file()])
    assert (len(files), sum(path.stat().st_size for path in files)) == (
        network.summary.files,
        network.summary.bytes,
    )


@pytest.mark.parametrize("kind", ASKED)
def test_the_policy_of_a_dump_holds_for_graph_files(door, tmp_path, kind):
    """Graph files that cannot be written are counted as lost, and raised only where the plan says so."""
    (tmp_path / "file").touch()

    network, count = ask(door, kind, tmp_path / "file" / "x", on_write_error="warn")
    door.again()
    with pytest.raises(DumpWriteError, match=r"cannot write '.*/file/x/.*': Not a directory"):
        ask(door, kind, tmp_path / "file" / "x", on_write_error="raise")

    assert {"Not a directory": count} == network.summary.lost


@pytest.mark.parametrize("kind", ASKED)
def test_graph_files_have_a_largest_size(door, tmp_path, kind):
    """Graph files beside a dump over max_bytes are skipped and counted; nothing is left of them."""
    network, count = ask(door, kind, tmp_path / "graphs", max_bytes=100)

    assert {"over max_bytes": count} == network.summary.skipped
    assert [] == [path for path in (tmp_path / "graphs").rglob("*") if path.is_file()]
