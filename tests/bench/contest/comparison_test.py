"""Comparisons and the table, of made-up results."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "contest"))
import cases  # noqa: E402
import comparison  # noqa: E402
import outcome  # noqa: E402
from outcome_test import CASE, result, steps  # noqa: E402


class Comparison(unittest.TestCase):
    def setUp(self):
        fast = [1.0, 1.0, 0.25, 0.25, 0.25]
        self.results = [
            result(steps(fast), "stowage"),
            result(steps([1, 1, 0.5, 0.5, 0.5], off=0.25)),
            result([], "fsdp2", code=1, errors="no"),
            outcome.skipped(cases.Job(CASE, "zero2"), "no time is left"),
            result(steps(fast), "stowage", 2),
            result(steps([1, 1, 0.125, 0.125, 0.125], off=-0.25), turn=2),
        ]

    def test_compares_within_a_round(self):
        self.assertEqual(
            comparison.summary(self.results),
            {
                "statuses": {"ran": 4, "failed": 1, "skipped": 1},
                "against_pytorch": [
                    {"case": "c", "round": 1, "peer": "stowage", "ratio": 2.0},
                    {"case": "c", "round": 2, "peer": "stowage", "ratio": 0.5},
                ],
                "against_the_best_peer": [{"case": "c", "peer": "pytorch", "ratio": 0.8}],
                "losses_apart": [
                    {"case": "c", "round": 1, "peer": "pytorch", "steps": 5, "apart": 0.25, "first_apart": 0.05},
                    {"case": "c", "round": 2, "peer": "pytorch", "steps": 5, "apart": 0.25, "first_apart": 0.05},
                ],
            },
        )
        self.assertIn(
            "c, round 1: stowage trains 2.00 times as many tokens per second as pytorch",
            list(comparison.comparison(self.results)),
        )

    def test_losses_are_compared_with_those_of_our_longest_run(self):
        results = [
            result(steps([1.0]), "stowage"),
            result(steps([1.0] * 3), "stowage", 2),
            result(steps([1.0] * 2, off=0.5)),
        ]
        self.assertEqual(
            comparison.losses_apart(results),
            [{"case": "c", "round": 1, "peer": "pytorch", "steps": 2, "apart": 0.5, "first_apart": 0.1}],
        )

    def test_losses_from_other_weights_are_not_compared(self):
        found = [result(steps(), "stowage"), result(steps(off=0.5), cases.LLM_C)]
        self.assertEqual(comparison.losses_apart(found), [])
        self.assertIn("1.00 times", next(iter(comparison.comparison(found))))

    def test_a_rate_of_few_steps_is_shown_and_not_compared(self):
        few = [result(steps([1, 1, 0.25, 0.25]), "stowage"), *self.results[1:2]]
        self.assertEqual(list(comparison.comparison(few)), [])
        self.assertIn("| c | stowage | 1 | ran | 1024.0 | 2 behind 2 | - |", comparison.table(few))

    def test_the_fastest_peer_is_that_of_the_best_median(self):
        def at(peer, seconds, turn):
            return result(steps([1, 1, *[seconds] * 3]), peer, turn)

        rounds = [at("pytorch", s, i) for i, s in enumerate((0.125, 1, 1))] + [at("fsdp2", 0.5, i) for i in range(3)]
        self.assertEqual(
            comparison.best_peer([*rounds, at("stowage", 0.25, 1)]), [{"case": "c", "peer": "fsdp2", "ratio": 2.0}]
        )

    def test_more_memory_than_the_case_has_is_told(self):
        found = result(steps(), peaks={"device_bytes": (2 << 30) + (4 << 20) + 7})
        self.assertIn("| 7 bytes more than the case has;  |", comparison.table([found]))
        self.assertEqual(result(steps(), peaks={"device_bytes": (2 << 30) + (4 << 20)})["bytes_above"], 0)

    def test_nothing_is_compared_with_what_did_not_run(self):
        self.assertEqual(list(comparison.comparison(self.results[2:4] + self.results[:1])), [])

    def test_the_table_has_every_job(self):
        lines = comparison.table(self.results).splitlines()
        self.assertEqual(len(lines), 2 + 6)
        self.assertEqual({line.count("|") for line in lines}, {14})
        self.assertIn("| c | stowage | 1 | ran | 1024.0 | 3 behind 2 |", lines[2])
        self.assertIn("no time is left", lines[5])

    def test_a_cell_breaks_no_row(self):
        found = result([], code=1, errors="a | b\n")
        self.assertEqual(comparison.table([found]).splitlines()[2].count("|"), 14)


if __name__ == "__main__":
    unittest.main()
