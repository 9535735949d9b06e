"""stowage.plan over the built library: python3 capture_test.py PACKAGE LIBRARY

Ends with code 77 (skipped) where there is no PyTorch of 2.6 or newer."""

import json
import os
import sys
import unittest

PACKAGE, LIBRARY = sys.argv[1:3]
try:
    import torch
    import torch.utils.checkpoint
    from torch import nn
except ImportError:
    print("skipped: there is no PyTorch here")
    sys.exit(77)
if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
    print(f"skipped: PyTorch {torch.__version__} is too old")
    sys.exit(77)
os.environ["STOWAGE_PLAN_LIBRARY"] = LIBRARY
sys.path.insert(0, PACKAGE)
import stowage  # noqa: E402
from live_bytes import LiveBytes  # noqa: E402

OVERHEAD = 629145600  # of the machine that is planned for


class Blocks(nn.Module):
    def __init__(self, width=64, count=4, dropout=0.0, block=None):
        super().__init__()
        self.table = nn.Embedding(100, width)
        block = block or (lambda: nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                                                nn.Dropout(dropout), nn.Linear(4 * width, width)))
        self.blocks = nn.ModuleList(block() for _ in range(count))
        self.head = nn.Linear(width, 100, bias=False)

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Applies(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


def ids(rows=8, columns=32):
    return torch.arange(rows * columns).reshape(rows, columns) % 100


def loss(output, batch):
    return nn.functional.cross_entropy(output.flatten(0, 1).float(), batch.flatten())


def lines_of(answer):
    return [json.loads(line) for line in answer._trace.decode().splitlines()]


def ops_of(answer):
    return [line for line in lines_of(answer) if "op" in line]


def tensors_of(answer):
    return {line["tensor"]: line for line in lines_of(answer) if "tensor" in line}


class Plan(unittest.TestCase):
    def test_answers_for_a_model_without_changing_it(self):
        model = Blocks()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        modes = [module.training for module in model.eval().modules()]
        answer = stowage.plan(model, ids(), loss=loss, clip=1.0)
        self.assertTrue(answer.fits)
        self.assertTrue(str(answer).splitlines()[0].startswith("host memory"), str(answer))
        self.assertIn("train(), though the model is in eval()", str(answer).splitlines()[1])
        self.assertEqual(modes, [module.training for module in model.modules()])
        for module in model.modules():
            self.assertFalse(module._forward_hooks or module._forward_pre_hooks)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]))
        self.assertTrue(all(parameter.grad is None for parameter in model.parameters()))
        header = lines_of(answer)[0]
        self.assertEqual((header["samples"], header["tokens"]), (8, 256))
        self.assertEqual(header["optimizer"]["clip"], 1.0)
        self.assertEqual(answer.json["parameters"], sum(parameter.numel() for parameter in model.parameters()))
        self.assertIsNotNone(answer.json["tokens_per_second"])

    def test_units_are_the_blocks_and_backward_goes_through_them_in_reverse(self):
        answer = stowage.plan(Blocks(), ids(), loss=loss)
        units = []
        for op in ops_of(answer):
            if not units or units[-1] != (op["phase"], op["unit"]):
                units.append((op["phase"], op["unit"]))
        names = ["start", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "end"]
        self.assertEqual(units, [("forward", name) for name in names] + [("backward", name) for name in reversed(names)])
        self.assertIn("blocks.1.1.addmm", [op["op"] for op in ops_of(answer)])

    def test_a_model_on_meta_has_the_same_answer(self):
        with torch.device("meta"):
            model = Blocks()
        here = stowage.plan(Blocks(), ids(), loss=loss)
        self.assertEqual(stowage.plan(model, ids(), loss=loss).json, here.json)
        self.assertTrue(all(parameter.is_meta for parameter in model.parameters()))

    def test_need_is_what_a_real_run_holds(self):
        for model, batch in ((Blocks(128, 6, dropout=0.1), ids(16, 64)),
                             (Blocks(64, 4, block=lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(inplace=True))), ids(32, 64))):
            answer = stowage.plan(model, batch, loss=loss)
            with LiveBytes([*model.parameters(), *model.buffers(), batch]) as live:
                loss(model(batch), batch).backward()
            trained = sum(parameter.numel() * 4 for parameter in model.parameters())
            held = live.most + 2 * trained
            self.assertAlmostEqual((answer.json["need_bytes"] - OVERHEAD) / held, 1, delta=0.03)

    def test_what_is_frozen_has_no_state_and_stays(self):
        model = Blocks()
        for block in model.blocks[:3]:
            block.requires_grad_(False)
        answer = stowage.plan(model, ids(), loss=loss)
        frozen = {name for name, line in tensors_of(answer).items() if line.get("trained") is False}
        self.assertEqual(frozen, {name for name, parameter in model.named_parameters() if not parameter.requires_grad})
        self.assertEqual(answer.json["trained_parameters"], sum(p.numel() for p in model.parameters() if p.requires_grad))
        plan = json.loads(answer.plan)
        moved = {plan["lifetimes"][i["lifetime"]]["bucket"] for i in plan["instructions"] if i["kind"] in ("prefetch", "offload")}
        for bucket in moved:
            self.assertFalse(frozen.intersection([plan["buckets"][bucket]["name"].split(" ")[0]]))

    def test_autocast_is_planned_in_the_type_that_is_read(self):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            narrow = stowage.plan(Blocks(256), ids(), loss=loss, policy="zero-offload")
        wide = stowage.plan(Blocks(256), ids(), loss=loss, policy="zero-offload")
        self.assertIn("cast", {op["kernel"] for op in ops_of(narrow)})
        matrices = 4 * sum(p.numel() for p in Blocks(256).parameters() if p.dim() == 2) - 4 * 100 * 256  # the table is not cast
        less = wide.json["h2d_bytes"] - narrow.json["h2d_bytes"]
        self.assertGreater(less, 0.4 * matrices)
        self.assertEqual({op["type"] for op in ops_of(narrow) if "addmm" in op["op"]}, {"bf16"})

    def test_a_batch_that_the_model_changes_is_left_alone(self):
        class InPlace(Blocks):
            def forward(self, ids):
                return super().forward(ids.clamp_(max=3))

        batch = ids()
        stowage.plan(InPlace(), batch, loss=loss)
        self.assertTrue(torch.equal(batch, ids()))

    def test_what_forward_leaves_in_the_model_is_taken_back(self):
        class Caches(Blocks):
            def __init__(self):
                super().__init__()
                self.scale, self.seen, self.mean, self.modes = None, [], torch.ones(64), {"calls": 0}

            def forward(self, ids):
                self.mean.mul_(0.5)
                self.modes["calls"] += 1
                if self.scale is None:
                    self.scale = torch.arange(64.0).cos()
                x = self.table(ids) * self.scale * self.mean
                self.seen.append(x)
                return self.head(x)

            def train(self, mode=True):
                self.table.weight.requires_grad = False
                return super().train(mode)

        model, before = Caches().eval(), torch.get_rng_state()
        model.table.weight.requires_grad = True
        stowage.plan(model, ids(), loss=loss)
        self.assertIsNone(model.scale)
        self.assertEqual((model.seen, model.modes), ([], {"calls": 0}))
        self.assertTrue(torch.equal(model.mean, torch.ones(64)))
        self.assertTrue(model.table.weight.requires_grad)
        loss(model(ids()), ids()).backward()
        self.assertIs(type(model.table.weight.grad), torch.Tensor)

        class Draws(Blocks):
            def forward(self, ids):
                torch.zeros(2**19, 2**19)
                return super().forward(ids + torch.randint(0, 1, ids.shape)) * torch.rand(1)

        with torch.device("meta"):
            other = stowage.plan(Draws(), ids(), loss=loss)
        self.assertTrue(torch.equal(torch.get_rng_state(), before))
        self.assertEqual(stowage.plan(Draws(), ids(), loss=loss).json, other.json)

    def test_parts_that_are_in_eval_stay_so(self):
        model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 1)).train()
        model[1].eval()
        answer = stowage.plan(model, torch.zeros(8, 16), loss=lambda output, batch: output.mean())
        self.assertNotIn("bernoulli", answer._trace.decode())
        model.eval()
        answer = stowage.plan(model, torch.zeros(8, 16), loss=lambda output, batch: {"loss": output.mean()}["loss"])
        self.assertIn("bernoulli", answer._trace.decode())

    def test_batch_norm_is_not_computed_again(self):
        model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 1))
        answer = stowage.plan(model, torch.zeros(8, 16), loss=lambda output, batch: output.mean())
        self.assertEqual(model[1].num_batches_tracked.item(), 0)
        fixed = [op["op"] for op in ops_of(answer) if op.get("replayable") is False]
        self.assertTrue(any("batch_norm" in name for name in fixed), fixed)

    def test_a_tied_table_is_one_parameter(self):
        model = Blocks()
        model.head.weight = model.table.weight
        answer = stowage.plan(model, ids(), loss=loss)
        self.assertEqual(answer.json["parameters"], sum(parameter.numel() for parameter in model.parameters()))

    def test_says_where_the_logits_are_too_large(self):
        class Wide(Blocks):
            def __init__(self):
                super().__init__(16, 2)
                self.head = nn.Linear(16, 5000, bias=False)

        batch = ids(64, 128)
        answer = stowage.plan(Wide(), batch, loss=loss, device_memory=OVERHEAD + 2**26)
        self.assertFalse(answer.fits)
        line = str(answer).splitlines()[-1]
        self.assertRegex(line, r"^logits .* in chunks of 2,048 tokens the smallest budget would be about 0\.[67]\d GiB$")
        self.assertNotIn("logits", str(stowage.plan(Blocks(2048), batch, loss=loss, device_memory=OVERHEAD + 2**20)))

    def test_takes_mappings_tuples_and_losses_of_the_model(self):
        class Named(Blocks):
            def forward(self, ids, scale=1.0, labels=None):
                logits = super().forward(ids) * scale
                return (loss(logits, labels), logits) if labels is not None else logits

        for batch in ({"ids": ids(), "labels": ids()}, (ids(), 2.0, ids())):
            self.assertTrue(stowage.plan(Named(), batch).fits)
        with self.assertRaisesRegex(stowage.Refused, "is no loss.*loss=lambda"):
            stowage.plan(Named(), ids())

    def test_names_what_cannot_be_planned(self):
        def refused(message, model=None, **arguments):
            with self.assertRaisesRegex(stowage.Refused, message):
                stowage.plan(Blocks() if model is None else model, ids(), loss=loss, **arguments)

        class Looks(Blocks):
            def forward(self, ids):
                x = super().forward(ids)
                return x if x.sum().item() > 0 else -x

        class Selects(Blocks):
            def forward(self, ids):
                x = super().forward(ids)
                return x[x > 0]

        class Checkpointed(Blocks):
            gradient_checkpointing = True

        class Bytes(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return torch.from_numpy(x.detach().numpy() * 2)

            @staticmethod
            def backward(ctx, gradient):
                return 2 * gradient

        class Recomputes(Blocks):
            def __init__(self, reentrant, function=None):
                super().__init__()
                self.reentrant, self.function = reentrant, function

            def forward(self, ids):
                x = self.table(ids)
                for block in self.blocks:
                    x = torch.utils.checkpoint.checkpoint(self.function or block, x, use_reentrant=self.reentrant)
                return self.head(x)

        class Elsewhere(Blocks):
            def forward(self, ids):
                return super().forward(ids) * torch.ones(1, device="meta")

        def compiled():
            model = Blocks()
            model.compile()
            return model

        refused("blocks.0 has an operation that looks at bytes", Blocks(block=lambda: Applies(Bytes)))
        for reentrant in (False, True):
            refused("runs again in backward", Recomputes(reentrant))
            refused("runs again in backward", Recomputes(reentrant, lambda x: x.sigmoid().sigmoid()))
        refused("has tensors on several devices", Elsewhere())
        refused("is compiled", compiled())
        refused("is a ScriptModule", Blocks(block=lambda: torch.jit.script(nn.Linear(64, 64))))
        refused("has no shape yet", Blocks(block=lambda: nn.LazyLinear(64)))
        refused("is a recurrent layer", Blocks(block=lambda: nn.LSTM(64, 64)))
        for machine in (None, 7):
            refused("give a name of stowage.machines", machine=machine)
        refused("looks at values", Looks())
        refused("looks at values", Selects())
        refused("gradient checkpointing", Checkpointed())
        refused("DataParallel", nn.DataParallel(Blocks()))
        refused("sparse gradients", Blocks(block=lambda: nn.Embedding(3, 3, sparse=True)))
        refused("only Adam and AdamW", optimizer=torch.optim.SGD)
        refused("amsgrad", optimizer=torch.optim.AdamW(Blocks().parameters(), amsgrad=True))
        refused("give a torch.nn.Module", lambda ids: ids)
        refused("OptimizedModule", torch.compile(Blocks()))
        mixed = Blocks()
        mixed.head = mixed.head.to("meta")
        refused("on cpu, meta", mixed)

    def test_a_function_of_the_models_own_is_planned_as_it_runs(self):
        class Swish(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                ctx.gate = torch.sigmoid(x)
                return x * ctx.gate

            @staticmethod
            def backward(ctx, gradient):
                x, = ctx.saved_tensors
                return gradient * (ctx.gate + x * ctx.gate * (1 - ctx.gate))

        class Block(nn.Linear):
            def forward(self, x):
                return Swish.apply(super().forward(x))

        class Keeps(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(torch.sigmoid(x))
                ctx.copy = x.clone()
                return 2 * x

            @staticmethod
            def backward(ctx, gradient):
                return gradient * torch.full_like(ctx.saved_tensors[0], 2.0)

        class Hides(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.copies = [x.clone(), x.clone()]
                return 2 * x

            @staticmethod
            def backward(ctx, gradient):
                return 2 * gradient

        for function in (Keeps, Hides):
            model, batch = Blocks(block=lambda: Applies(function)), ids(64, 64)  # noqa: B023
            answer = stowage.plan(model, batch, loss=loss)
            with LiveBytes([*model.parameters(), batch]) as live:
                loss(model(batch), batch).backward()
            held = live.most + 8 * sum(parameter.numel() for parameter in model.parameters())
            self.assertAlmostEqual((answer.json["need_bytes"] - OVERHEAD) / held, 1, delta=0.03)
        answer = stowage.plan(Blocks(block=lambda: Block(64, 64)), ids(), loss=loss)
        readers = [op for op in ops_of(answer) if "blocks.1.sigmoid.out" in op["reads"]]
        self.assertEqual({op["phase"] for op in readers}, {"forward", "backward"})

    def test_a_cards_kernels_keep_less_of_dropout(self):
        class Attention(nn.Module):
            def __init__(self, masked):
                super().__init__()
                self.products, self.masked, self.dropout = nn.Linear(64, 192), masked, nn.Dropout(0.1)

            def forward(self, x):
                q, k, v = (part.unflatten(-1, (4, 16)).transpose(1, 2) for part in self.products(x).chunk(3, dim=-1))
                mask = torch.ones(32, 32, dtype=torch.bool).tril() if self.masked else None
                x = nn.functional.scaled_dot_product_attention(q, k, v, mask, dropout_p=0.1, is_causal=not self.masked)
                return self.dropout(x.transpose(1, 2).flatten(2))

        for masked in (False, True):
            for type, kernel in ((torch.float32, "efficient"), (torch.bfloat16, "efficient" if masked else "flash")):
                model = Blocks(block=lambda: Attention(masked)).to(type)
                cpu, card = (stowage.plan(model, ids(), loss=loss, kernels=kernels) for kernels in ("cpu", "card"))
                self.assertLess(card.json["need_bytes"], cpu.json["need_bytes"])
                kernels = {op["kernel"] for op in ops_of(card)}
                self.assertIn(f"aten._scaled_dot_product_{kernel}_attention.default", kernels)
                self.assertIn(f"aten._scaled_dot_product_{kernel}_attention_backward.default", kernels)
                self.assertIn("aten.native_dropout.default", kernels)
                self.assertNotIn("\ndropout ", str(card))
        layers = nn.Sequential(*(nn.TransformerEncoderLayer(64, 4, 64, 0.1, batch_first=True) for _ in range(2)))
        answer = stowage.plan(layers, torch.zeros(4, 32, 64), loss=lambda output, batch: output.mean(), kernels="card")
        self.assertNotIn("bernoulli", answer._trace.decode())
        self.assertIn("scaled_dot_product_efficient_attention", answer._trace.decode())
        with torch.autocast("cpu", torch.bfloat16):
            answer = stowage.plan(Blocks(block=lambda: Attention(False)), ids(), loss=loss, kernels="card")
        self.assertIn("scaled_dot_product_flash_attention_backward", answer._trace.decode())

        class Flat(nn.Module):
            def forward(self, x):
                return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1)

        self.assertTrue(stowage.plan(Blocks(block=Flat), ids(), loss=loss, kernels="card").fits)
        for block in (lambda: nn.Dropout(0.1, inplace=True), lambda: nn.MultiheadAttention(64, 4, dropout=0.0, batch_first=True)):
            plain = []
            for kernels in ("cpu", "card"):
                class Block(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.block = block()

                    def forward(self, x):
                        return self.block(x, x, x)[0] if isinstance(self.block, nn.MultiheadAttention) else self.block(2 * x)

                plain.append(stowage.plan(Blocks(block=Block), ids(), loss=loss, kernels=kernels)._trace)
            self.assertEqual(*plain)
        with self.assertRaisesRegex(stowage.Refused, "give 'cpu' or 'card'"):
            stowage.plan(Blocks(), ids(), loss=loss, kernels="cuda")

    def test_says_that_dropout_is_a_cpus(self):
        self.assertIn("\ndropout ", str(stowage.plan(Blocks(dropout=0.1), ids(), loss=loss)))
        self.assertNotIn("\ndropout ", str(stowage.plan(Blocks(), ids(), loss=loss)))

    def test_what_looks_at_shapes_alone_reads_nothing(self):
        masks = [op for op in ops_of(stowage.plan(Blocks(dropout=0.1), ids(), loss=loss)) if op["kernel"].startswith("aten.empty_like")]
        self.assertTrue(masks)
        for mask in masks:
            self.assertEqual((mask["reads"], mask["bytes"]), ([], 0.0))

    def test_an_optimizer_says_its_numbers(self):
        optimizer = torch.optim.AdamW(Blocks().parameters(), betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3)
        header = lines_of(stowage.plan(Blocks(), ids(), loss=loss, optimizer=optimizer))[0]
        self.assertEqual(header["optimizer"], {"name": "adamw", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6, "weight_decay": 0.3,
                                               "clip": 0.0})


unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
