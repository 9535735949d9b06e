"""llm.c's command, and its output, which may hold anything, as a peer's events."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench" / "contest"))
import cases  # noqa: E402
import llm_c  # noqa: E402
import model_file  # noqa: E402

CASE = cases.WHOLE_CARD[0]


def line(step, loss="10.970001", norm="15.4000", milliseconds="120.50"):
    return (
        f"step {step:4d}/24 | loss {loss} (+nanz)| norm {norm} (+nanz)| lr 3.00e-05 | {milliseconds} ms | "
        "58.1% bf16 MFU | 543210 tok/s\n"
    )


class Command(unittest.TestCase):
    def test_has_the_batch_of_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            tokens = [7, 50256, 50257, *[50303] * (CASE.tokens - 3)]
            Path(folder, "tokens.bin").write_bytes(model_file.token_file(tokens))
            words = llm_c.command("/llm.c/train_gpt2cu", CASE, folder, 24)
            given = dict(zip(words[1::2], words[2::2]))
            written = model_file.read_tokens(given["-i"])
        self.assertEqual((len(written), written[0], set(written[1:])), (CASE.tokens, 7, {50256}))  # no token of the padding
        expected = {"-e": "d12", "-b": "64", "-t": "1024", "-d": "65536", "-x": "24", "-l": "3e-05", "-c": "0.1", "-a": "1"}
        self.assertEqual({name: given[name] for name in expected}, expected)


class Events(unittest.TestCase):
    def events(self, *lines):
        return llm_c.events(CASE, {"output": list(lines)}, 24)

    def test_are_the_steps(self):
        self.assertEqual(
            self.events("allocated 237 MiB\n", line(1), "val loss 10.9\n", line(2, "9.500000", "-nan", "60.25")),
            [
                {"event": "attempt", "micro_batch": 64},
                {"event": "step", "step": 1, "loss": 10.970001, "seconds": 0.1205},
                {"event": "step", "step": 2, "loss": 9.5, "seconds": 0.06025},
            ],
        )

    def test_of_other_lines_are_none(self):
        bad = [
            line(2),
            line(0),
            line(1, loss="nan"),
            line(1, loss="1e9"),
            line(1, milliseconds="-1.00"),
            line(1, milliseconds="inf"),
            line(1, milliseconds="1" * 400 + ".0"),
            line(1, norm="x" * 300),
            "step 1/24 | loss 1.0 | 5.0 ms",
            "step 1/24 | loss " + "9" * 100_000,
            "\0\ufffd" * 1000,
            '{"event": "step", "loss": 1, "seconds": 1}',
            "> " + line(1),
        ]
        self.assertEqual(self.events(*bad), [])

    def test_are_no_more_than_were_asked_for(self):
        found = self.events(*(line(step) for step in [1, 1, *range(2, 40)]))
        self.assertEqual([event["step"] for event in found[1:]], list(range(1, 25)))

    def test_memory_that_ran_out_is_told(self):
        words = ["[CUDA ERROR] at file llmc/cuda_common.h:90:\n", "out of memory\n"]
        self.assertEqual([event["event"] for event in self.events(*words)], ["does not fit"])
        self.assertEqual(self.events(line(1), *words)[1]["event"], "step")


if __name__ == "__main__":
    unittest.main()
