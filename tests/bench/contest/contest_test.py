"""The whole command, with peers that are small scripts, and with the train_gpt that was built (STOWAGE_TRAIN_GPT)."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

CONTEST = Path(__file__).resolve().parents[3] / "bench" / "contest" / "contest.py"
sys.path.insert(0, str(CONTEST.parent))
import contest  # noqa: E402

# In the place of Python with torch: behaves as the peer's name says.
FAKE_PYTHON = """#!/bin/sh
peer=$3
case $peer in
pytorch) for i in 1 2 3 4 5; do echo '{"event": "step", "step": '$i', "loss": 5.'$i', "seconds": 0.5, "micro_batch": 4}'; done ;;
checkpointing) echo '{"event": "step", "step": 1, "loss": 5.5, "seconds": 0.5, "micro_batch": 4}'; trap '' TERM; while true; do sleep 0.1; done ;;
fsdp2) echo 'Traceback' >&2; echo 'ValueError: broken on purpose' >&2; exit 1 ;;
zero3) echo 'torch.OutOfMemoryError: CUDA out of memory.' >&2; exit 1 ;;
zero2) echo '}{ no json'; echo '{"event": 7}'; printf '\\377\\000' ;;
esac
"""
# In the place of train_gpt: five steps into the log.
FAKE_TRAIN_GPT = """#!/bin/sh
while [ $# -gt 0 ]; do case $1 in --log) log=$2 ;; --plan-json) plan=$2 ;; --device-memory) memory=$2 ;; --device) device=$2 ;; esac; shift; done
if [ $device = cuda ]; then echo "train_gpt: --device: no card" >&2; exit 2; fi
echo '{"device_peak_bytes": 5000, "pinned_bytes": 1, "host_bytes": 2, "h2d_bytes": 3, "d2h_bytes": 4, "predicted_step_seconds": 5, "lower_bound_seconds": 6}' >$plan
for i in 1 2 3 4 5; do echo '{"step": '$i', "loss": 5.'$i', "tokens_per_second": '$([ $memory = 1000 ] && echo 256 || echo 1024)', "device_peak_bytes": 9}' >>$log; done
"""
# In the place of llm.c's train_gpt2cu: reads the shard that it is given, and prints a table, then steps.
FAKE_LLM_C = """#!/usr/bin/env python3
import array, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
data = open(given["-i"], "rb").read()
magic, version, count = array.array("i", data[:12])
assert (magic, version, count, len(data)) == (20240520, 1, int(given["-d"]) + 1, 1024 + 2 * count)
assert int(given["-b"]) * int(given["-t"]) == int(given["-d"]) and given["-e"] == "d2" and given["-a"] == "1"
print("| max_steps             | " + given["-x"] + " |")
for step in range(1, int(given["-x"]) + 1):
    print(f"step {step:4d}/{given['-x']} | loss 10.97{step:02d}42 (+nanz)| norm 15.4000 (+nanz)| lr 3.00e-05 | 120.50 ms | 58.1% bf16 MFU | 543210 tok/s")
"""


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


class Whole(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        self.python = script(self.root / "python", FAKE_PYTHON)
        script(self.root / "bin" / "train_gpt", FAKE_TRAIN_GPT)

    def contest(self, *arguments, programs=None):
        words = [
            sys.executable,
            "-B",
            CONTEST,
            "--programs",
            programs or self.root,
            "--output",
            self.root / "out",
            "--device",
            "cpu",
            "--small",
            "--python",
            self.python,
            "--commit",
            "abc",
            *arguments,
        ]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    def results(self):
        whole = json.loads((self.root / "out" / "contest.json").read_text(encoding="utf-8"))
        lines = [
            json.loads(line) for line in (self.root / "out" / "contest.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        self.assertEqual(lines, whole["results"])
        return whole, {(r["case"], r["peer"]): r for r in lines}

    def test_every_end_of_a_peer_is_a_result(self):
        done = self.contest("--only", "small,stowage,stowage-fifth,pytorch,fsdp2,zero3,zero2")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        whole, results = self.results()
        self.assertEqual(
            {peer: r["status"] for (_, peer), r in results.items()},
            {
                "stowage": "ran",
                "pytorch": "ran",
                "stowage-fifth": "ran",
                "fsdp2": "failed",
                "zero3": "does not fit",
                "zero2": "failed",
            },
        )
        self.assertEqual(results["small", "fsdp2"]["why"], "exit code 1: ValueError: broken on purpose")
        self.assertEqual(results["small", "zero2"]["why"], "it printed no step")
        self.assertEqual(
            whole["summary"]["against_pytorch"],
            [
                {"case": "small", "round": 1, "peer": "stowage", "ratio": 2.0},
                {"case": "small", "round": 1, "peer": "stowage-fifth", "ratio": 0.5},
            ],
        )
        self.assertEqual(whole["commit"], "abc")
        self.assertEqual(
            whole["summary"]["losses_apart"][0],
            {"case": "small", "round": 1, "peer": "pytorch", "steps": 5, "apart": 0.0, "first_apart": 0.0},
        )
        self.assertIn("losses of pytorch and stowage differ by at most 0.0e+00 in 5 steps", done.stdout)
        log = (self.root / "out" / "contest.log").read_text(encoding="utf-8")
        self.assertIn("}{ no json", log)
        self.assertEqual(
            sorted(path.name for path in (self.root / "out").iterdir()),
            ["contest.json", "contest.jsonl", "contest.log"],
        )

    def test_one_that_does_not_end_is_stopped_and_its_steps_count(self):
        self.contest("--process-seconds", "2", "--only", "small,checkpointing")
        _, results = self.results()
        self.assertEqual(results["small", "checkpointing"]["status"], "stopped")
        self.assertEqual(results["small", "checkpointing"]["losses"], [5.5])

    def test_the_environment_may_choose(self):
        with mock.patch.dict(os.environ, {"CONTEST_ONLY": "small,stowage"}):
            self.contest()
        _, results = self.results()
        self.assertEqual(list(results), [("small", "stowage")])

    def test_the_whole_card_is_trained_on_without_a_limit_and_without_offloading(self):
        self.contest("--only", "small-whole,stowage")
        _, results = self.results()
        command = results["small-whole", "stowage"]["command"]
        for option, value in (("--device", "cuda"), ("--device-memory", "unlimited"), ("--policy", "none")):
            self.assertEqual(command[command.index(option) + 1], value)
        self.assertNotIn("--host-memory", command)

    def test_llm_c_trains_on_the_same_batch(self):
        program = script(self.root / "train_gpt2cu", FAKE_LLM_C)
        self.contest("--only", "small-whole,stowage,llm.c", "--llm-c", program)
        _, results = self.results()
        found = results["small-whole", "llm.c"]
        self.assertEqual((found["status"], len(found["losses"]), found["micro_batch"]), ("ran", 24, 4), found)
        self.assertAlmostEqual(found["tokens_per_second"], 256 / 0.1205)
        self.assertEqual(found["losses"][4], 10.970542)

    def test_llm_c_that_is_not_there_costs_nobody_else(self):
        done = self.contest("--only", "small-whole,llm.c,pytorch", "--llm-c", self.root / "nothing")
        _, results = self.results()
        self.assertEqual(results["small-whole", "pytorch"]["status"], "ran", done.stderr)
        self.assertEqual(results["small-whole", "llm.c"]["status"], "failed")
        self.assertIn("No such file", results["small-whole", "llm.c"]["why"])

    def test_without_a_card_ours_says_how_far_it_came(self):
        self.contest("--only", "small-card,stowage")
        _, results = self.results()
        self.assertEqual(results["small-card", "stowage"]["status"], "no card")
        self.assertIn("--device: no card", results["small-card", "stowage"]["why"])

    def test_a_smaller_micro_batch_gets_a_process_of_its_own(self):
        def step(number, loss):
            return json.dumps({"event": "step", "step": number, "loss": loss, "seconds": 0.5, "micro_batch": 2})

        script(
            self.python,
            "#!/bin/sh\ncase \"$*\" in\n"
            f"*'--micro-batch 2') for i in 1 2 3; do echo '{step(1, 4.5)}'; done ;;\n"
            f"*) echo '{step(9, 9.5)}'; echo '{{\"event\": \"again\", \"micro_batch\": 2}}' ;;\nesac\n",
        )
        self.contest("--only", "small,fsdp2")
        _, results = self.results()
        found = results["small", "fsdp2"]
        self.assertEqual((found["status"], found["losses"], found["counted_steps"]), ("ran", [4.5] * 3, 1))
        log = (self.root / "out" / "contest.log").read_text(encoding="utf-8")
        self.assertEqual(log.count("\n$ "), 2)

    def test_what_there_is_no_time_for_is_named(self):
        done = self.contest("--budget-seconds", "55")  # a process has 60
        self.assertEqual(done.returncode, 1)
        self.assertIn("contest: FAILED: small stowage: skipped: no time is left", done.stderr)
        _, results = self.results()
        self.assertEqual(len(results), 11 + 8)
        self.assertEqual({(r["status"], r["why"]) for r in results.values()}, {("skipped", "no time is left")})

    def test_our_own_failure_is_one(self):
        script(self.root / "bin" / "train_gpt", "#!/bin/sh\necho 'train_gpt: broken' >&2\nexit 1\n")
        done = self.contest("--only", "small,stowage,stowage-fifth")
        self.assertEqual(done.returncode, 1)
        self.assertIn("contest: FAILED: small stowage: failed: exit code 1: train_gpt: broken", done.stderr)
        _, results = self.results()
        self.assertIn("does not say what it needs: train_gpt: broken", results["small", "stowage-fifth"]["why"])

    def test_ours_without_a_speed_is_a_failure(self):
        script(self.root / "bin" / "train_gpt", "#!/bin/sh\necho 'train_gpt: out of memory' >&2\nexit 1\n")
        done = self.contest("--only", "small,stowage")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED: small stowage: does not fit: train_gpt: out of memory", done.stderr)

    def test_a_request_to_end_ends_the_peer_and_keeps_its_steps(self):
        step = '{"event": "step", "step": 1, "loss": 5.5, "seconds": 0.5, "micro_batch": 4}'
        script(self.python, f"#!/bin/sh\ntrap '' TERM\necho '{step}'\necho $$ >{self.root}/pid\nwhile true; do sleep 0.05; done\n")
        words = [CONTEST, "--programs", self.root, "--output", self.root / "out", "--device", "cpu", "--small", "--only"]
        process = subprocess.Popen(
            [sys.executable, "-B", *words, "small,pytorch,checkpointing", "--python", self.python], stdout=subprocess.DEVNULL
        )
        pid = self.root / "pid"
        while process.poll() is None and not (pid.is_file() and pid.read_text(encoding="ascii").endswith("\n")):
            time.sleep(0.01)
        process.terminate()
        self.assertEqual(process.wait(timeout=30), 128 + signal.SIGTERM)
        with self.assertRaises(ProcessLookupError):
            os.kill(int(pid.read_text(encoding="ascii")), 0)
        _, results = self.results()
        self.assertEqual([r["losses"] for r in results.values()], [[5.5]])  # and no other was begun

    def test_bad_input_is_refused(self):
        done = self.contest("--only", "everything")
        self.assertEqual(done.returncode, 2)
        self.assertIn("everything: there is no such case or peer", done.stderr)
        done = self.contest(programs="/nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--programs /nowhere: there is no bin/train_gpt in it", done.stderr)

    @unittest.skipUnless(
        os.environ.get("STOWAGE_TRAIN_GPT") and Path(os.environ["STOWAGE_TRAIN_GPT"]).is_file(),
        "train_gpt is not built",
    )
    def test_the_real_trainer_takes_what_it_is_given(self):
        done = self.contest(
            "--only", "small,stowage,stowage-fifth", programs=Path(os.environ["STOWAGE_TRAIN_GPT"]).parents[1]
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        _, results = self.results()
        whole, fifth = results["small", "stowage"], results["small", "stowage-fifth"]
        self.assertEqual((whole["status"], fifth["status"], len(whole["losses"])), ("ran", "ran", 24))
        self.assertEqual((whole["counted_steps"], whole["clipped_steps"]), (8, [0, 8]))
        self.assertEqual(whole["losses"], fifth["losses"])
        self.assertLess(3 * fifth["program"]["device_peak_bytes"], whole["program"]["device_peak_bytes"])


class Time(unittest.TestCase):
    def test_a_process_whose_seconds_went_into_its_preparation_is_not_begun(self):
        for left in ([59], [60, 59]):
            peers = mock.Mock(**{"left.side_effect": left})
            with mock.patch.object(contest.watch, "run", side_effect=AssertionError("begun")):
                found = contest.run_job(mock.Mock(), peers, None, 60)
            self.assertEqual((found["status"], found["why"]), ("skipped", "no time is left"))
            self.assertEqual(peers.prepare.call_count, len(left) - 1)


if __name__ == "__main__":
    unittest.main()
