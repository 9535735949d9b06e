"""Verdicts on what was trained. Each takes results and returns (status, detail)."""

from facts import BILLIONS, all_runs, attention_of, bits_of, finite_losses, get, link_shares, step_seconds, utilisation

LEAST_UTILISATION = 0.40
MOST_SLOWDOWN = 1.15
LEAST_LINK_SHARE = 0.95
TOKENS = 64000
NO_SPEED = "skip", "speed is judged on a card, at full size"


def held(holds, detail):
    return ("pass" if holds else "fail"), detail


def with_faults(detail, faults):
    return held(not faults, "; ".join([detail, *faults]))


def calibration(results):
    found = get(results, "stages", "calibrate") or {}
    machine = found.get("machine") or {}
    rates = ", ".join(f"{r['type']} {r['flops_per_second'] / 1e12:.3f} TFLOP/s" for r in machine.get("matrix", []))
    backend = "cuda" if results["card"] else "simulated"
    return held(found.get("code") == 0 and machine.get("backend") == backend, f"{machine.get('device', 'nothing')}; {rates}")


def same_bits(results):
    stages = results["stages"]
    wrong = [fault for stage in stages.get("bits", []) for fault in bit_faults(stage)]
    if "bits" in stages and not stages["bits"]:
        wrong.append("no model was trained")
    for model in ("gpt2", "bert"):
        if model not in stages:
            continue
        unlimited, quarter = (get(stages, model, which) or {} for which in ("unlimited", "quarter"))
        if not bits_of(unlimited) or bits_of(unlimited) != bits_of(quarter):
            wrong.append(f"{model} in a quarter")
    return with_faults(f"{len(stages.get('bits', []))} models, and in a quarter "
                       f"{', '.join(m for m in ('gpt2', 'bert') if m in stages) or 'none'}", wrong)


def bit_faults(stage):
    title = f"{stage['shape']['model']} {stage['shape']['type']}"
    losses = {budget: bits_of(run) for budget, run in stage["runs"].items()}
    expected = losses.get("unlimited", [])
    if len(losses) != 5 or len(expected) != 20 or not finite_losses(stage["runs"]["unlimited"]):
        yield f"{title}: {len(losses)} runs, {len(expected)} steps without a limit"
    for budget, bits in losses.items():
        if bits != expected:
            yield f"{title} in {budget}"
    peaks = {get(run, "setup", "plan", "device_peak_bytes") for run in stage["runs"].values()}
    if len(peaks) < 3:
        yield f"{title}: only {len(peaks)} different plans"


def memory(results):
    runs = list(all_runs(results["stages"]))
    return with_faults(f"{len(runs)} runs" if runs else "nothing was trained",
                       [fault for name, run in runs for fault in memory_faults(name, run)] if runs else ["no account"])


def memory_faults(name, run):
    """A budget holds what a plan's arena takes and the overhead: context, libraries, lane scratch, and the page tables of
    mapped and pinned memory. The driver counts both, so nothing may be beyond the budget at any step, whichever part grew."""
    setup, steps = run.get("setup") or {}, run.get("steps", [])
    budget, peak, planned = setup.get("budget_bytes"), get(setup, "plan", "device_peak_bytes"), setup.get("overhead_bytes", 0)
    if run.get("code") != 0 or not steps or peak is None:
        yield f"{name} did not run (code {run.get('code')})"
        return
    touched = max(step["device_peak_bytes"] for step in steps)
    if touched > peak:
        yield f"{name} touched {touched} of {peak} planned"
    if not isinstance(budget, int):
        return
    if peak + planned > budget:
        yield f"{name} planned {peak} and {planned} of overhead in {budget}"
    worst = max(steps, key=lambda step: step.get("device_used_bytes", 0))
    used, overhead = worst.get("device_used_bytes", 0), worst.get("device_overhead_bytes", 0)
    if used > budget:
        pinned = get(setup, "plan", "pinned_bytes") or 0
        yield (f"{name}: the driver has {used} gone of {budget}: {used - overhead} allocated for {peak} planned, and "
               f"{overhead} of overhead for {planned} planned ({pinned} bytes are pinned)")


def attention(results):
    """GPT-2 and BERT without dropout are shapes that cuDNN has fast kernels for."""
    if not results["speed"]:
        return "skip", "asked of a card, at full size"
    stages = results["stages"]
    runs = [("smoke", get(stages, "smoke", "step"))] if "smoke" in stages else []
    runs += [(name, run) for name, run in all_runs(stages) if name.startswith(("gpt2", "bert"))]
    faults = [fault for name, run in runs for fault in attention_faults(name, run or {})]
    total = sum((attention_of(run or {}) or {}).get("cudnn", 0) for _, run in runs)
    return with_faults(f"{total} executions by cuDNN in {len(runs)} runs", faults if runs else ["no run"])


def attention_faults(name, run):
    by = attention_of(run)
    if by is None:
        yield f"{name}: executions were not counted"
    elif by["cudnn"] == 0 or by["own"] or by["plain"]:
        yield (f"{name}: {by['cudnn']} by cuDNN, {by['own']} by our own kernels, {by['plain']} by plain ones"
               + "".join(f" [{refusal}]" for refusal in by.get("refusals", [])))


def enough_utilisation(results):
    if not results["speed"]:
        return NO_SPEED
    share = utilisation(get(results, "stages", "gpt2", "unlimited") or {}, get(results, "stages", "calibrate", "machine"))
    return held(share is not None and share >= LEAST_UTILISATION, "not measured" if share is None else f"{share:.1%}")


def slowdown(model):
    def line(results):
        if not results["speed"]:
            return NO_SPEED
        runs = get(results, "stages", model) or {}
        whole, quarter = (step_seconds(runs.get(which) or {}) for which in ("unlimited", "quarter"))
        tokens = get(runs, "quarter", "setup", "tokens_per_step") or 0
        if not whole or not quarter:
            return held(False, "not measured")
        return held(quarter / whole <= MOST_SLOWDOWN and tokens >= TOKENS,
                    f"{quarter / whole:.3f}x, {tokens} tokens per step")
    return line


def buckets(results):
    shares = link_shares(results)
    detail = ", ".join(f"{way} " + " against ".join("not measured" if s is None else f"{s:.1%}" for s in pair)
                       for way, pair in shares.items()) + " per tensor"
    if not results["speed"]:
        return "skip", f"{NO_SPEED[1]}; {detail}"
    return held(all(pair[0] is not None and pair[0] >= LEAST_LINK_SHARE for pair in shares.values()), detail)


def large(results):
    found = get(results, "stages", "large") or {}
    refused = get(found, "without_offload", "code") == 3 and bool(get(found, "without_offload", "infeasible"))
    trained = get(found, "bucketed", "code") == 0 and finite_losses(found.get("bucketed") or {})
    again = [which for which in ("bucketed_again", "per_tensor_again") if which in found]  # records before 2026-11-27 have none
    same = len({tuple(bits_of(found.get(which) or {})) for which in ("bucketed", "per_tensor", *again)}) == 1
    return held(refused and trained and same,
                f"without offload {'refused' if refused else 'not refused'}, "
                f"with it {'trained' if trained else 'not trained'}, "
                f"losses of both bucket sizes {'equal' if same else 'differ'}")


def billions(results):
    asked = [name for name in BILLIONS if name in results["asked"]]
    found = {name: get(results, "stages", name) or {} for name in asked}
    faults = [f"{name} did not train" for name, of in found.items()
              if get(of, "offloaded", "code") != 0 or not finite_losses(of.get("offloaded") or {})]
    return with_faults("; ".join(f"{name}: {get(of, 'offloaded', 'setup', 'need_bytes')} bytes of need in {of.get('budget_bytes')}"
                                 for name, of in found.items()), faults)


def billions_whole(results):
    """The offloaded run's losses, where there was one."""
    if "6.7b-whole" not in results["asked"]:
        return "skip", "not asked for: 6.7b-whole"
    if get(results, "stages", "6.7b-whole", "no_room"):
        return "skip", "the card has no room for it"
    whole, offloaded = get(results, "stages", "6.7b-whole", "unlimited") or {}, get(results, "stages", "6.7b", "offloaded") or {}
    trained = whole.get("code") == 0 and finite_losses(whole)
    same = not offloaded or bits_of(whole) == bits_of(offloaded)
    return held(trained and same, f"{'trained' if trained else 'not trained'}, losses {'equal' if same else 'differ'}")


def trainer(results):
    stage = get(results, "stages", "trainer") or {}
    runs = [stage.get(which) or {} for which in ("unlimited", "smaller")]
    losses = [[(s["loss"], s["grad_norm"]) for s in run.get("steps") or []] for run in runs]
    trained = all(run.get("code") == 0 and len(run["steps"]) == 5 and finite_losses(run) for run in runs)
    peaks = [max((s["device_peak_bytes"] for s in run.get("steps") or []), default=0) for run in runs]
    return held(trained and losses[0] == losses[1] and peaks[1] < peaks[0],
                f"{'trained' if trained else 'not trained'}, losses {'equal' if losses[0] == losses[1] else 'differ'}, "
                f"{peaks[1]} bytes touched instead of {peaks[0]}")
