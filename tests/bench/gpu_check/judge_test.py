"""The verdicts: all is well on a good card, and each thing that goes wrong fails its own line."""

import copy
import sys
import unittest
from pathlib import Path

import results

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "gpu_check"))
import judge  # noqa: E402


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
        self.assertEqual(len(statuses(self.found)), 12)

    def test_no_stage_may_be_missing(self):
        for stage in self.stages:
            found = copy.deepcopy(self.found)
            del found["stages"][stage]
            expected = "skip" if stage == "sanitizer" else "fail"
            self.assertIn(expected, statuses(found).values(), stage)
        self.assertNotIn("pass", [s for n, s in statuses({**self.found, "stages": {}}).items() if "within 540" not in n])

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

    def test_sanitizer_that_cannot_tell(self):
        no_time = results.test_result("cuda_kernels_test", check="racecheck", code=None)
        good = self.stages["sanitizer"]["runs"]
        for found in ({"tool": None, "runs": []}, {"tool": "x", "refused": "Device not supported", "runs": [no_time]},
                      {"tool": "x", "runs": [*good, no_time]}, {"tool": "x", "runs": []}):
            self.stages["sanitizer"] = found
            self.assertEqual(statuses(self.found)["the same under compute-sanitizer"], "skip")
        bad = {**no_time, "code": 86}
        self.stages["sanitizer"] = {"tool": "x", "runs": [*good, bad]}
        self.assert_fails("compute-sanitizer")

    def test_the_sanitizer_alone(self):
        self.found["only_sanitizer"] = True
        self.assertEqual(statuses(self.found), {"the same under compute-sanitizer": "pass"})

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
        found = judge.summary(self.found)
        self.assertEqual(len(found["runs"]), 10 + 4 + 2)
        quarter = found["runs"]["gpt2 quarter"]
        self.assertAlmostEqual(quarter["share_of_lower_bound"], 0.5)
        self.assertAlmostEqual(quarter["predicted_over_measured"], 0.75)
        self.assertEqual((quarter["driver_bytes"], quarter["budget_bytes"]), (910, 1000))
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

    def test_time(self):
        self.found["seconds"] = 541
        self.assert_fails("all within 540 s")

    def test_without_a_card_speed_is_not_judged(self):
        self.found["card"] = self.found["speed"] = False
        self.stages["calibrate"]["machine"]["backend"] = "simulated"
        self.assertEqual(sorted(statuses(self.found).values()), ["pass"] * 6 + ["skip"] * 6)

    def test_the_table_has_every_run(self):
        lines = judge.table(self.found).splitlines()
        self.assertEqual(len(lines), 1 + 10 + 4 + 2)
        self.assertIn("43.9%", next(line for line in lines if line.startswith("gpt2 unlimited")))


if __name__ == "__main__":
    unittest.main()
