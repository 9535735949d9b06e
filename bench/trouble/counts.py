#!/usr/bin/env python3
"""Seven counts over built programs: inputs, machines and moments that go wrong, drawn at random from a seed.

    bench/trouble/counts.py [PART ...] [--build build/release] [--seed 1]

pairs    40 descriptions of a model, each with two budgets, go to `stowage plan` and to a trainer with --plan-only. Need, minimum, peak,
         times and the plan as JSON must be the same, and so must refusals and the minimum that they name.
kills    50 SIGKILLs at random moments of each program that writes files. The same command must then run to its end, leave no *.part and
         no half checkpoint, and write what an undisturbed run writes.
limits   `ulimit -v` and `ulimit -d` from 64 MiB to 1 GiB in steps of 32 MiB; of -v below 320 MiB in steps of 4 MiB. Each program must end
         with code 0, or with 2 and a message. Where the dynamic loader itself finds no room, that is counted apart.
group    The same in memory control groups (version 1 or 2) below this process's own, from 32 MiB to 1 GiB. Tells each peak.
names    500 file names of random bytes, of inputs that are missing or hold rubbish and of outputs. No control character, no
         bidirectional one and no byte outside UTF-8 may be printed. The exit code must be 0 or 2, and an output must be there.
calls    200 programs that crash, exec, fork and close descriptors, 5 to 20 times each under `stowage run`, over the build tree's fakes of
         CUDA. The calls counted must be those that were made, or the report must say that some may be missing.
folders  30 GPT-2 folders with wrapped names, tied tables, indexes and pointers of Git LFS. The losses must be those of the plain folder
         with the same values, or a refusal must name a tensor that is there, or say what the file is.

Prints a line for each trial that is wrong, how often each end was seen, and a summary for each part. The exit code is 1 where something is
wrong; then the trials' folders stay. Two programs run at a time.
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
from typing import Callable, NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
HANG_SECONDS = 120
MEBIBYTE = 1 << 20
MACHINE = ["--machine", "rtx4090"]  # plans need no measurement of this machine then
SMALL = "--device simulated --layers 2 --width 32 --heads 2 --sequence 32 --batch 2 --threads 1".split()
STEPS = 6  # of a run that is killed


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


def shown(ran):
    return f"code {ran.code}: {(ran.err.strip().splitlines() or ['no message'])[-1]}"


class Bench:
    """The programs, inputs for them, and a new folder for each trial."""

    def __init__(self, build, seed):
        self.seed, self.build, self.root = seed, Path(build).resolve(), Path(tempfile.mkdtemp(prefix="counts-"))
        self.gpt, self.bert, self.stowage, self.ender = (str(self.build / name) for name in (
            "samples/train_gpt", "samples/train_bert", "tools/cli/stowage", "tests/allocator/interpose/interposed_ending_program"))
        self.fakes = {"LD_LIBRARY_PATH": str(self.build / "fake_cuda"), "STOWAGE_FAKE_CUDA_PAGE_TABLES": "none"}
        numbers = self.numbers("inputs")
        words = ["".join(numbers.choices("aeioulmnrst", k=numbers.randint(2, 9))) for _ in range(400)]
        self.text = self.make("text.txt", [" ".join(numbers.choices(words, k=9)) + "." for _ in range(1500)])
        self.documents = self.make("documents.txt", ["\n" * (i == 0) + f"sentence {i} of the document {number}."
                                                     for number in range(40) for i in range(6)])
        starts = [numbers.randrange(400) for _ in range(300)]
        self.buffers = self.make("buffers.csv", ["id,lower,upper,size"] + [
            f"{number},{start},{start + numbers.randint(1, 60)},{numbers.randint(1, 5000)}" for number, start in enumerate(starts)])
        self.data = {self.gpt: ["--data", self.text], self.bert: ["--data", self.documents, "--vocabulary", "280"]}

    def make(self, name, lines):
        (self.root / name).write_text("\n".join(lines) + "\n")
        return str(self.root / name)

    def train(self, program, *more):
        return [program, *self.data[program], *SMALL, *more]

    def folder(self):
        return Path(tempfile.mkdtemp(dir=self.root))

    def numbers(self, *of):
        return random.Random(" ".join(map(str, (self.seed, *of))))


# Part pairs

POLICIES = ["auto"] * 5 + "none zero-offload zero-infinity gemini-cpu layer-stream checkpoint fsdp2".split()
FIGURES = [r"need [^\n]*?\((\d+) bytes", r"minimum [^\n]*?\((\d+) bytes", r"budget +([^\n]+)", r"in each [^\n]*?\((\d+) bytes",
           r"(?:plan +)?peak +([^\n]*? of the need)", r"minimum [^,]*, (\S+) of the need", r"(?:step|predicted) +(\S+ \S+) (?:predicted|per step),",
           r"(?:step|predicted) +[^\n]* (\S+) tokens/s", r"(?:step|predicted) +[^\n]* stall (\S+)\n", r"lower bound +(\S+ \S+) "]


def figures(text):
    found = [re.search(r"(?:^|\n) *" + pattern, text) for pattern in FIGURES]
    return [match and match[1] for match in found]


def draw_description(numbers):
    """The family, layers, width, and options that both programs know."""
    heads, batch = numbers.choice([1, 2, 4]), numbers.choice([1, 2, 4, 6, 8, 12])
    parts = numbers.choice([number for number in (1, 2, 3, 4) if batch % number == 0])
    options = {"--heads": heads, "--sequence": numbers.choice([8, 16, 32, 48, 64]), "--batch": batch, "--micro-batches": parts,
               "--type": numbers.choice(["f32", "bf16", "fp16"]), "--moments": numbers.choice(["f32", "bf16", "8bit"]),
               "--policy": numbers.choice(POLICIES)}
    if parts in (2, 4) and numbers.random() < 0.4:
        options["--gradient-groups"] = 2
    if numbers.random() < 0.4:
        options["--head-chunk"] = numbers.choice([8, 24, 64, 1000])
    if numbers.random() < 0.3:
        options["--bucket-size"] = numbers.choice(["20000", "64KiB", "1MB"])
    return numbers.choice(["gpt", "bert"]), numbers.randint(1, 4), heads * numbers.choice([8, 16, 24, 64]), options


def ask_both(bench, folder, description, memory):
    """The answers of the trainer and of `stowage plan`, and in what they differ."""
    family, layers, width, options = description
    options = [*itertools.chain(*((name, str(value)) for name, value in options.items())), *MACHINE, "--device-memory", memory]
    program, vocabulary = (bench.gpt, "256") if family == "gpt" else (bench.bert, "284")
    trainer = run([program, *bench.data[program], "--device", "simulated", "--layers", str(layers), "--width", str(width), *options,
                   "--plan-only", "--plan-json", "trainer.json"], folder)
    plan = run([bench.stowage, "plan", f"--{family}", f"{layers}x{width}", "--vocabulary", vocabulary, *options, "--plan-json", "plan.json"], folder)
    if trainer.code != plan.code or trainer.code not in (0, 2):
        return trainer, [f"trainer {shown(trainer)}; plan {shown(plan)} {plan.out[:200]!r}"]
    if trainer.code == 2:
        minima = [re.findall(r"the smallest (?:budget )?that works is (\d+)", ran.out + ran.err) for ran in (trainer, plan)]
        return trainer, [] if minima[0] == minima[1] else [f"minima {minima}: {shown(trainer)}; {plan.out[:200]!r}"]
    both = [figures(ran.out) for ran in (trainer, plan)]
    same_files = (folder / "trainer.json").read_bytes() == (folder / "plan.json").read_bytes()
    wrong = [f"figures {both}"] if both[0] != both[1] or None in both[0] else []
    return trainer, wrong + ([] if same_files else ["the plans differ as JSON"])


def pair(bench, number):
    numbers, folder = bench.numbers("pairs", number), bench.folder()
    description, memory = draw_description(numbers), "unlimited"
    trainer, wrong = ask_both(bench, folder, description, memory)
    codes = [trainer.code]
    if not wrong and trainer.code == 0:
        need, minimum = (int(figure) for figure in figures(trainer.out)[:2])
        memory = str(max(0, round(minimum + numbers.uniform(-0.3, 1.1) * (need - minimum + 1000))))
        trainer, wrong = ask_both(bench, folder, description, memory)
        codes.append(trainer.code)
    return [f"{description} --device-memory {memory}: {each}" for each in wrong], f"codes {codes}"


def pairs(bench):
    return [lambda number=number: pair(bench, number) for number in range(40)]


# Part kills


class Written(NamedTuple):
    """A command that writes files."""
    name: str
    words: list
    same: tuple = ()  # outputs that must have the bytes of an undisturbed run
    check: Callable = lambda folder: []  # what is wrong with its other outputs
    environment: dict = {}


def check_page(folder):
    return [] if (folder / "report.html").read_text().rstrip().endswith("</html>") else ["the report has no end"]


def check_training(folder, words):
    for name in ("plan.json", "trace.json", "export/config.json"):
        json.loads((folder / name).read_text())
    steps = [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]
    wrong = [] if steps == list(range(1, STEPS + 1)) else [f"the log has the steps {steps}"]
    shutil.copytree(folder / "saves", folder / "copy")
    resumed = run([*words, "--steps", str(STEPS + 1), "--checkpoint", "copy", "--resume"], folder)
    shutil.rmtree(folder / "copy")
    if resumed.code != 0 or f"step {STEPS + 1}/{STEPS + 1}" not in resumed.out:
        wrong.append(f"the checkpoint is not resumed: {shown(resumed)}")
    return wrong + check_page(folder)


def check_record(folder, calls):
    lines = (folder / "record.csv").read_text().splitlines()
    wrong = [f"line {line!r} of the record" for line in lines[1:] if line.count(",") != 11]
    told = f"{calls:,} caught in" in (folder / "report.txt").read_text() and sum(",alloc,device," in line for line in lines) == calls
    return wrong + ([] if told else ["calls are missing"])


def check_machine(bench, folder):
    asked = run([bench.stowage, *"plan --gpt 2x64 --batch 2 --machine here.json".split()], folder)
    return [] if asked.code == 0 else [f"the machine's file is refused: {shown(asked)}"]


def check_places(folder):
    return [] if (folder / "placed.csv").read_text().count("\n") == 301 else ["lines are missing"]


def written_programs(bench):
    outputs = ("--checkpoint saves --checkpoint-every 1 --weights weights --export export --report report.html --trace trace.json "
               f"--log log.jsonl --plan-json plan.json --steps {STEPS}").split()
    for program in (bench.gpt, bench.bert):
        words = bench.train(program, *MACHINE, "--policy", "none")
        yield Written(Path(program).name, [*words, *outputs], ("weights", "export/model.safetensors", "plan.json"),
                      lambda folder, words=words: check_training(folder, words))
    yield Written("stowage plan", [bench.stowage, "plan", "--gpt", "2x64", "--batch", "2", *MACHINE, "--plan-json", "plan.json", "--report",
                                   "report.html"], ("plan.json", "report.html"), check_page)
    yield Written("stowage calibrate", [bench.stowage, "calibrate", "--quick", "--device", "simulated", "--output", "here.json"],
                  check=lambda folder: check_machine(bench, folder))
    yield Written("stowage tokens train", [bench.stowage, "tokens", "train", bench.text, "--vocabulary", "600", "--output", "words"],
                  ("words/vocab.json", "words/merges.txt"))
    yield Written("stowage tokens encode", [bench.stowage, "tokens", "encode", bench.text, "--tokenizer", "bytes", "--output", "text.bin"],
                  ("text.bin",))
    yield Written("stowage place", [bench.stowage, "place", bench.buffers, "--time", "0.1", "--output", "placed.csv"], check=check_places)
    yield Written("stowage run", [bench.stowage, "run", "--record", "record.csv", "--report", "report.txt", "--", bench.ender, "8000"],
                  check=lambda folder: check_record(folder, 8000), environment={**bench.fakes, "TMPDIR": "."})


def kill_once(program, folder, seconds, numbers):
    """Whether it was still running. Half of the moments are in the last part of its run, where it writes most."""
    process = subprocess.Popen(program.words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True, env={**os.environ, **program.environment})
    time.sleep(seconds * numbers.choice([numbers.uniform(0, 1), numbers.uniform(0.6, 1)]))
    signal_of_children = numbers.choice([0, signal.SIGKILL])  # 0: they go on to their end
    process.kill()
    code = process.wait()
    try:
        for _ in range(500):
            os.killpg(process.pid, signal_of_children)
            time.sleep(0.01)
    except ProcessLookupError:
        pass
    return code == -signal.SIGKILL


def unfinished(folder):
    names = [path.name for path in folder.rglob("*")]
    return [name for name in names if name.endswith(".part") or name.startswith((".writing-", ".removing-"))]


def run_again(program, folder):
    """Runs the command to its end. A trainer may refuse what a run before has written: then it resumes, or has a new --export."""
    words = list(program.words)
    for attempt in range(3):
        ran = run(words, folder, program.environment)
        if ran.code == 2 and "--export export: there are files" in ran.err:
            shutil.rmtree(folder / "export")
        elif ran.code == 2 and "--checkpoint saves" in ran.err and "--resume" not in words:
            words.append("--resume")
        else:
            break
    return ran, attempt > 0


def kill(bench, program, undisturbed, number):
    seconds, kept = undisturbed
    numbers, folder = bench.numbers("kills", program.name, number), bench.folder()
    while not kill_once(program, folder, seconds, numbers):
        shutil.rmtree(folder)
        folder.mkdir()
    left = unfinished(folder)
    ran, refused = run_again(program, folder)
    wrong = [f"then {shown(ran)}"]
    if ran.code == 0:
        wrong = program.check(folder) + [f"{name} stays" for name in unfinished(folder)]
        wrong += [f"{name} has other bytes" for name in kept if (folder / name).read_bytes() != kept[name]]
    note = f"{program.name}{', left unfinished files' if left else ''}{', then refused and resumed' if refused else ''}"
    return [f"{program.name} in {folder.name}, killed with {left}: {each}" for each in wrong], note


def run_undisturbed(bench, program):
    folder, begin = bench.folder(), time.monotonic()
    ran = run(program.words, folder, program.environment)
    seconds = time.monotonic() - begin
    if ran.code != 0 or program.check(folder):
        sys.exit(f"an undisturbed {program.name} fails: {shown(ran)}")
    return seconds, {name: (folder / name).read_bytes() for name in program.same}


def kills(bench):
    programs = [(program, run_undisturbed(bench, program)) for program in written_programs(bench)]
    return [lambda program=program, number=number: kill(bench, *program, number) for program in programs for number in range(50)]


# Parts limits and group


def limited_programs(bench):
    return {"train_gpt": bench.train(bench.gpt, "--steps", "3"), "train_gpt --machine": bench.train(bench.gpt, "--steps", "3", *MACHINE),
            "train_gpt --plan-only": bench.train(bench.gpt, "--plan-only"), "train_bert --plan-only": bench.train(bench.bert, "--plan-only"),
            "stowage plan": [bench.stowage, "plan", "--gpt", "gpt2", *MACHINE],
            "stowage calibrate": [bench.stowage, *"calibrate --quick --device simulated --output here.json".split()]}


def limit(bench, name, words, flag, size):
    ran = run(["sh", "-c", f'ulimit -{flag} {size * 1024}; exec "$@"', "sh", *words], bench.folder())
    if "error while loading shared libraries" in ran.err:
        return [], f"{name}, -{flag}: the loader finds no room"
    right = ran.code == 0 or (ran.code == 2 and ran.err + ran.out)
    return [] if right else [f"{name}, ulimit -{flag} {size} MiB: {shown(ran)}"], f"{name}, -{flag}: code {ran.code}"


def limits(bench):
    sizes = [("d", size) for size in range(64, 1025, 32)] + [("v", size) for size in (*range(64, 320, 4), *range(320, 1025, 32))]
    return [lambda each=each: limit(bench, *each[0], *each[1]) for each in itertools.product(limited_programs(bench).items(), sizes)]


class MemoryGroup:
    """A control group below this process's own, for one run."""

    def __init__(self, size):
        groups = [line.strip().split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        first = next((path for _, kinds, path in groups if "memory" in kinds.split(",")), None)
        unified = next((path for _, kinds, path in groups if not kinds), "/")
        self.place = Path(f"/sys/fs/cgroup/memory{first}" if first else f"/sys/fs/cgroup{unified}") / f"counts-{os.getpid()}-{time.monotonic_ns()}"
        self.peak, limit_file = ("memory.max_usage_in_bytes", "memory.limit_in_bytes") if first else ("memory.peak", "memory.max")
        self.place.mkdir()
        try:
            (self.place / limit_file).write_text(str(size))
        except OSError:
            self.place.rmdir()
            raise

    def run(self, words, folder):
        """How it ended, and the most memory that it had."""
        try:
            ran = run(["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', str(self.place), *words], folder)
            return ran, int((self.place / self.peak).read_text())
        finally:
            self.place.rmdir()


def run_in_group(bench, name, words, size):
    ran, peak = MemoryGroup(size * MEBIBYTE).run(words, bench.folder())
    right = ran.code == 0 or (ran.code == 2 and ran.err + ran.out)
    return [] if right else [f"{name}, {size} MiB: {shown(ran)}"], f"{name}: {size:4d} MiB, peak {peak / MEBIBYTE:5.1f}, code {ran.code}"


def group(bench):
    try:
        MemoryGroup(64 * MEBIBYTE).run(["true"], bench.root)
    except OSError as error:
        print(f"group: no memory control group can be made here ({error.strerror})")
        return []
    each_of = itertools.product(limited_programs(bench).items(), range(32, 1025, 32))
    return [lambda each=each: run_in_group(bench, *each[0], each[1]) for each in each_of]


# Part names

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
MODEL_FILES = [b"config.json", b"tokenizer.json", b"vocab.txt", b"vocab.json", b"merges.txt", b"model.safetensors", b"model.safetensors.index.json"]


def draw_rubbish(numbers, name):
    """Contents that no reader takes, some of which it may want to quote."""
    text = json.dumps(name.decode(errors="replace"))
    return numbers.choice([name, numbers.randbytes(200), b"", f"{{{text}: 1}}".encode(), f'{{"weight_map": {{{text}: {text}}}}}'.encode(),
                           b"id,lower,upper,size," + name + b"\n", b"id,lower,upper,size\n" + name + b",1,2,3\n", b"# stowage record 1\n" + name,
                           b'{"stowage_history": 1}\n' + f'{{"op": {text}}}'.encode(), struct.pack("<Q", len(text) + 5) + f"{{{text}: 1}}".encode()])


def words_of(bench, line, target):
    """The command of a line of READERS or WRITERS, with `target` for %."""
    known = {"TEXT": [bench.text], "BUFFERS": [bench.buffers], "MACHINE": MACHINE, "STOWAGE": [bench.stowage],
             "SMALL": [*SMALL, *MACHINE, "--policy", "none", "--steps", "1"]}
    for name, program in ("GPT", bench.gpt), ("BERT", bench.bert):
        known[name] = [program, *([] if "--data" in line else bench.data[program])]
    return [os.fsencode(word).replace(b"%", target) for word in itertools.chain(*(known.get(word, [word]) for word in line.split()))]


def prepare(numbers, name, path, kind):
    """Puts rubbish where a reader looks: a file or a folder of files; or a program."""
    if kind == "program":
        os.symlink("/bin/true", path)
    if kind == "folder":
        os.mkdir(path)
    for file in {"file": [b""], "folder": numbers.sample([*MODEL_FILES, name], 4)}.get(kind, []):
        Path(os.fsdecode(os.path.join(path, file) if file else path)).write_bytes(draw_rubbish(numbers, name))


def try_name(bench, number):
    numbers, folder = bench.numbers("names", number), bench.folder()
    name = b"".join(numbers.choices(PIECES, k=numbers.randint(1, 12)))
    name = name if name.strip(b".") else b"a" + name
    kind = numbers.choice(["missing", "file", "folder", "output", "output", "no folder"])
    line = numbers.choice(WRITERS if kind in ("output", "no folder") else READERS)
    kind = "program" if kind == "file" and " run " in line else kind
    path = os.path.join(os.fsencode(folder), name)
    prepare(numbers, name, path, kind)
    target = name if numbers.random() < 0.3 and name[:1] != b"-" else path
    ran = run(words_of(bench, line, os.path.join(target, name) if kind == "no folder" else target), folder, bench.fakes if " run " in line else None)
    wrong = [f"prints {set(found)} in {text[-300:]!r}" for text in ran[1:] if (found := FORBIDDEN.findall(text))]
    if ran.code not in (0, 2) or (ran.code == 2 and not ran.err + ran.out) or (kind == "output" and (ran.code != 0 or not os.path.lexists(path))):
        wrong.append(f"ends with {shown(ran)}")
    return [f"{line} with {name!r} as {kind}: {each}" for each in wrong], f"{kind}: code {ran.code}"


def names(bench):
    return [lambda number=number: try_name(bench, number) for number in range(500)]


# Part calls

PROGRAM = r"""
#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern char** environ;
int cuMemAlloc_v2(unsigned long long* address, size_t bytes);
static void allocate(int times) {
  for (unsigned long long address; times > 0; --times)
    if (cuMemAlloc_v2(&address, 16) == 0) write(1, "device 16\n", 10);
}
static void* fork_here(void* unused) {
  if (fork() == 0) { allocate(3); raise(SIGKILL); }
  wait(NULL);
  return unused;
}
static int overflow(volatile char* last) { volatile char more[4096]; more[0] = *last; return overflow(more) + more[0]; }
int main(int count, char** words) {
  for (int i = 1; i < count; ++i) {
    const char* word = words[i];
    pthread_t thread;
    pid_t child = 0;
    words[i] = words[0];  /* of the program that goes on with the words behind */
    if (isdigit(*word)) allocate(atoi(word));
    if (!strcmp(word, "close_range")) close_range(3, ~0u, 0);
    if (!strcmp(word, "dup2")) for (int file = 3; file < 64; ++file) dup2(1, file);
    if (!strcmp(word, "fexecve")) fexecve(open("/proc/self/exe", O_RDONLY), words + i, environ);
    if (!strcmp(word, "vfork") && (child = vfork()) == 0) { execv(words[0], words + i); _exit(1); }
    if (!strcmp(word, "spawn")) posix_spawn(&child, words[0], NULL, NULL, words + i, environ);
    if (child != 0) { waitpid(child, NULL, 0); return 0; }
    if (!strcmp(word, "thread_forks")) { pthread_create(&thread, NULL, fork_here, NULL); pthread_join(thread, NULL); }
    if (!strcmp(word, "orphan") && fork() == 0) { setsid(); if (fork() != 0) _exit(0); }
    if (!strcmp(word, "overflow")) overflow("");
    if (!strcmp(word, "kill")) raise(SIGKILL);
    if (!strcmp(word, "_exit")) _exit(3);
  }
  return 0;
}
"""
WAYS = ["close_range", "dup2", "fexecve", "vfork", "spawn", "thread_forks", "orphan"]  # of PROGRAM; ENDINGS and MIDDLES: of the tests' program
ENDINGS = ["", "segv", "kill", "term", "abort", "trap", "_exit", "exit_group", "quick_exit", "exit_at_segv segv"]
MIDDLES = ["", "exec", "close_all", "threads", "fork 4 {} parent", "fork 7 exec 2 {} parent", "spawn 30 {} parent"]


def draw_compiled(numbers):
    words = [word for way in numbers.sample(WAYS, numbers.randint(1, 4)) for word in (str(numbers.choice([1, 20, 300])), way)]
    return [*words, str(numbers.randint(1, 9)), numbers.choice(["", "kill", "overflow", "_exit"])]


def draw_ender(numbers):
    words = [f"{numbers.choice([1, 3, 60, 400])} {numbers.choice(MIDDLES).format(numbers.choice(ENDINGS))}" for _ in range(numbers.randint(1, 4))]
    return " ".join([*words, numbers.choice(["", "5"]), numbers.choice([*ENDINGS, "exec_bare"])]).split()


def count_once(bench, words, folder, code):
    """What is wrong with the count of a program that ends with `code` when it runs alone, and a note."""
    ran = run([bench.stowage, "run", "--record", "record.csv", "--report", "report.txt", "--", *words], folder, {**bench.fakes, "TMPDIR": "."})
    report = (folder / "report.txt").read_text()
    made, counted = ran.out.count("device 16\n"), int(re.search(r"calls +([\d,]+) caught", report)[1].replace(",", ""))
    recorded = (folder / "record.csv").read_text().count(",alloc,device,")
    may_lack = "some calls may be missing" in report
    wrong = [] if counted == made == recorded or (may_lack and counted <= made) else [f"made {made}, counted {counted}, recorded {recorded}"]
    if ran.code != code:
        wrong.append(f"ends with {ran.code}, alone with {code}")
    return wrong, ("exact" if counted == made else "too few") + (", said to lack some" if may_lack else "")


def count_calls(bench, compiled, number):
    numbers, folder = bench.numbers("calls", number), bench.folder()
    words = [compiled, *draw_compiled(numbers)] if number % 2 else [bench.ender, *draw_ender(numbers)]
    alone = run(words, folder, bench.fakes)
    rounds = 20 if "orphan" in words or "spawn" in words else 5  # whose processes may end behind the report
    wrong, notes = zip(*(count_once(bench, words, folder, alone.code) for _ in range(rounds)))
    return [f"{Path(words[0]).name} {' '.join(words[1:])}: {each}" for each in itertools.chain(*wrong)], " | ".join(sorted(set(notes)))


def calls(bench):
    compiled = str(bench.root / "calls_program")
    subprocess.run(["cc", "-O0", "-w", "-pthread", "-o", compiled, "-x", "c", "-", "-x", "none", str(bench.build / "fake_cuda/libcuda.so.1"),
                    "-Wl,--allow-shlib-undefined"], input=PROGRAM, text=True, check=True)
    return [lambda number=number: count_calls(bench, compiled, number) for number in range(200)]


# Part folders

OUTER = ["", "module.", "_orig_mod.", "model.", "module._orig_mod."]
TABLES = ["table", "head with an alias", "both", "both, the head in bf16", "head in the index alone"]
CONFIG = {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
          "layer_norm_epsilon": 1e-5, "model_type": "gpt2", "n_ctx": 64, "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 64}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 548105171\n"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def draw_weights(numbers, vocabulary):
    """Shapes and bytes in f32 by name; bf16 holds each value exactly."""
    shapes = {"wte.weight": [vocabulary, 16], "wpe.weight": [64, 16], "ln_f.weight": [16], "ln_f.bias": [16]}
    blocks = {"ln_1": [16], "attn.c_attn": [16, 48], "attn.c_proj": [16, 16], "ln_2": [16], "mlp.c_fc": [16, 64], "mlp.c_proj": [64, 16]}
    for layer, (name, shape) in itertools.product(range(2), blocks.items()):
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
        shard_of = {name: SHARDS[number > 8] for number, name in enumerate(tensors)}
        for shard in SHARDS:
            write_safetensors(folder / shard, {name: tensors[name] for name in tensors if shard_of[name] == shard}, {})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {**shard_of, head: SHARDS[0]}}))
    else:
        write_safetensors(folder / "model.safetensors", tensors, metadata)
    return list(tensors)


def train_from(bench, folder, model):
    """How it ended, and its losses as the log has them."""
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
    plain, right = train_from(bench, folder, "plain")
    other, found = train_from(bench, folder, "other")
    name = f"{outer}{inner}*, {table}{', NaN' if nan else ''}{', LFS' if lfs else ''}"
    if plain.code != 0 or len(right) != 2:
        return [f"the plain folder: {shown(plain)}"], "plain refused"
    if other.code == 0 and not lfs:
        return [] if found == right else [f"{name}: losses {found}, plain {right}"], "taken"
    told = "LFS" in other.err if lfs else any(tensor in other.err for tensor in stored)
    return [] if other.code == 2 and told else [f"{name}: {shown(other)}"], f"refused: {other.err.strip()}"


def folders(bench):
    words = bench.root / "words"
    run([bench.stowage, "tokens", "train", bench.text, "--vocabulary", "320", "--output", str(words)], bench.root)
    kinds = [*itertools.product(OUTER, TABLES, [False]), *itertools.product(OUTER, TABLES[:1], [True])]
    return [lambda each=each: try_folder(bench, words, each[0], *each[1]) for each in enumerate(kinds)]


PARTS = {part.__name__: part for part in (pairs, kills, limits, group, names, calls, folders)}


def attempt(trial):
    """What is wrong in a trial, and a note that is counted."""
    try:
        return trial()
    except (OSError, ValueError, TypeError) as error:  # an output that is not there, or not what it should be
        return [f"{type(error).__name__}: {error}"], "an output is missing"


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
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    bench = Bench(arguments.build, arguments.seed)
    right = [count(bench, part) for part in arguments.parts or PARTS]
    if not all(right):
        sys.exit(f"the trials' folders are in {bench.root}")
    shutil.rmtree(bench.root)


if __name__ == "__main__":
    main()
