"""Numbers among a model's arguments, such as the items of a batch that a loss is divided by: operands of a tape, where a tensor is added
to one, multiplied or divided; constants of it, where anything else looks at one."""

import operator

import torch
from torch.utils._pytree import tree_leaves, tree_map

# Functions of two operands that give one of them to an operation as it is, forward and backward.
TAKES = {name + end for name in ("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide") for end in ("", "_")}
TAKES |= {"rsub", "__rsub__", "__rdiv__", "__rtruediv__"}
OPERATIONS = {f"aten::{name}{end}" for name in ("add", "sub", "mul", "div") for end in ("", "_")} | {"aten::rsub"}

LOOKS = ("lt", "le", "eq", "ne", "ge", "gt", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor")
LOOKS_ALONE = {"bool": bool, "int": int, "float": float, "complex": complex, "index": operator.index, "hash": hash, "str": str, "repr": repr,
               "neg": operator.neg, "pos": operator.pos, "abs": abs, "invert": operator.invert, "round": round, "trunc": int}


class Given:
    """In an operation's arguments: the number at this place of the batch."""

    def __init__(self, place):
        self.place = place


class Number:
    """A number while a step is recorded. For isinstance() it is what it stands for."""

    def __init__(self, value, place):
        self._value, self._place = value, place
        self._is_constant = False
        self._taken = False  # by an operation of the function that runs

    @property
    def __class__(self):
        return type(self._value)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented

    def __format__(self, how):
        return format(self._look(), how)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._look(), name)

    def _look(self):
        self._is_constant = True
        return self._value

    def _given(self, func, args):
        """The operation's arguments with a Given in the number's place, if it is one of those that take it."""
        if func._schema.name in OPERATIONS and type(args[1]) is type(self._value) and args[1] == self._value:
            self._taken = True
            return (args[0], Given(self._place), *args[2:])
        return args


def _look_at_two(function, is_reflected):
    def look(self, other):
        if isinstance(other, torch.Tensor):
            return NotImplemented  # it is the tensor's operation
        one, two = self._look(), other._look() if type(other) is Number else other
        return function(two, one) if is_reflected else function(one, two)
    return look


for _name in LOOKS:
    _plain = _name.strip("_")
    setattr(Number, f"__{_plain}__", _look_at_two(getattr(operator, _name), False))
    setattr(Number, f"__r{_plain}__", _look_at_two(getattr(operator, _name), True))
for _name, _function in LOOKS_ALONE.items():
    setattr(Number, f"__{_name}__", lambda self, *more, _function=_function: _function(self._look(), *more))


def numbers_in(tree):
    return [leaf for leaf in tree_leaves(tree) if type(leaf) is Number]


def with_plain_numbers(tree):
    return tree_map(lambda leaf: leaf._value if type(leaf) is Number else leaf, tree)


def is_number(leaf):
    return isinstance(leaf, (int, float)) and not isinstance(leaf, bool)
