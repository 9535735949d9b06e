"""Steps of make_steps, and what `stowage plan` answers of them."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


class Refused(Exception):
    pass


class Planner:
    def __init__(self, build, machine):
        self.program, self.machine = build / "tools/cli/stowage", machine
        if not os.access(self.program, os.X_OK):
            sys.exit(f"{self.program} is no program; build it, or say where it is by --build")

    def ask(self, trace, *more):
        """The answer of `stowage plan`, and the processor seconds that it took."""
        command = [self.program, "plan", trace, "--machine", self.machine, "--json", *map(str, more)]
        before = children_seconds()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = children_seconds() - before
        if done.returncode != 0:
            raise Refused(f"{' '.join(map(str, command))}: code {done.returncode}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout), seconds

    def plan(self, trace, budget=None):
        answer, seconds = self.ask(trace, *([] if budget is None else ["--device-memory", budget]))
        return answer | {"planning_seconds": seconds}


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make_steps(folder, only, seed, show=False):
    """The files, in the order in which they were made."""
    command = [sys.executable, Path(__file__).with_name("make_steps"), folder, "--seed", str(seed), "--only", only]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    lines = done.stdout.splitlines()
    if show:
        print("".join(f"- {line}\n" for line in lines))
    return [Path(folder) / f"{line.split(':')[0]}.jsonl" for line in lines]
