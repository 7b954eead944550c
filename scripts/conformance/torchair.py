"""Which modules of known kinds the torchair door trains: `python -m scripts.conformance.torchair [NAME...]`.

Prints a line for each module of ``scripts/conformance/modules.py``, a fault with its reason, the count.
"""

import sys

import torch

from msdump import torchair
from msdump.errors import MsdumpError
from scripts.conformance.modules import MODULES, step


def fault(name: str) -> str:
    """Return why a module cannot be trained, or how its values differ; "" where all is right."""
    torch._dynamo.reset()
    expected = step(MODULES[name], None)
    try:
        made = step(MODULES[name], torchair.get_npu_backend())
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)
    except (MsdumpError, RuntimeError, AssertionError) as error:
        return " ".join(str(error).split())[:200]
    return ""


def main(names: list[str]) -> int:
    """Print the table; return 1 where a module fails."""
    faults = {}
    for name in names or MODULES:
        reason = fault(name)
        if reason:
            faults[name] = reason
        print(f"{'missing' if reason else 'trains':8} {name}{': ' if reason else ''}{reason}", flush=True)
    print(f"{len(names or MODULES) - len(faults)} modules train, {len(faults)} do not")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
