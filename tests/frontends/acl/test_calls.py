"""The order of pyACL's calls and their codes."""

import numpy as np
import onnx
import pytest

from msdump import acl
from tests.dump import nets
from tests.frontends.acl.script import dataset

CALLS = {
    "init": lambda _: acl.init(),
    "init a": lambda s: acl.init(s.configure({"dump_op_switch": "on"}, name="a.json")),
    "init b": lambda s: acl.init(s.configure({"dump_list": [{}]}, name="b.json")),
    "init empty": lambda _: acl.init(""),
    "finalize": lambda _: acl.finalize(),
    "init_dump": lambda _: acl.mdl.init_dump(),
    "set_dump": lambda s: acl.mdl.set_dump(s.configure({"dump_list": [{}]}, name="b.json")),
    "set_dump None": lambda _: acl.mdl.set_dump(None),
    "set_dump number": lambda _: acl.mdl.set_dump(7),
    "set_dump missing": lambda _: acl.mdl.set_dump("missing.json"),
    "set_dump empty": lambda s: acl.mdl.set_dump(s.configure(text="", name="empty.json")),
    "set_dump malformed": lambda s: acl.mdl.set_dump(s.configure(text="{", name="bad.json")),
    "set_dump deep": lambda s: acl.mdl.set_dump(s.configure(text="[" * 11 + "]" * 11, name="deep.json")),
    "set_dump wrong": lambda s: acl.mdl.set_dump(s.configure({"dump_mode": "x"}, name="wrong.json")),
    "finalize_dump": lambda _: acl.mdl.finalize_dump(),
    "init malformed": lambda s: acl.init(s.configure(text="{", name="bad.json")),
    "init missing": lambda _: acl.init("missing.json"),
    "init wrong": lambda s: acl.init(s.configure({"dump_mode": "x"}, name="wrong.json")),
    "init number": lambda _: acl.init(7),
}

ORDERS = {
    "dump before init": ["init_dump 100001", "set_dump 100001", "finalize_dump 100001"],
    "None before init": ["set_dump None 100001"],
    "init_dump twice": ["init 0", "init_dump 0", "init_dump 100002"],
    "set_dump before init_dump": ["init 0", "set_dump 100045", "set_dump None 100045"],
    "finalize_dump before init_dump": ["init 0", "finalize_dump 100045"],
    "set_dump without a path": ["init 0", "init_dump 0", "set_dump None 100000", "set_dump number 100000"],
    "files": [
        "init 0",
        "init_dump 0",
        "set_dump missing 100003",
        "set_dump empty 0",
        "set_dump malformed 100009",
        "set_dump deep 100006",
        "set_dump wrong 100009",
        "set_dump 0",
    ],
    "set_dump twice": ["init 0", "init_dump 0", "set_dump 0", "set_dump 0"],
    "init_dump again": ["init 0", "init_dump 0", "finalize_dump 0", "finalize_dump 100045", "init_dump 0"],
    "set_dump after finalize_dump": ["init 0", "init_dump 0", "finalize_dump 0", "set_dump 100045"],
    "init twice": ["init 0", "init 100002", "init_dump 0"],
    "init with equal configuration": ["init a 0", "init a 100002"],
    "init with other configuration": ["init a 0", "init b 100000"],
    "init with faulty files": [
        "init malformed 100006",
        "init missing 100003",
        "init wrong 100009",
        "init number 100000",
        "init 0",
    ],
    "init without a path": ["init empty 0", "init_dump 0"],
    "finalize twice": ["init 0", "finalize 0", "finalize 100037"],
    "init again": ["init 0", "finalize 0", "init 0", "finalize 0"],
    "init again with the same configuration": ["init a 0", "finalize 0", "init a 0"],
    "init again with another configuration": ["init a 0", "finalize 0", "init b 100000"],
    "finalize ends the dump": ["init 0", "init_dump 0", "finalize 0", "init 0", "set_dump 100045"],
    "dump beside that of init": ["init a 0", "init_dump 0", "set_dump 0", "finalize_dump 0"],
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_calls_return_codes(script, order):
    """Each order of calls gives the documented codes."""
    expected = [int(call.rpartition(" ")[2]) for call in order]

    assert expected == [CALLS[call.rpartition(" ")[0]](script) for call in order]


TOO_EARLY = {
    call: f"EP0008: {name} failed. Reason: aclInit must be executed before {name} is called."
    for call, name in (("init_dump", "aclmdlInitDump"), ("set_dump", "aclmdlSetDump"))
}
MESSAGES = {
    "init_dump": "EP0008: aclmdlInitDump failed. Reason: This API cannot be called repeatedly.",
    "set_dump None": "EP0007: aclmdlSetDump failed because dumpCfgPath cannot be a NULL pointer.",
    "set_dump wrong": (
        "EP0002: Value x for configuration item dump_mode in configuration file {folder}/wrong.json"
        " is invalid. Expected value: all/input/output."
    ),
}


@pytest.mark.parametrize(
    ("is_late", "call", "message"),
    [(False, *row) for row in TOO_EARLY.items()] + [(True, *row) for row in MESSAGES.items()],
)
def test_failure_is_logged(script, is_late, call, message, caplog):
    """A code other than 0 comes with CANN's message in the log, which is returned once."""
    if is_late:
        acl.init()
        acl.mdl.init_dump()

    CALLS[call](script)

    expected = message.format(folder=script.folder)
    assert [expected] == caplog.messages
    assert (expected, "") == (acl.get_recent_err_msg(), acl.get_recent_err_msg())


def test_unknown_models_are_refused(script):
    """A number that no loaded model has is 145003."""
    acl.init()
    desc = acl.mdl.create_desc()
    empty = acl.mdl.create_dataset()

    assert [145003] * 4 == [
        acl.mdl.get_desc(desc, 7),
        acl.mdl.unload(7),
        acl.mdl.execute(7, empty, empty),
        acl.mdl.execute_async(7, empty, empty, 0),
    ]
    assert 0 == acl.mdl.get_num_inputs(desc)


FILES = {
    "missing": (None, 145002),
    "empty": (b"", 145002),
    "directory": ("directory", 145002),
    "no model": (b"not a model", 100013),
    "truncated": (nets.cosine().SerializeToString()[:-5], 100013),
}


@pytest.mark.parametrize(("content", "code"), FILES.values(), ids=FILES)
def test_files_that_are_no_models(script, content, code):
    """A file that is missing, empty or unreadable is 145002, one that is no model 100013."""
    acl.init()
    path = script.folder / "net.onnx"
    if content == "directory":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)

    assert (0, code) == acl.mdl.load_from_file(str(path))


def test_load_of_nothing(script):
    """Loading before init is 145001; None is 100000, as is memory that is not there."""
    assert (0, 145001) == acl.mdl.load_from_file(script.save(nets.cosine()))
    acl.init()

    assert (0, 100000) == acl.mdl.load_from_file(None)
    assert (0, 100000) == acl.mdl.load_from_mem(0, 10)
    assert (0, 100000) == acl.mdl.load_from_mem(64, 10)


def test_model_from_memory(script):
    """A model's bytes in host memory load as well; numbers count from 1 and are not given again."""
    acl.init()
    data = nets.cosine().SerializeToString()
    pointer = acl.util.bytes_to_ptr(data)

    assert (1, 0) == acl.mdl.load_from_mem(pointer, len(data))
    assert 0 == acl.mdl.unload(1)
    assert (2, 0) == acl.mdl.load_from_mem(pointer, len(data))
    assert 145003 == acl.mdl.unload(1)


def test_results_are_those_of_the_model(script):
    """Results of execute are the results of the model, for every batch."""
    acl.init()
    model_id = script.load(nets.cosine())

    for batch in (1, 3):
        x = np.linspace(0, 1, 4 * batch, dtype=np.float32).reshape(batch, 4)
        ret, (y,) = script.run(model_id, x)
        assert 0 == ret
        assert np.allclose(np.cos(x), y, atol=1e-3)


def test_null_handles_are_refused(script):
    """Null handles are 100000 everywhere, and their values are 0."""
    acl.init()
    model_id = script.load(nets.cosine())
    dataset = acl.mdl.create_dataset()

    codes = [
        acl.mdl.get_desc(0, model_id),
        acl.mdl.destroy_desc(0),
        acl.mdl.destroy_dataset(0),
        acl.mdl.add_dataset_buffer(dataset, 0)[1],
        acl.mdl.add_dataset_buffer(0, 0)[1],
        acl.mdl.execute(model_id, 0, 0),
        acl.destroy_data_buffer(0),
        acl.rt.destroy_stream(0),
        acl.rt.synchronize_stream(17),
        acl.rt.destroy_context(None),
        acl.destroy_tensor_desc("x"),
        acl.op.destroy_attr(dataset),
    ]

    assert [100000] * len(codes) == codes
    assert (0, 0, 0) == (
        acl.mdl.get_dataset_num_buffers(0),
        acl.get_data_buffer_addr(0),
        acl.mdl.get_num_inputs(0),
    )


def test_handle_of_another_kind_is_refused(script, caplog):
    """A handle stands for one kind of object."""
    acl.init()

    assert 100000 == acl.destroy_data_buffer(acl.mdl.create_dataset())
    assert "is not a handle of a data buffer" in caplog.text


def test_description_tells_inputs_and_outputs(script):
    """Names, shapes, sizes, types and formats of inputs and outputs, -1 and 0 for open ones."""
    acl.init()
    model_id = script.load(nets.mini())
    desc = acl.mdl.create_desc()

    assert 0 == acl.mdl.get_desc(desc, model_id)
    assert (1, 1) == (acl.mdl.get_num_inputs(desc), acl.mdl.get_num_outputs(desc))
    assert ({"name": "x", "dims": [-1, 1, 6, 6], "dimCount": 4}, 0) == acl.mdl.get_input_dims(desc, 0)
    assert 0 == acl.mdl.get_input_size_by_index(desc, 0)
    assert (0, 0) == (acl.mdl.get_input_data_type(desc, 0), acl.mdl.get_input_format(desc, 0))
    assert (0, 2) == (acl.mdl.get_output_data_type(desc, 0), acl.mdl.get_output_format(desc, 0))
    assert ("x", "output") == (
        acl.mdl.get_input_name_by_index(desc, 0),
        acl.mdl.get_output_name_by_index(desc, 0),
    )
    assert ((0, 0), (0, 100000)) == (
        acl.mdl.get_input_index_by_name(desc, "x"),
        acl.mdl.get_input_index_by_name(desc, "y"),
    )
    assert (None, 100000) == acl.mdl.get_input_dims(desc, 1)


def test_description_knows_the_last_run(script):
    """Dimensions and sizes of outputs follow the last run."""
    acl.init()
    model_id = script.load(nets.mini())
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, model_id)

    script.run(model_id, np.zeros((2, 1, 6, 6), np.float32))

    assert [2, 3] == acl.mdl.get_cur_output_dims(desc, 0)[0]["dims"]
    assert 24 == acl.mdl.get_output_size_by_index(desc, 0)
    assert [-1, 3] == acl.mdl.get_output_dims(desc, 0)[0]["dims"]


OPEN = """<ir_version: 10, opset_import: ["": 20]> g (float number, float[] x) => (float[] y) {
    y = Add (x, number)
}"""


def test_number_of_dimensions_is_open(script):
    """Where the model leaves the number of dimensions open, sizes are 0, and the dataset says the shape."""
    acl.init()
    model_id = script.load(onnx.parser.parse_model(OPEN))
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, model_id)

    assert ({"name": "x", "dims": [-2], "dimCount": 1}, 0) == acl.mdl.get_input_dims(desc, 1)
    assert [-2] == acl.mdl.get_output_dims(desc, 0)[0]["dims"]
    assert [-2] == acl.mdl.get_cur_output_dims(desc, 0)[0]["dims"]
    assert (0, 0) == (acl.mdl.get_input_size_by_index(desc, 1), acl.mdl.get_output_size_by_index(desc, 0))
    assert (2, 2) == (acl.mdl.get_input_format(desc, 1), acl.mdl.get_output_format(desc, 0))

    one = np.ones(1, np.float32)
    inputs, outputs = dataset(one, one), dataset(one)
    assert 100017 == acl.mdl.execute(model_id, inputs, outputs)
    scalar = acl.create_tensor_desc(0, [], 2)
    assert (inputs, 0) == acl.mdl.set_dataset_tensor_desc(inputs, scalar, 1)
    assert 0 == acl.mdl.execute(model_id, inputs, outputs)
    assert [] == acl.mdl.get_cur_output_dims(desc, 0)[0]["dims"]
    assert 4 == acl.mdl.get_output_size_by_index(desc, 0)
