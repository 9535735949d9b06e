"""The comparison of many processes, and their table."""

import statistics

from cases import LEAST_COUNTED, LLM_C, LOSS_STEP, WARM_UP
from outcome import SKIPPED

GIB = 1 << 30


def has_rate(result):
    """Whether it is compared with others."""
    return bool(result.get("tokens_per_second")) and result["counted_steps"] >= LEAST_COUNTED


def ratios(results):
    """Tokens per second of each against PyTorch's in the same case and round: {"case", "round", "peer", "ratio"}."""
    base = {
        (r["case"], r["round"]): r["tokens_per_second"]
        for r in results
        if r["peer"] == "pytorch" and has_rate(r)
    }
    return [
        {
            "case": r["case"],
            "round": r["round"],
            "peer": r["peer"],
            "ratio": r["tokens_per_second"] / base[r["case"], r["round"]],
        }
        for r in results
        if has_rate(r) and r["peer"] != "pytorch" and (r["case"], r["round"]) in base
    ]


def best_peer(results):
    """For each case our tokens per second over those of the fastest peer that ran, medians of all rounds:
    {"case", "peer", "ratio"}."""
    found = []
    for case in dict.fromkeys(r["case"] for r in results):
        rates = {}
        for r in results:
            if r["case"] == case and has_rate(r):
                rates.setdefault(r["peer"], []).append(r["tokens_per_second"])
        medians = {peer: statistics.median(of) for peer, of in rates.items()}
        others = [peer for peer in medians if not peer.startswith("stowage")]
        if "stowage" in medians and others:
            best = max(others, key=medians.get)
            found.append({"case": case, "peer": best, "ratio": medians["stowage"] / medians[best]})
    return found


def losses_apart(results):
    """For each peer that ran, the largest difference of a step's loss from our longest run's in the same case, and the
    first step's, relative to ours: {"case", "round", "peer", "steps", "apart", "first_apart"}. llm.c has other weights."""
    ours = {}
    for r in results:
        if r["peer"] == "stowage" and len(r.get("losses", [])) > len(ours.get(r["case"], [])):
            ours[r["case"]] = r["losses"]
    found = []
    for r in results:
        pairs = list(zip(ours.get(r["case"], []), r.get("losses", [])))
        if pairs and r["peer"] not in ("stowage", LLM_C):
            found.append(
                {
                    "case": r["case"],
                    "round": r["round"],
                    "peer": r["peer"],
                    "steps": len(pairs),
                    "apart": max(abs(a - b) for a, b in pairs),
                    "first_apart": abs(pairs[0][0] - pairs[0][1]) / max(abs(pairs[0][0]), 1e-9),
                }
            )
    return found


def summary(results):
    counts = {}
    for result in results:
        counts[result["status"]] = counts.get(result["status"], 0) + 1
    return {
        "statuses": counts,
        "against_pytorch": ratios(results),
        "against_the_best_peer": best_peer(results),
        "losses_apart": losses_apart(results),
    }


def gib(value):
    return f"{value / GIB:.2f}" if value is not None else "-"


def device_bytes(result):
    """Of the card as a whole, what it has more than before; on the CPU what the simulated device's plan touched."""
    return result["memory"].get("device_bytes", result["program"].get("device_peak_bytes"))


def steps_behind(result):
    """How many steps the rate is of; behind how many, where those are not all that the others leave out."""
    few = result["warm_up_steps"] != WARM_UP and result["counted_steps"]
    return f"{result['counted_steps']} behind {result['warm_up_steps']}" if few else str(result["counted_steps"])


def clipped(result):
    """Of the counted steps."""
    count, known = result["clipped_steps"]
    return f"{count} of {known}" if known else "-"


def row(result):
    name = [result["case"], result["peer"], str(result["round"])]
    if result["status"] == SKIPPED:
        return [*name, SKIPPED, *["-"] * 8, result["why"]]
    speed, loss = result["tokens_per_second"], result[f"loss_at_step_{LOSS_STEP}"]
    memory = result["memory"]
    return [
        *name,
        result["status"],
        f"{speed:.1f}" if speed else "-",
        steps_behind(result),
        clipped(result),
        str(result["micro_batch"] or "-"),
        gib(device_bytes(result)),
        gib(memory.get("host_resident")),
        gib(result["program"].get("pinned_bytes")),
        f"{loss:.5f}" if loss is not None else "-",
        (f"{result['bytes_above']} bytes more than the case has; " if result["bytes_above"] else "") + result["why"],
    ]


HEAD = [
    "case",
    "peer",
    "round",
    "status",
    "tokens/s",
    "of steps",
    "clipped",
    "micro-batch",
    "device GiB",
    "host GiB",
    "pinned GiB",
    f"loss at {LOSS_STEP}",
    "",
]
WIDEST = 140  # of the last column


def table(results):
    """Markdown."""
    rows = [HEAD, ["---"] * len(HEAD), *(row(result) for result in results)]
    return "\n".join(
        "| " + " | ".join(cell.replace("\n", " ").replace("|", "/")[:WIDEST] for cell in cells) + " |" for cells in rows
    )


def agreement(results):
    """Sentences about losses."""
    for item in losses_apart(results):
        who = f"{item['case']}, round {item['round']}: losses of {item['peer']} and stowage"
        yield f"{who} differ by at most {item['apart']:.1e} in {item['steps']} steps"


def comparison(results):
    """Sentences about speed."""
    found = summary(results)
    for item in found["against_pytorch"]:
        who = f"{item['case']}, round {item['round']}: {item['peer']}"
        yield f"{who} trains {item['ratio']:.2f} times as many tokens per second as pytorch"
    for item in found["against_the_best_peer"]:
        how = f"{item['ratio']:.2f} times as many tokens per second"
        yield f"{item['case']}: stowage trains {how} as the fastest peer, {item['peer']}"
