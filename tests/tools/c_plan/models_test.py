"""stowage.plan of unmodified Hugging Face models against real runs on the CPU: python3 models_test.py PACKAGE LIBRARY

Ends with code 77 (skipped) where PyTorch 2.6, transformers or PEFT is missing. Prints for each model what the plan needs over
what a real step holds at most."""

import json
import os
import sys
import unittest

PACKAGE, LIBRARY = sys.argv[1:3]
try:
    import peft
    import torch
    import transformers as hf
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
os.environ["STOWAGE_PLAN_LIBRARY"] = LIBRARY
sys.path.insert(0, PACKAGE)
import stowage  # noqa: E402
from live_bytes import LiveBytes  # noqa: E402

OVERHEAD = 629145600  # of the machine that is planned for
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
GPT2 = {"n_embd": 256, "n_layer": 6, "n_head": 4, "vocab_size": 5000, "n_positions": 256}
LLAMA = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 5000}


def text(samples=8, length=256, labels=None):
    torch.manual_seed(3)
    return {"input_ids": torch.randint(1, 5000, (samples, length)), "labels": torch.randint(1, 5000, (samples, labels or length))}


def images(samples=8):
    return {"pixel_values": torch.randn(samples, 3, 224, 224), "labels": torch.arange(samples)}


MODELS = {
    "gpt2": (lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2)), text),
    "gpt2 without dropout": (lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2, **NO_DROPOUT)), text),
    "bert": (lambda: hf.BertForMaskedLM(hf.BertConfig(vocab_size=5000, hidden_size=256, num_hidden_layers=6, num_attention_heads=4,
                                                      intermediate_size=1024)), text),
    "t5": (lambda: hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=5000, d_model=256, d_ff=1024, num_layers=4, num_heads=4,
                                                             decoder_start_token_id=0, pad_token_id=0)), lambda: text(labels=64)),
    "llama": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA)), text),
    "qwen3": (lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**LLAMA, head_dim=64, tie_word_embeddings=True)), text),
    "mixtral": (lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**LLAMA, num_local_experts=4)), text),
    "vit": (lambda: hf.ViTForImageClassification(hf.ViTConfig(hidden_size=192, num_hidden_layers=6, num_attention_heads=3,
                                                              intermediate_size=768, num_labels=10)), images),
    "resnet-18": (lambda: hf.ResNetForImageClassification(hf.ResNetConfig(
        depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic", num_labels=10)), images),
}


def moved(answer, *kinds):
    """The tensors that instructions of these kinds move."""
    plan = json.loads(answer.plan)
    buckets = {plan["lifetimes"][step["lifetime"]]["bucket"] for step in plan["instructions"] if step["kind"] in kinds}
    return {plan["buckets"][bucket]["name"].split(" ")[0] for bucket in buckets}


class Models(unittest.TestCase):
    def test_need_is_what_a_real_run_holds(self):
        for name, (make, batch) in MODELS.items():
            with self.subTest(name):
                torch.manual_seed(1)
                model, batch = make().train(), batch()
                answer = stowage.plan(model, batch)
                self.assertTrue(answer.fits)
                with LiveBytes([*model.parameters(), *model.buffers(), *batch.values()]) as live:
                    model(**batch).loss.backward()
                held = live.most + 8 * sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
                ratio = (answer.json["need_bytes"] - OVERHEAD) / held
                print(f"{name}: {answer.json['need_bytes'] - OVERHEAD} over {held} bytes: {ratio:.4f}", flush=True)
                self.assertAlmostEqual(ratio, 1, delta=0.03)

    def test_weights_that_lora_freezes_stay_on_the_card_or_come_and_never_leave(self):
        with torch.device("meta"):
            model = peft.get_peft_model(hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA)).to(torch.bfloat16),
                                        peft.LoraConfig(target_modules=["q_proj"], r=8, task_type="CAUSAL_LM"))
        frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
        spare = stowage.plan(model, text())
        self.assertFalse(frozen.intersection(moved(spare, "prefetch", "offload")))
        tight = stowage.plan(model, text(), device_memory=spare.json["minimum_device_bytes"])
        self.assertTrue(frozen.intersection(moved(tight, "prefetch")))
        self.assertFalse(frozen.intersection(moved(tight, "offload")))


hf.logging.set_verbosity_error()
unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
