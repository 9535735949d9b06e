"""gpu_check from end to end on the simulated device, from a tree that was made, then moved."""

import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = os.environ["STOWAGE_BUILD"]
FROM_THE_MACHINE = re.compile(r"^(linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|resolv|util)[.-]|lib(cuda|cublas|cudnn|nv))")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=280,
                          **options)


class GpuCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        made = Path(cls.folder.name) / "made"
        done = run(ROOT / "bench" / "gpu_check" / "make_tree", BUILD, made)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.tree = made.rename(Path(cls.folder.name) / "moved")
        cls.output = Path(cls.folder.name) / "out"
        cls.done = run(sys.executable, "-B", cls.tree / "checks" / "gpu_check.py", "--device", "simulated", "--small",
                       "--output", cls.output)
        cls.results = json.loads((cls.output / "gpu_check.json").read_text(encoding="utf-8"))

    def judged_again(self, results):
        path = Path(self.folder.name) / "doctored.json"
        path.write_text(json.dumps(results), encoding="utf-8")
        return run(sys.executable, "-B", self.tree / "checks" / "gpu_check.py", "--judge", path)

    def test_no_check_fails(self):
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)
        self.assertNotIn("fail", {v["status"] for v in self.results["verdicts"]})
        self.assertIn("PASS  losses of 20 steps bit-identical", self.done.stdout)
        self.assertIn("SKIP  un-offloaded GPT-2 124M at 40%", self.done.stdout)

    def test_keeps_the_raw_numbers_and_every_word(self):
        self.assertEqual(set(self.results["stages"]), {"calibrate", "tests", "bits", "gpt2", "bert", "large", "trainer"})
        self.assertIn("gpt2 quarter", self.results["summary"]["runs"])
        log = (self.output / "gpu_check.log").read_text(encoding="utf-8")
        self.assertIn('"kind":"step"', log)
        self.assertIn("train_shape --device simulated", log)
        machine = json.loads((self.output / "machine.json").read_text(encoding="utf-8"))
        self.assertEqual(machine, self.results["stages"]["calibrate"]["machine"])
        self.assertTrue(self.results["command"] and self.results["commit"] and self.results["started"])

    def test_the_tree_brings_its_libraries(self):
        for program in [*(self.tree / "bin").iterdir(), self.tree / "checks" / "train_shape"]:
            listed = run("ldd", program).stdout
            self.assertIn("libfmt", listed)
            for line in listed.splitlines():
                name, path = line.split()[0], line.partition("=> ")[2].partition(" (")[0]
                if FROM_THE_MACHINE.match(name.rpartition("/")[2]):
                    continue
                inside = Path(path).resolve().is_relative_to(self.tree.resolve())
                self.assertTrue(inside, f"{program.name} takes {name} from {path}")

    def test_a_doctored_result_fails_loudly(self):
        def one_bit(stages):
            stages["bits"][0]["runs"]["unlimited"]["steps"][7]["loss_bits"] = "0" * 16

        def a_byte_too_much(stages):
            run = stages["gpt2"]["quarter"]
            run["steps"][-1]["device_used_bytes"] = run["setup"]["budget_bytes"] + 1

        def it_fitted(stages):
            stages["large"]["without_offload"]["code"] = 0

        def a_failed_test(stages):
            stages["tests"].append({"name": "x", "labels": ["gpu"], "code": 1, "passed": 3, "failed": 1, "skipped": 0})

        def no_bits(stages):
            del stages["bits"]

        for doctor, words in [(one_bit, "bit-identical"), (a_byte_too_much, "driver's account"),
                              (it_fitted, "does not fit without offload"), (a_failed_test, "conformance"),
                              (no_bits, "bit-identical")]:
            with self.subTest(doctor.__name__):
                results = copy.deepcopy(self.results)
                doctor(results["stages"])
                done = self.judged_again(results)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertRegex(done.stderr, f"FAILED: .*{words}")
        self.assertEqual(self.judged_again(self.results).returncode, 0)

    def test_a_broken_program_fails_loudly(self):
        output = Path(self.folder.name) / "broken"
        done = run(sys.executable, "-B", self.tree / "checks" / "gpu_check.py", "--device", "simulated", "--small",
                   "--output", output, "--train-shape", "/bin/false")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED: losses of 20 steps bit-identical", done.stderr)

    def test_bad_input_is_told(self):
        program = [sys.executable, "-B", self.tree / "checks" / "gpu_check.py"]
        self.assertEqual(run(*program).returncode, 2)
        (Path(self.folder.name) / "none.json").write_text("[]", encoding="utf-8")
        done = run(*program, "--judge", Path(self.folder.name) / "none.json")
        self.assertEqual(done.returncode, 2)
        self.assertIn("is no result of gpu_check", done.stderr)


if __name__ == "__main__":
    unittest.main()
