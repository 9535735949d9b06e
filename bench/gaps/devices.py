"""Gaps of plans for several devices that train one model together, and the steps of other systems beside them.

For each model, machine and number of devices: some device budgets from the minimum to the need, each with host memory
without limit, and with a limit halfway (in factors) between the least that all of these budgets need and the most that
their plans take. Other systems are asked at the card's own memory, with host memory without limit."""

import math
import time
from concurrent.futures import ThreadPoolExecutor

from answers import GAP, ask, defects, describe, is_close, keep, read, rises, share_defect, slower

MODELS = ["1.3b", "6.7b", "30b", "66b", "bert-large"]
MACHINES = {"2x-rtx4090": 2, "4x-rtx4090": 4, "8x-a100-80gb": 8, "8x-h200": 8}
RIVALS = ["zero-offload", "zero-infinity", "gemini-cpu", "layer-stream", "fsdp2"]
WORST = 15


def host_limit(freely, least_rows):
    """Bytes of all devices; none where the plans take no more than the budgets need."""
    least = max(row["smallest_bytes"] if row["lacks"] == "host" else 0 for row in least_rows)
    most = max(row["host_bytes"] for row in freely)
    return int(math.sqrt(least * most)) if 0 < least < most else None


def answer(stowage, model, machine, devices, budgets):
    begin = time.time()

    def plans(*more):
        return ask(stowage, model, machine, list(more), devices)

    sweep = ["--sweep", f"memory={budgets}"]
    freely = plans(*sweep)
    limit = host_limit(freely, plans(*sweep, "--host-memory", 1))
    limited = plans(*sweep, "--host-memory", limit) if limit else []
    card = {policy: plans("--policy", policy) for policy in ["auto", *RIVALS]}
    return {"model": model, "machine": machine, "devices": devices, "budgets": budgets,
            "seconds": round(time.time() - begin, 1), "rows": freely, "limited": limited, "card": card}


def key(each):
    return each["model"], each["machine"], each["devices"], each["budgets"]


def name(each):
    return f"{each['model']} on {each['devices']} of {each['machine']}"


def defects_of(each):
    """Slower with more device memory, with more host memory, or than another system; or no plan where there is one."""
    found = defects(each["rows"], name(each))
    plans = [row for row in each["limited"] if row["feasible"]]
    if len(plans) < len(each["limited"]):
        found.append(f"{name(each)}: no plan in the host memory that was said to do")
    found += defects(plans, f"{name(each)}, host memory limited")
    for before, row in zip(each["limited"], each["rows"]):
        if before["feasible"] and rises(before, row):
            found.append(f"{name(each)}: {slower(before, row)} with more host memory, at {row['budget_bytes']} bytes")
    own = each["card"]["auto"]
    for policy in RIVALS:
        other = each["card"][policy]
        if other["feasible"] and (not own["feasible"] or rises(other, own)):
            found.append(f"{name(each)}: {slower(other, own) if own['feasible'] else 'no plan'} beside {policy}")
    return found


def all_rows(answers):
    """Every plan, with what it is a plan of and whether its device budget is above the exact minimum."""
    for each in answers:
        for row in [*each["rows"], *each["limited"], each["card"]["auto"]]:
            if row["feasible"]:
                yield each, row, row["budget_bytes"] > row["minimum_device_bytes"]


def above_minimum(rows):
    return [row for _, row, above in rows if above]


def gap_row(each):
    limit = each["limited"][0]["host_budget_bytes"] if each["limited"] else None
    cells = [describe(row) for row in each["rows"]]
    cells += [describe(row) if row["feasible"] else "none" for row in each["limited"]] or [""] * each["budgets"]
    own = each["card"]["auto"]
    cells += [f"{limit / 1e9:.0f} GB" if limit else "", describe(own) if own["feasible"] else "none"]
    return f"| {each['model']} | {each['machine']} | {each['devices']} | " + " | ".join(cells) + f" | {each['seconds']:.0f} |"


def gap_header(budgets):
    device = ["minimum", *[""] * (budgets - 2), "need"]
    cells = ["model", "machine", "devices", *device, *[f"{cell}, host limited" if cell else "" for cell in device],
             "host limit of all", "the card's memory", "s"]
    return "| " + " | ".join(cells) + " |\n" + "|---" * len(cells) + "|"


def worst(rows):
    lines = ["| model | machine | devices | budget of each | host budget of all | step | stall | bound | bound by | gap |",
             "|---" * 10 + "|"]
    for each, row, _ in sorted(rows, key=lambda found: -found[1]["gap"])[:WORST]:
        host = row["host_budget_bytes"]
        lines.append(f"| {each['model']} | {each['machine']} | {each['devices']} | {row['budget_bytes'] / 1e9:.3f} GB | "
                     f"{f'{host / 1e9:.0f} GB' if host else 'unlimited'} | {row['step_seconds']:.4f} s | {row['stall_seconds']:.4f} s | "
                     f"{row['lower_bound_seconds']:.4f} s | {row['bound_by']} | {100 * row['gap']:.1f} % |")
    return "\n".join(lines)


def binding(rows):
    lines = ["| bound by | plans | at most 10 % above | mean gap |", "|---|---|---|---|"]
    for term in sorted({row["bound_by"] for _, row, _ in rows}):
        gaps = [row["gap"] for _, row, _ in rows if row["bound_by"] == term]
        lines.append(f"| {term} | {len(gaps)} | {sum(gap <= GAP for gap in gaps)} | {100 * sum(gaps) / len(gaps):.1f} % |")
    return "\n".join(lines)


def beside(own, other):
    if not other["feasible"]:
        return f"needs {other['smallest_bytes'] / 2**30:.1f} GiB"
    if not own["feasible"]:
        return f"{other['step_seconds']:.3f} s"
    return f"{other['step_seconds']:.3f} s ({other['step_seconds'] / own['step_seconds']:.2f}x)"


def rival_row(each):
    own = each["card"]["auto"]
    cells = [f"{own['step_seconds']:.3f} s", f"{own['tokens_per_second']:,.0f}"] if own["feasible"] else ["none", ""]
    cells += [beside(own, each["card"][policy]) for policy in RIVALS]
    return f"| {each['model']} | {each['machine']} | {each['devices']} | " + " | ".join(cells) + " |"


def share(rows):
    if not rows:
        return "none of none"
    mean = sum(row["gap"] for row in rows) / len(rows)
    return f"{sum(map(is_close, rows))} of {len(rows)}, {100 * mean:.1f} % on average"


def summary(rows, seconds):
    above = above_minimum(rows)
    freely = [row for row in above if row["host_budget_bytes"] is None]
    limited = [row for row in above if row["host_budget_bytes"] is not None]
    return (f"{len(rows)} plans, planned in {seconds:.0f} s. At most {100 * GAP:.0f} % above the bound: "
            f"{share([row for _, row, _ in rows])}; above the exact minimum {share(freely)}, "
            f"and with limited host memory {share(limited)}.")


def run(options, stowage):
    models = (options.models or ("1.3b,bert-large" if options.quick else ",".join(MODELS))).split(",")
    machines = (options.machines or ("4x-rtx4090" if options.quick else ",".join(MACHINES))).split(",")
    budgets = options.budgets or (3 if options.quick else 4)
    numbers = [int(number) for number in options.devices.split(",")]
    known = read(options.results, key)
    asked = [(model, machine, devices, budgets) for model in models for machine in machines
             for devices in numbers if devices <= MACHINES[machine]]

    def one(case):
        if case not in known:
            known[case] = answer(stowage, *case)
            keep(options.results, known[case])
        return known[case]

    answers = []
    print(gap_header(budgets))
    with ThreadPoolExecutor(options.jobs) as pool:
        for each in pool.map(one, asked):
            answers.append(each)
            print(gap_row(each), flush=True)
    rows = list(all_rows(answers))
    print("\n" + summary(rows, sum(each["seconds"] for each in answers)))
    print("\nThe largest gaps:\n\n" + worst(rows) + "\n\nGaps by what the bound is bound by:\n\n" + binding(rows))
    print("\nOther systems, **emulated**, at the card's memory:\n")
    print("| model | machine | devices | auto | tokens/s | " + " | ".join(RIVALS) + " |\n" + "|---" * (5 + len(RIVALS)) + "|")
    print("\n".join(map(rival_row, answers)))
    return [defect for each in answers for defect in defects_of(each)] + share_defect(above_minimum(rows))
