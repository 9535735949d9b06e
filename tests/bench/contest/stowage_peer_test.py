"""Our trainer's log as a peer's events."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "contest"))
import cases  # noqa: E402
import stowage_peer  # noqa: E402

CASE = cases.SMALL_CPU[0]


def line(step, **changes):
    return json.dumps(
        {
            "step": step,
            "loss": 5.5,
            "grad_norm": 2.5,
            "tokens_per_second": 512.0,
            "device_peak_bytes": 100 * step,
            **changes,
        }
    )


class Events(unittest.TestCase):
    def events(self, log, plan):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("log.jsonl", log), ("plan.json", plan)):
                if text is not None:
                    Path(folder, name).write_text(text, encoding="utf-8")
            return stowage_peer.events(CASE, folder)

    def test_are_the_steps_and_the_plan(self):
        plan = {
            name: i
            for i, name in enumerate(
                (
                    "pinned_bytes",
                    "host_bytes",
                    "h2d_bytes",
                    "d2h_bytes",
                    "predicted_step_seconds",
                    "lower_bound_seconds",
                )
            )
        }
        found = self.events(line(1) + "\n" + line(2) + "\n", json.dumps({**plan, "arena": []}))
        self.assertEqual(
            found,
            [
                {"event": "attempt", "micro_batch": 4},
                *({"event": "step", "step": i, "loss": 5.5, "seconds": 0.5, "norm": 2.5} for i in (1, 2)),
                {"event": "peaks", "device_peak_bytes": 200, **plan},
            ],
        )

    def test_of_a_run_that_was_killed_are_those_before(self):
        found = self.events(line(1) + "\n" + line(2)[:20], None)
        self.assertEqual([event["event"] for event in found], ["attempt", "step", "peaks"])

    def test_of_lines_without_numbers_are_none(self):
        self.assertEqual(
            self.events("[]\n" + line(1, tokens_per_second=0) + "\n" + line(1, tokens_per_second=None), "{"), []
        )
        self.assertEqual(self.events(None, None), [])


class Need(unittest.TestCase):
    def test_a_program_that_fails_is_named(self):
        with self.assertRaisesRegex(OSError, "/bin/false does not say what it needs"):
            stowage_peer.need_bytes("/bin/false", CASE, "/nowhere", None)


if __name__ == "__main__":
    unittest.main()
