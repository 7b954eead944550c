"""The contract of every pass over a graph: names stay unique, values are made before they are read."""

from collections import Counter

from msdump.graph import reads
from msdump.graph.order import used_values


def faults(graph, before=None):
    """Return the breaches of the contract by a graph and the graphs inside it.

    Args:
        graph: The result of a pass.
        before: The input of the pass; None: a graph that has just been loaded.
    """
    listed = [*_names(graph), *_order(graph, set())]
    return listed if before is None else [*listed, *_changes(graph, before)]


def message_faults(after, before):
    """Return the inputs, outputs and producers that a pass over a message has lost."""
    listed = []
    for side in ("input", "output"):
        names = [[value.name for value in getattr(graph, side)] for graph in (before, after)]
        if names[0] != names[1]:
            listed.append(f"{side}s {names[0]} became {names[1]}")
    stored = [tensor.name for tensor in after.initializer]
    producers = Counter(name for node in after.node for name in node.output if name)
    listed += [f"{name} is made {count} times" for name, count in producers.items() if count > 1]
    available = {*producers, *stored, *(value.name for value in after.input)}
    read_values = [name for node in after.node for name in used_values(node)]
    read_values += [value.name for value in after.output]
    listed += [f"nobody makes {name}" for name in read_values if name not in available]
    return listed


def _names(graph):
    nodes = [node for inner in graph.walk() for node in inner.nodes]
    full_names = Counter(node.operator.full_name for node in nodes)
    for title, counts in (("node", Counter(node.name for node in nodes)), ("operator", full_names)):
        yield from (f"{count} {title}s are called {name!r}" for name, count in counts.items() if count > 1)
    indices = [inner.index for inner in graph.walk()]
    if indices != sorted(set(indices)):
        yield f"graphs are numbered {indices}"


def _order(graph, outer):
    """Yield values that are read before they are made, or made twice; of bodies too."""
    available = {*graph.weights, *(value.name for value in graph.inputs)}
    if graph.index:
        yield from (f"nobody around {graph.name} makes {name}" for name in graph.outer - outer)
    for node in graph.nodes:
        yield from (f"{node.name} reads {name}" for name in reads(node) if name not in available)
        yield from _parts(node)
        for body in node.bodies.values():
            yield from _order(body, available | outer)
        yield from (f"{node.name} makes {name} again" for name in node.outputs if name in available)
        available.update(filter(None, node.outputs))
    yield from (f"nobody makes the output {v.name}" for v in graph.outputs if v.name not in available)


def _parts(node):
    """Yield the faults inside a fused operator."""
    if not node.parts:
        return
    available = set(node.inputs)
    for part in node.parts:
        yield from (f"part {part.name} reads {name}" for name in reads(part) if name not in available)
        available.update(part.outputs)
    yield from (f"no part of {node.name} makes {name}" for name in node.outputs if name not in available)


def _changes(graph, before):
    """Yield inputs, outputs and types that have changed."""
    graphs, earlier = list(graph.walk()), list(before.walk())
    if len(graphs) != len(earlier):
        yield f"{len(earlier)} graphs became {len(graphs)}"
        return
    for after, old in zip(graphs, earlier, strict=True):
        if after.inputs != old.inputs:
            yield f"{old.name}: the inputs {old.inputs} became {after.inputs}"
        if after.outputs != old.outputs:
            yield f"{old.name}: the outputs {old.outputs} became {after.outputs}"
        known_names = {name for node in old.nodes for name in node.outputs}
        for name in (name for node in after.nodes for name in node.outputs if name):
            if name not in known_names and name not in after.types:
                yield f"the new value {name} has no type"
            elif not _keeps(after.type_of(name), old.type_of(name)) and name in known_names:
                yield f"{name}: {old.type_of(name)} became {after.type_of(name)}"


def _keeps(after, before):
    """Return whether all that was known of a value still is."""
    if not before.kind:
        return True
    if after.kind != before.kind or before.dtype not in {None, after.dtype}:
        return False
    return before.shape is None or after.shape == before.shape
