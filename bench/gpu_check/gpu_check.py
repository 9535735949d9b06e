#!/usr/bin/env python3
"""gpu_check: everything that is promised of a card, in one command and under nine minutes.

    python3 PREFIX/checks/gpu_check.py --output FOLDER

runs the tests, the calibration and the training runs from an installed tree, prints a table, and writes
FOLDER/gpu_check.json (a summary and every raw number), gpu_check.log (every word of every program) and
machine.json.
Needs nothing but Python and CUDA's libraries, which it finds in Python's own packages (those that torch
brings). Exit code: 0 when no check fails, 1 when one does, 2 for bad input.
"""

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import judge
import stages
from programs import Programs, Runner, cudnn_library

HERE = Path(__file__).resolve().parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", help="folder to write to")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or simulated (default: cuda)")
    parser.add_argument("--small", action="store_true", help="tiny models and a quick calibration: a test of this program")
    parser.add_argument("--sanitize", action="store_true",
                        help="run the tests under compute-sanitizer instead, which the whole check may have no time for")
    parser.add_argument("--seconds", type=float, default=520, help="stop everything after so long (default: 520)")
    parser.add_argument("--judge", metavar="JSON", help="judge an earlier result again, and run nothing")
    parser.add_argument("--commit", help="what was built (default: as recorded at installation)")
    parser.add_argument("--stowage", help="program, where it is not ../bin/stowage")
    parser.add_argument("--train-shape", help="program, where it is not beside this file")
    parser.add_argument("--tests", help="list of test programs, where it is not tests.json beside this file")
    given = parser.parse_args()
    if not given.judge and not given.output:
        parser.error("name a folder by --output, or an earlier result by --judge")
    return given


def card_description():
    """One line of nvidia-smi; empty where there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    fields = "name,driver_version,memory.total,clocks.max.sm,power.limit,pcie.link.gen.current,pcie.link.width.current"
    try:
        done = subprocess.run([tool, f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True,
                              timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    return done.stdout.strip()


def describe(given, programs):
    return {"command": shlex.join([Path(sys.executable).name, *sys.argv]),
            "commit": given.commit or programs.commit(),
            "started": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "card": given.device != "simulated", "speed": given.device != "simulated" and not given.small,
            "small": given.small, "device": given.device, "only_sanitizer": given.sanitize,
            "nvidia_smi": card_description() if given.device != "simulated" else "",
            "host": platform.node(), "system": platform.platform(), "cpus": os.cpu_count()}


def run_stages(steps, runner, results, small):
    """Fills results["stages"], one after another while time is left."""
    plan = [("calibrate", lambda: steps.calibrate(quick=small)), ("tests", steps.tests), ("bits", steps.bits),
            ("gpt2", lambda: steps.quarter("gpt2")), ("bert", lambda: steps.quarter("bert")), ("large", steps.large),
            ("trainer", steps.trainer)]
    if results["only_sanitizer"]:
        plan = []
    if results["card"] or results["only_sanitizer"]:
        plan.append(("sanitizer", steps.sanitizer))  # last: it takes the time that is left
    for name, stage in plan:
        if runner.left() < 5:
            runner.say(f"{name}: no time is left")
            continue
        begin = time.monotonic()
        results["stages"][name] = stage()
        runner.say(f"{name}: {time.monotonic() - begin:.1f} s")


def write(path, results):
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def check(given):
    folder = Path(given.output)
    folder.mkdir(parents=True, exist_ok=True)
    programs = Programs(HERE, given.stowage, given.train_shape, given.tests)
    begin = time.monotonic()
    results = {**describe(given, programs), "stages": {}}
    with open(folder / "gpu_check.log", "w", encoding="utf-8") as log:
        runner = Runner(log, begin + given.seconds, programs.libraries)
        results["library_path"] = runner.environment["LD_LIBRARY_PATH"]
        results["cudnn"] = cudnn_library(runner.environment)
        runner.say("\n".join(f"{key:<14}{results[key]}"
                             for key in ("command", "commit", "started", "nvidia_smi", "host", "cudnn")))
        sizes = stages.SMALL if given.small else stages.CARD
        steps = stages.Stages(programs, runner, given.device, sizes, folder / "machine.json")
        try:
            run_stages(steps, runner, results, given.small)
        finally:
            results["seconds"] = time.monotonic() - begin
            write(folder / "gpu_check.json", results)  # raw numbers outlive whatever becomes of the judging
            results["summary"] = judge.summary(results)
            results["verdicts"] = judge.judge(results)
            write(folder / "gpu_check.json", results)
        runner.say("\n" + judge.table(results) + "\n\n" + judge.verdict_lines(results["verdicts"]))
    return results["verdicts"]


def judge_again(path):
    try:
        results = json.loads(Path(path).read_text(encoding="utf-8"))
        verdicts = judge.judge(results)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"gpu_check: {path} is no result of gpu_check ({error!r}); give a gpu_check.json", file=sys.stderr)
        sys.exit(2)
    print(judge.table(results) + "\n\n" + judge.verdict_lines(verdicts))
    return verdicts


def main():
    given = arguments()
    verdicts = judge_again(given.judge) if given.judge else check(given)
    failed = [v["name"] for v in verdicts if v["status"] == "fail"]
    for name in failed:
        print(f"gpu_check: FAILED: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
