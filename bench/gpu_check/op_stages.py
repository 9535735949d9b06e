"""Stages that time single operations. Each returns {"runs": [{"code", "errors", …}], "lines": [the JSON that was printed]}; nothing reads
them but people, who choose by them."""

import json
import os
import subprocess
import sys

from torch_stages import ALLOCATORS, no_torch, stowage_environment

TURNS = 3  # of the allocators under PyTorch, one after the other
TURN_SECONDS = 20


def lines_of(output):
    """The JSON objects among lines."""
    found = []
    for line in output.splitlines():
        try:
            item = json.loads(line)
        except ValueError:
            continue
        if isinstance(item, dict):
            found.append(item)
    return found


def ran(name, done):
    return {"name": name, "code": done["code"], "seconds": done["seconds"],
            "errors": "" if done["code"] == 0 else done["errors"].strip()[-2000:]}


def op_times(context, what):
    small = ["--small"] if context.small else []
    done = context.runner.run([context.programs.checks / "op_times", what, "--device", context.device, *small], 120)
    return {"runs": [ran(what, done)], "lines": lines_of(done["output"])}


def timed(context, what):
    return op_times(context, what) if context.card else {"skipped": "there is no card"}


def products(context):
    return timed(context, "products")


def slices(context):
    """attention_backward in larger workspaces; beside it PyTorch's by cuDNN, which is not deterministic, where there is PyTorch."""
    found = timed(context, "slices")
    if "skipped" in found or no_torch(context):
        return found
    script = context.programs.checks / "pytorch" / "attention_times.py"
    done = context.runner.run([sys.executable, script, *(["--small"] if context.small else [])], 60, surrounded=False)
    return {"runs": [*found["runs"], ran("by PyTorch", done)], "lines": [*found["lines"], *lines_of(done["output"])]}


def allocator(context):
    """Requests and releases: from C++, and under PyTorch by each of its allocators and ours, in turns."""
    found = timed(context, "allocator")
    if "skipped" in found or no_torch(context):
        return found
    script = context.programs.checks / "pytorch" / "allocator_times.py"
    told = [TurnTaker(name, [sys.executable, script, name, *(["--stowage", context.programs.allocator] if name == "stowage" else [])],
                      stowage_environment(context) if name == "stowage" else {"PYTORCH_CUDA_ALLOC_CONF": setting})
            for name, setting in ALLOCATORS.items()]
    try:
        for _ in range(TURNS):
            for one in told:
                one.take()
    finally:
        ends = [one.end() for one in told]
    for one in told:
        context.runner.note(f"\n$ {one.name}\n{''.join(one.said)}")
    return {"runs": [*found["runs"], *ends], "lines": [*found["lines"], *(line for one in told for line in lines_of("".join(one.said)))]}


class TurnTaker:
    """A program that measures once for each line that it reads, and prints "done" behind it."""

    def __init__(self, name, command, environment):
        self.name, self.said = name, []
        self.process = subprocess.Popen([str(word) for word in command], env={**os.environ, **environment}, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")

    def take(self):
        try:
            self.process.stdin.write("turn\n")
            self.process.stdin.flush()
        except OSError:
            return  # it has ended, which `end` tells
        for line in self.process.stdout:
            if line.strip() == "done":
                return
            self.said.append(line)

    def end(self):
        try:
            output, _ = self.process.communicate(timeout=TURN_SECONDS)
            self.said.append(output or "")
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        code = self.process.returncode
        return {"name": self.name, "code": code, "seconds": None, "errors": "" if code == 0 else "".join(self.said)[-2000:]}
