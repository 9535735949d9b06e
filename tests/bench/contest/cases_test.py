"""The table of cases, and which jobs come of it in which order."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "contest"))
import cases  # noqa: E402


class Table(unittest.TestCase):
    def test_counts_parameters_as_the_published_models_have_them(self):
        for layers, width, heads, parameters in [
            (12, 768, 12, 124_439_808),
            (36, 1280, 20, 774_030_080),
            (48, 1600, 25, 1_557_611_200),
        ]:
            case = cases.Case("x", layers=layers, width=width, heads=heads, batch=1, vocabulary=50257)
            self.assertEqual(case.parameters(), parameters)

    def test_has_the_sizes_that_its_names_say(self):
        first, second = cases.CARD
        self.assertEqual((first.parameters(), first.tokens, first.gib), (1_557_686_400, 4096, 12))
        self.assertEqual((second.parameters(), second.tokens, second.gib), (3_432_325_120, 16384, 24))
        for case in cases.CARD + cases.LONG + cases.WHOLE_CARD:
            self.assertEqual((case.type, case.sequence, case.width % case.heads), ("bf16", 1024, 0))

    def test_names_are_distinct(self):
        on_card = cases.CARD + cases.LONG + cases.WHOLE_CARD + cases.SMALL_CARD + cases.SMALL_WHOLE_CARD
        names = [case.name for case in on_card + cases.CPU + cases.SMALL_CPU]
        self.assertEqual(len(names), len(set(names)))


class Jobs(unittest.TestCase):
    def names(self, *arguments):
        """Of the jobs that no word has to name."""
        return [(job.case.name, job.peer, job.round) for job in cases.all_jobs(*arguments) if not job.named]

    def named_by(self, words, long=False):
        jobs = cases.chosen(cases.all_jobs("cuda", False, long), words.split(","))
        return [(job.case.name, job.peer) for job in jobs]

    def test_on_a_card_the_first_comparison_of_every_case_comes_first(self):
        names = self.names("cuda", False, False)
        self.assertEqual(
            names[:4], [("1.56B", "stowage", 1), ("1.56B", "fsdp2", 1), ("3.4B", "stowage", 1), ("3.4B", "fsdp2", 1)]
        )
        self.assertEqual(len(names), 16)
        self.assertEqual(len(set(names)), 16)

    def test_the_longer_list_has_the_first_cases_too(self):
        self.assertLess(set(self.names("cuda", False, False)), set(self.names("cuda", False, True)))

    def test_on_the_cpu_peers_alternate(self):
        names = self.names("cpu", False, False, 2)
        self.assertEqual(
            names[:6],
            [
                ("cpu", "stowage", 1),
                ("cpu", "pytorch", 1),
                ("cpu", "stowage-fifth", 1),
                ("cpu", "stowage", 2),
                ("cpu", "pytorch", 2),
                ("cpu", "stowage-fifth", 2),
            ],
        )
        self.assertEqual(sorted(peer for case, peer, _ in names if case == "small-card"), sorted(cases.PEERS))

    def test_words_choose_cases_and_peers(self):
        jobs = cases.all_jobs("cuda", False, False)
        self.assertEqual(
            [(j.case.name, j.peer) for j in cases.chosen(jobs, ["3.4B", "zero3", "stowage"])],
            [("3.4B", "stowage"), ("3.4B", "zero3")],
        )
        self.assertEqual({j.peer for j in cases.chosen(jobs, ["3.4B"])}, set(cases.PEERS))
        self.assertEqual({j.case.name for j in cases.chosen(jobs, ["zero3"])}, {"1.56B", "3.4B"})
        self.assertEqual(cases.chosen(jobs, []), [job for job in jobs if not job.named])

    def test_the_whole_card_runs_where_it_is_named_and_then_first(self):
        whole = [("124M-whole", peer) for peer in ("stowage", "pytorch", "pytorch-compiled")]
        self.assertEqual(self.named_by("124M-whole"), whole)
        self.assertEqual(self.named_by("1.56B,124M-whole")[:4], [*whole, ("1.56B", "stowage")])
        self.assertNotIn("124M-whole", {case for case, _ in self.named_by("stowage,pytorch")})

    def test_llm_c_runs_on_the_whole_card_where_there_is_a_program(self):
        for llm_c, peers in ((True, cases.WHOLE_PEERS), (False, cases.WHOLE_PEERS[:-1])):
            jobs = cases.chosen(cases.all_jobs("cuda", False, False, llm_c=llm_c), ["124M-whole"])
            self.assertEqual([job.peer for job in jobs], peers)

    def test_some_peers_run_where_they_are_named(self):
        self.assertEqual(
            self.named_by("1.56B,zero3-super,zero3-ratio,stowage"),
            [("1.56B", "stowage"), ("1.56B", "zero3-super"), ("1.56B", "zero3-ratio")],
        )
        self.assertEqual(self.named_by("1.56B"), [("1.56B", peer) for peer in cases.PEERS])

    def test_a_peer_that_compiles_has_twice_the_time(self):
        case = cases.WHOLE_CARD[0]
        self.assertEqual([cases.Job(case, peer).seconds(60) for peer in cases.WHOLE_PEERS], [60, 60, 120, 60])

    def test_the_whole_card_is_no_number_of_bytes(self):
        self.assertEqual([case.memory for case in (*cases.WHOLE_CARD, *cases.CPU)], [None, None])
        self.assertEqual(cases.CARD[0].memory, 12 << 30)

    def test_a_word_that_is_neither_is_refused(self):
        with self.assertRaisesRegex(
            ValueError, "zero4: there is no such case or peer here; cases: 1.56B, 124M-whole, 3.4B; peers: .*zero3"
        ):
            cases.chosen(cases.all_jobs("cuda", False, False), ["zero4"])


if __name__ == "__main__":
    unittest.main()
