"""The fine-tuning of a tiny Qwen3: python3 fine_tune_qwen_test.py ROOT BUILD

Runs the commands of docs/fine_tune_qwen.md, and tunes a model in a fifth of its need, killed and resumed twice. Ends with code 77
(skipped) where PyTorch or transformers is missing."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from pathlib import Path

ROOT, BUILD = map(Path, sys.argv[1:3])
try:
    import torch
    import transformers as hf
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
sys.path.insert(0, str(ROOT / "tests/tools/data"))
import chat_folders  # noqa: E402
import chat_lines  # noqa: E402

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1",
               "PATH": os.pathsep.join([str(BUILD / "samples"), str(BUILD / "tools/cli"), str(Path(sys.executable).parent), os.environ["PATH"]])}


def make_model(folder, conversations, type):
    """Writes a tiny Qwen3 with a tokenizer of the conversations' words, and the conversations."""
    chat_folders.write_folder(folder / "qwen", "qwen3", [content for turns in conversations for _, content in turns])
    tokenizer = hf.AutoTokenizer.from_pretrained(folder / "qwen")
    torch.manual_seed(1)
    config = hf.Qwen3Config(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
                            num_key_value_heads=2, head_dim=8, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=None,
                            eos_token_id=tokenizer.eos_token_id, pad_token_id=None)
    hf.AutoModelForCausalLM.from_config(config).to(type).save_pretrained(folder / "qwen")
    (folder / "chats.jsonl").write_text("".join(chat_lines.line_of(turns) + "\n" for turns in conversations), encoding="utf-8")


def conversations(count):
    import random
    draw = random.Random(11)
    return [chat_lines.conversation(draw) for _ in range(count)]


class FineTune(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def run_well(self, *command):
        done = subprocess.run(command, cwd=self.folder, env=ENVIRONMENT, capture_output=True, encoding="utf-8", check=False,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_the_page(self):
        make_model(self.folder, conversations(200), torch.bfloat16)
        page = (ROOT / "docs/fine_tune_qwen.md").read_text(encoding="utf-8")
        commands = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        self.assertEqual(len(commands), 6)
        outputs = [self.run_well("bash", "-euo", "pipefail", "-c", each.replace("--sequence 4096", "--sequence 256")) for each in commands]
        self.assertIn("fits          yes", outputs[0])
        self.assertIn("of which 10 are held out", outputs[1])
        self.assertIn("evaluation    on the device", outputs[2])
        self.assertIn("evaluated alone", outputs[3])
        tuned = {path.name for path in (self.folder / "tuned").iterdir()}
        self.assertEqual(tuned, {path.name for path in (self.folder / "qwen").iterdir()})
        for name in tuned:
            self.assertEqual((self.folder / "best" / name).read_bytes(), (self.folder / "tuned" / name).read_bytes(), name)

    def test_the_table(self):
        page = (ROOT / "docs/fine_tune_qwen.md").read_text(encoding="utf-8")
        shared = re.search(r"each with `([^`]*)`", page)[1]
        rows = re.findall(r"^\| [^|]* \| `(qwen3[^`]*)` \|(.*)\|$", page, re.MULTILINE)
        self.assertEqual(len(rows), 3)
        for command, said in rows:
            answer = json.loads(self.run_well("bash", "-c", f"stowage plan --model {command} {shared} --json"))
            rate = answer["model"]["batch"] * answer["model"]["sequence"] / answer["step_seconds"]
            gibibytes = lambda count: f"{count / 2**30:.2f} GiB"
            with self.subTest(command):
                self.assertEqual([word.strip() for word in said.split("|")],
                                 [gibibytes(answer["minimum_device_bytes"]), gibibytes(answer["host_bytes"]), f"{int(rate):,}",
                                  f"{1e7 / rate / 60:.0f} minutes"])

    def test_killed_and_resumed_twice_in_a_fifth_of_the_need(self):
        make_model(self.folder, conversations(100), torch.float32)
        self.run_well(sys.executable, "-m", "stowage.data", "--model", "qwen", "--data", "chats.jsonl", "--sequence", "256", "--output", "tokens")
        tune = ["train_gpt", "--init", "qwen", "--data", "tokens/train", "--batch", "8", "--steps", "60", "--learning-rate", "1e-3",
                "--sequence", "256", "--device", "simulated", "--head-chunk", "64"]
        need = int(re.search(r"^need .*\((\d+) bytes\)", self.run_well(*tune, "--plan-only"), re.MULTILINE)[1])
        self.run_well(*tune, "--export", "whole")
        tune += ["--device-memory", str(need // 5), "--checkpoint", "run", "--checkpoint-every", "5"]
        for resume, past in ([], 5), (["--resume"], 25):
            running = subprocess.Popen([*tune, *resume], cwd=self.folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            while running.poll() is None and not self.saved_past(past):
                time.sleep(0.002)
            running.send_signal(signal.SIGKILL)
            _, told = running.communicate()
            self.assertEqual(running.returncode, -signal.SIGKILL, told)
        self.run_well(*tune, "--resume", "--export", "tuned")
        self.assertEqual((self.folder / "tuned/model.safetensors").read_bytes(), (self.folder / "whole/model.safetensors").read_bytes())
        self.same_greedy_tokens()

    def saved_past(self, step):
        return any(int(path.name.removeprefix("step-")) > step for path in (self.folder / "run").glob("step-*[0-9]"))

    def same_greedy_tokens(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tokenizer = hf.AutoTokenizer.from_pretrained(self.folder / "tuned")
            model = hf.AutoModelForCausalLM.from_pretrained(self.folder / "tuned", dtype=torch.float32)
        asked = [{"role": "user", "content": "the river takes under"}]
        ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=True)["input_ids"]
        with torch.no_grad():
            there = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=40)[0, len(ids):].tolist()
        ends = model.generation_config.eos_token_id
        there = [token for token in there if token not in (ends if isinstance(ends, list) else [ends])]
        here = subprocess.run(["train_gpt", "--init", "tuned", "--generate-ids", "-", "--temperature", "0", "--tokens", "40"], env=ENVIRONMENT,
                              cwd=self.folder, input=" ".join(map(str, ids)), capture_output=True, text=True, check=True).stdout
        self.assertEqual([int(line) for line in here.split()], there)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
