"""The stages around PyTorch programs: with stand-ins for PyTorch and for stowage, and the programs on the CPU where there is
PyTorch."""

import copy
import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

CHECKS = Path(__file__).resolve().parents[3] / "bench" / "gpu_check"
sys.path[:0] = [str(CHECKS), str(CHECKS.parent / "contest")]
import cases  # noqa: E402
import judge_programs  # noqa: E402
import shapes  # noqa: E402
import torch_stages  # noqa: E402
from installed import context_of  # noqa: E402

LOOP = """
import json, os
for step in range(4):
    print(json.dumps({"kind": "step", "step": step, "loss": 2.5, "loss_bits": "0x1.4p+1", "seconds": 0.1}))
setting = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
backend = "cudaMallocAsync" if "Async" in setting else "native"
import sys
if "--stowage" in sys.argv:
    backend = "pluggable"
print(json.dumps({"kind": "end", "nvml_bytes": 1000, "reserved_bytes": 800, "graph_losses": ["0x1p+1"], "backend": backend}))
"""
STOWAGE = """#!/bin/sh
[ "$1" = replay ] && exec test -f "$2"
limit=none
while [ "$1" != -- ]; do
  case $1 in
    --limit) limit=$2 ;;
    --record) printf '%s\\n' '# stowage record 1' time_ns,pid,thread,event,kind,device,stream,address,bytes,live,result,detail \\
        "1,2,2,alloc,device,0,0,100,50,$limit,0," 2,2,2,spilled,,0,0,0,70,70,0,1 >"$2" ;;
    --report) echo page >"$2" ;;
  esac
  shift
done
shift
exec "$@"
"""
CALIBRATES = """#!/bin/sh
for word; do last=$word; [ "$before" = --output ] && echo '{}' >"$word"; before=$word; done
"""


class Stages(unittest.TestCase):
    def setUp(self):
        self.context = context_of(self, {"bin/stowage": STOWAGE, "checks/pytorch/train_loop.py": LOOP, "checks/pytorch/allocators.py": LOOP})

    def run_stage(self, name):
        with mock.patch.object(torch_stages, "no_torch", return_value=""):
            found = getattr(torch_stages, name)(self.context)
        return json.loads(json.dumps(found, default=str))

    def test_interposer(self):
        found = self.run_stage("interposer")
        self.assertEqual(found["limit_bytes"], 600)
        self.assertEqual(found["record"], {"allocations": 1, "peak_bytes": 600, "spilled_bytes": 70})
        status, detail = judge_programs.interposer({"stages": {"interposer": found}})
        self.assertEqual(status, "pass", detail)
        self.assertEqual([f.name for f in self.context.folder.iterdir()], ["interposer.html"])

    def test_pluggable(self):
        found = self.run_stage("pluggable")
        self.assertEqual(list(found), ["native", "expandable", "cudaMallocAsync", "stowage"])
        status, detail = judge_programs.pluggable({"stages": {"pluggable": found}})
        self.assertEqual(status, "pass", detail)
        other = copy.deepcopy(found)
        other["stowage"]["steps"][3]["loss_bits"] = "0x0"
        self.assertEqual(judge_programs.pluggable({"stages": {"pluggable": other}})[0], "fail")

    def test_contest(self):
        self.assertRegex(self.run_stage("contest")["skipped"], "not in this tree")
        script = self.context.programs.checks / "contest" / "contest.py"
        script.parent.mkdir()
        out = self.context.folder / "contest"
        out.mkdir()
        (out / "contest.json").write_text("of an earlier run", encoding="utf-8")
        (self.context.programs.stowage).write_text(CALIBRATES, encoding="utf-8")
        script.write_text("import json, pathlib, sys\n"
                          "given = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
                          "folder = pathlib.Path(given['--output'])\n"
                          "folder.mkdir(exist_ok=True)\n"
                          "assert not list(folder.iterdir())\n"
                          "given['results'] = [{'case': 'c', 'peer': 'stowage', 'tokens_per_second': 1}]\n"
                          "(folder / 'contest.json').write_text(json.dumps(given))\n", encoding="utf-8")
        found = self.run_stage("contest")
        self.assertEqual(found["result"]["--programs"], str(self.context.programs.prefix))
        self.assertLessEqual(int(found["result"]["--budget-seconds"]), 60 - torch_stages.CONTEST_MARGIN)
        self.assertEqual(float(found["result"]["--host-memory"]), 1)
        self.assertEqual(found["result"]["--machine"], str(self.context.machine))  # calibrated once, before
        self.assertNotIn("--only", found["result"])
        self.assertEqual(judge_programs.contest("contest")({"stages": {"contest": found}})[0], "pass")
        with mock.patch.object(torch_stages, "no_torch", return_value="no torch"):  # the contest names who lacks it
            self.assertNotIn("--llm-c", torch_stages.whole(self.context)["result"])
            (self.context.folder / "whole" / "contest.json").unlink()
            self.context.llm_c = "/llm.c/train_gpt2cu"
            found = torch_stages.whole(self.context)["result"]
            self.assertEqual(torch_stages.zero3(self.context), {"skipped": "no torch"})
        self.assertEqual((found["--only"], found["--llm-c"]), ("small-whole", "/llm.c/train_gpt2cu"))
        found = self.run_stage("zero3")["result"]
        self.assertEqual((found["--only"], found["--process-seconds"]), ("small-card,stowage,zero3-super,zero3-ratio", "80"))
        for sizes in (shapes.CARD, shapes.SMALL):  # what these stages name is there
            jobs = cases.all_jobs("cuda", sizes is shapes.SMALL, False)
            self.assertEqual([job.peer for job in cases.chosen(jobs, [sizes["whole"]])], ["stowage", "pytorch", "pytorch-compiled"])
            self.assertEqual([job.peer for job in cases.chosen(jobs, [sizes["zero3"], *found["--only"].split(",")[1:]])],
                             ["stowage", "zero3-super", "zero3-ratio"])

    def test_a_calibration_that_fails_costs_no_other_stage(self):
        self.context.programs.stowage.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        self.assertEqual(self.context.memory_arguments(), ["--host-memory", 1 << 30])

    def test_why_nothing_ran(self):
        self.context.device = "simulated"
        for name in ("interposer", "pluggable", "zero3"):
            self.assertEqual(getattr(torch_stages, name)(self.context), {"skipped": "there is no card"})
        (self.context.programs.checks / "contest").mkdir()
        (self.context.programs.checks / "contest" / "contest.py").touch()
        self.assertEqual(torch_stages.whole(self.context), {"skipped": "there is no card"})
        self.context.device = "cuda:1"
        self.assertRegex(torch_stages.whole(self.context)["skipped"], "set CUDA_VISIBLE_DEVICES instead of --device cuda:1")
        self.context.device = "cuda"
        with mock.patch.object(torch_stages, "ASK", "import there_is_no_such_module"):
            self.assertRegex(torch_stages.no_torch(self.context), "has no PyTorch: ModuleNotFoundError")
        with mock.patch.object(torch_stages, "ASK", "print(False)"):
            self.assertEqual(torch_stages.no_torch(self.context), "PyTorch sees no card")


@unittest.skipUnless(importlib.util.find_spec("torch"), "there is no PyTorch")
class OnTheCpu(unittest.TestCase):
    def test_both_programs_have_the_same_losses(self):
        losses = []
        for name in ("train_loop.py", "allocators.py"):
            done = subprocess.run([sys.executable, "-B", CHECKS / "pytorch" / name, "--device", "cpu"], check=True, text=True,
                                  capture_output=True)
            items = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual([item["kind"] for item in items], ["step"] * 4 + ["end"])
            losses.append([item["loss_bits"] for item in items[:-1]])
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(len(set(losses[0])), 4)


if __name__ == "__main__":
    unittest.main()
