#!/usr/bin/env python3
"""Seven counts over built programs: inputs, machines and moments that go wrong, drawn at random from a seed.

    bench/trouble/counts.py [PART ...] [--build build/release] [--seed 1]

pairs    40 descriptions of a model and a budget go to `stowage plan` and to a trainer with --plan-only. Need, minimum, peak, times and the
         plan as JSON must be the same, and so must refusals and the minimum that they name.
kills    50 SIGKILLs at random moments of each program that writes files. The same command must then run to its end, leave no *.part and
         no half checkpoint, and write what an undisturbed run writes.
limits   `ulimit -v` and `ulimit -d` from 64 MiB to 1 GiB. Each program must end with code 0, or with 2 and a message. Where the dynamic
         loader itself finds no room, that is counted apart.
group    The same in memory control groups (version 1 or 2) below this process's own, from 32 MiB to 1 GiB. Prints each peak.
names    500 file names of random bytes, of inputs that are missing or hold rubbish and of outputs. No control character, no
         bidirectional one and no byte outside UTF-8 may be printed, and the exit code must be 0 or 2.
calls    40 programs that crash, exec, fork and close descriptors under `stowage run`, over the build tree's fakes of CUDA. The calls
         counted must be those that were made, or the report must say that some may be missing.
folders  30 GPT-2 folders with wrapped names, tied tables, indexes and pointers of Git LFS. The losses must be those of the plain folder with
         the same values, or a refusal must name a tensor that is there, or say what the file is.

Prints a line for each trial that is wrong and a summary for each part. The exit code is 1 where something is wrong; then the folders of all
trials stay. Two programs run at a time.
"""

import argparse
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
HANG_SECONDS = 120
MEBIBYTE = 1 << 20
MACHINE = ["--machine", "rtx4090"]  # not to measure this one at each start
SMALL = "--device simulated --layers 2 --width 32 --heads 2 --sequence 32 --batch 2 --threads 1".split()


class Ran(NamedTuple):
    code: int  # the negative signal that ended it; None: it did not end
    out: str
    err: str


def run(words, folder, environment=None):
    try:
        done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=HANG_SECONDS,
                              env={**os.environ, **(environment or {})})
    except subprocess.TimeoutExpired:
        return Ran(None, "", "it did not end")
    return Ran(done.returncode, *(text.decode(errors="surrogateescape") for text in (done.stdout, done.stderr)))


class Bench:
    """The programs, inputs for them, and a new folder for each trial."""

    def __init__(self, build, seed):
        self.seed, self.build, self.root = seed, Path(build).resolve(), Path(tempfile.mkdtemp(prefix="counts-"))
        self.gpt, self.bert, self.stowage = (str(self.build / name) for name in ("samples/train_gpt", "samples/train_bert", "tools/cli/stowage"))
        self.fakes = {"LD_LIBRARY_PATH": str(self.build / "fake_cuda"), "STOWAGE_FAKE_CUDA_PAGE_TABLES": "none"}
        numbers = random.Random(seed)
        words = ["".join(numbers.choices("aeioulmnrst", k=numbers.randint(2, 9))) for _ in range(400)]
        self.text = self.make("text.txt", "".join(" ".join(numbers.choices(words, k=9)) + ".\n" for _ in range(1500)))
        self.documents = self.make("documents.txt", "".join(
            "".join(f"sentence {i} of the document {number}.\n" for i in range(6)) + "\n" for number in range(40)))
        buffers = ((start, start + numbers.randint(1, 60)) for start in (numbers.randrange(400) for _ in range(300)))
        self.buffers = self.make("buffers.csv", "id,lower,upper,size\n" + "".join(
            f"{number},{lower},{upper},{numbers.randint(1, 5000)}\n" for number, (lower, upper) in enumerate(buffers)))
        self.train_gpt = [self.gpt, "--data", self.text, *SMALL]
        self.train_bert = [self.bert, "--data", self.documents, "--vocabulary", "280", *SMALL]

    def make(self, name, text):
        (self.root / name).write_text(text)
        return str(self.root / name)

    def folder(self):
        return Path(tempfile.mkdtemp(dir=self.root))

    def numbers(self, *of):
        return random.Random(" ".join(map(str, (self.seed, *of))))


def shown(ran):
    last = ran.err.strip().splitlines()
    return f"code {ran.code}: {last[-1] if last else 'no message'}"


# pairs

POLICIES = ["auto"] * 5 + "none zero-offload zero-infinity gemini-cpu layer-stream checkpoint fsdp2".split()
FIGURES = [r"need [^\n]*?\((\d+) bytes", r"minimum [^\n]*?\((\d+) bytes", r"in each [^\n]*?\((\d+) bytes", r"(?:plan +)?peak [^\n]*?\((\d+) bytes",
           r"(?:plan +)?peak [^,]*, (\S+) of the need", r"minimum [^,]*, (\S+) of the need", r"(?:step|predicted) +(\S+ \S+) (?:predicted|per step),",
           r"(?:step|predicted) +[^\n]* (\S+) tokens/s", r"(?:step|predicted) +[^\n]* stall (\S+)\n", r"lower bound +(\S+ \S+) "]


def figures(text):
    found = [re.search(r"(?:^|\n) *" + pattern, text) for pattern in FIGURES]
    return [match and match[1] for match in found]


def draw_description(numbers):
    """The family, its size as `stowage plan` has it, and options that both programs know."""
    layers, heads = numbers.randint(1, 4), numbers.choice([1, 2, 4])
    width, batch = heads * numbers.choice([8, 16, 24, 64]), numbers.choice([1, 2, 4, 6, 8, 12])
    parts = numbers.choice([number for number in (1, 2, 3, 4) if batch % number == 0])
    options = ["--heads", heads, "--sequence", numbers.choice([8, 16, 32, 48, 64]), "--batch", batch, "--micro-batches", parts,
               "--type", numbers.choice(["f32", "bf16", "fp16"]), "--moments", numbers.choice(["f32", "bf16", "8bit"]),
               "--policy", numbers.choice(POLICIES)]
    if parts in (2, 4) and numbers.random() < 0.4:
        options += ["--gradient-groups", 2]
    if numbers.random() < 0.4:
        options += ["--head-chunk", numbers.choice([8, 24, 64, 1000])]
    if numbers.random() < 0.3:
        options += ["--bucket-size", numbers.choice(["20000", "64KiB", "1MB"])]
    return numbers.choice(["gpt", "bert"]), f"{layers}x{width}", list(map(str, options))


def ask_both(bench, folder, description, memory):
    family, size, options = description
    layers, width = size.split("x")
    options = [*options, *MACHINE, "--device-memory", memory]
    data = ["--data", bench.text] if family == "gpt" else ["--data", bench.documents, "--vocabulary", "280"]
    trainer = run([bench.gpt if family == "gpt" else bench.bert, *data, "--device", "simulated", "--layers", layers, "--width", width,
                   *options, "--plan-only", "--plan-json", "trainer.json"], folder)
    plan = run([bench.stowage, "plan", f"--{family}", size, "--vocabulary", "256" if family == "gpt" else "284", *options,
                "--plan-json", "plan.json"], folder)
    return trainer, plan


def differences(folder, trainer, plan):
    if trainer.code != plan.code or trainer.code not in (0, 2):
        return [f"trainer {shown(trainer)}; plan {shown(plan)} {plan.out[:200]!r}"]
    if trainer.code == 2:
        named = [re.findall(r"the smallest (?:budget )?that works is (\d+)", ran.out + ran.err) for ran in (trainer, plan)]
        return [] if named[0] == named[1] else [f"minima {named}: {shown(trainer)}; {plan.out[:200]!r}"]
    both = figures(trainer.out), figures(plan.out)
    wrong = [f"figures {both}"] if both[0] != both[1] or None in both[0] else []
    files = [(folder / name).read_bytes() for name in ("trainer.json", "plan.json")]
    return wrong + (["the plans differ as JSON"] if files[0] != files[1] else [])


def pair(bench, number):
    numbers, folder = bench.numbers("pairs", number), bench.folder()
    description = draw_description(numbers)
    trainer, plan = ask_both(bench, folder, description, "unlimited")
    wrong, memory, ends = differences(folder, trainer, plan), "unlimited", [trainer.code]
    if not wrong and trainer.code == 0:
        need, minimum = (int(figure) for figure in figures(trainer.out)[:2])
        memory = str(max(0, round(minimum + numbers.uniform(-0.3, 1.1) * (need - minimum + 1000))))
        trainer, plan = ask_both(bench, folder, description, memory)
        wrong = differences(folder, trainer, plan)
        ends.append(trainer.code)
    return [f"{description} --device-memory {memory}: {each}" for each in wrong], f"codes {ends}"


def pairs(bench):
    return [lambda number=number: pair(bench, number) for number in range(40)]


# kills

KILLS = 50
STEPS = 6


class Written:
    """A program, the outputs that must be as those of an undisturbed run, and what else must hold of the folder."""

    def __init__(self, name, words, same=(), check=lambda folder: [], environment=None):
        self.name, self.words, self.same, self.check, self.environment = name, words, same, check, environment
        self.kept, self.seconds = {}, 0

    def run_undisturbed(self, folder):
        begin = time.monotonic()
        ran = run(self.words, folder, self.environment)
        self.seconds = time.monotonic() - begin
        if ran.code != 0 or self.check(folder):
            sys.exit(f"an undisturbed {self.name} fails: {shown(ran)} {self.check(folder)}")
        self.kept = {name: (folder / name).read_bytes() for name in self.same}


def parses(path):
    try:
        return json.loads(path.read_text()) is not None
    except (OSError, ValueError):
        return False


def check_training(folder, words):
    wrong = [f"{name} is no JSON" for name in ("plan.json", "trace.json", "export/config.json") if not parses(folder / name)]
    steps = [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]
    if steps != list(range(1, STEPS + 1)):
        wrong.append(f"the log has the steps {steps}")
    if not (folder / "report.html").read_text().rstrip().endswith("</html>"):
        wrong.append("the report has no end")
    shutil.copytree(folder / "saves", folder / "copy", dirs_exist_ok=True)
    resumed = run([*words, "--steps", str(STEPS + 1), "--checkpoint", "copy", "--resume"], folder)
    if resumed.code != 0 or f"step {STEPS + 1}/{STEPS + 1}" not in resumed.out:
        wrong.append(f"the checkpoint is not resumed: {shown(resumed)}")
    shutil.rmtree(folder / "copy")
    return wrong


def check_record(folder, calls):
    lines = (folder / "record.csv").read_text().splitlines()
    wrong = [f"line {line!r} of the record" for line in lines[1:] if line.count(",") != 11]
    allocations = sum(",alloc,device," in line for line in lines)
    said = re.search(r"calls +([\d,]+) caught", (folder / "report.txt").read_text())
    return wrong + ([] if said and allocations == calls == int(said[1].replace(",", "")) else [f"{allocations} calls of {calls}, report {said}"])


def written_programs(bench):
    outputs = ["--checkpoint", "saves", "--checkpoint-every", "1", "--weights", "weights", "--export", "export", "--report", "report.html",
               "--trace", "trace.json", "--log", "log.jsonl", "--plan-json", "plan.json", "--steps", str(STEPS)]
    for name, words in ("train_gpt", bench.train_gpt), ("train_bert", bench.train_bert):
        words = [*words, *MACHINE, "--policy", "none"]
        yield Written(name, [*words, *outputs], ("weights", "export/model.safetensors", "plan.json"),
                      lambda folder, words=words: check_training(folder, words))
    ends = lambda folder: [] if (folder / "report.html").read_text().rstrip().endswith("</html>") else ["the report has no end"]
    yield Written("stowage plan", [bench.stowage, "plan", "--gpt", "4x256", "--batch", "2", *MACHINE, "--plan-json", "plan.json", "--report",
                                   "report.html"], ("plan.json", "report.html"), ends)
    yield Written("stowage calibrate", [bench.stowage, "calibrate", "--quick", "--device", "simulated", "--output", "here.json"],
                  check=lambda folder: [] if run([bench.stowage, "plan", "--gpt", "1x8", "--heads", "1", "--batch", "1", "--sequence", "8", "--machine",
                                                  "here.json"], folder).code == 0 else ["the machine's file is not read"])
    yield Written("stowage tokens train", [bench.stowage, "tokens", "train", bench.text, "--vocabulary", "600", "--output", "words"],
                  ("words/vocab.json", "words/merges.txt"))
    yield Written("stowage tokens encode", [bench.stowage, "tokens", "encode", bench.text, "--tokenizer", "bytes", "--output", "text.bin"],
                  ("text.bin",))
    yield Written("stowage place", [bench.stowage, "place", bench.buffers, "--time", "0.1", "--output", "placed.csv"],
                  check=lambda folder: [] if (folder / "placed.csv").read_text().count("\n") == 301 else ["placed.csv lacks lines"])
    ender = str(bench.build / "tests/allocator/interpose/interposed_ending_program")
    yield Written("stowage run", [bench.stowage, "run", "--record", "record.csv", "--report", "report.txt", "--", ender, "8000"],
                  check=lambda folder: check_record(folder, 8000), environment={**bench.fakes, "TMPDIR": "."})


def kill_once(program, folder, numbers):
    """Whether the program was still running. Half of the moments are in the last part of its run, where it writes most."""
    process = subprocess.Popen(program.words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True, env={**os.environ, **(program.environment or {})})
    time.sleep(program.seconds * numbers.choice([numbers.uniform(0, 1), numbers.uniform(0.6, 1)]))
    alone = numbers.random() < 0.5
    process.kill()
    for _ in range(500):  # a child of it goes on to its end, or is killed, too
        try:
            os.killpg(process.pid, 0 if alone else signal.SIGKILL)
        except ProcessLookupError:
            break
        process.poll()
        time.sleep(0.01)
    return process.wait() == -signal.SIGKILL


def unfinished(folder):
    names = [path.name for path in folder.rglob("*")]
    return [name for name in names if name.endswith(".part") or name.startswith((".writing-", ".removing-"))]


def run_again(program, folder):
    """Runs the command to its end. A trainer may refuse what a run before it has finished: then it resumes, or has a new --export."""
    words, refused = list(program.words), []
    for _ in range(3):
        ran = run(words, folder, program.environment)
        if ran.code != 2:
            break
        refused.append(ran.err.strip())
        if "--export export: there are files" in ran.err:
            shutil.rmtree(folder / "export")
        elif "--checkpoint saves" in ran.err and "--resume" not in words:
            words.append("--resume")
        else:
            break
    return ran, refused


def kill(bench, program, number):
    numbers = bench.numbers("kills", program.name, number)
    folder = bench.folder()
    while not kill_once(program, folder, numbers):
        shutil.rmtree(folder)
        folder.mkdir()
    left = unfinished(folder)
    ran, refused = run_again(program, folder)
    if ran.code != 0:
        return [f"{program.name} in {folder.name}: after the kill {shown(ran)}"], program.name
    wrong = program.check(folder) + [f"{name} stays" for name in unfinished(folder)]
    wrong += [f"{name} differs from that of an undisturbed run" for name, kept in program.kept.items() if (folder / name).read_bytes() != kept]
    note = f"{program.name}{', with unfinished files' if left else ''}{', rerun refused first' if refused else ''}"
    return [f"{program.name} in {folder.name}, left by the kill {left}: {each}" for each in wrong], note


def kills(bench):
    programs = list(written_programs(bench))
    for program in programs:
        program.run_undisturbed(bench.folder())
    return [lambda program=program, number=number: kill(bench, program, number) for program in programs for number in range(KILLS)]


# limits and group

def limited_programs(bench):
    return {"train_gpt": [*bench.train_gpt, "--steps", "3"],
            "train_gpt --plan-only": [*bench.train_gpt, "--plan-only"],
            "train_bert --plan-only": [*bench.train_bert, "--plan-only"],
            "stowage plan --gpt gpt2": [bench.stowage, "plan", "--gpt", "gpt2", *MACHINE],
            "stowage calibrate --quick": [bench.stowage, "calibrate", "--quick", "--device", "simulated", "--output", "here.json"]}


def judge_limited(name, limit, ran):
    if "error while loading shared libraries" in ran.err:
        return [], f"{name}: the loader finds no room"
    right = ran.code == 0 or (ran.code == 2 and ran.err + ran.out)
    return ([] if right else [f"{name}, {limit}: {shown(ran)}"]), f"{name}: code {ran.code}"


def limits(bench):
    def trial(name, words, flag, size):
        limited = ["sh", "-c", f'ulimit -{flag} {size * 1024}; exec "$@"', "sh", *words]
        return judge_limited(name, f"ulimit -{flag} {size} MiB", run(limited, bench.folder()))
    return [lambda each=(name, words, flag, size): trial(*each) for name, words in limited_programs(bench).items() for flag in "vd"
            for size in range(64, 1025, 32)]


class MemoryGroup:
    """A control group below this process's own, for one run."""

    def __init__(self, size):
        groups = [line.strip().split(":", 2) for line in open("/proc/self/cgroup", encoding="ascii")]
        first = next((path for _, kinds, path in groups if "memory" in kinds.split(",")), None)
        unified = next((path for _, kinds, path in groups if not kinds), "/")
        self.place = Path(f"/sys/fs/cgroup/memory{first}" if first else f"/sys/fs/cgroup{unified}") / f"counts-{os.getpid()}-{time.monotonic_ns()}"
        self.peak_file, limit = ("memory.max_usage_in_bytes", "memory.limit_in_bytes") if first else ("memory.peak", "memory.max")
        self.place.mkdir()
        try:
            (self.place / limit).write_text(str(size))
        except OSError:
            self.place.rmdir()
            raise

    def run(self, words, folder):
        """How it ended, and the most memory that it had."""
        try:
            ran = run(["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', str(self.place), *words], folder)
            return ran, int((self.place / self.peak_file).read_text())
        finally:
            self.place.rmdir()


def group(bench):
    def trial(name, words, size):
        ran, peak = MemoryGroup(size * MEBIBYTE).run(words, bench.folder())
        print(f"group {size:5d} MiB  peak {peak / MEBIBYTE:7.1f} MiB  code {ran.code}  {name}", flush=True)
        return judge_limited(name, f"a group of {size} MiB", ran)
    try:
        MemoryGroup(64 * MEBIBYTE).run(["true"], bench.root)
    except OSError as error:
        print(f"group: no memory control group can be made here ({error.strerror})")
        return []
    return [lambda each=(name, words, size): trial(*each) for name, words in limited_programs(bench).items() for size in range(32, 1025, 32)]


# names

FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\udc80-\udcff]")
PIECES = [bytes([code]) for code in range(1, 256) if code != ord("/")] + [chr(code).encode() for code in range(0x80, 0xa0)]
PIECES += [chr(code).encode() for code in (0x61c, 0x200e, 0x200f, *range(0x202a, 0x202f), *range(0x2066, 0x206a), 0xe9, 0x1f600)] * 4
PIECES += [b"\x1b[31m", b"\x1b]0;title\x07", b"\r", b"\n", b"\xc2", b"\xe2\x80", b"\xed\xa0\x80", b"a", b" ", b"'", b'"', b"\\", b"{}", b"%s"] * 4
READERS = ["GPT --data %", "GPT SMALL --tokenizer %", "GPT SMALL --init %", "GPT SMALL --machine %", "GPT SMALL --resume %",
           "GPT SMALL --evaluation-data %", "GPT --generate @% --checkpoint none", "BERT --data %", "BERT SMALL --tokenizer %",
           "BERT SMALL --init %", "STOWAGE plan %", "STOWAGE plan --gpt 1x8 --heads 1 --machine %", "STOWAGE plan --compare % %",
           "STOWAGE tokens train % --vocabulary 300 --output out", "STOWAGE tokens encode % --tokenizer bytes --output out",
           "STOWAGE tokens encode TEXT --tokenizer % --output out", "STOWAGE place %", "STOWAGE replay %", "STOWAGE run -- %",
           "STOWAGE run --report - -- %"]
WRITERS = ["GPT SMALL --plan-only --plan-json %", "GPT SMALL --report %", "GPT SMALL --weights %", "GPT SMALL --export %",
           "GPT SMALL --checkpoint %", "GPT SMALL --log %", "GPT SMALL --trace %", "BERT SMALL --weights %", "BERT SMALL --export %",
           "STOWAGE plan --gpt 1x8 --heads 1 --batch 1 --sequence 8 MACHINE --plan-json %", "STOWAGE calibrate --quick --device simulated --output %",
           "STOWAGE tokens train TEXT --vocabulary 300 --output %", "STOWAGE tokens encode TEXT --tokenizer bytes --output %",
           "STOWAGE place BUFFERS --time 0 --output %", "STOWAGE run --record % -- true", "STOWAGE run --record out --report % -- true"]


def draw_name(numbers):
    name = b"".join(numbers.choices(PIECES, k=numbers.randint(1, 12)))
    return name if name.strip(b".") else b"a" + name


def draw_rubbish(numbers, name):
    text = json.dumps(name.decode(errors="replace"))
    return numbers.choice([name, numbers.randbytes(200), b"", f"{{{text}: 1}}".encode(), f'{{"weight_map": {{{text}: {text}}}}}'.encode(),
                           b"id,lower,upper,size," + name + b"\n", b"id,lower,upper,size\n" + name + b",1,2,3\n",
                           b"# stowage record 1\n" + name, b'{"stowage_history": 1}\n' + f'{{"op": {text}}}'.encode(),
                           struct.pack("<Q", len(text) + 6) + f"{{{text}: 1}} ".encode()])


def words_of(bench, line, target):
    small = [*SMALL, *MACHINE, "--policy", "none", "--steps", "1"]
    known = {"TEXT": [bench.text], "BUFFERS": [bench.buffers], "MACHINE": MACHINE, "SMALL": small, "STOWAGE": [bench.stowage]}
    known["GPT"] = [bench.gpt] if "--data" in line else [bench.gpt, "--data", bench.text]
    known["BERT"] = [bench.bert] if "--data" in line else [bench.bert, "--data", bench.documents, "--vocabulary", "280"]
    words = itertools.chain(*(known.get(word, [word]) for word in line.split()))
    return [os.fsencode(word).replace(b"%", target) for word in words]


def prepare(numbers, name, folder, kind):
    """Puts rubbish where a reader looks: a file, a folder of files, or a program."""
    path = os.path.join(os.fsencode(folder), name)
    if kind == "program":
        os.symlink("/bin/true", path)
    elif kind == "folder":
        os.mkdir(path)
        for file in numbers.sample([b"config.json", b"tokenizer.json", b"vocab.txt", b"vocab.json", b"merges.txt", b"model.safetensors",
                                    b"model.safetensors.index.json", name], 4):
            with open(os.path.join(path, file), "wb") as rubbish:
                rubbish.write(draw_rubbish(numbers, name))
    elif kind == "file":
        with open(path, "wb") as rubbish:
            rubbish.write(draw_rubbish(numbers, name))


def try_name(bench, number):
    numbers, folder = bench.numbers("names", number), bench.folder()
    name, kind = draw_name(numbers), numbers.choice(["missing", "file", "folder", "output", "output", "no folder"])
    line = numbers.choice(WRITERS if kind in ("output", "no folder") else READERS)
    if " run " in line and kind == "file":
        kind = "program"
    prepare(numbers, name, folder, kind)
    target = os.path.join(b"" if numbers.random() < 0.3 and name[:1] != b"-" else os.fsencode(folder), name, *([name] if kind == "no folder" else []))
    words = words_of(bench, line, target)
    ran = run(words, folder, bench.fakes if " run " in line else None)
    wrong = [f"prints {set(found)} in {text[-300:]!r}" for text in ran[1:] if (found := FORBIDDEN.findall(text))]
    if ran.code not in (0, 2) or (ran.code == 2 and not ran.err + ran.out) or (kind == "output" and ran.code == 2 and name != target):
        wrong.append(f"ends with {shown(ran)}")
    return [f"{line} with {name!r} as {kind}: {each}" for each in wrong], f"{kind}: code {ran.code}"


def names(bench):
    return [lambda number=number: try_name(bench, number) for number in range(500)]


# calls

PROGRAM = r"""
#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int cuMemAlloc_v2(unsigned long long* address, size_t bytes);
extern char** environ;
static void allocate(int times) {
  unsigned long long address;
  for (int i = 0; i < times; ++i)
    if (cuMemAlloc_v2(&address, 16) == 0) write(1, "device 16\n", 10);
}
static void* in_a_thread(void* unused) {
  if (fork() == 0) { allocate(3); raise(SIGKILL); }
  wait(NULL);
  return unused;
}
static int overflow(volatile char* last) { volatile char more[4096]; more[0] = *last; return overflow(more) + more[0]; }
int main(int count, char** words) {
  pthread_t thread;
  for (int i = 1; i < count; ++i) {
    const char* word = words[i];
    words[i] = words[0];  /* of the image that takes over */
    if (isdigit(*word)) allocate(atoi(word));
    if (!strcmp(word, "close_range")) close_range(3, ~0u, 0);
    if (!strcmp(word, "dup2")) for (int file = 3; file < 64; ++file) dup2(1, file);
    if (!strcmp(word, "fexecve")) fexecve(open("/proc/self/exe", O_RDONLY), words + i, environ);
    if (!strcmp(word, "vfork")) { pid_t child = vfork(); if (child == 0) { execv(words[0], words + i); _exit(1); } waitpid(child, NULL, 0); return 0; }
    if (!strcmp(word, "spawn")) { pid_t child; posix_spawn(&child, words[0], NULL, NULL, words + i, environ); waitpid(child, NULL, 0); return 0; }
    if (!strcmp(word, "thread_forks")) { pthread_create(&thread, NULL, in_a_thread, NULL); pthread_join(thread, NULL); }
    if (!strcmp(word, "orphan") && fork() == 0) { setsid(); if (fork() != 0) _exit(0); }
    if (!strcmp(word, "overflow")) overflow("");
    if (!strcmp(word, "kill")) raise(SIGKILL);
    if (!strcmp(word, "_exit")) _exit(3);
  }
  return 0;
}
"""
ENDINGS = ["", "segv", "kill", "term", "abort", "trap", "_exit", "exit_group", "quick_exit", "exit_at_segv segv"]


def draw_ender(numbers):
    """Arguments of the test program that allocates and ends in many ways."""
    words = []
    for _ in range(numbers.randint(1, 4)):
        words += [str(numbers.choice([1, 3, 60, 400])), numbers.choice(["", "exec", "close_all", "threads", "fork 4 {} parent", "fork 7 exec 2 {} parent",
                                                                        "spawn 30 {} parent"]).format(numbers.choice(ENDINGS))]
    return " ".join([*words, numbers.choice(["", "5"]), numbers.choice(ENDINGS + ["exec_bare"])]).split()


def draw_compiled(numbers):
    ways = ["close_range", "dup2", "fexecve", "vfork", "spawn", "thread_forks", "orphan"]
    words = [word for way in numbers.sample(ways, numbers.randint(1, 4)) for word in (str(numbers.choice([1, 20, 300])), way)]
    return [*words, str(numbers.randint(1, 9)), numbers.choice(["", "kill", "overflow", "_exit"])]


def count_calls(bench, compiled, number):
    numbers, folder = bench.numbers("calls", number), bench.folder()
    ender = str(bench.build / "tests/allocator/interpose/interposed_ending_program")
    words = [compiled, *draw_compiled(numbers)] if number % 2 else [ender, *draw_ender(numbers)]
    alone = run(words, folder, bench.fakes)
    ran = run([bench.stowage, "run", "--record", "record.csv", "--report", "report.txt", "--", *words], folder, {**bench.fakes, "TMPDIR": str(folder)})
    report = (folder / "report.txt").read_text() if (folder / "report.txt").exists() else ""
    made, said = ran.out.count("device 16\n"), re.search(r"calls +([\d,]+) caught", report)
    recorded = sum(",alloc,device," in line for line in (folder / "record.csv").read_text().splitlines())
    counted = int(said[1].replace(",", "")) if said else None
    may_lack = "some calls may be missing" in report
    wrong = [] if counted == made == recorded or (may_lack and counted is not None and counted <= made) else \
        [f"made {made}, counted {counted}, recorded {recorded}, may be missing: {may_lack}"]
    if ran.code != alone.code:
        wrong.append(f"ends with {ran.code}, alone with {alone.code}")
    note = "exact" if counted == made else "fewer, and said so"
    return [f"{' '.join(words[1:])} ({'compiled' if number % 2 else 'of the tests'}): {each}" for each in wrong], f"{note}{', may be missing' if may_lack else ''}"


def calls(bench):
    compiled = str(bench.root / "calls_program")
    subprocess.run(["cc", "-O0", "-w", "-o", compiled, "-x", "c", "-", "-x", "none", "-pthread", str(bench.build / "fake_cuda/libcuda.so.1"), "-Wl,--allow-shlib-undefined"],
                   input=PROGRAM, text=True, check=True)
    return [lambda number=number: count_calls(bench, compiled, number) for number in range(40)]


# folders

OUTER = ["", "module.", "_orig_mod.", "model.", "module._orig_mod."]
TABLES = ["table", "head with an alias", "both", "both, the head in bf16", "head in the index alone"]
CONFIG = {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
          "layer_norm_epsilon": 1e-5, "model_type": "gpt2", "n_ctx": 64, "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 64}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 548105171\n"


def draw_weights(numbers, vocabulary):
    """Shapes and bytes in f32 by name; bf16 holds each value exactly."""
    shapes = {"wte.weight": [vocabulary, 16], "wpe.weight": [64, 16], "ln_f.weight": [16], "ln_f.bias": [16]}
    for layer in range(2):
        for name, shape in {"ln_1": [16], "attn.c_attn": [16, 48], "attn.c_proj": [16, 16], "ln_2": [16], "mlp.c_fc": [16, 64],
                            "mlp.c_proj": [64, 16]}.items():
            shapes[f"h.{layer}.{name}.weight"], shapes[f"h.{layer}.{name}.bias"] = shape, shape[-1:]
    return {name: (shape, b"".join(b"\0\0" + struct.pack("<f", numbers.gauss(0, 0.2))[2:] for _ in range(math.prod(shape))))
            for name, shape in shapes.items()}


def write_safetensors(path, tensors, metadata):
    """`tensors`: type, shape and bytes by name."""
    header, at = {"__metadata__": {"format": "pt", **metadata}}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name], at = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}, at + len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def write_model(folder, words, weights, outer="", inner="transformer.", table="table", nan=False, lfs=False):
    """Returns the names that are stored."""
    shutil.copytree(words, folder)
    config = {**CONFIG, "vocab_size": weights["wte.weight"][0][0], **({"summary_first_dropout": math.nan, "max_length": math.inf} if nan else {})}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {f"{outer}{inner}{name}": ("F32", *weight) for name, weight in weights.items()}
    tied, head, metadata = f"{outer}{inner}wte.weight", f"{outer}lm_head.weight", {}
    _, shape, data = tensors[tied]
    if table == "head with an alias":
        metadata = {tied: head}
        tensors[head] = tensors.pop(tied)
    elif table == "both":
        tensors[head] = tensors[tied]
    elif table == "both, the head in bf16":
        tensors[head] = "BF16", shape, b"".join(data[at + 2:at + 4] for at in range(0, len(data), 4))
    if lfs:
        (folder / "model.safetensors").write_text(POINTER)
    elif table == "head in the index alone":
        names_of, shards = list(tensors), ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
        parts = dict(zip(shards, (names_of[:9], names_of[9:])))
        for shard, part in parts.items():
            write_safetensors(folder / shard, {name: tensors[name] for name in part}, {})
        listed = {name: shard for shard, part in parts.items() for name in part} | {head: shards[0]}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": listed}))
    else:
        write_safetensors(folder / "model.safetensors", tensors, metadata)
    return list(tensors)


def losses(bench, folder, model):
    log = folder / f"{model}.jsonl"
    ran = run([bench.gpt, "--init", model, "--tokenizer", model, "--data", bench.text, "--steps", "2", "--batch", "2", "--sequence", "32", "--device",
               "simulated", "--threads", "1", *MACHINE, "--policy", "none", "--log", str(log)], folder)
    return ran, re.findall(r'"loss": ([^,]+),', log.read_text()) if log.exists() else []


def try_folder(bench, words, number, outer, table, lfs):
    numbers, folder = bench.numbers("folders", number), bench.folder()
    weights = draw_weights(numbers, len(json.loads((words / "vocab.json").read_text())))
    inner, nan = numbers.choice(["transformer.", "transformer.", ""]), numbers.random() < 0.5
    write_model(folder / "plain", words, weights)
    stored = write_model(folder / "other", words, weights, outer, inner, table, nan, lfs)
    plain, right = losses(bench, folder, "plain")
    other, found = losses(bench, folder, "other")
    name = f"{outer}{inner}*, {table}{', NaN' if nan else ''}{', LFS' if lfs else ''}"
    if plain.code != 0 or len(right) != 2:
        return [f"the plain folder: {shown(plain)}"], "plain refused"
    if other.code == 0 and not lfs:
        return ([] if found == right else [f"{name}: losses {found}, plain {right}"]), "taken"
    told = "LFS" in other.err if lfs else any(tensor in other.err for tensor in stored)
    return ([] if other.code == 2 and told else [f"{name}: {shown(other)}"]), f"refused: {name}: {other.err.strip()}"


def folders(bench):
    words = bench.root / "words"
    run([bench.stowage, "tokens", "train", bench.text, "--vocabulary", "320", "--output", str(words)], bench.root)
    kinds = [(outer, table, False) for outer in OUTER for table in TABLES] + [(outer, TABLES[0], True) for outer in OUTER]
    return [lambda each=(number, *kind): try_folder(bench, words, *each) for number, kind in enumerate(kinds)]


PARTS = {part.__name__: part for part in (pairs, kills, limits, group, names, calls, folders)}


def attempt(trial):
    try:
        return trial()
    except (OSError, ValueError) as error:  # an output that is not there, or no JSON
        return [f"{type(error).__name__}: {error}"], "cannot be judged"


def count(bench, part):
    """Whether no trial is wrong."""
    begin, bad, notes = time.monotonic(), 0, {}
    trials = PARTS[part](bench)
    with ThreadPoolExecutor(2) as pool:
        for number, (wrong, note) in enumerate(pool.map(attempt, trials), 1):
            bad += bool(wrong)
            notes[note] = notes.get(note, 0) + 1
            for each in wrong:
                print(f"{part} {number} WRONG: {each.encode('ascii', 'backslashreplace').decode()}", flush=True)
    for note, times in sorted(notes.items()):
        print(f"{part}  {times:4d}  {note.encode('ascii', 'backslashreplace').decode()}")
    print(f"{part.upper()}: {len(trials)} trials, {bad} wrong ({time.monotonic() - begin:.0f} s)", flush=True)
    return bad == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all where none is given")
    parser.add_argument("--build", default=str(ROOT / "build/release"), help="build tree to take the programs from")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(unknown)}")
    bench = Bench(arguments.build, arguments.seed)
    right = [count(bench, part) for part in arguments.parts or PARTS]
    if not all(right):
        sys.exit(f"the trials' folders are in {bench.root}")
    shutil.rmtree(bench.root)


if __name__ == "__main__":
    main()
