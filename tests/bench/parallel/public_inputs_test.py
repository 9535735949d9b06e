"""Public inputs of other planners, converted by bench/parallel and answered by the program, against published results."""

import csv
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ["STOWAGE_TEST_DATA"]) / "parallel"
sys.path.insert(0, str(ROOT / "bench" / "parallel"))

import galvatron  # noqa: E402
import pipedream  # noqa: E402
import piper  # noqa: E402


def ask(costs):
    """The program's answer as JSON; the exit code says whether there is a pipeline."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "costs.json"
        file.write_text(json.dumps(costs), encoding="utf-8")
        done = subprocess.run([os.environ["STOWAGE_PROGRAM"], "parallel", "--costs", str(file), "--json"], capture_output=True,
                              text=True, check=False)
    if done.returncode not in (0, 2) or not done.stdout:
        raise AssertionError(done.stderr)
    answer = json.loads(done.stdout)
    assert answer["feasible"] == (done.returncode == 0)
    return answer


def value(answer):
    """The least value of any pipeline, grid or not; None: there is none."""
    best = answer["best_of_all"] or (answer["grids"] or [None])[0]
    return best and best["value_seconds"]


@unittest.skipUnless(DATA.is_dir(), f"{DATA} is not there")
class PublicInputs(unittest.TestCase):
    def assert_equal(self, found, published, what):
        if published is None or found is None:
            self.assertEqual(found, published, what)
        else:
            self.assertTrue(math.isclose(found, published, rel_tol=1e-9), f"{what}: {found}, published {published}")

    def test_galvatron(self):
        instances = json.loads((DATA / "galvatron/layers.json").read_text(encoding="utf-8"))["instances"]
        self.assertEqual(len(instances), 4)
        for instance in instances:
            found = value(ask(galvatron.costs(instance)))
            self.assert_equal(found, instance["expected_step_seconds"], instance["name"])
            self.assert_equal(instance["batch"] / found, instance["expected_samples_per_second"], instance["name"])

    def test_pipedream(self):
        with open(DATA / "pipedream/results.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 14)
        for row in rows:
            costs = pipedream.costs(DATA / f"pipedream/{row['profile']}.graph.txt", int(row["devices"]))
            self.assert_equal(value(ask(costs)), float(row["largest_stage_seconds"]), f"{row['profile']} on {row['devices']}")

    def test_piper(self):
        data = json.loads((DATA / "piper/bert32a100.json").read_text(encoding="utf-8"))
        with open(DATA / "piper/results.csv", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if int(row["devices"]) <= 32 or (row["memory_gib"], row["devices"]) == ("2", "64")]
        self.assertEqual(len(rows), 7)
        for row in rows:
            both = [value(ask(piper.costs(data, int(row["memory_gib"]), int(row["devices"]), later))) for later in (False, True)]
            found = min((each for each in both if each is not None), default=None)
            published = None if row["largest_stage_seconds"] == "none" else float(row["largest_stage_seconds"])
            self.assert_equal(found, published, f"{row['memory_gib']} GiB, {row['devices']} devices")


if __name__ == "__main__":
    unittest.main()
