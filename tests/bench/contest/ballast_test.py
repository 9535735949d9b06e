"""Holding all of a card but so much, over a card of numbers."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

FOLDER = Path(__file__).resolve().parents[3] / "bench" / "contest"
sys.path.insert(0, str(FOLDER))
import ballast  # noqa: E402
import peers  # noqa: E402

MIB, GIB = 1 << 20, 1 << 30


class Card:
    """`extra`: what the driver takes beside each piece."""

    def __init__(self, free, extra=0, largest=None):
        self.free, self.extra, self.largest, self.pieces, self.next = free, extra, largest, {}, 1

    def free_bytes(self):
        return self.free

    def allocate(self, size):
        if size + self.extra > self.free or (self.largest and size > self.largest):
            return None
        self.next += 1
        self.pieces[self.next] = size
        self.free -= size + self.extra
        return self.next

    def release(self, address):
        self.free += self.pieces.pop(address) + self.extra


class Adjust(unittest.TestCase):
    def assert_leaves(self, card, pieces, leave):
        found = ballast.adjust(card, pieces, leave)
        self.assertEqual(found["free"], card.free)
        self.assertGreaterEqual(card.free, leave)
        self.assertLess(card.free, leave + ballast.GRANULE + card.extra)
        self.assertEqual(found["held"], sum(card.pieces.values()))

    def test_leaves_the_bytes_and_less_than_a_granule(self):
        self.assert_leaves(Card(79 * GIB + 123), [], 12 * GIB)
        self.assert_leaves(Card(79 * GIB, extra=3 * MIB), [], 24 * GIB + 1)

    def test_takes_smaller_pieces_where_there_is_no_large_one(self):
        self.assert_leaves(Card(3 * GIB, largest=300 * MIB), [], 1 * GIB)

    def test_gives_back_what_others_have_taken_since(self):
        card, pieces = Card(20 * GIB), []
        self.assert_leaves(card, pieces, 8 * GIB)
        card.free -= 700 * MIB
        self.assert_leaves(card, pieces, 8 * GIB)
        card.free += 700 * MIB
        self.assert_leaves(card, pieces, 8 * GIB)

    def test_says_so_where_the_card_has_less(self):
        self.assertEqual(ballast.adjust(Card(5 * GIB), [], 8 * GIB), {"free": 5 * GIB, "held": 0})


@unittest.skipUnless(os.environ.get("STOWAGE_FAKE_DRIVER"), "no fake of the driver is built")
class OverTheFakeDriver(unittest.TestCase):
    """The fake is compiled against CUDA's own header, so that names and arguments are the driver's."""

    def setUp(self):
        self.before = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = os.environ["STOWAGE_FAKE_DRIVER"]

    def tearDown(self):
        os.environ.pop("LD_LIBRARY_PATH")
        if self.before is not None:
            os.environ["LD_LIBRARY_PATH"] = self.before

    def test_leaves_what_it_is_told_each_time(self):
        with ballast.Ballast(300 * MIB) as held:
            found = [held.adjust(), held.adjust()]
        self.assertEqual(found[0], found[1])
        self.assertTrue(300 * MIB <= found[0]["free"] < 302 * MIB, found)
        self.assertGreater(found[0]["held"], GIB)

    def test_a_ballast_that_has_ended_says_so(self):
        held = ballast.Ballast(300 * MIB)
        held.process.kill()
        held.process.wait()
        self.assertIn("the ballast ended", held.adjust()["error"])
        held.__exit__()


class Refusals(unittest.TestCase):
    def driver(self, code):
        """A Driver over a library whose functions return `code`."""
        driver = ballast.Driver.__new__(ballast.Driver)
        driver.library = mock.Mock(**{"cuMemAlloc_v2.return_value": code, "cuMemFree_v2.return_value": code})
        return driver

    def test_memory_that_is_short_is_no_error_and_all_else_is(self):
        self.assertIsNone(self.driver(2).allocate(5))
        with self.assertRaisesRegex(OSError, "cuMemAlloc_v2 returned 700"):
            self.driver(700).allocate(5)
        with self.assertRaisesRegex(OSError, "cuMemFree_v2 returned 2"):
            self.driver(2).release(5)


class OfPeers(unittest.TestCase):
    """What a ballast says, a line for each request, as peers take it. It ends after its last line."""

    def hold(self, *lines, case=mock.Mock(memory=8 * GIB)):
        script = "import sys\n" + "".join(f"print({json.dumps(line)!r}, flush=True); sys.stdin.readline()\n" for line in lines)
        held = peers.Peers(None, None, "cuda", None, None, 0)
        self.addCleanup(held.close)
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(peers, "SETTLE_SECONDS", 0.05):
            program = Path(folder) / "ballast.py"
            program.write_text(script, encoding="utf-8")
            with mock.patch.object(ballast, "__file__", str(program)):
                try:
                    return held.hold_the_rest(case), held
                except peers.PrepareError as error:
                    return str(error), held

    def test_the_case_has_its_bytes_and_at_most_two_granules_more(self):
        for free, words in ((8 * GIB, None), (8 * GIB + 4 * MIB, None), (8 * GIB + 4 * MIB + 1, "leaves"), (GIB, "only")):
            found, _ = self.hold(*[{"free": free, "held": GIB}] * 2)
            self.assertEqual(found, free) if words is None else self.assertRegex(found, words)

    def test_the_first_error_is_told_and_the_ballast_dropped(self):
        for lines in ([{"error": "cuInit returned 999"}], [{"free": GIB, "held": 1}, {"error": "cuInit returned 999"}]):
            found, held = self.hold(*lines)
            self.assertEqual(found, "no ballast holds the rest of the card: cuInit returned 999")
            self.assertEqual((held.ballast, held.ballast_bytes), (None, 0))

    def test_the_whole_card_has_no_ballast(self):
        nvml = mock.Mock(**{"memory.return_value": {"free": 140 * GIB}})
        held = peers.Peers(None, None, "cuda", nvml, None, 0)
        held.ballast, held.ballast_bytes = before = mock.MagicMock(), 8 * GIB
        self.assertEqual(held.hold_the_rest(mock.Mock(gib="whole", memory=None)), 140 * GIB)
        before[0].__exit__.assert_called_once()
        self.assertEqual((held.ballast, held.ballast_bytes), (None, 0))

    def test_one_that_has_died_ends_quietly(self):
        with mock.patch.object(ballast.sys, "executable", "false"):
            held = ballast.Ballast(5)
        held.process.wait()
        held.process.stdin.write("\n")  # which closing will find that nobody reads
        held.__exit__()


class Program(unittest.TestCase):
    def test_says_that_there_is_no_driver(self):
        program = (
            f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import ballast\n"
            "ballast.Driver.__init__.__defaults__ = ('libno-driver.so', 0)\nsys.argv = ['ballast', '5']\nsys.exit(ballast.main())"
        )
        done = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("libno-driver.so", json.loads(done.stdout)["error"])

    def test_refuses_what_is_no_number(self):
        done = subprocess.run(
            [sys.executable, "-B", FOLDER / "ballast.py", "much"], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
