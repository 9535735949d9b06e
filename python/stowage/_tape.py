"""Records one real training step of a PyTorch model on the CPU as a tape: its operations (stowage._recorder) with what goes in and out.

The step runs once as eager runs it, on tensors that stand in for the model's and the batch's and share or copy their bytes; what it changes
is taken back.
"""

import random
import sys
import warnings
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch.autograd.graph import _engine_run_backward
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from stowage._capture import RECOMPUTES, counts_of, key_of, loss_in, watched, written
from stowage._left_alone import Attributes, tensors_in
from stowage._numbers import Number, is_number, numbers_in, with_plain_numbers
from stowage._plan import Refused
from stowage._recorder import Recorder, Ref, SeesAll, bytes_of, digest
from stowage._requirements import optimizer_of


@contextmanager
def bytes_kept(tensors):
    """Takes back afterwards what their storages hold."""
    before = [(now, now.clone()) for now in map(bytes_of, tensors)]
    try:
        yield
    finally:
        for now, own in before:
            if not torch.equal(now, own):
                now.copy_(own)


def states_of_generators():
    numpy = sys.modules.get("numpy")
    return random.getstate(), [part.tolist() if hasattr(part, "tolist") else part for part in numpy.random.get_state()] if numpy else None


@contextmanager
def generators_kept():
    """Takes torch's generator back afterwards, and refuses a step that draws from another."""
    others = states_of_generators()
    with torch.random.fork_rng(devices=[]):
        yield
    if states_of_generators() != others:
        raise Refused("offload: the step draws random numbers from Python or NumPy, which a tape cannot repeat; draw them from PyTorch")


@contextmanager
def attributes_kept(model):
    """Refuses a forward that changes attributes, parts or buffers of the modules, which a tape does not, and takes the change back."""
    before = Attributes(model)
    try:
        yield
        changed = before.changed()
    finally:
        before.restore()
    if changed is not None:
        name, member = changed
        raise Refused(f"offload: forward of {name or 'the model'} changes its attribute {member}, which a tape would not; leave that out of "
                      "training")


class First(NamedTuple):
    """What the recorded run gave."""

    loss: torch.Tensor
    gradients: dict  # by the parameter's place
    states: list  # of the generator, behind forward and behind backward


class Tape:
    """A recorded step."""

    def __init__(self, recorder, loss, header):
        self.calls, self.guards, self.sources = recorder.calls, recorder.guards, recorder.sources
        self.on_host = {value: recorder.sources[value] for value in recorder.on_host}  # buffers that the step changes where they are
        self.names = [op["op"] for op, _, _, _ in recorder.ops]
        self.constants = {}  # numbers among the arguments that forward looked at, by their places
        self.phases = [op["phase"] for op, _, _, _ in recorder.ops]
        self.operands = [[*reads, *writes] for _, reads, writes, _ in recorder.ops]
        self.writes = [writes for _, _, writes, _ in recorder.ops]
        self.trace = written(recorder, loss.value, header)
        self.loss, self.outside = loss, recorder.outside
        self.gradients = {}  # Ref by the parameter's place in `parameters`
        self.outputs = {}  # by name: a tree of Ref
        self.output_class = None
        self.has_operands = False  # numbers among the arguments that operations take
        self.first = None

    def other_numbers(self, leaves):
        """Places in the batch of numbers that forward looked at, and that are others now."""
        return [place for place, value in self.constants.items() if repr(leaves[place]) != repr(value)]

    def bytes_of_outputs(self):
        refs = [leaf for leaf in tree_leaves(self.outputs) if isinstance(leaf, Ref)]
        return sum(torch.Size(ref.size).numel() * ref.type.itemsize for ref in refs)


def stand_ins(model, recorder):
    """Leaves that share the bytes of the model's parameters, and its buffers, each by the identity of what it stands for; parameters first."""
    known = {}
    for name, parameter in model.named_parameters():
        if parameter.untyped_storage().nbytes() != parameter.nbytes or key_of(parameter) in recorder.newest:
            raise Refused(f"offload: {name} shares its memory with other tensors; give it its own ({name}.data = {name}.data.clone())")
        recorder.own[id(parameter)] = name
        known[id(parameter)] = parameter.detach().requires_grad_(parameter.requires_grad)
        recorder.add_source(name, "parameter", known[id(parameter)], parameter).trained = parameter.requires_grad
    for name, buffer in model.named_buffers():
        known[id(buffer)] = buffer.detach()
        if buffer.numel() > 0 and key_of(buffer) not in recorder.newest:
            recorder.buffers.add(recorder.add_source(name, "input", known[id(buffer)], known[id(buffer)]))
    return known


@contextmanager
def standing_in(model, known):
    """The model with the stand-ins in the places of its own parameters and buffers."""
    places = [(members, name, own) for module in model.modules() for members in (module._parameters, module._buffers)
              for name, own in members.items() if id(own) in known]
    for members, name, own in places:
        members[name] = known[id(own)]
    try:
        yield
    finally:
        for members, name, own in places:
            if members.get(name) is known[id(own)]:
                members[name] = own


def own_copies(leaves, recorder):
    """Of the batch: tensors that share no bytes with each other, and numbers that say what looks at them."""
    copies = []
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            leaf = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype).copy_(leaf)
            if leaf.numel() > 0:
                recorder.add_source(f"batch.{place}", "input", leaf, place)
        copies.append(Number(leaf, place) if is_number(leaf) and recorder.takes_numbers else leaf)
    return copies


def record(model, args, kwargs, loss, outputs, optimizer):
    """The tape of one step. The model's forward must be its own meanwhile. loss: a function of the output, args and kwargs, or None. Throws
    Refused."""
    try:
        tape = record_once(Recorder(), model, args, kwargs, loss, outputs, optimizer)
        if not tape.has_operands or same_loss(tape, model, args, kwargs, loss):
            return tape
    except TypeError:  # by a function that takes no Number
        pass
    recorder = Recorder()
    recorder.takes_numbers = False
    return record_once(recorder, model, args, kwargs, loss, outputs, optimizer)


def same_loss(tape, model, args, kwargs, loss):
    """Whether forward takes the same way with plain numbers."""
    with torch.random.fork_rng(devices=[]), bytes_kept(list(model.buffers())), torch.enable_grad():
        return digest(loss_in(model(*args, **kwargs), (args, kwargs), loss).detach()) == digest(tape.first.loss)


def record_once(recorder, model, args, kwargs, loss, outputs, optimizer):
    known = stand_ins(model, recorder)
    parameters = [known[id(parameter)] for parameter in model.parameters()]
    leaves, spec = tree_flatten((args, kwargs))
    leaves = own_copies(leaves, recorder)
    args, kwargs = tree_unflatten(leaves, spec)
    with ExitStack() as stack:
        for context in (generators_kept(), bytes_kept(list(model.buffers())), attributes_kept(model), standing_in(model, known),
                        watched(model, recorder), SeesAll(recorder), recorder, torch.enable_grad()):
            stack.enter_context(context)
        output = model(*args, **kwargs)
        value = loss_in(output, (args, kwargs), loss)
        if loss is None and not isinstance(output, (torch.Tensor, dict)):
            raise Refused(f"offload: the model's output is a {type(output).__name__}; let it return its loss, a dictionary or a ModelOutput "
                          "(return_dict=True), or give loss=")
        kept = refs_of_outputs(output, outputs, recorder)
        if value.untyped_storage().nbytes() > value.nbytes:  # an element of a larger tensor
            value = value.clone()
        at = Ref(recorder.newest[key_of(value)], value)
        states = [state_of_generator()]
        take_gradients(value, recorder)
        states.append(state_of_generator())
    if recorder.recomputes:
        raise Refused(RECOMPUTES.format("a part of the model").replace("plan", "offload", 1))
    if recorder.refusal:
        raise Refused(recorder.refusal)
    recorder.leave_on_host()
    gradients = name_gradients(recorder, parameters)
    tape = Tape(recorder, at, {"stowage_trace": 2, "loss": "", "optimizer": optimizer_of(optimizer, None)}
                | {name: count for name, count in counts_of((args, kwargs)).items() if count > 0})
    tape.gradients, tape.outputs, tape.output_class = gradients, kept, type(output)
    numbers = numbers_in(leaves)
    tape.has_operands = any(not number._is_constant for number in numbers)
    tape.constants = {number._place: number._value for number in numbers if number._is_constant}
    tape.constants |= {place: leaf for place, leaf in enumerate(leaves) if is_number(leaf) and not numbers}
    tape.first = First(value.detach(), {place: parameters[place].grad for place in gradients}, states)
    return tape


def state_of_generator():
    with _disable_current_modes():
        return torch.get_rng_state()


def take_gradients(loss, recorder):
    """Backward, from a gradient of the loss that is the caller's."""
    recorder.phase = "backward"
    with _disable_current_modes():
        seed = torch.ones_like(loss)
    recorder.outside = recorder.add("gradient of the loss", "input", seed)
    with warnings.catch_warnings(), torch.autocast("cpu", enabled=False):
        warnings.simplefilter("ignore")
        # As torch.autograd.backward does, in which a function mode would be off.
        _engine_run_backward((loss,), (seed,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def refs_of_outputs(output, names, recorder):
    """By name: what of the model's output the caller keeps, with Ref in the place of tensors."""
    kept = {}
    for name in names:
        field = output.get(name) if hasattr(output, "get") else getattr(output, name, None)
        if field is None or not tensors_in(field):
            raise Refused(f"offload: outputs={name!r}, but the model's output has no tensor of that name")
        for number in numbers_in(field):
            number._look()
        kept[name] = tree_map(lambda leaf: Ref(recorder.value_of(leaf), leaf) if isinstance(leaf, torch.Tensor) else leaf,
                              with_plain_numbers(field))
    return kept


def name_gradients(recorder, parameters):
    """Ref by the parameter's place."""
    found = {}
    for place, parameter in enumerate(parameters):
        if parameter.grad is None:
            continue
        value, gradient = recorder.value_of(parameter), recorder.value_of(parameter.grad)
        if gradient.kind != "activation" or gradient.bytes != value.bytes:
            raise Refused(f"offload: the gradient of {value.name} shares its memory with another tensor, which is not supported yet")
        gradient.kind, gradient.of = "gradient", value
        gradient.type, gradient.shape = parameter.dtype, tuple(parameter.shape)
        found[place] = Ref(gradient, parameter.grad)
    return found
