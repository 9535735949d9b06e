#!/usr/bin/env python3
"""contest: the same GPT trained by Stowage, PyTorch, FSDP2, DeepSpeed, ColossalAI and llm.c, in the same memory.

    python3 contest.py --programs PREFIX --output FOLDER

Every process is fresh, has a minute (two where it compiles its whole model), and writes its line to
FOLDER/contest.jsonl at once; FOLDER/contest.json has all of them with a summary, contest.log every word of every
program, and a table is printed. On a card another process holds all memory but the case's, unless that is the whole
card. Without one, Stowage and PyTorch are measured on the CPU, and the others run to their first device call. Exit code: 0 when all is done, also where peers fail; 1 where Stowage itself has no speed; 2 for bad input.
"""

import argparse
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

import cases
import comparison
import outcome
import watch
from peers import Peers, PrepareError, gib, open_nvml

HERE = Path(__file__).resolve().parent
NO_TIME = "no time is left"  # for a process with all of its seconds


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--programs", required=True, metavar="PREFIX", help="installed tree with bin/train_gpt, or build folder"
    )
    parser.add_argument("--output", required=True, help="folder to write to")
    parser.add_argument("--budget-seconds", type=float, default=1500, help="nothing is begun that cannot end by then")
    parser.add_argument("--process-seconds", type=float, default=60, help="of each process; of pytorch-compiled twice that")
    parser.add_argument("--long", action="store_true", help="the longer list of cases")
    parser.add_argument(
        "--small",
        action="store_true",
        help="tiny models, and every peer that runs on a CPU too: a test of this program",
    )
    parser.add_argument(
        "--only",
        default=os.environ.get("CONTEST_ONLY", ""),
        metavar="CASE,PEER,…",
        help="these alone; some cases and peers run only so (default: what CONTEST_ONLY in the environment says)",
    )
    parser.add_argument(
        "--llm-c", metavar="PROGRAM", help="llm.c's train_gpt2cu, which then trains beside the others on the whole card"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], help="default: cuda if a card answers")
    parser.add_argument("--steps", type=int, default=cases.STEPS)
    parser.add_argument("--rounds", type=int, default=2, help="on the CPU: how often each is measured, alternating")
    parser.add_argument("--threads", type=int, default=2, help="of both on the CPU")
    parser.add_argument(
        "--compile",
        action="store_true",
        help="torch.compile each block of PyTorch and FSDP2; the first steps take minutes",
    )
    parser.add_argument(
        "--machine", help="a machine file of `stowage calibrate`, which else is measured by each of our runs"
    )
    parser.add_argument(
        "--host-memory",
        type=gib,
        metavar="GIB",
        help="host budget of Stowage's plans on a card (default: four fifths of what is available as each begins)",
    )
    parser.add_argument("--python", default=sys.executable, help="with torch")
    parser.add_argument(
        "--wheels", help="folder of wheels for DeepSpeed and ColossalAI (default: wheels beside this file)"
    )
    parser.add_argument("--commit", help="what was built")
    return parser.parse_args()


def train_gpt_of(prefix):
    """Of an installed tree, or of a build folder."""
    for folder in ("bin", "samples"):
        program = Path(prefix) / folder / "train_gpt"
        if program.is_file():
            return program.resolve()
    raise ValueError(
        f"--programs {prefix}: there is no bin/train_gpt in it; give an installed tree (bench/gpu_check/make_tree) or a "
        "build folder"
    )


def commit():
    """As recorded at installation, or as git knows it."""
    recorded = HERE.parent / "commit"
    if recorded.is_file():
        return recorded.read_text(encoding="utf-8").strip()
    done = subprocess.run(
        ["git", "-C", str(HERE), "describe", "--always", "--abbrev=12", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def describe(given, device, nvml):
    return {
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "commit": given.commit or commit(),
        "started": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "device": device,
        "card": nvml.describe() if nvml else None,
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "learning": cases.LEARNING,
        "warm_up_steps": cases.WARM_UP,
        "compiled": given.compile,
    }


class Record:
    """What has been found so far, on the disk after each process."""

    def __init__(self, folder, head):
        self.folder, self.head = Path(folder), head
        self.results = []
        self.lines = open(self.folder / "contest.jsonl", "w", encoding="utf-8")
        self.log = open(self.folder / "contest.log", "w", encoding="utf-8")

    def close(self):
        self.lines.close()
        self.log.close()

    def add(self, result):
        self.results.append(result)
        self.lines.write(json.dumps(result) + "\n")
        self.lines.flush()
        whole = {**self.head, "summary": comparison.summary(self.results), "results": self.results}
        part = self.folder / "contest.json.part"  # so that a file of that name is always whole
        part.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        part.replace(self.folder / "contest.json")
        print("  ".join(comparison.row(result)), flush=True)

    def add_log(self, command, done):
        self.log.write(
            f"\n$ {shlex.join(command)}\n{''.join(done['output'])}{done['errors']}\n"
            f"[code {done['code']}, {done['seconds']:.1f} s]\n"
        )
        self.log.flush()


def run_job(job, peers, record, most_seconds):
    """The result of a peer, or why there is none: of one process, or of several, each with a smaller micro-batch and all
    of its seconds."""
    try:
        prepared, load, done, events = run_process(job, peers, record, most_seconds)
        while micro_batch := outcome.again(events):
            earlier = done, [e for e in events if e["event"] not in (outcome.AGAIN, "step")]
            prepared, load, done, events = run_process(job, peers, record, most_seconds, micro_batch)
            done, events = watch.together(earlier[0], done), earlier[1] + events
    except (PrepareError, OSError) as error:
        return outcome.skipped(job, str(error))
    result = outcome.result_of(job, done, events)
    return {**result, "free_before": prepared.free, "load_before": load, "command": prepared.command}


def run_process(job, peers, record, most_seconds, micro_batch=None):
    """(Prepared, load before, what watch.run returned, its events). PrepareError where it cannot have its seconds."""
    if peers.left() < most_seconds:
        raise PrepareError(NO_TIME)
    prepared = peers.prepare(job, most_seconds, micro_batch)
    if peers.left() < most_seconds:  # a peer's compiler may have had them
        raise PrepareError(NO_TIME)
    load = os.getloadavg()[0]
    done = watch.run(prepared.command, most_seconds, prepared.environment, peers.nvml)
    record.add_log(prepared.command, done)
    return prepared, load, done, prepared.events(done)


def our_failures(results):
    """Of Stowage's processes those without a speed, whatever the reason, but for a card that is not there."""
    ours = [r for r in results if r["peer"].startswith("stowage") and r["status"] != outcome.NO_CARD]
    return [r for r in ours if not r.get("tokens_per_second")]


def main():
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: watch.ending.set())
    end = time.monotonic() + given.budget_seconds
    nvml = open_nvml() if given.device != "cpu" else None
    device = given.device or ("cuda" if nvml else "cpu")
    try:
        program = train_gpt_of(given.programs)
        jobs = cases.chosen(
            cases.all_jobs(device, given.small, given.long, given.rounds, bool(given.llm_c)),
            [w for w in given.only.split(",") if w],
        )
        Path(given.output).mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        print(f"contest: {error}", file=sys.stderr)
        return 2
    record = Record(
        given.output,
        {
            **describe(given, device, nvml),
            "cases": {job.case.name: {**asdict(job.case), "parameters": job.case.parameters()} for job in jobs},
        },
    )
    with tempfile.TemporaryDirectory(prefix="contest-") as scratch:
        peers = Peers(given, program, device, nvml, scratch, end)
        try:
            for job in jobs:
                if watch.ending.is_set():
                    break
                record.add(run_job(job, peers, record, job.seconds(given.process_seconds)))
        finally:
            peers.close()
            record.close()
    print("\n" + comparison.table(record.results))
    for line in [
        *comparison.agreement(record.results),
        *([] if given.small else comparison.comparison(record.results)),
    ]:
        print(line)
    for result in our_failures(record.results):
        print(f"contest: FAILED: {result['case']} {result['peer']}: {result['status']}: {result['why']}", file=sys.stderr)
    if watch.ending.is_set():
        return 128 + signal.SIGTERM
    return 1 if our_failures(record.results) else 0


if __name__ == "__main__":
    sys.exit(main())
