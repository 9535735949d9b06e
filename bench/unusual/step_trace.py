"""A training step as a trace (docs/trace.md), built op by op: what bench/unusual/make_steps draws its steps with."""

SIZES = {"bf16": 2, "f32": 4, "i32": 4}
CHUNK_ROWS = 1024  # rows whose logits exist at once: 65,536 columns of them are 128 MiB


class Step:
    """A trace that grows op by op. Each layer's method emits forward ops, and stacks up how its backward is emitted.

    Tensors are (name, shape, type). A tensor that several ops read gets one gradient from each, summed as they come.
    """

    def __init__(self, note):
        header = {"stowage_trace": 1, "loss": "loss", "optimizer": {"name": "adamw", "clip": 1.0}, "note": note}
        self.lines = [header]
        self.phase, self.unit_name = "forward", ""
        self.backward = []  # (unit, what emits its backward)
        self.gradients = {}  # by the name of the activation
        self.trained = set()  # activations that depend on a parameter
        self.ops = self.parameters = 0
        self.names = {}

    def unit(self, name):
        self.unit_name = name

    def fresh(self, what, name):
        """`name`, with a number where a `what` has it already."""
        times = self.names[what, name] = self.names.get((what, name), 0) + 1
        return name if times == 1 else f"{name}.{times}"

    def tensor(self, name, shape, kind="activation", type_="bf16", **more):
        name = self.fresh("tensor", name)
        self.lines.append({"tensor": name, "kind": kind, "type": type_, "shape": list(shape), **more})
        return name, tuple(shape), type_

    def parameter(self, name, shape):
        self.parameters += count(shape)
        return self.tensor(name, shape, "parameter")

    def gradient(self, parameter):
        return self.tensor(f"{parameter[0]}.grad", parameter[1], "gradient", of=parameter[0])

    def op(self, name, kernel, reads, writes, flops, alias=(), **more):
        line = {"op": self.fresh("op", name), "phase": self.phase, "unit": self.unit_name, "kernel": kernel,
                "reads": [each[0] for each in reads], "writes": [each[0] for each in writes], "flops": flops}
        if alias:
            line["may_alias"] = [[to[0], of[0]] for to, of in alias]
        self.lines.append({**line, **more})
        self.ops += 1
        if self.phase == "forward":
            self.trained.update(each[0] for each in writes)

    def later(self, emit):
        self.backward.append((self.unit_name, emit))

    def incoming(self, tensor):
        return self.gradients.pop(tensor[0])

    def has_gradient(self, tensor):
        return tensor[0] in self.trained

    def add_gradient(self, tensor, gradient):
        before = self.gradients.get(tensor[0])
        if before is None:
            self.gradients[tensor[0]] = gradient
            return
        total = self.tensor(f"{tensor[0]}.d.sum", tensor[1])
        self.op(f"{tensor[0]}.d.add", "add", [before, gradient], [total], count(tensor[1]), [(total, before)])
        self.gradients[tensor[0]] = total

    def differential(self, tensor):
        return self.tensor(f"{tensor[0]}.d", tensor[1])

    def finish(self):
        self.phase = "backward"
        while self.backward:
            self.unit_name, emit = self.backward.pop()
            emit()

    # Layers

    def product(self, name, inputs, weight_shape, output_shape, flops, kernel="product"):
        """Of `inputs`, joined, with one weight."""
        weight = self.parameter(f"{name}.w", weight_shape)
        output = self.tensor(name, output_shape)
        self.op(name, kernel, [*inputs, weight], [output], flops)

        def emit():
            dy, dw = self.incoming(output), self.gradient(weight)
            self.op(f"{name}.dw", f"{kernel}_dw", [dy, *inputs], [dw], flops)
            sources = [each for each in inputs if self.has_gradient(each)]
            if not sources:
                return
            outcomes = [self.differential(each) for each in sources]
            share = sum(each[1][-1] for each in sources) / sum(each[1][-1] for each in inputs)
            self.op(f"{name}.dx", f"{kernel}_dx", [dy, weight], outcomes, flops * share)
            for source, outcome in zip(sources, outcomes):
                self.add_gradient(source, outcome)

        self.later(emit)
        return output

    def linear(self, name, inputs, width):
        rows, inner = inputs[0][1][0], sum(each[1][1] for each in inputs)
        return self.product(name, inputs, (inner, width), (rows, width), 2 * rows * inner * width)

    def linear_gelu(self, name, inputs, width, saved):
        """A product with its gelu as one op, which also writes what its backward reads: the share `saved` of a row."""
        rows, inner = inputs[0][1][0], sum(each[1][1] for each in inputs)
        weight = self.parameter(f"{name}.w", (inner, width))
        output, kept = self.tensor(name, (rows, width)), self.tensor(f"{name}.kept", (rows, max(1, int(width * saved))))
        flops = 2 * rows * inner * width
        self.op(name, "linear_gelu", [*inputs, weight], [output, kept], flops)

        def emit():
            dy, dw, dz = self.incoming(output), self.gradient(weight), self.differential(output)
            self.op(f"{name}.gelu_back", "gelu_back", [dy, kept], [dz], 10 * count(output[1]), [(dz, dy)])
            self.op(f"{name}.dw", "product_dw", [dz, *inputs], [dw], flops)
            sources = [each for each in inputs if self.has_gradient(each)]
            if not sources:
                return
            outcomes = [self.differential(each) for each in sources]
            self.op(f"{name}.dx", "product_dx", [dz, weight], outcomes, flops)
            for source, outcome in zip(sources, outcomes):
                self.add_gradient(source, outcome)

        self.later(emit)
        return output

    def convolution(self, name, inputs, channels, shrink=1):
        """3 x 3; `shrink`: 4 where its stride is 2. Images are (points, channels)."""
        points, inner = inputs[0][1][0] // shrink, sum(each[1][1] for each in inputs)
        return self.product(name, inputs, (3, 3, inner, channels), (points, channels),
                            2 * points * 9 * inner * channels, "convolution")

    def transposed(self, name, image, channels):
        points, inner = image[1]
        return self.product(name, [image], (2, 2, inner, channels), (4 * points, channels),
                            2 * points * 4 * inner * channels, "transposed")

    def gelu(self, name, value):
        output = self.tensor(name, value[1])
        self.op(name, "gelu", [value], [output], 8 * count(value[1]))

        def emit():
            dy, dx = self.incoming(output), self.differential(value)
            self.op(f"{name}.back", "gelu_back", [value, dy], [dx], 10 * count(value[1]), [(dx, dy)])
            self.add_gradient(value, dx)

        self.later(emit)
        return output

    def norm(self, name, value, groups, kernel="norm"):
        """With `groups` means and deviations, and a scale for each column; `norm_relu` with the relu behind it."""
        scale = self.parameter(f"{name}.scale", value[1][-1:])
        output, statistics = self.tensor(name, value[1]), self.tensor(f"{name}.statistics", (groups, 2), type_="f32")
        self.op(name, kernel, [value, scale], [output, statistics], 8 * count(value[1]))

        def emit():
            dy, dx, dscale = self.incoming(output), self.differential(value), self.gradient(scale)
            self.op(f"{name}.back", f"{kernel}_back", [value, statistics, scale, dy], [dx, dscale], 10 * count(value[1]),
                    [(dx, dy)])
            self.add_gradient(value, dx)

        self.later(emit)
        return output

    def loss(self, value):
        """Squared distance to the target; its gradient is made with it."""
        target = self.tensor("target", value[1], "input")
        loss, dy = self.tensor("loss", (), type_="f32"), self.differential(value)
        self.op("loss", "squared_distance", [value, target], [loss, dy], 4 * count(value[1]))
        self.gradients[value[0]] = dy

    def gather(self, table_shape, rows):
        table, tokens = self.parameter("table", table_shape), self.tensor("tokens", (rows,), "input", "i32")
        output = self.tensor("embedding", (rows, table_shape[1]))
        taken = size(output)
        self.op("embedding", "gather", [tokens, table], [output], 0, bytes=size(tokens) + 2 * taken)

        def emit():
            dy, dtable = self.incoming(output), self.gradient(table)
            self.op("embedding.back", "gather_back", [dy, tokens], [dtable], count(output[1]),
                    bytes=size(tokens) + size(dtable) + 3 * taken)

        self.later(emit)
        return output

    def head(self, value, columns):
        rows, inner = value[1]
        weight, target = self.parameter("head.w", (inner, columns)), self.tensor("target", (rows,), "input", "i32")
        loss, sums = self.tensor("loss", (), type_="f32"), self.tensor("head.sums", (rows,), type_="f32")
        logits, chunks = 2 * CHUNK_ROWS * columns, -(-rows // CHUNK_ROWS)
        flops = 2 * rows * inner * columns
        self.op("head", "head", [value, weight, target], [loss, sums], flops, workspace=logits,
                bytes=size(value) + chunks * (size(weight) + 2 * logits))

        def emit():
            dx, dw = self.differential(value), self.gradient(weight)
            self.op("head.back", "head_back", [value, weight, target, sums], [dx, dw], 3 * flops, workspace=logits,
                    bytes=3 * size(value) + chunks * (4 * size(weight) + 5 * logits))
            self.add_gradient(value, dx)

        self.later(emit)

    def experts(self, name, value, inner, takes, loads):
        """`loads`: the rows of each expert. Its result is added to `value`."""
        rows, width = value[1]
        normed = self.norm(f"{name}.norm", value, rows)
        scores = self.linear(f"{name}.router", [normed], len(loads))
        weights, places = self.tensor(f"{name}.weights", (rows, takes)), self.tensor(f"{name}.places", (rows, takes), type_="i32")
        self.op(f"{name}.choose", "choose", [scores], [weights, places], 5 * count(scores[1]))

        def emit_choose():
            dscores = self.differential(scores)
            self.op(f"{name}.choose.back", "choose_back", [self.incoming(weights), places, scores], [dscores], 5 * count(scores[1]))
            self.add_gradient(scores, dscores)

        self.later(emit_choose)
        pieces = [self.tensor(f"{name}.{i}.rows", (load, width)) for i, load in enumerate(loads)]
        self.op(f"{name}.scatter", "scatter", [normed, places], pieces, 0)

        def emit_scatter():
            dx = self.differential(normed)
            self.op(f"{name}.scatter.back", "scatter_back", [*map(self.incoming, pieces), places], [dx], takes * count(normed[1]))
            self.add_gradient(normed, dx)

        self.later(emit_scatter)
        results = []
        for i, piece in enumerate(pieces):
            hidden = self.gelu(f"{name}.{i}.gelu", self.linear(f"{name}.{i}.up", [piece], inner))
            results.append(self.linear(f"{name}.{i}.down", [hidden], width))
        output = self.tensor(name, value[1])
        self.op(f"{name}.join", "join", [*results, weights, places, value], [output], 2 * takes * count(value[1]))

        def emit_join():
            dy, dweights = self.incoming(output), self.differential(weights)
            dresults = [self.differential(each) for each in results]
            self.op(f"{name}.join.back", "join_back", [dy, *results, weights, places], [*dresults, dweights],
                    4 * takes * count(value[1]))
            for result, dresult in zip(results, dresults):
                self.add_gradient(result, dresult)
            self.add_gradient(weights, dweights)
            self.add_gradient(value, dy)  # of the sum

        self.later(emit_join)
        return output


def count(shape):
    product = 1
    for each in shape:
        product *= each
    return product


def size(tensor):
    return SIZES[tensor[2]] * count(tensor[1])
