"""Choosing stages, and what stages read out of programs' output."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench" / "gpu_check"))
import context  # noqa: E402
import gpu_check  # noqa: E402
import smoke  # noqa: E402
import stage_list  # noqa: E402
import test_stages  # noqa: E402
import torch_stages  # noqa: E402
import train_stages  # noqa: E402


class Choosing(unittest.TestCase):
    def test_all_in_order(self):
        self.assertEqual(stage_list.chosen("", ""), list(stage_list.STAGES))
        self.assertEqual(stage_list.chosen("", "")[:3], ["smoke", "calibrate", "gpt2"])

    def test_only_and_skip(self):
        self.assertEqual(stage_list.chosen("bert,smoke", ""), ["smoke", "bert"])
        self.assertEqual(stage_list.chosen("bert,smoke", "smoke"), ["bert"])
        self.assertNotIn("contest", stage_list.chosen("", "contest"))

    def test_mistakes_are_told(self):
        with self.assertRaisesRegex(ValueError, "'brt' is no stage; there are smoke"):
            stage_list.chosen("brt", "")
        with self.assertRaisesRegex(ValueError, "leave no stage"):
            stage_list.chosen("bert", "bert")


class Leases(unittest.TestCase):
    def test_each_fits_its_seconds(self):
        for name, (seconds, stages) in stage_list.LEASES.items():
            self.assertLessEqual(sum(stage_list.SECONDS[stage] for stage in stages), min(seconds, 440), name)
            self.assertLessEqual(seconds, 480)
        self.assertEqual(set(stage_list.SECONDS), set(stage_list.STAGES))

    def test_each_has_what_is_asked_of_it(self):
        stages = {name: set(of) for name, (_, of) in stage_list.LEASES.items()}
        self.assertEqual(stages["own"], {"calibrate", "gpt2", "tests", "bert", "slices", "allocator", "products", "large", "6.7b", "6.7b-doubled"})
        self.assertEqual(stages["peers"], {"whole", "zero3"})
        self.assertEqual(stages["again"], {"6.7b-8bit", "6.7b-whole"})

    def test_they_are_listed(self):
        lines = stage_list.listed(["calibrate", "gpt2"]).split("\n")
        self.assertEqual([line.split() for line in lines], [["calibrate", "29", "s"], ["gpt2", "16", "s"], ["in", "all", "45", "s"]])

    def test_again_has_what_failed_first(self):
        found = {"asked": ["gpt2", "tests"], "stages": {}}
        verdicts = [{"name": "conformance and kernel tests pass", "status": "fail"},
                    {"name": "every command ended within 600 s", "status": "fail"}]
        with mock.patch.object(gpu_check, "results_of", return_value=found), mock.patch.object(gpu_check, "judge", return_value=verdicts):
            self.assertEqual(gpu_check.stages_of("again", "out"), ["tests", "6.7b-8bit", "6.7b-whole"])
            verdicts[0]["status"] = "pass"
            self.assertEqual(gpu_check.stages_of("again", "out"), ["6.7b-8bit", "6.7b-whole"])

    def test_again_has_no_stage_twice(self):
        found = {"asked": ["6.7b-8bit", "calibrate"], "stages": {"calibrate": {"code": 1}}}
        with mock.patch.object(gpu_check, "results_of", return_value={**found, "runs": [{"seconds": 1}], "card": True, "speed": True}):
            self.assertEqual(gpu_check.stages_of("again", "out"), ["calibrate", "6.7b-8bit", "6.7b-whole"])


class Running(unittest.TestCase):
    def test_a_stage_that_crashes_costs_no_other(self):
        record, given = mock.Mock(), mock.Mock(**{"runner.left.return_value": 60})
        with mock.patch.dict(gpu_check.STAGES, bits=lambda _: json.loads("{"), trainer=lambda _: {"code": 0}):
            gpu_check.run_stages(given, ["bits", "trainer"], record)
        results = [call.kwargs["result"] for call in record.write.call_args_list]
        self.assertRegex(results[0]["crashed"], "^JSONDecodeError: ")
        self.assertEqual(results[1], {"code": 0})
        self.assertIn("Traceback", given.runner.note.call_args.args[0])

    def test_without_time_the_sanitizer_alone_runs(self):
        record, given = mock.Mock(), mock.Mock(**{"runner.left.return_value": 4})
        with mock.patch.dict(gpu_check.STAGES, sanitizer=lambda _: {"tool": "t", "runs": []}):
            gpu_check.run_stages(given, ["bits", "sanitizer"], record)
        self.assertEqual([call.kwargs["name"] for call in record.write.call_args_list], ["sanitizer"])

    def test_a_table_that_cannot_be_made_is_told(self):
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertRegex(gpu_check.tabulated({"stages": {"gpt2": {"unlimited": 5}}})[1], "no table: AttributeError")


class Reading(unittest.TestCase):
    def test_lines_of_json_among_others(self):
        found = context.training({"code": 1, "seconds": 1.0, "command": [], "errors": " bad\n", "output":
                                  '{"kind":"setup","a":1}\nnoise\n3\n{"kind":"step","step":0}\n{"kind":"step"}\n'})
        self.assertEqual((found["setup"]["a"], len(found["steps"]), found["errors"]), (1, 2, "bad"))

    def test_what_train_gpt_prints(self):
        text = "need          2.65 MiB (27 bytes) with\n  in each     1 KiB (5 bytes) for\nminimum       1 KiB (9 bytes), 18%\nx (1 bytes)\n"
        self.assertEqual(train_stages.printed_bytes(text), {"need": 27, "minimum": 9})
        text = "loss          1\nstart         1.50 s for the device, 2.00 s to plan\n"
        self.assertEqual(train_stages.printed_start(text), "1.50 s for the device, 2.00 s to plan")

    def test_counts_tests(self):
        report = {"testsuites": [{"name": "S", "testsuite": [
            {"name": "a", "result": "COMPLETED"}, {"name": "b", "result": "SKIPPED"},
            {"name": "c", "result": "COMPLETED", "failures": [{}]}, {"name": "d", "result": "SUPPRESSED"}]}]}
        self.assertEqual(test_stages.count_tests(report), {"passed": 1, "failed": 1, "skipped": 1, "failures": ["S.c"]})

    def test_a_log_that_was_cut_off(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log.jsonl"
            self.assertEqual(train_stages.logged_steps(log), [])
            log.write_text('{"loss": 1}\n{"loss": 2}\n{"lo')
            self.assertEqual(train_stages.logged_steps(log), [{"loss": 1}, {"loss": 2}])

    def test_a_machine_without_ldd(self):
        with mock.patch.object(smoke.subprocess, "run", side_effect=FileNotFoundError("no ldd")):
            self.assertEqual(smoke.unresolved(Path("x"), {}), ["ldd: no ldd"])

    def test_what_the_sanitizer_refuses_is_found_in_all_that_it_says(self):
        said = {"code": 1, "seconds": 1.0, "output": "Device not supported\n" + "x" * 9000, "errors": ""}
        runner = mock.Mock(**{"run.return_value": said, "left.return_value": 60, "environment": {}})
        programs = mock.Mock(**{"test_programs.return_value": [{"name": "a", "path": "/a", "labels": ["gpu"]}]})
        given = mock.Mock(card=True, runner=runner, programs=programs)
        with mock.patch.object(test_stages.shutil, "which", return_value="/tool"):
            self.assertEqual(test_stages.sanitizer(given)["refused"], "Device not supported")
            runner.left.return_value = 3
            self.assertEqual([run["tail"] for run in test_stages.sanitizer(given)["runs"]], ["no time was left"])

    def test_a_program_that_calls_no_cuda_is_told_by_what_the_sanitizer_says(self):
        says = "========= Error: Target application terminated before first instrumented API call\n"
        for output, expected in ((says, True), ("========= ERROR SUMMARY: 1 error\n", False)):
            runner = mock.Mock(**{"run.return_value": {"code": 255, "seconds": 1.0, "output": output, "errors": ""}})
            found = test_stages.run_test(mock.Mock(runner=runner), {"name": "a", "path": "/a"})
            self.assertEqual(found["called_nothing"], expected)

    def test_a_record_of_stowage_run(self):
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder) / "record.csv"
            self.assertIsNone(torch_stages.read_record(record))
            record.write_text("")
            self.assertEqual(torch_stages.read_record(record)["allocations"], 0)
            record.write_text("# stowage record 1\n"
                              "time_ns,pid,thread,event,kind,device,stream,address,bytes,live,result,detail\n"
                              "1,2,2,process,,-1,0,0,0,0,0,python3\n2,2,2,alloc,device,0,0,100,50,50,0,\n"
                              "3,2,2,alloc,device,0,0,200,30,80,0,\n4,2,2,free,device,0,0,100,50,30,0,\n"
                              "5,2,2,alloc,device,0,0,300,70,30,0,place=host\n6,2,2,spilled,,0,0,0,70,70,0,1\n")
            self.assertEqual(torch_stages.read_record(record), {"allocations": 3, "peak_bytes": 80, "spilled_bytes": 70})


if __name__ == "__main__":
    unittest.main()
