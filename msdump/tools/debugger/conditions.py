"""The conditions of MindInsight's debugger, each one of the conditions of watch rules."""

from __future__ import annotations

from typing import ClassVar

from msdump.config import watch
from msdump.watch.rules import WatchRule


class ConditionBase:
    """A condition on tensors.

    Attributes:
        name: Its name, ``TensorTooLarge``.
        condition_id: Its number in MindInsight.
    """

    name: ClassVar[str] = ""
    condition_id: ClassVar[int] = 0
    _rule: ClassVar[str] = ""

    def __init__(self, **parameters: float | None) -> None:
        """Set the parameters that are not None.

        Raises:
            ConfigValueError: None is given where one has to be, or one has a wrong value.
        """
        self._parameters = {name: value for name, value in parameters.items() if value is not None}
        if self._rule:
            self.rule()

    @property
    def param_dict(self) -> dict[str, float]:
        """The parameters that are set, by name."""
        return dict(self._parameters)

    @property
    def param_names(self) -> list[str]:
        """Names of all parameters."""
        return [name for name in type(self).__init__.__annotations__ if name != "return"]

    def rule(self, name: str = "") -> WatchRule:
        """Return the watch rule that says the same of any output.

        Args:
            name: What its hits are told under, "" for the condition's name.

        Raises:
            ConfigValueError: A parameter is missing or has a wrong value.
        """
        return watch.rule(
            {"condition": self._rule, "name": name or self._rule, **self._parameters}, self.name
        )

    def __str__(self) -> str:
        """Return the parameters."""
        return str(self.param_dict)

    def __repr__(self) -> str:
        """Return name and parameters."""
        parameters = ", ".join(f"{name}={value}" for name, value in self._parameters.items())
        return f"{type(self).__name__}({parameters})"


class TensorTooLargeCondition(ConditionBase):
    """A tensor is too large: one of the given limits is passed."""

    name = "TensorTooLarge"
    condition_id = 15
    _rule = "tensor_too_large"

    def __init__(
        self,
        abs_mean_gt: float | None = None,
        max_gt: float | None = None,
        min_gt: float | None = None,
        mean_gt: float | None = None,
    ) -> None:
        """Set the limits; at least one has to be given.

        Args:
            abs_mean_gt: A hit where the mean of the absolute values is above it.
            max_gt: A hit where the largest element is.
            min_gt: A hit where the smallest element is.
            mean_gt: A hit where the mean is.

        Raises:
            ConfigValueError: None is given, or a wrong value.
        """
        super().__init__(abs_mean_gt=abs_mean_gt, max_gt=max_gt, min_gt=min_gt, mean_gt=mean_gt)


class TensorTooSmallCondition(ConditionBase):
    """A tensor is too small: one of the given limits is passed."""

    name = "TensorTooSmall"
    condition_id = 16
    _rule = "tensor_too_small"

    def __init__(
        self,
        abs_mean_lt: float | None = None,
        max_lt: float | None = None,
        min_lt: float | None = None,
        mean_lt: float | None = None,
    ) -> None:
        """Set the limits; at least one has to be given.

        Args:
            abs_mean_lt: A hit where the mean of the absolute values is below it.
            max_lt: A hit where the largest element is.
            min_lt: A hit where the smallest element is.
            mean_lt: A hit where the mean is.

        Raises:
            ConfigValueError: None is given, or a wrong value.
        """
        super().__init__(abs_mean_lt=abs_mean_lt, max_lt=max_lt, min_lt=min_lt, mean_lt=mean_lt)


class TensorRangeCondition(ConditionBase):
    """Too many or too few elements lie in a range, or largest and smallest are too near or too far apart."""

    name = "TensorRange"
    condition_id = 21
    _rule = "tensor_range"

    def __init__(  # noqa: PLR0917 - MindInsight's signature
        self,
        range_start_inclusive: float | None = None,
        range_end_inclusive: float | None = None,
        range_percentage_lt: float | None = None,
        range_percentage_gt: float | None = None,
        max_min_lt: float | None = None,
        max_min_gt: float | None = None,
    ) -> None:
        """Set the limits; at least one of the last four has to be given.

        Args:
            range_start_inclusive: Start of the range, for the two percentages.
            range_end_inclusive: Its end.
            range_percentage_lt: A hit where less of the elements lie in the range, in percent.
            range_percentage_gt: A hit where more of them do.
            max_min_lt: A hit where the largest less the smallest element is below it.
            max_min_gt: A hit where that is above it.

        Raises:
            ConfigValueError: No limit is given, or a range without start and end, or a wrong value.
        """
        super().__init__(
            range_start_inclusive=range_start_inclusive,
            range_end_inclusive=range_end_inclusive,
            range_percentage_lt=range_percentage_lt,
            range_percentage_gt=range_percentage_gt,
            max_min_lt=max_min_lt,
            max_min_gt=max_min_gt,
        )


class TensorOverflowCondition(ConditionBase):
    """An element is NaN or infinite."""

    name = "TensorOverflow"
    condition_id = 13
    _rule = "tensor_overflow"

    def __init__(self) -> None:
        """Set nothing."""
        super().__init__()


class OperatorOverflowCondition(ConditionBase):
    """The operator overflowed while it computed: the dump holds the device's record of it (``Opdebug``)."""

    name = "OperatorOverflow"
    condition_id = 2

    def __init__(self) -> None:
        """Set nothing."""
        super().__init__()


class TensorAllZeroCondition(ConditionBase):
    """Too many elements are zero."""

    name = "TensorAllZero"
    condition_id = 17
    _rule = "tensor_all_zero"

    def __init__(self, zero_percentage_ge: float) -> None:
        """Set the limit.

        Args:
            zero_percentage_ge: A hit where at least so many elements are zero, in percent.

        Raises:
            ConfigValueError: It is no number from 0 to 100.
        """
        super().__init__(zero_percentage_ge=zero_percentage_ge)


class TensorUnchangedCondition(ConditionBase):
    """A tensor is what it was in the step before, but for rounding."""

    name = "TensorUnchanged"
    condition_id = 20
    _rule = "tensor_not_changed"

    def __init__(self, rtol: float = 1e-5, atol: float = 1e-8) -> None:
        """Set what counts as unchanged: ``|now - before| <= atol + rtol * |before|`` for every element.

        Args:
            rtol: The relative part.
            atol: The absolute part.

        Raises:
            ConfigValueError: One is no number from 0.
        """
        super().__init__(rtol=rtol, atol=atol)


class TensorChangeBelowThresholdCondition(ConditionBase):
    """A tensor changed too little since the step before."""

    name = "TensorChangeBelowThreshold"
    condition_id = 19
    _rule = "tensor_change_too_small"

    def __init__(self, abs_mean_update_ratio_lt: float, epsilon: float = 1e-9) -> None:
        """Set the limit.

        Args:
            abs_mean_update_ratio_lt: A hit where the mean absolute change, divided by the mean absolute value
                before, is below it.
            epsilon: Added to what the change is divided by.

        Raises:
            ConfigValueError: One is no number from 0.
        """
        super().__init__(abs_mean_update_ratio_lt=abs_mean_update_ratio_lt, epsilon=epsilon)


class TensorChangeAboveThresholdCondition(ConditionBase):
    """A tensor changed too much since the step before."""

    name = "TensorChangeAboveThreshold"
    condition_id = 18
    _rule = "tensor_change_too_large"

    def __init__(self, abs_mean_update_ratio_gt: float, epsilon: float = 1e-9) -> None:
        """Set the limit.

        Args:
            abs_mean_update_ratio_gt: A hit where the mean absolute change, divided by the mean absolute value
                before, is above it.
            epsilon: Added to what the change is divided by.

        Raises:
            ConfigValueError: One is no number from 0.
        """
        super().__init__(abs_mean_update_ratio_gt=abs_mean_update_ratio_gt, epsilon=epsilon)
