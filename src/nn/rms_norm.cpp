#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {
namespace {

struct RmsNorm {
  std::string name;
  Value x, gain, rstd;
};

// Backward if x wants no gradient.
void gain_alone(GraphBuilder& b, const RmsNorm& op, Value dy, Value dgain) {
  b.op({op.name + ".backward_parameters",
        "rms_norm_backward_parameters",
        {},
        {op.x, op.rstd, dy},
        {dgain},
        {},
        {3 * elements(b, dy), 0}});
}

// Backward with x: adds x's gradient from other uses, as layer_norm does.
void with_input(GraphBuilder& b, const RmsNorm& op, Value dy, Value dgain) {
  const Value before = b.gradient_so_far(op.x);
  const Value dx = b.gradient_like(op.x);
  std::vector<Value> reads{op.x, op.gain, op.rstd, dy};
  if (before) reads.push_back(before);
  std::vector<Value> writes{dx};
  if (dgain) writes.push_back(dgain);
  const double flops = 8 + (before ? 1 : 0) + (dgain ? 2 : 0);
  b.op({op.name + ".backward",
        "rms_norm_backward",
        {},
        std::move(reads),
        std::move(writes),
        in_place(b, dy, 3),
        {flops * elements(b, dy), 0}});
  if (before) return b.set_gradient(op.x, dx);
  b.add_gradient(op.x, dx, true);
}

void backward(GraphBuilder& b, const RmsNorm& op, Value dy) {
  Value dgain;
  if (b.wants_gradient(op.gain)) dgain = b.gradient_like(op.gain);
  if (b.wants_gradient(op.x)) {
    with_input(b, op, dy, dgain);
  } else {
    gain_alone(b, op, dy, dgain);
  }
  if (dgain) b.add_gradient(op.gain, dgain, true);
}

}  // namespace

Value rms_norm(GraphBuilder& builder, std::string name, Value x, Value gain, double epsilon) {
  require_operand(builder, name, "input", x, {any, any}, builder.work_type());
  const std::int64_t tokens = builder.tensor(x).shape[0];
  const std::int64_t width = builder.tensor(x).shape[1];
  require_operand(builder, name, "gain", gain, {width}, builder.work_type());

  const Value y = builder.activation(name, {tokens, width});
  const Value rstd = builder.activation(name + ".rstd", {tokens}, builder.sum_type());
  const RmsNorm op{builder.tensor(y).name, x, gain, rstd};
  builder.op(
      {name, "rms_norm", {{"epsilon", epsilon}}, {x, gain}, {y, rstd}, {}, {4 * elements(builder, x), 0}},
      [op](GraphBuilder& b, const std::vector<Value>& gradients) { backward(b, op, gradients[0]); });
  return y;
}

}  // namespace stowage::nn
