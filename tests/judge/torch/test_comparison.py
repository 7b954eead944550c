"""``msdump diff --golden torch:`` and ``msdump.torch.check_export``: a module beside its export."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper

import msdump
from msdump.cli import main
from msdump.errors import InputError, NotAvailableError
from msdump.graph import loader
from msdump.judge.torch import Source, golden_of, load_source
from msdump.judge.verdict import Verdict

ROOT = Path(__file__).parents[3]

PROGRAM = '''
import torch
from torch import nn


class Net(nn.Module):
    """A residual block with attention-like parts."""

    def __init__(self, factor=None):
        super().__init__()
        self.factor = factor
        self.inner = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 6)

    def forward(self, x):
        x = x if self.factor is None else x * self.factor
        y = nn.functional.leaky_relu(self.inner(x), 0.1)
        y = self.norm(x + y)
        y = y * torch.sigmoid(y * 0.5)
        best, place = self.head(y).softmax(-1).topk(2, -1)
        return best, place


def make():
    torch.manual_seed(3)
    return Net().eval(), (torch.randn(4, 8, generator=torch.Generator().manual_seed(5)),)


def other():
    torch.manual_seed(3)
    return Net(1.5).eval(), (torch.randn(4, 8, generator=torch.Generator().manual_seed(5)),)


def wrong():
    return 3


def failing():
    raise ValueError("no weights")


module = Net()
number = 3
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the program, and the files of its module and of another version."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    path = tmp_path_factory.mktemp("program")
    (path / "torch_net.py").write_text(PROGRAM)
    for name, maker in (("net", "make"), ("other", "other")):
        source = load_source(f"{path / 'torch_net.py'}:{maker}")
        program = torch.onnx.export(source.module, source.args, dynamo=True, verbose=False)
        program.save(str(path / f"{name}.onnx"))
    return path


def checked(folder, model):
    """Return the comparison of a model with the module."""
    source = load_source(f"{folder / 'torch_net.py'}:make")
    return msdump.torch.check_export(source.module, source.args, model)


def node_of(model, op_type):
    """Return the first node of a type."""
    return next(node for node in model.graph.node if node.op_type == op_type)


def set_attribute(op_type, name, value):
    """Return an edit of the first node of a type."""

    def edit(model):
        node = node_of(model, op_type)
        for attribute in [each for each in node.attribute if each.name == name]:
            node.attribute.remove(attribute)
        node.attribute.append(helper.make_attribute(name, value))
        return node.name

    return edit


def change_weight(change):
    """Return an edit of the square weight of the inner layer."""

    def edit(model):
        reader = next(node for node in model.graph.node if "inner.weight" in node.input)
        weight = next(each for each in model.graph.initializer if each.name == "inner.weight")
        weight.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(weight)), weight.name))
        return reader.name

    return edit


def drop_residual(model):
    """Let the readers of the sum read the branch."""
    node = node_of(model, "Add")
    [reader] = [each for each in model.graph.node if node.output[0] in each.input]
    reader.input[0] = next(name for name in node.input if name != "x")
    model.graph.node.remove(node)
    return ""  # no operator of the file


def insert_casts(model):
    """Cast the result of the activation to int8 and back."""
    at = [node.op_type for node in model.graph.node].index("LeakyRelu") + 1
    value = model.graph.node[at - 1].output[0]
    for reader in model.graph.node:
        reader.input[:] = ["back" if name == value else name for name in reader.input]
    for to, names in ((onnx.TensorProto.INT8, (value, "short")), (onnx.TensorProto.FLOAT, ("short", "back"))):
        node = helper.make_node("Cast", [names[0]], [names[1]], name=f"cast_{names[1]}", to=to)
        model.graph.node.insert(at, node)
        at += 1
    return "cast_short"


FAULTS = {
    "weight": (change_weight(lambda array: array * np.float32(1.02)), Verdict.WEIGHT, "inner.weight differs"),
    "transposed": (
        change_weight(lambda array: np.ascontiguousarray(array.T)),
        Verdict.OWN,
        "weight inner.weight is transposed",
    ),
    "attribute": (
        set_attribute("LeakyRelu", "alpha", 0.2),
        Verdict.OWN,
        "aten.leaky_relu.default(linear, 0.1)",
    ),
    "axis": (
        set_attribute("Softmax", "axis", 0),
        Verdict.OWN,
        "aten.softmax.int(linear_1, -1), here Softmax",
    ),
    "smallest": (set_attribute("TopK", "largest", 0), Verdict.OWN, "aten.topk.default"),
    "residual": (
        drop_residual,
        Verdict.MISSING,
        "one aten.add.Tensor fewer in the file: golden's add is aten.add.Tensor(x, leaky_relu)",
    ),
    "casts": (insert_casts, Verdict.OWN, "cast_short (Cast), cast_back (Cast): extra, no call of the module"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_named_alone_with_its_reason(folder, fault):
    """A fault in the file is named, no other operator is, and the note has the module's call."""
    edit, verdict, reason = FAULTS[fault]
    model = onnx.load(folder / "net.onnx")
    name = edit(model)
    [accused] = [each for each in checked(folder, model).report.findings if each.is_accused]
    assert (name, verdict) == (accused.place.onnx_name, accused.verdict)
    assert reason in accused.note


@pytest.mark.parametrize("optimize", [True, False])
def test_sound_export_agrees(folder, optimize):
    """Every value of the file that the module has agrees, optimised or not."""
    torch = pytest.importorskip("torch")
    source = load_source(f"{folder / 'torch_net.py'}:make")
    program = torch.onnx.export(source.module, source.args, dynamo=True, verbose=False, optimize=optimize)
    both = msdump.torch.check_export(source.module, source.args, program.model_proto)
    assert both.report.agrees
    paired = {*both.functions.partners.values()}
    assert paired >= {"linear", "leaky_relu", "add", "layer_norm", "getitem", "getitem_1"}
    assert all(own.error.scaled < 1e-6 for finding in both.report.findings for own in finding.own)


def test_other_version_of_the_program_has_an_extra_call(folder):
    """A call that the module lacks is named, though the names of later values have moved."""
    both = checked(folder, str(folder / "other.onnx"))
    [accused] = [each for each in both.report.findings if each.is_accused]
    assert accused.place.onnx_name == "node_mul"
    assert "extra, no call of the module" in accused.note


SCRIPT = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.norm(self.conv(x)))
        return self.relu(self.norm(self.conv(y)) + x)


def make():
    torch.manual_seed(4)
    module = nn.Sequential(Block(), Block(), nn.Flatten(), nn.Linear(32, 3)).eval()
    for each in module[:2]:
        each.norm.running_var.uniform_(0.5, 1.5)
    return module, torch.randn(1, 2, 4, 4)
"""


@pytest.mark.parametrize("fault", ["", "pad"])
def test_file_of_the_older_exporter_is_compared_module_by_module(tmp_path, monkeypatch, fault):
    """A sound file agrees, and a fault is named at its module with the line that calls it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "script_net.py").write_text(SCRIPT)
    source = load_source("script_net:make")
    torch.onnx.export(source.module, source.args, str(tmp_path / "net.onnx"), dynamo=False, opset_version=17)
    model = onnx.load(tmp_path / "net.onnx")
    node = next(each for each in model.graph.node if each.name == "/1/conv_1/Conv")
    if fault == "pad":
        attribute = next(each for each in node.attribute if each.name == "pads")
        attribute.ints[:] = [2, 2, 0, 0]
    report = msdump.torch.check_export(source.module, source.args, model).report
    accused = [each for each in report.findings if each.is_accused]
    assert bool(fault) is not report.agrees
    assert ["/1/conv_1/Conv"] * bool(fault) == [each.place.onnx_name for each in accused]
    assert all("the output of module 1.norm (BatchNorm2d)" in each.note for each in accused)
    assert all(each.place.source.startswith("script_net.py:") for each in accused)
    assert sum(bool(each.own) for each in report.findings) >= 8


def test_names_of_another_tool_leave_the_outputs(folder):
    """A file without the exporter's names is compared by its outputs, and the report says so."""
    model = onnx.load(folder / "net.onnx")
    results = {value.name for value in model.graph.output}
    for node in model.graph.node:
        del node.metadata_props[:]
        for names in (node.input, node.output):
            names[:] = [
                name
                if name in results or not any(name in each.output for each in model.graph.node)
                else f"t/{name}"
                for name in names
            ]
    named = {name: name for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        node.input[:] = [f"t/{name}" if f"t/{name}" in named else name for name in node.input]
    both = checked(folder, model)
    assert both.report.agrees
    assert [] == [each for each in both.report.findings if each.is_accused]


@pytest.fixture(scope="module")
def scaled():
    """Return a module with a scale behind its layer, and its export."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale = torch.nn.Linear(4, 6), torch.nn.Parameter(torch.tensor(3.0))

        def forward(self, x):
            best, place = torch.relu(self.layer(x) * self.scale).max(-1)
            return best, place * 2

    torch.manual_seed(0)
    module = Scaled().eval()
    args = (torch.randn(5, 4),)
    return module, args, torch.onnx.export(module, args, dynamo=True, verbose=False).model_proto


@pytest.mark.parametrize("factor", [3, 1, 2], ids=["moved", "dropped", "wrong"])
def test_scale_that_a_tool_multiplies_into_weights_is_not_accused(scaled, factor):
    """A layer computes a later call's value: sound, if it is the call's own value, and else one fault."""
    module, args, exported = scaled
    model = onnx.ModelProto()
    model.CopyFrom(exported)
    node, reader = node_of(model, "Mul"), node_of(model, "Relu")
    reader.input[0] = node.input[0]
    model.graph.node.remove(node)
    for weight in model.graph.initializer:
        if weight.name.startswith("layer."):
            array = numpy_helper.to_array(weight) * np.float32(factor)
            weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    both = msdump.torch.check_export(module, args, model)
    accused = [each.verdict for each in both.report.findings if each.is_accused]
    wanted = {3: [], 1: [Verdict.MISSING], 2: [Verdict.WEIGHT, Verdict.MISSING]}
    assert (factor == 3, wanted[factor]) == (both.report.agrees, accused)


def test_reader_of_a_value_of_another_shape_is_not_accused(scaled):
    """An operator over the wrong axis is named alone: the reader of its result has no own error."""
    module, args, exported = scaled
    model = onnx.ModelProto()
    model.CopyFrom(exported)
    node = node_of(model, "ArgMax")
    next(each for each in node.attribute if each.name == "axis").i = 0
    findings = msdump.torch.check_export(module, args, model).report.findings
    assert [(node.name, Verdict.SHAPE)] == [
        (each.place.onnx_name, each.verdict) for each in findings if each.is_accused
    ]


def test_name_of_a_value_of_another_shape_with_a_right_reader_is_no_fault(scaled):
    """A tool that keeps a name for a longer value, of which the reader takes a part, is not accused."""
    module, args, exported = scaled
    model = onnx.ModelProto()
    model.CopyFrom(exported)
    node, reader = node_of(model, "Mul"), node_of(model, "Relu")
    name, at = node.output[0], [*model.graph.node].index(node) + 1
    node.output[0], reader.input[0] = "once", "half"
    for key, numbers in (("zero", [0]), ("five", [5])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(numbers), key))
    model.graph.node.insert(at, helper.make_node("Slice", [name, "zero", "five"], ["half"], name="cut"))
    model.graph.node.insert(at, helper.make_node("Concat", ["once", "once"], [name], name="double", axis=0))
    report = msdump.torch.check_export(module, args, model).report
    assert report.agrees
    assert [] == [each for each in report.findings if each.is_accused]


def test_value_that_leaves_several_modules_is_the_innermost_ones():
    """A wrong weight of the last layer of an inner module is named as that layer's, not as the module's."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    inner = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    module, args, file = (
        torch.nn.Sequential(inner, torch.nn.Sigmoid()).eval(),
        torch.randn(2, 3, 4),
        io.BytesIO(),
    )
    torch.onnx.export(module, (args,), file, dynamo=False, opset_version=17)
    model = onnx.load_from_string(file.getvalue())
    node = next(each for each in model.graph.node if each.name == "/0/0.2/MatMul")
    weight = next(each for each in model.graph.initializer if each.name == node.input[1])
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.1), weight.name))
    [fault] = [
        each for each in msdump.torch.check_export(module, args, model).report.findings if each.is_accused
    ]
    assert ("/0/0.2/MatMul", Verdict.WEIGHT) == (fault.place.onnx_name, fault.verdict)
    assert "the output of module 0.2 (Linear)" in fault.note


def test_buffers_of_a_module_in_training_are_restored():
    """Running statistics are as before: neither the export nor the runs change them."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).train()
    before = copy.deepcopy(dict(module.named_buffers()))
    both = msdump.torch.check_export(module, torch.randn(5, 3))
    assert both.report.compared
    assert all(torch.equal(before[name], buffer) for name, buffer in module.named_buffers())


def test_diff_prints_the_fault_and_its_line(folder, monkeypatch):
    """The command names the operator, its verdict and the line of the module, and exits with 1."""
    monkeypatch.chdir(folder)
    model = onnx.load(folder / "net.onnx")
    set_attribute("LeakyRelu", "alpha", 0.2)(model)
    onnx.save(model, folder / "faulty.onnx")
    done = CliRunner().invoke(main, ["diff", "faulty.onnx", "--golden", "torch:torch_net.py:make"])
    assert done.exit_code == 1, done.output
    assert "(LeakyRelu): own, own error" in done.output
    assert "torch_net.py:18: y = nn.functional.leaky_relu(self.inner(x), 0.1)" in done.output
    assert "faulty.onnx on float32 against torch_net.py:make on torch" in done.output
    sound = CliRunner().invoke(
        main, ["diff", "net.onnx", "--golden", "torch:torch_net:module", "--seed", "1"]
    )
    assert sound.exit_code == 1, sound.output  # other weights
    assert "weight, input 1 inner.weight differs" in sound.output


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/from-torch-to-operator.md"])
def test_page_shows_what_the_command_prints(page, tmp_path, monkeypatch):
    """The command that compares a broken export with its module prints the lines of the page."""
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graphs").symlink_to(ROOT / "graphs")
    script = ROOT / "graphs" / "torch_export" / "break_it.py"
    subprocess.run([sys.executable, script, "faulty.onnx"], check=True, timeout=120)
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = text.partition("--golden torch:graphs/torch_export/net.py:make_net | head -3\n")[2].partition(
        "```"
    )[0]
    command = ["diff", "faulty.onnx", "--golden", "torch:graphs/torch_export/net.py:make_net"]
    done = CliRunner().invoke(main, command)
    assert shown.splitlines() == done.output.splitlines()[:3]


@pytest.mark.parametrize(
    ("golden", "message"),
    [
        ("torch:nowhere.py:make", "torch:nowhere.py:make: there is no file nowhere.py"),
        ("torch:torch_net.py:absent", "torch_net.py has no 'absent'"),
        ("torch:make", "must be torch:package.module:callable or torch:file.py:name"),
        ("torch:torch_net.py:number", "number is neither a module nor a callable that makes one"),
        ("torch:torch_net.py:wrong", "wrong returns int; it must return a torch.nn.Module"),
        ("torch:torch_net.py:failing", "ValueError: no weights"),
    ],
)
def test_wrong_golden_is_an_error(folder, monkeypatch, golden, message):
    """The error names the text and the reason, and the exit code is 2."""
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(main, ["diff", "net.onnx", "--golden", golden])
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize("options", [["other.onnx"], ["--train"], ["--bisect"], ["--advise", "0.1"]])
def test_golden_module_excludes_other_questions(options):
    """A module is golden for one inference model alone."""
    done = CliRunner().invoke(main, ["diff", "net.onnx", "--golden", "torch:net.py:make", *options])
    assert done.exit_code == 2
    assert "--golden torch: excludes OTHER, --train, --bisect and --advise" in done.output


def test_missing_torch_is_one_sentence(monkeypatch):
    """Without PyTorch the message has the command that installs it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NotAvailableError, match=r"is not installed; pip install 'msdump\[torch\]'"):
        load_source("net.py:make")


USERS = """
import sys

import torch
from torch import nn


class Users(nn.Module):
    def __init__(self, kind="", norm=True):
        super().__init__()
        torch.manual_seed(8)
        self.kind, self.conv = kind, nn.Conv2d(2, 3, 3)
        self.norm = nn.BatchNorm2d(3) if norm else nn.Identity()
        self.drop, self.first, self.last = nn.Dropout(0.4), nn.Linear(12, 12), nn.Linear(12, 12)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        if self.kind == "raises":
            raise AttributeError("no heads")
        if self.kind == "changes":
            print("noise")
            self.count += 1
            x.mul_(2)
        x = self.drop(self.norm(self.conv(x)).flatten(1))
        if self.kind == "random":
            x = x + torch.randn_like(x)
        if self.kind == "cond":
            x = torch.cond(x.sum() > -99, lambda x: torch.relu(self.first(x)), lambda x: torch.tanh(x), (x,))
        if self.kind == "loop":
            x = torch.relu(self.last(torch.relu(self.last(x))))
        if self.kind == "more":
            x = torch.sigmoid(x)
        return self.last(torch.relu(self.first(x)))


def plain():
    return Users().eval(), torch.ones(2, 2, 4, 4)


def training():
    return Users().train(), torch.ones(2, 2, 4, 4)


def foreign():
    return nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Linear(32, 12)).eval(), torch.ones(2, 2, 4, 4)


def meta():
    return Users().to("meta"), torch.ones(2, 2, 4, 4)


def weights():
    module = Users().eval()
    for each in module.parameters():
        each.data += 1
    return module, torch.ones(2, 2, 4, 4)


def make(kind, *change):
    module = Users(kind).eval()
    for path in change:
        module.get_submodule(path).weight.data *= 1.1
    return module, torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(6))
"""


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    """Return the program as a module, its folder on the path of imports, with ``net.onnx``."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    path = tmp_path_factory.mktemp("users")
    (path / "torch_users.py").write_text(USERS)
    sys.path.insert(0, str(path))
    import torch_users

    module, args = torch_users.plain()
    torch.onnx.export(module, (args,), dynamo=True, verbose=False).save(str(path / "net.onnx"))
    yield torch_users
    sys.path.remove(str(path))


@pytest.mark.parametrize(
    ("name", "sentence", "code"),
    [
        ("training", "is in train mode: batch statistics in norm, dropout in drop; call eval() before", 1),
        (
            "weights",
            "the file has other weights than the module: 6 of 6 tensors differ, such as",
            1,
        ),
        ("foreign", "has the name of a value of torch_users:foreign: torch.onnx.export names them alike", 1),
        ("meta", "torch:torch_users:meta: the module's parameters have no values on the device meta", 2),
    ],
)
def test_fault_of_the_user_is_named(users, name, sentence, code):
    """A module in another mode, with other weights, of another file or without values has its sentence."""
    model = str(Path(users.__file__).parent / "net.onnx")
    done = CliRunner().invoke(main, ["diff", model, "--golden", f"torch:torch_users:{name}"])
    assert code == done.exit_code, done.output
    assert sentence in done.output


def test_failing_module_is_an_error_with_its_shapes(users):
    """The module's own exception is shown with the shapes of its inputs."""
    with pytest.raises(InputError, match=r"fails on inputs \(2, 2, 4, 4\): AttributeError: no heads"):
        msdump.torch.check_export(*users.make("raises"), Path(users.__file__).parent / "net.onnx")


def test_error_of_a_receiver_is_not_the_modules(users):
    """An error in the code that takes golden's values is raised as it is, not as a failure of the module."""
    module, args = users.plain()
    graph = loader.load(Path(users.__file__).parent / "net.onnx")
    inputs = Source("plain", module, (args,)).named_inputs(graph)
    with pytest.raises(KeyError, match="fault of the receiver"):
        golden_of(Source("plain", module, (args,)), graph, inputs).run(
            [*inputs.values()], lambda *_: {}["fault of the receiver"]
        )


def test_module_that_prints_and_changes_its_inputs_is_sound(users, capsys):
    """Standard output stays empty, inputs and buffers stay as they are, and the export agrees."""
    module, args = users.make("changes")
    before = args.clone()
    assert msdump.torch.check_export(module, args).report.agrees
    assert (args.equal(before), module.count.item(), capsys.readouterr().out) == (True, 0, "")


@pytest.mark.parametrize(
    ("file", "golden", "sentence"),
    [
        (
            "more",
            "",
            "was exported from another version of Users: the network has 1 aten.sigmoid.default more",
        ),
        ("random", "random", "aten.randn_like.default draws random numbers, other ones than the file's"),
    ],
)
def test_file_of_another_program_has_its_sentence(users, file, golden, sentence):
    """Calls that the module lacks, and random ones, are named first; the latter accuse no operator."""
    torch = pytest.importorskip("torch")
    module, args = users.make(file)
    model = torch.onnx.export(module, (args,), dynamo=True, verbose=False).model_proto
    both = msdump.torch.check_export(*users.make(golden), model)
    assert sentence in str(both).splitlines()[0]
    assert bool(golden) is not any(each.is_accused for each in both.report.findings)
    assert not both.report.agrees


@pytest.mark.parametrize(
    ("kind", "change", "op_type"),
    [("cond", "first", "If"), ("loop", "last", "Dense"), ("", "conv", "Conv2D")],
)
def test_shared_module_and_branch_are_compared(users, kind, change, op_type):
    """A sound branch, shared or folded module agrees; with another weight its operator is accused alone."""
    torch = pytest.importorskip("torch")
    assert msdump.torch.check_export(*users.make(kind)).report.agrees
    module, args = users.make(kind, change)
    shapes = ({0: torch.export.Dim.AUTO},) if not kind else None
    program = torch.onnx.export(module, (args,), dynamo=True, verbose=False, dynamic_shapes=shapes)
    both = msdump.torch.check_export(*users.make(kind), program.model_proto)
    accused = [each for each in both.report.findings if each.is_accused]
    assert (op_type, Verdict.WEIGHT) == (accused[0].place.op_type, accused[0].verdict)
    assert [accused[0]] == accused


def test_golden_value_replaces_an_output(folder, monkeypatch):
    """With golden's value in the place of the faulty output the network agrees."""
    monkeypatch.chdir(folder)
    model = onnx.load(folder / "net.onnx")
    name = set_attribute("LeakyRelu", "alpha", 0.2)(model)
    onnx.save(model, folder / "faulty.onnx")
    command = ["diff", "faulty.onnx", "--golden", "torch:torch_net.py:make", "--replace"]
    done = CliRunner().invoke(main, [*command, name])
    assert done.exit_code == 0, done.output
    missed = CliRunner().invoke(main, [*command, "absent"])
    assert missed.exit_code == 2
    assert "faulty.onnx: replace: " in missed.output
    alone = CliRunner().invoke(main, ["diff", "net.onnx", "--replace", name])
    assert "--replace needs --golden torch:" in alone.output
