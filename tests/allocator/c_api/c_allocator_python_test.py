"""libstowage_allocator.so over the fakes of CUDA, found as torch.cuda.memory.CUDAPluggableAllocator finds it (ctypes, by
its functions' names): python3 c_allocator_python_test.py LIBRARY FOLDER"""

import ctypes
import os
import pickle
import sys
import unittest
from pathlib import Path

LIBRARY, FOLDER = sys.argv[1], Path(sys.argv[2])
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch_snapshot  # noqa: E402


class Library:
    def __init__(self):
        self.library = ctypes.CDLL(LIBRARY)

    def function(self, name, result, *arguments):
        # torch takes the address alone, and calls it with these types.
        address = ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value
        return ctypes.CFUNCTYPE(result, *arguments)(address)


class CAllocator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["STOWAGE_HISTORY"] = "1000"
        os.environ["STOWAGE_PLAN_PERIODS"] = "1"
        library = Library()
        cls.malloc = staticmethod(library.function("stowage_malloc", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                                   ctypes.c_void_p))
        cls.free = staticmethod(library.function("stowage_free", None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                                 ctypes.c_void_p))
        cls.snapshot = staticmethod(library.function("stowage_snapshot", ctypes.c_int, ctypes.c_char_p))
        cls.begin_iteration = staticmethod(library.function("stowage_begin_iteration", ctypes.c_int, ctypes.c_int))
        cls.last_error = staticmethod(library.function("stowage_last_error", ctypes.c_char_p))

    def test_serves_and_shows_what_it_has(self):
        blocks = [self.malloc(size, 0, None) for size in (1, 5000, 3 << 20, 700)]
        self.assertNotIn(None, blocks, self.last_error())
        self.free(blocks.pop(1), 5000, 0, None)
        path = FOLDER / "c_allocator.pickle"
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.assertEqual(self.snapshot(str(path).encode()), 0, self.last_error())
        snapshot = pickle.loads(path.read_bytes())
        torch_snapshot.check_types(self, snapshot)
        torch_snapshot.check_sums(self, snapshot)
        live = {b["address"]: b["requested_size"] for s in snapshot["segments"] for b in s["blocks"]
                if b["state"] == "active_allocated"}
        self.assertEqual(live, dict(zip(blocks, (1, 3 << 20, 700))))
        self.assertEqual(torch_snapshot.check_trace(self, snapshot, 0), ({}, 0))
        for block in blocks:
            self.free(block, 0, 0, None)

    def test_says_why_there_is_none(self):
        self.assertIsNone(self.malloc(1 << 45, 0, None))
        self.assertIn(b"35184372088832 bytes", self.last_error())

    def test_serves_iterations_that_come_again_at_the_same_addresses(self):
        steps = []
        for _ in range(3):
            self.assertEqual(self.begin_iteration(0), 0, self.last_error())
            steps.append([self.malloc(size, 0, None) for size in (3 << 20, 5000, 9 << 20)])
            for block in steps[-1]:
                self.free(block, 0, 0, None)
        self.assertEqual(steps[1], steps[2])
        self.assertNotEqual(steps[0], steps[1])  # recorded, and not planned yet

    def test_does_nothing_in_a_forked_child(self):
        block = self.malloc(1000, 0, None)
        child = os.fork()
        if child == 0:
            self.free(block, 1000, 0, None)
            os._exit(0 if self.malloc(1000, 0, None) is None and b"spawn" in self.last_error() else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.free(block, 1000, 0, None)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
