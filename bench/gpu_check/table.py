"""The numbers of every run as a summary and as a table."""

import statistics

from facts import START_UP, all_runs, attention_of, get, link_shares, predicted_seconds, step_seconds, utilisation

HEADER = ["run", "need MiB", "budget", "peak", "driver", "step ms", "tokens/s", "MFU", "of bound", "predicted", "stall",
          "in MiB", "out MiB", "host GB/s"]


def run_summary(run, machine):
    setup, seconds = run.get("setup") or {}, step_seconds(run)
    plan, steps = setup.get("plan") or {}, run.get("steps") or []
    bound, predicted = plan.get("lower_bound_seconds"), predicted_seconds(run)
    stalls = [s["stall_fraction"] for s in steps[START_UP:]]
    return {"need_bytes": setup.get("need_bytes"), "budget_bytes": setup.get("budget_bytes"),
            "planned_peak_bytes": plan.get("device_peak_bytes"), "planned_overhead_bytes": setup.get("overhead_bytes"),
            "driver_bytes": max((s.get("device_used_bytes", 0) for s in steps), default=0) or None,
            "overhead_bytes": max((s.get("device_overhead_bytes", 0) for s in steps), default=0),
            "host_bytes": plan.get("host_bytes"), "pinned_bytes": plan.get("pinned_bytes"),
            "step_seconds": seconds, "tokens_per_second": setup["tokens_per_step"] / seconds if seconds else None,
            "model_flop_utilisation": utilisation(run, machine),
            "share_of_lower_bound": bound / seconds if seconds and bound else None,
            "predicted_over_measured": predicted / seconds if seconds and predicted else None,
            "stall_fraction": statistics.median(stalls) if stalls else None,
            "h2d_bytes": plan.get("h2d_bytes"), "d2h_bytes": plan.get("d2h_bytes"), "attention": attention_of(run),
            "host_bytes_per_second": get(run, "end", "host_bytes_per_second"),  # before and after the steps
            "seconds": {**(setup.get("seconds") or {}), **(get(run, "end", "seconds") or {})}}


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
            size(of["h2d_bytes"] or 0), size(of["d2h_bytes"] or 0),
            ", ".join(f"{rate / 1e9:.1f}" for rate in of["host_bytes_per_second"] or []) or "-"]


def aligned(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
                     for row in rows)


def kernel_table(name, run):
    """The last step by kernel, those that took longest first, and what the compute lane waited for."""
    kernels = get(run, "kernels", "kernels") or {}
    rows = [[name, "ops", "launches", "ms", "planned", "TFLOP/s", "GB/s"]]
    for kernel, of in sorted(kernels.items(), key=lambda item: -(item[1]["seconds"] or 0)):
        seconds = of["seconds"] or 0
        rates = [f"{of[what] / seconds / unit:.1f}" if seconds else "-" for what, unit in (("flops", 1e12), ("bytes", 1e9))]
        rows.append([f"  {kernel}", str(of.get("ops", "-")), str(of["launches"]), f"{1e3 * seconds:.3f}",
                     f"{1e3 * (of['planned_seconds'] or 0):.3f}", *rates])
    lines = [aligned(rows)]
    for what in ("busy_seconds", "compute_waited_seconds"):
        found = get(run, "lanes", what) or {}
        lines.append(f"  {what.replace('_', ' ')}: "
                     + ", ".join(f"{lane} {1e3 * (seconds or 0):.1f} ms" for lane, seconds in found.items()))
    return "\n".join(lines)


def rate_of(line, seconds):
    return f"{line['flops'] / seconds / 1e12:.0f}" if seconds else "-"


def slice_rows(lines):
    """Of each model: attention_backward's workspaces, and other methods."""
    rows = [["attention_backward", "ms", "TFLOP/s", "bits"]]
    for line in lines:
        what = line.get("method") or f"{line['tiles']} tiles, {line['workspace_bytes'] / 2**20:.0f} MiB"
        seconds = line.get("seconds")
        rows.append([f"{line['model']}: {line.get('by', 'Stowage')}, {what}", f"{1e3 * seconds:.3f}" if seconds else line.get("refusal", "-")[:40],
                     rate_of(line, seconds) if "flops" in line else "-", {True: "same", False: "other"}.get(line.get("same_bits"), "-")])
    return rows


def product_rows(lines):
    """Of each product: what is taken, the best of all that were offered, and how much faster that is."""
    rows = [["product", "taken ms", "TFLOP/s", "best ms", "of the taken"]]
    for line in lines:
        offers = line["seconds"]
        if offers:
            rows.append([f"{line['model']}: {line['name']}", f"{1e3 * offers[0]:.3f}", rate_of(line, offers[0]), f"{1e3 * min(offers):.3f}",
                         percent(min(offers) / offers[0])])
    return rows


def allocator_rows(lines):
    """Medians of the rounds."""
    found = {}
    for line in lines:
        found.setdefault((line["what"], line["bytes"], line["by"]), []).append(line)
    rows = [["allocator", "request us", "release us"]]
    for (what, count, by), of in sorted(found.items()):
        times = [statistics.median(line[which] for line in of) for which in ("request_seconds", "release_seconds")]
        rows.append([f"{what}, {count} bytes: {by}", *(f"{1e6 * t:.3f}" for t in times)])
    return rows


OPERATIONS = {"slices": slice_rows, "products": product_rows, "allocator": allocator_rows}


def table(results):
    timed = [(rows, get(results, "stages", stage, "lines")) for stage, rows in OPERATIONS.items()]
    runs = aligned([HEADER] + [run_row(name, of) for name, of in summary(results)["runs"].items()])
    detailed = [(name, run) for name, run in all_runs(results["stages"]) if not name.startswith("bits") and run.get("kernels")]
    return "\n\n".join([runs] + [kernel_table(name, run) for name, run in detailed] + [aligned(rows(lines)) for rows, lines in timed if lines])


def verdict_lines(verdicts):
    return "\n".join(f"{v['status'].upper():<5} {v['name']}: {v['detail']}" for v in verdicts)
