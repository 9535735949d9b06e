"""What gpu_check runs. Each stage returns plain data; what it means is judged in judge.py."""

import json
import math
import re
import shutil
import tempfile
from pathlib import Path

QUARTER = 0.25
BUDGETS = 4  # beside unlimited


def shape(model, layers, width, heads, vocabulary, sequence, batch, kind):
    return {"model": model, "layers": layers, "width": width, "heads": heads, "vocabulary": vocabulary,
            "sequence": sequence, "batch": batch, "type": kind}


# On a card: 65,536 tokens per step where the acceptance asks for 64k. Vocabularies are padded to a multiple of 64.
CARD = {
    "bits_steps": 20,
    "bits": [shape("gpt", 4, 256, 4, 2048, 256, 16, "bf16"), shape("gpt", 3, 192, 3, 1024, 128, 8, "f32"),
             shape("bert", 3, 256, 4, 2048, 128, 16, "bf16")],
    "trainer": ["--type", "bf16", "--layers", 6, "--width", 512, "--heads", 8, "--sequence", 256, "--batch", 32],
    "steps": 7,
    "gpt2": shape("gpt", 12, 768, 12, 50304, 1024, 64, "bf16"),
    "bert": shape("bert", 24, 1024, 16, 30528, 512, 128, "bf16"),
    "large_steps": 4,
    "large": shape("gpt", 36, 1280, 20, 50304, 1024, 8, "bf16"),
}
SMALL = {
    "bits_steps": 20,
    "bits": [shape("gpt", 2, 64, 2, 256, 64, 4, "f32"), shape("bert", 2, 64, 2, 256, 64, 4, "f32")],
    "trainer": ["--layers", 2, "--width", 64, "--heads", 2, "--sequence", 32, "--batch", 4],
    "steps": 3,
    "gpt2": shape("gpt", 2, 64, 2, 256, 64, 8, "f32"),
    "bert": shape("bert", 4, 64, 2, 256, 64, 8, "f32"),
    "large_steps": 3,
    "large": shape("gpt", 3, 128, 2, 256, 32, 2, "f32"),
    "overhead_beside": True,  # a card's context alone is larger than such models
    "most_bucket_bytes": 1 << 17,  # else one bucket would hold the whole model
}


def setup_of(done):
    """The objects of train_shape's output by kind; steps as a list."""
    found = {"code": done["code"], "seconds": done["seconds"], "command": done["command"], "steps": []}
    for line in done["output"].splitlines():
        try:
            item = json.loads(line)
        except ValueError:
            continue
        if item.get("kind") == "step":
            found["steps"].append(item)
        elif item.get("kind"):
            found[item["kind"]] = item
    if done["code"] not in (0, 3):
        found["errors"] = done["errors"].strip()[-2000:]
    return found


def printed_bytes(output):
    """{"need": …, "minimum": …} from what train_gpt prints of a plan, overhead included."""
    lines = re.findall(r"^ *(need|minimum) .*?\((\d+) bytes\)", output, re.MULTILINE)
    return {name: int(count) for name, count in lines}


class Stages:
    def __init__(self, programs, runner, device, sizes, machine):
        self.programs = programs
        self.runner = runner
        self.device = device
        self.sizes = sizes
        self.machine = machine  # path of the file that `calibrate` writes

    def train(self, model, *arguments, most_seconds=120):
        command = [self.programs.train_shape, "--device", self.device, "--machine", self.machine]
        for name, value in model.items():
            command += ["--" + name, value]
        return setup_of(self.runner.run([*command, *arguments], most_seconds))

    def numbers(self, model, *arguments):
        """need_bytes, minimum_bytes and overhead_bytes of a step."""
        planned = self.train(model, "--plan-only", *arguments)
        return planned.get("setup") or planned.get("infeasible") or {}

    def calibrate(self, quick):
        Path(self.machine).unlink(missing_ok=True)  # of another run, it would be taken for this one's
        command = [self.programs.stowage, "calibrate", "--device", self.device, "--output", self.machine]
        done = self.runner.run([*command, *(["--quick"] if quick else [])], 90)
        result = {"code": done["code"], "seconds": done["seconds"], "errors": done["errors"].strip()[-2000:]}
        if done["code"] == 0:
            self.runner.say(done["output"].rstrip())
            result["machine"] = json.loads(Path(self.machine).read_text(encoding="utf-8"))
        return result

    def run_test(self, test, prefix=(), most_seconds=240):
        """One GoogleTest program, and how many of its tests passed, failed and were skipped."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            done = self.runner.run([*prefix, test["path"], f"--gtest_output=json:{report}",
                                    *test.get("arguments", [])], most_seconds, test.get("environment"))
            counts = count_tests(json.loads(report.read_text(encoding="utf-8"))) if report.is_file() else {}
        return {"name": test["name"], "labels": test.get("labels", []), "code": done["code"],
                "seconds": done["seconds"], "passed": 0, "failed": 0, "skipped": 0, "failures": [], **counts,
                "tail": "" if done["code"] == 0 else (done["output"] + done["errors"])[-2000:]}

    def tests(self):
        return [self.run_test(test) for test in self.programs.test_programs()]

    def sanitizer(self):
        """memcheck on all tests, racecheck on the kernels', while time is left."""
        tool = shutil.which("compute-sanitizer", path=self.runner.environment.get("PATH"))
        beside = self.programs.tests.parent / "compute-sanitizer" / "compute-sanitizer"
        tool = tool or (str(beside) if beside.is_file() else None)
        if tool is None:
            return {"tool": None, "runs": []}
        runs = []
        for check in ("memcheck", "racecheck"):
            for test in self.programs.test_programs():
                if "gpu" not in test.get("labels", []):
                    continue
                if check == "racecheck" and "kernels" not in test["name"]:
                    continue
                left = self.runner.left() - 5
                if left < 5:
                    runs.append({"name": test["name"], "check": check, "code": None, "tail": "no time was left"})
                    continue
                # A test that expects a call to fail is no fault.
                prefix = [tool, "--tool", check, "--error-exitcode", "86", "--report-api-errors", "no"]
                if check == "racecheck":
                    prefix += ["--kernel-regex", "kns=stowage"]
                runs.append({**self.run_test(test, prefix, left), "check": check})
                if "Device not supported" in runs[-1]["tail"]:
                    return {"tool": tool, "refused": "Device not supported", "runs": runs}
        return {"tool": tool, "runs": runs}

    def bits(self):
        """Losses of the same steps without a limit and in four budgets from the minimum up."""
        results = []
        for model in self.sizes["bits"]:
            numbers = self.numbers(model)
            steps = ["--steps", self.sizes["bits_steps"]]
            runs = {"unlimited": self.train(model, *steps, "--policy", "none")}
            least = numbers.get("minimum_bytes", 0)
            most = numbers.get("need_bytes", 0) + numbers.get("overhead_bytes", 0)
            for i in range(BUDGETS):
                budget = least + (most - least) * i // BUDGETS
                runs[str(budget)] = self.train(model, *steps, "--device-memory", budget)
            results.append({"shape": model, "runs": runs})
        return results

    def quarter(self, name):
        """A step without offload, and one in a quarter of what it needs."""
        model = self.sizes[name]
        steps = ["--steps", self.sizes["steps"]]
        unlimited = self.train(model, *steps, "--policy", "none")
        setup = unlimited.get("setup", {})
        budget = int(setup.get("need_bytes", 0) * QUARTER)
        if self.sizes.get("overhead_beside"):
            budget += setup.get("overhead_bytes", 0)
        return {"shape": model, "unlimited": unlimited, "quarter": self.train(model, *steps, "--device-memory", budget)}

    def large(self):
        """A model that does not fit its budget without offload; buckets against single tensors."""
        model = self.sizes["large"]
        bucket = ["--bucket-size", min(self.efficient_bucket(), self.sizes.get("most_bucket_bytes", 1 << 40))]
        numbers = self.numbers(model, *bucket)
        overhead = numbers.get("overhead_bytes", 0)
        budget = overhead + int((numbers.get("minimum_bytes", 0) - overhead) * 1.25)
        given = ["--device-memory", budget]
        steps = ["--steps", self.sizes["large_steps"]]
        return {"shape": model, "budget_bytes": budget,
                "without_offload": self.train(model, *given, "--policy", "none", "--plan-only"),
                "bucketed": self.train(model, *steps, *given, *bucket, "--replay-copies"),
                "per_tensor": self.train(model, *steps, *given, "--bucket-size", 1)}

    def trainer(self):
        """train_gpt itself, on this program's own text: all on the device, and halfway down to the minimum."""
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "text"
            text.write_bytes(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py"))))
            command = [self.programs.train_gpt, "--data", text, "--device", self.device, "--machine", self.machine,
                       "--steps", 5, *self.sizes["trainer"]]
            planned = self.runner.run([*command, "--plan-only"])
            number = printed_bytes(planned["output"])
            budget = (number.get("need", 0) + number.get("minimum", 0)) // 2
            result = {"code": planned["code"], "budget_bytes": budget}
            for name, memory in (("unlimited", ["--policy", "none"]), ("smaller", ["--device-memory", budget])):
                log = Path(folder) / f"{name}.jsonl"
                done = self.runner.run([*command, *memory, "--log", log])
                lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
                result[name] = {"code": done["code"], "command": done["command"], "errors": done["errors"][-2000:],
                                "steps": [json.loads(line) for line in lines]}
        return result

    def efficient_bucket(self):
        """The smallest size that reaches 95% of the calibrated peak both ways, as the planner reckons."""
        path = Path(self.machine)
        if not path.is_file():
            return 1 << 20
        machine = json.loads(path.read_text(encoding="utf-8"))
        knees = [19 * machine[way]["latency_seconds"] * machine[way]["bytes_per_second"] for way in ("h2d", "d2h")]
        return max(1 << 16, math.ceil(max(knees)))


def count_tests(report):
    counts = {"passed": 0, "failed": 0, "skipped": 0, "failures": []}
    for suite in report.get("testsuites", []):
        for test in suite.get("testsuite", []):
            if test.get("failures"):
                counts["failed"] += 1
                counts["failures"].append(f"{suite['name']}.{test['name']}")
            elif test.get("result") == "SKIPPED":
                counts["skipped"] += 1
            elif test.get("result") == "COMPLETED":
                counts["passed"] += 1
    return counts
