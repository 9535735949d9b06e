"""A tree that gpu_check runs from, of stand-ins for its programs."""

import io
import sys
import tempfile
import time
from pathlib import Path

CHECKS = Path(__file__).resolve().parents[3] / "bench" / "gpu_check"
sys.path.insert(0, str(CHECKS))
from context import Context  # noqa: E402
from programs import Programs  # noqa: E402
from runner import Runner  # noqa: E402
from shapes import SMALL  # noqa: E402


def put(root, name, text):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")
    (root / name).chmod(0o755)


def context_of(test, files):
    """What a stage is given, on a card, where `files` (text by name) are installed. They go when `test` ends."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    root = Path(folder.name)
    for name, text in {"bin/stowage": "", "checks/train_shape": "", **files}.items():
        put(root, name, text)
    (root / "out").mkdir()
    runner = Runner(io.StringIO(), time.monotonic() + 60)
    runner.say = runner.note
    return Context(Programs(root / "checks"), runner, "cuda", SMALL, True, root / "out", 1 << 30)
