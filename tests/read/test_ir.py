"""Operator graphs read from .ir files: msdump's and MindSpore's."""

import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msdump.errors import DumpReadError
from msdump.graph import SourceLine, fuse_elementwise, loader
from msdump.graph.files import ir_proto, ir_text
from msdump.read import (
    GraphOperator,
    SourceKind,
    ValueForm,
    ValueSource,
    open_dump,
    read_ir,
    read_listed_operators,
    read_pb,
)
from msdump.read.ir import parse_operands
from msdump.read.operator_graph import OperatorGraph, named_as_files
from tests.read.written import put

MINDSPORE = """\
# IR entry: @kernel_graph3
# Params:
%para1_inputs0: <Tensor[Int32], (2, 5)> : [2, 5]  :  <Int32xDefaultFormat[const vector]{2, 5}>  :  IsWeight: false
%para2_fc.weight: <Ref[Tensor[Float32]], (3, 8), ref_key=fc.weight, is_parameter>  :  has_default  :  <UnknownxDefaultFormat[const vector]{3, 8}>  :  IsWeight: true
%para3_u: <UMonad, NoShape>  :  <UMonadxDefaultFormat[const vector]{}>  :  IsWeight: false
%para4_: <Tensor[Float32], ()>  :  <Float32xDefaultFormat[const vector]{}>  :  IsWeight: false

subgraph instance: kernel_graph3 : 0x55c36b835f60

subgraph @kernel_graph3() {
  %0(CNode_1) = Load(%para2_fc.weight, %para3_u) cnode_attrs: {is_dynamic_len: Bool(0)}
      : (<Ref[Tensor[Float32]], (3, 8), ref_key=fc.weight, is_parameter>, <UMonad, NoShape>) -> (<Tensor[Float32], (3, 8)>)
      # Fullname with scope: (Default/fc-Dense/Load-op0)
  %1(res) = PrimFunc_Split(%0, I64(1), I64(2)) {instance name: split} primitive_attrs: {size_splits: (4, 4)} cnode_attrs: {checkpoint: Bool(1)} cnode_primal_attrs: {unique_id: "7"}
      : (<Tensor[Float32], (3, 8)>, <Int64, NoShape>, <Int64, NoShape>) -> (<Tuple[Tensor[Float32]*2], TupleShape((3, 4), (3, 4))>)
      : (<Float32xDefaultFormat[const vector]{3, 8}>) -> (<Float32xDefaultFormat[const vector]{3, 4}>)
      : (Tensor, Scalar, Scalar) -> (TupleUnfold)
      # Fullname with scope: (Default/Split-op0)
      # Corresponding code candidate:
      # In file /data/net.py:8~17, 4~16/    def construct(self, x, n):/
      # In file /data/net.py:11, 16~23/            x = ops.split(self.w, (4, 4))/
      # In file /opt/lib/python3.11/site-packages/mindspore/ops/gen.py:6735~6759/def split(input):/
      # In file /opt/lib/python3.11/site-packages/mindspore/ops/gen.py:6759, 11~24/    return split_op(input)/
  %2(CNode_2) = TupleGetItem(%1, I64(1))
      # Fullname with scope: (Default/TupleGetItem-op0)
  %3(CNode_3) = UpdateState(%para3_u, %0)
      # Fullname with scope: (Default/UpdateState-op0)
  %4(CNode_4) = Depend(%2, %3)
      # Fullname with scope: (Default/Depend-op0)
  %5(CNode_5) = MakeTuple(%4, %para4_фx, %1)
      # Fullname with scope: (Default/MakeTuple-op0)
  %6(y) = PrimFunc_Concat(%5, None, "a, b)", Tensor(shape=[2], dtype=Int64, value=[1 2]), UMonad[U])
      : (<Tuple[Tensor[Float32]*4], TupleShape(...)>) -> (<Tensor[Float32], (3, 16)>)
      # Fullname with scope: (Default/fc-Dense/Concat-op0)
  Return(%6)
      # Fullname with scope: (Default/Return-op0)
}
"""  # noqa: E501 - the lines of the real file

TITLE = "NodeExecutionOrder-FullNameWithScope\n"
BODY = "Default/Loop_0/body/"
SPLIT, CONCAT = "Default/Split-op0", "Default/fc-Dense/Concat-op0"


@pytest.fixture
def graph(tmp_path):
    """Read the text of MindSpore's form."""
    path = tmp_path / "graph.ir"
    path.write_text(MINDSPORE, encoding="utf-8")
    return read_ir(str(path))


def test_operators_of_mindspore(graph):
    """Operators are statements that run; tuples, loaded parameters and states of an order are none."""
    assert ["Default/Split-op0", "Default/fc-Dense/Concat-op0"] == [*graph.operators]
    assert [3, {"inputs0", "para4"}, {"fc.weight"}] == [graph.number, {*graph.inputs}, {*graph.weights}]
    assert (ValueSource(SourceKind.OPERATOR, CONCAT),) == graph.outputs


def test_inputs_of_mindspore(graph):
    """Inputs name the operators, weights, inputs and constants behind tuples, in the order of files."""
    assert (
        ValueSource(SourceKind.WEIGHT, "fc.weight"),
        ValueSource(SourceKind.CONSTANT, "I64(1)"),
        ValueSource(SourceKind.CONSTANT, "I64(2)"),
    ) == graph.operators[SPLIT].inputs
    assert (
        ValueSource(SourceKind.OPERATOR, SPLIT, 1),
        ValueSource(SourceKind.INPUT, "para4"),
        ValueSource(SourceKind.OPERATOR, SPLIT, 0),
        ValueSource(SourceKind.OPERATOR, SPLIT, 1),
        ValueSource(SourceKind.ABSENT),
        ValueSource(SourceKind.CONSTANT, '"a, b)"'),
        ValueSource(SourceKind.CONSTANT, "Tensor(shape=[2], dtype=Int64, value=[1 2])"),
    ) == graph.operators[CONCAT].inputs


def test_forms_of_mindspore(graph):
    """Outputs, weights and inputs have their host's element types and shapes."""
    halves = ValueForm("float32", (3, 4))
    assert (halves, halves) == graph.operators[SPLIT].outputs
    assert [halves, ValueForm("float32", (3, 8))] == [
        graph.form_of(ValueSource(SourceKind.OPERATOR, SPLIT, 1)),
        graph.form_of(ValueSource(SourceKind.WEIGHT, "fc.weight")),
    ]


def test_source_line_is_the_users(graph):
    """Of the lines that made an operator, the innermost call outside of MindSpore counts."""
    operator = graph.operators[SPLIT]

    assert operator.source_line == "net.py:11: x = ops.split(self.w, (4, 4))"
    assert SourceLine("/data/net.py", 8, "def construct(self, x, n):") == operator.source[0]
    assert [4, ""] == [len(operator.source), graph.operators[CONCAT].source_line]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["/home/a/run.py", "/v/site-packages/timm/vit.py", "/v/site-packages/torch/nn.py"], "vit.py:2"),
        (["/home/a/net.py", "torch/nn/modules/conv.py"], "net.py:1"),
        (["/home/a/net.py", "/usr/lib/python3.11/contextlib.py"], "net.py:1"),
        (["/v/site-packages/torch/nn/modules/conv.py"], "conv.py:1"),
    ],
)
def test_source_line_is_of_the_model(files, expected):
    """The innermost call outside of PyTorch and Python counts, in installed packages of models too."""
    lines = tuple(SourceLine(file, number, "call()") for number, file in enumerate(files, 1))

    assert f"{expected}: call()" == GraphOperator("Default/Add-op0", "Add", source=lines).source_line


def test_neighbours(graph):
    """Neighbours are found in both directions, by full names and by names of files."""
    assert [SPLIT] == [each.full_name for each in graph.inputs_from(CONCAT)]
    assert [CONCAT] == [each.full_name for each in graph.used_by(SPLIT, 0)]
    assert [SPLIT] == [each.full_name for each in graph.readers_of("fc.weight")]
    assert [True, False] == [graph.is_output(CONCAT), graph.is_output(SPLIT)]
    names = ("Default_fc-Dense_Concat-op0", "Concat-op0", CONCAT)
    assert [CONCAT] * 3 == [graph.find(name).full_name for name in names]
    assert graph.find("Add-op0") is None


def test_instances_of_mindspore_are_no_nodes(graph):
    """MindSpore's instance names are attributes of cells, not names of ONNX nodes."""
    assert ["", "size_splits: (4, 4)"] == [
        graph.operators[SPLIT].onnx_name,
        graph.operators[SPLIT].attributes,
    ]


@pytest.mark.parametrize("size", [0, 200, 1500, 2200, 2700])
def test_broken_off(tmp_path, size):
    """A file that breaks off gives the operators before its end; one without a graph says so."""
    path = tmp_path / "graph.ir"
    path.write_text(MINDSPORE[:size], encoding="utf-8")

    if size < 200:
        with pytest.raises(DumpReadError, match="the file has no graph"):
            read_ir(str(path))
    else:
        assert {*read_ir(str(path)).operators} <= {SPLIT, CONCAT, "res", "y"}


@given(st.lists(st.text("abc%(){}[], \"'=<>ф-")))
def test_any_operands(parts):
    """Whatever stands in brackets, reading operands ends, and within the line."""
    line = f"  %1(y) = Op({', '.join(parts)})"

    _, end = parse_operands(line, 12, {})

    assert end <= len(line)


def test_own_dump(tmp_path):
    """A dump of msdump has ONNX nodes, the order of execution, and the caller of a loop's body."""
    rank_folder = tmp_path / "rank_0"
    for number, each in enumerate(loader.load("graphs/loop.onnx").walk()):
        put(rank_folder / f"graphs/ms_output_trace_code_graph_{number}.ir", ir_text.text(each, number))
        (rank_folder / f"Net/{number}/0").mkdir(parents=True)
    put(
        rank_folder / "execution_order/ms_execution_order_graph_1.csv",
        f"{TITLE}{BODY}Less-op0\n{BODY}Add-op0\n",
    )
    rank = open_dump(tmp_path).ranks[0]

    main, body = rank.operator_graphs.values()

    loop = main.operators["Default/Loop-op0"]
    assert ["Loop_0", {"body": 1}] == [loop.onnx_name, loop.bodies]
    assert ["body", "Default/Loop-op0"] == [body.branch, body.caller]
    assert rank.networks["Net"].graphs[1].operator_graph == body
    assert [main, body, main] == [
        open_dump(tmp_path).graph(),
        open_dump(tmp_path).graph(network="Net", number=1),
        open_dump(tmp_path).graph(rank=0),
    ]
    with pytest.raises(DumpReadError, match="no graph file of this graph"):
        open_dump(tmp_path).graph(rank=1)
    assert [f"{BODY}Less-op0", f"{BODY}Add-op0", f"{BODY}ReduceMax-op0"] == [*body.operators][:3]
    assert body.operators[f"{BODY}Less-op0"].onnx_name == "Loop_0/body/Less_2"


def test_dumps_without_graph_files(tmp_path):
    """A dump without graph files has no operator graph."""
    (tmp_path / "rank_0/Net/0/0").mkdir(parents=True)

    assert open_dump(tmp_path).ranks[0].networks["Net"].graphs[0].operator_graph is None


@pytest.mark.parametrize(
    ("types", "held"),
    [
        ("(<Float16xFRACTAL_NZ[const vector]{3, 8}>) -> (<Int64xND>)", {"float16", "int64"}),
        ("(<BFloat16xNCHW[const vector][4]>) -> (<BoolxNCHW>)", {"bfloat16", "bool"}),
        ("(<Tensor[Float32], (3, 8)>) -> (<Tensor[Float32], (3, 4)>)", set()),
    ],
)
def test_types_that_the_device_holds(tmp_path, types, held):
    """Behind the host's types stand the device's, in which an operator computes."""
    path = tmp_path / "graph.ir"
    old = "(<Float32xDefaultFormat[const vector]{3, 8}>) -> (<Float32xDefaultFormat[const vector]{3, 4}>)"
    path.write_text(MINDSPORE.replace(old, types), encoding="utf-8")

    assert held == read_ir(str(path)).operators["Default/Split-op0"].held


LISTED = (
    "(<Float32xDefaultFormat[const vector]{0, 3}>, <Int64xDefaultFormat[const vector]{}>) -> "
    "(<BFloat16xFRACTAL_NZ[const vector]{-1, 2}>, <StringxDefaultFormat[const vector]{4}>)"
)


@pytest.mark.parametrize(
    "types", [LISTED, LISTED.replace("{", "[").replace("}", "]"), "(Tensor) -> (Tensor)"]
)
@pytest.mark.parametrize("name", ["# Fullname with scope", ": full_name_with_scope"])
def test_listed_operators(tmp_path, types, name):
    """Types and shapes are read in either spelling; an operator without types is left out."""
    path = tmp_path / "graph.ir"
    path.write_text(
        f"  %0(a) = S(%1)\n      : {types}\n      {name}: (Default/Split-op0)\n", encoding="utf-8"
    )

    inputs = ValueForm("Float32", (0, 3)), ValueForm("Int64", ())
    outputs = ValueForm("BFloat16", (-1, 2)), ValueForm("String", (4,))
    expected = {SPLIT: (inputs, outputs)} if "Float" in types else {}
    assert expected == read_listed_operators(str(path))


def test_operators_have_the_names_of_their_files():
    """Files are numbered by scope and type in the order of the graph file, through all graphs."""

    def graph(*names, **fields):
        operators = {name: GraphOperator(name, "Cast", place=place) for place, name in enumerate(names)}
        reader = ValueSource(SourceKind.OPERATOR, names[-1])
        return OperatorGraph(operators, outputs=(reader,), **fields)

    main = graph("Default/Cast-op3", "Default/a/Cast-op1", "Default/Cast-op0")
    inner = graph("Default/Cast-op1")

    named = [*named_as_files([main.in_order(["Default/Cast-op0"]), inner])]

    assert ["Default/Cast-op1", "Default/Cast-op0", "Default/a/Cast-op0"] == [*named[0].operators]
    assert "Default/Cast-op1" == named[0].outputs[0].name
    assert ["Default/Cast-op2"] == [*named[1].operators]
    ours = graph("Default/Cast-op3", is_ours=True)
    assert [ours] == [*named_as_files([ours])]


@pytest.mark.parametrize("model", ["transformer", "if", "loop", "functions"])
def test_message_and_text_of_mindspore(tmp_path, model):
    """A .pb file gives the operators of the .ir file, and the readers of outputs."""
    for number, inner in enumerate(loader.load(f"graphs/{model}.onnx").walk()):
        text = read_ir(put(tmp_path / f"{number}.ir", ir_text.text(inner, number)))
        (tmp_path / f"{number}.pb").write_bytes(ir_proto.encode(inner, number))

        message = read_pb(str(tmp_path / f"{number}.pb"))

        assert [*text.operators] == [*message.operators]
        for name, operator in text.operators.items():
            found = message.operators[name]
            assert operator.op_type == found.op_type
            assert operator.source == found.source
            assert text.inputs_from(name) == tuple(
                text.operators[e.full_name] for e in message.inputs_from(name)
            )
        assert [each.name for each in text.outputs] == [each.name for each in message.outputs]


@pytest.mark.parametrize(
    ("name", "break_line", "expected"),
    [
        ("plain", False, ("first", "plain")),
        ('a "b", c]\\', False, ("first", 'a "b", c]\\')),
        ("plain", True, ("plain",)),
    ],
    ids=["plain", "quotes", "torn"],
)
def test_a_kernel_names_its_nodes(tmp_path, name, break_line, expected):
    """The .ir file of a fused graph has the nodes of each kernel; a torn line its last node."""
    head = '<ir_version: 10, opset_import: ["" : 20]> net (float[N] x) => (float[N] y)'
    model = onnx.parser.parse_model(f"{head} {{ [first] a = Abs(x) [last] y = Exp(a) }}")
    model.graph.node[1].name = name
    text = ir_text.text(fuse_elementwise(loader.load(model)), graph_id=0)
    path = tmp_path / "graph.ir"
    path.write_text(text.replace('"plain"]', '"pl') if break_line else text, encoding="utf-8")

    (kernel,) = read_ir(str(path)).operators.values()

    assert expected == kernel.onnx_names
