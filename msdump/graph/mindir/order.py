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
    """Return nodes depth first, each behind its operands.

    Args:
        results: Results of the graph.
        from_last: Visit the operands of a node from the last to the first.
    """

    def operands(node: Kernel) -> Iterator[Kernel]:
        return _kernels(node.inputs[::-1] if from_last else node.inputs)

    return depth_first(_kernels(results), operands)


def _kernels(operands: Iterable[Operand]) -> Iterator[Kernel]:
    return (item for item in operands if isinstance(item, Kernel))


def execution_order(results: Sequence[Operand]) -> list[Kernel]:
    """Return the kernels that some results need, in the order in which MindSpore runs them.

    Users of each node are collected breadth first from the return; then nodes with ready operands run,
    nodes that only group values or have a single user at once. (MindSpore's ``ExecOrderBuilder``.)
    """
    top = results[0]
    if len(results) != 1 or not (isinstance(top, Kernel) and top.op_type == "MakeTuple"):
        top = Kernel("MakeTuple", "", list(results), (), runs=False)
    end = Kernel("Return", "", [top], (), runs=False)
    trivial = _trivial(end)
    users, waiting, unused = _users(end, trivial)
    starts = _starts(end, trivial, users, waiting, unused)
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


def _trivial(end: Kernel) -> frozenset[Kernel]:
    """Return the nodes that need no kernel: they group constants and weights alone."""
    found: set[Kernel] = set()
    for node in post_order([end]):
        if not node.runs and all(not isinstance(item, Kernel) or item in found for item in node.inputs):
            found.add(node)
    return frozenset(found)


def _operands(node: Kernel) -> list[Operand]:
    # a kernel takes the members of tuples itself
    return [each for item in node.inputs for each in flattened(item)] if node.runs else node.inputs


def _users(
    end: Kernel, trivial: frozenset[Kernel]
) -> tuple[dict[Kernel, list[Kernel]], Counter[Kernel], Counter[Kernel]]:
    """Return the users of each node, and by node the numbers of operands and of uses."""
    users: dict[Kernel, list[Kernel]] = defaultdict(list)
    waiting: Counter[Kernel] = Counter()
    unused: Counter[Kernel] = Counter()
    queue, seen = deque([end]), set()
    while queue:
        node = queue.popleft()
        for item in _operands(node):
            if not isinstance(item, Kernel) or item in trivial:
                continue
            users[item].append(node)
            waiting[node] += 1
            unused[item] += 1
            if item not in seen:
                seen.add(item)
                queue.append(item)
    return users, waiting, unused


def _starts(
    end: Kernel,
    trivial: frozenset[Kernel],
    users: dict[Kernel, list[Kernel]],
    waiting: Counter[Kernel],
    unused: Counter[Kernel],
) -> list[Kernel]:
    """Return the nodes without operands; all but the last wait for kernels that are visited behind them."""
    starts: list[Kernel] = []
    kernels: deque[Kernel] = deque()
    virtual: deque[Kernel] = deque([end])
    while kernels or virtual:
        node = virtual.popleft() if virtual else kernels.popleft()
        is_start = True
        for item in reversed(_operands(node)):
            if not isinstance(item, Kernel) or item in trivial:
                continue
            is_start = False
            unused[item] -= 1
            if unused[item]:
                continue
            if not item.runs:
                virtual.append(item)
                continue
            kernels.append(item)
            if starts:
                late = starts.pop()
                users[item].append(late)
                waiting[late] += 1
        if is_start:
            starts.append(node)
    return starts
