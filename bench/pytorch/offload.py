#!/usr/bin/env python3
"""stowage.offload against eager PyTorch on the CPU.

    python bench/pytorch/offload.py bits [MODEL …]      (torch, transformers and stowage in its environment)
    python bench/pytorch/offload.py time

bits: five steps of AdamW of nine small models of Hugging Face, each under its need, a half, a quarter and its minimum, of GPT-2 124M under
30 % of its need and its minimum, and of a Llama with PEFT's LoRA; prints a line of JSON for each run, with what was compared.
time: steps almost without arithmetic, of 32 layers of width 16: what the tape and the plan cost of the host's time.
"""

import copy
import json
import sys
import time
from pathlib import Path

import torch
import transformers as hf

import stowage

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/tools/c_plan"))
from models import LLAMA, MODELS, text  # noqa: E402

OVERHEAD = 629145600  # of the machine that is planned for, which is not the model's
STEPS = 5


def gpt2_124m():
    return hf.GPT2LMHeadModel(hf.GPT2Config())


def lora():
    import peft
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA))
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=8, task_type="CAUSAL_LM"))


SHARES = {"need": 1.0, "half": 0.5, "quarter": 0.25, "minimum": 0.0}
CASES = {name: (make, batch, SHARES) for name, (make, batch) in MODELS.items()}
CASES["lora"] = (lora, text, SHARES)
CASES["gpt2-124m"] = (gpt2_124m, lambda: text(1, 256), {"30 %": 0.3, "minimum": 0.0})


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(model, optimizer, batch):
    """Losses, and the fastest step's seconds."""
    losses, fastest = [], float("inf")
    torch.manual_seed(7)
    for _ in range(STEPS):
        begin = time.perf_counter()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        fastest = min(fastest, time.perf_counter() - begin)
    return losses, fastest


def same(one, other):
    """Elements that differ."""
    return sum((left != right).sum().item() for left, right in zip(one, other, strict=True))


def smallest(model, batch):
    try:
        stowage.offload(model, adamw(model), batch, device_memory=1)
    except stowage.Refused as error:
        return int(str(error).split("must be ")[1].split(" bytes")[0])


def bits(name):
    make, batch, shares = CASES[name]
    torch.manual_seed(1)
    start, batch = make().train(), batch()
    eager = copy.deepcopy(start)
    wanted, eager_seconds = train(eager, adamw(eager), batch)
    minimum = smallest(copy.deepcopy(start), batch)
    need = None
    for label, share in {"all": None, **shares}.items():
        if share is None:  # without a limit: what the recorded step needs
            budget = "64GiB"
        else:
            budget = max(minimum, OVERHEAD + int(share * need))
        model = copy.deepcopy(start)
        begin = time.perf_counter()
        model, optimizer = stowage.offload(model, adamw(model), batch, device_memory=budget)
        planned = time.perf_counter() - begin
        plan = model._stowage.planned[0][1]
        if share is None:
            need = plan["device_peak_bytes"]
            continue
        losses, seconds = train(model, optimizer, batch)
        kinds = [step["kind"] for step in plan["instructions"]]
        print(json.dumps({
            "model": name, "budget": label, "device_memory": budget, "equal_losses": losses == wanted,
            "weights_that_differ": same(model.parameters(), eager.parameters()), "buffers_that_differ": same(model.buffers(), eager.buffers()),
            "arena_bytes": model._stowage.arena.numel(), "planned_peak_bytes": plan["device_peak_bytes"], "need_bytes": need,
            "steps_recorded": len(model._stowage.programs), "prefetches": kinds.count("prefetch"), "offloads": kinds.count("offload"),
            "recomputed": kinds.count("recompute"), "record_and_plan_seconds": round(planned, 1), "step_over_eager": round(seconds / eager_seconds, 2),
            "losses": losses}), flush=True)


def host_time():
    torch.set_num_threads(1)
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 32, "num_attention_heads": 2, "vocab_size": 64}
    makes = {"gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=16, n_layer=32, n_head=2, vocab_size=64, n_positions=16)),
             "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**small))}
    batch = {"input_ids": torch.randint(1, 64, (1, 8)), "labels": torch.randint(1, 64, (1, 8))}
    for name, make in makes.items():
        minimum = smallest(make().train(), batch)
        runs = {"eager": make().train()}
        for label, budget in (("all", "8GiB"), ("minimum", minimum)):
            model = make().train()
            runs[label], _ = stowage.offload(model, adamw(model), batch, device_memory=budget)
        fastest = dict.fromkeys(runs, float("inf"))
        for _ in range(20):
            for label, model in runs.items():
                begin = time.perf_counter()
                model(**batch).loss.backward()
                fastest[label] = min(fastest[label], time.perf_counter() - begin)
        print(json.dumps({"model": name, "operations": len(runs["all"]._stowage.programs[0].tape.calls),
                          "milliseconds": {label: round(1e3 * seconds, 1) for label, seconds in fastest.items()},
                          "over_eager": {label: round(seconds / fastest["eager"], 2) for label, seconds in fastest.items()}}), flush=True)


hf.logging.set_verbosity_error()
if sys.argv[1:2] == ["time"]:
    host_time()
elif sys.argv[1:2] == ["bits"]:
    for case in sys.argv[2:] or CASES:
        bits(case)
else:
    sys.exit(__doc__)
