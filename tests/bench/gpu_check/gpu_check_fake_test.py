"""gpu_check from end to end over the fake CUDA runtime: all that a card would run, but for its speed."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import archive

sys.path.insert(0, str(archive.ROOT / "bench" / "gpu_check"))
import records  # noqa: E402


class GpuCheckOnFakes(unittest.TestCase):
    def test_no_check_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            tree, output = archive.unpack(folder), Path(folder) / "out"
            done = subprocess.run([sys.executable, "-B", tree / "checks" / "gpu_check.py", "--device", "cuda", "--small",
                                   "--output", output], capture_output=True, text=True, check=False)
            results = records.merged([output])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(results["stages"]["calibrate"]["machine"]["backend"], "cuda")
        self.assertEqual([t["name"] for t in results["stages"]["tests"] if t["passed"] == 0], [])
        for name in ("interposer", "pluggable", "zero3", "contest"):
            self.assertTrue(results["stages"][name]["skipped"])
        ran = {r["peer"]: r for r in results["stages"]["whole"]["result"]["results"]}
        self.assertEqual(list(ran), ["stowage", "pytorch", "pytorch-compiled"])  # the last two are not there
        self.assertEqual(len(ran["stowage"]["losses"]), 24)
        for name in ("gpt2", "bert"):
            step = results["stages"][name]["quarter"]["steps"][-1]
            self.assertGreater(step["device_overhead_bytes"], 0)
            self.assertGreater(step["device_used_bytes"], step["device_overhead_bytes"])


if __name__ == "__main__":
    unittest.main()
