"""What train_shape says of budgets: the machine's overhead is in each of them once."""

import json
import os
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [Path(os.environ["STOWAGE_BUILD"]) / "bench/gpu_check/train_shape", "--device", "simulated", "--layers", "2",
           "--width", "64", "--heads", "2", "--vocabulary", "256", "--sequence", "32", "--batch", "2", "--type", "f32",
           "--machine", ROOT / "machines/rtx4090.json", "--plan-only"]


def setup(*words):
    done = subprocess.run([*map(str, [*COMMAND, *words])], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


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


if __name__ == "__main__":
    unittest.main()
