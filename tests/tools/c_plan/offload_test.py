"""stowage.offload against eager, to the bit: python3 offload_test.py PACKAGE LIBRARY

Ends with code 77 (skipped) where PyTorch 2.6 or transformers is missing. The arena is poisoned at the start of each step and behind
each lifetime."""

import copy
import inspect
import json
import os
import random
import re
import sys
import threading
import types
import unittest
from unittest import mock

PACKAGE, LIBRARY = sys.argv[1:3]
try:
    import peft
    import torch
    import transformers as hf
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
os.environ["STOWAGE_PLAN_LIBRARY"] = LIBRARY
sys.path.insert(0, PACKAGE)
import stowage  # noqa: E402
from live_bytes import LiveBytes  # noqa: E402
from stowage import _offload, _recorder, _tape  # noqa: E402
from stowage._arena import GuardFailed, OtherBits, Program  # noqa: E402

SLACK = 4096  # bytes that a tape may need beside what stowage.plan counts: masks of whole numbers
SHARE = int(os.environ.get("STOWAGE_TEST_SHARE", 6))  # of so many places for a fault one is tried
MODELS = {
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100, n_positions=16)),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                                                        num_key_value_heads=1, vocab_size=100)),
    "bert": lambda: hf.BertForMaskedLM(hf.BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                                     intermediate_size=64)),
}


def text(number, padded=False):
    generator = torch.Generator().manual_seed(number)
    batch = {name: torch.randint(1, 100, (2, 16), generator=generator) for name in ("input_ids", "labels")}
    batch["attention_mask"] = torch.ones(2, 16, dtype=torch.long)
    if padded:
        batch["attention_mask"][1, 9:], batch["labels"][1, 9:] = 0, -100
    return batch


def made(name="gpt2"):
    torch.manual_seed(1)
    return MODELS[name]().train()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def offloaded(model, batch=None, device_memory="8GiB", **arguments):
    return stowage.offload(model, adamw(model), text(0) if batch is None else batch, device_memory=device_memory, **arguments)


def least(model, batch=None):
    try:
        offloaded(model, batch, device_memory=1)
    except stowage.Refused as error:
        return int(re.search(r"device_memory must be (\d+) bytes", str(error))[1])


def train(model, optimizer, steps=4, passes=1, padded=(), clip=None):
    """Losses and norms."""
    told = []
    torch.manual_seed(7)
    for number in range(steps * passes):
        loss = model(**text(number, padded=number in padded)).loss
        (loss / passes).backward()
        told.append(loss.item())
        if number % passes == passes - 1:
            if clip is not None:
                told.append(nn.utils.clip_grad_norm_(model.parameters(), clip).item())
            optimizer.step()
            optimizer.zero_grad()
    return told


def same(one, other):
    return all(torch.equal(*pair) for pair in zip(one.parameters(), other.parameters(), strict=True))


def results(program, leaves):
    """Loss and gradients of a step with a poisoned arena, or what it raises."""
    torch.manual_seed(11)
    try:
        with torch.no_grad():
            loss = program.forward(leaves)[program.tape.loss]
            return loss, program.backward(torch.ones_like(loss))
    except (IndexError, RuntimeError, GuardFailed) as error:
        return error, {}


def are_same(one, other):
    return isinstance(other[0], torch.Tensor) and torch.equal(one[0], other[0]) and all(
        torch.equal(gradient, other[1][place]) for place, gradient in one[1].items())


class Blocks(nn.Module):
    def __init__(self, count=3, width=16):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(block(x)) + x
        return x.square().mean()


class Bits(unittest.TestCase):
    def test_losses_and_weights_are_eagers_in_each_budget(self):
        kinds = set()
        for name in MODELS:
            start = made(name)
            eager = copy.deepcopy(start)
            told = train(eager, adamw(eager))
            need, smallest = stowage.plan(start, text(0)).json["need_bytes"] + SLACK, least(start)
            for budget in (need, smallest):
                with self.subTest(name, budget=budget):
                    model, optimizer = offloaded(copy.deepcopy(start), device_memory=budget)
                    self.assertEqual(train(model, optimizer), told)
                    self.assertTrue(same(model, eager))
                    plan = model._stowage.planned[0][1]
                    self.assertEqual(model._stowage.arena.numel(), plan["device_peak_bytes"])
                    self.assertEqual(len(model._stowage.programs), 1)
                    kinds.update(step["kind"] for step in plan["instructions"])
        self.assertLessEqual({"prefetch", "offload", "recompute"}, kinds)

    def test_accumulation_clipping_and_padded_batches(self):
        for name in MODELS:
            with self.subTest(name):
                eager, model = made(name), made(name)
                model, optimizer = offloaded(model, device_memory=least(model))
                wanted = train(eager, adamw(eager), passes=2, padded=(1, 4), clip=0.1)
                self.assertEqual(train(model, optimizer, passes=2, padded=(1, 4), clip=0.1), wanted)
                self.assertTrue(same(model, eager))
                self.assertEqual(len(model._stowage.programs), 2)  # with and without padding

    def test_a_guard_that_is_ignored_gives_other_losses(self):
        eager, model = made("bert"), made("bert")
        wanted = train(eager, adamw(eager), padded=(2,))
        model, optimizer = offloaded(model)
        with mock.patch.object(_recorder.Guard, "holds", lambda *_: True):
            self.assertNotEqual(train(model, optimizer, padded=(2,)), wanted)

    def test_other_shapes_and_changed_attributes_get_tapes_of_their_own(self):
        torch.manual_seed(1)
        eager, model = Blocks(), None
        model = offloaded(copy.deepcopy(eager), torch.randn(4, 16))[0]
        model.extra = eager.extra = 1
        for x in (torch.randn(4, 16), torch.randn(6, 16), torch.randn(4, 32)[:, ::2], torch.randn(4, 16)):
            one, other = eager(x), model(x)
            one.backward()
            other.backward()
            self.assertEqual(one.item(), other.item())
        self.assertEqual([one.grad.tolist() for one in eager.parameters()], [one.grad.tolist() for one in model.parameters()])
        self.assertEqual(len(model._stowage.programs), 4)

    def test_other_things_that_forward_finds_get_tapes_of_their_own(self):
        class Finding(Blocks):
            factors, dtype, change, again = [[1.0, 2.0]], torch.float32, staticmethod(torch.relu), False

            def forward(self, x):
                x = self.change(x * self.factors[0][1] * self.config.factor)
                return super().forward(x.to(self.dtype).float()) * (2 if self.again else 1)

        class Configuration:
            def __init__(self):
                self.factor = 1.0

        class Doubled(nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)

        def append(one):
            one.blocks.append(one.blocks[0])

        torch.manual_seed(1)
        eager, x = Finding(), torch.randn(4, 16)
        eager.factors, eager.dtype, eager.change = [[1.0, 2.0]], torch.float32, torch.relu
        eager.config = Configuration()
        model = offloaded(copy.deepcopy(eager), x)[0]
        for place, change in enumerate((lambda one: one.factors[0].__setitem__(1, 3.0), lambda one: setattr(one, "dtype", torch.bfloat16),
                                        lambda one: setattr(one, "change", torch.sin), append,
                                        lambda one: setattr(one.blocks[1], "__class__", Doubled),
                                        lambda one: setattr(one.config, "__dict__", {"factor": 3.0}),
                                        lambda one: setattr(one.blocks[0], "forward", one.blocks[1].forward))):
            change(eager)
            change(model)
            self.assertEqual(eager(x).item(), model(x).item())
            self.assertEqual(len(model._stowage.programs), place + 2)

    def test_the_hosts_memory_is_one_steps(self):
        model, batches = Blocks(8, 64), [torch.randn(rows, 64) for rows in (64, 60)]
        model = offloaded(model, batches[0], least(model, batches[0]))[0]
        for _ in range(2):
            for batch in batches:
                model(batch).backward()
        self.assertEqual([bool(program.offloaded) for program in model._stowage.programs], [False, True])

    def test_a_scaled_loss_and_a_frozen_weight(self):
        eager = Blocks()
        eager.blocks[1].weight.requires_grad_(False)
        x = torch.randn(4, 16)
        model = offloaded(copy.deepcopy(eager), x)[0]
        for one in (eager, model):
            (one(x) * 1024).backward()
        self.assertIsNone(model.blocks[1].weight.grad)
        for one, other in zip(eager.parameters(), model.parameters()):
            self.assertTrue(one.grad is other.grad or torch.equal(one.grad, other.grad))

    def test_weights_and_buffers_that_get_other_memory(self):
        class Scaled(Blocks):
            def forward(self, x):
                return super().forward(x * self.scale)

        eager, x = Scaled(), torch.randn(4, 16)
        eager.register_buffer("scale", torch.rand(16))
        model = offloaded(copy.deepcopy(eager), x)[0]
        for change in (lambda one: setattr(one.scale, "data", torch.ones(16)), lambda one: one.scale.add_(1),
                       lambda one: setattr(one.blocks[0].weight, "data", torch.eye(16)), lambda one: one.bfloat16(),
                       lambda one: one.blocks[1].weight.data.mul_(2)):
            change(eager)
            change(model)
            x = x.to(eager.scale.dtype)
            self.assertEqual(eager(x).item(), model(x).item())
        model.blocks[1].bias.data = torch.zeros(32, dtype=torch.bfloat16)[16:]
        with self.assertRaisesRegex(stowage.Refused, "shares its memory"):
            model(x)

    def test_noise_like_a_transposed_tensor(self):
        class Noisy(Blocks):
            def forward(self, x):
                return super().forward(x * torch.rand_like(x.t()).t() + torch.zeros_like(x))

        eager, x = Noisy(), torch.randn(40, 16)
        model = offloaded(copy.deepcopy(eager), x)[0]
        for one in (eager, model):
            torch.manual_seed(2)
            one(x).backward()
        self.assertTrue(all(torch.equal(one.grad, other.grad) for one, other in zip(eager.parameters(), model.parameters())))

    def test_gradients_are_summed_in_the_order_of_the_passes(self):
        def gradients(model, order):
            for number in order:
                model(batches[number]).backward()
            return [parameter.grad for parameter in model.parameters()]

        torch.manual_seed(1)
        start, batches = Blocks(), [torch.randn(4, 16) * scale for scale in (1, 30, 0.1)]
        wanted = gradients(copy.deepcopy(start), (0, 1, 2))
        for order, is_same in (((0, 1, 2), True), ((1, 2, 0), False)):
            found = gradients(offloaded(copy.deepcopy(start), batches[0])[0], order)
            self.assertEqual(all(torch.equal(*pair) for pair in zip(found, wanted)), is_same)

    def test_autocast_and_loss_scaling(self):
        for name, padded in (("llama", ()), ("gpt2", (1,))):
            start = made(name)
            told = []
            for model in (start, offloaded(copy.deepcopy(start))[0]):
                optimizer, scaler = adamw(model), torch.amp.GradScaler("cpu", init_scale=256.0)
                model.forward = torch.autocast("cpu", dtype=torch.bfloat16)(model.forward)  # as accelerate does
                torch.manual_seed(7)
                for number in range(3):
                    loss = model(**text(number, padded=number in padded)).loss
                    self.assertFalse(torch.is_autocast_enabled("cpu"))
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                    optimizer.zero_grad()
                    told.append(loss.item())
            self.assertEqual(told[:3], told[3:])
            self.assertTrue(same(start, model))
        with self.assertRaisesRegex(RuntimeError, "backward\\(\\) under autocast"), torch.autocast("cpu", dtype=torch.bfloat16):
            model(**text(0)).loss.backward()

    def test_nothing_but_one_operations_results_is_outside_of_the_arena(self):
        torch.manual_seed(1)
        model = Blocks(8, 64)
        x = torch.randn(64, 64)
        model = offloaded(model, x, device_memory=least(model, x))[0]
        program = model._stowage.programs[0]
        program.poisoned = False
        loss = model(x)  # the host's bytes of activations are there now
        kept = [model._stowage.arena, *model.parameters(), x, loss, *program.offloaded.values()]
        with LiveBytes(kept) as live:
            before = live.now
            model(x).backward()
        gradients = sum(parameter.nbytes for parameter in model.parameters())
        self.assertLessEqual(live.most - before, gradients + x.nbytes + max(value.bytes for writes in program.tape.writes for value in writes))


class Changing(Blocks):
    """Counts its steps and keeps a moving mean, in buffers that it reads before and after."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("mean", torch.ones(16))

    def forward(self, x):
        self.steps += 1
        x = x / (1 + self.mean)
        self.mean.mul_(0.9).add_(x.mean(0).detach(), alpha=0.1)
        return super().forward(x - self.mean)


class Buffers(unittest.TestCase):
    def require_same(self, eager, batches, budgets=(None,), **arguments):
        least_bytes = least(copy.deepcopy(eager), batches[0])
        start = copy.deepcopy(eager)
        told, optimizer = [], adamw(eager)
        for batch in batches:
            loss = eager(batch) if isinstance(batch, torch.Tensor) else eager(**batch).loss
            loss.backward()
            told.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
        for budget in budgets:
            model, optimizer = offloaded(copy.deepcopy(start), batches[0], budget or least_bytes, **arguments)
            self.assertTrue(all(torch.equal(*pair) for pair in zip(model.buffers(), start.buffers(), strict=True)))
            for batch, wanted in zip(batches, told):
                loss = model(batch) if isinstance(batch, torch.Tensor) else model(**batch).loss
                loss.backward()
                self.assertEqual(loss.item(), wanted)
                optimizer.step()
                optimizer.zero_grad()
            self.assertTrue(same(model, eager))
            self.assertTrue(all(torch.equal(*pair) for pair in zip(model.buffers(), eager.buffers(), strict=True)))
        return model

    def test_batch_norm(self):
        torch.manual_seed(1)
        eager = hf.ResNetForImageClassification(hf.ResNetConfig(embedding_size=8, depths=[2, 2], hidden_sizes=[8, 16], layer_type="basic",
                                                                num_labels=4)).train()
        batches = [{"pixel_values": torch.randn(4, 3, 64, 64), "labels": torch.arange(4)} for _ in range(4)]
        model = self.require_same(eager, batches, ("8GiB", None))
        steps = model._stowage.planned[0][1]["instructions"]
        names = model._stowage.planned[0][0].names
        again = {names[model._stowage.programs[0].places.op_of[step["op"]]] for step in steps if step["kind"] == "recompute"}
        self.assertTrue(again)
        self.assertFalse([name for name in again if "batch_norm" in name])

    def test_buffers_that_forward_changes_and_reads(self):
        torch.manual_seed(1)
        self.require_same(Changing(), [torch.randn(4, 16) for _ in range(4)], ("8GiB", None))

    def test_a_step_whose_guard_fails_changes_no_buffer(self):
        class Asking(Changing):
            def forward(self, x):
                loss = super().forward(x)
                return loss * 2 if loss > 10 else loss

        torch.manual_seed(1)
        model = self.require_same(Asking(), [scale * torch.randn(4, 16) for scale in (1, 100, 1, 100)])
        self.assertEqual(len(model._stowage.programs), 2)

    def test_a_frozen_batch_norm_is_computed_again(self):
        torch.manual_seed(1)
        eager = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 16))
        eager[1].eval()
        x = torch.randn(4, 16)
        model = offloaded(copy.deepcopy(eager), x, loss=lambda y, _: y.sum())[0]
        self.assertEqual(eager(x).sum().item(), model(x).item())
        self.assertFalse(model._stowage.planned[0][0].on_host)

    def test_two_buffers_in_one_storage(self):
        class Two(Blocks):
            def forward(self, x):
                self.one += 1
                self.two += x.mean(0).detach()
                return super().forward(x * self.one + self.two)

        torch.manual_seed(1)
        eager, storage = Two(), torch.zeros(32)
        eager.register_buffer("one", storage[:16])
        eager.register_buffer("two", storage[16:])
        self.require_same(eager, [torch.randn(4, 16) for _ in range(3)])

    def test_a_look_at_a_buffer_that_changes_is_refused(self):
        class Looking(Changing):
            def forward(self, x):
                return super().forward(x) / self.steps.item()

        with self.assertRaisesRegex(stowage.Refused, "looks at steps .*changes in each step"):
            offloaded(Looking(), torch.randn(4, 16))


class Scaled(Blocks):
    def forward(self, x, items, scale=1.0):
        loss = (super().forward(x * scale) - scale) * 7
        return 2 / loss / items + loss / items - items * loss


class OwnBackward(torch.autograd.Function):
    """A product whose backward looks at what it is given in a way of its own."""

    look = staticmethod(lambda gradient, items: gradient * items)

    @staticmethod
    def forward(ctx, x, items):
        ctx.items = items
        return x * items

    @staticmethod
    def backward(ctx, gradient):
        return OwnBackward.look(gradient, ctx.items), None


class Owning(Blocks):
    def forward(self, x, items=2):
        return super().forward(OwnBackward.apply(self.blocks[0](x), items))


class Numbers(unittest.TestCase):
    def check(self, model, calls, tapes, **arguments):
        torch.manual_seed(1)
        eager, x = copy.deepcopy(model), torch.randn(4, 16)
        model = offloaded(model, {"x": x, **calls[0]}, **arguments)[0]
        for call in calls:
            told = []
            for one in (eager, model):
                torch.manual_seed(2)
                loss = one(x=x, **call)
                loss.backward()
                told.append(loss.item())
            self.assertEqual(*told)
        self.assertTrue(all(torch.equal(one.grad, other.grad) for one, other in zip(eager.parameters(), model.parameters())))
        self.assertEqual(len(model._stowage.programs), tapes)

    def test_numbers_that_only_tensors_meet_are_operands(self):
        self.check(Scaled(), [{"items": items, "scale": scale} for items, scale in ((7, 0.5), (3, 0.25), (7, 2.0), (2**40, 1e-3))], 1)
        self.check(Scaled(), [{"items": items} for items in (7, 3, 2.5)], 2)  # whole numbers, and others

    def test_other_looks_make_constants(self):
        class Looking(Blocks):
            look = None

            def forward(self, x, items):
                return super().forward(x) * self.look(x, items)

        looks = (lambda x, items: 1 if items > 4 else 2, lambda x, items: x.new_full((), items), lambda x, items: torch.tensor(items),
                 lambda x, items: x[:items].sum(), lambda x, items: sum(range(items)), lambda x, items: {3: 1, 4: 2}[items],
                 lambda x, items: torch.add(x, x, alpha=items).sum(), lambda x, items: (x ** items).sum(), lambda x, items: items * items,
                 lambda x, items: nn.functional.dropout(x, 1 / items).sum(), lambda x, items: float(f"{items}"), lambda x, items: max(items, 1),
                 lambda x, items: x.sum() / (3 - -items), lambda x, items: x.repeat(items, 1).sum(), lambda x, items: items.bit_length())
        model, x = Looking(), torch.randn(4, 16)
        for place, look in enumerate(looks):
            with self.subTest(place):
                model.look = look
                tape = _tape.record(model, (x,), {"items": 3}, None, (), adamw(model))
                self.assertEqual(tape.constants, {1: 3})
        self.check(model, [{"items": items} for items in (3, 4, 3)], 2)

    def test_functions_of_the_models_own_and_ways_that_a_number_is_not_taken(self):
        self.check(Owning(), [{"items": items} for items in (3, 4, 3)], 1)

        class Looking(Blocks):
            look = None

            def forward(self, x, items):
                return super().forward(x) * self.look(items)

        for look in (lambda items: len(json.dumps(items)), lambda items: 2 if type(items) is int else 3, lambda items: copy.copy(items)):
            model = Looking()
            model.look = look
            self.check(model, [{"items": items} for items in (3, 40, 3)], 1 if look(7) == 7 else 2)

    def test_a_loss_that_is_divided_by_the_items(self):
        model, eager = made(), made()
        offloaded(model, text(0) | {"num_items_in_batch": 31})
        for items in (31, 29, torch.tensor(17), torch.tensor(16)):
            losses = []
            for one in (eager, model):
                torch.manual_seed(2)
                losses.append(one(**text(1), num_items_in_batch=items).loss)
                losses[-1].backward()
            self.assertEqual(*(loss.item() for loss in losses))
        self.assertTrue(all(torch.equal(one.grad, other.grad) for one, other in zip(eager.parameters(), model.parameters())))
        self.assertEqual(len(model._stowage.programs), 2)


class Frozen(unittest.TestCase):
    def test_weights_that_lora_freezes_are_copied_once(self):
        torch.manual_seed(1)
        config = peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=2, task_type="CAUSAL_LM")
        eager = peft.get_peft_model(made("llama"), config)
        with torch.no_grad():
            for name, parameter in eager.named_parameters():
                if "lora_B" in name:
                    parameter.normal_()
        model = copy.deepcopy(eager)
        told = train(eager, adamw(eager))
        for budget in ("8GiB", least(copy.deepcopy(model))):
            one = copy.deepcopy(model)
            one, optimizer = offloaded(one, device_memory=budget)
            self.assertEqual(train(one, optimizer), told)
            self.assertTrue(same(one, eager))
        one, optimizer = offloaded(copy.deepcopy(model))
        program = one._stowage.programs[0]
        program.poisoned = False
        frozen = [value for value in program.tape.sources if value.kind == "parameter" and not value.trained]
        self.assertGreater(len(frozen), 10)
        copied, source_bytes = [], Program.source_bytes
        with mock.patch.object(Program, "source_bytes", lambda self, value: copied.append(value) or source_bytes(self, value)), \
                mock.patch.object(Program, "poisoned", False):
            self.assertEqual(train(one, optimizer), told)
            self.assertEqual([copied.count(value) for value in frozen], [1] * len(frozen))
            weight = next(parameter for parameter in one.parameters() if not parameter.requires_grad)
            weight.data = weight.data.clone()  # as bfloat16() and float() do
            one(**text(0))
            self.assertEqual(sorted(copied.count(value) for value in frozen), [1] * (len(frozen) - 1) + [2])
            with torch.no_grad():
                weight.mul_(2)
            one(**text(0))
            self.assertEqual(sorted(copied.count(value) for value in frozen), [1] * (len(frozen) - 1) + [3])
            one(**text(0, padded=True))  # another step in the same arena
            one(**text(0))
            self.assertGreaterEqual(min(copied.count(value) for value in frozen), 2)


class Faults(unittest.TestCase):
    """Of a small GPT-2 at its minimum: each fault changes bits."""

    @classmethod
    def setUpClass(cls):
        model, batch = made(), text(0, padded=True)
        cls.model = offloaded(model, batch, device_memory=least(model, batch))[0]
        cls.entry = cls.model._stowage
        cls.tape, cls.plan = cls.entry.planned[0]
        cls.leaves = list(batch.values())
        cls.right = results(cls.entry.programs[0], cls.leaves)

    def found(self, plan):
        return not are_same(self.right, results(Program(self.tape, plan, torch.empty_like(self.entry.arena)), self.leaves))

    def test_no_fault(self):
        self.assertFalse(self.found(self.plan))

    def uses(self):
        """By lifetime: places in the list at which an instruction that runs touches it."""
        uses, own = {}, self.entry.programs[0].places.op_of
        for place, step in enumerate(self.plan["instructions"]):
            if step["op"] in own or step["kind"] in ("prefetch", "offload"):
                for lifetime in (*step["uses"], *([step["lifetime"]] if step["lifetime"] is not None else [])):
                    uses.setdefault(lifetime, []).append(place)
        return uses

    def bucket(self, lifetime):
        return self.plan["buckets"][self.plan["lifetimes"][lifetime]["bucket"]]

    def matters(self, lifetime):
        """True of floating values, but for the loss, which leaves where it is made, and for biases of layer norms, which backward is given
        and does not look at. Poison may read as the boolean that it takes the place of."""
        values = [value for value, _ in self.entry.programs[0].places.inside[self.plan["lifetimes"][lifetime]["bucket"]]]
        return bool(values) and all(value.type == torch.float32 and value is not self.tape.loss.value
                   and not re.fullmatch(r"transformer\S*\.ln_\w\.bias", value.name) for value in values)

    def test_a_prefetch_or_an_offload_left_out(self):
        """But for gradients that leave where they are made if no copy takes them."""
        for kind in ("prefetch", "offload"):
            steps = [step for step in self.plan["instructions"] if step["kind"] == kind and self.matters(step["lifetime"])
                     and (kind, self.bucket(step["lifetime"])["kind"]) != ("offload", "gradient")]
            self.assertGreater(len(steps), 10)
            for step in steps[::SHARE]:
                with mock.patch.dict(step, kind="gate"):
                    self.assertTrue(self.found(self.plan), (step, self.bucket(step["lifetime"])))

    def test_a_lifetime_moved_onto_another(self):
        uses, count = self.uses(), 0
        lifetimes = self.plan["lifetimes"]
        for number in list(uses)[::SHARE]:
            over = [other for other, places in uses.items() if uses[number][0] < places[0] < uses[number][-1]]
            if over and self.matters(number) and self.bucket(number)["kind"] in ("activation", "parameter"):
                with mock.patch.dict(lifetimes[number], offset=lifetimes[over[0]]["offset"]):
                    self.assertTrue(self.found(self.plan), (self.bucket(number), lifetimes[number], lifetimes[over[0]]))
                count += 1
        self.assertGreater(count, 5)

    def test_the_generators_state_not_restored(self):
        again = {step["op"] for step in self.plan["instructions"] if step["kind"] == "recompute"}
        drawn = [call for op, number in self.entry.programs[0].places.op_of.items() if op in again and (call := self.tape.calls[number]).draws]
        self.assertTrue(drawn)
        for call in drawn:
            with mock.patch.object(call, "draws", False):
                self.assertTrue(self.found(self.plan))

    def test_verify_finds_what_runs_again_with_other_bits(self):
        again = {step["op"] for step in self.plan["instructions"] if step["kind"] == "recompute"}
        call = next(self.tape.calls[number] for op, number in self.entry.programs[0].places.op_of.items() if op in again
                    and self.tape.calls[number].draws)
        for verify in (False, True):
            with mock.patch.object(call, "draws", False):
                program = Program(self.tape, self.plan, torch.empty_like(self.entry.arena), verify)
            try:
                results(program, self.leaves)
            except OtherBits as error:
                self.assertTrue(verify)
                self.assertIn(str(error), self.tape.names)
            else:
                self.assertFalse(verify)

    def test_verify_tells_the_caller(self):
        model, optimizer = made(), None
        model, optimizer = offloaded(model, device_memory=least(model), verify=True)
        train(model, optimizer, steps=1)
        with mock.patch("stowage._arena.digest", lambda _: os.urandom(8)), self.assertRaisesRegex(RuntimeError, "gave other bits when it ran again"):
            train(model, optimizer, steps=1)

    def test_a_wrong_plan_is_refused_when_it_is_tried(self):
        plan = copy.deepcopy(self.plan)
        next(step for step in plan["instructions"] if step["kind"] == "prefetch")["kind"] = "gate"
        model = made()
        with mock.patch("stowage._offload.Entry.plan_of", lambda *_: plan), self.assertRaisesRegex(stowage.Refused, "own bits again"):
            offloaded(model, text(0, padded=True))
        self.assertNotIn("forward", vars(model))


class Surface(unittest.TestCase):
    def test_the_model_stays_what_it_is(self):
        model = made()
        before = type(model), inspect.signature(model.forward), list(model.state_dict())
        state = torch.get_rng_state()
        weights = copy.deepcopy(list(model.parameters()))
        optimizer = adamw(model)
        got = stowage.offload(model, optimizer, text(0), device_memory="8GiB")
        self.assertTrue(got[0] is model and got[1] is optimizer)
        self.assertEqual((type(model), inspect.signature(model.forward), list(model.state_dict())), before)
        self.assertTrue(torch.equal(state, torch.get_rng_state()))
        self.assertTrue(all(torch.equal(*pair) and pair[0].grad is None for pair in zip(model.parameters(), weights)))
        self.assertFalse(any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()))
        other = copy.deepcopy(model)
        self.assertIs(other.forward.__self__, other)
        offloaded(copy.deepcopy(model))
        self.assertEqual(model.eval()(**text(0)).logits.tolist(), other.eval()(**text(0)).logits.tolist())

    def test_outputs_that_are_kept_and_those_that_are_not(self):
        eager, model = made("gpt2"), made("gpt2")
        torch.manual_seed(2)
        output = offloaded(model, outputs=("logits",))[0](**text(1))
        torch.manual_seed(2)
        wanted = eager(**text(1))
        self.assertIsInstance(output, type(wanted))
        self.assertTrue(torch.equal(output.logits, wanted.logits))
        self.assertTrue(torch.equal(output[0], output["loss"]))
        limits = []
        for outputs in ((), ("logits",)):
            try:
                offloaded(made("gpt2"), host_memory=1, outputs=outputs)
            except stowage.Refused as error:
                limits.append(int(re.search(r"host_memory must be (\d+) bytes", str(error))[1]))
        self.assertEqual(limits[1] - limits[0], output.logits.nbytes)
        offloaded(made("gpt2"), host_memory=limits[1], outputs=("logits",))
        output = offloaded(made("gpt2"))[0](**text(1))
        for look in (lambda: output.logits, lambda: output["logits"]):
            with self.assertRaisesRegex(AttributeError, r"outputs=\('logits',\) keeps it"):
                look()

    def test_a_loss_outside_of_the_model(self):
        """By the batch as it was given: one tensor, a tuple, a mapping."""
        class Head(Blocks):
            def forward(self, x):
                return self.blocks[0](x)

        x = torch.randn(4, 16)
        for batch, args, kwargs, of in ((x, (x,), {}, lambda b: b), ((x,), (x,), {}, lambda b: b[0]), ({"x": x}, (), {"x": x}, lambda b: b["x"])):
            def loss(output, b, of=of):
                return (output - of(b)).abs().sum()

            eager = Head()
            model = offloaded(copy.deepcopy(eager), batch, loss=loss)[0]
            wanted = loss(eager(x), batch)
            wanted.backward()
            got = model(*args, **kwargs)
            got.backward()
            self.assertEqual(got.item(), wanted.item())
            self.assertTrue(torch.equal(model.blocks[0].weight.grad, eager.blocks[0].weight.grad))
        with self.assertRaisesRegex(stowage.Refused, "call the model as stowage.offload was"):
            model(x)

    def test_a_loss_that_is_an_element_of_others(self):
        torch.manual_seed(1)
        eager, x, weights = Blocks(), torch.randn(4, 16), torch.tensor([3.0, 5.0])
        model = offloaded(copy.deepcopy(eager), x)[0]
        for one in (eager, model):
            (torch.stack([one.blocks[0].weight.sum(), one(x)]) * weights).sum().backward()
        self.assertTrue(all(torch.equal(one.grad, other.grad) for one, other in zip(eager.parameters(), model.parameters())))

    def test_losses_that_use_their_results_place(self):
        class Alike(Blocks):
            def forward(self, x):
                return nn.functional.binary_cross_entropy(torch.sigmoid(self.blocks[0](x)), torch.ones_like(x) * 0.25)

        eager, x = Alike(), torch.randn(4, 16)
        nn.init.zeros_(eager.blocks[0].weight)
        nn.init.zeros_(eager.blocks[0].bias)
        model = offloaded(copy.deepcopy(eager), x)[0]
        for one in (eager, model):
            optimizer = adamw(one)
            for _ in range(3):
                optimizer.zero_grad()
                loss = one(x)
                loss.backward()
                optimizer.step()
            one.last = loss.item()
        self.assertEqual(eager.last, model.last)

    def test_two_threads_raise(self):
        model, x, told = offloaded(Blocks(), torch.randn(4, 16))[0], torch.randn(4, 16), []

        def other(*_):
            try:
                model(x)
            except RuntimeError as error:
                told.append(str(error))

        with mock.patch.object(Program, "forward", lambda self, leaves, own=Program.forward: other_thread(other) or own(self, leaves)):
            model(x)
        self.assertRegex(told[0], "two threads")

    def test_accelerates_wrappers_bind_to_copies(self):
        model, x = offloaded(Blocks(), torch.randn(4, 16))[0], torch.randn(4, 16)
        model.forward = types.MethodType(torch.autocast("cpu", dtype=torch.bfloat16)(model.forward.__func__), model)
        one = copy.deepcopy(model)
        for parameter in one.parameters():
            parameter.data.zero_()
        self.assertNotEqual(one(x).item(), model(x).item())
        self.assertFalse(hasattr(model.forward.__wrapped__, "__wrapped__"))

    def test_steps_out_of_order_raise(self):
        model, optimizer = offloaded(Blocks(), torch.randn(4, 16))
        first, second = model(torch.randn(4, 16)), model(torch.randn(4, 16))
        with self.assertRaisesRegex(RuntimeError, "another forward"):
            first.backward()
        second.backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "call backward\\(\\) once"):
            second.backward()
        third = model(torch.randn(4, 16))
        optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "a weight or a buffer was changed"):
            third.backward()

    def test_refuses_by_name(self):
        def refused(message, model=None, batch=None, **arguments):
            model = Blocks() if model is None else model
            with self.assertRaisesRegex(stowage.Refused, message):
                stowage.offload(model, arguments.pop("optimizer", None) or adamw(model), torch.randn(4, 16) if batch is None else batch,
                                **{"device_memory": "8GiB", **arguments})
            self.assertNotIn("forward", vars(model))

        def blocks(change):
            class Changed(Blocks):
                def forward(self, x):
                    return super().forward(change(self, x))
            return Changed()

        def count(model, x):
            model.steps = getattr(model, "steps", 0) + 1
            return x * model.steps

        with torch.device("meta"):
            refused("blocks.0.weight is on meta; a model there does not run yet, stowage.plan answers for it")
        refused("device_memory must be \\d+ bytes at least", device_memory=630 * 10**6, batch=torch.randn(40000, 16))
        refused("only Adam and AdamW", optimizer=torch.optim.SGD(Blocks().parameters(), lr=1.0))
        refused("offload: the model \\(DataParallel\\) is wrapped", model=nn.DataParallel(Blocks()))
        refused("changes batch.0 in place", blocks(lambda model, x: x.mul_(2)))
        refused("changes blocks.0.weight in place", blocks(lambda model, x: model.blocks[0].weight.data.mul_(2) @ x.t()))
        refused("changes an argument of stowage_test.silent", blocks(lambda model, x: torch.ops.stowage_test.silent(x, model.blocks[0].bias.detach())))
        refused("relu.* has others when it runs again|own bits again", blocks(lambda model, x: torch.ops.stowage_test.counts(x)))
        refused("host_memory must be \\d+ bytes at least", host_memory=1)
        refused("shape that depends on values", blocks(lambda model, x: x[x.sum(1) > 0]))
        refused("Tensor.tolist", blocks(lambda model, x: x * x.tolist()[0][0]))
        refused("Tensor.numpy", blocks(lambda model, x: x * torch.from_numpy(x.numpy())))
        refused("Python or NumPy", blocks(lambda model, x: x * random.random()))
        refused("generator of its own", blocks(lambda model, x: x * torch.rand(16, generator=torch.Generator())))
        refused("changes its attribute steps", blocks(count))
        def forked(_, x):
            with torch.random.fork_rng(devices=[]):
                return x + torch.randn_like(x)

        def lazy(model, x):
            model.register_buffer("noise", torch.randn(16))
            return x + model.noise

        refused("own bits again", blocks(forked))
        late = blocks(lazy)
        refused("changes its attribute", late)
        self.assertFalse(hasattr(late, "noise"))
        hidden = blocks(lambda model, x: x @ model.hidden[0])
        hidden.hidden = [hidden.blocks[0].weight]
        refused("reaches blocks.0.weight by another way", hidden)
        self.assertIsNone(hidden.blocks[0].weight.grad)
        with mock.patch.object(OwnBackward, "look", lambda gradient, items: gradient * gradient.numpy()[0]):
            refused("Tensor.numpy", Owning())
        refused("outputs='loss'", outputs=("loss",), model=made("gpt2"), batch=text(0))
        refused("not plain", blocks(lambda model, x: nn.functional.embedding(x.long().abs() % 16, model.blocks[0].weight, sparse=True).mean(1)))
        refused("has hooks", hooked())
        handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
        refused("hooks for all modules")
        handle.remove()
        refused("requires a gradient", batch=torch.randn(4, 16, requires_grad=True))
        refused("share memory", batch=torch.randn(1, 16).expand(4, 16))
        refused("output is a tuple", model=made("llama"), batch=text(0) | {"return_dict": False})
        refused("outputs='hidden'", outputs=("hidden",), model=made("llama"), batch=text(0))

    def test_refuses_later(self):
        model, optimizer = offloaded(Blocks(), torch.randn(1, 16))
        self.assertEqual(_offload.MOST_TAPES, 8)
        with mock.patch.object(_offload, "MOST_TAPES", 3):
            for rows in (2, 3):
                model(torch.randn(rows, 16))
            with self.assertRaisesRegex(stowage.Refused, "3 different steps have been planned, and this one differs again, in argument 0"):
                model(torch.randn(4, 16))
        model(torch.randn(3, 16)).backward()
        hook = model.blocks[0].register_forward_hook(lambda *_: None)
        with self.assertRaisesRegex(stowage.Refused, "blocks.0 .* has hooks"):
            model(torch.randn(3, 16))
        hook.remove()
        model(torch.randn(3, 16)).backward()
        model.blocks[0].bias = nn.Parameter(torch.zeros(16))
        with self.assertRaisesRegex(stowage.Refused, "parameters are others"):
            model(torch.randn(3, 16))
        with self.assertRaisesRegex(stowage.Refused, "forward has been replaced"):
            stowage.offload(model, optimizer, torch.randn(1, 16), device_memory="8GiB")


@torch.library.custom_op("stowage_test::silent", mutates_args=())
def silent(x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    kept.add_(1)
    return x.clone()


@torch.library.custom_op("stowage_test::counts", mutates_args=())
def counts(x: torch.Tensor) -> torch.Tensor:
    counts.calls = getattr(counts, "calls", 0) + 1
    return x + counts.calls


def other_thread(run):
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def hooked():
    model = Blocks()
    model.blocks[0].register_forward_hook(lambda *_: None)
    return model


torch.set_num_threads(1)  # these tensors are small
Program.poisoned = True
hf.logging.set_verbosity_error()
unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
