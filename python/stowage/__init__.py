"""Says before a training step runs whether it fits a GPU, and how fast it will be.

    import stowage
    print(stowage.plan_trace(open("step.jsonl").read(), machine="rtx4090", device_memory="6GiB"))

    print(stowage.plan(model, batch, machine="rtx4090"))  # of a PyTorch model, which needs no memory and is not changed

The planner is libstowage_plan.so (stowage/c_plan.h), which lies beside this file; it needs no GPU and no other package.
It is loaded when one of these names is first used. docs/trace.md says how a step is recorded.

`python -m stowage.data` makes token shards of conversations (docs/data.md), and needs no planner.
"""

import importlib
import importlib.metadata
import warnings

__all__ = ["Answer", "Refused", "machines", "offload", "plan", "plan_trace", "version"]

try:
    other = importlib.metadata.version("stowage")  # this package's distribution has another name
    warnings.warn(f"the package stowage {other} of PyPI is installed, too, and its files have the names of these: remove it (pip uninstall "
                  "stowage), and install this one again", stacklevel=2)
    del other
except importlib.metadata.PackageNotFoundError:
    pass


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module 'stowage' has no attribute {name!r}")
    value = getattr(importlib.import_module("stowage._plan"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
