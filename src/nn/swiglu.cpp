#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {

// Both gradients are written where one is wanted: they are computed together.
Value swiglu(GraphBuilder& builder, std::string name, Value gate, Value up) {
  require_operand(builder, name, "gate", gate, {any, any}, builder.work_type());
  require_operand(builder, name, "input that it scales", up, builder.tensor(gate).shape, builder.work_type());
  const Value y = builder.activation(name, builder.tensor(gate).shape);
  const std::string full = builder.tensor(y).name;
  auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    const Value dgate = b.gradient_like(gate);
    const Value dup = b.gradient_like(up);
    b.op({full + ".backward",
          "swiglu_backward",
          {},
          {gate, up, gradients[0]},
          {dgate, dup},
          in_place(b, gradients[0], 2),
          {22 * elements(b, gate), 0}});
    if (b.wants_gradient(gate)) b.add_gradient(gate, dgate, true);
    if (b.wants_gradient(up)) b.add_gradient(up, dup, true);
  };
  builder.op({name, "swiglu", {}, {gate, up}, {y}, {}, {14 * elements(builder, gate), 0}}, backward);
  return y;
}

}  // namespace stowage::nn
