"""stowage.offload under Hugging Face's Trainer against eager, to the bit: python3 trainer_test.py PACKAGE LIBRARY

Ends with code 77 (skipped) where PyTorch 2.6 or transformers is missing."""

import os
import re
import sys
import tempfile
import unittest
from pathlib import Path

PACKAGE, LIBRARY = sys.argv[1:3]
try:
    import torch
    import transformers as hf
    from accelerate.state import AcceleratorState, GradientState
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
os.environ["STOWAGE_PLAN_LIBRARY"] = LIBRARY
sys.path.insert(0, PACKAGE)
import stowage  # noqa: E402
from stowage._arena import Program  # noqa: E402

STEPS, SAVED = 6, 4


def text(number):
    """Every third is padded."""
    generator = torch.Generator().manual_seed(number)
    words = {name: torch.randint(1, 100, (16,), generator=generator) for name in ("input_ids", "labels")}
    words["attention_mask"] = torch.ones(16, dtype=torch.long)
    if number % 3 == 0:
        words["attention_mask"][9:], words["labels"][9:] = 0, -100
    return words


DATA = [text(number) for number in range(24)]
MODELS = {
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100, n_positions=16, bos_token_id=0,
                                                     eos_token_id=0)),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                                                        num_key_value_heads=1, vocab_size=100)),
}


def made(name):
    torch.manual_seed(1)
    return MODELS[name]()


def batch():
    return {name: torch.stack([DATA[0][name], DATA[1][name]]) for name in DATA[0]}


def offloaded(model, optimizer, device_memory):
    if device_memory is not None:
        stowage.offload(model, optimizer, batch(), device_memory=device_memory)


def least(model):
    try:
        offloaded(model, torch.optim.AdamW(model.parameters()), 1)
    except stowage.Refused as error:
        return int(re.search(r"device_memory must be (\d+) bytes", str(error))[1])


def trainer(model, folder, device_memory=None, **arguments):
    """Of eager where there is no budget."""
    AcceleratorState._reset_state(reset_partial_state=True)  # of the Trainer before
    GradientState._reset_state()
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)
    arguments = hf.TrainingArguments(folder, max_steps=STEPS, per_device_train_batch_size=2, use_cpu=True, report_to=[], logging_steps=1,
                                     save_steps=SAVED, warmup_steps=2, learning_rate=1e-2, disable_tqdm=True, **arguments)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    offloaded(model, optimizer, device_memory)
    run = hf.Trainer(model, arguments, train_dataset=DATA, optimizers=(optimizer, None))
    run.remove_callback(hf.PrinterCallback)
    return run


def told(run):
    """Losses, norms and rates by step."""
    return [(line["step"], line["loss"], line["grad_norm"], line["learning_rate"]) for line in run.state.log_history if "loss" in line]


def same(one, other):
    return all(torch.equal(*pair) for pair in zip(one.parameters(), other.parameters(), strict=True))


class Trainers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def test_losses_norms_and_weights_are_eagers_and_so_is_what_a_checkpoint_goes_on_with(self):
        for name, passes in (("gpt2", 1), ("llama", 2)):
            arguments = {"gradient_accumulation_steps": passes, "max_grad_norm": 0.5}
            eager = trainer(made(name), self.path(f"{name} eager"), **arguments)
            eager.train()
            wanted = told(eager)
            self.assertEqual(len(wanted), STEPS)
            for budget in ("8GiB", least(made(name))):
                with self.subTest(name, budget=budget):
                    folder = self.path(f"{name} {budget}")
                    run = trainer(made(name), folder, budget, **arguments)
                    run.train()
                    self.assertEqual(told(run), wanted)
                    self.assertTrue(same(run.model, eager.model))
                    self.assertGreater(len(run.model._stowage.programs), 1)  # with and without padding
                    torch.manual_seed(5)  # other weights than those that were saved
                    again = trainer(MODELS[name](), folder, budget, **arguments)
                    again.train(resume_from_checkpoint=os.path.join(folder, f"checkpoint-{SAVED}"))
                    self.assertEqual(told(again)[SAVED:], wanted[SAVED:])
                    self.assertTrue(same(again.model, eager.model))

    def test_bfloat16(self):
        runs = []
        for budget in (None, "8GiB", None):
            runs.append(trainer(made("gpt2"), self.path(f"{len(runs)}"), budget, bf16=True))
            runs[-1].train()
        for run in runs:
            self.assertEqual(told(run), told(runs[0]))
            self.assertTrue(same(run.model, runs[0].model))

    def test_what_is_saved_is_the_models_own(self):
        model, other = made("llama"), made("llama")
        offloaded(other, torch.optim.AdamW(other.parameters()), "8GiB")
        for one, name in ((model, "one"), (other, "other")):
            one.save_pretrained(self.path(name))
        for file in ("model.safetensors", "config.json"):
            self.assertEqual(*(Path(self.path(name), file).read_bytes() for name in ("one", "other")))

    def test_a_loss_outside_of_the_model_is_refused_by_name(self):
        smoothed = trainer(made("gpt2"), self.path("smoothed"), "8GiB", label_smoothing_factor=0.1)
        with self.assertRaisesRegex(stowage.Refused, "label_smoothing_factor and compute_loss_func"):
            smoothed.train()
        own = trainer(made("gpt2"), self.path("own"), "8GiB")
        own.compute_loss_func = lambda output, labels, **_: output["logits"].square().mean()
        with self.assertRaisesRegex(stowage.Refused, "label_smoothing_factor and compute_loss_func"):
            own.train()


torch.set_num_threads(1)  # these tensors are small
Program.poisoned = True
hf.logging.set_verbosity_error()
unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
