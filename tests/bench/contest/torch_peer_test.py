"""The loop of a peer of PyTorch, without PyTorch."""

import contextlib
import io
import sys
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "contest"))
import cases  # noqa: E402
import outcome  # noqa: E402
import torch_peer  # noqa: E402


class Strategy:
    """Has memory for `fits` samples at once."""

    def __init__(self, fits, recovers=True):
        self.fits, self.recovers, self.updates, self.seen = fits, recovers, 0, []

    def forward_backward(self, tokens, targets, share):
        if len(tokens) > self.fits:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20 MiB")
        self.seen.append((tokens, targets, share))
        return sum(tokens) / len(tokens)

    def update(self):
        self.updates += 1

    def norm(self):
        return 1.5 * self.updates

    def recover(self):
        return self.recovers


def setting(**changes):
    case = cases.Case("c", layers=2, width=64, heads=2, batch=8, sequence=64, vocabulary=256)
    return SimpleNamespace(
        **{"case": case, "device": "cpu", "steps": 3, "until": time.time() + 100, "micro_batch": 8, **changes}
    )


def events_of(strategy, **changes):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        torch_peer.train(strategy, (list(range(8)), list(range(1, 9))), setting(**changes))
    return outcome.events_in(text.getvalue().splitlines())


class MicroBatches(unittest.TestCase):
    def test_halve_and_divide(self):
        self.assertEqual(list(torch_peer.micro_batches(16, 16)), [16, 8, 4, 2, 1])
        self.assertEqual(list(torch_peer.micro_batches(12, 12)), [12, 6, 3, 1])
        self.assertEqual(list(torch_peer.micro_batches(16, 4)), [4, 2, 1])

    def test_the_largest_that_fits_is_kept(self):
        strategy = Strategy(fits=2)
        events = events_of(strategy)
        self.assertEqual([e["micro_batch"] for e in events if e["event"] == "attempt"], [8, 4, 2])
        self.assertEqual(
            [(e["step"], e["loss"], e["micro_batch"]) for e in events if e["event"] == "step"],
            [(i, 3.5, 2) for i in (1, 2, 3)],
        )
        self.assertEqual([e["norm"] for e in events if e["event"] == "step"], [1.5, 3.0, 4.5])
        self.assertEqual((strategy.updates, len(strategy.seen), strategy.seen[0]), (3, 12, ([0, 1], [1, 2], 0.25)))

    def test_one_sample_that_does_not_fit_is_said(self):
        events = events_of(Strategy(fits=0))
        self.assertEqual([e["event"] for e in events], ["attempt"] * 4 + ["does not fit"])
        self.assertIn("step 1 with 1 samples", events[-1]["reached"])

    def test_one_that_cannot_go_on_begins_again(self):
        text = io.StringIO()
        with mock.patch.object(torch_peer.os, "_exit", side_effect=SystemExit), contextlib.redirect_stdout(text):
            with self.assertRaises(SystemExit):
                torch_peer.train(Strategy(fits=1, recovers=False), (list(range(8)), list(range(1, 9))), setting())
        self.assertEqual(outcome.again(outcome.events_in(text.getvalue().splitlines())), 4)

    def test_no_step_begins_too_late(self):
        self.assertEqual([e["event"] for e in events_of(Strategy(fits=8), until=time.time() - 1)], ["attempt"])

    def test_another_error_is_not_taken_for_memory(self):
        with self.assertRaises(ZeroDivisionError):
            torch_peer.one_step(SimpleNamespace(forward_backward=lambda *_: 1 / 0), ([1], [2]), 1, "cpu")


class Errors(unittest.TestCase):
    def test_are_of_three_kinds(self):
        self.assertEqual(torch_peer.explain(ModuleNotFoundError("No module named 'deepspeed'"))[0], "absent")
        self.assertEqual(torch_peer.explain(RuntimeError("CUDA error: out of memory"))[0], "does not fit")
        self.assertEqual(torch_peer.explain(MemoryError())[0], "does not fit")
        self.assertEqual(torch_peer.explain(ValueError("x")), ("failed", "ValueError: x"))


if __name__ == "__main__":
    unittest.main()
