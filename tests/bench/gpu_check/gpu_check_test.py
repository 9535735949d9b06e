"""gpu_check from end to end on the simulated device, from a tree that was made, then moved."""

import copy
import json
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import archive

sys.path.insert(0, str(archive.ROOT / "bench" / "gpu_check"))
import records  # noqa: E402


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=280,
                          **options)


class GpuCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.tree = archive.unpack(folder.name).rename(cls.folder / "moved")
        cls.program = [sys.executable, "-B", cls.tree / "checks" / "gpu_check.py"]
        cls.simulated = [*cls.program, "--device", "simulated", "--small"]
        cls.output = cls.folder / "out"
        cls.done = run(*cls.simulated, "--output", cls.output)
        cls.results = records.merged([cls.output])

    def judged_again(self, stages):
        """A record like that of the run, but with these stages."""
        folder = self.folder / "doctored"
        folder.mkdir(exist_ok=True)
        head, *others = records.items(self.output / records.NAME)
        lines = [head, *({"kind": "stage", "name": n, "seconds": 1, "result": r} for n, r in stages.items()), others[-1]]
        (folder / records.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return run(*self.program, "--judge", folder)

    def test_no_check_fails(self):
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)
        self.assertIn("PASS  losses of 20 steps bit-identical", self.done.stdout)
        self.assertIn("SKIP  un-offloaded GPT-2 124M at 40%", self.done.stdout)

    def test_keeps_the_raw_numbers_and_every_word(self):
        self.assertEqual(list(self.results["stages"]), self.results["asked"])
        head, *_, end = records.items(self.output / records.NAME)
        self.assertIn("gpt2 quarter", end["summary"]["runs"])
        self.assertNotIn("fail", {v["status"] for v in end["verdicts"]})
        log = (self.output / "gpu_check.log").read_text(encoding="utf-8")
        self.assertIn('"kind":"step"', log)
        self.assertIn("train_shape --device simulated", log)
        self.assertRegex(log, r"gpt2: opened in .* s, planned in .* s, memory \(.* s of it to pin\) and weights in .* s, 3 steps in")
        for which in ("bucketed", "per_tensor", "bucketed_again", "per_tensor_again"):
            self.assertEqual(len(self.results["stages"]["large"][which]["end"]["host_bytes_per_second"]), 2, which)
        for stage, moments in (("6.7b", "f32"), ("6.7b-doubled", "f32"), ("6.7b-8bit", "8bit")):
            self.assertEqual(self.results["stages"][stage]["offloaded"]["setup"]["shape"]["moments"], moments)
        self.assertRegex(log, r"trainer smaller: .* for the device, .* to plan")
        machine = json.loads((self.output / "machine.json").read_text(encoding="utf-8"))
        self.assertEqual(machine, self.results["stages"]["calibrate"]["machine"])
        self.assertTrue(head["command"] and head["commit"] and head["started"])
        self.assertLessEqual(len([f for f in self.output.rglob("*") if f.is_file()]), 8)

    def test_every_plan_has_a_host_budget(self):
        budget = self.results["runs"][0]["host_memory"]["budget_bytes"]
        stages = self.results["stages"]
        for run_of in (stages["gpt2"]["quarter"], stages["smoke"]["step"], stages["large"]["bucketed"]):
            self.assertEqual(run_of["setup"]["host_budget_bytes"], budget)
        command = stages["trainer"]["smaller"]["command"]
        self.assertEqual(command[command.index("--host-memory") + 1], str(budget))

    def test_a_plan_keeps_to_its_host_budget(self):
        command = list(self.results["stages"]["gpt2"]["quarter"]["command"])
        command[command.index("--host-memory") + 1] = "1"
        done = run(*command, "--plan-only")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertTrue(json.loads(done.stdout)["host"])

    def test_a_run_that_is_cut_off_loses_only_what_had_not_run(self):
        folder = self.folder / "cut"
        slow = self.folder / "slow"  # never comes to an end of the 20 steps that the stage after gpt2 makes
        slow.write_text(f'#!/bin/sh\ncase "$*" in *"--steps 20"*) exec sleep 100;; esac\nexec {self.tree}/checks/train_shape "$@"\n')
        slow.chmod(0o755)
        process = subprocess.Popen([str(word) for word in [*self.simulated, "--only", "calibrate,gpt2,bits", "--output", folder,
                                                           "--train-shape", slow]], stdout=subprocess.DEVNULL)
        while process.poll() is None and not self.has_stage(folder, "gpt2"):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        done = run(*self.program, "--judge", folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn("PASS  calibration wrote the machine's file", done.stdout)
        self.assertIn("FAIL  losses of 20 steps bit-identical, unlimited and in four budgets: did not run: bits", done.stdout)
        done = run(*self.program, "--judge", folder, self.output)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 cut off", done.stdout)

    @staticmethod
    def has_stage(folder, name):
        record = folder / records.NAME
        return record.is_file() and any(i.get("name") == name for i in records.items(record))

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
                stages = copy.deepcopy(self.results["stages"])
                doctor(stages)
                done = self.judged_again(stages)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertRegex(done.stderr, f"FAILED: .*{words}")
        self.assertEqual(self.judged_again(self.results["stages"]).returncode, 0)

    def test_a_broken_program_fails_loudly(self):
        output = self.folder / "broken"
        done = run(*self.simulated, "--only", "bits", "--output", output, "--train-shape", "/bin/false")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED: losses of 20 steps bit-identical", done.stderr)
        self.assertTrue((output / "machine.json").is_file())  # by a quick calibration, for want of one

    def test_bad_input_is_told(self):
        self.assertEqual(run(*self.program).returncode, 2)
        done = run(*self.simulated, "--output", self.folder / "x", "--only", "brt")
        self.assertEqual((done.returncode, (self.folder / "x").exists()), (2, False))
        self.assertIn("'brt' is no stage", done.stderr)
        done = run(*self.program, "--judge", self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no results of gpu_check that belong together", done.stderr)
        done = run(*self.simulated, "--output", self.output, "--only", "bits", "--commit", "other")
        self.assertEqual(done.returncode, 2)
        self.assertIn("commit is 'other'", done.stderr)


if __name__ == "__main__":
    unittest.main()
