#!/usr/bin/env python3
"""The part of ColossalAI that Gemini needs, imported without the packages that Gemini does not use.

    python3 gemini.py cuda|cpu        compiles its AdamW, for which a measured process has no time
"""

import os
import sys
import types

# ColossalAI imports these names on the way to Gemini, and Gemini uses none of them. Empty classes take their place,
# also where the packages are installed, so that no version of them makes a difference.
STAND_INS = {
    # LoRA: colossalai/interface/model.py, colossalai/checkpoint_io/utils.py
    "peft": ("PeftModel", "PeftType"),
    "peft.utils": (),
    "peft.utils.other": ("EMBEDDING_LAYER_NAMES", "check_file_exists_on_hf_hub"),
    "peft.utils.save_and_load": ("get_embedding_layer_name", "has_valid_embedding_base_layer"),
    # GaLore's optimizers, which ColossalAI offers beside its own: colossalai/nn/optimizer/__init__.py
    "galore_torch": ("GaLoreAdafactor", "GaLoreAdamW"),
    # The base of 8-bit optimizers: colossalai/nn/optimizer/galore.py, colossalai/nn/optimizer/distributed_galore.py
    "bitsandbytes": (),
    "bitsandbytes.optim": (),
    "bitsandbytes.optim.optimizer": ("Optimizer2State",),
}
MEBI = 1 << 20
CHUNK = 32 * MEBI  # elements of the smallest chunk, and of the range that is searched above it: Gemini's own values
FEWEST_CHUNKS = 3  # of a model that is smaller than a chunk, which Gemini would leave on the device


def stand_in(name, words):
    module = types.ModuleType(name)
    module.__path__ = []  # a package
    for word in words:
        setattr(module, word, type(word, (), {}))
    return module


def import_colossalai(device):
    """The module, ready for Gemini. ModuleNotFoundError where ColossalAI or a package that Gemini uses is absent."""
    sys.modules.update({name: stand_in(name, words) for name, words in STAND_INS.items()})
    import colossalai
    import colossalai.zero.gemini
    from colossalai.kernel.extensions.base_extension import _Extension

    if folder := os.environ.get("TORCH_EXTENSIONS_DIR"):  # else it compiles in the home directory
        _Extension.get_jit_extension_folder_path = staticmethod(lambda: f"{folder}/colossalai")
    if device == "cpu":
        import gemini_on_cpu

        gemini_on_cpu.pretend()
    return colossalai


def chunk_size(parameters):
    """Elements of the smallest chunk."""
    return min(CHUNK, parameters / FEWEST_CHUNKS)


def main():
    import_colossalai(sys.argv[1])
    from colossalai.kernel.kernel_loader import CPUAdamLoader

    CPUAdamLoader().load()


if __name__ == "__main__":
    main()
