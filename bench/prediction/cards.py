#!/usr/bin/env python3
"""Predicted against measured steps of the GPTs that were trained on cards: plans each recorded run of train_shape anew, with
the machine file of its record and the same arena, and compares with the run's steady steps (bench/gpu_check/facts.py).

The run itself measured its ops before it planned, and its prediction is in the record, beside; here the ops' times are
those of the machine file. Prints Markdown. Exits with 1 where a step of 6.7 B with 8,192 tokens in 22 GiB is predicted
more than 5 % off, or is not bound by what its record names: host memory, or the updates alone where they are slower than
host memory with copies is (the third record's host).

    bench/prediction/cards.py [--build build/release] [--only WORD]
"""

import argparse
import gzip
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench" / "gpu_check"))
from facts import all_runs, get, predicted_seconds, step_seconds  # noqa: E402

RESULTS = ROOT / "bench" / "results"
RECORDS = [  # folder, its files, what binds the step of 6.7 B
    ("2026-11-26-gpu-check-h200-second", ["check.jsonl.gz", "6.7b.jsonl.gz"], "host memory"),
    ("2026-11-26-gpu-check-h100", ["check.jsonl.gz", "large.jsonl.gz"], None),
    ("2026-11-27-gpu-check-h200-third", ["check.jsonl.gz", "6.7b-whole.jsonl.gz"], "host"),
]
LIMIT = 0.05
JUDGED = {"model": "gpt", "layers": 32, "width": 4096, "sequence": 1024, "batch": 8}  # in a part of the card


def runs_in(path):
    """(name, run) of a file of gpu_check or of train_shape's lines."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    stages = {line["name"]: line["result"] for line in lines if line["kind"] == "stage"}
    if stages:
        yield from all_runs(stages)
        return
    run = {line["kind"]: line for line in lines if line["kind"] != "step"}
    yield path.name.split(".jsonl")[0], {**run, "steps": [line for line in lines if line["kind"] == "step"]}


def plan(program, setup, machine):
    """The answer of `stowage plan` for the run's shape in the same arena. The bucket is the run's, if it had one."""
    shape = setup["shape"]
    words = [program, "plan", "--gpt", f"{shape['layers']}x{shape['width']}", "--type", shape["type"], "--machine", machine, "--json"]
    for name in ("heads", "vocabulary", "sequence", "batch"):
        words += [f"--{name}", shape[name]]
    words += ["--moments", shape.get("moments", "f32")]  # records before 2026-11-30 have f32 and do not say so
    whole = setup["plan"]["policy"] == "none"
    if setup["plan"]["bucket_bytes"] > 0:
        words += ["--bucket-size", setup["plan"]["bucket_bytes"]]
    if whole:
        words += ["--policy", "none"]
    else:
        overhead = json.loads(machine.read_text(encoding="utf-8"))["overhead_bytes"]
        words += ["--device-memory", setup["budget_bytes"] - setup["overhead_bytes"] + overhead, "--host-memory", setup["host_budget_bytes"]]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def row(record, name, run, found):
    measured, then = step_seconds(run), predicted_seconds(run)
    error = found["step_seconds"] / measured - 1
    host = (f"{found['host_update_bytes'] / 1e9:.1f} + {found['h2d_bytes'] / 1e9:.1f} + {found['d2h_bytes'] / 1e9:.1f} = "
            f"{found['host_traffic_bytes'] / 1e9:.1f}")
    print(f"| {record} | {name} | {1e3 * measured:.1f} | {f'{1e3 * then:.1f} ({100 * (then / measured - 1):+.1f} %)' if then else '-'} | "
          f"{1e3 * found['step_seconds']:.1f} ({100 * error:+.1f} %) | {1e3 * found['lower_bound_seconds']:.1f} by {found['bound_by']} | {host} |",
          flush=True)
    return error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build/release", type=Path)
    parser.add_argument("--only", default="", help="runs whose record or name has this word")
    given = parser.parse_args()
    print("| record | run | measured ms | predicted then | predicted now | lower bound | GB: updates + in + out |\n|---|---|---|---|---|---|---|")
    faults = []
    for record, files, binding in RECORDS:
        for name, run in (pair for file in files for pair in runs_in(RESULTS / record / file)):
            setup = run.get("setup") or {}
            if given.only not in f"{record} {name}" or name.startswith("bits") or get(setup, "shape", "model") != "gpt" or not step_seconds(run):
                continue
            found = plan(given.build / "tools/cli/stowage", setup, RESULTS / record / "machine.json")
            error = row(record, name, run, found)
            judged = all(setup["shape"][key] == value for key, value in JUDGED.items()) and setup["plan"]["policy"] != "none"
            if judged and (abs(error) > LIMIT or found["bound_by"] != binding):
                faults.append(f"{record} {name}: {100 * error:+.1f} %, bound by {found['bound_by']}")
    for fault in faults:
        print(f"\nFAILED: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
