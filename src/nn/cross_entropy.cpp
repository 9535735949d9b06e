#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {

Value cross_entropy(GraphBuilder& builder, std::string name, Value logits, Value targets,
                    std::int64_t vocabulary) {
  require_operand(builder, name, "logits", logits, {any, any}, builder.work_type());
  std::int64_t tokens = builder.tensor(logits).shape[0];
  require_operand(builder, name, "targets", targets, {tokens * builder.micro_batch().parts()}, DataType::i32);
  Attributes attributes = token_slice(builder, tokens);
  add_vocabulary(attributes, name, vocabulary, builder.tensor(logits).shape[1]);
  Value loss = builder.activation(name, {}, DataType::f64);
  Value log_sum_exp = builder.activation(name + ".log_sum_exp", {tokens}, builder.sum_type());
  std::string full = builder.tensor(loss).name;
  auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    require(!gradients[0] && !gradients[1], full, "its gradient is taken as 1; make it the loss itself");
    Value dlogits = b.gradient_like(logits);
    b.op({full + ".backward",
          "cross_entropy_backward",
          attributes,
          {logits, targets, log_sum_exp},
          {dlogits},
          {},
          {4 * elements(b, logits), 0}});
    b.add_gradient(logits, dlogits, true);
  };
  builder.op({name,
              "cross_entropy",
              attributes,
              {logits, targets},
              {loss, log_sum_exp},
              {},
              {4 * elements(builder, logits), 0}},
             backward);
  return loss;
}

}  // namespace stowage::nn
