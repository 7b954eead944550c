"""The steps of a pyACL script, with the dump that it leaves."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msdump import acl
from msdump.encode import dump_data

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
TIME = re.compile(r"(?<![0-9])[0-9]{14}(?=/)")
TIMESTAMP = re.compile(r"\.[0-9]{16}(?=\.csv$|$)")


@dataclass
class Script:
    """One pyACL script."""

    folder: Path  # a directory of the test; the dump goes to its ``dump``

    @property
    def path(self):
        """Root of the dump."""
        return self.folder / "dump"

    def configure(self, section=None, *, name="acl.json", text=None, **top):
        """Write an acl.json with a dump to ``path``; return its path."""
        self.path.mkdir(exist_ok=True)
        section_written = {"dump_path": str(self.path)} | (section or {})
        if section_written["dump_path"] is None:
            del section_written["dump_path"]
        file = self.folder / name
        file.write_text(json.dumps({"dump": section_written, **top}) if text is None else text)
        return str(file)

    def begin(self, section=None, **top):
        """Initialise and set a dump."""
        assert 0 == acl.init()
        assert 0 == acl.rt.set_device(0)
        assert 0 == acl.mdl.init_dump()
        assert 0 == acl.mdl.set_dump(self.configure(section, **top))

    def save(self, proto, name="net"):
        """Write a model; return its path."""
        file = self.folder / f"{name}.onnx"
        file.write_bytes(proto.SerializeToString())
        return str(file)

    def load(self, model, name="net"):
        """Load a model from its file; return its number."""
        path = str(model) if isinstance(model, (str, Path)) else self.save(model, name)
        model_id, ret = acl.mdl.load_from_file(path)
        assert 0 == ret
        return model_id

    def run(self, model_id, *arrays):
        """Run a model on arrays; return code and outputs."""
        inputs, outputs = dataset(*arrays), acl.mdl.create_dataset()
        desc = acl.mdl.create_desc()
        assert 0 == acl.mdl.get_desc(desc, model_id)
        buffers = [acl.create_data_buffer(0, 0) for _ in range(acl.mdl.get_num_outputs(desc))]
        for buffer in buffers:
            assert 0 == acl.mdl.add_dataset_buffer(outputs, buffer)[1]
        ret = acl.mdl.execute(model_id, inputs, outputs)
        results = (
            [self._result(desc, index, buffer) for index, buffer in enumerate(buffers)] if not ret else []
        )
        return ret, results

    def _result(self, desc, index, buffer):
        """Return an output as an array of float32."""
        dims = acl.mdl.get_cur_output_dims(desc, index)[0]["dims"]
        data = fetched(acl.get_data_buffer_addr(buffer), acl.get_data_buffer_size(buffer))
        return np.frombuffer(data, np.float32).reshape(dims)

    def files(self, below=""):
        """Return the paths of the dump's files, sorted, with ``{time}`` and without timestamps."""
        root = self.path / below
        paths = (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        return sorted(TIMESTAMP.sub("", TIME.sub("{time}", name)) for name in paths)

    def read(self, pattern):
        """Return header and tensors of the one file that a pattern finds."""
        (path,) = self.path.rglob(pattern)
        return read(path)


def dataset(*arrays):
    """Return a dataset with arrays in device memory."""
    handle = acl.mdl.create_dataset()
    for array in arrays:
        acl.mdl.add_dataset_buffer(handle, acl.create_data_buffer(sent(array), array.nbytes))
    return handle


def sent(array):
    """Return the address of a copy of an array in device memory."""
    address, ret = acl.rt.malloc(array.nbytes, 0)
    assert 0 == ret
    data = array.tobytes()
    pointer = acl.util.bytes_to_ptr(data)
    assert 0 == acl.rt.memcpy(address, len(data), pointer, len(data), HOST_TO_DEVICE)
    return address


def fetched(address, size):
    """Return bytes of device memory."""
    host, ret = acl.rt.malloc_host(size)
    assert 0 == ret
    assert 0 == acl.rt.memcpy(host, size, address, size, DEVICE_TO_HOST)
    data = acl.util.ptr_to_bytes(host, size)
    assert 0 == acl.rt.free_host(host)
    return data


def read(path):
    """Return header and tensors of a dump file by section and index."""
    view = memoryview(path.read_bytes())
    header, offset = dump_data.read_header(view, str(path))
    return header, {
        (block.section, block.index): dump_data.tensor(block.info, view[block.offset : block.end])
        for block in dump_data.blocks(header, offset)
        if block.section in {"input", "output"}
    }
