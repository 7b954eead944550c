"""Messages of bounded length and number."""

import json

import numpy as np
import pytest

from tests.world import cli

NAME = "rank_0/Net/0/0/Add.a{0}.0.0.{0}.output.0.DefaultFormat.float32.npy"


@pytest.mark.parametrize("command", [("watch", "--rules", "rules.json"), ("report",), ("baseline", "-out")])
def test_faults_of_one_kind_are_counted(tmp_path, monkeypatch, command):
    """Of 199 torn files twenty have a line of their own, the others are counted; -v shows all."""
    monkeypatch.chdir(tmp_path)
    for number in range(200):
        path = tmp_path / "dump" / NAME.format(1795219089580885 + number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"torn")
    np.save(path, np.float32([1]))
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [{"condition": "tensor_overflow"}]}))

    for option, count in (((), 20), (("-v",), 199)):
        given = [command[0], "dump", *command[1:], *([f"out{count}"] if "-out" in command else ()), *option]
        done = cli(*given)
        lines = [line for line in done.stderr.splitlines() if ".npy" in line]
        assert count == len(lines), done.output
        assert (count < 199) == ("179 more of these (-v shows all)" in done.stderr)


def test_long_lines_are_cut(tmp_path):
    """A message that shows a line of a damaged file shows its beginning, and is no longer than a page."""
    order = tmp_path / "rank_0/execution_order/ms_execution_order_graph_0.csv"
    file = tmp_path / NAME.format(1795219089580885)
    for path, text in ((order, "x" * 100_000), (file, "torn")):
        path.parent.mkdir(parents=True)
        path.write_text(text)

    done = cli("show", tmp_path, "a1795219089580885")

    assert "first line is 'xxx" in done.stderr
    assert len(done.stderr) < 5000
