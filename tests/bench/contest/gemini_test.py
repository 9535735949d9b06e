"""How Gemini is imported, with a package of ColossalAI's name in its place, and how it is compiled."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

CONTEST = Path(__file__).resolve().parents[3] / "bench" / "contest"
sys.path.insert(0, str(CONTEST))
import cases  # noqa: E402
import gemini  # noqa: E402
import peers  # noqa: E402
import torch_peer  # noqa: E402

# Imports what ColossalAI imports on the way to Gemini.
COLOSSALAI = {
    "__init__.py": "__version__ = '0.5.0'\n",
    "zero/__init__.py": "",
    "zero/gemini.py": "from peft import PeftModel, PeftType\n"
    "from peft.utils.other import EMBEDDING_LAYER_NAMES, check_file_exists_on_hf_hub\n"
    "from peft.utils.save_and_load import get_embedding_layer_name, has_valid_embedding_base_layer\n"
    "from galore_torch import GaLoreAdafactor, GaLoreAdamW\n"
    "from bitsandbytes.optim.optimizer import Optimizer2State\n"
    "class Galore(Optimizer2State): pass\n",
    "kernel/__init__.py": "",
    "kernel/extensions/__init__.py": "",
    "kernel/extensions/base_extension.py": "class _Extension:\n"
    "    def get_jit_extension_folder_path(): return 'home'\n",
    "kernel/kernel_loader.py": "from .extensions.base_extension import _Extension\n"
    "class CPUAdamLoader:\n    def load(self): print('compiles in', _Extension.get_jit_extension_folder_path())\n",
}
# As `import_package` of a process in which nothing of it has been imported.
IMPORT = (
    "import torch_peer\n"
    "try: print(torch_peer.import_package('gemini', 'cuda'))\n"
    "except Exception as error: print(torch_peer.REACHED, *torch_peer.explain(error))\n"
)


class Import(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site = Path(folder.name)

    def install(self, **instead):
        for name, text in {**COLOSSALAI, **instead}.items():
            path = self.site / "colossalai" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def python(self, *words, **environment):
        environment = {"PYTHONPATH": f"{self.site}:{CONTEST}", **environment}
        done = subprocess.run(
            [sys.executable, "-B", *words], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        self.assertEqual(done.stderr, "")
        return done.stdout.strip()

    def test_needs_no_package_that_gemini_does_not_use(self):
        self.install()
        self.assertEqual(self.python("-c", IMPORT), "{'colossalai': '0.5.0'}")

    def test_an_installed_package_makes_no_difference(self):
        self.install()
        (self.site / "peft.py").write_text("raise ImportError('needs another transformers')\n", encoding="utf-8")
        self.assertEqual(self.python("-c", IMPORT), "{'colossalai': '0.5.0'}")

    def test_says_what_is_absent(self):
        self.assertEqual(
            self.python("-c", IMPORT),
            "import of colossalai absent ModuleNotFoundError: No module named 'colossalai'",
        )
        self.install(**{"zero/gemini.py": "import einops_of_none\n"})
        self.assertEqual(
            self.python("-c", IMPORT),
            "import of colossalai absent ModuleNotFoundError: No module named 'einops_of_none'",
        )

    def test_compiles_in_the_folder_for_extensions(self):
        self.install()
        program = str(CONTEST / "gemini.py")
        self.assertEqual(self.python(program, "cuda", TORCH_EXTENSIONS_DIR="/x"), "compiles in /x/colossalai")


class Chunks(unittest.TestCase):
    def test_have_gemini_s_own_size_in_every_case_for_a_card(self):
        for case in cases.CARD + cases.LONG:
            self.assertEqual(gemini.chunk_size(case.parameters()), 32 << 20)

    def test_are_several_in_a_small_model(self):
        parameters = cases.SMALL_CPU[0].parameters()
        self.assertEqual(gemini.chunk_size(parameters), parameters / 3)


class Packages(unittest.TestCase):
    def commands(self, *jobs, device="cuda"):
        given = SimpleNamespace(python="python", wheels="/nowhere")
        found = peers.Peers(given, None, device, None, "scratch", float("inf"))
        with mock.patch.object(peers.watch, "run") as run:
            for peer, case in jobs:
                found.prepare_package(peers.package_of(peer), case)
        return [call.args[0][1:] for call in run.call_args_list]

    def test_are_those_of_the_peers(self):
        packages = {peer: peers.package_of(peer) for peer in cases.PEERS + cases.CPU_PEERS + cases.NAMED_PEERS}
        self.assertEqual(
            {peer for peer in packages if packages[peer] == "deepspeed"},
            {"zero2", "zero3", "zero3-super", "zero3-super-clipless", "zero3-ratio"},
        )
        self.assertEqual({peer for peer in packages if packages[peer] == "colossalai"}, {"gemini", "gemini-fp16"})

    def test_each_compiles_once(self):
        case = cases.CARD[0]
        commands = self.commands(("zero3", case), ("gemini", case), ("gemini-fp16", case), ("zero2", case))
        self.assertEqual(commands, [["-c", peers.COMPILE_DEEPSPEED], [str(CONTEST / "gemini.py"), "cuda"]])

    def test_nothing_is_compiled_for_a_card_that_is_not_there(self):
        self.assertEqual(self.commands(("gemini", cases.CARD[0]), ("zero3", cases.CARD[0]), device="cpu"), [])

    def test_a_broken_wheel_is_named_and_the_others_are_unpacked(self):
        def install(words, *_):
            broken = any("deepspeed" in word.name for word in words if isinstance(word, Path))
            return {"code": int(broken), "errors": "ERROR: File is not a zip file\n" if broken else ""}

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(peers.watch, "run", side_effect=install) as run:
            for name in ("deepspeed-1.whl", "colossalai-1.whl"):
                Path(folder, name).touch()
            found = peers.Peers(SimpleNamespace(python="python", wheels=folder), None, "cuda", None, "scratch", float("inf"))
            found.unpack_wheels()
        self.assertEqual((run.call_count, found.broken), (3, {"deepspeed-1.whl": "ERROR: File is not a zip file"}))
        output = ['{"event": "absent", "message": "No module named deepspeed"}']
        of_zero, of_pytorch = (
            found.python_events(cases.Job(cases.CARD[0], peer), {"output": output}) for peer in ("zero3", "pytorch")
        )
        self.assertEqual(of_zero[0]["event"], "failed")
        self.assertIn("broken wheels: deepspeed-1.whl: ERROR: File is not a zip file", of_zero[0]["message"])
        self.assertEqual(of_pytorch[0]["event"], "absent")


if __name__ == "__main__":
    unittest.main()
