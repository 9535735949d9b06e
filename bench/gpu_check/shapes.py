"""The models that gpu_check trains: at full size, and tiny ones for a test of gpu_check itself."""


def shape(model, layers, width, heads, vocabulary, sequence, batch, kind):
    return {"model": model, "layers": layers, "width": width, "heads": heads, "vocabulary": vocabulary,
            "sequence": sequence, "batch": batch, "type": kind}


# On a card: 65,536 tokens per step where 64k are promised. Vocabularies are padded to a multiple of 64.
CARD = {
    "smoke": shape("gpt", 2, 256, 4, 2048, 1024, 4, "bf16"),
    "bits_steps": 20,
    "bits": [shape("gpt", 4, 256, 4, 2048, 256, 16, "bf16"), shape("gpt", 3, 192, 3, 1024, 128, 8, "f32"),
             shape("bert", 3, 256, 4, 2048, 128, 16, "bf16")],
    "trainer": ["--type", "bf16", "--layers", 6, "--width", 512, "--heads", 8, "--sequence", 256, "--batch", 32],
    "steps": 7,
    "gpt2": shape("gpt", 12, 768, 12, 50304, 1024, 64, "bf16"),
    "bert": shape("bert", 24, 1024, 16, 30528, 512, 128, "bf16"),
    "large_steps": 10,
    "large": shape("gpt", 36, 1280, 20, 50304, 1024, 8, "bf16"),
    "6.7b": shape("gpt", 32, 4096, 32, 50304, 1024, 8, "bf16"),
    "6.7b_budget": 22 << 30,
    "host_elements": 64 << 20,  # of the update that measures the host's rate: more than caches hold
    "whole": "124M-whole",  # cases of the contest
    "zero3": "1.56B",
    "torch": ["--layers", 12, "--width", 1024, "--heads", 16, "--vocabulary", 8192, "--sequence", 256, "--batch", 8,
              "--steps", 8],
}
SMALL = {
    "smoke": shape("gpt", 2, 64, 2, 256, 64, 2, "f32"),
    "bits_steps": 20,
    "bits": [shape("gpt", 2, 64, 2, 256, 64, 4, "f32"), shape("bert", 2, 64, 2, 256, 64, 4, "f32")],
    "trainer": ["--layers", 2, "--width", 64, "--heads", 2, "--sequence", 32, "--batch", 4],
    "steps": 3,
    "gpt2": shape("gpt", 2, 64, 2, 256, 64, 8, "f32"),
    "bert": shape("bert", 4, 64, 2, 256, 64, 8, "f32"),
    "large_steps": 3,
    "large": shape("gpt", 3, 128, 2, 256, 32, 2, "f32"),
    "6.7b": shape("gpt", 3, 128, 2, 256, 32, 4, "f32"),
    "host_elements": 1 << 16,
    "whole": "small-whole",
    "zero3": "small-card",
    "overhead_beside": True,  # a card's context alone is larger than such models
    "most_bucket_bytes": 1 << 17,  # else one bucket would hold the whole model
    "torch": ["--layers", 2, "--width", 64, "--heads", 2, "--vocabulary", 256, "--sequence", 32, "--batch", 4, "--steps", 4],
}
