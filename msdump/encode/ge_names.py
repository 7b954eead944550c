"""Names in GE's models that stand for the original network, for the rooms that write and read them."""

from __future__ import annotations

from typing import Final

DATA: Final = "Data"
"""Type of the operator that stands for an input of a network."""

NET_OUTPUT: Final = "NetOutput"
"""Type of the operator that stands for the outputs of a network."""

ORIGINAL_NAMES: Final = "_datadump_original_op_names"
"""Attribute of an operator: names of the operators of the original network that it stands for."""

IS_PART_OF_SEVERAL: Final = "_datadump_is_multiop"
"""Attribute of an operator: it is one of several that stand for one of the original network."""

ORIGIN_NAME: Final = "_datadump_origin_name"
ORIGIN_INDEX: Final = "_datadump_origin_output_index"
ORIGIN_DTYPE: Final = "_datadump_origin_data_type"
ORIGIN_FORMAT: Final = "_datadump_origin_format"
"""Attributes of an output: name of the original operator, number, type and format of its output."""

HOST_FORMAT: Final = "origin_format"
HOST_SHAPE: Final = "origin_shape"
"""Attributes of an input or output: format and shape as the model has them."""
