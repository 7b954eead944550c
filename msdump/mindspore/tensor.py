"""MindSpore's ``Tensor`` and ``Parameter``: thin holders of numpy arrays; and its element types."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.errors import FormatError, InputError
from msdump.execute import unmasked

bool_: Final = dtypes.from_name("bool").numpy
int8: Final = dtypes.from_name("int8").numpy
int16: Final = dtypes.from_name("int16").numpy
int32: Final = dtypes.from_name("int32").numpy
int64: Final = dtypes.from_name("int64").numpy
uint8: Final = dtypes.from_name("uint8").numpy
uint16: Final = dtypes.from_name("uint16").numpy
uint32: Final = dtypes.from_name("uint32").numpy
uint64: Final = dtypes.from_name("uint64").numpy
float16: Final = dtypes.from_name("float16").numpy
bfloat16: Final = dtypes.from_name("bfloat16").numpy
float32: Final = dtypes.from_name("float32").numpy
float64: Final = dtypes.from_name("float64").numpy


class Tensor:
    """A tensor of MindSpore's, which holds an array.

    Numbers of Python become int64 and float32, as MindSpore converts them.
    """

    __slots__ = ("_array",)

    def __init__(self, input_data: Any, dtype: Any = None) -> None:
        """Hold an array, or data that numpy converts to one.

        Args:
            input_data: An array, a tensor, a number, or nested lists of numbers.
            dtype: Element type; None: that of the array, of numbers int64, float32 or bool.

        Raises:
            InputError: No array of numbers.
        """
        array = (
            input_data.asnumpy()
            if isinstance(input_data, Tensor)
            else np.asarray(unmasked(input_data, "Tensor: "))
        )
        if dtype is None and not isinstance(input_data, (np.ndarray, np.generic, Tensor)):
            dtype = {"f": np.float32, "i": np.int64}.get(array.dtype.kind)
        try:
            self._array = array if dtype is None else array.astype(dtype)
            kind = dtypes.from_numpy(self._array.dtype)
        except (FormatError, TypeError, ValueError) as error:
            raise InputError(f"Tensor: an array of {array.dtype} is no tensor: {error}") from error
        if kind is dtypes.STRING:
            raise InputError(f"Tensor: an array of {array.dtype} is no tensor; give numbers")

    @classmethod
    def from_numpy(cls, array: np.ndarray) -> Tensor:
        """Return a tensor that holds an array."""
        return cls(array)

    def asnumpy(self) -> np.ndarray:
        """Return the array."""
        return self._array

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each axis."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        return self._array.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:  # noqa: FBT001 - numpy's
        """Return the array, for numpy's functions."""
        return np.array(self._array, dtype, copy=copy)

    def __repr__(self) -> str:
        """Show shape, type and value, as MindSpore does."""
        kind = dtypes.from_numpy(self.dtype).title
        return f"Tensor(shape={list(self.shape)}, dtype={kind}, value=\n{self._array})"


class Parameter(Tensor):
    """A weight."""

    __slots__ = ("name",)

    def __init__(self, default_input: Any, name: str = "") -> None:
        super().__init__(default_input)
        self.name = name  # its name in the network
