"""The Python package over the built library: python3 python_test.py PACKAGE LIBRARY TRACE STOWAGE TRACES"""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest.mock import patch

PACKAGE, LIBRARY, TRACE, STOWAGE, TRACES = sys.argv[1:6]
os.environ["STOWAGE_PLAN_LIBRARY"] = LIBRARY
sys.path.insert(0, PACKAGE)
import stowage  # noqa: E402

TEXT = Path(TRACE).read_text(encoding="utf-8")


def command(*arguments):
    result = subprocess.run([STOWAGE, "plan", TRACE, "--machine", "rtx4090", *arguments], capture_output=True, text=True,
                            check=False)
    return result.stdout


class Package(unittest.TestCase):
    def test_answers_as_the_command_does(self):
        answer = stowage.plan_trace(TEXT, device_memory="1GiB")
        self.assertTrue(answer.fits)
        self.assertEqual(answer.json, json.loads(command("--device-memory", "1GiB", "--json")))
        self.assertEqual(str(answer) + "\n", command("--device-memory", "1GiB"))
        self.assertEqual(json.loads(answer.plan)["policy"], "auto")
        self.assertEqual(stowage.plan_trace(TEXT.encode(), device_memory=2**30).json, answer.json)

    def test_writes_its_files_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            answer = stowage.plan_trace(TEXT, policy="none", name="two layers")
            answer.report(f"{folder}/page.html")
            answer.trace(Path(folder, "step.jsonl"))
            self.assertIn("two layers", Path(folder, "page.html").read_text(encoding="utf-8"))
            self.assertEqual(Path(folder, "step.jsonl").read_text(encoding="utf-8"), TEXT)
            self.assertEqual(sorted(os.listdir(folder)), ["page.html", "step.jsonl"])
            with self.assertRaises(OSError):
                answer.report(f"{folder}/no/page.html")

    def test_plans_for_what_was_measured_here(self):
        with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, XDG_CACHE_HOME=cache):
            with self.assertRaisesRegex(stowage.Refused, "run `stowage calibrate`"):
                stowage.plan_trace(TEXT, machine="here")
            os.mkdir(f"{cache}/stowage")
            file = Path(__file__).parents[3] / "machines/rtx4090.json"
            shutil.copy(file, f"{cache}/stowage/here.json")
            self.assertEqual(stowage.plan_trace(TEXT, machine="here").json, stowage.plan_trace(TEXT).json)

    def test_says_where_the_other_package_of_this_name_is_installed(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"PYTHONPATH": f"{PACKAGE}:{folder}"}

            def said():
                return subprocess.run([sys.executable, "-c", "import stowage"], env=environment, capture_output=True, text=True,
                                      check=True).stderr

            self.assertEqual(said(), "")
            os.mkdir(f"{folder}/stowage-0.1.9.dist-info")
            Path(folder, "stowage-0.1.9.dist-info/METADATA").write_text("Name: stowage\nVersion: 0.1.9\n", encoding="utf-8")
            self.assertIn("UserWarning: the package stowage 0.1.9 of PyPI is installed, too", said())

    def test_that_it_does_not_fit_is_an_answer(self):
        answer = stowage.plan_trace(TEXT, device_memory=629145601)
        self.assertFalse(answer.fits)
        self.assertIsNone(answer.plan)
        self.assertIn("fits          no", str(answer))
        with self.assertRaisesRegex(stowage.Refused, "does not fit; the smallest budget"):
            answer.report("nowhere.html")

    def test_names_what_is_wrong(self):
        for message, arguments in {
                "rtx9090|'machine'": {"machine": "rtx9090"},
                "no.json cannot be read": {"machine": "no.json"},
                "'6 apples' is no size": {"device_memory": "6 apples"},
                "is no size": {"host_memory": True},
                "'device_memory' is not a number of bytes": {"device_memory": -1},
                "'policy' is not a policy": {"policy": "fast"}}.items():
            with self.assertRaisesRegex(stowage.Refused, message):
                stowage.plan_trace(TEXT, **arguments)
        with self.assertRaisesRegex(stowage.Refused, "trace line 2"):
            stowage.plan_trace(TEXT.splitlines()[0] + "\n{")

    # Steps of real sizes, as bench/pytorch/plans.py --traces left them.
    def test_plans_recorded_steps_of_real_models(self):
        answers = {}
        for name, parameters in (("gpt2", 124439808), ("llama-8b", 8030261248), ("llama-1b-lora", 1104742400)):
            with gzip.open(Path(TRACES, f"{name}.jsonl.gz")) as file:
                answers[name] = answer = stowage.plan_trace(file.read())
            self.assertTrue(answer.fits)
            self.assertEqual(answer.json["parameters"], parameters)
            self.assertLess(answer.json["gap"], 0.05)
        lora = answers["llama-1b-lora"].json
        self.assertEqual(lora["trained_parameters"], 524288)
        self.assertLess(lora["h2d_bytes"] + lora["d2h_bytes"], 2**20)  # with memory to spare no frozen weight crosses

    def test_knows_its_machines(self):
        self.assertIn("rtx4090", stowage.machines())
        self.assertRegex(stowage.version(), r"^\d+\.\d+\.\d+$")

    def test_an_interrupt_ends_a_plan(self):
        from stowage import _plan
        asked, ended = threading.Event(), []

        class Library:
            """Plans until it is stopped."""
            def __getattr__(self, name):
                return getattr(real, name)

            def stowage_plan(self, *_):
                asked.set()
                while not ended:
                    time.sleep(0.001)
                return _plan.STOPPED

            def stowage_plan_stop(self, stop):
                ended.extend([stop] if stop else [])

        real, _plan._library = _plan._library, Library()
        try:
            def interrupt():
                asked.wait()
                import signal
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=interrupt).start()
            with self.assertRaises(KeyboardInterrupt):
                stowage.plan_trace(TEXT)
        finally:
            _plan._library = real
        self.assertEqual(ended, [1])
        self.assertTrue(stowage.plan_trace(TEXT, policy="none").fits)


unittest.main(argv=sys.argv[:1] + sys.argv[6:])
