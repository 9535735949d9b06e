"""Runs every command of the pages that show how a training is done, with programs of this build."""

import json
import os
import random
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [Path(os.environ["STOWAGE_BUILD"]) / folder for folder in ("samples", "tools/cli")]
WORDS = "the a river stone house walks sees old small and under over light bread water gives takes he she they it".split()


def blocks(page):
    return re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def text():
    draw = random.Random(1)
    sentence = lambda: " ".join(draw.choices(WORDS, k=draw.randint(4, 9))).capitalize() + ".\n"
    return "\n".join("".join(sentence() for _ in range(8)) for _ in range(60))


class Pages(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        (self.folder / "text.txt").write_text(text(), encoding="utf-8")

    def run_commands(self, commands):
        paths = os.pathsep.join([*map(str, PROGRAMS), os.environ["PATH"]])
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=self.folder, capture_output=True,
                              encoding="utf-8", errors="replace", check=False, env=os.environ | {"PATH": paths}, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, f"{commands}\n{done.stdout}{done.stderr}")
        return done.stdout

    def run_page(self, page):
        commands = blocks(page)
        self.assertGreaterEqual(len(commands), 3, page)
        return [self.run_commands(each) for each in commands]

    def test_fine_tuning(self):
        self.run_commands("mv text.txt notes.txt; stowage tokens train notes.txt --vocabulary 300 --output words; "
                          "train_gpt --data notes.txt --tokenizer words --layers 2 --width 32 --heads 2 --sequence 32 --steps 1 "
                          "--export gpt2; cp words/* gpt2/")
        outputs = self.run_page("fine_tune_gpt2.md")
        self.assertIn("perplexity", outputs[1])
        self.assertIn("nothing is trained", outputs[2])
        self.assertEqual(outputs[3].count("Dear reader, "), 2)
        self.assertIn("perplexity", (self.folder / "run.jsonl").read_text(encoding="utf-8"))
        self.assertEqual(sorted(path.name for path in (self.folder / "tuned").iterdir()),
                         ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])

    def test_pre_training(self):
        outputs = self.run_page("pretrain_bert.md")
        self.assertIn("next sentence", outputs[2])
        self.assertTrue((self.folder / "tuned" / "model.safetensors").is_file())

    def test_a_smaller_card(self):
        self.run_page("resume_on_a_smaller_card.md")  # its last command compares the bits
        saved = sorted(path.name for path in (self.folder / "run").glob("step-*"))
        self.assertEqual([int(name.removeprefix("step-")) for name in saved], [10, 20, 40])

    def test_what_fits(self):
        rows = re.findall(r"^\|[^|]*\| `([^`]*--machine[^`]*)` \|(.*)\|$", (ROOT / "docs" / "model_files.md").read_text(encoding="utf-8"),
                          re.MULTILINE)
        self.assertEqual(len(rows), 5)
        for command, said in rows:
            answer = json.loads(self.run_commands(f"stowage plan --model {command} --json"))
            gibibytes = lambda count: f"{count / 2**30:.2f} GiB"
            tokens = answer["model"]["batch"] * answer["model"]["sequence"]
            with self.subTest(command):
                self.assertEqual([word.strip() for word in said.split("|")],
                                 [gibibytes(answer["minimum_device_bytes"]), gibibytes(answer["host_bytes"]),
                                  f"{int(tokens / answer['step_seconds']):,}", f"{answer['largest']['batch']:,}",
                                  f"{answer['largest']['most_tokens']:,}"])


if __name__ == "__main__":
    unittest.main()
