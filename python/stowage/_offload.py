"""stowage.offload: a model whose training steps run in the memory of a plan, with eager's bits."""

import functools
import inspect
import json
import types
from contextlib import contextmanager

import torch
from torch.utils._pytree import tree_flatten, tree_map

from stowage._arena import GuardFailed, Program
from stowage._left_alone import in_training
from stowage._plan import Answer, Refused
from stowage._requirements import require_plain
from stowage._tape import Ref, attributes_of, record

MOST_TAPES = 8
PLAIN = (bool, int, float, str, type(None))


@contextmanager
def said_by_offload():
    """For refusals that stowage.plan has, too."""
    try:
        yield
    except Refused as error:
        if str(error).startswith("plan: "):
            raise Refused("offload" + str(error)[4:]) from error
        raise


class Same:
    """A tensor that is compared by identity and by its bytes' place, and lives as long as this."""

    def __init__(self, tensor):
        self.tensor, self.place = tensor, (*layout_of(tensor), tensor.data_ptr() if tensor.layout == torch.strided else 0)

    def __eq__(self, other):
        return self.tensor is other.tensor and self.place == other.place


@functools.cache
def with_lost_fields(kind):
    """A class like the output's, whose fields that are not kept say how to keep them."""
    fields = getattr(kind, "__dataclass_fields__", ())

    def lost(self, name):
        raise AttributeError(f"stowage.offload: the output's {name!r} is not kept in training; outputs=({name!r},) keeps it")

    def attribute(self, name):
        return lost(self, name) if name in fields and name not in kind.keys(self) else kind.__getattribute__(self, name)

    def item(self, key):
        return lost(self, key) if isinstance(key, str) and key not in kind.keys(self) else kind.__getitem__(self, key)

    return type(kind.__name__, (kind,), {"__getattribute__": attribute, "__getitem__": item, "__module__": kind.__module__})


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
        self.versions = entry.versions()

    def output(self, loss):
        tape = self.program.tape
        if self.entry.loss is not None or issubclass(tape.output_class, torch.Tensor):
            return loss
        kept = {name: tree_map(lambda leaf: self.results[leaf] if isinstance(leaf, Ref) else leaf, tree) for name, tree in tape.outputs.items()}
        return with_lost_fields(tape.output_class)(loss=loss, **kept)

    def backward(self, gradient):
        if self.entry.under_way is not self:
            raise RuntimeError("stowage.offload: backward() of a step that another forward or backward() has followed; call backward() "
                               "once, after each forward in training")
        if self.entry.versions() != self.versions:
            raise RuntimeError("stowage.offload: a weight was changed between forward and backward()")
        self.entry.under_way = None
        found = backward_of(self.program, gradient.contiguous())
        return [found.get(place) for place in range(len(self.entry.parameters))]


class Entry:
    """The instance's forward: in training the tape, else the model as it is. Owns the arena."""

    def __init__(self, model, optimizer, loss, outputs, question):
        self.model, self.optimizer, self.loss, self.outputs, self.question = model, optimizer, loss, tuple(outputs), question
        self.own = model.forward
        self.parameters = list(model.parameters())
        self.keys, self.planned, self.programs = [], [], []  # of each tape
        self.arena = torch.empty(0, dtype=torch.uint8)
        self.under_way, self.recording = None, False
        functools.update_wrapper(self, self.own)
        self.__signature__ = inspect.signature(self.own)

    def __deepcopy__(self, memo):
        """Of a copy of the model: its own forward."""
        return types.MethodType(type(self.model).forward, memo[id(self.model)])

    def __reduce__(self):
        raise TypeError("stowage.offload: the whole model is not pickled; save its state_dict()")

    def __call__(self, *args, **kwargs):
        if self.recording or not self.model.training or not torch.is_grad_enabled():
            return self.own(*args, **kwargs)
        running = self.run(args, kwargs)
        return running.output(Half.apply(running, *self.parameters))

    def versions(self):
        return [parameter._version for parameter in self.parameters]

    # --- which tape

    def key_of(self, leaves, spec):
        """By name all that a tape depends on, but for the numbers in its tensors and the answers of its guards."""
        key = {"structure of the arguments": str(spec),
               "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
               "PyTorch's settings": (torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled())}
        for place, leaf in enumerate(leaves):
            require_leaf(place, leaf)
            key[f"argument {place}"] = layout_of(leaf) if isinstance(leaf, torch.Tensor) else (type(leaf), leaf)
        for name, module in self.model.named_modules():
            require_no_hooks(name, module)
            key[name or type(module).__name__] = guarded(module)
        parameters = list(self.model.parameters())
        if len(parameters) != len(self.parameters) or any(new is not old for new, old in zip(parameters, self.parameters)):
            raise Refused("offload: the model's parameters are others than when stowage.offload was called; make the model anew, and call it again")
        for place, parameter in enumerate(parameters):
            storage = parameter.untyped_storage()
            key[f"parameter {place}"] = (parameter.requires_grad, *layout_of(parameter), parameter.storage_offset(), storage.nbytes())
        return key

    def run(self, args, kwargs):
        leaves, spec = tree_flatten((args, kwargs))
        key = self.key_of(leaves, spec)
        self.under_way = None
        results = program = None
        state = torch.get_rng_state()
        for place in reversed([place for place, known in enumerate(self.keys) if known == key]):
            program = self.programs[place]
            if (results := forward_of(program, leaves)) is not None:
                break
            torch.set_rng_state(state)
        if results is None:
            program = self.add(key, args, kwargs, leaves)
            results = forward_of(program, leaves)
        self.under_way = Running(self, program, results)
        return self.under_way

    @said_by_offload()
    def add(self, key, args, kwargs, leaves):
        """Records, plans and tries a tape."""
        if len(self.keys) == MOST_TAPES:
            last = self.keys[-1]
            changed = [name for name in key if name not in last or key[name] != last[name]]
            raise Refused(f"offload: {MOST_TAPES} different steps have been planned, and this one differs again, in "
                          f"{changed[0] if changed else 'what forward reads from tensors (item())'}; make steps alike (pad batches to one shape)")
        require_on_cpu(self.model)
        self.recording = True
        try:
            tape = record(self.model, args, kwargs, self.loss, self.outputs, self.optimizer)
        finally:
            self.recording = False
        plan = self.plan_of(tape)
        if plan["device_peak_bytes"] > self.arena.numel():
            self.arena = torch.empty(plan["device_peak_bytes"], dtype=torch.uint8)
            self.programs = [Program(*planned, self.arena) for planned in self.planned]
        program = Program(tape, plan, self.arena)
        require_same_bits(program, leaves)
        self.keys.append(key)
        self.planned.append((tape, plan))
        self.programs.append(program)
        return program

    def plan_of(self, tape):
        answer = Answer(tape.trace.encode(), self.question)
        if not answer.fits:
            what = {"device": "device_memory", "host": "host_memory"}.get(answer.json["lacks"], answer.json["lacks"])
            raise Refused(f"offload: the step does not fit: {what} must be {answer.json['smallest_bytes']} bytes at least"
                          + (f", for {answer.json['op']}" if answer.json.get("op") else ""))
        return json.loads(answer.plan)


@as_recorded
def backward_of(program, seed):
    return program.backward(seed)


@as_recorded
def forward_of(program, leaves):
    """Nothing where a guard has another answer."""
    try:
        return program.forward(leaves)
    except GuardFailed:
        return None


def require_same_bits(program, leaves):
    """Compares the tape's loss and gradients with those of the step that was recorded, with a poisoned arena."""
    (loss, gradients), program.tape.first = program.tape.first, None
    was, program.poisoned = program.poisoned, True
    try:
        with torch.random.fork_rng(devices=[]):
            found = forward_of(program, leaves)
            same = found is not None and same_bits(found[program.tape.loss], loss)
            found = backward_of(program, torch.ones_like(loss)) if same else {}
            same = same and all(same_bits(found[place], gradient) for place, gradient in gradients.items())
    except (IndexError, RuntimeError):  # poison is no index
        same = False
    program.poisoned = was
    if not same:
        raise Refused("offload: the recorded operations do not give the step's own bits again: one of them draws or keeps numbers that it does "
                      "not say; this model is not supported")


def same_bits(one, other):
    return one.dtype == other.dtype and torch.equal(one.contiguous().reshape(-1).view(torch.uint8), other.contiguous().reshape(-1).view(torch.uint8))


def layout_of(tensor):
    return tuple(tensor.shape), tensor.stride() if tensor.layout == torch.strided else None, tensor.dtype, tensor.device


def require_leaf(place, leaf):
    what = f"offload: argument {place} of the model"
    if not isinstance(leaf, torch.Tensor):
        if not isinstance(leaf, PLAIN):
            raise Refused(f"{what} is a {type(leaf).__name__}; give tensors, numbers and texts")
    elif leaf.requires_grad:
        raise Refused(f"{what} requires a gradient, which is not supported yet")
    elif type(leaf) is not torch.Tensor or leaf.device.type != "cpu" or leaf.layout != torch.strided or leaf.is_conj() or leaf.is_neg():
        raise Refused(f"{what} is no plain tensor on the CPU")
    elif torch._debug_has_internal_overlap(leaf) == 1:
        raise Refused(f"{what} has elements that share memory; give its contiguous()")


def require_no_hooks(name, module):
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        raise Refused(f"offload: {name or 'the model'} ({type(module).__name__}) has hooks, which a tape does not call; remove them")


def guarded(module):
    """Numbers, texts and tensors that forward may look at: the module's attributes and its configuration's."""
    own = attributes_of(module)
    configuration = vars(own["config"]) if hasattr(own.get("config"), "__dict__") else {}
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in (*configuration.items(), *own.items())
             if isinstance(value, PLAIN) or (isinstance(value, (list, tuple)) and all(isinstance(item, PLAIN) for item in value))}
    tensors = {name: Same(value) for name, value in (*own.items(), *module._buffers.items()) if isinstance(value, torch.Tensor)}
    return plain, tensors


def require_on_cpu(model):
    for name, parameter in model.named_parameters():
        if parameter.device.type != "cpu":
            raise Refused(f"offload: {name} is on {parameter.device}; a model there does not run yet, stowage.plan answers for it; move it "
                          "to the CPU")


@said_by_offload()
def offloaded(model, optimizer, batch, question, loss, outputs):
    """As stowage.offload, of a question to the planner."""
    require_plain(model)
    require_on_cpu(model)
    if "forward" in vars(model):
        raise Refused("offload: the model's forward has been replaced, maybe by stowage.offload; give the model as its class makes it")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Refused(f"offload: optimizer is a {type(optimizer).__name__}; give the torch.optim.AdamW that trains the model")
    if loss is not None and outputs:
        raise Refused("offload: outputs= has no place beside loss=: model(...) then returns the loss alone")
    entry = Entry(model, optimizer, loss, outputs, question)
    args, kwargs = ((), dict(batch)) if hasattr(batch, "keys") else (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,), {})
    leaves, spec = tree_flatten((args, kwargs))
    model.forward = entry
    try:
        with in_training(model):
            entry.add(entry.key_of(leaves, spec), args, kwargs, leaves)
    except BaseException:
        del model.forward
        raise
    return model, optimizer
