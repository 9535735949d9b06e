"""Host memory for plans: what the kernel and control groups leave."""

import argparse
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "gpu_check"))
import host_memory  # noqa: E402


class HostMemory(unittest.TestCase):
    def test_the_tightest_group_counts(self):
        with tempfile.TemporaryDirectory() as root:
            inner = Path(root) / "outer" / "inner"
            inner.mkdir(parents=True)
            membership = Path(root) / "cgroup"
            membership.write_text("0::/outer/inner\n")
            self.assertIsNone(host_memory.cgroup_free(root, membership))
            for folder, most, used in ((inner, "max", 5), (inner.parent, 100, 70)):
                (folder / "memory.max").write_text(f"{most}\n")
                (folder / "memory.current").write_text(f"{used}\n")
            self.assertEqual(host_memory.cgroup_free(root, membership), 30)
            (inner.parent / "memory.stat").write_text("anon 50\ninactive_file 15\n")
            self.assertEqual(host_memory.cgroup_free(root, membership), 45)

    def test_plans_leave_room(self):
        found = host_memory.host_memory()
        self.assertGreater(found["budget_bytes"], 0)
        self.assertLess(found["budget_bytes"], found["available_bytes"])

    def test_a_given_budget_counts(self):
        self.assertEqual(host_memory.host_memory(host_memory.gib("96"))["budget_bytes"], 96 << 30)
        for text in ("0", "-1", "nan", "inf", "many"):
            with self.assertRaises((ValueError, argparse.ArgumentTypeError)):
                host_memory.gib(text)


if __name__ == "__main__":
    unittest.main()
