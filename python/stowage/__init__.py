"""Says before a training step runs whether it fits a GPU, and how fast it will be.

    import stowage
    print(stowage.plan_trace(open("step.jsonl").read(), machine="rtx4090", device_memory="6GiB"))

    print(stowage.plan(model, batch, machine="rtx4090"))  # of a PyTorch model, which needs no memory and is not changed

The planner is libstowage_plan.so (stowage/c_plan.h), which lies beside this file; it needs no GPU and no other package.
docs/trace.md says how a step is recorded.
"""

import importlib.metadata
import warnings

from stowage._plan import Answer, Refused, machines, plan, plan_trace, version

__all__ = ["Answer", "Refused", "machines", "plan", "plan_trace", "version"]

try:
    other = importlib.metadata.version("stowage")  # this package's distribution has another name
    warnings.warn(f"the package stowage {other} of PyPI is installed, too, and its files have the names of these: remove it (pip uninstall "
                  "stowage), and install this one again", stacklevel=2)
    del other
except importlib.metadata.PackageNotFoundError:
    pass
