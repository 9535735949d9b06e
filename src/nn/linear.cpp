#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {
namespace {

struct Linear {
  std::string name;
  Value x, weight, bias;
  Attributes attributes;
  double flops = 0;  // of one of the three products
};

// The weight's gradient first: it may leave the device while the rest is computed.
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

}  // namespace

Value linear(GraphBuilder& builder, std::string name, Value x, Value weight, Value bias, bool transposed) {
  require_operand(builder, name, "input", x, {any, any}, builder.work_type());
  std::int64_t tokens = builder.tensor(x).shape[0];
  std::int64_t in = builder.tensor(x).shape[1];
  require_operand(builder, name, "weight", weight,
                  transposed ? std::vector<std::int64_t>{any, in} : std::vector<std::int64_t>{in, any},
                  builder.work_type());
  std::int64_t out = builder.tensor(weight).shape[transposed ? 0 : 1];
  if (bias) require_operand(builder, name, "bias", bias, {out}, builder.work_type());

  Value y = builder.activation(name, {tokens, out});
  Linear op{builder.tensor(y).name,
            x,
            weight,
            bias,
            {{"transposed", std::int64_t{transposed}}},
            2 * elements(builder, x) * static_cast<double>(out)};
  std::vector<Value> reads{x, weight};
  if (bias) reads.push_back(bias);
  double flops = op.flops + (bias ? elements(builder, y) : 0);
  builder.op({name, "linear", op.attributes, std::move(reads), {y}, {}, {flops, 0}},
             [op](GraphBuilder& b, const std::vector<Value>& gradients) { backward(b, op, gradients[0]); });
  return y;
}

}  // namespace stowage::nn
