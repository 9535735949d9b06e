"""Verdicts on programs beside the training runs. Each takes results and returns (status, detail)."""

from facts import finite_losses, get, step_seconds
from judge_training import held, with_faults

# Of Stowage's, the relative difference of a peer's loss in the first step. Both have the same weights and tokens and no
# update before it, so that only the roundings of one forward pass differ: each is at most 2^-8 in bf16, and the loss is a mean
# over thousands of tokens. Later losses are printed and not judged: AdamW's first updates have the learning rate's size
# whatever the gradient's, so that roundings choose the sign of small ones, and no bound follows from the types.
MOST_FIRST_LOSS_APART = 2**-8


def smoke(results):
    found = results["stages"]["smoke"]
    faults = [f"{name}: {lines[0]}" for name, lines in found["resolve"]["faults"].items()]
    if found["resolve"]["files"] == 0:
        faults.append("no program is here")
    if found["calibrate"]["code"] != 0:
        faults.append(f"calibration ended with {found['calibrate']['code']}: {found['calibrate']['errors']}")
    if found["step"]["code"] != 0 or not finite_losses(found["step"]):
        faults.append(f"the step ended with {found['step']['code']}: {found['step'].get('errors', 'no loss')}")
    return with_faults(f"{found['resolve']['files']} files", faults)


def tests(results):
    found = results["stages"]["tests"]
    wanted = [t for t in found if ("gpu" in t["labels"]) == results["card"]]  # the others may skip every test
    bad = [t["name"] for t in found if t["code"] != 0 or t["failed"]]
    if not wanted and not bad:
        return held(False, "no gpu test is installed") if results["card"] else ("skip", "there is no card")
    unseen = [t["name"] for t in wanted if t["passed"] == 0]
    detail = f"{sum(t['passed'] for t in wanted)} passed, {sum(t['skipped'] for t in found)} skipped in {len(found)} programs"
    if bad:
        detail += "; failed: " + ", ".join(bad)
    if unseen:
        detail += "; not one test ran in: " + ", ".join(unseen)
    return held(not bad and not unseen, detail)


def timed(results):
    """Of the stages that were asked for: nothing is promised of the times."""
    found = {name: results["stages"][name] for name in ("slices", "allocator", "products") if name in results["asked"]}
    runs = [run for stage in found.values() for run in stage["runs"]]
    faults = [f"{run['name']} ended with {run['code']}: {run['errors']}" for run in runs if run["code"] != 0]
    faults += [f"nothing was printed of {name}" for name, stage in found.items() if not stage["lines"]]
    other = [line["model"] for line in found.get("slices", {}).get("lines", []) if line.get("same_bits") is False]
    if other:
        faults.append(f"attention_backward wrote other bits in another workspace: {', '.join(other)}")
    return with_faults(f"{sum(len(stage['lines']) for stage in found.values())} times", faults)


def sanitizer(results):
    found = results["stages"]["sanitizer"]
    if not found.get("tool"):
        return "skip", "there is no compute-sanitizer on this machine"
    if found.get("refused"):
        return "skip", f"the tool says of this machine: {found['refused']}"
    done = [r for r in found["runs"] if r["code"] is not None]
    bad = [f"{r['check']} {r['name']} (code {r['code']}, {r['passed']} tests passed)" for r in done
           if (r["code"] != 0 and not (r["code"] == 255 and r.get("called_nothing"))) or r["failed"] or not r["passed"]]
    if bad:
        return held(False, f"{len(done)} runs; failed: " + ", ".join(bad))
    if len(done) < len(found["runs"]) or not done:
        return "skip", f"time for {len(done)} of {len(found['runs'])} runs, and no fault in them; run --only sanitizer"
    return held(True, f"{len(done)} runs")


def loss_bits(run):
    return [step["loss_bits"] for step in (run or {}).get("steps", [])]


def interposer(results):
    found = results["stages"]["interposer"]
    runs = {name: found[name] for name in ("plain", "limited", "cached")}
    faults = [f"{name} ended with {run['code']}: {run.get('errors', '')}" for name, run in runs.items() if run["code"] != 0]
    expected = loss_bits(runs["plain"])
    if not expected or not finite_losses(runs["plain"]):
        faults.append("no losses without stowage run")
    faults += [f"losses differ: {name}" for name, run in runs.items() if loss_bits(run) != expected]
    record, limit = found["record"] or {}, found["limit_bytes"]
    if not record.get("allocations"):
        faults.append("nothing was recorded")
    elif record["peak_bytes"] > limit:
        faults.append(f"{record['peak_bytes']} bytes of the card under a limit of {limit}")
    elif not record["spilled_bytes"]:
        faults.append("nothing was spilled, so the limit was none")
    if found["replay"]["code"] != 0:
        faults.append(f"the record cannot be replayed: {found['replay']['errors']}")
    if not found["report_bytes"]:
        faults.append("no report was written")
    return with_faults(f"{record.get('peak_bytes')} bytes under a limit of {limit}, {record.get('spilled_bytes')} spilled; "
                       + step_times(runs), faults)


def step_times(runs):
    times = {name: step_seconds(run) for name, run in runs.items()}
    return ", ".join(f"{name} {1e3 * t:.1f} ms" if t else f"{name} not timed" for name, t in times.items()) + " a step"


BACKENDS = {"native": "native", "expandable": "native", "cudaMallocAsync": "cudaMallocAsync", "stowage": "pluggable"}


def pluggable(results):
    runs = results["stages"]["pluggable"]
    faults = [f"{name} did not run" for name in BACKENDS if name not in runs]
    faults += [f"{name} ended with {run['code']}: {run.get('errors', '')}" for name, run in runs.items() if run["code"] != 0]
    expected, graph = loss_bits(runs.get("native")), get(runs, "native", "end", "graph_losses")
    if not expected or not graph:
        faults.append("no losses with PyTorch's own allocator")
    for name, run in runs.items():
        if loss_bits(run) != expected:
            faults.append(f"losses differ: {name}")
        if get(run, "end", "graph_losses") != graph:
            faults.append(f"losses of the CUDA graph differ: {name}")
        if get(run, "end", "backend") != BACKENDS[name]:
            faults.append(f"{name} was served by {get(run, 'end', 'backend')}")
    peaks = ", ".join(f"{name} {(get(run, 'end', 'nvml_bytes') or 0) / 2**20:.0f} MiB" for name, run in runs.items())
    return with_faults(f"peaks by NVML: {peaks}; {step_times(runs)}", faults)


def contest(stage):
    return lambda results: contest_verdict(results["stages"][stage])


def contest_verdict(found):
    if not found["result"]:
        return held(False, f"code {found['code']}: {found['errors']}")
    ran = found["result"].get("results", [])
    ours = [r for r in ran if r["peer"].startswith("stowage")]
    faults = [] if found["code"] == 0 else [f"code {found['code']}: {found['errors']}"]
    if not ours:
        faults.append("Stowage is not among the results")
    slow = [r for r in ran if not r.get("tokens_per_second")]
    faults += [f"{r['case']} {r['peer']} has no speed: {r['status']}, {r['why']}" for r in slow if r in ours]
    faults += [f"{r['case']} {r['peer']} took {r['bytes_above']} bytes more than its case has" for r in ran
               if r.get("bytes_above")]
    apart = get(found["result"], "summary", "losses_apart") or []
    faults += [f"{a['case']} {a['peer']}: the first loss is {a['first_apart']:.1e} of Stowage's away" for a in apart
               if not a["first_apart"] <= MOST_FIRST_LOSS_APART]
    peers = "".join(f"; no speed of {r['case']} {r['peer']}: {r['status']}, {r['why'][:120]}" for r in slow if r not in ours)
    most = max((a["apart"] for a in apart), default=0)
    return with_faults(f"{len(ran) - len(slow)} of {len(ran)} processes with a speed; all losses within {most:.1e}{peers}", faults)
