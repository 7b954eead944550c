"""The first lines of ``msdump compare``: operators at fault, where runs part, and the listed operators."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from msdump.cli import main
from msdump.judge.compare import comparison
from msdump.judge.compare.executions import measure_executions
from tests.judge.compare.compared import START, table

LONG = np.arange(1, 13, dtype="f4")

IR = """\
# IR entry: @kernel_graph0
# Params:
%para1_x: <Tensor[Float32], (12)> : [12]  :  <Float32xDefaultFormat[const vector][12]>  :  IsWeight: false
%para2_w: <Ref[Tensor[Float32]], (12), ref_key=w, is_parameter>  :  has_default  :  <Float32xDefaultFormat[const vector][12]>  :  IsWeight: true

subgraph @kernel_graph0() {
  %0(a) = Mul(%para1_x, %para2_w) {instance name: a} primitive_attrs: {}
      : (<Tensor[Float32], (12)>, <Tensor[Float32], (12)>) -> (<Tensor[Float32], (12)>)
      : (<HELDxDefaultFormat[const vector][12]>) -> (<Float32xDefaultFormat[const vector][12]>)
      : full_name_with_scope: (Default/h-CellList/0-Dense/Mul-op0)
      # In file net.py(7)/        x = self.dense(x)/
  %1(b) = Sub(SUB) {instance name: b} primitive_attrs: {ARGUMENTS}
      : (<Tensor[Float32], (12)>, <Tensor[Float32], (12)>) -> (<Tensor[Float32], (12)>)
      : full_name_with_scope: (Default/h-CellList/1-Dense/Sub-op0)
      # In file net.py(9)/        x = x - y/
  Return(%1)
      : (<Tensor[Float32], (12)>)
}
"""  # noqa: E501 - the lines of a real file

MUL, SUB = "Mul.Default_h-CellList_0-Dense_Mul-op0", "Sub.Default_h-CellList_1-Dense_Sub-op0"


def network(
    root,
    *,
    weight=1.0,
    iterations=1,
    rank=0,
    swapped=False,
    held="Float32",
    noise=0.0,
    wrong=(),
    factor=1.5,
    arguments="",
):
    """Write the dump of ``y = x * w - x`` as MindSpore does.

    Args:
        root: The dump's root.
        weight: Factor of the weight.
        iterations: Number of iterations.
        rank: The rank that ran.
        swapped: Whether the subtraction reads its inputs in the other order.
        held: Type of the multiplication in the graph file.
        noise: Relative error of the multiplication.
        wrong: Iterations in which the subtraction is wrong.
        factor: How wrong it is.
        arguments: The arguments of the subtraction.
    """
    folder = root / f"rank_{rank}"
    (folder / "graphs").mkdir(parents=True)
    operands = "%para1_x, %0" if swapped else "%0, %para1_x"
    text = IR.replace("(SUB)", f"({operands})").replace("HELD", held).replace("ARGUMENTS", arguments)
    (folder / "graphs" / "ms_output_trace_code_graph_0.ir").write_text(text, encoding="utf-8")
    for iteration in range(iterations):
        place = folder / "Net" / "0" / str(iteration)
        place.mkdir(parents=True)
        w = LONG * np.float32(weight)
        product = LONG * w * np.float32(1 + noise)
        inputs = (LONG, product) if swapped else (product, LONG)
        result = (inputs[0] - inputs[1]) * np.float32(factor if iteration in wrong else 1)
        tensors = ((MUL, "input", (LONG, w)), (MUL, "output", (product,)))
        tensors += ((SUB, "input", inputs), (SUB, "output", (result,)))
        time = START + 1000 * iteration
        for number, (stem, io, arrays) in enumerate(tensors):
            for slot, array in enumerate(arrays):
                name = f"{stem}.0.0.{time + 10 * number + slot}.{io}.{slot}.DefaultFormat.float32.npy"
                np.save(place / name, array)
    return root


def faults(done):
    """Return the lines of the output on operators at fault."""
    return [line.removeprefix("fault     ") for line in done.stdout.splitlines() if line.startswith("fault")]


def test_weight_is_named_with_its_line(tmp_path, run):
    """A weight that differs is named at its reader, with its source line; its heirs are not accused."""
    done = run(network(tmp_path / "mine", weight=1.02), network(tmp_path / "golden"))

    assert 1 == done.exit_code
    told = "weight, input 1 w differs at 12 of 12 elements (distance 0.02)"
    assert [f"Default/h-CellList/0-Dense/Mul-op0 (Mul): {told}"] == faults(done)
    assert "          net.py:7: x = self.dense(x)\n" in done.stdout
    assert "others    1 inherited\n" in done.stdout
    told = "verdict   weight: output Default/h-CellList/1-Dense/Sub-op0 differs by 0.022 (limit 0.00012 of "
    assert done.stdout.startswith(f"{told}float32)\n")
    assert "next      give both sides the same weights; " in done.stdout


def test_report_states_a_fault_once(tmp_path):
    """The headline of a report is the sentence of ``msdump compare``: a wrong weight is one difference."""
    sides = network(tmp_path / "mine", weight=1.02), network(tmp_path / "golden")

    done = CliRunner().invoke(main, ["report", *map(str, sides), "--json"])

    name = "Default/h-CellList/0-Dense/Mul-op0 (Mul) in iteration 0"
    headline = f"{name}: weight: input 1 w differs at 12 of 12 elements (distance 0.02)"
    assert headline == json.loads(done.stdout)["headline"]


def test_weight_counts_by_bits(tmp_path, run):
    """A weight that differs in its last bits is reported though all agrees; a rounded one is not."""
    golden = network(tmp_path / "golden")

    near = run(network(tmp_path / "near", weight=1 + 1e-6), golden)
    exact = network(tmp_path / "exact", weight=1 + 1e-4)
    rounded = run(network(tmp_path / "rounded", held="Float16"), exact)

    assert [1, 0] == [near.exit_code, rounded.exit_code]
    assert "weight, input 1 w differs" in faults(near)[0]
    assert [] == faults(rounded)


def test_swapped_inputs(tmp_path, run):
    """An operator that reads its inputs in the other order is recognised by the graphs of both dumps."""
    done = run(network(tmp_path / "mine", swapped=True), network(tmp_path / "golden"))

    assert ["Default/h-CellList/1-Dense/Sub-op0 (Sub): own, inputs 0 and 1 are swapped"] == faults(done)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("epsilon: F32(1e-05)", []),
        ("epsilon: 9.99999975e-06, mode: 1", []),
        ("epsilon: 0.01", ["Default/h-CellList/1-Dense/Sub-op0 (Sub): own, epsilon 0.01, in golden 1e-05"]),
    ],
)
def test_arguments_tell_an_error_from_a_drift(tmp_path, run, arguments, told):
    """Inputs that are a little off explain an output beyond the limit, but not of another operator."""
    mine = {"held": "Float16", "noise": 1e-3, "wrong": (0,), "factor": 1.005, "arguments": arguments}

    done = run(
        network(tmp_path / "mine", **mine), network(tmp_path / "golden", arguments="epsilon: 1e-05, mode: 1")
    )

    assert told == faults(done)
    assert "2 differ" not in done.stdout
    assert bool(told) == done.exit_code


def test_what_one_side_computes_in(tmp_path, run):
    """The graph file says that one side multiplies in float16: its limits hold from there on."""
    golden = network(tmp_path / "golden")

    half = run(network(tmp_path / "half", held="Float16", noise=1e-3), golden)
    single = run(network(tmp_path / "single", noise=1e-3), golden)

    assert [0, 1] == [half.exit_code, single.exit_code]
    assert 1 == len(faults(single))


def test_iterations_and_ranks(tmp_path, run):
    """The first iteration and operator that part are named for each rank, and an operator once."""
    for rank, wrong in ((0, (1, 2)), (1, ())):
        network(tmp_path / "mine", iterations=3, rank=rank, wrong=wrong)
        network(tmp_path / "golden", iterations=3, rank=rank)

    done = run()

    assert 1 == len(faults(done))
    assert "          iteration 1, and 1 more time\n" in done.stdout
    assert (
        "runs      rank 0: first difference in iteration 1, at Default/h-CellList/1-Dense/Sub-op0: own\n"
        in done.stdout
    )
    assert "          rank 0, iteration 2: 1 own, 1 equal\n" in done.stdout
    assert "runs      rank 1: no difference in 3 iterations\n" in done.stdout
    assert "          4 more runs without a difference\n" in done.stdout
    last = table(tmp_path)[-1]
    assert ("2", "1", "net.py:9: x = x - y") == (last["Iteration"], last["Rank"], last["Source"])


@pytest.mark.parametrize(
    ("options", "shown", "hidden"),
    [
        (("--by", "type"), "│ Sub  │ 1         │ 1        │", "shape"),
        (("--by", "scope"), "Default/h-CellList/1-Dense", "net.py:7 "),
        (("--by", "own"), "│ 2 │ Default/h-CellList/1-Dense/Sub-op0 │", "no such line"),
        (("--top", "1"), "1-Dense/Sub-op0 │", "0-Dense/Mul-op0 │"),
        (("--scope", "h.0"), "0-Dense/Mul-op0 │", "1-Dense/Sub-op0 │"),
    ],
)
def test_what_is_listed(tmp_path, run, options, shown, hidden):
    """Operators are listed in groups, by their own error, the largest alone, or one module's."""
    done = run(network(tmp_path / "mine", wrong=(0,)), network(tmp_path / "golden"), *options)

    assert shown in done.stdout
    assert hidden not in done.stdout


def test_scope_without_operators(tmp_path, run):
    """A scope that nothing lies in is an error that names some that there are."""
    done = run(network(tmp_path / "mine"), network(tmp_path / "golden"), "--scope", "h.7")

    assert done.exit_code
    assert "no operator is in the scope h.7; the scopes are Default/h-CellList/0-Dense, " in done.stderr


def test_limits_from_a_file(tmp_path, run):
    """A file sets limits that no option has."""
    golden, limits = network(tmp_path / "golden"), tmp_path / "limits.json"
    limits.write_text(json.dumps({"types": {"float32": {"distance": 0.5}}, "peak": 100}), encoding="utf-8")
    mine = network(tmp_path / "mine", noise=1e-3)

    assert [1, 0] == [run(mine, golden).exit_code, run(mine, golden, "--limits", limits).exit_code]
    assert 2 == run(mine, golden, "--limits", tmp_path / "none.json").exit_code


@pytest.mark.parametrize(("whole", "words"), [(2, "fault     "), (0, "interrupted")])
def test_ctrl_c_tells_what_is_known(tmp_path, run, monkeypatch, whole, words):
    """Results from before Ctrl-C are shown; the exit code is 130."""
    tensors = measure_executions

    def interrupted(*args, **options):
        for number, each in enumerate(tensors(*args, **options)):
            if number == whole:
                break
            yield each
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "measure_executions", interrupted)

    done = run(
        network(tmp_path / "mine", weight=1.02, iterations=2), network(tmp_path / "golden", iterations=2)
    )

    assert 130 == done.exit_code
    assert words in done.output
