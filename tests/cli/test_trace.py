"""``msdump run --trace``: when operators ran and files were written, as Perfetto and Chrome read it."""

import json
import threading
from collections import Counter

import pytest

from msdump import tracing
from tests.world import ROOT, cli, write_config

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture
def traced(tmp_path, monkeypatch):
    """Return a function that runs a model with a trace and returns its events."""
    monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", str(tmp_path))
    write_config(tmp_path / "c.json", "", is_synchronous=False, support_device=[0, 1])

    def run(model, *arguments, code=0):
        path = tmp_path / "trace.json"
        line = ["run", str(ROOT / "graphs" / model), "--trace", str(path), *map(str, arguments)]
        done = cli(*line)
        assert code == done.exit_code, done.output
        assert tracing.active() is None
        return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]

    return run


def spans(events, category):
    """Return the spans of a category in the order of their beginning."""
    return sorted((event for event in events if event.get("cat") == category), key=lambda each: each["ts"])


def test_every_event_has_what_the_format_asks_for(traced, tmp_path):
    """Spans have a beginning, a duration, a process and a thread, which have names."""
    events = traced("mini.onnx", "--config", tmp_path / "c.json", "--steps", 2)

    assert {"M", "X"} == {event["ph"] for event in events}
    for event in events:
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
    threads = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert threads == {event["tid"] for event in events if event["ph"] == "X"}
    assert ["msdump, rank 0"] == [
        event["args"]["name"] for event in events if event["name"] == "process_name"
    ]


def test_operators_and_files_of_a_dump(traced, tmp_path):
    """Each operator has a span in each iteration, each file one, all within the iteration's."""
    events = traced("mini.onnx", "--config", tmp_path / "c.json", "--steps", 2)

    names = [f"Default/{name}" for name in ("conv1-Conv2d/Conv2D-op0", "relu-ReLU/ReLU-op0")]
    ran = spans(events, "operator")
    assert 10 == len(ran)
    assert names == [event["name"] for event in ran[:2]]
    assert {"type": "Conv2D"} == ran[0]["args"]
    assert ["iteration 0", "iteration 1"] == [event["name"] for event in spans(events, "iteration")]
    files = Counter(event["name"] for event in spans(events, "write"))
    dumped = [path.name for path in tmp_path.rglob("*.npy")]
    assert Counter(dumped) == Counter({name: files[name] for name in files if name.endswith(".npy")})
    first, second = spans(events, "iteration")
    assert first["ts"] + first["dur"] <= second["ts"]
    for event in ran:
        within = [each for each in (first, second) if each["ts"] <= event["ts"] <= each["ts"] + each["dur"]]
        assert 1 == len(within)


def test_segments(traced):
    """Operators that run as one session are one span, which names them."""
    events = traced("mini.onnx")

    (segment,) = spans(events, "segment")
    assert (
        "5 operators from Default/conv1-Conv2d/Conv2D-op0 to Default/fc-Dense/BiasAdd-op0" == segment["name"]
    )
    assert 5 == len(segment["args"]["operators"])
    assert [f"compile {segment['name']}"] == [event["name"] for event in spans(events, "compile")]


def test_a_loop_holds_its_passes(traced, tmp_path):
    """The operators of a body have a span for each pass, inside that of the loop."""
    events = traced("loop.onnx", "--config", tmp_path / "c.json")

    (loop,) = (event for event in spans(events, "operator") if event["args"]["type"] == "Loop")
    inner = [
        event
        for event in spans(events, "operator")
        if event is not loop and loop["ts"] <= event["ts"] <= loop["ts"] + loop["dur"]
    ]
    assert inner
    assert all(event["ts"] + event["dur"] <= loop["ts"] + loop["dur"] + 0.001 for event in inner)


def test_ranks_of_a_process_are_threads(traced):
    """Each rank of --ranks has a thread of its name."""
    events = traced("mini.onnx", "--ranks", 2)

    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    ran = {names[event["tid"]] for event in spans(events, "iteration")}
    assert {"rank 0", "rank 1"} == ran


def test_threads_one_after_the_other_keep_their_names():
    """A thread that begins when another one has ended may have its number, but not its name."""
    trace = tracing.Trace()

    def work():
        with trace.span("operator", "Relu"):
            pass

    names = [f"thread {number}" for number in range(20)]
    for name in names:
        thread = threading.Thread(target=work, name=name)
        thread.start()
        thread.join()

    assert names == [trace.threads[span.thread] for span in trace.spans]


def test_a_run_that_fails_leaves_its_trace(traced, tmp_path):
    """Operators before one that failed are in the trace."""
    events = traced("mini.onnx", "--config", tmp_path / "c.json", "--inputs", tmp_path / "no.npz", code=2)

    assert [] == spans(events, "operator")


def test_a_trace_that_cannot_be_written_is_told(tmp_path):
    """A trace below a file is an error, once the model has run."""
    (tmp_path / "file").touch()
    line = ["run", str(ROOT / "graphs" / "mini.onnx"), "--trace", str(tmp_path / "file" / "t.json")]

    done = cli(*line)

    assert 1 == done.exit_code
    assert "cannot write" in done.stderr


def test_nothing_is_wrapped_without_a_trace():
    """Without a trace a function that is timed stays as it is."""
    assert test_segments is tracing.timed(test_segments, "operator", "x")
