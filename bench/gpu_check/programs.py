"""The unpacked tree that gpu_check runs from: its programs, and the CUDA libraries that they need."""

import json
import os
import site
import sys
from pathlib import Path


def cuda_library_folders(roots=None):
    """Folders with CUDA's libraries that Python packages brought: nvidia/cu13/lib and nvidia/cudnn/lib of CUDA 13's
    wheels, nvidia/*/lib of older ones, torch/lib."""
    if roots is None:
        roots = [*sys.path, *site.getsitepackages(), site.getusersitepackages()]
    folders = []
    for root in dict.fromkeys(str(r) for r in roots if r):
        for pattern in ("nvidia/*/lib", "nvidia/*/lib64", "torch/lib"):
            folders += [str(f) for f in sorted(Path(root).glob(pattern)) if f.is_dir()]
    return list(dict.fromkeys(folders))


class Programs:
    """Where everything stands. By default this file is in <prefix>/checks of an unpacked tree."""

    def __init__(self, here, stowage=None, train_shape=None, tests=None):
        self.checks = Path(here)
        self.prefix = self.checks.parent
        self.stowage = Path(stowage or self.prefix / "bin" / "stowage")
        self.train_shape = Path(train_shape or self.checks / "train_shape")
        self.train_gpt = self.stowage.parent / "train_gpt"
        self.tests = Path(tests or self.checks / "tests.json")
        self.allocator = self.prefix / "lib" / "libstowage_allocator.so"
        self.libraries = [folder for folder in (self.prefix / "lib",) if folder.is_dir()]
        for program in (self.stowage, self.train_shape):
            if not program.is_file():
                print(f"gpu_check: {program} is not there: make the tree with bench/gpu_check/make_tree, "
                      "or name it by --stowage and --train-shape", file=sys.stderr)
                raise SystemExit(2)

    def commit(self):
        file = self.checks / "commit"
        return file.read_text(encoding="utf-8").strip() if file.is_file() else "unknown"

    def test_programs(self):
        """Names, paths and labels of the installed tests; paths are beside tests.json unless absolute."""
        if not self.tests.is_file():
            return []
        listed = json.loads(self.tests.read_text(encoding="utf-8"))
        return [{**test, "path": str(self.tests.parent / test["path"])} for test in listed]


def cudnn_library(environment):
    """The file that attention's kernels come from as the backend looks for it, or None: there is none."""
    named = environment.get("STOWAGE_CUDNN", "")
    if named:
        return named
    folders = [Path(f) for f in environment.get("LD_LIBRARY_PATH", "").split(":") if f]
    return next((str(f / "libcudnn.so.9") for f in folders if (f / "libcudnn.so.9").is_file()), None)


def surroundings(libraries=()):
    """The environment of the tree's programs. `libraries`: folders that come first."""
    environment = dict(os.environ)
    folders = [*map(str, libraries), *cuda_library_folders()]
    inherited = environment.get("LD_LIBRARY_PATH", "")
    environment["LD_LIBRARY_PATH"] = ":".join([*folders, *([inherited] if inherited else [])])
    environment.setdefault("HWLOC_COMPONENTS", "-gl,-opencl")
    return environment
