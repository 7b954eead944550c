"""The sentences of a comparison's answer."""

import re
from dataclasses import replace
from itertools import product
from math import inf

import pytest

from msdump.judge import TensorError, answer
from msdump.judge.verdict import (
    Finding,
    OperatorPlace,
    Report,
    Stop,
    TensorEvidence,
    TensorVerdict,
    Uneven,
    Verdict,
)
from msdump.record import IO

AGREES, DIFFERS = TensorVerdict.AGREES, TensorVerdict.DIFFERS


def output(distance=0.0, verdict=AGREES, limit=2**-8, *, name="logits", misplaced=0):
    """Return the verdict on an output of a network."""
    error = TensorError(not distance, distance, misplaced=misplaced)
    return TensorEvidence(IO.OUTPUT, 0, error=error, name=name, verdict=verdict, limit=limit)


def finding(name, verdict=Verdict.NONFINITE, op_type="Pow", iteration=0):
    """Return the verdict on an operator."""
    return Finding(OperatorPlace(name, op_type, name, iteration=iteration), verdict)


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        ([], ""),
        ([TensorEvidence(IO.OUTPUT, 0)], ""),
        ([output(verdict=TensorVerdict.EQUAL)], "the outputs are equal"),
        ([output(8e-4), output()], "the outputs agree (error 0.0008, limit 0.0039 of float16)"),
        ([output(8e-4, limit=0.01)], "the outputs agree (error 0.0008, limit 0.01)"),
        ([output(0.1, limit=0.5)], "the outputs agree (error 0.1, limit 0.5)"),
        (
            [output(0.1, limit=inf)],
            "the outputs agree (error 0.1, no limit: it is computed of nothing but rounding)",
        ),
        ([output(0.12, DIFFERS)], "output logits differs by 0.12 (limit 0.0039 of float16)"),
        ([output(0.12, DIFFERS, None, name="")], "output 0 differs by 0.12"),
        (
            [output(), *(output(1.0, DIFFERS, None, name=name) for name in "abcde")],
            "output a differs by 1, output b differs by 1, output c differs by 1 and 2 more",
        ),
        (
            [output(each, DIFFERS, None) for each in (0.1, 0.3, 0.2)],
            "output logits differs by 0.3",
        ),
        (
            [output(0.5, DIFFERS, None, misplaced=3)],
            "output logits differs in NaN or infinities at 3 elements",
        ),
        ([replace(output(1.4, TensorVerdict.UNCHECKED), note="random")], "output logits is random"),
    ],
)
def test_what_the_outputs_do(outputs, told):
    """A sentence says which outputs differ and by how much, or how much of the allowance they take."""
    made = Report(outputs=outputs)

    assert told == answer.outputs_sentence(made)
    assert ("agree" in told or "equal" in told) == made.agrees


SAME = output(verdict=TensorVerdict.EQUAL)
INNER = finding("inner", Verdict.INHERITED)
PARTS = {
    "findings": ([], [finding("fc", Verdict.WEIGHT)], [replace(INNER, tensors=(output(0.5, DIFFERS),))]),
    "outputs": ([], [SAME], [output(1e-4)], [output(0.5, DIFFERS)], [SAME, TensorEvidence(IO.OUTPUT, 1)]),
    "unreadable": ([], ["a.npy: breaks off"]),
    "uneven": ([], [Uneven("Loop", 4, 3)]),
    "inputs": ([], ["x"]),
    "unreturned": ([], [OperatorPlace("gone")]),
    "stops": ([], [Stop("mine (CPU)", "fc", "mine: fc: no memory")]),
    "is_strict": (False, True),
}


@pytest.mark.parametrize("parts", [*product(*PARTS.values())])
def test_exit_code_and_sentence_agree(parts):
    """Agreement in the sentence is exit code 0, whatever a report holds."""
    findings, *others = parts
    made = Report(**dict(zip([*PARTS][1:], others, strict=True)))
    for each in findings:
        made.add(each)

    told = answer.outputs_sentence(made)

    assert made.agrees == (made.verdict in {"equal", "agrees"})
    assert made.agrees or not re.search("outputs (agree|are equal)", told)
    assert not made.agrees or "differ" not in told


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["h.0-Block/norm-RMSNorm/Pow-op0"] * 2, [2]),
        ([f"h.{number}-Block/norm-RMSNorm/Pow-op0" for number in range(2)], [1, 1]),
        ([f"h.{number}-Block/norm-RMSNorm/Pow-op0" for number in range(3)], [3]),
        ([f"h.{number}-Block/Pow-op0" for number in range(3)], [3]),
        ([f"a{number}/Pow-op0" for number in range(3)], [1, 1, 1]),
    ],
)
def test_operators_that_are_at_fault_alike(names, groups):
    """One operator of several runs is one group, and so are three of one type in scopes of one class."""
    found = answer.group_alike(names, str, lambda name: answer.kind_of_fault(name, "Pow", "nonfinite"))

    assert groups == [len(group) for group in found]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["past.1.key"], "the network's input past.1.key differs"),
        (["a", "b"], "the network's inputs a, b differ"),
        (["a", "b", "c", "d"], "the network's inputs a, b, c and 1 more differ"),
    ],
)
def test_inputs_that_differ(names, told):
    """Inputs of the network that differ are called by their names, whoever is accused, and come first."""
    report = Report(inputs=names)
    report.add(finding("Default/Pow-op0"))

    assert told == answer.meaning(report)
    assert "feed both sides the same inputs" == answer.next_step(report, answer.Compared())


@pytest.mark.parametrize(
    ("verdict", "has_rerun", "means", "step"),
    [
        (Verdict.EQUAL, False, "", ""),
        (Verdict.AGREES, True, "", ""),
        (Verdict.OWN, False, "", "--model MODEL.onnx"),
        (Verdict.OWN, True, "", "msdump extract"),
        (Verdict.NONFINITE, True, "", "--advise"),
        (Verdict.WEIGHT, False, "", "same weights"),
        (Verdict.MISSING, False, "", "exported"),
        (Verdict.ACCUMULATED, False, "rounding errors add up", "--model MODEL.onnx"),
        (Verdict.ACCUMULATED, True, "rounding errors add up", "--advise"),
        (Verdict.INHERITED, True, "already differ", "same inputs"),
        (Verdict.UNREADABLE, True, "all readable tensors", "dump again"),
        (Verdict.UNCHECKED, False, "was not compared", ""),
    ],
)
def test_what_a_verdict_means_and_what_to_do(verdict, has_rerun, means, step):
    """A verdict without a fault is explained, and every finding has a next step that fits it."""
    report = Report()
    is_sound = verdict in {Verdict.EQUAL, Verdict.AGREES, Verdict.UNCHECKED}
    tensors = (
        () if is_sound else (output(0.1, TensorVerdict.UNREADABLE if verdict == "unreadable" else DIFFERS),)
    )
    report.add(replace(finding("Default/Pow-op0", verdict), tensors=tensors))

    told = answer.meaning(report), answer.next_step(report, answer.Compared(has_rerun=has_rerun))

    assert (bool(means), bool(step)) == tuple(map(bool, told))
    assert means in told[0]
    assert step in told[1]


def test_outputs_that_were_not_compared_are_named():
    """The outputs of the network without a counterpart are named, and the next step is to dump them."""
    report = Report()
    report.add(finding("Default/Pow-op0", Verdict.AGREES))
    report.outputs = [
        output(0.0, TensorVerdict.EQUAL),
        replace(output(0.0, TensorVerdict.UNCHECKED), error=None, name="boxes"),
    ]

    assert answer.meaning(report) == (
        "output boxes was not compared: a file is missing, or only one side has it"
    )
    assert "at level mix" in answer.next_step(report, answer.Compared(dump="dump"))


def test_a_missing_operator_is_one_of_golden():
    """An operator that golden alone has is named as golden's: mine may have another one of the name."""
    report = Report()
    report.add(finding("Default/Add-op0", Verdict.MISSING))

    (line,) = (each for each in answer.summary_lines(report, answer.Compared()) if each.startswith("fault"))

    assert line.endswith("of golden: missing")
    assert "Default/Add-op0" in line


def test_random_numbers_need_a_seed():
    """The first operator that draws random numbers is named, and the next step is a seed for it."""
    report = Report()
    for name in ("a", "b"):
        report.add(replace(finding(name, Verdict.UNCHECKED), note="random"))

    assert "a draws other random numbers on each side: results of these are not compared" == (
        answer.meaning(report)
    )
    assert "give a a `seed` attribute, as msdump run --seed does: two runs then draw equal numbers" == (
        answer.next_step(report, answer.Compared())
    )


@pytest.mark.parametrize(
    ("verdict", "compared", "step"),
    [
        (
            Verdict.NONFINITE,
            answer.Compared("a b", "Ascend:O2", ("--dim", "N=4"), has_rerun=True),
            "run msdump diff 'a b' --mine Ascend:O2 --dim N=4 --advise 0.01 to find the operators to keep",
        ),
        (
            Verdict.NONFINITE,
            answer.Compared(),
            "run msdump diff MODEL.onnx --mine VARIANT --advise 0.01 to find the operators to keep",
        ),
        (Verdict.NONFINITE, answer.Compared("a.onnx", "CPU"), ""),
        (
            Verdict.WEIGHT,
            answer.Compared("a.onnx", has_rerun=True, are_models=True),
            "give both models the same weights",
        ),
        (
            Verdict.OWN,
            answer.Compared("a.onnx", dump="d", has_rerun=True),
            "run msdump extract d Default/Pow-op0 -o DIRECTORY --model a.onnx to write it as a model",
        ),
    ],
)
def test_next_commands_name_the_files(verdict, compared, step):
    """Commands of next steps name the known files and the variant; unknown ones stand in capitals."""
    report = Report()
    report.add(finding("Default/Pow-op0", verdict))

    assert step == answer.next_step(report, compared)
