"""The stages in the order in which they run: those most worth having first."""

import op_stages
import smoke
import test_stages
import torch_stages
import train_stages

STAGES = {
    "smoke": smoke.smoke,
    "calibrate": lambda context: context.calibrate(quick=context.small),
    "gpt2": train_stages.gpt2,
    "tests": test_stages.tests,
    "bits": train_stages.bits,
    "trainer": train_stages.trainer,
    "bert": train_stages.bert,
    "large": train_stages.large,
    "6.7b": train_stages.billions,
    "6.7b-doubled": train_stages.billions_doubled,
    "6.7b-whole": train_stages.billions_whole,
    "slices": op_stages.slices,
    "allocator": op_stages.allocator,
    "products": op_stages.products,
    "interposer": torch_stages.interposer,
    "pluggable": torch_stages.pluggable,
    "contest": torch_stages.contest,
    "sanitizer": test_stages.sanitizer,  # last: it takes the time that is left
}

# Seconds of each on a card: the most of the records of 2026-11-26 and 2026-11-27, one H100 and an H200 three times. Those of large are
# twice what its two runs took there, of the two of 6.7b half of what both took, of smoke and contest as they are given.
SECONDS = {"smoke": 60, "calibrate": 29, "gpt2": 16, "tests": 154, "bits": 35, "trainer": 6, "bert": 23, "large": 76, "6.7b": 104,
           "6.7b-doubled": 99, "6.7b-whole": 73, "slices": 28, "allocator": 20, "products": 11, "interposer": 50, "pluggable": 48, "contest": 470,
           "sanitizer": 90}

# What fits a card that is lent for 15 minutes in all, 10 a command, the start of its machine among them: seconds at most, and stages
# in an order in which a cut costs least. Of `again`: those that failed.
LEASES = {"own": (480, ("calibrate", "gpt2", "bert", "allocator", "slices", "products", "large", "6.7b", "tests")),
          "size": (480, ("calibrate", "6.7b-whole", "6.7b-doubled", "trainer", "bits", "interposer", "pluggable")),
          "peers": (480, ("contest",)), "again": (180, ())}

TAKES_THE_REST = {"sanitizer"}  # runs without time too, and tells how much of it found none


def names(text):
    """The stages of a list with commas. Throws ValueError that names what is none."""
    found = [word for word in text.split(",") if word]
    for word in found:
        if word not in STAGES:
            raise ValueError(f"'{word}' is no stage; there are {', '.join(STAGES)}")
    return found


def listed(stages):
    """The stages with their seconds, and the sum of these."""
    rows = [*((name, SECONDS[name]) for name in stages), ("in all", sum(SECONDS[name] for name in stages))]
    return "\n".join(f"{name:<12}{seconds:>4} s" for name, seconds in rows)


def chosen(only, skip):
    """Stages to run: all, or those of `only`, without those of `skip`. Throws ValueError where none is left."""
    wanted, unwanted = names(only) or list(STAGES), names(skip)
    left = [name for name in STAGES if name in wanted and name not in unwanted]
    if not left:
        raise ValueError("--only and --skip leave no stage")
    return left
