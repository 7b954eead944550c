"""``acl.mdl``: loads models, describes them, runs them and configures their dump.

As all of pyACL, the functions return codes, 0 for success, and never raise.
"""

from __future__ import annotations

from msdump.frontends.acl.mdl.datasets import (
    add_dataset_buffer,
    create_dataset,
    destroy_dataset,
    get_dataset_buffer,
    get_dataset_num_buffers,
    set_dataset_tensor_desc,
)
from msdump.frontends.acl.mdl.descriptions import (
    create_desc,
    destroy_desc,
    get_cur_output_dims,
    get_desc,
    get_input_data_type,
    get_input_dims,
    get_input_format,
    get_input_index_by_name,
    get_input_name_by_index,
    get_input_size_by_index,
    get_num_inputs,
    get_num_outputs,
    get_output_data_type,
    get_output_dims,
    get_output_format,
    get_output_index_by_name,
    get_output_name_by_index,
    get_output_size_by_index,
)
from msdump.frontends.acl.mdl.dumping import (
    finalize_dump,
    init_dump,
    set_dump,
)
from msdump.frontends.acl.mdl.loading import (
    load_from_file,
    load_from_mem,
    unload,
)
from msdump.frontends.acl.mdl.running import (
    execute,
    execute_async,
)

__all__ = [
    "add_dataset_buffer",
    "create_dataset",
    "create_desc",
    "destroy_dataset",
    "destroy_desc",
    "execute",
    "execute_async",
    "finalize_dump",
    "get_cur_output_dims",
    "get_dataset_buffer",
    "get_dataset_num_buffers",
    "get_desc",
    "get_input_data_type",
    "get_input_dims",
    "get_input_format",
    "get_input_index_by_name",
    "get_input_name_by_index",
    "get_input_size_by_index",
    "get_num_inputs",
    "get_num_outputs",
    "get_output_data_type",
    "get_output_dims",
    "get_output_format",
    "get_output_index_by_name",
    "get_output_name_by_index",
    "get_output_size_by_index",
    "init_dump",
    "load_from_file",
    "load_from_mem",
    "set_dataset_tensor_desc",
    "set_dump",
    "unload",
]
