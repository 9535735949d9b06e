"""Stages around PyTorch programs, each run in a process of its own: under the interposer, with the pluggable allocator, and
beside other systems that train what does not fit."""

import csv
import json
import os
import sys
import tempfile
from pathlib import Path

from context import training

LIMIT = 0.75  # of what the program takes without one
ALLOCATORS = {"native": "", "expandable": "expandable_segments:True", "cudaMallocAsync": "backend:cudaMallocAsync",
              "stowage": ""}
IMPORT_SECONDS = 180  # for torch's gigabytes, on a disk that has not been read yet
ZERO3_SECONDS = 80  # of a process: the peers of that stage begin in 25 to 45 and take 3 a step
CONTEST_MARGIN = 40  # seconds that contest.py has beside its budget, to end its last process and to write
ASK = "import torch; print(torch.cuda.is_available(), torch.__version__)"


def no_torch(context):
    """Why PyTorch cannot be used; empty where it can."""
    if not context.card:
        return "there is no card"
    done = context.runner.run([sys.executable, "-c", ASK], IMPORT_SECONDS, surrounded=False)
    if done["code"] != 0:
        return f"{sys.executable} has no PyTorch: {(done['errors'].strip().splitlines() or ['no answer'])[-1]}"
    return "" if done["output"].startswith("True") else "PyTorch sees no card"


def program(context, name, *arguments):
    device = context.device if ":" in context.device else "cuda:0"
    return [sys.executable, context.programs.checks / "pytorch" / name, "--device", device, *context.sizes["torch"], *arguments]


def python(context, name, command, environment=None):
    """The JSON lines that a PyTorch program printed, as of train_shape."""
    run = training(context.runner.run(command, 120, environment, surrounded=False))
    context.runner.say(f"{name}: code {run['code']}, {len(run['steps'])} steps in {run['seconds']:.1f} s"
                       + (f": {run['errors']}" if run.get("errors") else ""))
    return run


def interposer(context):
    """A training program that knows nothing of Stowage: alone, on a card that looks too small for it, and with its freed
    memory kept."""
    if reason := no_torch(context):
        return {"skipped": reason}
    loop = program(context, "train_loop.py")
    plain = python(context, "without stowage run", loop)
    needed = (plain.get("end") or {}).get("reserved_bytes") or 0
    limit = int(needed * LIMIT)
    report = context.folder / "interposer.html"
    under = [context.programs.stowage, "run"]
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.csv"
        limited = python(context, "under a limit", [*under, "--limit", limit, "--spill", needed, "--record", record,
                                                    "--report", report, "--", *loop])
        replay = context.runner.run([context.programs.stowage, "replay", record, "--json"], 60)
        found = read_record(record)
    cached = python(context, "with --cache", [*under, "--cache", "--", *loop])
    return {"limit_bytes": limit, "plain": plain, "limited": limited, "cached": cached, "record": found,
            "report_bytes": report.stat().st_size if report.is_file() else 0,
            "replay": {"code": replay["code"], "errors": replay["errors"][-2000:]}}


def read_record(path):
    """Peak of what a process held of the card, what was spilled, and how many allocations there were (docs/interposer.md)."""
    if not path.is_file():
        return None
    with open(path, encoding="utf-8", newline="") as file:
        next(file, None)  # "# stowage record 1"
        rows = list(csv.DictReader(file))
    allocations = [row for row in rows if row["event"] == "alloc"]
    return {"allocations": len(allocations), "peak_bytes": max((int(row["live"]) for row in allocations), default=0),
            "spilled_bytes": max((int(row["bytes"]) for row in rows if row["event"] == "spilled"), default=0)}


def stowage_environment(context):
    """Of a PyTorch program with Stowage's allocator: for the libraries that the tree brings along, which Python's search path knows nothing
    of."""
    inherited = os.environ.get("LD_LIBRARY_PATH")
    return {"PYTORCH_CUDA_ALLOC_CONF": "",
            "LD_LIBRARY_PATH": ":".join([*map(str, context.programs.libraries), *([inherited] if inherited else [])])}


def pluggable(context):
    """One program under four allocators."""
    if reason := no_torch(context):
        return {"skipped": reason}
    runs = {}
    for name, setting in ALLOCATORS.items():
        chosen, environment = [], {"PYTORCH_CUDA_ALLOC_CONF": setting}
        if name == "stowage":
            chosen, environment = ["--stowage", context.programs.allocator], stowage_environment(context)
        runs[name] = python(context, f"allocator {name}", program(context, "allocators.py", *chosen), environment)
    return runs


def whole(context):
    """GPT-2 124M on the whole card: Stowage, PyTorch, PyTorch compiled, and llm.c where there is a program of it. The contest names the peers
    that cannot run."""
    given = ["--llm-c", context.llm_c] if context.llm_c else []
    return contest_of(context, "whole", "--only", context.sizes["whole"], *given)


def zero3(context):
    """1.56 billion parameters in 12 GiB: Stowage, DeepSpeed's ZeRO-3 with `super_offload`, and with `ratio`."""
    if reason := no_torch(context):
        return {"skipped": reason}
    words = f"{context.sizes['zero3']},stowage,zero3-super,zero3-ratio"
    return contest_of(context, "zero3", "--only", words, "--process-seconds", ZERO3_SECONDS)


def contest(context):
    """Every peer in two cases, as far as the time goes."""
    if reason := no_torch(context):
        return {"skipped": reason}
    return contest_of(context, "contest")


def contest_of(context, name, *arguments):
    """Other systems on the same models, by a program of its own, which writes to the folder `name`."""
    script = context.programs.checks / "contest" / "contest.py"
    if not script.is_file():
        return {"skipped": "contest/contest.py is not in this tree"}
    if not context.card:
        return {"skipped": "there is no card"}
    if context.device not in ("cuda", "cuda:0"):
        return {"skipped": f"it measures the first card alone: set CUDA_VISIBLE_DEVICES instead of --device {context.device}"}
    folder = context.folder / name
    (folder / "contest.json").unlink(missing_ok=True)  # of an earlier run
    context.memory_arguments()  # calibrates first: Stowage's processes would, each within its own minute
    seconds = max(0, int(context.runner.left() - CONTEST_MARGIN))
    command = [sys.executable, script, "--programs", context.programs.prefix, "--output", folder, "--budget-seconds", seconds,
               "--device", "cuda", "--host-memory", context.host_bytes / (1 << 30), *arguments]
    if context.machine.is_file():
        command += ["--machine", context.machine]
    command += ["--small"] if context.small else []
    done = context.runner.run(command, seconds + CONTEST_MARGIN - 10, surrounded=False)
    context.runner.say(done["output"].rstrip())
    found = folder / "contest.json"
    return {"code": done["code"], "errors": done["errors"].strip()[-2000:],
            "result": json.loads(found.read_text(encoding="utf-8")) if found.is_file() else None}
