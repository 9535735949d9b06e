#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {
namespace {

struct Linear {
  std::string name;
  Value x, weight, bias;
  Attributes attributes;
  double flops = 0;                 // flops of each of the three products
  std::vector<std::int64_t> shape;  // shape of the result
};

// The weight's gradient comes first: it may leave the device while the rest is computed.
void backward(GraphBuilder& b, const Linear& op, Value dy) {
  if (b.wants_gradient(op.weight)) {
    Value dw = b.gradient_like(op.weight);
    b.op({op.name + ".backward_weight",
          "linear_backward_weight",
          op.attributes,
          {op.x, dy},
          {dw},
          {},
          {op.flops, 0}});
    b.add_gradient(op.weight, dw, true);
  }
  if (b.wants_gradient(op.bias)) {
    Value dbias = b.gradient_like(op.bias);
    b.op({op.name + ".backward_bias", "linear_backward_bias", {}, {dy}, {dbias}, {}, {elements(b, dy), 0}});
    b.add_gradient(op.bias, dbias, true);
  }
  if (b.wants_gradient(op.x)) {
    Value dx = b.gradient_like(op.x);
    b.op({op.name + ".backward",
          "linear_backward_input",
          op.attributes,
          {dy, op.weight},
          {dx},
          {},
          {op.flops, 0}});
    b.add_gradient(op.x, dx, true);
  }
}

// Returns the gradient of `pre`; the same pass makes the bias's gradient, which is its sum.
Value gelu_gradient(GraphBuilder& b, const Linear& op, Value pre, Value dy, const Attribute& form) {
  Value dpre = b.gradient_like(pre);
  std::vector<Value> writes{dpre};
  if (b.wants_gradient(op.bias)) writes.push_back(b.gradient_like(op.bias));
  b.op({op.name + ".backward_gelu",
        "gelu_backward",
        {{"form", form}},
        {pre, dy},
        writes,
        in_place(b, dy, 1),
        {21 * elements(b, pre), 0}});
  if (writes.size() == 2) b.add_gradient(op.bias, writes[1], true);
  return dpre;
}

// Checks the operands. The caller sets the result's name.
Linear checked(const GraphBuilder& builder, const std::string& name, Value x, Value weight, Value bias,
               bool transposed) {
  require_operand(builder, name, "input", x, {any, any}, builder.work_type());
  std::int64_t tokens = builder.tensor(x).shape[0];
  std::int64_t in = builder.tensor(x).shape[1];
  require_operand(builder, name, "weight", weight,
                  transposed ? std::vector<std::int64_t>{any, in} : std::vector<std::int64_t>{in, any},
                  builder.work_type());
  std::int64_t out = builder.tensor(weight).shape[transposed ? 0 : 1];
  if (bias) require_operand(builder, name, "bias", bias, {out}, builder.work_type());

  return {{},
          x,
          weight,
          bias,
          {{"transposed", std::int64_t{transposed}}},
          2 * elements(builder, x) * static_cast<double>(out),
          {tokens, out}};
}

}  // namespace

Value linear(GraphBuilder& builder, std::string name, Value x, Value weight, Value bias, bool transposed) {
  Linear op = checked(builder, name, x, weight, bias, transposed);
  Value y = builder.activation(name, op.shape);
  op.name = builder.tensor(y).name;
  std::vector<Value> reads{x, weight};
  if (bias) reads.push_back(bias);
  double flops = op.flops + (bias ? elements(builder, y) : 0);
  builder.op({name, "linear", op.attributes, std::move(reads), {y}, {}, {flops, 0}},
             [op](GraphBuilder& b, const std::vector<Value>& gradients) { backward(b, op, gradients[0]); });
  return y;
}

Value linear_gelu(GraphBuilder& builder, std::string name, Value x, Value weight, Value bias, Gelu form,
                  bool transposed) {
  require(static_cast<bool>(bias), name, "it has no bias; give one, or use linear and gelu");
  Linear op = checked(builder, name, x, weight, bias, transposed);
  Value pre = builder.activation(name + ".pre", op.shape);
  Value y = builder.activation(name, op.shape);
  op.name = builder.tensor(y).name;
  Attributes attributes = op.attributes;
  const Attribute text = std::string(form == Gelu::tanh ? "tanh" : "erf");
  attributes["form"] = text;
  auto rule = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    Linear rest = op;
    rest.bias = {};
    backward(b, rest, gelu_gradient(b, op, pre, gradients[1], text));
  };
  double flops = op.flops + 13 * elements(builder, y);
  builder.op({name, "linear_gelu", std::move(attributes), {x, weight, bias}, {pre, y}, {}, {flops, 0}}, rule);
  return y;
}

}  // namespace stowage::nn
