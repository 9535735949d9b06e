"""stowage.offload: a model whose training steps run in the memory of a plan, with eager's bits."""

import functools
import inspect
import json
import threading
import types
from contextlib import contextmanager

import torch
from torch.utils._pytree import tree_flatten, tree_map

from stowage._arena import GuardFailed, OtherBits, Program
from stowage._capture import NoLoss
from stowage._left_alone import in_training
from stowage._plan import Answer, Refused
from stowage._recorder import Ref
from stowage._requirements import require_plain
from stowage._step_key import ENTRY, ModelKey, call_key
from stowage._tape import bytes_kept, record

MOST_TAPES = 8


@contextmanager
def said_by_offload():
    """For refusals that stowage.plan has, too."""
    try:
        yield
    except Refused as error:
        if str(error).startswith("plan: "):
            raise Refused("offload" + str(error)[4:]) from error
        raise


@contextmanager
def told_of_other_bits():
    try:
        yield
    except OtherBits as error:
        raise RuntimeError(f"stowage.offload: {error} gave other bits when it ran again: it draws or keeps numbers that it does not say; this "
                           "step's gradients are not eager's") from error


@functools.cache
def with_lost_fields(kind):
    """A class like the output's, whose fields that are not kept say how to keep them."""
    fields = getattr(kind, "__dataclass_fields__", ())

    def lost(self, name):
        raise AttributeError(f"stowage.offload: the output's {name!r} is not kept in training; outputs=({name!r},) keeps it")

    def begin(self):
        kind.__post_init__(self)
        self.__dict__["_is_made"] = True

    def attribute(self, name):
        is_lost = name in fields and "_is_made" in self.__dict__ and name not in kind.keys(self)
        return lost(self, name) if is_lost else kind.__getattribute__(self, name)

    def item(self, key):
        return lost(self, key) if isinstance(key, str) and key not in kind.keys(self) else kind.__getitem__(self, key)

    members = {"__getattribute__": attribute, "__getitem__": item, "__module__": kind.__module__}
    return type(kind.__name__, (kind,), members | ({"__post_init__": begin} if hasattr(kind, "__post_init__") else {}))


class Half(torch.autograd.Function):
    """The tape between a forward and its backward."""

    @staticmethod
    def forward(ctx, step, *parameters):
        ctx.step = step
        return step.loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return (None, *ctx.step.backward(gradient))


def as_recorded(run):
    """Of operations below autograd: no other type is chosen for them."""
    @functools.wraps(run)
    def plainly(*args):
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            return run(*args)
    return plainly


class Running:
    """One step under way."""

    def __init__(self, entry, program, results):
        self.entry, self.program = entry, program
        self.loss, self.results = results[program.tape.loss], results
        self.versions = self.versions_now()

    def versions_now(self):
        """Of weights, buffers and other tensors of the model's that the step reads and does not change."""
        tape = self.program.tape
        return [source._version for value, source in tape.sources.items() if isinstance(source, torch.Tensor) and value not in tape.on_host]

    def backward(self, gradient):
        with self.entry.alone():
            return self.backward_alone(gradient)

    def backward_alone(self, gradient):
        if self.entry.under_way is not self:
            raise RuntimeError("stowage.offload: backward() of a step that another forward or backward() has followed; call backward() "
                               "once, after each forward in training")
        if self.versions_now() != self.versions:
            raise RuntimeError("stowage.offload: a weight or a buffer was changed between forward and backward()")
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("stowage.offload: backward() under autocast, which gives its operations other types; call it outside, as PyTorch "
                               "advises")
        self.entry.under_way = None
        with told_of_other_bits():
            found = backward_of(self.program, gradient.clone(memory_format=torch.contiguous_format))
        return [found.get(place) for place in range(len(self.entry.parameters))]


class Entry:
    """The instance's forward: in training the tape, else the model as it is. Owns the arena."""

    def __init__(self, model, optimizer, loss, outputs, question, verify):
        self.model, self.optimizer, self.loss, self.outputs, self.question = model, optimizer, loss, tuple(outputs), question
        self.verify = verify
        self.own = model.forward
        self.parameters = list(model.parameters())
        self.keys, self.planned, self.programs = [], [], []  # of each tape
        self.arena = torch.empty(0, dtype=torch.uint8)
        self.model_key = None
        self.newest = None  # the program that ran last in the arena
        self.under_way = None
        self.lock = threading.Lock()

    def __deepcopy__(self, memo):
        """In a copy of the model: nothing, so that the copy runs as its class says."""
        return None

    def __reduce__(self):
        raise TypeError("stowage.offload: the whole model is not pickled; save its state_dict()")

    def method(self):
        """The instance's forward. Copies of the model, and others that wrap its forward, bind the same function to their model."""
        own = self.own.__func__

        def forward(model, *args, **kwargs):
            entry = vars(model).get(ENTRY)
            return own(model, *args, **kwargs) if entry is None else entry.forward(args, kwargs)

        functools.update_wrapper(forward, own)
        del forward.__wrapped__  # accelerate looks for the innermost function there
        forward.__signature__ = inspect.signature(own)
        forward.is_of_offload = True
        return types.MethodType(forward, self.model)

    @contextmanager
    def alone(self):
        if not self.lock.acquire(blocking=False):
            raise RuntimeError("stowage.offload: two threads train one model at a time; its arena is one step's")
        try:
            yield
        finally:
            self.lock.release()

    def forward(self, args, kwargs):
        if not self.model.training or not torch.is_grad_enabled():
            return self.own(*args, **kwargs)
        with self.alone():
            running = self.run(args, kwargs)
        loss = Half.apply(running, *self.parameters)
        return self.output(running.program.tape, loss, running.results)

    def output(self, tape, loss, results):
        if self.loss is not None or issubclass(tape.output_class, torch.Tensor):
            return loss
        kept = {name: tree_map(lambda leaf: results[leaf] if isinstance(leaf, Ref) else leaf, tree) for name, tree in tape.outputs.items()}
        try:
            return with_lost_fields(tape.output_class)(loss=loss, **kept)
        except TypeError as error:
            raise Refused(f"offload: a {tape.output_class.__name__} cannot be made of its loss{' and '.join(('', *kept))} alone ({error}); name the "
                          "fields that it needs in outputs=") from error

    # --- which tape

    def key_of(self, leaves, spec):
        """By name all that a tape depends on, but for the numbers in its tensors and the answers of its guards."""
        if self.model_key is None or not self.model_key.holds():
            self.model_key = ModelKey(self.model, self.parameters)
            for program in self.programs:
                program.bytes_there.clear()  # which keep the memory of weights that have another now
        return call_key(leaves, spec) | self.model_key.named

    def run(self, args, kwargs):
        leaves, spec = tree_flatten((args, kwargs))
        key = self.key_of(leaves, spec)
        self.under_way = None
        results = program = None
        for place in reversed([place for place, known in enumerate(self.keys) if known == key]):
            program = self.programs[place]
            if not program.tape.other_numbers(leaves) and (results := self.forward_of(program, leaves)) is not None:
                break
        if results is None:
            program = self.add(key, args, kwargs, leaves)
            results = self.forward_of(program, leaves)
        self.under_way = Running(self, program, results)
        return self.under_way

    def forward_of(self, program, leaves):
        if program is not self.newest:
            program.resident.clear()
            if self.newest is not None:
                self.newest.offloaded.clear()  # the plan's host memory is for one step
        self.newest = program
        with told_of_other_bits():
            return forward_of(program, leaves)

    @said_by_offload()
    def add(self, key, args, kwargs, leaves):
        """Records, plans and tries a tape."""
        if len(self.keys) == MOST_TAPES:
            last = self.keys[-1]
            changed = [name for name in key if name not in last or key[name] != last[name]]
            changed += [f"argument {place}" for place in self.planned[-1][0].other_numbers(leaves)]
            raise Refused(f"offload: {MOST_TAPES} different steps have been planned, and this one differs again, in "
                          f"{changed[0] if changed else 'what forward reads from tensors (item())'}; make steps alike (pad batches to one shape)")
        require_on_cpu(self.model)
        outermost, self.model.forward = self.model.forward, self.own  # others may have wrapped this forward, and their wrappers run already
        try:
            tape = record(self.model, args, kwargs, self.loss, self.outputs, self.optimizer)
        except NoLoss as error:
            if not self.keys:
                raise
            raise Refused("offload: this call of the model returns no loss, as others did: Trainer's label_smoothing_factor and compute_loss_func "
                          "take it outside of the model; leave them out, or give that loss as loss= and run the loop yourself") from error
        finally:
            self.model.forward = outermost
        plan = self.plan_of(tape)
        if plan["device_peak_bytes"] > self.arena.numel():
            self.arena = torch.empty(plan["device_peak_bytes"], dtype=torch.uint8)
            self.programs = [Program(*planned, self.arena, self.verify) for planned in self.planned]
        program = Program(tape, plan, self.arena, self.verify)
        for other in self.programs:
            other.offloaded.clear()
        self.newest = None
        results = require_same_bits(program, leaves)
        self.output(tape, results[tape.loss], results)
        self.keys.append(key)
        self.planned.append((tape, plan))
        self.programs.append(program)
        return program

    def plan_of(self, tape):
        question = dict(self.question)
        if question["host_memory"] is not None:  # the caller holds the outputs there
            question["host_memory"] = max(1, question["host_memory"] - tape.bytes_of_outputs())
        answer = Answer(tape.trace.encode(), question)
        if not answer.fits:
            lacks, smallest = answer.json["lacks"], answer.json["smallest_bytes"]
            if lacks == "host":
                smallest += tape.bytes_of_outputs()
            what = {"device": "device_memory", "host": "host_memory"}.get(lacks, lacks)
            raise Refused(f"offload: the step does not fit: {what} must be {smallest} bytes at least"
                          + (f", for {answer.json['op']}" if answer.json.get("op") else ""))
        return json.loads(answer.plan)


@as_recorded
def backward_of(program, seed):
    return program.backward(seed)


@as_recorded
def forward_of(program, leaves):
    """None, and nothing has happened, where a guard has another answer."""
    state, buffers = torch.get_rng_state(), [(buffer, buffer.clone()) for buffer in program.tape.on_host.values()]
    try:
        return program.forward(leaves)
    except GuardFailed:
        torch.set_rng_state(state)
        for buffer, before in buffers:
            buffer.copy_(before)
        return None


def require_same_bits(program, leaves):
    """Compares the tape's loss, gradients and random numbers with those of the step that was recorded, with a poisoned arena. Returns what
    forward gives."""
    first, program.tape.first = program.tape.first, None
    was, program.poisoned = program.poisoned, True
    verify, program.verify = program.verify, True
    why = "one of them draws or keeps numbers that it does not say"
    try:
        with torch.random.fork_rng(devices=[]), bytes_kept(list(program.tape.on_host.values())):
            found = forward_of(program, leaves)
            states = [torch.get_rng_state()]
            same = found is not None and same_bits(found[program.tape.loss], first.loss)
            gradients = backward_of(program, torch.ones_like(first.loss)) if same else {}
            states.append(torch.get_rng_state())
            same = same and all(same_bits(gradients[place], gradient) for place, gradient in first.gradients.items())
            same = same and all(torch.equal(*pair) for pair in zip(states, first.states))
    except (IndexError, RuntimeError):  # poison is no index
        same = False
    except OtherBits as error:
        same, why = False, f"{error} has others when it runs again"
    program.poisoned, program.verify = was, verify
    if not same:
        raise Refused(f"offload: the recorded operations do not give the step's own bits again: {why}; this model is not supported")
    return found


def same_bits(one, other):
    return one.dtype == other.dtype and torch.equal(one.contiguous().reshape(-1).view(torch.uint8), other.contiguous().reshape(-1).view(torch.uint8))


def require_on_cpu(model):
    for name, parameter in model.named_parameters():
        if parameter.device.type != "cpu":
            raise Refused(f"offload: {name} is on {parameter.device}; a model there does not run yet, stowage.plan answers for it; move it "
                          "to the CPU")


@said_by_offload()
def offloaded(model, optimizer, batch, question, loss, outputs, verify):
    """As stowage.offload, of a question to the planner."""
    require_plain(model)
    require_on_cpu(model)
    own = vars(model).get("forward")
    if own is not None and vars(model).get(ENTRY) is None and getattr(own, "is_of_offload", False):  # of a copy
        del model.forward
    if "forward" in vars(model):
        raise Refused("offload: the model's forward has been replaced, maybe by stowage.offload; give the model as its class makes it")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Refused(f"offload: optimizer is a {type(optimizer).__name__}; give the torch.optim.AdamW that trains the model")
    if loss is not None and outputs:
        raise Refused("offload: outputs= has no place beside loss=: model(...) then returns the loss alone")
    if "loss" in outputs:
        raise Refused("offload: outputs='loss', which is kept anyway; leave it out")
    is_mapping, is_one = hasattr(batch, "keys"), not isinstance(batch, (tuple, list))
    args, kwargs = ((), dict(batch)) if is_mapping else ((batch,) if is_one else tuple(batch), {})

    def loss_of(output, call):
        """The caller's loss, with the batch as it was given here."""
        args, kwargs = call
        if bool(kwargs) != is_mapping or bool(args) == is_mapping or (is_one and len(args) != 1 and not is_mapping):
            raise Refused("offload: with loss=, call the model as stowage.offload was: a mapping by names, all else by places")
        return loss(output, kwargs if is_mapping else args[0] if is_one else args)

    entry = Entry(model, optimizer, loss and loss_of, outputs, question, verify)
    leaves, spec = tree_flatten((args, kwargs))
    setattr(model, ENTRY, entry)
    model.forward = entry.method()
    try:
        with in_training(model):
            entry.add(entry.key_of(leaves, spec), args, kwargs, leaves)
    except BaseException:
        del model.forward
        delattr(model, ENTRY)
        raise
    return model, optimizer
