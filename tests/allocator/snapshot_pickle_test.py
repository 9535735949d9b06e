"""A snapshot's pickle, as Python reads it: python3 snapshot_pickle_test.py PROGRAM FOLDER. Where a torch is installed,
its own functions read it too."""

import importlib.util
import io
import json
import pickle
import pickletools
import subprocess
import sys
import unittest
from pathlib import Path

import torch_snapshot

PROGRAM, FOLDER = sys.argv[1], Path(sys.argv[2])
DEVICE = 1


class NoClasses(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"the snapshot names {module}.{name}")


class SnapshotPickle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        FOLDER.mkdir(parents=True, exist_ok=True)
        paths = [FOLDER / "snapshot.pickle", FOLDER / "snapshot.json"]
        subprocess.run([PROGRAM, *paths], check=True)
        cls.text = paths[0].read_bytes()
        cls.snapshot = NoClasses(io.BytesIO(cls.text)).load()
        cls.truth = json.loads(paths[1].read_text())["devices"][0]

    def test_has_the_fields_of_torch(self):
        torch_snapshot.check_types(self, self.snapshot)
        self.assertEqual({s["device"] for s in self.snapshot["segments"]}, {DEVICE})
        self.assertEqual(len(self.snapshot["device_traces"]), DEVICE + 1)
        self.assertEqual(self.snapshot["device_traces"][0], [])

    def test_agrees_with_the_statistics(self):
        torch_snapshot.check_sums(self, self.snapshot)
        pools = self.truth["pools"]
        self.assertEqual(torch_snapshot.totals(self.snapshot, DEVICE),
                         (self.truth["reserved"], sum(p["allocated"] for p in pools), sum(p["requested"] for p in pools)))
        for pool in pools:
            segments = [s for s in self.snapshot["segments"] if s["segment_pool_id"] == (0, pool["pool"])]
            self.assertEqual(sum(s["total_size"] for s in segments), pool["reserved"])
            self.assertEqual(sum(s["allocated_size"] for s in segments), pool["allocated"])
        self.assertEqual(len([p for p in pools if p["reserved"] > 0]), 2)

    def test_traces_lead_to_the_segments(self):
        actions = {entry["action"] for entry in self.snapshot["device_traces"][DEVICE]}
        self.assertEqual(actions, torch_snapshot.ACTIONS)
        self.assertEqual({e["stream"] for e in self.snapshot["device_traces"][DEVICE] if e["action"] == "alloc"},
                         {0x1000, 0x1001})
        self.assertGreater(self.truth["dropped_events"], 0)
        blocks, mapped = torch_snapshot.check_trace(self, self.snapshot, DEVICE)
        self.assertGreaterEqual(mapped, sum(blocks.values()))

    def test_is_read_in_batches(self):
        """The viewer pushes a batch as arguments of one call, and knows these opcodes alone."""
        known = {"PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "APPENDS", "SETITEMS", "BINUNICODE", "LONG_BINPUT",
                 "LONG_BINGET", "BININT", "BININT1", "LONG1", "BINFLOAT", "NEWTRUE", "NEWFALSE", "TUPLE2", "STOP"}
        self.assertLessEqual({opcode.name for opcode, _, _ in pickletools.genops(self.text)}, known)
        pickletools.dis(self.text, io.StringIO())  # its stack is in order
        batches = [opcode for opcode, _, _ in pickletools.genops(self.text) if opcode.name == "APPENDS"]
        self.assertGreater(len(self.snapshot["device_traces"][DEVICE]), 500)
        self.assertGreater(len(batches), 1)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "no torch is installed")
    def test_is_read_by_torch(self):
        from torch.cuda import _memory_viz
        self.assertIn("total_reserved", _memory_viz.segsum(self.snapshot))
        self.assertIn("segment_map", _memory_viz.trace(self.snapshot))
        self.assertIn("snapshot.pickle", _memory_viz.trace_plot(self.snapshot))
        for drawing in (_memory_viz.segments, _memory_viz.memory):
            self.assertIn("active_allocated", drawing(self.snapshot, format_flamegraph=str))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
