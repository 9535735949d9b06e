"""The stages that time single operations: with stand-ins for op_times and for PyTorch's programs."""

import unittest
from unittest import mock

from installed import context_of, put  # makes the next ones importable

import judge_programs
import op_stages
import table

OP_TIMES = """#!/bin/sh
case $1 in
  slices) echo '{"model": "a", "tiles": 4, "workspace_bytes": 1048576, "seconds": 0.002, "flops": 4e9, "same_bits": true}' ;;
  products) echo '{"model": "a", "name": "up", "flops": 4e9, "seconds": [0.002, 0.001]}' ;;
  allocator) echo '{"what": "hit", "bytes": 8, "by": "stowage", "round": 0, "request_seconds": 2e-6, "release_seconds": 1e-6}' ;;
esac
"""
ATTENTION = """print('{"model": "a", "by": "PyTorch", "method": "flash", "refusal": "no such shape"}')\n"""
ALLOCATOR = """import json, os, sys
for turn, _ in enumerate(sys.stdin):
    print(json.dumps({"what": "hit", "bytes": 8, "by": sys.argv[1], "round": turn, "at": __import__("time").monotonic(),
                      "request_seconds": 4e-6, "release_seconds": 1e-6}))
    print("done", flush=True)
sys.exit(os.environ.get("PYTORCH_CUDA_ALLOC_CONF") == "expandable_segments:True" and FAILS)
"""


class Stages(unittest.TestCase):
    def setUp(self):
        self.context = context_of(self, {"checks/op_times": OP_TIMES, "checks/pytorch/attention_times.py": ATTENTION,
                                         "checks/pytorch/allocator_times.py": ALLOCATOR.replace("FAILS", "0")})

    def put(self, name, text):
        put(self.context.programs.checks, name, text)

    def found(self):
        with mock.patch.object(op_stages, "no_torch", return_value=""):
            stages = {name: getattr(op_stages, name)(self.context) for name in ("slices", "allocator", "products")}
        return {"asked": list(stages), "stages": stages}

    def test_all_of_them(self):
        found = self.found()
        self.assertEqual(judge_programs.timed(found), ("pass", f"{2 + 1 + 4 * 3 + 1} times"))
        turns = sorted((line for line in found["stages"]["allocator"]["lines"] if "at" in line), key=lambda line: line["at"])
        self.assertEqual([line["by"] for line in turns], ["native", "expandable", "cudaMallocAsync", "stowage"] * 3)
        text = table.table({"stages": {**found["stages"]}})
        for expected in ("a: Stowage, 4 tiles, 1 MiB", "no such shape", "a: up", "50.0%", "hit, 8 bytes: native"):
            self.assertIn(expected, text)

    def test_one_that_fails_is_named_and_the_others_count(self):
        self.put("pytorch/allocator_times.py", ALLOCATOR.replace("FAILS", "5"))
        status, detail = judge_programs.timed(self.found())
        self.assertEqual(status, "fail")
        self.assertIn("expandable ended with 5", detail)
        self.assertNotIn("native ended", detail)

    def test_other_bits_fail(self):
        self.put("op_times", OP_TIMES.replace("true", "false"))
        self.assertRegex(judge_programs.timed(self.found())[1], "other bits in another workspace: a")

    def test_a_program_that_prints_nothing_fails(self):
        self.put("op_times", "#!/bin/sh\n")
        self.assertRegex(judge_programs.timed(self.found())[1], "nothing was printed of products")

    def test_without_a_card_nothing_runs(self):
        self.context.device = "simulated"
        self.assertEqual(op_stages.allocator(self.context), {"skipped": "there is no card"})


if __name__ == "__main__":
    unittest.main()
