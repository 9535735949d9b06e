#!/usr/bin/env python3
"""gpu_check: everything that is promised of a card, stage by stage, in the time that it is given.

    tar xf stowage.tar.xz && python3 stowage/checks/gpu_check.py --output FOLDER --lease own

runs the tests, the calibration and the training runs from an unpacked tree, prints a table, and writes to FOLDER
gpu_check.jsonl (every raw number, a line as each stage ends, then a summary), gpu_check.log (every word of every
program) and machine.json. Later runs add to FOLDER; --judge FOLDER… judges all that was found.
Needs nothing but Python and CUDA's libraries, which it finds in Python's own packages (those that torch
brings). Exit code: 0 when no check fails, 1 when one does, 2 for bad input.
"""

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
import traceback
from datetime import datetime, timezone
from pathlib import Path

import records
from context import Context
from host_memory import gib, host_memory
from judge import LINES, judge
from programs import Programs, cudnn_library
from runner import Runner
from shapes import CARD, SMALL
from stage_list import LEASES, STAGES, TAKES_THE_REST, chosen, listed
from table import summary, table, verdict_lines

HERE = Path(__file__).resolve().parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="FOLDER", help="folder to write to")
    parser.add_argument("--only", metavar="STAGE,…", default="", help=f"of {', '.join(STAGES)} (default: all, in this order)")
    parser.add_argument("--skip", metavar="STAGE,…", default="", help="leave these out")
    parser.add_argument("--lease", choices=LEASES, help="the stages, and the seconds, of a card that is lent for 15 minutes; again: also what "
                        "failed in --output")
    parser.add_argument("--list", action="store_true", help="print the stages and the seconds that they took on cards or should take, and run nothing")
    parser.add_argument("--budget-seconds", type=float, metavar="N",
                        help="end everything after so long (default: the lease's seconds, else 560)")
    parser.add_argument("--host-memory", type=gib, metavar="GIB",
                        help="host budget of every plan (default: three quarters of what is available at the start)")
    parser.add_argument("--llm-c", metavar="PROGRAM", help="llm.c's train_gpt2cu, which the stage whole then runs beside Stowage")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or simulated (default: cuda)")
    parser.add_argument("--small", action="store_true", help="tiny models and a quick calibration: a test of this program")
    parser.add_argument("--judge", metavar="FOLDER", nargs="+", help="judge all that earlier runs wrote, and run nothing")
    parser.add_argument("--commit", help="what was built (default: as recorded at installation)")
    parser.add_argument("--stowage", help="program, where it is not ../bin/stowage")
    parser.add_argument("--train-shape", help="program, where it is not beside this file")
    parser.add_argument("--tests", help="list of test programs, where it is not tests.json beside this file")
    given = parser.parse_args()
    if not given.judge and not given.output and (not given.list or given.lease == "again"):
        parser.error("name a folder by --output, or earlier runs by --judge")
    if given.lease and (given.only or given.skip):
        parser.error("--lease says which stages run; leave out --only and --skip")
    try:
        given.stages = stages_of(given.lease, given.output) if given.lease else chosen(given.only, given.skip)
    except ValueError as error:
        parser.error(str(error))
    given.budget_seconds = given.budget_seconds or (LEASES[given.lease][0] if given.lease else 560)
    return given


def stages_of(lease, folder):
    """In the lease's order; for `again`, the stages that failed in `folder` come first."""
    stages = LEASES[lease][1]
    if lease != "again":
        return list(stages)
    found = results_of([folder])
    failed = {v["name"] for v in judge(found) if v["status"] == "fail"}
    return list(dict.fromkeys([*(stage for stage in STAGES if stage in found["asked"] and any(
        line.name in failed and stage in line.stages for line in LINES)), *stages]))


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


def describe(given, programs, environment):
    card = given.device != "simulated"
    described = card_description() if card else ""
    return {"command": shlex.join([Path(sys.executable).name, *sys.argv]),
            "commit": given.commit or programs.commit(),
            "started": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "card": card, "speed": card and not given.small, "small": given.small, "device": given.device,
            "nvidia_smi": described, "card_name": described.split(",")[0],
            "host": platform.node(), "system": platform.platform(), "python": platform.python_version(),
            "cpus": len(os.sched_getaffinity(0)), "host_memory": host_memory(given.host_memory),
            "library_path": environment["LD_LIBRARY_PATH"], "cudnn": cudnn_library(environment),
            "asked": given.stages, "budget_seconds": given.budget_seconds}


def run_stages(context, stages, record):
    """One after another while time is left; the result of each is on the disk before the next begins."""
    for name in stages:
        if context.runner.left() < 5 and name not in TAKES_THE_REST:
            context.runner.say(f"{name}: no time is left")
            continue
        begin = time.monotonic()
        try:
            result = STAGES[name](context)
        except Exception as error:  # of a stage alone: the others still run
            context.runner.note(traceback.format_exc())
            result = {"crashed": f"{type(error).__name__}: {error}"}
        seconds = time.monotonic() - begin
        record.write("stage", name=name, seconds=seconds, result=result)
        ends = [f"{key}: {result[key]}" for key in ("skipped", "crashed") if key in result]
        context.runner.say(f"{name}: {ends[0] if ends else f'{seconds:.1f} s'}")


def check(given):
    begin = time.monotonic()
    folder = Path(given.output)
    folder.mkdir(parents=True, exist_ok=True)
    programs = Programs(HERE, given.stowage, given.train_shape, given.tests)
    with open(folder / "gpu_check.log", "a", encoding="utf-8") as log:
        runner = Runner(log, begin + given.budget_seconds, programs.libraries)
        described = describe(given, programs, runner.environment)
        record = begin_record(folder, described)
        runner.say("\n".join(f"{key:<14}{described[key]}" for key in ("command", "commit", "started", "nvidia_smi", "host",
                                                                     "host_memory", "cudnn")))
        context = Context(programs, runner, given.device, SMALL if given.small else CARD, given.small, folder,
                          described["host_memory"]["budget_bytes"], given.llm_c)
        run_stages(context, given.stages, record)
        found = results_of([folder])
        found["runs"][-1]["seconds"] = time.monotonic() - begin
        verdicts = judge(found)
        numbers, lines = tabulated(found)
        record.write("end", seconds=found["runs"][-1]["seconds"], summary=numbers, verdicts=verdicts)
        record.close()
        runner.say("\n" + lines + "\n\n" + verdict_lines(verdicts))
    return verdicts


def tabulated(found):
    """(summary, table). An error in them costs neither the verdicts nor the record's end."""
    try:
        return summary(found), table(found)
    except Exception as error:  # a result of an unforeseen form
        traceback.print_exc()
        return {}, f"no table: {type(error).__name__}: {error}"


def begin_record(folder, described):
    try:
        return records.begin(folder, described)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        refuse([folder], error)


def results_of(folders):
    try:
        return records.merged(folders)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        refuse(folders, error)


def refuse(folders, error):
    print(f"gpu_check: {', '.join(map(str, folders))}: no results of gpu_check that belong together ({error!r}); "
          "give folders that gpu_check wrote with one build on one kind of card", file=sys.stderr)
    sys.exit(2)


def judge_again(folders):
    """Everything that earlier runs found together; a stage that ran in none of them fails."""
    found = {**results_of(folders), "asked": list(STAGES)}
    verdicts = judge(found)
    print(tabulated(found)[1] + "\n\n" + verdict_lines(verdicts))
    return verdicts


def main():
    given = arguments()
    if given.list:
        print(listed(given.stages))
        return 0
    verdicts = judge_again(given.judge) if given.judge else check(given)
    failed = [v["name"] for v in verdicts if v["status"] == "fail"]
    for name in failed:
        print(f"gpu_check: FAILED: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
