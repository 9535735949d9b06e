"""What each peer needs before its process starts: files, a ballast, libraries; and the command that it then is."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Callable

import llm_c
import model_file
import outcome
import stowage_peer
import watch
from ballast import SLACK, Ballast
from cases import LLM_C, WHOLE, Case

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "gpu_check")]  # of an installed tree, of the repository
from host_memory import gib  # noqa: E402, F401 (also for contest.py)
from nvml import open_nvml  # noqa: E402, F401 (the same)
from programs import surroundings  # noqa: E402

SETTLE_TIMES, SETTLE_SECONDS = 20, 0.25
START_UP_SECONDS = 3  # that a peer stops before it would be asked to
PREPARE_SECONDS = 240
# Pieces of any size from one range of addresses: PyTorch then fits into memory where else fragments would not.
TORCH_ENVIRONMENT = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
# DeepSpeed's own code: its AdamW, and on the CPU what its process groups use.
COMPILE_DEEPSPEED = """
from deepspeed.accelerator import get_accelerator
for name in ("CPUAdamBuilder", "ShareMemCommBuilder"):
    builder = get_accelerator().create_op_builder(name)
    if builder is not None and (name == "CPUAdamBuilder" or get_accelerator()._name == "cpu"):
        builder.load()
"""


class PrepareError(Exception):
    """Why a process cannot even start."""


def package_of(peer):
    """What the peer needs beside torch; None: nothing."""
    return "deepspeed" if peer.startswith("zero") else "colossalai" if peer.startswith("gemini") else None


def compile_words(package, device):
    """Arguments of a Python that compiles the package's own code."""
    return ["-c", COMPILE_DEEPSPEED] if package == "deepspeed" else [str(HERE / "gemini.py"), device]


@dataclass
class Prepared:
    command: list
    environment: dict
    events: Callable  # of what watch.run returns
    free: int = None  # device bytes before it starts, where there is a card


@dataclass
class Peers:
    given: object  # the command line
    program: Path  # train_gpt
    device: str
    nvml: object
    scratch: str
    end: float  # by time.monotonic, of everything
    files: dict = field(default_factory=dict)  # folder of each case
    needs: dict = field(default_factory=dict)  # of each case
    ballast: Ballast = None
    ballast_bytes: int = 0
    unpacked: dict = None  # what the packages of the wheels need in their environment
    broken: dict = field(default_factory=dict)  # wheels that could not be unpacked: why
    compiled: set = field(default_factory=set)  # packages

    def close(self):
        """Drops the ballast; another is held when it is needed."""
        ballast, self.ballast, self.ballast_bytes = self.ballast, None, 0
        if ballast:
            ballast.__exit__(None, None, None)

    def prepare(self, job, limit, micro_batch=None):
        """`micro_batch`: the largest to try. PrepareError says why it cannot run."""
        if job.peer == LLM_C:
            prepared = self.of_llm_c(job.case)
        elif job.peer.startswith("stowage"):
            prepared = self.our_own(job)
        else:
            prepared = self.of_python(job, limit, micro_batch)
        prepared.free = self.hold_the_rest(job.case)
        return prepared

    def files_of(self, case: Case):
        if case.name not in self.files:
            folder = Path(self.scratch) / case.name
            try:
                model_file.write_files(folder, case)
            except OSError as error:
                raise PrepareError(f"the model's files cannot be written: {error}") from error
            self.files[case.name] = str(folder)
        return self.files[case.name]

    def hold_the_rest(self, case):
        """Free device bytes, which are the case's; None without a card. A case of the whole card drops the ballast."""
        if self.device != "cuda":
            return None
        if case.gib == WHOLE:
            self.close()
            return self.nvml.memory()["free"] if self.nvml else None
        if self.ballast_bytes != case.memory:
            self.close()
            self.ballast, self.ballast_bytes = Ballast(case.memory), case.memory
        held = self.settle()
        if "error" in held:
            self.close()
            raise PrepareError(f"no ballast holds the rest of the card: {held['error']}")
        if held["free"] < case.memory:
            raise PrepareError(f"only {held['free']} bytes of the card are free, the case has {case.memory}")
        if held["free"] > case.memory + SLACK:
            raise PrepareError(f"the ballast leaves {held['free']} bytes of the card free, the case has {case.memory}")
        return held["free"]

    def settle(self):
        """What the ballast holds once that changes no more, or its first error: the memory of the process before may
        come back late."""
        held = self.ballast.adjust()
        for _ in range(SETTLE_TIMES):
            if "error" in held:
                break
            time.sleep(SETTLE_SECONDS)
            before, held = held, self.ballast.adjust()
            if held.get("held") == before.get("held"):
                break
        return held

    def our_own(self, job):
        folder = Path(self.scratch) / f"{job.case.name}-{job.peer}-{job.round}"
        folder.mkdir(exist_ok=True)
        environment = surroundings([lib for lib in [self.program.parent.parent / "lib"] if lib.is_dir()])
        files = self.files_of(job.case)
        settings = {"threads": self.given.threads, "device": "simulated", "device_memory": "unlimited"}
        if job.case.gib == WHOLE:
            settings = {
                "device": "cuda",
                "device_memory": "unlimited",
                "policy": "none",
                "machine": self.given.machine,
            }
        elif job.case.gib:
            settings = {
                "device": "cuda",
                "device_memory": job.case.memory - stowage_peer.MARGIN,
                "machine": self.given.machine,
                "host_memory": self.given.host_memory
                or int((watch.available() or 0) * stowage_peer.SHARE_OF_HOST),
            }
        elif job.peer == "stowage-fifth":
            settings["device_memory"] = self.need(job.case, files, environment) // 5
        command = stowage_peer.command(self.program, job.case, files, folder, steps=self.given.steps, **settings)
        return Prepared(command, environment, lambda done: self.our_events(job, folder, done))

    def need(self, case, files, environment):
        if case.name not in self.needs:
            try:
                self.needs[case.name] = stowage_peer.need_bytes(self.program, case, files, environment)
            except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                raise PrepareError(str(error)) from error
        return self.needs[case.name]

    def our_events(self, job, folder, done):
        found = stowage_peer.events(job.case, folder)
        if job.case.gib and self.device != "cuda" and not found and "--device" in done["errors"]:
            return [
                {
                    "event": outcome.NO_CARD,
                    "reached": "the choice of a device",
                    "message": outcome.last_line(done["errors"]),
                }
            ]
        return found

    def of_llm_c(self, case):
        command = llm_c.command(self.given.llm_c, case, self.files_of(case), self.given.steps)
        return Prepared(command, surroundings(), lambda done: llm_c.events(case, done, self.given.steps))

    def of_python(self, job, limit, micro_batch):
        environment = dict(TORCH_ENVIRONMENT)
        if package := package_of(job.peer):
            environment.update(self.prepare_package(package, job.case))
        until = time.time() + limit - watch.GRACE_SECONDS - START_UP_SECONDS
        command = [
            self.given.python,
            str(HERE / "torch_peer.py"),
            "--peer",
            job.peer,
            "--case",
            json.dumps(asdict(job.case)),
            "--files",
            self.files_of(job.case),
            "--device",
            "cuda" if job.case.gib else "cpu",
            "--steps",
            str(self.given.steps),
            "--until",
            str(until),
        ]
        if not job.case.gib:
            command += ["--threads", str(self.given.threads)]
        if self.given.compile:
            command.append("--compile")
        if micro_batch:
            command += ["--micro-batch", str(micro_batch)]
        return Prepared(command, environment, lambda done: self.python_events(job, done))

    def python_events(self, job, done):
        """A package is not absent if its wheel, or one of those that it needs, is broken: then the peer has failed."""
        found = outcome.events_in(done["output"])
        if self.broken and package_of(job.peer):
            broken = "; ".join(f"{wheel}: {why}" for wheel, why in self.broken.items())
            for event in outcome.of_kind(found, outcome.ABSENT):
                event.update(event=outcome.FAILED, message=f"{event.get('message')}; broken wheels: {broken}")
        return found

    def prepare_package(self, package, case):
        """Unpacks the wheels, and compiles where the package can run what it would then compile, which takes longer
        than a process may; once. What goes wrong shows when it runs."""
        if self.unpacked is None:
            self.unpacked = self.unpack_wheels()
        if package not in self.compiled and (case.gib == 0 or self.device == "cuda"):
            self.compiled.add(package)
            command = [self.given.python, *compile_words(package, self.device)]
            watch.run(command, self.left_to_prepare(), self.unpacked)
        return self.unpacked

    def unpack_wheels(self):
        environment = {"TORCH_EXTENSIONS_DIR": f"{self.scratch}/extensions", "DS_SKIP_CUDA_CHECK": "1"}
        if self.device == "cpu":
            environment["DS_ACCELERATOR"] = "cpu"
        wheels = sorted(Path(self.given.wheels or HERE / "wheels").glob("*.whl"))
        if wheels:
            site = f"{self.scratch}/site"
            if self.install(site, wheels)["code"] != 0:  # all of them: then each that can be
                done = {wheel.name: self.install(site, [wheel]) for wheel in wheels}
                self.broken = {name: outcome.last_line(d["errors"]) for name, d in done.items() if d["code"] != 0}
            environment["PYTHONPATH"] = ":".join([site, *filter(None, [os.environ.get("PYTHONPATH")])])
            environment["PATH"] = f"{site}/bin:{os.environ.get('PATH', '')}"  # ninja
        return environment

    def install(self, site, wheels):
        words = [self.given.python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", site, *wheels]
        return watch.run(words, self.left_to_prepare())

    def left(self):
        return self.end - time.monotonic()

    def left_to_prepare(self):
        return max(1.0, min(PREPARE_SECONDS, self.left()))
