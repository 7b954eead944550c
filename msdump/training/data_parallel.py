"""Data parallel training: gradients are averaged over the ranks before the optimizer takes them.

As ``DistributedGradReducer`` does it: an AllReduce of each gradient, or of a bucket of several, and a product
with 1 / number of ranks. It lies in the scope ``Default/grad_reducer-DistributedGradReducer``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msdump.communication import current
from msdump.errors import InputError
from msdump.graph.primitives import op
from msdump.training.single_numbers import by_number
from msdump.training.variables import Trained
from msdump.training.writer import ROOT, StepTensor

PLACE = ROOT.inside(("grad_reducer", "DistributedGradReducer"))


@dataclass(frozen=True, slots=True)
class DataParallel:
    """How gradients are averaged.

    Attributes:
        ranks: Number of ranks.
        bucket_bytes: Largest size of gradients that are reduced together, 0: each gradient by itself.
        group: Name of the group of ranks.
    """

    ranks: int
    bucket_bytes: int = 0
    group: str = "hccl_world_group"

    def write(self, trained: Trained) -> Trained:
        """Write the operators that average gradients; return (parameter, averaged gradient) pairs."""
        with op.at(PLACE):
            means: list[StepTensor] = []
            for bucket in self._buckets([gradient for _, gradient in trained]):
                means += self._reduced(bucket)
        return [(variable, mean) for (variable, _), mean in zip(trained, means, strict=True)]

    def _buckets(self, gradients: Sequence[StepTensor]) -> Iterator[list[StepTensor]]:
        """Yield buckets: consecutive gradients of one type; a gradient above the size has its own bucket."""
        bucket: list[StepTensor] = []
        size = 0
        for gradient in gradients:
            length = math.prod(gradient.sizes()) * gradient.dtype.numpy.itemsize
            if bucket and (size + length > self.bucket_bytes or gradient.dtype is not bucket[0].dtype):
                yield bucket
                bucket, size = [], 0
            bucket.append(gradient)
            size += length
        if bucket:
            yield bucket

    def _reduced(self, bucket: Sequence[StepTensor]) -> list[StepTensor]:
        if len(bucket) == 1:
            return [self._mean(bucket[0])]
        flat = op.Concat(*(op.call("Reshape", item, shape=(-1,)) for item in bucket), axis=0)
        lengths = [math.prod(item.sizes()) for item in bucket]
        parts = op.Split(self._mean(flat), lengths, axis=0, outputs=len(bucket))
        return [
            op.call("Reshape", part, like=item, shape=item.sizes())
            for part, item in zip(parts, bucket, strict=True)
        ]

    def _mean(self, gradient: StepTensor) -> StepTensor:
        return by_number("Mul", self.total(gradient), 1.0 / self.ranks)

    def total(self, tensor: StepTensor) -> StepTensor:
        """Write the sum of a tensor over the ranks."""
        return op.without_body("AllReduce", tensor, op="sum", group=self.group)


def data_parallel_of(choice: bool | int | DataParallel) -> DataParallel | None:  # noqa: FBT001 - on, off, or how
    """Return how gradients are averaged: True: over the ranks of this run, False: None, no averaging.

    Raises:
        InputError: A number of ranks below 1.
    """
    if isinstance(choice, DataParallel):
        return choice
    if choice is False:
        return None
    ranks = current().identity.size if choice is True else choice
    if ranks < 1:
        raise InputError(f"data_parallel={choice}: must be a number of ranks from 1")
    return DataParallel(ranks)
