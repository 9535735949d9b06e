"""Programs under a limit: what they leave, and what they took."""

import os
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "contest"))
import watch  # noqa: E402


def is_running(pid):
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False


class FakeCard:
    def __init__(self):
        self.used = [100, 100, 700, 400]

    def memory(self):
        return {"used": self.used.pop(0) if len(self.used) > 1 else self.used[0]}

    def used_by(self, pid):
        return 5 if pid else None


class Run(unittest.TestCase):
    def test_keeps_what_a_program_says_and_how_it_ends(self):
        done = watch.run(["sh", "-c", "echo out; echo err >&2; exit 7"], 20)
        self.assertEqual(
            (done["code"], done["stopped"], done["output"], done["errors"]), (7, False, ["out\n"], "err\n")
        )

    def test_adds_to_the_environment(self):
        self.assertEqual(watch.run(["sh", "-c", "echo $A"], 20, {"A": "set"})["output"], ["set\n"])

    def test_asks_before_it_ends_a_program(self):
        done = watch.run(["sh", "-c", "trap 'echo asked; exit 3' TERM; echo begun; while true; do sleep 0.05; done"], 4)
        self.assertEqual((done["code"], done["stopped"], done["output"]), (3, True, ["begun\n", "asked\n"]))

    def test_ends_one_that_does_not_listen_and_what_it_started(self):
        script = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; while true; do sleep 0.05; done' & wait; wait"
        done = watch.run(["sh", "-c", script], 2)
        self.assertEqual((done["code"], done["stopped"]), (-9, True))
        self.assert_ends(int(done["output"][0]))

    def assert_ends(self, pid):
        for _ in range(100):
            if not is_running(pid):
                return
            time.sleep(0.05)
        self.fail("its child still runs")

    def test_ends_what_a_program_leaves_behind(self):
        done = watch.run(["sh", "-c", "sleep 60 & echo $!"], 20)
        self.assertEqual((done["code"], done["stopped"]), (0, False))
        self.assert_ends(int(done["output"][0]))

    def test_a_program_that_is_not_there(self):
        done = watch.run(["/nowhere/x"], 1)
        self.assertEqual(done["code"], 127)
        self.assertIn("/nowhere/x", done["errors"])

    def test_bytes_that_are_no_text(self):
        self.assertEqual(watch.run(["printf", r"\377\n"], 20)["output"], ["\ufffd\n"])

    def test_keeps_the_end_of_many_errors(self):
        done = watch.run(
            [sys.executable, "-c", "import sys\nfor i in range(20000): print('line', i, file=sys.stderr)"], 20
        )
        self.assertTrue(done["errors"].endswith("line 19999\n"))
        self.assertEqual(len(done["errors"]), watch.MOST_ERRORS)


class Together(unittest.TestCase):
    def test_the_highest_of_both_and_the_end_of_the_second(self):
        before = {"code": 0, "seconds": 2.0, "peaks": {"card_used": 9, "host_resident": 1}}
        after = {"code": 3, "seconds": 3.0, "peaks": {"card_used": 5, "device_bytes": 2}}
        peaks = {"card_used": 9, "host_resident": 1, "device_bytes": 2}
        self.assertEqual(watch.together(before, after), {"code": 3, "seconds": 5.0, "peaks": peaks})


class Watching(unittest.TestCase):
    def test_sees_the_memory_that_a_program_takes(self):
        program = "data = bytearray(64 << 20)\ndata[::4096] = b'x' * len(data[::4096])\nimport time; time.sleep(0.5)"
        self.assertGreater(watch.run([sys.executable, "-c", program], 20)["peaks"]["host_resident"], 64 << 20)

    def test_keeps_the_highest_of_the_card(self):
        peaks = watch.Peaks(os.getpid(), FakeCard())
        for _ in range(3):
            peaks.sample()
        found = peaks.found
        self.assertEqual((found["card_used"], found["device_bytes"], found["process_device_bytes"]), (700, 600, 5))

    def test_what_cannot_be_known_is_left_out(self):
        peaks = watch.Peaks(2**22 + 1, None)  # no process has this number
        peaks.sample()
        self.assertNotIn("host_resident", peaks.found)
        self.assertNotIn("card_used", peaks.found)


if __name__ == "__main__":
    unittest.main()
