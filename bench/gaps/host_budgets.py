"""Gaps, rises and planning times of plans in limited host memory.

For each model and machine: some device budgets from the minimum to the need, each with host budgets from the fewest bytes
that do to what the plan without a limit takes, each the same factor above the one before, and without limit. Every answer
is that of a process of its own, so that no budget knows of another."""

import resource
import time

from answers import ask, describe, is_close, keep, read, rises, slower

MODELS = ["1.3b", "2.7b", "6.7b", "bert-large"]
MACHINES = ["rtx4090", "h200"]


def host_ladder(least, most, budgets):
    """Bytes, rising, and none for no limit."""
    steps = max(1, budgets - 2)
    return [round(least * (most / least) ** (step / steps)) for step in range(steps + 1)] + [None]


def timed(stowage, model, machine, more):
    """The answer, with the processor time that planning took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    row = ask(stowage, model, machine, more)
    row["planning_seconds"] = round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 2)
    return row


def answer(stowage, model, machine, budgets, device_budgets):
    begin = time.time()
    columns = []
    for freely in ask(stowage, model, machine, ["--sweep", f"memory={device_budgets}"]):
        device = ["--device-memory", freely["budget_bytes"]]
        least = ask(stowage, model, machine, [*device, "--host-memory", 1])
        if least["feasible"] or least["smallest_bytes"] >= freely["host_bytes"]:
            continue
        hosts = host_ladder(least["smallest_bytes"], freely["host_bytes"], budgets)
        columns.append([timed(stowage, model, machine, device + (["--host-memory", host] if host else [])) for host in hosts])
    return {"model": model, "machine": machine, "budgets": budgets, "device_budgets": device_budgets,
            "seconds": round(time.time() - begin, 1), "columns": columns}


def key(each):
    return each["model"], each["machine"], each["budgets"], each["device_budgets"]


def where(each, column):
    return f"{each['model']} on {each['machine']} in {column[0]['budget_bytes'] / 1e9:.3f} GB"


def column_defects(each, column):
    """No plan where the planner said that there is one, or a slower one than in less host memory."""
    found = [f"{where(each, column)}: no plan in {row['host_budget_bytes']} host bytes" for row in column if not row["feasible"]]
    best = None
    for row in filter(lambda row: row["feasible"], column):
        if best and rises(best, row):
            found.append(f"{where(each, column)}: {slower(best, row)} with more host memory, {row['host_budget_bytes'] or 'without limit'}")
        if row["gap"] < -1e-6:
            found.append(f"{where(each, column)}: faster than its lower bound")
        best = row if not best or row["step_seconds"] < best["step_seconds"] else best
    return found


def describe_column(each, column):
    hosts = [row["host_budget_bytes"] for row in column if row["host_budget_bytes"]]
    cells = [each["model"], each["machine"], f"{column[0]['budget_bytes'] / 1e9:.3f} GB", f"{hosts[0] / 1e9:.1f} to {hosts[-1] / 1e9:.1f} GB"]
    cells += [describe(row) if row["feasible"] else "none" for row in column]
    return "| " + " | ".join(cells + [f"{sum(row['planning_seconds'] for row in column):.1f}"]) + " |"


def share(rows):
    mean = sum(row["gap"] for row in rows) / len(rows)
    return f"{sum(map(is_close, rows))} of {len(rows)}, {100 * mean:.1f} % on average"


def run(options, stowage):
    models = options.models.split(",") if options.models else MODELS
    machines = options.machines.split(",") if options.machines else MACHINES
    device_budgets = options.budgets or 4
    known = read(options.results, key)
    print("| model | machine | device budget | host budgets | " + " | ".join([""] * (options.host_budgets - 1) + ["unlimited", "s"]) + " |")
    print("|---" * (options.host_budgets + 5) + "|")
    found, rows = [], []
    for case in [(model, machine, options.host_budgets, device_budgets) for model in models for machine in machines]:
        if case not in known:
            known[case] = answer(stowage, *case)
            keep(options.results, known[case])
        for column in known[case]["columns"]:
            print(describe_column(known[case], column), flush=True)
            found += column_defects(known[case], column)
            rows += [row for row in column if row["feasible"]]
    above = [row for row in rows if row["budget_bytes"] > row["minimum_device_bytes"]]
    print(f"\n{len(rows)} plans. At most 10 % above the bound: {share(rows)}; above the exact minimum {share(above)}. "
          f"Planned in {sum(row['planning_seconds'] for row in rows):.0f} s of processor time, "
          f"{sum(row['planning_seconds'] for row in rows if not row['host_budget_bytes']):.0f} s of them without a host limit.")
    return found
