"""What gpu_check's numbers mean: one verdict for each line of the acceptance, from plain data alone."""

from dataclasses import dataclass
from typing import Callable

import judge_programs
import judge_training
from facts import BILLIONS
from judge_training import LEAST_LINK_SHARE, LEAST_UTILISATION, MOST_SLOWDOWN, held

MOST_SECONDS = 600  # of one command


@dataclass
class Line:
    name: str
    stages: tuple  # that it judges
    judge: Callable  # results -> (status, detail)
    all_needed: bool = True  # False: it judges those that were asked for


def slowdown_line(model):
    return Line(f"{model} at 1/4 of its need within {MOST_SLOWDOWN}x of the un-offloaded step", (model,),
                judge_training.slowdown(model))


def contest_line(name, stage):
    return Line(name, (stage,), judge_programs.contest(stage))


LINES = [
    Line("every program loads and a first step runs", ("smoke",), judge_programs.smoke),
    Line("calibration wrote the machine's file", ("calibrate",), judge_training.calibration),
    Line("attention of GPT-2 and BERT by cuDNN", ("smoke", "gpt2", "bert"), judge_training.attention, all_needed=False),
    Line("conformance and kernel tests pass", ("tests",), judge_programs.tests),
    Line("losses of 20 steps bit-identical, unlimited and in four budgets", ("bits", "gpt2", "bert"),
         judge_training.same_bits, all_needed=False),
    Line("planned peak and the driver's account stay under the budget", ("bits", "gpt2", "bert", "large", *BILLIONS),
         judge_training.memory, all_needed=False),
    Line(f"un-offloaded GPT-2 124M at {LEAST_UTILISATION:.0%} of the measured GEMM rate", ("calibrate", "gpt2"),
         judge_training.enough_utilisation),
    slowdown_line("gpt2"),
    slowdown_line("bert"),
    Line(f"buckets move at {LEAST_LINK_SHARE:.0%} of the calibrated link", ("calibrate", "large"), judge_training.buckets),
    Line("a model trains in a budget that it does not fit without offload", ("large",), judge_training.large),
    Line("6.7 billion parameters train in 22 GiB", BILLIONS, judge_training.billions, all_needed=False),
    Line("6.7 billion parameters train all on the card", ("6.7b", "6.7b-whole"), judge_training.billions_whole, all_needed=False),
    Line("single operations were timed", ("slices", "allocator", "products"), judge_programs.timed, all_needed=False),
    Line("train_gpt gives the same losses in a smaller budget", ("trainer",), judge_training.trainer),
    Line("a PyTorch program under stowage run has the same losses", ("interposer",), judge_programs.interposer),
    Line("PyTorch has the same losses with the pluggable allocator", ("pluggable",), judge_programs.pluggable),
    contest_line("other systems on the whole card", "whole"),
    contest_line("DeepSpeed's ZeRO-3 beside it", "zero3"),
    contest_line("other systems beside it", "contest"),
    Line("the tests under compute-sanitizer", ("sanitizer",), judge_programs.sanitizer),
]


def judge(results):
    """A verdict for every line of which a stage was asked for. What was asked for and did not run fails."""
    lines = [line for line in LINES if set(line.stages) & set(results["asked"])]
    return [verdict(line.name, *judged_safely(line, results)) for line in lines] + [time_verdict(results)]


def judged_safely(line, results):
    """A result of an unforeseen form fails the line that it belongs to, and no other."""
    try:
        return judged(line, results)
    except Exception as error:
        return held(False, f"cannot be judged: {type(error).__name__}: {error}")


def verdict(name, status, detail):
    return {"name": name, "status": status, "detail": detail}


def judged(line, results):
    asked = [stage for stage in line.stages if stage in results["asked"]]
    if line.all_needed and len(asked) < len(line.stages):
        return "skip", f"not asked for: {', '.join(stage for stage in line.stages if stage not in asked)}"
    missing = [stage for stage in asked if stage not in results["stages"]]
    if missing:
        return held(False, f"did not run: {', '.join(missing)}")
    found = {stage: results["stages"][stage] for stage in asked}
    crashes = [f"{stage} crashed: {of['crashed']}" for stage, of in found.items() if isinstance(of, dict) and "crashed" in of]
    if crashes:
        return held(False, "; ".join(crashes))
    reasons = [of["skipped"] for of in found.values() if isinstance(of, dict) and "skipped" in of]
    if reasons:  # at full size on a card there is no excuse
        return ("fail" if results["speed"] else "skip"), reasons[0]
    return line.judge({**results, "stages": found})


def time_verdict(results):
    name = f"every command ended within {MOST_SECONDS} s"
    late = [run["seconds"] for run in results["runs"] if run["seconds"] is not None and run["seconds"] > MOST_SECONDS]
    ended = [f"{run['seconds']:.0f} s" for run in results["runs"] if run["seconds"] is not None]
    cut = len(results["runs"]) - len(ended)
    return verdict(name, *held(not late and bool(ended), ", ".join(ended) + (f"; {cut} cut off" if cut else "")))
