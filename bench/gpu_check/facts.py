"""What judge.py and table.py read out of results: plain data in, numbers out."""

import math
import statistics

START_UP = 2  # steps that no time is taken from
BILLIONS = ("6.7b", "6.7b-doubled", "6.7b-8bit")  # stages that train 6.7 billion parameters in 22 GiB


def get(data, *keys):
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def step_seconds(run):
    """Median of the steady steps; None where there is none."""
    times = [step["seconds"] for step in run.get("steps", [])[START_UP:] if step.get("seconds")]
    return statistics.median(times) if times else None


def predicted_seconds(run):
    """What the plan says of steps like those that were timed: of none that was clipped, or of all; None of some of each."""
    plan = get(run, "setup", "plan") or {}
    clipped = {bool(step.get("clipped")) for step in run.get("steps", [])[START_UP:]}
    if clipped == {True}:
        return plan.get("clipped_seconds")
    return plan.get("predicted_step_seconds") if clipped == {False} else None


def finite_losses(run):
    losses = [step.get("loss") for step in run.get("steps", [])]
    return bool(losses) and all(isinstance(loss, float) and math.isfinite(loss) for loss in losses)


def bits_of(run):
    """Loss and gradient norm of every step, to the bit."""
    return [(step["loss_bits"], step["grad_norm_bits"]) for step in run.get("steps") or []]


def utilisation(run, machine):
    """Share of the calibrated rate of products that the model's own arithmetic takes."""
    seconds, setup = step_seconds(run), run.get("setup") or {}
    kind = get(setup, "shape", "type")
    rate = next((r["flops_per_second"] for r in (machine or {}).get("matrix", []) if r["type"] == kind), None)
    return setup["model_flops"] / seconds / rate if seconds and rate else None


def attention_of(run):
    """Executions of attention by method, {"cudnn", "own", "plain", "refusals"}; None where they were not counted."""
    return run.get("attention")


def all_runs(stages):
    """(name, run) of everything that was trained."""
    bits = stages.get("bits", [])
    for stage in bits if isinstance(bits, list) else []:  # a dict: the stage crashed
        for budget, run in stage["runs"].items():
            yield f"bits {stage['shape']['model']} {stage['shape']['type']} {budget}", run
    for name in ("gpt2", "bert"):
        for which in ("unlimited", "quarter"):
            if get(stages, name, which):
                yield f"{name} {which}", stages[name][which]
    for which in ("bucketed", "per_tensor", "bucketed_again", "per_tensor_again"):
        if get(stages, "large", which):
            yield f"large {which}", stages["large"][which]
    for name in BILLIONS:
        if get(stages, name, "offloaded"):
            yield name, stages[name]["offloaded"]
    if get(stages, "6.7b", "doubled"):  # a record of 2026-11-27 has both in one stage
        yield "6.7b doubled", stages["6.7b"]["doubled"]
    if get(stages, "6.7b-whole", "unlimited"):
        yield "6.7b unlimited", stages["6.7b-whole"]["unlimited"]


def link_shares(results):
    """{direction: (bucketed, per tensor)}: shares of the calibrated peak of copies on an idle link."""
    shares = {}
    for way in ("h2d", "d2h"):
        peak = get(results, "stages", "calibrate", "machine", way, "bytes_per_second")
        copies = get(results, "stages", "large", "bucketed", "copies", way) or {}
        rates = [total["bytes"] / total["seconds"] / peak if peak and total and total["seconds"] else None
                 for total in (copies.get("bucketed"), copies.get("per_tensor"))]
        shares[way] = tuple(rates)
    return shares
