"""Work by several processes."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from msdump.errors import ToolError
from msdump.tools import parallel

MUCH = 1 << 40


def scaled(factor, number):
    """Return a product, and the process that made it."""
    return number * factor, os.getpid()


def failing(number):
    """Refuse the number 3."""
    if number == 3:
        raise ValueError(f"no {number}")
    return number


def test_results_have_the_order_of_the_items():
    """Results of several processes come in the order of the items."""
    results = list(parallel.each(partial(scaled, 2), range(50), amount=MUCH, jobs=2))

    assert [2 * number for number in range(50)] == [product for product, _ in results]
    assert os.getpid() not in {process for _, process in results}


@pytest.mark.parametrize(("amount", "jobs"), [(0, 2), (MUCH, 1)], ids=["little work", "one job"])
def test_little_work_stays_in_this_process(amount, jobs):
    """No process is started where it would cost more than it saves, or where one is asked for."""
    results = list(parallel.each(partial(scaled, 2), [1, 2, 3], amount=amount, jobs=jobs))

    assert [(2, os.getpid()), (4, os.getpid()), (6, os.getpid())] == results


def test_error_of_a_process_is_raised():
    """An exception in another process is raised where the results are taken."""
    with pytest.raises(ValueError, match="no 3"):
        list(parallel.each(failing, range(10), amount=MUCH, jobs=2))


def killed(_number):
    """End the process as the system does where memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_killed_process_is_told():
    """A process that the system kills is an error that says what may help."""
    with pytest.raises(ToolError, match=r"a process was killed while it worked, .*; try --jobs 1"):
        list(parallel.each(killed, range(4), amount=MUCH, jobs=2))


def test_nothing_to_do():
    """Without items there are no results."""
    assert [] == list(parallel.each(failing, [], amount=MUCH))
