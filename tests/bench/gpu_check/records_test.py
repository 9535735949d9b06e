"""What a run leaves behind, whenever it ends, and putting runs together."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "gpu_check"))
import records  # noqa: E402

RUN = {"commit": "abc", "device": "cuda", "small": False, "card_name": "H100", "card": True, "speed": True}


class Records(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folders = [Path(folder.name) / name for name in "ab"]
        for path in self.folders:
            path.mkdir()

    def run_of(self, folder, asked, results, end=None, **changes):
        record = records.begin(folder, {**RUN, "asked": asked, **changes})
        for name, result in results.items():
            record.write("stage", name=name, seconds=1.0, result=result)
        if end is not None:
            record.write("end", seconds=end, summary={}, verdicts=[])
        record.close()

    def test_each_line_is_there_before_the_next_stage(self):
        record = records.begin(self.folders[0], {**RUN, "asked": ["gpt2", "bert"]})
        record.write("stage", name="gpt2", seconds=1.0, result={"x": 1})
        found = records.merged([self.folders[0]])  # while the run goes on
        self.assertEqual(found["stages"], {"gpt2": {"x": 1}})
        self.assertEqual([run["seconds"] for run in found["runs"]], [None])
        record.close()

    def test_runs_of_several_folders_are_one_result(self):
        self.run_of(self.folders[0], ["gpt2", "bert"], {"gpt2": {"x": 1}, "bert": {"y": 1}}, end=10.0)
        self.run_of(self.folders[1], ["bert", "large"], {"bert": {"y": 2}}, end=20.0)
        found = records.merged(self.folders)
        self.assertEqual(found["stages"], {"gpt2": {"x": 1}, "bert": {"y": 2}})
        self.assertEqual(found["asked"], ["gpt2", "bert", "large"])
        self.assertEqual([run["seconds"] for run in found["runs"]], [10.0, 20.0])

    def test_a_later_run_adds_to_a_folder(self):
        self.run_of(self.folders[0], ["gpt2"], {"gpt2": {"x": 1}}, end=10.0)
        self.run_of(self.folders[0], ["bert"], {"bert": {"y": 1}}, end=20.0)
        self.assertEqual(set(records.merged(self.folders[:1])["stages"]), {"gpt2", "bert"})

    def test_what_was_skipped_replaces_nothing(self):
        self.run_of(self.folders[0], ["contest"], {"contest": {"code": 0}})
        self.run_of(self.folders[1], ["contest"], {"contest": {"skipped": "no time"}})
        self.assertEqual(records.merged(self.folders)["stages"]["contest"], {"code": 0})
        self.assertEqual(records.merged(self.folders[::-1])["stages"]["contest"], {"code": 0})

    def test_a_line_that_was_cut_off_is_lost_and_no_other(self):
        self.run_of(self.folders[0], ["gpt2", "bert"], {"gpt2": {"x": 1}})
        with open(self.folders[0] / records.NAME, "a", encoding="utf-8") as file:
            file.write('{"kind": "stage", "name": "bert", "resu')
        self.assertEqual(records.merged(self.folders[:1])["stages"], {"gpt2": {"x": 1}})
        self.run_of(self.folders[0], ["bert"], {"bert": {"y": 1}})
        self.assertEqual(records.merged(self.folders[:1])["stages"], {"gpt2": {"x": 1}, "bert": {"y": 1}})

    def test_runs_of_different_builds_or_cards_are_refused(self):
        self.run_of(self.folders[0], ["gpt2"], {})
        for changes in ({"commit": "def"}, {"card_name": "H200"}, {"small": True}, {"device": "cuda:1"}):
            with self.assertRaisesRegex(ValueError, next(iter(changes))):
                self.run_of(self.folders[0], ["gpt2"], {}, **changes)
        self.assertEqual(len(records.merged(self.folders[:1])["runs"]), 1)
        self.run_of(self.folders[1], ["gpt2"], {}, commit="def")
        with self.assertRaisesRegex(ValueError, "commit is 'def', and 'abc' of another run"):
            records.merged(self.folders)

    def test_no_run(self):
        with self.assertRaises(OSError):
            records.merged(self.folders)
        (self.folders[0] / records.NAME).write_text("[]\n")
        with self.assertRaises(TypeError):
            records.merged(self.folders[:1])


if __name__ == "__main__":
    unittest.main()
