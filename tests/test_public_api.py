"""The public interface: its names, and that importing them costs nothing before they are used."""

import importlib.metadata
import sys

import pytest

import msdump
from msdump.frontends import mindspore
from msdump.read import open_dump
from msdump.session import Network
from tests.world import GRAPHS, completed

BODIES = "msdump.graph.primitives.body"
HEAVY = (
    *("click", "google.protobuf", "ml_dtypes", "numpy", "onnx", "onnxruntime", "pydantic", "rich", "torch"),
    BODIES,
)


def loaded_by(code):
    """Return the heavy libraries and rooms that a fresh interpreter has loaded after some code."""
    script = f"import sys\n{code}\nprint(*sorted(sys.modules.keys() & set({HEAVY!r})))"
    done = completed(sys.executable, "-c", script, check=True)
    return done.stdout.split()


def test_public_names_are_these():
    """A name comes or goes only on purpose."""
    assert [
        *(
            "LossMonitor",
            "Model",
            "Network",
            "ProgressBar",
            "__version__",
            "acl",
            "communication",
        ),
        *(
            "data_sink",
            "dump_start",
            "dump_step",
            "dump_stop",
            "load",
            "open_dump",
            "set_context",
        ),
        *("set_dump", "set_init_iter", "torch", "torchair", "training"),
    ] == msdump.__all__


def test_public_names_are_what_they_say():
    """Each name is the object of the module it lives in, and dir() lists them all."""
    assert (Network, open_dump) == (msdump.Network, msdump.open_dump)
    assert (mindspore.load, mindspore.set_context, mindspore.set_dump) == (
        msdump.load,
        msdump.set_context,
        msdump.set_dump,
    )
    assert sorted(msdump.__all__) == dir(msdump)


def test_unknown_name_is_refused():
    """A name that does not exist is an AttributeError that names it."""
    with pytest.raises(AttributeError, match="module 'msdump' has no attribute 'save'"):
        msdump.save  # noqa: B018 - the access is the test


def test_version_is_that_of_the_package():
    """__version__ and the installed metadata agree."""
    assert importlib.metadata.version("msdump") == msdump.__version__


def test_import_loads_no_heavy_library():
    """``import msdump`` is light."""
    assert loaded_by("import msdump") == []


def test_reading_a_dump_loads_no_runtime():
    """``open_dump`` needs numpy, but neither onnx nor onnxruntime nor pydantic."""
    assert {"ml_dtypes", "numpy"} >= set(loaded_by("import msdump; msdump.open_dump"))


def test_configuring_torchair_loads_no_library():
    """``CompilerConfig`` can be set up without torch and the rooms that run networks."""
    assert [] == loaded_by("from msdump import torchair; torchair.CompilerConfig()")


def test_loading_a_model_loads_no_bodies():
    """A model without MindSpore's operators is loaded without their bodies; their table loads all."""
    model = GRAPHS / "mini.onnx"

    assert BODIES not in loaded_by(f"import msdump; msdump.load({str(model)!r})")
    assert BODIES in loaded_by("from msdump.graph.primitives import OPERATORS; OPERATORS['MatMul']")
