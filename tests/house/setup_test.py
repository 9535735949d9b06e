"""scripts/setup against a pretended apt: what it installs, and what it says where it cannot."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SETUP = Path(__file__).resolve().parents[2] / "scripts/setup"

# `installed` and `archive` hold package names, one per line; `calls` receives what apt-get was asked.
DPKG_QUERY = '''
for last; do :; done
if grep -qx "$last" "$STATE/installed"; then echo installed; else exit 1; fi
'''
APT_CACHE = 'for last; do :; done; if grep -qx "$last" "$STATE/archive"; then echo "Package: $last"; fi\n'
APT_GET = '''
echo "$*" >>"$STATE/calls"
case $1 in
  update) cp "$STATE/archive_after_update" "$STATE/archive" ;;
  install)
    shift
    for word; do
      case $word in
        -*) ;;
        *) grep -qx "$word" "$STATE/archive" || exit 100; echo "$word" >>"$STATE/installed" ;;
      esac
    done ;;
esac
'''


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.state = Path(folder.name)
        self.programs = self.state / "bin"
        self.programs.mkdir()
        for tool in ("bash", "grep", "cp"):
            path = subprocess.run(["which", tool], capture_output=True, text=True, check=True).stdout.strip()
            (self.programs / tool).symlink_to(path)
        # Root or not, the script ends in the same commands.
        self.program("sudo", 'shift; while [[ $1 == *=* ]]; do shift; done; exec "$@"\n')
        self.write("calls", [])
        self.write("installed", [])

    def program(self, name, body):
        path = self.programs / name
        path.write_text(f"#!{self.programs / 'bash'}\n{body}", encoding="utf-8")
        path.chmod(0o755)

    def write(self, name, lines):
        (self.state / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    def lines(self, name):
        return (self.state / name).read_text(encoding="utf-8").splitlines()

    def pretend_apt(self, installed, archive, after_update=None):
        self.program("dpkg-query", DPKG_QUERY)
        self.program("apt-cache", APT_CACHE)
        self.program("apt-get", APT_GET)
        self.write("installed", installed)
        self.write("archive", archive)
        self.write("archive_after_update", archive if after_update is None else after_update)

    def run_setup(self, *arguments):
        environment = {"PATH": str(self.programs), "STATE": str(self.state), "CUDA_PATH": str(self.state / "cuda")}
        return subprocess.run([str(self.programs / "bash"), str(SETUP), *arguments], cwd=self.state, text=True,
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def needed(self):
        """The packages that setup wants, as it names them where there is no apt."""
        text = self.run_setup().stdout
        return text[text.rindex(": ") + 2:].split()

    def installs(self):
        return [call.split() for call in self.lines("calls") if call.startswith("install")]

    def test_says_what_to_do_where_there_is_no_apt(self):
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertIn("there is no apt here", result.stdout)
        for package in ("g++", "cmake", "libdnnl-dev", "libtbb-dev", "bible-kjv"):
            self.assertIn(package, self.needed())

    def test_installs_what_is_missing_and_nothing_else(self):
        needed = self.needed()
        self.pretend_apt(installed=[p for p in needed if p not in ("ninja-build", "libdnnl-dev")], archive=needed)
        result = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stdout)
        packages = [word for word in self.installs()[0][1:] if not word.startswith("-")]
        self.assertEqual(packages, ["ninja-build", "libdnnl-dev"])
        self.assertIn("installing ninja-build libdnnl-dev", result.stdout)

    def test_does_nothing_the_second_time(self):
        self.pretend_apt(installed=[], archive=self.needed())
        self.assertEqual(self.run_setup().returncode, 0)
        self.assertEqual(len(self.installs()), 1)
        again = self.run_setup()
        self.assertEqual(again.returncode, 0)
        self.assertEqual(len(self.lines("calls")), 1)
        self.assertIn("nothing to install", again.stdout)

    def test_refreshes_the_lists_only_where_they_lack_a_package(self):
        needed = self.needed()
        self.pretend_apt(installed=[], archive=[], after_update=needed)
        self.assertEqual(self.run_setup().returncode, 0)
        self.assertEqual([call.split()[0] for call in self.lines("calls")], ["update", "install"])

    def test_fails_where_the_archive_lacks_a_package(self):
        self.pretend_apt(installed=[], archive=[])
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertIn("could not install", result.stdout)

    def test_lint_adds_clang_in_the_newest_version_there_is(self):
        needed = self.needed()
        self.pretend_apt(installed=needed, archive=["clang-format", "clang-tidy", "clang-tidy-22", "clang-22", "libclang-rt-22-dev", "lld-22"])
        self.assertEqual(self.run_setup("--lint").returncode, 0)
        self.assertEqual(self.installs()[0][-5:], ["clang-tidy-22", "clang-format", "clang-22", "libclang-rt-22-dev", "lld-22"])
        self.pretend_apt(installed=needed, archive=["clang-format", "clang-tidy", "clang", "libclang-rt-dev", "lld"])
        self.assertEqual(self.run_setup("--lint").returncode, 0)
        self.assertEqual(self.installs()[1][-5:], ["clang-tidy", "clang-format", "clang", "libclang-rt-dev", "lld"])

    def test_for_training_installs_no_more_than_that_needs(self):
        needed = self.needed()
        self.pretend_apt(installed=[], archive=needed)
        copy = self.pretend_cuda()
        self.assertEqual(self.run_copy(copy, "--train").returncode, 0)
        (call,) = self.lines("calls")
        packages = set(call.split())
        self.assertLess({"g++", "cmake", "ninja-build", "libdnnl-dev", "libtbb-dev", "bible-kjv"}, packages)
        self.assertFalse(packages & {"git", "python3", "ccache", "libgtest-dev", "libopenmpi-dev", "libbenchmark-dev"})

    def pretend_cuda(self):
        for name in ("bin/nvcc", "include/cudnn.h"):
            path = self.state / "cuda" / name
            path.parent.mkdir(parents=True)
            path.touch(mode=0o755)
        copy = self.state / "scripts/setup"
        copy.parent.mkdir()
        copy.write_text(SETUP.read_text(encoding="utf-8"), encoding="utf-8")
        dirname = subprocess.run(["which", "dirname"], capture_output=True, text=True, check=True).stdout.strip()
        (self.programs / "dirname").symlink_to(dirname)
        return copy

    def run_copy(self, copy, *arguments):
        environment = {"PATH": str(self.programs), "STATE": str(self.state), "CUDA_PATH": str(self.state / "cuda")}
        return subprocess.run([str(self.programs / "bash"), str(copy), *arguments], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def test_brings_the_attention_headers_where_there_is_cuda(self):
        self.pretend_apt(installed=self.needed(), archive=[])
        copy = self.pretend_cuda()
        self.program("python3", '[[ $3 == --version ]] || echo "$*" >>"$STATE/calls"\n')
        result = self.run_copy(copy)
        self.assertEqual(result.returncode, 0, result.stdout)
        (call,) = self.lines("calls")
        folder = self.state / "build/python/cudnn-frontend"
        self.assertIn("${PROJECT_SOURCE_DIR}/build/python/cudnn-frontend",
                      (SETUP.parent.parent / "kernels/cuda/CMakeLists.txt").read_text(encoding="utf-8"))
        self.assertRegex(call, rf"-m pip install .*--target {folder} nvidia-cudnn-frontend==[0-9.]+$")
        headers = folder / "include/cudnn_frontend.h"
        headers.parent.mkdir(parents=True)
        headers.touch()
        self.assertEqual(self.run_copy(copy).returncode, 0)
        self.assertEqual(len(self.lines("calls")), 1)

    def test_goes_on_without_the_attention_headers(self):
        self.pretend_apt(installed=self.needed(), archive=[])
        copy = self.pretend_cuda()
        self.program("python3", "[[ $3 == --version ]]\n")
        result = self.run_copy(copy)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(self.installs(), [])
        self.assertIn("without cuDNN's attention", result.stdout)

    def test_installs_pip_for_the_attention_headers(self):
        self.pretend_apt(installed=self.needed(), archive=["python3-pip"])
        copy = self.pretend_cuda()
        self.program("python3", 'grep -qx python3-pip "$STATE/installed" || exit 1\n'
                                '[[ $3 == --version ]] || echo "$*" >>"$STATE/calls"\n')
        result = self.run_copy(copy)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(self.installs()[0][-1], "python3-pip")
        self.assertIn("--target", self.lines("calls")[-1])

    def test_refuses_an_argument_it_does_not_know(self):
        result = self.run_setup("--frobnicate")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--frobnicate", result.stdout)


if __name__ == "__main__":
    unittest.main()
