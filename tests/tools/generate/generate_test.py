"""python -m stowage.generate against transformers: python3 generate_test.py PACKAGE LIBRARY TRAIN_GPT

Ends with code 77 (skipped) where PyTorch or transformers is missing. Tiny models of every family, in f32, with a tokenizer that is
trained here: the greedy tokens are those of transformers' own `generate`, also of a Qwen3 that train_gpt has tuned and exported."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PACKAGE, LIBRARY, TRAIN_GPT = sys.argv[1:4]
try:
    import tokenizers
    import torch
    import transformers as hf
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
sys.path.insert(0, str(Path(PACKAGE) / "stowage"))
import generate as module  # noqa: E402  the module alone, without the planner's library

TEXT = ["In the beginning God created the heaven and the earth. ", "café über Ωmega 🙂🙃 ", "the plan of the ship, and of the hold\n"] * 20
TEMPLATE = ("{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
GROUPED = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
           "max_position_embeddings": 128}
FAMILIES = {
    "gpt2": (hf.GPT2Config, {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "llama": (hf.LlamaConfig, {**GROUPED, "tie_word_embeddings": False, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}}),
    "mistral": (hf.MistralConfig, {**GROUPED, "sliding_window": 7, "head_dim": 8}),
    "qwen2": (hf.Qwen2Config, {**GROUPED, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": (hf.Qwen3Config, {**GROUPED, "head_dim": 12, "tie_word_embeddings": True}),
}


def make_tokenizer(folder):
    own = tokenizers.Tokenizer(tokenizers.models.BPE())
    own.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = tokenizers.decoders.ByteLevel()
    specials = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    own.train_from_iterator(TEXT, tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=specials, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<|end|>", additional_special_tokens=specials[1:])
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_model(folder, name, vocabulary, **more):
    kind, sizes = FAMILIES[name]
    torch.manual_seed(7)
    # Weights so large that what a token sees matters, and an end that is none of the likely tokens.
    config = kind(vocab_size=vocabulary, initializer_range=0.35, bos_token_id=None, eos_token_id=0, pad_token_id=None, **sizes, **more)
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    model.generation_config.eos_token_id = more.get("eos_token_id", 0)
    model.save_pretrained(folder)
    return model


def greedy(model, ids, count):
    """The greedy tokens of transformers, without the end token."""
    with torch.no_grad():
        found = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=count, pad_token_id=0)[0, len(ids):].tolist()
    ends = model.generation_config.eos_token_id
    return [token for token in found if token not in (ends if isinstance(ends, list) else [ends])]


def ids_of(ids, *flags):
    result = subprocess.run([TRAIN_GPT, "--generate-ids", "-", "--temperature", "0", *map(str, flags)], input=" ".join(map(str, ids)),
                            capture_output=True, text=True, check=True)
    return [int(line) for line in result.stdout.splitlines()]


def generate(*words, **more):
    environment = {**os.environ, "PYTHONPATH": PACKAGE, "STOWAGE_PLAN_LIBRARY": LIBRARY, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-m", "stowage.generate", "--programs", str(Path(TRAIN_GPT).parent), *map(str, words)],
                          capture_output=True, text=True, encoding="utf-8", env=environment, check=False, **more)


class Generate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.place.name)
        cls.qwen3 = cls.folder / "qwen3"
        cls.tokenizer = make_tokenizer(cls.qwen3)
        cls.model = make_model(cls.qwen3, "qwen3", len(cls.tokenizer))

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def refused(self, result, *parts):
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        line = result.stderr.splitlines()[-1]
        self.assertTrue(line.startswith("stowage.generate: error: "), line)
        for part in parts:
            self.assertIn(part, line)

    def test_every_family_picks_the_tokens_of_transformers(self):
        ids = self.tokenizer("In the beginning God created the plan of the ship")["input_ids"]
        for name in FAMILIES:
            with self.subTest(name):
                folder = self.folder / f"of-{name}"
                model = make_model(folder, name, 300)
                right = greedy(model, ids, 60)
                self.assertGreater(len(set(right)), 5)
                self.assertEqual(ids_of(ids, "--init", folder, "--tokens", 60), right)

    def test_a_stop_token_ends_the_text(self):
        ids = self.tokenizer("the hold")["input_ids"]
        free = greedy(self.model, ids, 30)
        stop = free[10]
        self.assertEqual(ids_of(ids, "--init", self.qwen3, "--tokens", 30, "--stop-ids", f"1,{stop}"), free[:free.index(stop)])
        folder = self.folder / "ends"
        model = make_model(folder, "qwen3", 300)
        model.generation_config.eos_token_id = [3, stop]
        model.save_pretrained(folder)
        self.assertEqual(ids_of(ids, "--init", folder, "--tokens", 30), greedy(model, ids, 30))
        self.assertEqual(ids_of(ids, "--init", folder, "--tokens", 30, "--stop-ids", "none"), free)

    def test_the_text_is_that_of_the_template_and_of_transformers(self):
        messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what is a hold? 🙂"}]
        ids = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        right = self.tokenizer.decode(greedy(self.model, ids, 60), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        words = ["--model", self.qwen3, "--temperature", "0", "--max-tokens", "60", "--system", "be brief"]
        result = generate(*words, "what is a hold? 🙂")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, right + "\n")
        self.assertEqual(result.stderr, "")
        self.assertEqual(generate(*words, "-", input="what is a hold? 🙂").stdout, result.stdout)
        raw = generate("--model", self.qwen3, "--temperature", "0", "--max-tokens", "20", "--raw", "the hold")
        of_raw = greedy(self.model, self.tokenizer("the hold")["input_ids"], 20)
        self.assertEqual(raw.stdout, self.tokenizer.decode(of_raw, skip_special_tokens=True, clean_up_tokenization_spaces=False) + "\n")

    def test_draws_are_those_of_the_seed(self):
        words = ["--model", self.qwen3, "--max-tokens", "20", "--temperature", "1", "the"]
        first = generate(*words)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(generate(*words).stdout, first.stdout)
        self.assertNotEqual(generate(*words, "--seed", "2").stdout, first.stdout)

    def test_a_tuned_qwen3_is_the_same_there_and_here(self):
        tokens = self.tokenizer("".join(TEXT))["input_ids"]
        shard = self.folder / "data.bin"
        shard.write_bytes(struct.pack("<256i", 20240801, 7, len(tokens), *[0] * 253) + struct.pack(f"<{len(tokens)}I", *tokens))
        out, run = self.folder / "tuned", self.folder / "run"
        subprocess.run([TRAIN_GPT, "--data", shard, "--init", self.qwen3, "--sequence", "16", "--batch", "2", "--steps", "8", "--warmup", "1",
                        "--learning-rate", "0.01", "--device", "simulated", "--link-bandwidth", "unthrottled", "--export", out,
                        "--table-rows", "64", "--checkpoint", run], check=True, capture_output=True)
        tuned = hf.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
        ids = self.tokenizer("In the beginning")["input_ids"]
        right = greedy(tuned, ids, 50)
        self.assertNotEqual(right, greedy(self.model, ids, 50))
        self.assertEqual(ids_of(ids, "--init", out, "--tokens", 50), right)
        self.assertEqual(ids_of(ids, "--checkpoint", run, "--tokens", 50, "--stop-ids", "0"), right)
        text = self.tokenizer.decode(right, skip_special_tokens=True, clean_up_tokenization_spaces=False) + "\n"
        words = ["--temperature", "0", "--max-tokens", "50", "--raw", "In the beginning"]
        self.assertEqual(generate("--model", out, *words).stdout, text)
        self.assertEqual(generate("--model", run, "--tokenizer", out, *words).stdout, text)
        newest = max(run.glob("step-*"))
        self.assertEqual(generate("--model", newest, "--tokenizer", out, *words).stdout, text)
        self.refused(generate("--model", newest, *words), "--tokenizer")

    def test_mistakes_are_told(self):
        self.refused(generate("--model", self.folder / "nowhere", "x"), "--model", "no such folder")
        empty = self.folder / "empty"
        empty.mkdir()
        self.refused(generate("--model", empty, "x"), "config.json", "state.json")
        self.refused(generate("--model", self.qwen3, "--raw", ""), "no token")
        self.refused(generate("--model", self.qwen3, "--raw", "--system", "x", "x"), "--system and --raw")
        self.refused(generate("--model", self.qwen3, "--temperature", "-1", "x"), "--temperature")
        self.refused(generate("--model", self.qwen3, "--max-tokens", "-1", "x"), "--max-tokens")
        self.refused(generate("--model", self.qwen3, "--programs", empty, "x"), "--programs", "cmake --preset release")
        broken = self.folder / "broken"
        broken.mkdir()
        (broken / "config.json").write_text((self.qwen3 / "config.json").read_text())
        self.refused(generate("--model", broken, "x"), "no tokenizer beside the model")
        self.refused(generate("--model", broken, "--tokenizer", self.qwen3, "x"), "--init", "model.safetensors")
        self.refused(generate("--model", broken, "--tokenizer", broken, "x"), "--tokenizer", "no tokenizer in it")
        (broken / "tokenizer.json").write_text("{")
        self.refused(generate("--model", broken, "x"), "does not load")

    def started(self):
        endless = self.folder / "endless"  # no token of it ends a text
        if not endless.exists():
            shutil.copytree(self.qwen3, endless)
            (endless / "generation_config.json").unlink()
            config = json.loads((endless / "config.json").read_text())
            (endless / "config.json").write_text(json.dumps({**config, "eos_token_id": None}))
        environment = {**os.environ, "PYTHONPATH": PACKAGE, "STOWAGE_PLAN_LIBRARY": LIBRARY, "PYTHONDONTWRITEBYTECODE": "1"}
        program = subprocess.Popen([sys.executable, "-m", "stowage.generate", "--programs", str(Path(TRAIN_GPT).parent), "--model", endless,
                                    "--raw", "--max-tokens", "1000000", "--temperature", "1000", "the"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment)
        self.assertNotEqual(program.stdout.read(1), b"")
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        self.assertEqual(len(children), 1)
        return program, children[0]

    def test_an_interrupt_or_a_closed_pipe_ends_it_and_its_child(self):
        for how in (signal.SIGINT, signal.SIGTERM, None):
            program, child = self.started()
            if how is None:
                program.stdout.close()
            else:
                program.send_signal(how)
            self.assertEqual(program.wait(timeout=60), 130)
            self.assertEqual(program.stderr.read(), b"")
            self.assertFalse(Path(f"/proc/{child}").exists())
            program.stderr.close()
            if how is not None:
                program.stdout.close()


class Streams(unittest.TestCase):
    """The text that is written piece by piece is the text of all tokens, and no piece ends within a character."""

    def test_characters_of_several_tokens_come_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = make_tokenizer(folder)
        text = "a café 🙂 of Ωmega\n\nand the ship 漢字 "
        ids = tokenizer(text)["input_ids"]
        self.assertGreater(len(ids), len(text) / 2)
        stream = module.Stream(tokenizer)
        pieces = [stream.add(token) for token in ids]
        self.assertEqual("".join(pieces) + stream.finish(), text)
        self.assertNotIn("\N{REPLACEMENT CHARACTER}", "".join(pieces))
        self.assertGreater(sum(1 for piece in pieces if piece), 10)

    def test_a_character_that_never_ends_is_written_at_the_end(self):
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = make_tokenizer(folder)
        stream = module.Stream(tokenizer)
        first = tokenizer("漢")["input_ids"][0]
        self.assertEqual(stream.add(first), "")
        self.assertEqual(stream.finish(), "\N{REPLACEMENT CHARACTER}")

    def test_a_terminal_gets_no_control_characters(self):
        self.assertEqual(module.shown("a\x1b[2J\n\té\x9b"), "a\\x1b[2J\n\té\\x9b")


class Programs(unittest.TestCase):
    def test_the_program_is_looked_for_in_the_tree_and_on_the_path(self):
        tree, path = module.built_trees, os.environ["PATH"]
        try:
            with tempfile.TemporaryDirectory() as folder:
                samples = Path(folder) / "build/release/samples"
                samples.mkdir(parents=True)
                program = samples / "train_gpt"
                module.built_trees = lambda: [Path(folder)]
                os.environ["PATH"] = folder
                self.assertRaisesRegex(module.Unusable, "cmake --build", module.find_program, None)
                program.write_text("#!/bin/sh\n")
                self.assertRaises(module.Unusable, module.find_program, None)  # it is no program yet
                program.chmod(0o755)
                self.assertEqual(module.find_program(None), str(program))
                self.assertEqual(module.find_program(Path(folder) / "build/release"), str(program))
                module.built_trees = lambda: []
                os.environ["PATH"] = str(samples)
                self.assertEqual(module.find_program(None), str(program))
        finally:
            module.built_trees, os.environ["PATH"] = tree, path


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
