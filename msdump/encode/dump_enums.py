"""The numbers in CANN's dump files: OutputFormat and OutputDataType, and their names.

ACL and GE number formats the same way, but element types differently: ``dtypes.DType`` has both numbers.

    >>> FORMATS["NC1HWC0"], format_name(29), DATA_TYPES["FLOAT16"], data_type_name(27), format_name(99)
    (3, 'FRACTAL_NZ', 2, 'DT_BF16', '99')
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

# numbered from 0 in this order, by OutputFormat of toolkit.dumpdata
_FORMATS_FROM_0: Final = """
    NCHW NHWC ND NC1HWC0 FRACTAL_Z NC1C0HWPAD NHWC1C0 FSR_NCHW FRACTAL_DECONV C1HWNC0
    FRACTAL_DECONV_TRANSPOSE FRACTAL_DECONV_SP_STRIDE_TRANS NC1HWC0_C04 FRACTAL_Z_C04 CHWN
    FRACTAL_DECONV_SP_STRIDE8_TRANS HWCN NC1KHKWHWC0 BN_WEIGHT FILTER_HWCK
    HASHTABLE_LOOKUP_LOOKUPS HASHTABLE_LOOKUP_KEYS HASHTABLE_LOOKUP_VALUE HASHTABLE_LOOKUP_OUTPUT
    HASHTABLE_LOOKUP_HITS C1HWNCoC0 MD NDHWC FRACTAL_ZZ FRACTAL_NZ NCDHW DHWCN NDC1HWC0 FRACTAL_Z_3D
    CN NC DHWNC FRACTAL_Z_3D_TRANSPOSE FRACTAL_ZN_LSTM FRACTAL_Z_G RESERVED ALL NULL ND_RNN_BIAS
    FRACTAL_ZN_RNN YUV YUV_A NCL FRACTAL_Z_WINO C1HWC0
"""

# by OutputDataType; those from COMPLEX32 on are known to newer toolkits only
_DATA_TYPES_FROM_0: Final = """
    UNDEFINED FLOAT FLOAT16 INT8 UINT8 INT16 UINT16 INT32 INT64 UINT32 UINT64 BOOL DOUBLE STRING
    DUAL_SUB_INT8 DUAL_SUB_UINT8 COMPLEX64 COMPLEX128 QINT8 QINT16 QINT32 QUINT8 QUINT16 RESOURCE
    STRING_REF DUAL VARIANT BF16 INT4 UINT1 INT2 UINT2 COMPLEX32 HIFLOAT8 FLOAT8_E5M2 FLOAT8_E4M3FN
    FLOAT8_E8M0 FLOAT6_E3M2 FLOAT6_E2M3 FLOAT4_E2M1 FLOAT4_E1M2
"""

FORMATS: Final = MappingProxyType(
    {name: number for number, name in enumerate(_FORMATS_FROM_0.split())} | {"MAX": 255}
)
"""OutputFormat: number by name."""

DATA_TYPES: Final = MappingProxyType({name: number for number, name in enumerate(_DATA_TYPES_FROM_0.split())})
"""OutputDataType: number by name, without its ``DT_``."""

UNDEFINED: Final = DATA_TYPES["UNDEFINED"]
"""The data type of a tensor that has none here: plain bytes."""

ND: Final = FORMATS["ND"]

_FORMAT_NAMES: Final = {number: name for name, number in FORMATS.items()}
_DATA_TYPE_NAMES: Final = {number: name for name, number in DATA_TYPES.items()}


def format_name(number: int) -> str:
    """Return the name of a format, ``NC1HWC0``; the digits of a number that has none."""
    return _FORMAT_NAMES.get(number, str(number))


def data_type_name(number: int) -> str:
    """Return the name of a data type, ``DT_FLOAT16``; the digits of a number that has none."""
    name = _DATA_TYPE_NAMES.get(number)
    return str(number) if name is None else f"DT_{name}"
