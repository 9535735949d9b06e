"""What gpu_check's numbers mean: one verdict for each line of the acceptance, from plain data alone."""

import math
import statistics

START_UP = 2  # steps that no time is taken from
LEAST_UTILISATION = 0.40
MOST_SLOWDOWN = 1.15
LEAST_LINK_SHARE = 0.95
MOST_SECONDS = 540
TOKENS = 64000
NO_SPEED = "speed is judged on a card, at full size"


def verdict(name, holds, detail):
    return {"name": name, "status": "pass" if holds else "fail", "detail": detail}


def skipped(name, reason):
    return {"name": name, "status": "skip", "detail": reason}


def get(data, *keys):
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def step_seconds(run):
    """Median of the steady steps; None where there is none."""
    times = [step["seconds"] for step in run.get("steps", [])[START_UP:] if step.get("seconds")]
    return statistics.median(times) if times else None


def finite_losses(run):
    losses = [step.get("loss") for step in run.get("steps", [])]
    return bool(losses) and all(isinstance(loss, float) and math.isfinite(loss) for loss in losses)


def bits_of(run):
    """Loss and gradient norm of every step, to the bit."""
    return [(step["loss_bits"], step["grad_norm_bits"]) for step in run.get("steps") or []]


def gemm_rate(machine, kind):
    return next((rate["flops_per_second"] for rate in (machine or {}).get("matrix", []) if rate["type"] == kind), None)


def utilisation(run, machine):
    seconds, setup = step_seconds(run), run.get("setup") or {}
    rate = gemm_rate(machine, get(setup, "shape", "type"))
    return setup["model_flops"] / seconds / rate if seconds and rate else None


def all_runs(stages):
    """(name, run) of everything that was trained."""
    for stage in stages.get("bits", []):
        for budget, run in stage["runs"].items():
            yield f"bits {stage['shape']['model']} {stage['shape']['type']} {budget}", run
    for name in ("gpt2", "bert"):
        for which in ("unlimited", "quarter"):
            if get(stages, name, which):
                yield f"{name} {which}", stages[name][which]
    for which in ("bucketed", "per_tensor"):
        if get(stages, "large", which):
            yield f"large {which}", stages["large"][which]


def judge_tests(results):
    name = "conformance and kernel tests pass"
    tests = get(results, "stages", "tests") or []
    card = results["card"]
    wanted = [t for t in tests if ("gpu" in t["labels"]) == card]  # the others may skip every test
    bad = [t["name"] for t in tests if t["code"] != 0 or t["failed"]]
    if not wanted and not bad:
        return verdict(name, False, "no gpu test is installed") if card else skipped(name, "no card")
    passed = sum(t["passed"] for t in wanted)
    unseen = [t["name"] for t in wanted if t["passed"] == 0]
    detail = f"{passed} passed, {sum(t['skipped'] for t in tests)} skipped in {len(tests)} programs"
    if bad:
        detail += "; failed: " + ", ".join(bad)
    if unseen:
        detail += "; not one test ran in: " + ", ".join(unseen)
    return verdict(name, not bad and not unseen, detail)


def judge_sanitizer(results):
    name = "the same under compute-sanitizer"
    if not results["card"]:
        return skipped(name, "no card")
    found = get(results, "stages", "sanitizer") or {}
    if not found.get("tool"):
        return skipped(name, "there is no compute-sanitizer on this machine")
    if found.get("refused"):
        return skipped(name, f"the tool says of this machine: {found['refused']}")
    done = [r for r in found["runs"] if r["code"] is not None]
    bad = [f"{r['check']} {r['name']} (code {r['code']}, {r['passed']} tests passed)" for r in done
           if r["code"] != 0 or r["failed"] or not r["passed"]]
    if bad:
        return verdict(name, False, f"{len(done)} runs; failed: " + ", ".join(bad))
    if len(done) < len(found["runs"]) or not done:
        return skipped(name, f"time for {len(done)} of {len(found['runs'])} runs, and no fault in them; run --sanitize")
    return verdict(name, True, f"{len(done)} runs")


def judge_bits(results):
    name = "losses of 20 steps bit-identical, unlimited and in four budgets"
    stages = get(results, "stages", "bits") or []
    wrong = []
    for stage in stages:
        title = f"{stage['shape']['model']} {stage['shape']['type']}"
        losses = {budget: bits_of(run) for budget, run in stage["runs"].items()}
        expected = losses.get("unlimited", [])
        if len(losses) != 5 or len(expected) != 20 or not finite_losses(stage["runs"]["unlimited"]):
            wrong.append(f"{title}: {len(losses)} runs, {len(expected)} steps without a limit")
        wrong += [f"{title} in {budget}" for budget, bits in losses.items() if bits != expected]
        peaks = {get(run, "setup", "plan", "device_peak_bytes") for run in stage["runs"].values()}
        if len(peaks) < 3:
            wrong.append(f"{title}: only {len(peaks)} different plans")
    for model in ("gpt2", "bert"):
        unlimited, quarter = (get(results, "stages", model, which) or {} for which in ("unlimited", "quarter"))
        if not bits_of(unlimited) or bits_of(unlimited) != bits_of(quarter):
            wrong.append(f"{model} in a quarter")
    detail = f"{len(stages)} models, and gpt2 and bert in a quarter"
    return verdict(name, bool(stages) and not wrong, detail + ("; " + "; ".join(wrong) if wrong else ""))


def memory_faults(name, run):
    budget, peak = get(run, "setup", "budget_bytes"), get(run, "setup", "plan", "device_peak_bytes")
    steps = run.get("steps", [])
    if run.get("code") != 0 or not steps or peak is None:
        return [f"{name} did not run (code {run.get('code')})"]
    faults = []
    touched = max(step["device_peak_bytes"] for step in steps)
    if touched > peak:
        faults.append(f"{name} touched {touched} of {peak} planned")
    if isinstance(budget, int):
        if peak > budget:
            faults.append(f"{name} planned {peak} in {budget}")
        used = max((step.get("device_used_bytes", 0) for step in steps), default=0)
        if used > budget:
            faults.append(f"{name}: the driver has {used} gone of {budget}")
    return faults


def judge_memory(results):
    name = "planned peak and the driver's account stay under the budget"
    runs = list(all_runs(results["stages"]))
    faults = [fault for run_name, run in runs for fault in memory_faults(run_name, run)]
    return verdict(name, bool(runs) and not faults, f"{len(runs)} runs" + ("; " + "; ".join(faults) if faults else ""))


def judge_utilisation(results):
    name = f"un-offloaded GPT-2 124M at {LEAST_UTILISATION:.0%} of the measured GEMM rate"
    if not results["speed"]:
        return skipped(name, NO_SPEED)
    share = utilisation(get(results, "stages", "gpt2", "unlimited") or {}, get(results, "stages", "calibrate", "machine"))
    return verdict(name, share is not None and share >= LEAST_UTILISATION,
                   "not measured" if share is None else f"{share:.1%}")


def judge_slowdown(results, model):
    name = f"{model} at 1/4 of its need within {MOST_SLOWDOWN}x of the un-offloaded step"
    if not results["speed"]:
        return skipped(name, NO_SPEED)
    runs = get(results, "stages", model) or {}
    whole, quarter = (step_seconds(runs.get(which) or {}) for which in ("unlimited", "quarter"))
    tokens = get(runs, "quarter", "setup", "tokens_per_step") or 0
    if not whole or not quarter:
        return verdict(name, False, "not measured")
    return verdict(name, quarter / whole <= MOST_SLOWDOWN and tokens >= TOKENS,
                   f"{quarter / whole:.3f}x, {tokens} tokens per step")


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


def judge_buckets(results):
    name = f"buckets move at {LEAST_LINK_SHARE:.0%} of the calibrated link"
    shares = link_shares(results)
    detail = ", ".join(f"{way} " + " against ".join("not measured" if s is None else f"{s:.1%}" for s in pair)
                       for way, pair in shares.items()) + " per tensor"
    if not results["speed"]:
        return skipped(name, f"{NO_SPEED}; {detail}")
    return verdict(name, all(pair[0] is not None and pair[0] >= LEAST_LINK_SHARE for pair in shares.values()), detail)


def judge_large(results):
    name = "a model trains in a budget that it does not fit without offload"
    large = get(results, "stages", "large") or {}
    refused = get(large, "without_offload", "code") == 3 and bool(get(large, "without_offload", "infeasible"))
    trained = get(large, "bucketed", "code") == 0 and finite_losses(large.get("bucketed") or {})
    same = bits_of(large.get("bucketed") or {}) == bits_of(large.get("per_tensor") or {})
    detail = (f"without offload {'refused' if refused else 'not refused'}, "
              f"with it {'trained' if trained else 'not trained'}, "
              f"losses of both bucket sizes {'equal' if same else 'differ'}")
    return verdict(name, refused and trained and same, detail)


def judge_trainer(results):
    name = "train_gpt gives the same losses in a smaller budget"
    stage = get(results, "stages", "trainer") or {}
    runs = [stage.get(which) or {} for which in ("unlimited", "smaller")]
    losses = [[(s["loss"], s["grad_norm"]) for s in run.get("steps") or []] for run in runs]
    trained = all(run.get("code") == 0 and len(run["steps"]) == 5 and finite_losses(run) for run in runs)
    peaks = [max((s["device_peak_bytes"] for s in run.get("steps") or []), default=0) for run in runs]
    return verdict(name, trained and losses[0] == losses[1] and peaks[1] < peaks[0],
                   f"{'trained' if trained else 'not trained'}, losses {'equal' if losses[0] == losses[1] else 'differ'}, "
                   f"{peaks[1]} bytes touched instead of {peaks[0]}")


def judge_calibration(results):
    found = get(results, "stages", "calibrate") or {}
    machine = found.get("machine") or {}
    rates = ", ".join(f"{r['type']} {r['flops_per_second'] / 1e12:.3f} TFLOP/s" for r in machine.get("matrix", []))
    backend = "cuda" if results["card"] else "simulated"
    return verdict("calibration wrote the machine's file", found.get("code") == 0 and machine.get("backend") == backend,
                   f"{machine.get('device', 'nothing')}; {rates}")


def judge_time(results):
    return verdict(f"all within {MOST_SECONDS} s", results["seconds"] <= MOST_SECONDS, f"{results['seconds']:.0f} s")


def judge(results):
    """Every verdict; a stage that is missing fails."""
    if results.get("only_sanitizer"):
        return [judge_sanitizer(results)]
    return [judge_calibration(results), judge_tests(results), judge_sanitizer(results), judge_bits(results),
            judge_memory(results), judge_utilisation(results), judge_slowdown(results, "gpt2"),
            judge_slowdown(results, "bert"), judge_buckets(results), judge_large(results),
            judge_trainer(results), judge_time(results)]


def run_summary(run, machine):
    setup, seconds = run.get("setup") or {}, step_seconds(run)
    plan, steps = setup.get("plan") or {}, run.get("steps") or []
    bound, predicted = plan.get("lower_bound_seconds"), plan.get("predicted_step_seconds")
    stalls = [s["stall_fraction"] for s in steps[START_UP:]]
    return {"need_bytes": setup.get("need_bytes"), "budget_bytes": setup.get("budget_bytes"),
            "planned_peak_bytes": plan.get("device_peak_bytes"),
            "driver_bytes": max((s.get("device_used_bytes", 0) for s in steps), default=0) or None,
            "step_seconds": seconds, "tokens_per_second": setup["tokens_per_step"] / seconds if seconds else None,
            "model_flop_utilisation": utilisation(run, machine),
            "share_of_lower_bound": bound / seconds if seconds and bound else None,
            "predicted_over_measured": predicted / seconds if seconds and predicted else None,
            "stall_fraction": statistics.median(stalls) if stalls else None,
            "h2d_bytes": plan.get("h2d_bytes"), "d2h_bytes": plan.get("d2h_bytes")}


def summary(results):
    """The table's numbers by run, and the link's shares by direction."""
    machine = get(results, "stages", "calibrate", "machine")
    runs = {name: run_summary(run, machine) for name, run in all_runs(results["stages"])}
    shares = {way: {"bucketed": pair[0], "per_tensor": pair[1]} for way, pair in link_shares(results).items()}
    return {"runs": runs, "share_of_calibrated_link": shares}


def size(value):
    return "unlimited" if not isinstance(value, int) else f"{value / 2**20:.1f}"


def percent(value):
    return "-" if value is None else f"{100 * value:.1f}%"


def run_row(name, of):
    def number(key, text, scale=1):
        return "-" if of[key] is None else text.format(of[key] * scale)

    ahead = None if of["predicted_over_measured"] is None else of["predicted_over_measured"] - 1
    return [name, size(of["need_bytes"] or 0), size(of["budget_bytes"]), size(of["planned_peak_bytes"] or 0),
            number("driver_bytes", "{:.1f}", 2**-20), number("step_seconds", "{:.1f}", 1e3),
            number("tokens_per_second", "{:.0f}"), percent(of["model_flop_utilisation"]),
            percent(of["share_of_lower_bound"]), percent(ahead), percent(of["stall_fraction"]),
            size(of["h2d_bytes"] or 0), size(of["d2h_bytes"] or 0)]


HEADER = ["run", "need MiB", "budget", "peak", "driver", "step ms", "tokens/s", "MFU", "of bound", "predicted", "stall",
          "in MiB", "out MiB"]


def table(results):
    rows = [HEADER] + [run_row(name, of) for name, of in summary(results)["runs"].items()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
             for row in rows]
    return "\n".join(lines)


def verdict_lines(verdicts):
    return "\n".join(f"{v['status'].upper():<5} {v['name']}: {v['detail']}" for v in verdicts)
