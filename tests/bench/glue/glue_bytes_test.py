"""docs/glue.md holds the tables that glue_table prints, and these say what can be counted by hand."""

import os
import subprocess
import unittest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "glue.md"
PROGRAM = Path(os.environ["STOWAGE_BUILD"]) / "bench" / "glue" / "glue_table"


def tables(lines):
    return [line for line in lines if line.startswith("|")]


class Glue(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.printed = subprocess.run([PROGRAM], check=True, capture_output=True, encoding="utf-8").stdout
        cls.gpt, cls.bert = ({row[1].strip(): row[2:-1] for row in (line.split("|") for line in tables(part.splitlines()))}
                             for part in cls.printed.split("BERT-base"))

    def test_the_page_holds_the_tables(self):
        self.assertIn(self.printed, PAGE.read_text(encoding="utf-8"), f"make it anew: {PROGRAM} prints its tables")

    def test_counts_what_can_be_counted_by_hand(self):
        """In widths of bf16 per token: launches, read, written, least."""
        row = lambda table, kernel: [float(cell) for cell in table[kernel][:4]]
        statistics = 25 * 2 * 4 / (768 * 2)  # mean and rstd in f32, of each norm
        self.assertEqual(row(self.gpt, "add"), [24, 48, 24, 72])
        self.assertEqual(row(self.gpt, "layer_norm"), [25, 25, round(25 + statistics, 2), round(25 + statistics, 2)])
        # Each block's two norms read x, dy and the trunk's gradient; the last one has no trunk beside it.
        self.assertEqual(row(self.gpt, "layer_norm_backward")[:3], [25, round(24 * 3 + 2 + statistics, 2), 25])
        self.assertEqual(row(self.gpt, "gelu_backward"), [12, 12 * 8, 12 * 4, 12 * 12])
        # What a block's projections sum: 3 of queries, keys and values, which attention wrote, and 1 + 1 of
        # the trunk, which the norm's backward could sum as it writes them.
        self.assertEqual(row(self.gpt, "linear_backward_bias"), [36, 12 * 5, 0, 12 * 3])
        # AdamW reads and writes 26 bytes for each of 124.5 million parameters.
        parameters = 12 * (12 * 768**2 + 13 * 768) + (50304 + 1024 + 2) * 768
        read, written = row(self.gpt, "adamw")[1:3]
        self.assertAlmostEqual((read + written) * 65536 * 768 * 2 / parameters, 26, delta=0.01)
        # Behind the embedding, and backward of that and of each branch; forward the branches' are in their sums,
        # which with the token types' are 25.
        self.assertEqual(row(self.bert, "dropout")[:3], [26, 26, 26])
        self.assertEqual(row(self.bert, "add")[:3], [25, 50, 25])


if __name__ == "__main__":
    unittest.main()
