#include <algorithm>

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

namespace {

// Bytes for the chunk's logits, and for sums of the gradients of weight and bias if a narrow type would round
// them once per chunk.
Bytes workspace_bytes(const GraphBuilder& builder, Value weight, std::int64_t vocabulary, std::int64_t tokens,
                      std::int64_t chunk, bool has_bias) {
  const Bytes logits = static_cast<Bytes>(chunk * vocabulary) * size_of(builder.work_type());
  if (size_of(builder.work_type()) != 2 || chunk == tokens) return logits;
  return (logits + 255) / 256 * 256 +
         4 * static_cast<Bytes>(builder.tensor(weight).elements() + (has_bias ? vocabulary : 0));
}

void require_fit(const GraphBuilder& builder, const std::string& name, Value x, Value weight, Value targets,
                 const LinearCrossEntropyOptions& options) {
  require_operand(builder, name, "input", x, {any, any}, builder.work_type());
  const std::int64_t tokens = builder.tensor(x).shape[0];
  const std::int64_t width = builder.tensor(x).shape[1];
  require_operand(builder, name, "weight", weight,
                  options.transposed ? std::vector<std::int64_t>{any, width} : std::vector{width, any},
                  builder.work_type());
  require_operand(builder, name, "targets", targets, {tokens * builder.micro_batch().parts()}, DataType::i32);
  require(options.chunk >= 0, name, "the chunk is negative; give tokens, or 0 for all at once");
  require(builder.wants_gradient(x) && builder.wants_gradient(weight), name,
          "it writes the gradients of its inputs, but one of them depends on no parameter; use linear "
          "and cross_entropy");
  if (!options.bias) return;
  const std::int64_t columns = builder.tensor(weight).shape[options.transposed ? 0 : 1];
  require_operand(builder, name, "bias", options.bias, {columns}, builder.work_type());
  require(builder.wants_gradient(options.bias), name,
          "it writes the bias's gradient, but the bias depends on no parameter; leave it out");
}

}  // namespace

Value linear_cross_entropy(GraphBuilder& builder, std::string name, Value x, Value weight, Value targets,
                           const LinearCrossEntropyOptions& options) {
  require_fit(builder, name, x, weight, targets, options);
  const Value bias = options.bias;
  const std::int64_t tokens = builder.tensor(x).shape[0];
  const std::int64_t vocabulary = builder.tensor(weight).shape[options.transposed ? 0 : 1];
  const std::int64_t chunk = options.chunk == 0 ? tokens : std::min(options.chunk, tokens);

  Value loss = builder.activation(name, {}, DataType::f64);
  Value dx = builder.gradient_like(x);
  Value dweight = builder.gradient_like(weight);
  Value logits = builder.workspace(
      name + ".logits", workspace_bytes(builder, weight, vocabulary, tokens, chunk, static_cast<bool>(bias)));
  std::vector<Value> reads{x, weight, targets};
  std::vector<Value> writes{loss, dx, dweight, logits};
  const Value dbias = bias ? builder.gradient_like(bias) : Value{};
  if (bias) {
    reads.push_back(bias);
    writes.push_back(dbias);
  }
  const double product = 2 * elements(builder, x) * static_cast<double>(vocabulary);
  const double softmax = 8 * static_cast<double>(tokens) * static_cast<double>(vocabulary);
  Attributes attributes = token_slice(builder, tokens);
  attributes["transposed"] = std::int64_t{options.transposed};
  attributes["chunk"] = chunk;
  add_vocabulary(attributes, name, options.vocabulary, vocabulary);
  builder.op({.name = name,
              .kernel = "linear_cross_entropy",
              .attributes = std::move(attributes),
              .reads = std::move(reads),
              .writes = std::move(writes),
              .may_alias = {},
              .cost = {3 * product + softmax, 0},
              .writes_gradients = true},
             [=](GraphBuilder& b, const std::vector<Value>&) {
               b.add_gradient(weight, dweight, true);
               if (bias) b.add_gradient(bias, dbias, true);
               b.add_gradient(x, dx, true);
             });
  return loss;
}

}  // namespace stowage::nn
