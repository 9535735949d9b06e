"""gpu_check from end to end over the fake CUDA runtime: all that a card would run, but for its speed."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


class GpuCheckOnFakes(unittest.TestCase):
    def test_no_check_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            tree, output = Path(folder) / "tree", Path(folder) / "out"
            subprocess.run([ROOT / "bench" / "gpu_check" / "make_tree", os.environ["STOWAGE_BUILD"], tree], check=True,
                           capture_output=True)
            done = subprocess.run([sys.executable, "-B", tree / "checks" / "gpu_check.py", "--device", "cuda", "--small",
                                   "--output", output], capture_output=True, text=True, check=False)
            results = json.loads((output / "gpu_check.json").read_text(encoding="utf-8"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(results["stages"]["calibrate"]["machine"]["backend"], "cuda")
        self.assertEqual([t["name"] for t in results["stages"]["tests"] if t["passed"] == 0], [])
        for name in ("gpt2", "bert"):
            step = results["stages"][name]["quarter"]["steps"][-1]
            self.assertGreater(step["device_overhead_bytes"], 0)
            self.assertGreater(step["device_used_bytes"], step["device_overhead_bytes"])


if __name__ == "__main__":
    unittest.main()
