"""Finding CUDA's libraries, and the programs of the tree."""

import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "gpu_check"))
import programs  # noqa: E402


class Libraries(unittest.TestCase):
    def test_finds_what_python_packages_brought(self):
        with tempfile.TemporaryDirectory() as root:
            for folder in ("nvidia/cublas/lib", "nvidia/cudnn/lib", "nvidia/cu13/lib64", "torch/lib", "nvidia/x/include"):
                (Path(root) / folder).mkdir(parents=True)
            found = [Path(f).relative_to(root).as_posix() for f in programs.cuda_library_folders([root, root])]
        self.assertEqual(found, ["nvidia/cublas/lib", "nvidia/cudnn/lib", "nvidia/cu13/lib64", "torch/lib"])

    def test_finds_the_wheels_of_cuda_13(self):
        # As cuda-toolkit 13.0 and nvidia-cudnn-cu13 9.19 install them.
        with tempfile.TemporaryDirectory() as root:
            for name in ("cu13/lib/libcudart.so.13", "cu13/lib/libcublasLt.so.13", "cu13/include/cuda.h",
                         "cudnn/lib/libcudnn.so.9"):
                (Path(root) / "nvidia" / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(root) / "nvidia" / name).touch()
            found = programs.cuda_library_folders([root])
            self.assertEqual([Path(f).relative_to(root).as_posix() for f in found], ["nvidia/cu13/lib", "nvidia/cudnn/lib"])
            self.assertEqual(programs.cudnn_library({"LD_LIBRARY_PATH": ":".join(found)}),
                             str(Path(root) / "nvidia/cudnn/lib/libcudnn.so.9"))

    def test_finds_nothing_where_there_is_nothing(self):
        self.assertEqual(programs.cuda_library_folders(["/nowhere"]), [])

    def test_given_folders_come_first(self):
        self.assertTrue(programs.surroundings(["/tree/lib"])["LD_LIBRARY_PATH"].startswith("/tree/lib"))


class Cudnn(unittest.TestCase):
    def test_finds_cudnn(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(programs.cudnn_library({"LD_LIBRARY_PATH": folder}))
            library = Path(folder) / "libcudnn.so.9"
            library.touch()
            self.assertEqual(programs.cudnn_library({"LD_LIBRARY_PATH": "/nowhere:" + folder}), str(library))
            self.assertEqual(programs.cudnn_library({"LD_LIBRARY_PATH": folder, "STOWAGE_CUDNN": "/x/libcudnn.so"}), "/x/libcudnn.so")


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
