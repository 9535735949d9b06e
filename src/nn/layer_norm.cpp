#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {
namespace {

struct LayerNorm {
  std::string name;
  Value x, gain, bias, y, mean, rstd;
};

void backward(GraphBuilder& b, const LayerNorm& op, Value dy) {
  double count = elements(b, dy);
  if (b.wants_gradient(op.gain) || b.wants_gradient(op.bias)) {
    Value dgain = b.gradient_like(op.gain);
    Value dbias = b.gradient_like(op.bias);
    b.op({op.name + ".backward_parameters",
          "layer_norm_backward_parameters",
          {},
          {op.x, op.mean, op.rstd, dy},
          {dgain, dbias},
          {},
          {5 * count, 0}});
    if (b.wants_gradient(op.gain)) b.add_gradient(op.gain, dgain, true);
    if (b.wants_gradient(op.bias)) b.add_gradient(op.bias, dbias, true);
  }
  if (b.wants_gradient(op.x)) {
    Value dx = b.gradient_like(op.x);
    b.op({op.name + ".backward",
          "layer_norm_backward",
          {},
          {op.x, op.gain, op.mean, op.rstd, dy},
          {dx},
          in_place(b, dy, 4),
          {11 * count, 0}});
    b.add_gradient(op.x, dx, true);
  }
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
