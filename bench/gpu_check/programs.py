"""The installed tree that gpu_check runs from: its programs, their surroundings, and running them."""

import json
import os
import site
import subprocess
import sys
import time
from pathlib import Path


def cuda_library_folders(roots=None):
    """Folders with CUDA's libraries that Python packages brought (nvidia/*/lib, torch/lib)."""
    if roots is None:
        roots = [*sys.path, *site.getsitepackages(), site.getusersitepackages()]
    folders = []
    for root in dict.fromkeys(str(r) for r in roots if r):
        for pattern in ("nvidia/*/lib", "nvidia/*/lib64", "torch/lib"):
            folders += [str(f) for f in sorted(Path(root).glob(pattern)) if f.is_dir()]
    return list(dict.fromkeys(folders))


class Programs:
    """Where everything stands. By default this file is in <prefix>/checks of an installed tree."""

    def __init__(self, here, stowage=None, train_shape=None, tests=None):
        here = Path(here)
        self.stowage = Path(stowage or here.parent / "bin" / "stowage")
        self.train_shape = Path(train_shape or here / "train_shape")
        self.train_gpt = self.stowage.parent / "train_gpt"
        self.tests = Path(tests or here / "tests.json")
        self.libraries = [folder for folder in (here.parent / "lib",) if folder.is_dir()]
        self.commit_file = here / "commit"
        for program in (self.stowage, self.train_shape):
            if not program.is_file():
                print(f"gpu_check: {program} is not there: make the tree with bench/gpu_check/make_tree, "
                      "or name it by --stowage and --train-shape", file=sys.stderr)
                raise SystemExit(2)

    def commit(self):
        if self.commit_file.is_file():
            return self.commit_file.read_text(encoding="utf-8").strip()
        return "unknown"

    def test_programs(self):
        """Names, paths and labels of the installed tests; paths are beside tests.json unless absolute."""
        if not self.tests.is_file():
            return []
        listed = json.loads(self.tests.read_text(encoding="utf-8"))
        return [{**test, "path": str(self.tests.parent / test["path"])} for test in listed]


def cudnn_library(environment):
    """The file that attention's kernels come from as the backend looks for it; "off", or None: there is none."""
    named = environment.get("STOWAGE_CUDNN", "")
    if named:
        return named
    folders = [Path(f) for f in environment.get("LD_LIBRARY_PATH", "").split(":") if f]
    return next((str(f / "libcudnn.so.9") for f in folders if (f / "libcudnn.so.9").is_file()), None)


def surroundings(libraries=()):
    """`libraries`: folders that come first."""
    environment = dict(os.environ)
    folders = [*map(str, libraries), *cuda_library_folders()]
    inherited = environment.get("LD_LIBRARY_PATH", "")
    environment["LD_LIBRARY_PATH"] = ":".join([*folders, *([inherited] if inherited else [])])
    environment.setdefault("HWLOC_COMPONENTS", "-gl,-opencl")
    return environment


class Runner:
    """Runs commands one after another under one deadline, and keeps every word they say in a log."""

    def __init__(self, log, deadline, libraries=()):
        self.log = log
        self.deadline = deadline
        self.environment = surroundings(libraries)

    def left(self):
        return self.deadline - time.monotonic()

    def say(self, text):
        print(text, flush=True)
        self.log.write(text + "\n")
        self.log.flush()

    def run(self, command, most_seconds=120, environment=None):
        """{"command", "code", "seconds", "output", "errors"}; code None: it ran out of time."""
        command = [str(word) for word in command]
        given = environment or {}
        self.log.write(f"\n$ {' '.join([*(f'{k}={v}' for k, v in given.items()), *command])}\n")
        self.log.flush()
        begin = time.monotonic()
        limit = max(1.0, min(most_seconds, self.left()))
        try:
            done = subprocess.run(command, env={**self.environment, **given}, capture_output=True, text=True, timeout=limit,
                                  errors="replace", check=False)
            code, output, errors = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as expired:
            code = None
            output, errors = (part.decode(errors="replace") if isinstance(part, bytes) else part or ""
                              for part in (expired.stdout, expired.stderr))
            errors += f"\nstopped after {limit:.0f} s"
        except OSError as error:
            code, output, errors = 127, "", str(error)
        seconds = time.monotonic() - begin
        self.log.write(f"{output}{errors}\n[code {code}, {seconds:.2f} s]\n")
        self.log.flush()
        return {"command": command, "code": code, "seconds": seconds, "output": output, "errors": errors}
