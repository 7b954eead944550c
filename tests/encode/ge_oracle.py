"""GE's ModelDef by google.protobuf: reads ge_proto files."""

from google.protobuf import text_format

from tests.encode.dump_oracle import message_class

DATA_TYPES = (
    "UNDEFINED FLOAT FLOAT16 INT8 UINT8 INT16 UINT16 INT32 INT64 UINT32 UINT64 BOOL DOUBLE STRING"
    " DUAL_SUB_INT8 DUAL_SUB_UINT8 COMPLEX64 COMPLEX128 QINT8 QINT16 QINT32 QUINT8 QUINT16 RESOURCE"
    " STRING_REF DUAL VARIANT BF16 INT4 UINT1"
)
LIST_TYPES = "NONE STRING INT FLOAT BOOL BYTES TENSOR_DESC TENSOR GRAPH NAMED_ATTRS DATA_TYPE"

PROTO = """
ListValue s=2:bytes* i=3:int64* f=4:float* b=5:bool* bt=7:bytes* val_type=20:ListType
AttrDef list=1:ListValue s=2:bytes i=3:int64 f=4:float b=5:bool bt=7:bytes t=12:TensorDef
Entry key=1:string value=2:AttrDef
ShapeDef dim=1:int64*
TensorDescriptor name=1:string dtype=2:DataType shape=3:ShapeDef layout=4:string attr=5:Entry* size=10:int64
    device_type=14:string
TensorDef desc=1:TensorDescriptor data=2:bytes
OpDef name=1:string type=2:string input=5:string* attr=10:Entry* id=21:int64 stream_id=22:int64
    input_desc=33:TensorDescriptor* output_desc=34:TensorDescriptor* subgraph_name=35:string*
GraphDef name=1:string input=4:string* output=5:string* op=6:OpDef* attr=11:Entry*
ModelDef name=1:string version=2:uint32 graph=7:GraphDef*
"""
ModelDef = message_class(
    "ge.proto", PROTO, "ModelDef", {"DataType": ("DT_", DATA_TYPES), "ListType": ("VT_LIST_", LIST_TYPES)}
)


def parsed(data):
    """Return the ModelDef of a text."""
    return text_format.Parse(data.decode(), ModelDef())


def attributes(holder):
    """Return the attributes of an operator or a tensor: lists, or the one field that is set."""
    plain_values = {}
    for entry in holder.attr:
        field = entry.value.WhichOneof("value")
        value = getattr(entry.value, field)
        if field == "list":
            items = [item for kind, item in value.ListFields() if kind.name != "val_type"]
            value = [_plain(part) for part in items[0]] if items else []
        plain_values[entry.key] = _plain(value)
    return plain_values


def _plain(value):
    return value.decode() if isinstance(value, bytes) else value
