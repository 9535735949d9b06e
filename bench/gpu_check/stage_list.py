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
    "6.7b-8bit": train_stages.billions_8bit,
    "slices": op_stages.slices,
    "allocator": op_stages.allocator,
    "products": op_stages.products,
    "interposer": torch_stages.interposer,
    "pluggable": torch_stages.pluggable,
    "whole": torch_stages.whole,
    "zero3": torch_stages.zero3,
    "contest": torch_stages.contest,
    "sanitizer": test_stages.sanitizer,  # last: it takes the time that is left
}

# Seconds of each stage on a card, mostly those of its last record (bench/results, H200). Estimates: large is its record of two runs and
# two runs more; the runs of 6.7b are without the profiled steps that their records have; 6.7b-8bit is taken to last as long as 6.7b;
# whole is its record (71) with room for a slower disk and 50 for llm.c; zero3 is Stowage's 25, 45 to compile DeepSpeed's AdamW and 80 for
# each of two peers. smoke and contest are limits.
SECONDS = {"smoke": 60, "calibrate": 29, "gpt2": 16, "tests": 79, "bits": 35, "trainer": 6, "bert": 23, "large": 74, "6.7b": 63,
           "6.7b-doubled": 60, "6.7b-whole": 41, "6.7b-8bit": 63, "slices": 28, "allocator": 20, "products": 11, "interposer": 50,
           "pluggable": 48, "whole": 180, "zero3": 230, "contest": 470, "sanitizer": 90}

# Commands for a card that is lent for 15 minutes in all, 10 a command, the start of its machine among them: the seconds that a command
# may take, and its stages in an order in which a cut costs least. `again` runs the stages that failed, too, and those first.
LEASES = {"own": (480, ("calibrate", "gpt2", "bert", "allocator", "slices", "products", "large", "6.7b", "6.7b-doubled", "tests")),
          "size": (480, ("calibrate", "6.7b-whole", "6.7b-8bit", "trainer", "bits", "interposer", "pluggable")),
          "peers": (480, ("whole", "zero3")), "again": (180, ("6.7b-8bit", "6.7b-whole"))}

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
