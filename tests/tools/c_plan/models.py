"""Nine small models of Hugging Face, unmodified, each with a batch."""

import torch
import transformers as hf

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
