"""What of the host's memory a plan may take."""

import argparse
import resource
from pathlib import Path

SHARE = 0.75  # of what is free; the rest is for programs' own memory and for what else runs here


def available(meminfo="/proc/meminfo"):
    """Bytes that the kernel could give out without swapping."""
    for line in Path(meminfo).read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def number_in(path):
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max": no limit
        return None


def reclaimable(folder):
    """Page cache that the kernel drops before it refuses memory."""
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)


def cgroup_free(root="/sys/fs/cgroup", membership="/proc/self/cgroup"):
    """Bytes that the tightest control group (version 2) above this process leaves; None: none limits it."""
    root = Path(root)
    try:
        lines = Path(membership).read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    path = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    folder, found = root / path, []
    while folder == root or root in folder.parents:
        most, used = number_in(folder / "memory.max"), number_in(folder / "memory.current")
        if most is not None and used is not None:
            found.append(max(0, most - used + reclaimable(folder)))
        folder = folder.parent
    return min(found, default=None)


def locked_limit():
    """RLIMIT_MEMLOCK, in bytes; None: unlimited. A driver pins memory by itself, so no budget follows from it; it is
    recorded to explain a pin that is refused."""
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def gib(text):
    """Bytes of a command line's GiB."""
    value = float(text)
    if not 0 < value < 1 << 20:
        raise argparse.ArgumentTypeError(f"{text}: give a number of GiB above 0")
    return int(value * (1 << 30))


def host_memory(budget=None):
    """What was found, and `budget_bytes` for plans: the given one, else a share of it."""
    found = {"available_bytes": available(), "cgroup_free_bytes": cgroup_free(), "memlock_bytes": locked_limit()}
    free = min(v for v in (found["available_bytes"], found["cgroup_free_bytes"]) if v is not None)
    return {**found, "budget_bytes": budget or int(free * SHARE)}
