"""The kernels between the products read and write 16 bytes a thread: asked of the PTX that nvcc makes of them.

A kernel must have 16-byte accesses, and narrower ones only for what is unaligned or behind the last pack: no more than
eight for each store of 16 bytes, and twice as many for each load, which the compiler repeats, besides a few of scalars."""

import os
import re
import subprocess
import tempfile
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FILES = ["adamw", "column_sum", "elementwise", "embedding", "first_token", "layer_norm", "layer_norm_backward",
         "optimizer", "rotary", "swiglu"]
# Kernels whose operands are sums of other kernels, tokens, or single numbers.
NARROW = ["clip_kernel", "column_total_kernel", "norm_part_kernel", "piece_totals_kernel", "token_counts_kernel", "token_order_kernel",
          "tree_sum_kernelId"]
# Compiled a second time for rows that are not aligned (`aligned` = false), without packed accesses.
UNALIGNED = "Lb0E"
# These write sums alone, once for a block's rows.
READ_ONLY = ["square_sum_kernel", "square_sums_kernel", "PlainTerms", "NormTerms"]


def ptx(name):
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "kernel.ptx"
        subprocess.run([os.environ["NVCC"], "-std=c++20", "--expt-relaxed-constexpr", "-ptx", "-arch=compute_90", "-I", ROOT, "-I",
                        ROOT / "include", "-o", result, ROOT / "kernels" / "cuda" / f"{name}.cu"], check=True, capture_output=True)
        return result.read_text(encoding="utf-8")


def kernels(text):
    for name, body in re.findall(r"\.entry (\w+)\((.*?)\n}\n", text, re.DOTALL):
        yield name, Counter(re.findall(r"\b((?:ld|st)(?:\.volatile)?(?:\.global)?(?:\.nc)?(?:\.v\d)?\.[bfsu]\d+)\b", body))


def count(accesses, direction, vector):
    return sum(number for access, number in accesses.items() if access.startswith(direction) and (".v4." in access) == vector)


class PackedAccess(unittest.TestCase):
    def test_every_kernel_moves_sixteen_bytes_at_a_time(self):
        with ThreadPoolExecutor(2) as pool:
            found = [kernel for text in pool.map(ptx, FILES) for kernel in kernels(text)]
        self.assertGreater(len(found), 40)
        for name, accesses in found:
            if any(part in name for part in [*NARROW, UNALIGNED]):
                continue
            with self.subTest(kernel=name, accesses=dict(accesses)):
                packs = count(accesses, "ld", True)
                self.assertGreater(packs, 0)
                self.assertLessEqual(count(accesses, "ld", False), 16 * packs + 15)
                if not any(part in name for part in READ_ONLY):
                    packs = count(accesses, "st", True)
                    self.assertGreater(packs, 0)
                    self.assertLessEqual(count(accesses, "st", False), 8 * packs + 5)


if __name__ == "__main__":
    unittest.main()
