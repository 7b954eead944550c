"""Operators called alone through pyACL, on arrays."""

import ml_dtypes
import numpy as np

from msdump import acl
from tests.frontends.acl.script import fetched, sent

FLOAT, HALF, INT8, INT32, UINT8, INT64, DOUBLE, BOOL, BF16 = 0, 1, 2, 3, 4, 9, 11, 12, 27
ND = 2
TYPES = {
    np.dtype(np.float32): FLOAT,
    np.dtype(np.float16): HALF,
    np.dtype(np.int8): INT8,
    np.dtype(np.int32): INT32,
    np.dtype(np.uint8): UINT8,
    np.dtype(np.int64): INT64,
    np.dtype(np.float64): DOUBLE,
    np.dtype(bool): BOOL,
    np.dtype(ml_dtypes.bfloat16): BF16,
}


def call(op_type, inputs, output, attr=0, stream=0):
    """Run an operator on arrays; return the codes of call and stream, and the output as it was described."""
    ret, failure, results = call_several(op_type, inputs, [output], attr, stream)
    return ret, failure, results[0]


def call_several(op_type, inputs, outputs, attr=0, stream=0, formats=()):
    """Run an operator on arrays; return the codes of call and stream, and its outputs."""
    input_formats = [*formats, *[ND] * len(inputs)]
    descs = [
        acl.create_tensor_desc(TYPES[array.dtype], array.shape, number)
        for array, number in zip(inputs, input_formats, strict=False)
    ]
    buffers = [acl.create_data_buffer(sent(array), array.nbytes) for array in inputs]
    output_types = [(np.dtype(dtype), shape) for dtype, shape in outputs]
    out_descs = [acl.create_tensor_desc(TYPES[dtype], shape, ND) for dtype, shape in output_types]
    sizes = [acl.get_tensor_desc_size(desc) for desc in out_descs]
    addresses = [acl.rt.malloc(size, 0)[0] if size else 0 for size in sizes]
    outs = [acl.create_data_buffer(*place) for place in zip(addresses, sizes, strict=True)]
    ret = acl.op.execute_v2(op_type, descs, buffers, out_descs, outs, attr, stream)
    failure = acl.rt.synchronize_stream(stream)
    data = [fetched(*place) if place[1] else b"" for place in zip(addresses, sizes, strict=True)]
    return (
        ret,
        failure,
        [
            np.frombuffer(part, dtype).reshape(shape)
            for part, (dtype, shape) in zip(data, output_types, strict=True)
        ],
    )


def attributes(**values):
    """Return a handle of attributes, 0 for none."""
    if not values:
        return 0
    attr = acl.op.create_attr()
    for name, value in values.items():
        assert 0 == getattr(acl.op, f"set_attr_{_kind(value)}")(attr, name, value)
    return attr


def _kind(value):
    if isinstance(value, list):
        return f"list_{_kind(value[0])}" if value else "list_int"
    return "string" if isinstance(value, str) else type(value).__name__
