"""Operators that nothing can run: their names in ``check``, and the exit code of a run with one."""

import json

import onnx
import pytest
from onnx import helper

from msdump import env
from msdump.capture import Process
from msdump.frontends import mindspore
from msdump.graph import loader
from msdump.look import unrunnable
from tests.texts import parsed
from tests.world import GRAPHS, cli, config

MODELS = sorted(GRAPHS.glob("*.onnx"))
REASON = "neither onnxruntime nor ONNX's reference can run own.Secret (opset 1): "


def secret(*before, scope="secret"):
    """Return a network with an unknown last operator."""
    names = ["x", *(f"v{at}" for at in range(len(before)))]
    rows = zip(before, names, names[1:], strict=False)
    lines = [f'["{kind}/{kind}"] {made} = {kind}({read})' for kind, read, made in rows]
    body = " ".join((*lines, f'["{scope}/Secret"] y = own.Secret({names[-1]})'))
    return parsed(f"graph (float[2,3] x) => (float[2,3] y) {{ {body} }}")


def secret_in_branches():
    """Return a network with such an operator in both branches of an If."""
    branch = 'b () => (float[2,3] y) { ["Neg/Neg"] n = Neg(x) ["secret/Secret"] y = own.Secret(n) }'
    choice = f"z = If (c) <then_branch = {branch}, else_branch = {branch}>"
    return parsed(f"graph (bool c, float[2,3] x) => (float[2,3] z) {{ {choice} }}")


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Return a function that runs a command on a network under a configuration, as a fresh process."""
    for variable in env.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    (tmp_path / "dump.json").write_text(json.dumps(config(tmp_path / "dump")))

    def call(command, proto):
        monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(Process()))
        onnx.save(proto, tmp_path / "net.onnx")
        given = ["run", "net.onnx", "--config"] if command == "run" else ["check", "--model", "net.onnx"]
        monkeypatch.chdir(tmp_path)
        return cli(*given, "dump.json")

    return call


def test_run_that_stops_in_the_middle(call, tmp_path):
    """Exit code 1 once an operator has run, since there are files; they are complete."""
    done = call("run", secret("Neg", "Abs"))

    assert (1, True) == (done.exit_code, REASON in done.stderr)
    assert 4 == len(list((tmp_path / "dump").rglob("*.npy")))


def test_run_that_does_not_begin(call, tmp_path):
    """Exit code 2 where the first operator cannot run: nothing has."""
    done = call("run", secret())

    assert (2, True) == (done.exit_code, REASON in done.stderr)
    assert [] == list((tmp_path / "dump").rglob("*.npy"))


def test_check_names_them(call, tmp_path):
    """``check --model`` names the operator and why; exit code 1, since a run will fail."""
    done = call("check", secret("Neg"))

    told = [line for line in done.stdout.splitlines() if line.startswith("cannot run")]
    assert (1, 1) == (done.exit_code, len(told))
    assert told[0].startswith(f"cannot run: Default/secret/Secret-op0: {REASON}")
    assert not (tmp_path / "dump").exists()


def test_check_of_what_may_not_run(call):
    """Exit code 0 where such operators lie in branches only: the run may not take them."""
    done = call("check", secret_in_branches())

    told = [line for line in done.stdout.splitlines() if line.startswith("cannot run")]
    assert (0, 2) == (done.exit_code, len(told))
    assert all(f" (only if its branch or loop runs): {REASON}" in line for line in told)


def test_check_of_a_branch():
    """Operators inside branches are looked at, too; equal ones are compiled once."""
    proto = secret_in_branches()

    assert ["Secret", "Secret"] == [found.node.op_type for found in unrunnable(loader.load(proto))]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_no_false_alarms(path):
    """Of models that run, no operator is named, whatever its types and domain."""
    assert [] == list(unrunnable(loader.load(path)))


def test_what_is_not_known_is_not_named():
    """An operator with an input of unknown type is left out."""
    proto = secret()
    proto.graph.node.insert(0, helper.make_node("Open", ["x"], ["t"], domain="own"))
    proto.graph.node[1].input[0] = "t"

    assert ["Open"] == [found.node.op_type for found in unrunnable(loader.load(proto))]


@pytest.mark.parametrize("command", ["run", "check"])
def test_mixed_types_are_reported(call, command):
    """``run`` and ``check --model`` name the operator with mixed types; the run goes on."""
    mixed = "graph (float[2] x, float16[2] z) => (y) { a = Add(x, z) y = Mul(a, z) }"

    done = call(command, parsed(mixed))

    text = "Default/Add-op0 (Add) mixes types: 'x' float32, 'z' float16; ONNX has one type T for these inputs"
    assert (0, 1) == (done.exit_code, done.output.count(text))
    assert command == "check" or "(so 1 more operator: msdump check --model lists them)" in done.stderr
