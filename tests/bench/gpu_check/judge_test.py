"""The verdicts: all is well on a good card, and each thing that goes wrong fails its own line."""

import copy
import sys
import unittest
from pathlib import Path

import results

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "gpu_check"))
import judge  # noqa: E402
import table  # noqa: E402


def statuses(found):
    return {v["name"]: v["status"] for v in judge.judge(found)}


class Judge(unittest.TestCase):
    def setUp(self):
        self.found = results.good_card()
        self.stages = self.found["stages"]

    def assert_fails(self, words, found=None):
        failed = [name for name, status in statuses(found or self.found).items() if status == "fail"]
        self.assertEqual([name for name in failed if words not in name], [])
        self.assertEqual(len(failed), 1, f"nothing failed that is called '{words}'")

    def test_a_good_card_passes_everything(self):
        self.assertEqual(set(statuses(self.found).values()), {"pass"})
        self.assertEqual(len(statuses(self.found)), 22)

    def test_no_stage_may_be_missing(self):
        for stage in self.stages:
            found = copy.deepcopy(self.found)
            del found["stages"][stage]
            self.assertIn("fail", statuses(found).values(), stage)
        self.assertEqual([n for n, s in statuses({**self.found, "stages": {}}).items() if s != "fail"],
                         ["every command ended within 600 s"])

    def test_what_was_not_asked_for_is_not_judged(self):
        self.found["asked"] = ["gpt2"]
        self.found["stages"] = {"gpt2": self.stages["gpt2"]}
        found = statuses(self.found)
        self.assertEqual({n for n, s in found.items() if s == "pass"},
                         {"attention of GPT-2 and BERT by cuDNN", "every command ended within 600 s",
                          "losses of 20 steps bit-identical, unlimited and in four budgets",
                          "planned peak and the driver's account stay under the budget",
                          "gpt2 at 1/4 of its need within 1.15x of the un-offloaded step"})
        self.assertEqual({n for n, s in found.items() if s != "pass"},
                         {"un-offloaded GPT-2 124M at 40% of the measured GEMM rate"})  # for want of the calibration
        self.assertNotIn("fail", found.values())
        self.found["stages"] = {}
        self.assertIn("fail", statuses(self.found).values())

    def test_a_stage_that_was_skipped_did_not_run(self):
        self.stages["pluggable"] = {"skipped": "no PyTorch"}
        self.assert_fails("pluggable allocator")
        self.found["speed"] = False
        self.assertEqual(statuses(self.found)["PyTorch has the same losses with the pluggable allocator"], "skip")

    def test_smoke(self):
        for break_it in (lambda s: s["resolve"]["faults"].update(x=["libcudart.so.13 => not found"]),
                         lambda s: s["resolve"].update(files=0), lambda s: s["calibrate"].update(code=1),
                         lambda s: s["step"].update(code=1), lambda s: s["step"]["steps"].clear()):
            found = copy.deepcopy(self.found)
            break_it(found["stages"]["smoke"])
            self.assert_fails("every program loads", found)

    def test_attention_without_cudnn(self):
        counts = lambda **changes: {"cudnn": 24, "own": 0, "plain": 0, "refusals": [], **changes}  # noqa: E731
        for run in (self.stages["gpt2"]["unlimited"], self.stages["gpt2"]["quarter"], self.stages["bert"]["unlimited"],
                    self.stages["smoke"]["step"]):
            for attention in (counts(own=1), counts(plain=1), counts(cudnn=0), None):
                with self.subTest(str(attention)):
                    found = run.pop("attention")
                    if attention:
                        run["attention"] = attention
                    self.assert_fails("by cuDNN")
                    run["attention"] = found
        self.assertEqual(statuses(self.found)["attention of GPT-2 and BERT by cuDNN"], "pass")

    def test_attention_tells_why_cudnn_refused(self):
        self.stages["gpt2"]["quarter"]["attention"] = {"cudnn": 0, "own": 24, "plain": 0, "refusals": ["head of 96"]}
        detail = next(v["detail"] for v in judge.judge(self.found) if v["status"] == "fail")
        self.assertIn("gpt2 quarter: 0 by cuDNN, 24 by our own kernels, 0 by plain ones [head of 96]", detail)

    def test_the_interposer(self):
        for break_it in (lambda s: s["limited"].update(code=1), lambda s: s["cached"]["steps"].pop(),
                         lambda s: s["limited"]["steps"][2].update(loss_bits="0x0"), lambda s: s["plain"]["steps"].clear(),
                         lambda s: s["record"].update(peak_bytes=3001), lambda s: s["record"].update(spilled_bytes=0),
                         lambda s: s["record"].update(allocations=0), lambda s: s.update(record=None),
                         lambda s: s["replay"].update(code=2), lambda s: s.update(report_bytes=0)):
            found = copy.deepcopy(self.found)
            break_it(found["stages"]["interposer"])
            self.assert_fails("under stowage run", found)

    def test_the_pluggable_allocator(self):
        for break_it in (lambda s: s["stowage"].update(code=1), lambda s: s["stowage"]["steps"][0].update(loss_bits="0x0"),
                         lambda s: s["expandable"]["end"].update(graph_losses=["0x0"]), lambda s: s.pop("cudaMallocAsync"),
                         lambda s: s["stowage"]["end"].update(backend="native"),
                         lambda s: [r["end"].update(graph_losses=[]) for r in s.values()]):
            found = copy.deepcopy(self.found)
            break_it(found["stages"]["pluggable"])
            self.assert_fails("pluggable allocator", found)

    def test_the_contest(self):
        stopped = {"tokens_per_second": None, "status": "stopped", "why": "at its time limit, after 0 steps"}
        for break_it in (lambda s: s.update(result=None), lambda s: s.update(code=1),
                         lambda s: s["result"]["results"][0].update(stopped), lambda s: s["result"]["results"].pop(0),
                         lambda s: s["result"]["results"][1].update(bytes_above=1),
                         lambda s: s["result"]["summary"]["losses_apart"][0].update(first_apart=0.004),
                         lambda s: s["result"]["summary"]["losses_apart"][0].update(first_apart=float("nan"))):
            for stage, words in (("contest", "other systems beside"), ("whole", "on the whole card"), ("zero3", "ZeRO-3")):
                found = copy.deepcopy(self.found)
                break_it(found["stages"][stage])
                self.assert_fails(words, found)
        self.stages["zero3"]["result"]["results"][1].update(stopped)  # a peer's failure is none of ours, and named
        self.assertEqual(set(statuses(self.found).values()), {"pass"})
        detail = next(v["detail"] for v in judge.judge(self.found) if "ZeRO-3" in v["name"])
        self.assertIn("1 of 2 processes with a speed", detail)
        self.assertIn("no speed of 3.4B zero3-super: stopped, at its time limit, after 0 steps", detail)

    def test_a_stage_that_crashed_fails_and_no_other(self):
        for stage, lines in (("bits", 2), ("contest", 1), ("tests", 1), ("trainer", 1)):
            found = copy.deepcopy(self.found)
            found["stages"][stage] = {"crashed": "ValueError: no"}
            failed = [v for v in judge.judge(found) if v["status"] == "fail"]
            self.assertEqual(len(failed), lines, failed)
            self.assertIn(f"{stage} crashed: ValueError: no", failed[0]["detail"])
            table.table(found)

    def test_a_result_of_an_unforeseen_form_fails_its_line(self):
        self.stages["interposer"] = {"plain": 3}
        self.assert_fails("under stowage run")
        self.assertIn("cannot be judged: KeyError", next(v["detail"] for v in judge.judge(self.found) if v["status"] == "fail"))

    def test_calibration(self):
        self.stages["calibrate"]["machine"]["backend"] = "simulated"
        self.assert_fails("calibration")
        self.stages["calibrate"]["machine"]["backend"] = "cuda"
        self.stages["calibrate"]["code"] = 1
        self.assert_fails("calibration")

    def test_a_failed_test(self):
        self.stages["tests"][1] = results.test_result("cuda_kernels_test", code=1, failed=1)
        self.assert_fails("conformance and kernel tests")

    def test_a_program_that_crashed(self):
        self.stages["tests"][1]["code"] = -11
        self.assert_fails("conformance and kernel tests")

    def test_a_program_that_ran_out_of_time(self):
        self.stages["tests"][1]["code"] = None
        self.assert_fails("conformance and kernel tests")

    def test_tests_that_were_all_skipped_prove_nothing(self):
        self.stages["tests"][0] = results.test_result("device_conformance_test", passed=0, skipped=5)
        self.assert_fails("conformance and kernel tests")

    def test_sanitizer(self):
        self.stages["sanitizer"]["runs"][0]["code"] = 86
        self.assert_fails("compute-sanitizer")
        self.stages["sanitizer"]["runs"][0] = results.test_result("cuda_kernels_test", check="memcheck", passed=0)
        self.assert_fails("compute-sanitizer")

    def test_sanitizer_says_nothing_of_a_program_that_calls_no_cuda(self):
        run = results.test_result("nn_cuda_test", check="memcheck", code=255, called_nothing=True)
        self.stages["sanitizer"]["runs"].append(run)
        self.assertEqual(statuses(self.found)["the tests under compute-sanitizer"], "pass")
        run["code"] = 86
        self.assert_fails("compute-sanitizer")
        run.update(code=255, failed=1)
        self.assert_fails("compute-sanitizer")

    def test_sanitizer_that_cannot_tell(self):
        no_time = results.test_result("cuda_kernels_test", check="racecheck", code=None)
        good = self.stages["sanitizer"]["runs"]
        for found in ({"tool": None, "runs": []}, {"tool": "x", "refused": "Device not supported", "runs": [no_time]},
                      {"tool": "x", "runs": [*good, no_time]}, {"tool": "x", "runs": []}):
            self.stages["sanitizer"] = found
            self.assertEqual(statuses(self.found)["the tests under compute-sanitizer"], "skip")
        bad = {**no_time, "code": 86}
        self.stages["sanitizer"] = {"tool": "x", "runs": [*good, bad]}
        self.assert_fails("compute-sanitizer")

    def test_the_trainer(self):
        for break_it in (lambda s: s["smaller"]["steps"][2].update(loss=5.0),
                         lambda s: s["smaller"]["steps"][4].update(grad_norm=1.0),
                         lambda s: s["smaller"].update(code=1), lambda s: s["unlimited"]["steps"].pop(),
                         lambda s: [step.update(device_peak_bytes=4000) for step in s["smaller"]["steps"]]):
            found = copy.deepcopy(self.found)
            break_it(found["stages"]["trainer"])
            self.assert_fails("train_gpt", found)

    def test_the_norm_counts_as_the_loss_does(self):
        self.stages["bits"][1]["runs"]["2400"]["steps"][19]["grad_norm_bits"] = "0" * 16
        self.assert_fails("bit-identical")

    def test_a_quarter_changes_no_bit(self):
        self.stages["bert"]["quarter"]["steps"][1]["loss_bits"] = "0" * 16
        self.assert_fails("bit-identical")

    def test_summary(self):
        found = table.summary(self.found)
        self.assertEqual(len(found["runs"]), 10 + 4 + 4 + 4)
        quarter = found["runs"]["gpt2 quarter"]
        self.assertAlmostEqual(quarter["share_of_lower_bound"], 0.5)
        self.assertAlmostEqual(quarter["predicted_over_measured"], 0.75)
        self.assertEqual((quarter["driver_bytes"], quarter["budget_bytes"]), (910, 1000))
        self.assertEqual(quarter["seconds"], {"open": 1.0, "plan": 2.0, "start": 3.0, "pin": 1.5, "steps": 4.0})
        self.assertAlmostEqual(found["share_of_calibrated_link"]["h2d"]["bucketed"], 0.97)

    def test_one_bit(self):
        self.stages["bits"][1]["runs"]["2400"]["steps"][19]["loss_bits"] = "4016000000000000"
        self.assert_fails("bit-identical")

    def test_a_step_less(self):
        del self.stages["bits"][0]["runs"]["1000"]["steps"][19]
        self.assert_fails("bit-identical")

    def test_a_budget_less(self):
        del self.stages["bits"][0]["runs"]["1000"]
        self.assert_fails("bit-identical")

    def test_equal_losses_that_are_none(self):
        for budget in self.stages["bits"][0]["runs"].values():
            for step in budget["steps"]:
                step["loss"] = None
        self.assert_fails("bit-identical")

    def test_the_same_plan_in_every_budget_proves_nothing(self):
        for budget in self.stages["bits"][0]["runs"].values():
            budget["setup"]["plan"]["device_peak_bytes"] = 900
            for step in budget["steps"]:
                step["device_peak_bytes"] = 900
        self.assert_fails("bit-identical")

    def test_the_drivers_account(self):
        self.stages["bert"]["quarter"]["steps"][3]["device_used_bytes"] = 1001
        self.assert_fails("driver's account")

    def test_page_tables_of_pinned_memory_are_overhead_and_count(self):
        step = self.stages["bert"]["quarter"]["steps"][3]
        step.update(device_used_bytes=1000, device_overhead_bytes=100)  # more than was planned, but within the budget
        self.assertEqual(set(statuses(self.found).values()), {"pass"})
        step.update(device_used_bytes=1001, device_overhead_bytes=101)
        self.assert_fails("driver's account")
        detail = next(v["detail"] for v in judge.judge(self.found) if v["status"] == "fail")
        self.assertIn("900 allocated for 900 planned, and 101 of overhead for 20 planned (5120 bytes are pinned)", detail)

    def test_a_plan_without_room_for_its_overhead(self):
        self.stages["bert"]["quarter"]["setup"]["overhead_bytes"] = 101
        self.assert_fails("driver's account")

    def test_a_byte_beyond_the_plan(self):
        self.stages["bert"]["quarter"]["steps"][3]["device_peak_bytes"] = 901
        self.assert_fails("driver's account")

    def test_a_plan_beyond_the_budget(self):
        self.stages["large"]["per_tensor"]["setup"]["plan"]["device_peak_bytes"] = 1001
        self.assert_fails("driver's account")

    def test_utilisation(self):
        # 5e13 flops in 0.19 s are 44% of 600 TFLOP/s; in 0.21 s less than 40%.
        for step in self.stages["gpt2"]["unlimited"]["steps"][2:]:
            step["seconds"] = 0.21
        self.assert_fails("GPT-2 124M at 40%")

    def test_slowdown(self):
        for model in ("gpt2", "bert"):
            found = copy.deepcopy(self.found)
            for step in found["stages"][model]["quarter"]["steps"][2:]:
                step["seconds"] = 0.35 if model == "bert" else 0.22
            self.assert_fails(f"{model} at 1/4", found)

    def test_a_slowdown_is_of_64k_tokens(self):
        self.stages["gpt2"]["quarter"]["setup"]["tokens_per_step"] = 32768
        self.assert_fails("gpt2 at 1/4")

    def test_buckets(self):
        for way in ("h2d", "d2h"):
            found = copy.deepcopy(self.found)
            found["stages"]["large"]["bucketed"]["copies"][way]["bucketed"] = results.total(0.94)
            self.assert_fails("95% of the calibrated link", found)
        self.stages["large"]["bucketed"]["copies"]["h2d"]["bucketed"] = {"bytes": 0, "copies": 0, "seconds": 0}
        self.assert_fails("95% of the calibrated link")

    def test_a_model_that_fits_without_offload_proves_nothing(self):
        self.stages["large"]["without_offload"] = {"code": 0, "setup": {}}
        self.assert_fails("does not fit without offload")

    def test_bucket_sizes_change_no_bit(self):
        self.stages["large"]["per_tensor"]["steps"][2]["loss_bits"] = "0" * 16
        self.assert_fails("does not fit without offload")

    def test_twice_the_tokens_and_8_bit_moments_train_too(self):
        for stage in ("6.7b-doubled", "6.7b-8bit"):
            found = copy.deepcopy(self.found)
            found["stages"][stage]["offloaded"]["code"] = 1
            failed = [name for name, status in statuses(found).items() if status == "fail"]
            self.assertIn("6.7 billion parameters train in 22 GiB", failed)

    def test_a_budget_changes_no_bit_of_the_large_model(self):
        self.stages["6.7b-whole"]["unlimited"]["steps"][2]["loss_bits"] = "0" * 16
        self.assert_fails("all on the card")
        self.stages["6.7b-whole"] = {"no_room": {"code": 3}}
        self.assertEqual(statuses(self.found)["6.7 billion parameters train all on the card"], "skip")

    def test_time(self):
        self.found["runs"] = [{"seconds": 601}]
        self.assert_fails("within 600 s")
        self.found["runs"] = [{"seconds": 50}, {"seconds": None}]
        self.assertIn("1 cut off", judge.judge(self.found)[-1]["detail"])
        self.found["runs"] = [{"seconds": None}]
        self.assert_fails("within 600 s")

    def test_without_a_card_speed_is_not_judged(self):
        self.found["card"] = self.found["speed"] = False
        self.stages["calibrate"]["machine"]["backend"] = "simulated"
        for stage in ("slices", "allocator", "products", "interposer", "pluggable", "contest", "whole", "zero3", "sanitizer"):
            self.stages[stage] = {"skipped": "there is no card"}
        found = statuses(self.found)
        self.assertEqual(found.pop("conformance and kernel tests pass"), "skip")
        self.assertEqual(sorted(found.values()), ["pass"] * 9 + ["skip"] * 12)

    def test_the_table_has_every_run(self):
        lines = table.table(self.found).splitlines()
        self.assertEqual(len(lines), 1 + 10 + 4 + 4 + 4 + 3 * 3)
        self.assertIn("43.9%", next(line for line in lines if line.startswith("gpt2 unlimited")))
        self.assertTrue(lines[1].endswith("95.0, 94.2"), lines[1])  # of the host, before the steps and behind them


if __name__ == "__main__":
    unittest.main()
