"""Scenarios for the GIL probes, for any CPython, without torch. `python run.py MODULE_DIR NAME` prints JSON.

A process each, since they fork, exit in the middle and leave threads behind.
"""

from __future__ import annotations

import json
import sys

import children
import churn
import cost
import lives
import runtime
import sampler
import stacks
import waits

MODULES = (children, churn, cost, lives, runtime, sampler, stacks, waits)

if __name__ == "__main__":
    name = sys.argv[2]
    scenario = next(vars(module)[name] for module in MODULES if name in vars(module))
    outcome = scenario()
    if name != "exit_child":
        print(json.dumps(outcome))
