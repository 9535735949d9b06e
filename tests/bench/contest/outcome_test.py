"""What a process's words amount to, from made-up words."""

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "contest"))
import cases  # noqa: E402
import outcome  # noqa: E402

CASE = cases.Case("c", layers=2, width=64, heads=2, batch=4, gib=2, sequence=64, vocabulary=256)
SECONDS = [9.0, 5.0, 0.5, 0.25, 0.75]


def done(**changes):
    return {
        "code": 0,
        "stopped": False,
        "seconds": 3.0,
        "output": [],
        "errors": "",
        "peaks": {"host_resident": 3 << 30},
        **changes,
    }


def steps(seconds=SECONDS, micro_batch=4, off=0.0):
    return [
        {"event": "step", "step": i + 1, "loss": 5.0 - i + off, "seconds": s, "micro_batch": micro_batch}
        for i, s in enumerate(seconds)
    ]


def result(events, peer="pytorch", turn=1, **changes):
    return outcome.result_of(cases.Job(CASE, peer, turn), done(**changes), events)


class Events(unittest.TestCase):
    def test_passes_over_what_is_no_event(self):
        lines = [
            "\n",
            "loading\n",
            '{"event": 5}\n',
            "[1]\n",
            '{"step": 1}\n',
            json.dumps({"event": "end"}) + "\n",
            '{"event": "st',
        ]
        self.assertEqual(outcome.events_in(lines), [{"event": "end"}])

    def test_a_step_without_numbers_is_none(self):
        bad = [
            {"event": "step", "loss": "nan", "seconds": 1},
            {"event": "step", "loss": 1.0},
            {"event": "step", "loss": 1.0, "seconds": 0},
        ]
        self.assertEqual(outcome.steps_of(bad + steps()), steps())


class Status(unittest.TestCase):
    def status(self, events, **changes):
        found = result(events, **changes)
        return found["status"], found["why"]

    def test_ran(self):
        self.assertEqual(self.status(steps()), ("ran", ""))

    def test_memory_that_ran_out_is_no_failure(self):
        event = {"event": "does not fit", "reached": "step 1", "message": "out of memory with one sample at once"}
        self.assertEqual(
            self.status([event]), ("does not fit", "reached: step 1; out of memory with one sample at once")
        )
        for errors in (
            "trace\ntorch.OutOfMemoryError: CUDA out of memory.\n",
            "train_gpt: cudaMalloc: out of memory",
            "train_gpt: --device-memory 5: too small; the smallest that works is 9 bytes (9 B), which op x needs: give 9",
            "train_gpt: --device-memory 9: only 5 bytes (5 B) of the card are free; give at most that",
        ):
            self.assertEqual(self.status([], code=2, errors=errors)[0], "does not fit", errors)

    def test_a_crash_names_its_last_line(self):
        self.assertEqual(
            self.status(steps(), code=1, errors="Traceback\n  x\nValueError: no\n\n"),
            ("failed", "exit code 1: ValueError: no"),
        )
        self.assertIn("signal 9", self.status([], code=-9)[1])

    def test_garbage_is_a_failure(self):
        self.assertEqual(self.status([]), ("failed", "it printed no step"))

    def test_the_time_limit_keeps_the_steps_before_it(self):
        found = result(steps(), stopped=True, code=-15)
        self.assertEqual(
            (found["status"], found["why"], found["tokens_per_second"]),
            ("stopped", "at its time limit, after 5 steps", 512.0),
        )

    def test_absence_and_no_card_say_what_was_reached(self):
        self.assertEqual(
            self.status([{"event": "absent", "reached": "import of deepspeed", "message": "No module"}]),
            ("absent", "reached: import of deepspeed; No module"),
        )
        self.assertEqual(self.status([{"event": "no card", "message": "m"}]), ("no card", "m"))


class Numbers(unittest.TestCase):
    def test_the_rate_leaves_the_first_steps_out(self):
        self.assertEqual(result(steps())["tokens_per_second"], 256 / 0.5)
        self.assertIsNone(result(steps([1.0, 1.0]))["tokens_per_second"])

    def test_many_steps_leave_more_out(self):
        found = result(steps([9.0] * 16 + [0.5, 0.25, 0.5]))
        self.assertEqual((found["warm_up_steps"], found["counted_steps"], found["tokens_per_second"]), (16, 3, 512.0))
        found = result(steps([9.0] * 2 + [1.0] * 14 + [0.5] * 2))  # too few behind 16
        self.assertEqual((found["warm_up_steps"], found["counted_steps"], found["tokens_per_second"]), (2, 16, 256.0))

    def test_counted_steps_that_were_clipped_are_counted(self):
        most = cases.LEARNING["clip"]
        norms = [2 * most, 2 * most, 2 * most, most, None]  # the first two are left out
        events = [{**step, "norm": norm} for step, norm in zip(steps(), norms)]
        self.assertEqual(result(events)["clipped_steps"], (1, 2))
        self.assertEqual(result(events)["norms"], norms)
        self.assertEqual(result(steps())["clipped_steps"], (0, 0))

    def test_the_whole_card_cannot_be_exceeded(self):
        case = cases.SMALL_WHOLE_CARD[0]
        found = outcome.result_of(cases.Job(case, "pytorch"), done(peaks={"device_bytes": 1 << 40}), steps())
        self.assertEqual(found["bytes_above"], 0)

    def test_the_rate_is_that_of_the_last_micro_batch(self):
        mixed = steps([1, 1, 0.1, 0.1, 0.1], 4) + steps([0.5, 0.5], 2)
        self.assertEqual(
            result([{"event": "attempt", "micro_batch": 4}, {"event": "attempt", "micro_batch": 2}, *mixed])[
                "tokens_per_second"
            ],
            512,
        )

    def test_the_loss_is_that_of_the_fifth_step(self):
        self.assertEqual(result(steps())["loss_at_step_5"], 1.0)
        self.assertIsNone(result(steps([1.0] * 4))["loss_at_step_5"])

    def test_what_the_program_says_of_itself_is_kept(self):
        found = result(
            [
                {"event": "setup", "torch": "2"},
                {"event": "attempt", "micro_batch": 4},
                {"event": "attempt", "micro_batch": 2},
                *steps(),
                {"event": "peaks", "pinned_bytes": 7},
            ]
        )
        self.assertEqual(
            (found["program"], found["micro_batch"], found["attempts"]), ({"torch": "2", "pinned_bytes": 7}, 2, [4, 2])
        )


if __name__ == "__main__":
    unittest.main()
