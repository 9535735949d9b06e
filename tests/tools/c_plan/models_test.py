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
from models import LLAMA, MODELS, text  # noqa: E402

OVERHEAD = 629145600  # of the machine that is planned for


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
