"""The JSON Schema of configuration files."""

import json

from msdump.config.models import BLOCKS
from msdump.config.reference import schema_text


def test_every_key_is_described_and_required_keys_are_marked():
    """An editor can explain every key and demand the required ones."""
    definitions = json.loads(schema_text())["$defs"]

    for model in BLOCKS.values():
        described = definitions[model.__name__]["properties"]
        assert list(model.model_fields) == list(described)
        assert all(entry["description"] for entry in described.values())
    assert {"dump_mode", "net_name", "iteration", "input_output", "kernels", "support_device"} == set(
        definitions["CommonDumpSettings"]["required"]
    )
