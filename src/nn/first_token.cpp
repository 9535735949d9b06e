#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {

Value first_token(GraphBuilder& builder, std::string name, Value x, std::int64_t sequence) {
  require_operand(builder, name, "input", x, {any, any}, builder.work_type());
  const std::int64_t tokens = builder.tensor(x).shape[0];
  require(sequence > 0 && tokens % sequence == 0, name,
          "the tokens are no whole number of sequences; pad them");
  Value y = builder.activation(name, {tokens / sequence, builder.tensor(x).shape[1]});
  const std::string full = builder.tensor(y).name;
  const Attributes attributes{{"sequence", sequence}};
  // Of x only the rows that are taken are read.
  const double row_bytes = elements(builder, y) * static_cast<double>(size_of(builder.work_type()));
  auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    Value dx = b.gradient_like(x);
    b.op({full + ".backward", "first_token_backward", attributes, {gradients[0]}, {dx}, {}, {}});
    b.add_gradient(x, dx, true);
  };
  builder.op({name, "first_token", attributes, {x}, {y}, {}, {0, 2 * row_bytes}}, backward);
  return y;
}

}  // namespace stowage::nn
