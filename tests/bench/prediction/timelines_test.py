"""The replay of recorded timelines: rates of lanes that share host memory, and busy times of a timeline of known rates."""

import gzip
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "prediction"))
import timelines  # noqa: E402

# In units of a byte per second. Beside updates that take 6, copies in have 4 of 10 if shared, and beside copies out, too,
# only a third each.
RATES = timelines.Rates(h2d=5, d2h=5, h2d_both=4, d2h_both=4, host=9, total=10)
LATENCY = {"h2d": 1.0, "d2h": 0.0, "host": 0.0}


def row(lane, kind, planned, ran):
    second = [f"{1e6 * time:.1f}" for time in (*planned, *ran)]
    return {"lane": lane, "kind": kind, **dict(zip(("planned_begin", "planned_end", "begin", "end"), second))}


class Sharing(unittest.TestCase):
    def test_shared_is_fair(self):
        self.assertEqual(timelines.shared(RATES, {"host"}), {"host": 9})
        self.assertEqual(timelines.shared(RATES, {"h2d", "host"}), {"h2d": 5, "host": 5})
        self.assertEqual(timelines.shared(RATES, {"h2d", "d2h"}), {"h2d": 4, "d2h": 4})
        for rate in timelines.shared(RATES, {"h2d", "d2h", "host"}).values():
            self.assertAlmostEqual(rate, 10 / 3)

    def test_left_serves_copies_in_last(self):
        self.assertEqual(timelines.left(RATES, {"h2d", "host"}), {"h2d": 1, "host": 9})
        self.assertEqual(timelines.left(RATES, {"h2d", "d2h", "host"}), {"h2d": 0, "d2h": 4, "host": 6})
        self.assertEqual(timelines.left(RATES, {"h2d", "d2h"}), {"h2d": 4, "d2h": 4})

    def test_rates_of_a_machine_file(self):
        way = {"bytes_per_second": 50, "latency_seconds": 2}
        both = {"bytes_per_second": 60, "latency_seconds": 1}
        machine = {"h2d": way, "d2h": way, "h2d_both": both, "d2h_both": both, "host_total_bytes_per_second": 70,
                   "host_rates": [{"bytes_per_second": 20}, {"bytes_per_second": 30}]}
        rates, latency = timelines.machine_rates(machine)
        self.assertEqual(rates, timelines.Rates(50, 50, 50, 50, 30, 100))
        self.assertEqual(latency, {"h2d": 2, "d2h": 2, "host": 0})


class Replay(unittest.TestCase):
    """Planned: a copy of 1 s latency moves for 2 s alone and for 2 s beside an update of 4 s, which ends in the next step."""

    def setUp(self):
        self.timeline = timelines.Timeline([
            row("h2d", "prefetch", (0, 5), (0, 6)), row("host", "speculate", (3, 7), (9, 13)),
            row("compute", "launch", (0, 9), (0, 9)), row("host", "gate", (10, 10), (12, 12))], RATES, LATENCY)

    def test_bytes_are_those_of_the_plan(self):
        self.assertEqual(self.timeline.bytes, [2 * 5 + 2 * 5, 2 * 5 + 2 * 9, 0])

    def test_what_runs_on_into_the_next_step_is_beside_its_copies(self):
        # The update's last second is beside the copy's latency, which moves nothing.
        measured = self.timeline.measured()
        self.assertEqual({tuple(lanes): seconds for lanes, (seconds, _) in measured.items()}, {("h2d",): 5, ("host",): 4})
        later = timelines.Timeline([row("h2d", "prefetch", (0, 5), (0, 6)), row("host", "speculate", (3, 7), (9, 14)),
                                    row("host", "gate", (10, 10), (12, 12))], RATES, LATENCY)
        seconds, rates = later.measured()[frozenset({"h2d", "host"})]
        self.assertEqual((seconds, rates), (1, {"h2d": 4, "host": 28 / 5}))

    def test_busy_seconds_by_each_model(self):
        self.assertEqual(self.timeline.busy("h2d"), 5)
        for model in timelines.MODELS.values():
            self.assertEqual(self.timeline.replayed("h2d", model, RATES), 4)  # 20 bytes alone
            self.assertAlmostEqual(self.timeline.replayed("host", model, RATES), 28 / 9)

    def test_the_timelines_own_rates(self):
        rates = timelines.own_rates(self.timeline.measured(), RATES)
        self.assertEqual((rates.h2d, rates.host, rates.total), (4, 7, 7))
        self.assertEqual((rates.d2h, rates.h2d_both), (5, 4))


class Recorded(unittest.TestCase):
    def test_bytes_of_a_recorded_timeline_are_those_of_its_plan(self):
        timeline_file, machine_file = timelines.RECORDED[0]
        rates, latency = timelines.machine_rates(json.loads(machine_file.read_text(encoding="utf-8")))
        timeline = timelines.Timeline(timelines.rows_of(timeline_file), rates, latency)
        with gzip.open(timeline_file.parent / "large.jsonl.gz", "rt", encoding="utf-8") as file:
            plan = next(line["plan"] for line in map(json.loads, file) if line["kind"] == "setup")
        for lane in ("h2d", "d2h"):
            self.assertAlmostEqual(timeline.bytes_of(lane) / plan[f"{lane}_bytes"], 1, delta=1e-4)


if __name__ == "__main__":
    unittest.main()
