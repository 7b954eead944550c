"""The first operator that differs, its fault, and the verdicts on its inputs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.judge.compare import compared
from tests.judge.compare.compared import SHORT, START, both, table, tensor, verdicts

LONG = np.arange(1, 13, dtype="f4")


def line(done, word="first"):
    """Return a line of the output by its first word, "" where there is none."""
    return next((line for line in done.stdout.splitlines() if line.startswith(word)), "")


def operator(folder, name, number, *, inputs=(), outputs=(), op_type="Add"):
    """Write the tensors of an operator as MindSpore names them; None leaves one out."""
    folder.mkdir(parents=True, exist_ok=True)
    for io, arrays in (("input", inputs), ("output", outputs)):
        for slot, array in enumerate(arrays):
            if array is not None:
                time = START + 100 * number + 10 * (io == "output") + slot
                stem = f"{op_type}.{name}.0.0.{time}.{io}.{slot}"
                np.save(folder / f"{stem}.DefaultFormat.{array.dtype}.npy", array)


class TestFirst:
    """The first operator that differs."""

    @pytest.mark.parametrize(
        ("wrong_input", "words"), [(False, "its inputs agree"), (True, "input 0 already differs")]
    )
    def test_first_in_the_order_of_execution(self, tmp_path, run, wrong_input, words):
        """Of several operators that differ the first that ran is named, with the verdict on its inputs."""
        for side, factor in (("mine", 1), ("golden", 2)):
            tensor(tmp_path / side, "z_first", SHORT, 10)
            tensor(tmp_path / side, "m_second", SHORT * (factor if wrong_input else 1), 20, "input")
            tensor(tmp_path / side, "m_second", SHORT * factor, 21)
            tensor(tmp_path / side, "a_third", SHORT * factor, 30)

        done = run()

        assert 1 == done.exit_code
        assert f"first     m_second (Add), operator 2 of 3: output 0 differs, {words}\n" in done.stdout
        assert ["z_first", "m_second", "m_second", "a_third"] == [row["Operator"] for row in table(tmp_path)]

    @pytest.mark.parametrize(
        ("gradient", "words"),
        [(1, "its inputs agree"), (2, "input 3 already differs")],
        ids=["own", "inherited"],
    )
    def test_inputs_that_are_written_are_no_cause(self, tmp_path, run, gradient, words):
        """An optimizer shows the values that it has written as inputs: they count as its outputs."""
        for side, factor, grad in (("mine", 1, 1), ("golden", 2, gradient)):
            new, rate = SHORT * factor, np.array([0.5, 0.25], "f4")
            inputs = (new, new, rate, SHORT * grad, rate)
            operator(tmp_path / side, "step", 1, inputs=inputs, outputs=(new,), op_type="ApplyMomentum")

        done = run()

        assert f"outputs 0, input 0, input 1 differ, {words}\n" in done.stdout

    def test_nothing_differs(self, tmp_path, run):
        """Where everything agrees the program says so, counts, and its code is 0."""
        done = run(*both(tmp_path, SHORT, SHORT))

        assert 0 == done.exit_code
        assert (
            "first     nothing differs\n"
            "compared  1 tensor of 1 operator: 1 agree (1 exactly), 0 differ, 0 failed\n"
            "paired    by operator names, in the order of execution: MINE and GOLDEN without a graph file\n"
            "          1 operator is not shown; -v shows all\n"
            f"written   {tmp_path}/out/compare_"
        ) in done.stdout

    def test_many_operators(self, tmp_path, run):
        """Only operators that differ are listed; -v lists all."""
        for number in range(40):
            for side in ("mine", "golden"):
                factor = 2 if (side, number) == ("mine", 7) else 1
                tensor(tmp_path / side, f"op{number}", SHORT * factor, number)

        short, long = (
            run(),
            run("-v"),
        )

        assert (True, False) == ("op7 " in short.stdout, "op8 " in short.stdout)
        assert "39 more operators are not shown; -v shows all" in short.stdout
        assert "op8 " in long.stdout

    def test_corrupt_file_does_not_hide_the_first(self, tmp_path, run):
        """A file that cannot be read is a failure, but an operator that differs is the first."""
        for side, factor in (("mine", 1), ("golden", 2)):
            compared.put(tmp_path / side, "Add.torn.1.0", 1, compared.device(SHORT))
            compared.put(tmp_path / side, "Add.wrong.2.0", 2, compared.device(SHORT * factor))
        torn = next((tmp_path / "mine").glob("*torn*"))
        torn.write_bytes(torn.read_bytes()[:-1])

        done = run()

        assert 1 == done.exit_code
        assert "first     wrong (Add), operator 2 of 2" in done.stdout
        assert {("torn", "output:0"): "unreadable", ("wrong", "output:0"): "differs"} == verdicts(tmp_path)


class TestInputs:
    """Where an input differs."""

    def test_only_an_input_differs(self, tmp_path, run):
        """An input that differs is a difference though the output agrees."""
        for side, bias in (("mine", -100), ("golden", -50)):
            operator(tmp_path / side, "relu", 0, inputs=[SHORT + np.float32(bias)], outputs=[SHORT * 0])

        done = run()

        assert 1 == done.exit_code
        assert line(done).endswith("operator 1 of 1: input 0 already differs, its outputs agree")
        assert "1 agree (1 exactly), 1 differ, 0 failed" in line(done, "compared")

    def test_input_that_changed_behind_the_operator_that_wrote_it(self, tmp_path, run):
        """Who reads an input that differs where nothing before does is at fault."""
        for side, wrong in (("mine", 1), ("golden", 0)):
            operator(tmp_path / side, "scale", 0, outputs=[LONG])
            operator(tmp_path / side, "other", 1, outputs=[LONG * 0])
            changed = LONG + np.float32(wrong)
            operator(tmp_path / side, "relu", 2, inputs=[LONG * 0, changed], outputs=[changed])

        done = run()

        assert "operator 3 of 3: output 0 differs, input 1 already differs" in line(done)
        assert "relu (Add): weight, input 1 differs (distance 0.14) although all earlier" in line(
            done, "fault"
        )

    def test_weights_are_inputs_too(self, tmp_path, run):
        """A weight that differs is shown beside the output that it makes different."""
        for side, factor in (("mine", 1.02), ("golden", 1)):
            weight = LONG * np.float32(factor)
            operator(tmp_path / side, "conv", 0, inputs=[LONG, weight], outputs=[weight])

        done = run()

        assert "output 0 differs, input 1 already differs" in line(done)


class TestFailures:
    """Failures are never agreement."""

    @pytest.mark.parametrize(
        ("dumped", "golden", "words"),
        [
            ({"inputs": [SHORT]}, {"inputs": [LONG]}, "input 0 cannot be compared"),
            ({"outputs": [SHORT]}, {"outputs": [LONG]}, "output 0 cannot be compared"),
            (
                {"outputs": [SHORT, SHORT]},
                {"outputs": [LONG, LONG]},
                "outputs 0, 1 cannot be compared, its inputs were not compared",
            ),
        ],
        ids=["input", "output", "both"],
    )
    def test_shapes_that_do_not_fit(self, tmp_path, run, dumped, golden, words):
        """A shape that does not fit is the first difference; its reason is printed and in the table."""
        operator(tmp_path / "mine", "a", 0, **dumped)
        operator(tmp_path / "golden", "a", 0, **golden)
        for side, factor in (("mine", 2), ("golden", 1)):
            operator(tmp_path / side, "b", 1, outputs=[SHORT * factor])

        done = run()

        assert 1 == done.exit_code
        assert line(done).startswith("first     a (Add), operator 1 of 2: ")
        assert words in line(done)
        notes = [row["Note"] for row in table(tmp_path) if row["Operator"] == "a"]
        fault = "shape (6,) of DefaultFormat does not fit (12,) of DefaultFormat;"
        assert [True] * len(notes) == [note.startswith(fault) for note in notes]
        assert "does not fit" in done.stdout

    @pytest.mark.parametrize("side", ["mine", "golden"])
    @pytest.mark.parametrize("kind", ["dump", "npy"])
    def test_torn_file_is_a_failure_on_either_side(self, tmp_path, run, side, kind):
        """A file that cannot be read gives code 1 and its reason, on either side."""
        for each in ("mine", "golden"):
            if kind == "dump":
                compared.put(tmp_path / each, "Add.torn.1.0", 1, compared.device(SHORT))
                compared.put(tmp_path / each, "Add.good.2.0", 2, compared.device(SHORT))
            else:
                operator(tmp_path / each, "torn", 0, outputs=[SHORT])
                operator(tmp_path / each, "good", 1, outputs=[SHORT])
        torn = next((tmp_path / side).glob("*torn*"))
        torn.write_bytes(torn.read_bytes()[:60])

        done = run()

        assert 1 == done.exit_code
        assert {("torn", "output:0"): "unreadable", ("good", "output:0"): "equal"} == verdicts(tmp_path)
        assert [torn.name in row["Note"] for row in table(tmp_path)] == [True, False]
        assert "1 agree (1 exactly), 0 differ, 1 failed" in line(done, "compared")

    def test_golden_file_that_no_tensor_asks_for(self, tmp_path, run):
        """A golden file that cannot be read gives code 1 even where nothing has its name."""
        for side in ("mine", "golden"):
            compared.put(tmp_path / side, "Add.a.1.0", 1, compared.device(SHORT))
        torn = compared.put(tmp_path / "golden", "Add.b.2.0", 2, compared.device(SHORT))
        torn.write_bytes(torn.read_bytes()[:20])

        done = run()

        assert 1 == done.exit_code
        assert f"warning: {torn}" in done.stderr


class TestAlone:
    """Operators that one side lacks."""

    def test_operator_in_the_place_of_another_one(self, tmp_path, run):
        """Without a graph the only operator before a difference that golden lacks is at fault for it."""
        for side, name, factor in (("mine", "Log-op0", 3), ("golden", "Abs-op0", 1)):
            out = SHORT * np.float32(factor)
            operator(tmp_path / side, "Add-op0", 0, outputs=[LONG])
            operator(tmp_path / side, name, 1, inputs=[LONG], outputs=[out], op_type=name.partition("-")[0])
            operator(tmp_path / side, "ReLU-op0", 2, inputs=[out], outputs=[out], op_type="ReLU")

        done = run()

        assert 1 == done.exit_code
        assert "unchecked" == verdicts(tmp_path)["Log-op0", "output:0"]
        assert "Log-op0 (Log): replaced, golden lacks this operator" in line(done, "fault")
        assert "missing   1 operator of golden, such as Abs-op0" == line(done, "missing")


class TestPasses:
    """Operators in the body of a loop."""

    def test_each_pass_has_its_number(self, tmp_path, run):
        """An operator that ran three times appears three times, with the number of its pass."""
        for side, factors in (("mine", (1, 2, 3)), ("golden", (1, 2.5, 3))):
            operator(tmp_path / side, "before", 0, outputs=[SHORT])
            for number, factor in enumerate(factors):
                operator(tmp_path / side, "body", number + 1, outputs=[SHORT * np.float32(factor)])

        done = run()

        rows = [(row["Operator"], row["Pass"], row["Verdict"]) for row in table(tmp_path)]
        assert [
            ("before", "", "equal"),
            ("body", "0", "equal"),
            ("body", "1", "differs"),
            ("body", "2", "equal"),
        ] == rows
        assert line(done).startswith("first     body (Add), pass 1, operator 3 of 4: output 0 differs")
        assert "body, pass 1" in done.stdout

    def test_value_from_outside_the_loop(self, tmp_path, run):
        """A golden input that was written once stands for all passes; of several each has its own."""
        for number in range(3):
            operator(tmp_path / "mine", "body", number, inputs=[SHORT, SHORT + number], outputs=[SHORT])
            operator(tmp_path / "golden", "body", number, inputs=[None, SHORT + number], outputs=[SHORT])
        operator(tmp_path / "golden", "body", 0, inputs=[SHORT])
        operator(tmp_path / "mine", "body", 3, inputs=[SHORT, SHORT + 3], outputs=[SHORT])

        done = run()

        assert 1 == done.exit_code
        assert "passes    body ran 4 times, in golden 3 times" == line(done, "passes")
        assert ["equal", "equal", "equal"] * 3 + ["equal", "unchecked", "unchecked"] == [
            row["Verdict"] for row in table(tmp_path)
        ]

    @pytest.mark.parametrize(
        ("dumped", "golden", "words"),
        [
            (1, 2, "body ran once, in golden 2 times, and so for 1 more"),
            (3, 2, "body ran 3 times, in golden 2 times, and so for 1 more"),
        ],
    )
    def test_loop_that_ran_more_often(self, tmp_path, run, dumped, golden, words):
        """A loop that ran more often on one side is a difference though every pass of both agrees."""
        for side, count in (("mine", dumped), ("golden", golden)):
            for number in range(count):
                operator(tmp_path / side, "body", 2 * number, outputs=[SHORT])
                operator(tmp_path / side, "end", 2 * number + 1, outputs=[SHORT])

        done = run()

        assert 1 == done.exit_code
        assert "first     no tensor differs" == line(done)
        assert f"passes    {words}" == line(done, "passes")


class TestPrecision:
    """The type that the device computed in."""

    def test_coarser_types_are_suggested(self, tmp_path, run):
        """Where all differences lie within a coarser type's limits, it is suggested, and helps."""
        for side, factor in (("mine", 1.002), ("golden", 1)):
            operator(tmp_path / side, "a", 0, outputs=[SHORT * np.float32(factor)])

        done = run()

        assert 1 == done.exit_code
        assert "next      if the device computed in float16, add --precision float16" in line(done, "next")
        assert 0 == run("--precision", "float16").exit_code

    def test_precision_is_handed_on(self, tmp_path, run):
        """Behind a float16 tensor that was rounded differently, float32 tensors are judged like it."""
        for side, factor in (("mine", 1.002), ("golden", 1)):
            array = SHORT * np.float32(factor)
            operator(tmp_path / side, "before", 0, outputs=[array])
            operator(tmp_path / side, "half", 1, outputs=[array.astype("f2")])
            operator(tmp_path / side, "after", 2, outputs=[array])

        run()

        assert ["differs", "agrees", "agrees"] == list(verdicts(tmp_path).values())
        assert ["0.00012207", "0.00390625", "0.00390625"] == [row["Limit"] for row in table(tmp_path)]

    def test_coarse_tensors_that_are_the_same_hand_nothing_on(self, tmp_path, run):
        """A tensor of few bits that is the same on both sides makes no other one less precise."""
        for side, factor in (("mine", 1.002), ("golden", 1)):
            operator(tmp_path / side, "half", 0, outputs=[SHORT.astype("f2")])
            operator(tmp_path / side, "after", 1, outputs=[SHORT * np.float32(factor)])

        run()

        assert ["equal", "differs"] == list(verdicts(tmp_path).values())
