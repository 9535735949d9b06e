"""Finding CUDA's libraries, and running programs under a deadline."""

import io
import re
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "gpu_check"))
import programs  # noqa: E402
import stages  # noqa: E402


class Libraries(unittest.TestCase):
    def test_finds_what_python_packages_brought(self):
        with tempfile.TemporaryDirectory() as root:
            for folder in ("nvidia/cublas/lib", "nvidia/cudnn/lib", "nvidia/cu13/lib64", "torch/lib", "nvidia/x/include"):
                (Path(root) / folder).mkdir(parents=True)
            found = [Path(f).relative_to(root).as_posix() for f in programs.cuda_library_folders([root, root])]
        self.assertEqual(found, ["nvidia/cublas/lib", "nvidia/cudnn/lib", "nvidia/cu13/lib64", "torch/lib"])

    def test_finds_nothing_where_there_is_nothing(self):
        self.assertEqual(programs.cuda_library_folders(["/nowhere"]), [])

    def test_given_folders_come_first(self):
        self.assertTrue(programs.surroundings(["/tree/lib"])["LD_LIBRARY_PATH"].startswith("/tree/lib"))


class Running(unittest.TestCase):
    def setUp(self):
        self.log = io.StringIO()
        self.runner = programs.Runner(self.log, time.monotonic() + 60)

    def test_keeps_every_word(self):
        done = self.runner.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
        self.assertEqual((done["code"], done["output"], done["errors"]), (7, "out\n", "err\n"))
        for words in ("$ sh -c", "out\n", "err\n", "[code 7"):
            self.assertIn(words, self.log.getvalue())

    def test_adds_to_the_environment(self):
        done = self.runner.run(["sh", "-c", "echo $STOWAGE_X$HWLOC_COMPONENTS"], environment={"STOWAGE_X": "set"})
        self.assertTrue(done["output"].startswith("set"))
        self.assertIn("$ STOWAGE_X=set sh", self.log.getvalue())

    def test_stops_a_program_that_takes_too_long(self):
        done = self.runner.run(["sh", "-c", "echo begun; exec sleep 50"], most_seconds=1)
        self.assertIsNone(done["code"])
        self.assertIn("begun", done["output"])
        self.assertIn("stopped after 1 s", done["errors"])

    def test_a_program_that_is_not_there(self):
        self.assertEqual(self.runner.run(["/nowhere/x"])["code"], 127)

    def test_reads_lines_of_json_among_others(self):
        done = self.runner.run(["printf", r'{"kind":"setup","a":1}\nnoise\n{"kind":"step","step":0}\n{"kind":"step"}\n'])
        found = stages.setup_of(done)
        self.assertEqual(found["setup"]["a"], 1)
        self.assertEqual(len(found["steps"]), 2)

    def test_reads_what_train_gpt_prints(self):
        text = "need          2.65 MiB (27 bytes) with\n  in each     1 KiB (5 bytes) for\nminimum       1 KiB (9 bytes), 18%\nx (1 bytes)\n"
        self.assertEqual(stages.printed_bytes(text), {"need": 27, "minimum": 9})

    def test_finds_cudnn(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(programs.cudnn_library({"LD_LIBRARY_PATH": folder}))
            library = Path(folder) / "libcudnn.so.9"
            library.touch()
            self.assertEqual(programs.cudnn_library({"LD_LIBRARY_PATH": "/nowhere:" + folder}), str(library))
            self.assertEqual(programs.cudnn_library({"LD_LIBRARY_PATH": folder, "STOWAGE_CUDNN": "off"}), "off")

    def test_counts_tests(self):
        report = {"testsuites": [{"name": "S", "testsuite": [
            {"name": "a", "result": "COMPLETED"}, {"name": "b", "result": "SKIPPED"},
            {"name": "c", "result": "COMPLETED", "failures": [{}]}, {"name": "d", "result": "SUPPRESSED"}]}]}
        self.assertEqual(stages.count_tests(report), {"passed": 1, "failed": 1, "skipped": 1, "failures": ["S.c"]})


class Installed(unittest.TestCase):
    def test_every_gpu_test_is_installed(self):
        root = Path(__file__).resolve().parents[3]
        installed = (root / "cmake" / "StowageRelocatable.cmake").read_text(encoding="utf-8")
        named = set()
        for path in (root / "tests").rglob("CMakeLists.txt"):
            text = path.read_text(encoding="utf-8")
            named |= set(re.findall(r"gtest_discover_tests\((\w+) TEST_PREFIX gpu\.", text))
            named |= set(re.findall(r"stowage_test\((\w+)[^)]*LABELS[^)]*\bgpu\b", text))
        self.assertTrue(named)
        for name in sorted(named):
            self.assertRegex(installed, rf"foreach\(test [^)]*\b{name}\b", "gpu_check would not run this one")


if __name__ == "__main__":
    unittest.main()
