"""The order in which MindSpore runs the kernels of a graph, and the one in which it numbers them."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from msdump.graph.mindir.kernels import Kernel, Operand, flattened

_T = TypeVar("_T")


def depth_first(starts: Iterable[_T], before: Callable[[_T], Iterable[_T]]) -> list[_T]:
    """Return all nodes that some nodes need, each behind the nodes that it needs directly."""
    done: list[_T] = []
    seen: set[_T] = set()
    for start in starts:
        if start in seen:
            continue
        seen.add(start)
        path = [(start, iter(before(start)))]
        while path:
            node, rest = path[-1]
            ahead = next((item for item in rest if item not in seen), None)
            if ahead is None:
                done.append(node)
                path.pop()
            else:
                seen.add(ahead)
                path.append((ahead, iter(before(ahead))))
    return done


def post_order(results: Iterable[Operand], *, from_last: bool = False) -> list[Kernel]:
    """Return nodes depth first, each behind its operands, which are visited from first to last or back."""

    def kernels(operands: Iterable[Operand]) -> Iterator[Kernel]:
        return (item for item in operands if isinstance(item, Kernel))

    step = -1 if from_last else 1
    return depth_first(kernels(results), lambda node: kernels(node.inputs[::step]))


def execution_order(results: Sequence[Operand]) -> list[Kernel]:  # noqa: C901, PLR0912, PLR0915 - its steps
    """Return the kernels that some results need, in the order in which MindSpore runs them.

    Users of each node are collected breadth first from the return; then nodes with ready operands run,
    nodes that only group values or have a single user at once. (MindSpore's ``ExecOrderBuilder``.)
    """
    top = results[0]
    if len(results) != 1 or not (isinstance(top, Kernel) and top.op_type == "MakeTuple"):
        top = Kernel("MakeTuple", "", list(results), (), runs=False)
    end = Kernel("Return", "", [top], (), runs=False)
    trivial: set[Kernel] = set()  # nodes that need no kernel: they group constants and weights alone
    for node in post_order([end]):
        if not node.runs and all(not isinstance(item, Kernel) or item in trivial for item in node.inputs):
            trivial.add(node)

    def operands(node: Kernel) -> list[Kernel]:
        # a kernel takes the members of tuples itself
        items = [each for item in node.inputs for each in flattened(item)] if node.runs else node.inputs
        return [item for item in items if isinstance(item, Kernel) and item not in trivial]

    users: dict[Kernel, list[Kernel]] = defaultdict(list)
    waiting: Counter[Kernel] = Counter()  # operands that have not run
    unused: Counter[Kernel] = Counter()  # uses that have not been visited
    queue = deque([end])
    while queue:
        node = queue.popleft()
        for item in operands(node):
            if item not in unused:
                queue.append(item)
            users[item].append(node)
            waiting[node] += 1
            unused[item] += 1

    # nodes without operands start; all but the last wait for kernels that are visited behind them
    starts: list[Kernel] = []
    kernels: deque[Kernel] = deque()
    virtual = deque([end])
    while kernels or virtual:
        node = virtual.popleft() if virtual else kernels.popleft()
        items = operands(node)
        for item in reversed(items):
            unused[item] -= 1
            if unused[item]:
                continue
            (kernels if item.runs else virtual).append(item)
            if item.runs and starts:
                late = starts.pop()
                users[item].append(late)
                waiting[late] += 1
        if not items:
            starts.append(node)

    done: list[Kernel] = []
    while starts:
        ready = deque([starts.pop()])
        while ready:
            node = ready.popleft()
            if node.runs:
                done.append(node)
            readers = users.get(node, [])
            for reader in readers:
                if waiting[reader] == 0:
                    continue
                waiting[reader] -= 1
                if waiting[reader]:
                    continue
                if not reader.runs or len(readers) == 1:
                    ready.appendleft(reader)
                else:
                    ready.append(reader)
    return done
