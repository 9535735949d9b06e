#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {
namespace {

struct LayerNorm {
  std::string name;
  Value x, gain, bias, y, mean, rstd;
};

// Backward if x wants no gradient.
void parameters_alone(GraphBuilder& b, const LayerNorm& op, Value dy, Value dgain, Value dbias) {
  b.op({op.name + ".backward_parameters",
        "layer_norm_backward_parameters",
        {},
        {op.x, op.mean, op.rstd, dy},
        {dgain, dbias},
        {},
        {5 * elements(b, dy), 0}});
}

// Backward with x: adds x's gradient from other uses, such as the trunk's past a branch that begins with
// a norm.
void with_input(GraphBuilder& b, const LayerNorm& op, Value dy, Value dgain, Value dbias) {
  const Value before = b.gradient_so_far(op.x);
  Value dx = b.gradient_like(op.x);
  std::vector<Value> reads{op.x, op.gain, op.mean, op.rstd, dy};
  if (before) reads.push_back(before);
  std::vector<Value> writes{dx};
  if (dgain) writes.insert(writes.end(), {dgain, dbias});
  const double flops = 11 + (before ? 1 : 0) + (dgain ? 3 : 0);
  b.op({op.name + ".backward",
        "layer_norm_backward",
        {},
        std::move(reads),
        std::move(writes),
        in_place(b, dy, 4),
        {flops * elements(b, dy), 0}});
  if (before) return b.set_gradient(op.x, dx);
  b.add_gradient(op.x, dx, true);
}

void backward(GraphBuilder& b, const LayerNorm& op, Value dy) {
  Value dgain, dbias;
  if (b.wants_gradient(op.gain) || b.wants_gradient(op.bias)) {
    dgain = b.gradient_like(op.gain);
    dbias = b.gradient_like(op.bias);
  }
  if (b.wants_gradient(op.x)) {
    with_input(b, op, dy, dgain, dbias);
  } else if (dgain) {
    parameters_alone(b, op, dy, dgain, dbias);
  }
  if (b.wants_gradient(op.gain)) b.add_gradient(op.gain, dgain, true);
  if (b.wants_gradient(op.bias)) b.add_gradient(op.bias, dbias, true);
}

}  // namespace

Value layer_norm(GraphBuilder& builder, std::string name, Value x, Value gain, Value bias, double epsilon) {
  require_operand(builder, name, "input", x, {any, any}, builder.work_type());
  std::int64_t tokens = builder.tensor(x).shape[0];
  std::int64_t width = builder.tensor(x).shape[1];
  require_operand(builder, name, "gain", gain, {width}, builder.work_type());
  require_operand(builder, name, "bias", bias, {width}, builder.work_type());

  Value y = builder.activation(name, {tokens, width});
  Value mean = builder.activation(name + ".mean", {tokens}, builder.sum_type());
  Value rstd = builder.activation(name + ".rstd", {tokens}, builder.sum_type());
  LayerNorm op{builder.tensor(y).name, x, gain, bias, y, mean, rstd};
  builder.op({name,
              "layer_norm",
              {{"epsilon", epsilon}},
              {x, gain, bias},
              {y, mean, rstd},
              {},
              {8 * elements(builder, x), 0}},
             [op](GraphBuilder& b, const std::vector<Value>& gradients) { backward(b, op, gradients[0]); });
  return y;
}

}  // namespace stowage::nn
