"""What travels: small, complete, and for machines as old as Debian 12."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import archive

sys.path.insert(0, str(archive.ROOT / "bench" / "gpu_check"))
import smoke  # noqa: E402

LARGEST = 45_000_000  # bytes
NEWEST = {"GLIBC": (2, 36), "GLIBCXX": (3, 4, 30)}
CUDA = os.environ.get("STOWAGE_CUDA_LIBRARIES", "")  # empty: built without the CUDA backend
FROM_THE_MACHINE = re.compile(r"^(linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|resolv|util)[.-]|lib(cuda|cublas|cudnn|nv))")


def output(*command, **environment):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True,
                          env={**os.environ, **environment}).stdout


def versions(symbols):
    """(library, numbers) of every versioned symbol that `objdump -T` lists as undefined."""
    for line in symbols.splitlines():
        found = re.search(r"\*UND\*.*\((GLIBC|GLIBCXX)_([0-9.]+)\)", line)
        if found:
            yield found[1], tuple(int(n) for n in found[2].split("."))


class Archive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        archive.make()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.tree = archive.unpack(folder.name)
        cls.files = smoke.elf_files(cls.tree)

    def test_is_small(self):
        self.assertLessEqual(archive.ARCHIVE.stat().st_size, LARGEST)

    def test_has_what_runs_and_nothing_to_build_with(self):
        wanted = ["bin/stowage", "bin/train_gpt", "bin/train_bert", "checks/gpu_check.py", "checks/train_shape",
                  "checks/tests.json", "checks/pytorch/train_loop.py", "checks/pytorch/allocators.py"]
        if CUDA:
            wanted += ["lib/libstowage_allocator.so", "lib/stowage/libstowage_cuda.so", "lib/stowage/libstowage_preload.so",
                       "checks/cuda_kernels_test"]
        for name in wanted:
            self.assertTrue((self.tree / name).is_file(), name)
        for path in self.tree.rglob("*"):
            self.assertNotRegex(path.name, r"(\.(h|a|cmake|pyc)|compute-sanitizer)$")

    def test_is_stripped(self):
        for file in self.files:
            self.assertNotRegex(output("readelf", "-SW", file), r" \.(symtab|debug_info) ", file.name)

    def test_runs_on_debian_12(self):
        seen = 0
        for file in self.files:
            for library, numbers in versions(output("objdump", "-T", file)):
                seen += 1
                self.assertLessEqual(numbers, NEWEST[library], f"{file.name} needs {library}_{numbers}")
        self.assertGreater(seen, 100)

    def test_everything_resolves(self):
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": f"{self.tree / 'lib'}:{CUDA}"}
        self.assertEqual({f.name: lines for f in self.files if (lines := smoke.unresolved(f, environment))}, {})

    @unittest.skipUnless(CUDA, "built without the CUDA backend")
    def test_a_library_without_the_symbols_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "libfmt.so.9").symlink_to(self.tree / "lib" / "libtbb.so.12")
            environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": f"{folder}:{CUDA}"}
            found = smoke.unresolved(self.tree / "lib" / "libstowage_allocator.so", environment)
        self.assertIn("undefined symbol", found[0])

    def assert_brings_its_libraries(self, file, **environment):
        listed = output("ldd", file, **environment)
        self.assertIn("libfmt", listed)
        for line in listed.splitlines():
            name, path = line.split()[0], line.partition("=> ")[2].partition(" (")[0]
            if not FROM_THE_MACHINE.match(name.rpartition("/")[2]):
                inside = Path(path).resolve().is_relative_to(self.tree.resolve())
                self.assertTrue(inside, f"{file.name} takes {name} from {path}")

    def test_programs_bring_their_libraries(self):
        for program in [*(self.tree / "bin").iterdir(), self.tree / "checks" / "train_shape"]:
            self.assert_brings_its_libraries(program)

    @unittest.skipUnless(CUDA, "built without the CUDA backend")
    def test_a_program_of_others_can_load_the_allocator_and_its_backend(self):
        # Not so without the folder: libraries that were bundled have no search path for those beside them.
        for name in ("libstowage_allocator.so", "stowage/libstowage_cuda.so"):
            self.assert_brings_its_libraries(self.tree / "lib" / name, LD_LIBRARY_PATH=f"{self.tree / 'lib'}:{CUDA}")


if __name__ == "__main__":
    unittest.main()
