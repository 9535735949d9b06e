"""What train_shape says of budgets: the machine's overhead is in each of them once. And of where a step's time went."""

import csv
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [Path(os.environ["STOWAGE_BUILD"]) / "bench/gpu_check/train_shape", "--device", "simulated", "--layers", "2",
           "--width", "64", "--heads", "2", "--vocabulary", "256", "--sequence", "32", "--batch", "2", "--type", "f32",
           "--machine", ROOT / "machines/rtx4090.json"]


def setup(*words):
    done = run("--plan-only", *words)
    return done.returncode, json.loads(done.stdout)


def run(*words):
    return subprocess.run([*map(str, [*COMMAND, *words])], capture_output=True, text=True, check=False)


class Budgets(unittest.TestCase):
    def test_need_and_minimum_have_the_overhead(self):
        _, whole = setup("--policy", "none")
        self.assertEqual(whole["overhead_bytes"], 600 << 20)
        self.assertEqual(whole["need_bytes"], whole["overhead_bytes"] + whole["plan"]["device_peak_bytes"])
        self.assertEqual(whole["minimum_bytes"], whole["need_bytes"])
        least = setup()[1]["minimum_bytes"]
        code, fits = setup("--device-memory", least)
        self.assertEqual((code, fits["overhead_bytes"] + fits["plan"]["device_peak_bytes"]), (0, least))
        code, refused = setup("--device-memory", least - 1)
        self.assertEqual((code, refused["smallest_budget_bytes"]), (3, least))


class Moments(unittest.TestCase):
    def test_8_bit_ones_take_less(self):
        codes, wholes = setup("--policy", "none", "--moments", "8bit")[1], setup("--policy", "none")[1]
        self.assertEqual((codes["shape"]["moments"], wholes["shape"]["moments"]), ("8bit", "f32"))
        parameters = codes["parameters"]
        self.assertGreater(wholes["need_bytes"] - codes["need_bytes"], 5 * parameters)  # of 8 bytes, two and the scales are left


class Host(unittest.TestCase):
    def end(self, *words):
        return json.loads(run("--steps", 1, *words).stdout.splitlines()[-1])

    def test_its_rate_is_measured_before_and_after_the_steps(self):
        rates = self.end("--host-elements", 1 << 16)["host_bytes_per_second"]
        self.assertEqual(len(rates), 2)
        self.assertTrue(all(1e6 < rate < 1e13 for rate in rates), rates)
        self.assertNotIn("host_bytes_per_second", self.end())


class Profiles(unittest.TestCase):
    def test_kernels_lanes_and_timeline_tell_of_the_same_step(self):
        least = setup()[1]["minimum_bytes"]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "timeline.csv"
            done = run("--device-memory", least, "--steps", 1, "--profile-steps", 2, "--timeline", path)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with open(path, encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
        found = {item["kind"]: item for item in map(json.loads, done.stdout.splitlines())}
        computed = [row for row in rows if row["lane"] == "compute"]
        self.assertEqual(sum(of["ops"] for of in found["kernels"]["kernels"].values()), len(computed))
        for lane, seconds in found["lanes"]["busy_seconds"].items():
            of_lane = [float(row["end"]) - float(row["begin"]) for row in rows if row["lane"] == lane]
            self.assertAlmostEqual(sum(of_lane) / 1e6, seconds, delta=1e-7 * len(of_lane))
        self.assertEqual(sum(row["kind"] == "gate" for row in rows), 1)
        self.assertTrue(all(float(row["planned_end"]) >= float(row["planned_begin"]) for row in rows))

    def test_a_timeline_that_cannot_be_is_refused_before_the_work(self):
        for words, why in ((["--profile-steps", 1, "--timeline", "/nowhere/x.csv"], "/nowhere/x.csv"),
                           (["--timeline", "x.csv"], "--profile-steps")):
            done = run("--steps", 1, *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(why, done.stderr)


if __name__ == "__main__":
    unittest.main()
