"""Lists of watch rules: their meaning, and reports of all their faults at once."""

import json

import pytest

from msdump.config import watch
from msdump.errors import ConfigError
from msdump.record import IO
from msdump.watch import CONDITIONS, Role


@pytest.fixture
def read(tmp_path):
    """Return a function that reads rules from a file with some contents."""

    def read_rules(contents):
        path = tmp_path / "rules.json"
        path.write_text(json.dumps(contents))
        return watch.read(str(path))

    return read_rules


@pytest.mark.parametrize(
    "wrap", [list, lambda rules: {"watch": rules}, lambda rules: {"msdump": {"watch": rules}}]
)
def test_rules_stand_in_a_list_or_a_configuration(wrap, read):
    """A file of rules is a list, an object with one, or a dump configuration."""
    (rule,) = read(wrap([{"condition": "tensor_too_large", "max_gt": 5}]))

    assert ("tensor_too_large", [("max_gt", 5.0)]) == (
        rule.name,
        [(limit.parameter, limit.value) for limit in rule.limits],
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"condition": "tensor_overflow"}, (None, None, None, frozenset(), "", "all")),
        ({"condition": "weight_overflow"}, (Role.WEIGHT, None, None, frozenset(), "", "all")),
        ({"condition": "weight_overflow", "role": "any"}, (None, None, None, frozenset(), "", "all")),
        (
            {"condition": "loss_spike", "io": "output", "slot": 0, "scope": "h.3", "iterations": "1|2-4"},
            (Role.LOSS, IO.OUTPUT, 0, frozenset(), "h.3", "1-4"),
        ),
        (
            {"condition": "dead_relu", "types": ["GeLU"]},
            (Role.ACTIVATION, None, None, frozenset({"gelu"}), "", "all"),
        ),
    ],
)
def test_target_is_what_the_keys_say(rule, expected, read):
    """Keys select tensors; a missing key has the condition's default, or selects all."""
    (parsed,) = read([rule])
    target = parsed.target

    assert expected == (
        target.role,
        target.io,
        target.slot,
        target.types,
        target.scope,
        str(target.iterations),
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"condition": "tensor_too_larg"}, "(did you mean 'tensor_too_large'?)"),
        ({}, "is missing: there are operator_overflow, tensor_overflow"),
        (7, "must be an object with a condition"),
        ({"condition": ["x"]}, "is no condition"),
        ({"condition": "tensor_too_large"}, "give abs_mean_gt, max_gt, min_gt or mean_gt"),
        ({"condition": "tensor_too_large", "max_gr": 1}, "is unknown (did you mean 'max_gt'?)"),
        ({"condition": "tensor_too_large", "max_gt": True}, "= true: must be a number, or null for none"),
        ({"condition": "tensor_too_large", "max_gt": "5"}, "= '5': must be a number, or null for none"),
        ({"condition": "tensor_all_zero", "zero_percentage_ge": 101}, "a number from 0 to 100"),
        ({"condition": "tensor_all_zero", "zero_percentage_ge": None}, "has no limit"),
        (
            {"condition": "tensor_range", "range_percentage_lt": 5},
            "needs range_start_inclusive and range_end",
        ),
        (
            {
                "condition": "tensor_range",
                "range_percentage_lt": 5,
                "range_start_inclusive": 2,
                "range_end_inclusive": 1,
            },
            "the range starts at 2, above its end 1",
        ),
        ({"condition": "loss_spike", "window": None}, "needs window"),
        ({"condition": "loss_spike", "window": 0}, "a whole number from 1"),
        ({"condition": "loss_spike", "role": "los"}, "(did you mean 'loss'?)"),
        ({"condition": "loss_spike", "iterations": "5-2"}, "begins above its end; write 2-5"),
        ({"condition": "tensor_overflow", "operators": ["name-regex(("]}, "name-regex"),
        ({"condition": "tensor_overflow", "operators": [3]}, "$[0].operators[0] = 3: must be a text"),
        ({"condition": "tensor_overflow", "slot": -1}, "a whole number from 0"),
    ],
)
def test_fault_of_a_rule_is_told(rule, expected, read):
    """Each fault names its place, the allowed values and, of a misspelt name, the nearest one."""
    with pytest.raises(ConfigError) as caught:
        read([rule])

    assert expected in str(caught.value)


def test_all_faults_are_told_at_once(read):
    """A file with several faulty rules names them all, with their lines."""
    with pytest.raises(ConfigError) as caught:
        read([{"condition": "x"}, {"condition": "tensor_overflow", "naem": "y"}, 3])

    assert ["$[0].condition", "$[1].naem", "$[2]"] == [problem.path for problem in caught.value.problems]


@pytest.mark.parametrize("contents", [[], {"watch": []}, {"rules": 3}, 5, "text", {}])
def test_file_without_rules_is_refused(contents, read):
    """A file that holds no rule is bad input."""
    with pytest.raises(ConfigError):
        read(contents)


def test_rules_of_one_condition_have_different_names(read):
    """Rules without a name are called by their condition and a number; a name given twice is a fault."""
    rule = {"condition": "tensor_overflow"}

    assert ["tensor_overflow", "tensor_overflow 2", "mine"] == [
        each.name for each in read([rule, rule, {**rule, "name": "mine"}])
    ]
    with pytest.raises(ConfigError, match="two rules have the name 'mine'"):
        read([{**rule, "name": "mine"}, {**rule, "name": "mine"}])


@pytest.mark.parametrize("name", sorted(CONDITIONS))
def test_every_condition_has_a_model(name):
    """Each condition has a model of its parameters, and the schema lists them."""
    properties = watch.models()[name].model_json_schema()["properties"]

    assert {*CONDITIONS[name].limits, *CONDITIONS[name].settings} <= set(properties)
    assert all("description" in field for field in properties.values())
