#!/usr/bin/env python3
"""Asks `stowage parallel` about the public inputs of other planners, and prints its answers beside the published ones.

    bench/parallel/public_inputs.py ../shared/data/parallel [--program build/release/tools/cli/stowage] [--most-devices 128]"""

import argparse
import csv
import json
import subprocess
import tempfile
import time
from pathlib import Path

import galvatron
import pipedream
import piper


def ask(program, costs):
    """The least value of any pipeline; None: there is none."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(costs, file)
        file.flush()
        done = subprocess.run([program, "parallel", "--costs", file.name, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 2) or not done.stdout:
        raise SystemExit(done.stderr)
    answer = json.loads(done.stdout)
    best = answer["best_of_all"] or (answer["grids"] or [None])[0]
    return best and best["value_seconds"]


def report(name, published, find):
    begin = time.monotonic()
    found = find()
    print(f"| {name} | {published} | {found if found is not None else 'none'} | {time.monotonic() - begin:.1f} |", flush=True)


def report_ratios(name, costs, program):
    """What one replica of all layers on each device, and stages of one device each, take over the best pipeline."""
    best = ask(program, costs)
    parallel = sum(variant["forward_seconds"] + variant["backward_seconds"]
                   for layer in costs["layers"] for variant in layer["variants"] if variant["parts"] == costs["devices"])
    layers = [{**layer, "variants": [variant for variant in layer["variants"] if variant["parts"] == 1]} for layer in costs["layers"]]
    straight = ask(program, {**costs, "layers": layers})
    print(f"| {name} | {parallel / best:.2f} | {straight / best:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--program", default="build/release/tools/cli/stowage")
    parser.add_argument("--most-devices", type=int, default=128)
    parser.add_argument("--ratios", action="store_true", help="only PipeDream's profiles: what simpler pipelines take over the best")
    options = parser.parse_args()
    profiles = [(f"{row['profile']} on {row['devices']}", row, pipedream.costs(
        options.data / f"pipedream/{row['profile']}.graph.txt", int(row["devices"])))
        for row in csv.DictReader((options.data / "pipedream/results.csv").open(encoding="utf-8"))]
    if options.ratios:
        print("| profile | data parallel alone over the best | stages of one device over the best |\n|---|---|---|")
        for name, _, costs in profiles:
            report_ratios(name, costs, options.program)
        return
    print("| input | published seconds | found | seconds to find |\n|---|---|---|---|")
    for instance in json.loads((options.data / "galvatron/layers.json").read_text(encoding="utf-8"))["instances"]:
        report(f"Galvatron, {instance['name']}", instance["expected_step_seconds"], lambda: ask(options.program, galvatron.costs(instance)))
    for name, row, costs in profiles:
        report(f"PipeDream, {name}", row["largest_stage_seconds"], lambda: ask(options.program, costs))
    bert = json.loads((options.data / "piper/bert32a100.json").read_text(encoding="utf-8"))
    for row in csv.DictReader((options.data / "piper/results.csv").open(encoding="utf-8")):
        memory, devices = int(row["memory_gib"]), int(row["devices"])
        if devices > options.most_devices:
            continue
        report(f"Piper, {memory} GiB, {devices} devices", row["largest_stage_seconds"],
               lambda: min((each for later in (False, True) if (each := ask(options.program, piper.costs(bert, memory, devices, later)))
                            is not None), default=None))


if __name__ == "__main__":
    main()
