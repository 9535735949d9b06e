"""Running programs under a deadline, with every word kept."""

import io
import sys
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "gpu_check"))
import runner  # noqa: E402


class Running(unittest.TestCase):
    def setUp(self):
        self.log = io.StringIO()
        self.runner = runner.Runner(self.log, time.monotonic() + 60)

    def test_keeps_every_word(self):
        done = self.runner.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
        self.assertEqual((done["code"], done["output"], done["errors"]), (7, "out\n", "err\n"))
        for words in ("$ sh -c", "out\n", "err\n", "[code 7"):
            self.assertIn(words, self.log.getvalue())

    def test_adds_to_the_environment(self):
        done = self.runner.run(["sh", "-c", "echo $STOWAGE_X$HWLOC_COMPONENTS"], environment={"STOWAGE_X": "set"})
        self.assertEqual(done["output"], "set-gl,-opencl\n")
        self.assertIn("$ STOWAGE_X=set sh", self.log.getvalue())

    def test_a_program_of_others_has_their_surroundings(self):
        done = self.runner.run(["sh", "-c", "echo ${HWLOC_COMPONENTS-unset}"], surrounded=False)
        self.assertEqual(done["output"], "unset\n")

    def test_stops_a_program_that_takes_too_long_and_what_it_started(self):
        done = self.runner.run(["sh", "-c", "echo begun; (sleep 3; echo late) & sleep 50"], most_seconds=1)
        self.assertIsNone(done["code"])
        self.assertEqual(done["output"], "begun\n")
        self.assertIn("stopped after 1 s", done["errors"])

    def test_asks_a_program_to_end_before_it_is_made_to(self):
        done = self.runner.run(["sh", "-c", "trap 'echo asked; exit 3' TERM; echo begun; while true; do sleep 0.05; done"], 1)
        self.assertEqual((done["code"], done["output"]), (None, "begun\nasked\n"))

    def test_makes_one_end_that_does_not_listen(self):
        with mock.patch.object(runner, "GRACE_SECONDS", 0.2):
            done = self.runner.run(["sh", "-c", "trap '' TERM; echo begun; while true; do sleep 0.05; done"], 1)
        self.assertEqual((done["code"], done["output"]), (None, "begun\n"))

    def test_a_program_that_is_not_there(self):
        self.assertEqual(self.runner.run(["/nowhere/x"])["code"], 127)

    def test_cuts_what_is_too_long_for_a_log(self):
        self.assertEqual(runner.shortened("abcdefghij", 10), "abcdefghij")
        self.assertEqual(runner.shortened("abcdefghijk", 4), "ab\n[7 characters left out]\njk")


if __name__ == "__main__":
    unittest.main()
