#!/usr/bin/env python3
"""What plans need against what real steps hold, for small models of many architectures of Hugging Face.

    python bench/pytorch/needs.py [MODEL …]     (torch, transformers and stowage in its environment)

Prints for each model the plan's need over the most bytes of a real step on the CPU with the optimizer's moments. The nine models that
tests/tools/c_plan/models_test.py judges are not among them.
"""

import sys
from pathlib import Path

import torch
import transformers as hf

import stowage

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/tools/c_plan"))
from live_bytes import LiveBytes  # noqa: E402

OVERHEAD = 629145600  # of the machine that is planned for
WORDS = 1000
SMALL = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": WORDS}
GROUPED = SMALL | {"num_key_value_heads": 2}
WIDE = GROUPED | {"head_dim": 32}


def text():
    return {"input_ids": torch.randint(1, WORDS, (4, 128)), "labels": torch.randint(1, WORDS, (4, 128))}


def speech():
    return {"input_features": torch.randn(2, 80, 200), "labels": torch.randint(0, WORDS, (2, 20))}


def pairs():
    return {"input_ids": torch.randint(1, WORDS, (4, 16)), "pixel_values": torch.randn(4, 3, 64, 64), "return_loss": True}


def whisper():
    return hf.WhisperForConditionalGeneration(hf.WhisperConfig(
        vocab_size=WORDS, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        max_source_positions=100, begin_suppress_tokens=None, suppress_tokens=None))


def clip():
    part = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    return hf.CLIPModel(hf.CLIPConfig(text_config=part | {"vocab_size": WORDS}, vision_config=part | {"image_size": 64, "patch_size": 16}))


MODELS = {
    "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**GROUPED)),
    "gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**WIDE)),
    "gemma3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**WIDE)),
    "phi3": lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**GROUPED, pad_token_id=0)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**GROUPED)),
    "qwen3-moe": lambda: hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(**WIDE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64)),
    "olmo2": lambda: hf.Olmo2ForCausalLM(hf.Olmo2Config(**GROUPED)),
    "deepseek-v3": lambda: hf.DeepseekV3ForCausalLM(hf.DeepseekV3Config(
        **SMALL, num_key_value_heads=4, moe_intermediate_size=64, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
        first_k_dense_replace=1, q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=16, v_head_dim=32, qk_nope_head_dim=16)),
    "gpt-neox": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SMALL)),
    "opt": lambda: hf.OPTForCausalLM(hf.OPTConfig(vocab_size=WORDS, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, ffn_dim=256,
                                                  word_embed_proj_dim=128)),
    "bloom": lambda: hf.BloomForCausalLM(hf.BloomConfig(vocab_size=WORDS, hidden_size=128, n_layer=3, n_head=4)),
    "falcon": lambda: hf.FalconForCausalLM(hf.FalconConfig(vocab_size=WORDS, hidden_size=128, num_hidden_layers=3, num_attention_heads=4)),
    "roberta": lambda: hf.RobertaForMaskedLM(hf.RobertaConfig(**SMALL)),
    "distilbert": lambda: hf.DistilBertForMaskedLM(hf.DistilBertConfig(vocab_size=WORDS, dim=128, n_layers=3, n_heads=4, hidden_dim=256)),
    "electra": lambda: hf.ElectraForMaskedLM(hf.ElectraConfig(**SMALL, embedding_size=128)),
    "deberta-v2": lambda: hf.DebertaV2ForMaskedLM(hf.DebertaV2Config(**SMALL)),
    "albert": lambda: hf.AlbertForMaskedLM(hf.AlbertConfig(**SMALL, embedding_size=64)),
    "modernbert": lambda: hf.ModernBertForMaskedLM(hf.ModernBertConfig(
        **SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)),
    "bart": lambda: hf.BartForConditionalGeneration(hf.BartConfig(
        vocab_size=WORDS, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=256, decoder_ffn_dim=256, pad_token_id=1, decoder_start_token_id=2)),
    "mamba": lambda: hf.MambaForCausalLM(hf.MambaConfig(vocab_size=WORDS, hidden_size=64, num_hidden_layers=2)),
    "whisper": whisper,
    "clip": clip,
}
BATCHES = {"whisper": speech, "clip": pairs}


def main():
    hf.logging.set_verbosity_error()
    print(f"torch {torch.__version__}, transformers {hf.__version__}")
    for name in sys.argv[1:] or MODELS:
        torch.manual_seed(0)
        model, batch = MODELS[name]().train(), BATCHES.get(name, text)()
        need = stowage.plan(model, batch).json["need_bytes"] - OVERHEAD
        tensors = [value for value in batch.values() if isinstance(value, torch.Tensor)]
        with LiveBytes([*model.parameters(), *model.buffers(), *tensors]) as live:
            model(**batch).loss.backward()
        held = live.most + 8 * sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        print(f"{name}: {need} over {held} bytes: {need / held:.4f}", flush=True)


if __name__ == "__main__":
    main()
