"""The archive that make_tree packs: made by make_tree_test.py, unpacked by the tests that run from it."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ARCHIVE = Path(os.environ["STOWAGE_BUILD"]) / "checks" / "stowage.tar.xz"


def make():
    ARCHIVE.parent.mkdir(exist_ok=True)
    subprocess.run([ROOT / "bench" / "gpu_check" / "make_tree", os.environ["STOWAGE_BUILD"], ARCHIVE], check=True,
                   stdout=subprocess.DEVNULL)


def unpack(folder):
    """The tree's path."""
    subprocess.run(["tar", "xf", ARCHIVE, "-C", folder], check=True)
    return Path(folder) / "stowage"
