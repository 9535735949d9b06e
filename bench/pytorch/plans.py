#!/usr/bin/env python3
"""Plans training steps of unmodified Hugging Face models of real sizes, on `meta`, without a card.

    python3 -m venv V && V/bin/pip install . torch==2.15.0 transformers==5.24.0 peft
    V/bin/python bench/pytorch/plans.py [MODEL …] [--traces FOLDER]

Prints a row for each model: ops of its step, seconds of `stowage.plan` (recording and planning, without the import), the most
memory of the process so far, need and minimum, and the predicted step on the machine. With --traces it leaves each trace there,
compressed.
"""

import argparse
import gzip
import resource
import time
from pathlib import Path

import torch
import transformers
from transformers import (BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          MixtralConfig, MixtralForCausalLM, Qwen3Config, Qwen3ForCausalLM, ResNetConfig,
                          ResNetForImageClassification, T5Config, T5ForConditionalGeneration, ViTConfig, ViTForImageClassification)

import stowage

LLAMA = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 128256}
LLAMA_1B = LLAMA | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "vocab_size": 32000}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def text(samples, length, labels=None):
    return {"input_ids": torch.zeros(samples, length, dtype=torch.long),
            "labels": torch.zeros(samples, labels or length, dtype=torch.long)}


def images(samples):
    return {"pixel_values": torch.zeros(samples, 3, 224, 224), "labels": torch.zeros(samples, dtype=torch.long)}


def lora():
    from peft import LoraConfig, get_peft_model
    model = LlamaForCausalLM(LlamaConfig(**LLAMA_1B)).to(torch.bfloat16)
    return get_peft_model(model, LoraConfig(target_modules=["q_proj"], r=8, task_type="CAUSAL_LM"))


# Of each: the model, its batch, and what else is asked.
MODELS = {
    "gpt2": (lambda: GPT2LMHeadModel(GPT2Config()), lambda: text(8, 1024), {}),
    "gpt2-without-dropout": (lambda: GPT2LMHeadModel(GPT2Config(**NO_DROPOUT)), lambda: text(8, 1024), {}),
    "gpt2-in-6-gib": (lambda: GPT2LMHeadModel(GPT2Config(**NO_DROPOUT)), lambda: text(8, 1024), {"device_memory": "6GiB"}),
    "gpt2-in-6-gib-autocast": (lambda: GPT2LMHeadModel(GPT2Config(**NO_DROPOUT)), lambda: text(8, 1024),
                               {"device_memory": "6GiB", "autocast": True}),
    "bert-base": (lambda: BertForMaskedLM(BertConfig()), lambda: text(16, 512), {}),
    "t5-small": (lambda: T5ForConditionalGeneration(T5Config(decoder_start_token_id=0, pad_token_id=0)), lambda: text(8, 512, 128), {}),
    "llama-8b": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)).to(torch.bfloat16), lambda: text(1, 2048), {}),
    "llama-8b-half": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)).to(torch.bfloat16), lambda: text(1, 2048),
                      {"device_memory": "53GiB"}),
    "llama-8b-of-8": (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)).to(torch.bfloat16), lambda: text(8, 2048),
                      {"device_memory": "24GiB"}),
    "qwen3-0.6b": (lambda: Qwen3ForCausalLM(Qwen3Config(
        hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
        vocab_size=151936, tie_word_embeddings=True)).to(torch.bfloat16), lambda: text(1, 2048), {}),
    "mixtral-small": (lambda: MixtralForCausalLM(MixtralConfig(
        hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=8)), lambda: text(2, 512), {}),
    "vit-base": (lambda: ViTForImageClassification(ViTConfig()), lambda: images(32), {}),
    "resnet-18": (lambda: ResNetForImageClassification(ResNetConfig(
        depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic")), lambda: images(32), {}),
    "llama-1b-lora": (lora, lambda: text(1, 2048), {}),
    "llama-1b-lora-in-3-gib": (lora, lambda: text(1, 2048), {"device_memory": "3GiB"}),
}


def gib(count):
    return f"{count / 2**30:.2f} GiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), help=", ".join(MODELS))
    parser.add_argument("--machine", default="rtx4090")
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--plans", type=Path, help="a folder for what each answer prints")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, machine {arguments.machine}")
    print("| model | ops | stowage.plan | memory | need | minimum | budget | fits | step | gap | in, out |\n|---|---|---|---|---|---|---|---|---|---|---|")
    for name in arguments.models:
        make, batch, asked = MODELS[name]
        asked = dict(asked)
        autocast = torch.autocast("cpu", torch.bfloat16, enabled=asked.pop("autocast", False))
        with torch.device("meta"):
            model = make()
        begin = time.perf_counter()
        with autocast:
            answer = stowage.plan(model, batch(), machine=arguments.machine, **asked)
        seconds = time.perf_counter() - begin
        found = answer.json
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        end = (f"yes | {1000 * found['step_seconds']:.1f} ms | {100 * found['gap']:.1f} % | "
               f"{gib(found['h2d_bytes'])}, {gib(found['d2h_bytes'])}" if answer.fits else "no | | | ")
        print(f"| {name} | {answer._trace.count(b'{' + chr(34).encode() + b'op' + chr(34).encode())} | {seconds:.1f} s | {gib(memory)} | "
              f"{gib(found['need_bytes'])} | {gib(found['minimum_device_bytes'])} | {gib(found['budget_bytes'])} | {end} |", flush=True)
        if not answer.fits:
            print(str(answer).splitlines()[0], str(answer).splitlines()[-1], sep="\n", flush=True)
        if arguments.plans and answer.fits:
            arguments.plans.mkdir(parents=True, exist_ok=True)
            (arguments.plans / f"{name}.txt").write_text(f"{answer}\n", encoding="utf-8")
        if arguments.traces:
            arguments.traces.mkdir(parents=True, exist_ok=True)
            with gzip.GzipFile(arguments.traces / f"{name}.jsonl.gz", "wb", mtime=0) as file:
                file.write(answer._trace)


if __name__ == "__main__":
    main()
