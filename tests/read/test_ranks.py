"""Objects that ranks of one dump share."""

from msdump import open_dump
from scripts.bench import rank_tree


def test_ranks_of_one_program_share_its_graphs(tmp_path):
    """A graph is one object for all ranks with equal files; another order makes another one."""
    dump = rank_tree.grow(tmp_path / "made", 4, operators=3, shape=(2,), scale=1.0)
    order, missing = (dump / f"rank_{rank}/execution_order/ms_execution_order_graph_0.csv" for rank in (2, 3))
    title, *names = order.read_text().splitlines()
    order.unlink()
    order.write_text("\n".join([title, *reversed(names), ""]))
    missing.unlink()

    graphs = [rank.operator_graphs[0] for rank in open_dump(dump).ranks.values()]

    assert [True, True, False, False] == [graph is graphs[0] for graph in graphs]
    assert names == list(graphs[0].operators)
    assert names[::-1] == list(graphs[2].operators)
    assert {*names} == {*graphs[3].operators}


def test_a_list_that_cannot_be_read_is_told_by_its_own_rank(tmp_path, caplog):
    """A rank with a broken list of operators is read without it, and hands its graph to no other one."""
    dump = rank_tree.grow(tmp_path / "made", 3, operators=2, shape=(2,), scale=1.0)
    order = dump / "rank_1/execution_order/ms_execution_order_graph_0.csv"
    order.unlink()
    order.write_text("broken\n")

    ranks = open_dump(dump).ranks
    graph = ranks[0].operator_graphs[0]
    broken = ranks[1].operator_graphs[0]
    assert (graph is ranks[2].operator_graphs[0], {*graph.operators}) == (True, {*broken.operators})
    assert broken is not graph
    (message,) = (record.getMessage() for record in caplog.records)
    assert "rank_1/execution_order" in message
    assert "read as if the file were missing" in message
