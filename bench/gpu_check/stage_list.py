"""The stages in the order in which they run: those most worth having first."""

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
    "interposer": torch_stages.interposer,
    "pluggable": torch_stages.pluggable,
    "contest": torch_stages.contest,
    "sanitizer": test_stages.sanitizer,  # last: it takes the time that is left
}

TAKES_THE_REST = {"sanitizer"}  # runs without time too, and tells how much of it found none


def names(text):
    """The stages of a list with commas. Throws ValueError that names what is none."""
    found = [word for word in text.split(",") if word]
    for word in found:
        if word not in STAGES:
            raise ValueError(f"'{word}' is no stage; there are {', '.join(STAGES)}")
    return found


def chosen(only, skip):
    """Stages to run: all, or those of `only`, without those of `skip`. Throws ValueError where none is left."""
    wanted, unwanted = names(only) or list(STAGES), names(skip)
    left = [name for name in STAGES if name in wanted and name not in unwanted]
    if not left:
        raise ValueError("--only and --skip leave no stage")
    return left
