"""What a process's words amount to, the comparison of many, and their table."""

import json
import re
import statistics

from cases import LEFT_OUT, LOSS_STEP

# Only of whole words, for a traceback names many things.
OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|"
                           r"CUBLAS_STATUS_ALLOC_FAILED|too small; the smallest that works|"
                           r"of the card are free|memory ran out", re.IGNORECASE)
RAN, FITS_NOT, FAILED, STOPPED = "ran", "does not fit", "failed", "stopped"
ABSENT, NO_CARD, SKIPPED = "absent", "no card", "skipped"
GIB = 1 << 30


def events_in(lines):
    """The objects with an "event" among a program's lines; anything else it prints is passed over."""
    found = []
    for line in lines:
        try:
            item = json.loads(line)
        except ValueError:
            continue
        if isinstance(item, dict) and isinstance(item.get("event"), str):
            found.append(item)
    return found


def of_kind(events, kind):
    return [event for event in events if event["event"] == kind]


def is_step(event):
    return isinstance(event.get("loss"), (int, float)) and isinstance(event.get("seconds"), (int, float)) and event["seconds"] > 0


def steps_of(events):
    return [event for event in of_kind(events, "step") if is_step(event)]


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""


def status_of(done, events, steps):
    """(status, why)."""
    for kind in (ABSENT, NO_CARD, FITS_NOT, FAILED):
        for event in of_kind(events, kind):
            reached = f"reached: {event['reached']}; " if event.get("reached") else ""
            return kind, reached + str(event.get("message", ""))[:1000]
    if done["stopped"]:
        return STOPPED, f"at its time limit, after {len(steps)} steps"
    if done["code"] == 0 and steps:
        return RAN, ""
    if OUT_OF_MEMORY.search(done["errors"]):
        return FITS_NOT, last_line(done["errors"])
    if done["code"] == 0:
        return FAILED, "it printed no step"
    if done["code"] < 0:
        return FAILED, f"signal {-done['code']} ended it (9: perhaps the host's memory ran out) {last_line(done['errors'])}"
    return FAILED, f"exit code {done['code']}: {last_line(done['errors'])}"


def rate(tokens, steps):
    """Tokens per second of the median step, the first ones left out, and those before a smaller micro-batch was needed;
    None without a step that counts."""
    seconds = [step["seconds"] for step in steps[LEFT_OUT:] if step.get("micro_batch") == steps[-1].get("micro_batch")]
    return tokens / statistics.median(seconds) if seconds else None


def loss_at(steps, number=LOSS_STEP):
    return steps[number - 1]["loss"] if len(steps) >= number else None


def result_of(job, done, events):
    """The line of contest.jsonl for one process."""
    steps = steps_of(events)
    status, why = status_of(done, events, steps)
    setup = {key: value for event in of_kind(events, "setup") + of_kind(events, "peaks")
             for key, value in event.items() if key != "event"}
    attempts = [event.get("micro_batch") for event in of_kind(events, "attempt")]
    return {"case": job.case.name, "peer": job.peer, "round": job.round, "status": status, "why": why,
            "tokens_per_second": rate(job.case.tokens, steps), f"loss_at_step_{LOSS_STEP}": loss_at(steps),
            "micro_batch": attempts[-1] if attempts else None, "attempts": attempts,
            "losses": [step["loss"] for step in steps], "step_seconds": [step["seconds"] for step in steps],
            "memory": done["peaks"], "program": setup, "seconds": done["seconds"], "code": done["code"],
            "errors": done["errors"] if status in (FAILED, STOPPED) else ""}


def skipped(job, why):
    return {"case": job.case.name, "peer": job.peer, "round": job.round, "status": SKIPPED, "why": why}


def ratios(results):
    """Tokens per second of each against PyTorch's in the same case and round: {"case", "round", "peer", "ratio"}."""
    base = {(r["case"], r["round"]): r["tokens_per_second"] for r in results if r["peer"] == "pytorch" and r.get("tokens_per_second")}
    return [{"case": r["case"], "round": r["round"], "peer": r["peer"],
             "ratio": r["tokens_per_second"] / base[r["case"], r["round"]]}
            for r in results if r.get("tokens_per_second") and r["peer"] != "pytorch" and (r["case"], r["round"]) in base]


def best_peer(results):
    """For each case our tokens per second over those of the fastest peer that ran: {"case", "peer", "ratio"}."""
    found = []
    for case in dict.fromkeys(r["case"] for r in results):
        ran = [r for r in results if r["case"] == case and r.get("tokens_per_second")]
        ours = [r["tokens_per_second"] for r in ran if r["peer"] == "stowage"]
        others = [r for r in ran if not r["peer"].startswith("stowage")]
        if ours and others:
            best = max(others, key=lambda r: r["tokens_per_second"])
            found.append({"case": case, "peer": best["peer"], "ratio": statistics.median(ours) / best["tokens_per_second"]})
    return found


def losses_apart(results):
    """For each peer that ran, the largest difference of a step's loss from ours in the same case: {"case", "round", "peer",
    "steps", "apart"}."""
    ours = {r["case"]: r["losses"] for r in reversed(results) if r["peer"] == "stowage" and r.get("losses")}
    found = []
    for r in results:
        pairs = list(zip(ours.get(r["case"], []), r.get("losses", [])))
        if pairs and r["peer"] != "stowage":
            found.append({"case": r["case"], "round": r["round"], "peer": r["peer"], "steps": len(pairs),
                          "apart": max(abs(a - b) for a, b in pairs)})
    return found


def summary(results):
    counts = {}
    for result in results:
        counts[result["status"]] = counts.get(result["status"], 0) + 1
    return {"statuses": counts, "against_pytorch": ratios(results), "against_the_best_peer": best_peer(results),
            "losses_apart": losses_apart(results)}


def gib(value):
    return f"{value / GIB:.2f}" if value is not None else "-"


def device_bytes(result):
    """Of the card as a whole, what it has more than before; on the CPU what the simulated device's plan touched."""
    return result["memory"].get("device_bytes", result["program"].get("device_peak_bytes"))


def row(result):
    name = [result["case"], result["peer"], str(result["round"])]
    if result["status"] == SKIPPED:
        return [*name, SKIPPED, *["-"] * 6, result["why"]]
    speed, loss = result["tokens_per_second"], result[f"loss_at_step_{LOSS_STEP}"]
    memory = result["memory"]
    return [*name, result["status"], f"{speed:.1f}" if speed else "-", str(result["micro_batch"] or "-"), gib(device_bytes(result)),
            gib(memory.get("host_resident")), gib(result["program"].get("pinned_bytes")), f"{loss:.5f}" if loss is not None else "-",
            result["why"]]


HEAD = ["case", "peer", "round", "status", "tokens/s", "micro-batch", "device GiB", "host GiB", "pinned GiB", f"loss at {LOSS_STEP}", ""]
WIDEST = 140  # of the last column


def table(results):
    """Markdown."""
    rows = [HEAD, ["---"] * len(HEAD), *(row(result) for result in results)]
    return "\n".join("| " + " | ".join(cell.replace("\n", " ").replace("|", "/")[:WIDEST] for cell in cells) + " |" for cells in rows)


def agreement(results):
    """Sentences about losses."""
    for item in losses_apart(results):
        yield f"{item['case']}, round {item['round']}: losses of {item['peer']} and stowage differ by at most {item['apart']:.1e} in {item['steps']} steps"


def comparison(results):
    """Sentences about speed."""
    found = summary(results)
    for item in found["against_pytorch"]:
        yield f"{item['case']}, round {item['round']}: {item['peer']} trains {item['ratio']:.2f} times as many tokens per second as pytorch"
    for item in found["against_the_best_peer"]:
        yield f"{item['case']}: stowage trains {item['ratio']:.2f} times as many tokens per second as the fastest peer, {item['peer']}"
