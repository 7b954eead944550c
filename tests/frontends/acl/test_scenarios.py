"""The orders of calls in the vendor's documents, and the dumps of each."""

import numpy as np
import pytest

from msdump import acl
from tests.dump import nets

X = np.ones((1, 4), np.float32)


def models(script):
    """Return the numbers of the models that have files, by the dump directory of each configuration."""
    return {
        root: sorted({name.split("/")[3] for name in script.files(root)})
        for root in ("first", "second")
        if (script.path / root).exists()
    }


@pytest.fixture
def steps(script):
    """Give the steps of the documents' scenarios as functions; dumps go to ``first`` and ``second``."""
    script.path.mkdir()
    loaded = {}

    def set_dump(root):
        (script.path / root).mkdir(exist_ok=True)
        section = {"dump_path": str(script.path / root), "dump_list": [{}]}
        return acl.mdl.set_dump(script.configure(section, name=f"{root}.json"))

    def load(name):
        loaded[name] = script.load(nets.cosine(), name)
        return 0

    return {
        "init": acl.init,
        "init_dump": acl.mdl.init_dump,
        "set_dump": set_dump,
        "finalize_dump": acl.mdl.finalize_dump,
        "load": load,
        "execute": lambda name: script.run(loaded[name], X)[0],
        "unload": lambda name: acl.mdl.unload(loaded[name]),
        "finalize": acl.finalize,
    }


SCENARIOS = {
    "two models, two configurations": (
        """
        init init_dump set_dump:first load:a execute:a finalize_dump unload:a
        init_dump set_dump:second load:b execute:b finalize_dump unload:b finalize
        """,
        {"first": ["1"], "second": ["2"]},
    ),
    "one model, dumped the first time only": (
        """
        init init_dump set_dump:first load:a execute:a finalize_dump unload:a
        load:a execute:a finalize
        """,
        {"first": ["1"]},
    ),
    "a model loaded before set_dump": (
        "init init_dump load:a set_dump:first load:b execute:a execute:b finalize_dump",
        {"first": ["2"]},
    ),
    "a model loaded again after set_dump": (
        "init init_dump load:a set_dump:first unload:a load:a execute:a finalize_dump",
        {"first": ["2"]},
    ),
    "set_dump twice": (
        "init init_dump set_dump:first set_dump:second load:a execute:a finalize_dump",
        {"first": [], "second": ["1"]},
    ),
    "finalize_dump stops loaded models": (
        "init init_dump set_dump:first load:a finalize_dump execute:a",
        {"first": []},
    ),
    "init_dump does not start them again": (
        """
        init init_dump set_dump:first load:a finalize_dump
        init_dump set_dump:second execute:a load:b execute:b
        """,
        {"first": [], "second": ["2"]},
    ),
    "a model keeps the configuration that it was loaded under": (
        "init init_dump set_dump:first load:a set_dump:second load:b execute:a execute:b",
        {"first": ["1"], "second": ["2"]},
    ),
    "no set_dump": ("init init_dump load:a execute:a finalize_dump", {}),
    "finalize without finalize_dump": (
        "init init_dump set_dump:first load:a execute:a finalize",
        {"first": ["1"]},
    ),
}


@pytest.mark.parametrize(("calls", "expected"), SCENARIOS.values(), ids=SCENARIOS)
def test_scenario(script, steps, calls, expected):
    """Every call of a documented order succeeds, and just the models that it says are dumped."""
    for call in calls.split():
        name, _, argument = call.partition(":")
        assert 0 == (steps[name](argument) if argument else steps[name]()), call

    assert expected == models(script)


def test_configuration_of_init(script):
    """The configuration that init is given dumps the models that are loaded afterwards, until finalize."""
    assert 0 == acl.init(script.configure({"dump_list": [{}]}))

    script.run(script.load(nets.cosine()), X)
    acl.finalize()

    assert ["{time}/0/graph/1/0/Cos.Cos_0.0.0", "{time}/0/graph/1/0/Data.x.0.0"] == script.files()


def test_set_dump_after_the_configuration_of_init(script):
    """A later set_dump counts, not the configuration of init."""
    assert 0 == acl.init(script.configure({"dump_list": [{}]}, name="init.json"))
    (script.path / "later").mkdir()
    acl.mdl.init_dump()
    acl.mdl.set_dump(script.configure({"dump_path": str(script.path / "later"), "dump_list": [{}]}))

    script.run(script.load(nets.cosine()), X)

    assert {"later"} == {name.split("/")[0] for name in script.files()}


@pytest.mark.parametrize(("text", "code"), [("{}", 0), ('{"dump": {"dump_mode": "x"}}', 100009)])
def test_configuration_without_a_dump_changes_nothing(script, text, code):
    """A file that configures no dump, or a faulty one, leaves the last configuration on."""
    script.begin({"dump_list": [{}]})

    assert code == acl.mdl.set_dump(script.configure(text=text, name="other.json"))
    script.run(script.load(nets.cosine()), X)

    assert 2 == len(script.files())


def test_dump_does_not_change_results(script):
    """A dumped model gives the bits that it gives without."""
    acl.init()
    plain = script.run(script.load(nets.mini()), nets.mini_feeds()["x"])[1][0]
    acl.mdl.init_dump()
    acl.mdl.set_dump(script.configure({"dump_list": [{}], "dump_mode": "all"}))

    dumped = script.run(script.load(nets.mini()), nets.mini_feeds()["x"])[1][0]

    assert plain.tobytes() == dumped.tobytes()
