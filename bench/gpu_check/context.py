"""Context: what every stage is given, and the ways to run train_shape and stowage that stages share."""

import json
from dataclasses import dataclass
from pathlib import Path

from programs import Programs
from runner import Runner


@dataclass
class Context:
    programs: Programs
    runner: Runner
    device: str  # cuda, cuda:N or simulated
    sizes: dict  # shapes.CARD or shapes.SMALL
    small: bool
    folder: Path  # for what outlives the run
    host_bytes: int  # budget of every plan
    llm_c: str | None = None  # llm.c's program, which the contest runs
    tried_calibration: bool = False  # for want of a machine file

    @property
    def card(self):
        return self.device != "simulated"

    @property
    def machine(self):
        """The file that `calibrate` writes."""
        return self.folder / "machine.json"

    def calibrate(self, quick):
        self.machine.unlink(missing_ok=True)  # of another run, it would be taken for this one's
        command = [self.programs.stowage, "calibrate", "--device", self.device, "--output", self.machine]
        done = self.runner.run([*command, *(["--quick"] if quick else [])], 90)
        result = {"code": done["code"], "seconds": done["seconds"], "errors": done["errors"].strip()[-2000:]}
        if done["code"] == 0:
            self.runner.say(done["output"].rstrip())
            result["machine"] = json.loads(self.machine.read_text(encoding="utf-8"))
        return result

    def memory_arguments(self):
        """For a program that plans: the machine file, made quickly where no stage has made it, and the host's budget."""
        if not self.machine.is_file() and not self.tried_calibration:
            self.tried_calibration = True
            self.calibrate(quick=True)
        machine = ["--machine", self.machine] if self.machine.is_file() else []  # without it, a program calibrates itself
        return [*machine, "--host-memory", self.host_bytes]

    def train(self, name, model, *arguments, most_seconds=120, environment=None):
        """One run of train_shape. `name`: for people."""
        command = [self.programs.train_shape, "--device", self.device, *self.memory_arguments()]
        for key, value in model.items():
            command += ["--" + key, value]
        run = training(self.runner.run([*command, *arguments], most_seconds, environment))
        if run["code"] not in (0, 3):
            self.runner.say(f"{name}: code {run['code']}: {run['errors']}")
        elif "end" in run:
            self.runner.say(f"{name}: {spent(run)}")
        return run

    def numbers(self, name, model, *arguments):
        """need_bytes, minimum_bytes and overhead_bytes of a step."""
        planned = self.train(name, model, "--plan-only", *arguments)
        return planned.get("setup") or planned.get("infeasible") or {}


def training(done):
    """The objects of train_shape's output by kind; steps as a list."""
    found = {"code": done["code"], "seconds": done["seconds"], "command": done["command"], "steps": []}
    for line in done["output"].splitlines():
        try:
            item = json.loads(line)
        except ValueError:
            continue
        if not isinstance(item, dict):
            continue
        if item.get("kind") == "step":
            found["steps"].append(item)
        elif item.get("kind"):
            found[item["kind"]] = item
    if done["code"] not in (0, 3):
        found["errors"] = done["errors"].strip()[-2000:]
    return found


def spent(run):
    """Where the seconds of a run went, in words."""
    before, after = run["setup"]["seconds"], run["end"]["seconds"]
    return (f"opened in {before['open']:.1f} s, planned in {before['plan']:.1f} s, "
            f"memory ({after['pin']:.1f} s of it to pin) and weights in {after['start']:.1f} s, "
            f"{len(run['steps'])} steps in {after['steps']:.1f} s")
