#include <algorithm>

#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {
namespace {

struct Head {
  std::string name;
  Value x, targets, before;
  TableBlock block;
  Attributes attributes;
  Bytes logits = 0;  // bytes of the block's logits
};

double product_flops(const GraphBuilder& builder, const Head& head) {
  return 2 * elements(builder, head.x) * static_cast<double>(builder.tensor(head.block.rows).shape[0]);
}
double logits_of(const GraphBuilder& builder, const Head& head) {
  return static_cast<double>(head.logits) / static_cast<double>(size_of(builder.work_type()));
}

// `factors`: head_loss_backward's result.
void backward(GraphBuilder& b, const Head& head, Value factors) {
  const Value so_far = b.gradient_so_far(head.x);
  const bool in_place = so_far && b.is_fresh_so_far(head.x);
  const Value dx = b.gradient_like(head.x);
  const Value drows = b.gradient_like(head.block.rows);
  const Value logits = b.workspace(head.name + ".backward.logits", head.logits);
  std::vector<Value> reads{head.x, head.block.rows, head.targets, factors};
  if (so_far) reads.push_back(so_far);
  // The logits once more, then the products of both gradients.
  b.op({head.name + ".backward",
        "head_backward",
        head.attributes,
        std::move(reads),
        {dx, drows, logits},
        in_place ? std::vector<Alias>{{0, 4}} : std::vector<Alias>{},
        {3 * product_flops(b, head) + 4 * logits_of(b, head), 0}});
  b.add_gradient(head.block.rows, drows, true);
  if (so_far)
    b.set_gradient(head.x, dx);
  else
    b.add_gradient(head.x, dx, true);
  if (head.before) b.add_gradient(head.before, factors, false);
}

}  // namespace

Value head_statistics(GraphBuilder& builder, std::string name, Value x, const TableBlock& block,
                      Value targets, Value before) {
  require_operand(builder, name, "input", x, {any, any}, builder.work_type());
  const std::int64_t tokens = builder.tensor(x).shape[0];
  require_block(builder, name, block, builder.tensor(x).shape[1]);
  require_operand(builder, name, "targets", targets, {tokens * builder.micro_batch().parts()}, DataType::i32);
  if (before) require_operand(builder, name, "statistics before", before, {3, tokens}, builder.sum_type());
  require(
      builder.wants_gradient(x) == builder.wants_gradient(block.rows), name,
      "its backward writes the gradients of both inputs, but one of them depends on no trained parameter; "
      "use linear and cross_entropy");
  const Value statistics = builder.activation(name, {3, tokens}, builder.sum_type());
  Head head{.name = builder.tensor(statistics).name,
            .x = x,
            .targets = targets,
            .before = before,
            .block = block,
            .attributes = attributes_of_block(token_slice(builder, tokens), block)};
  head.logits =
      static_cast<Bytes>(tokens * builder.tensor(block.rows).shape[0]) * size_of(builder.work_type());
  std::vector<Value> reads{x, block.rows, targets};
  if (before) reads.push_back(before);
  builder.op(
      {name,
       "head_statistics",
       head.attributes,
       std::move(reads),
       {statistics, builder.workspace(name + ".logits", head.logits)},
       before ? std::vector<Alias>{{0, 3}} : std::vector<Alias>{},
       {product_flops(builder, head) + 4 * logits_of(builder, head), 0}},
      [head](GraphBuilder& b, const std::vector<Value>& gradients) { backward(b, head, gradients[0]); });
  return statistics;
}

Value head_loss(GraphBuilder& builder, std::string name, Value statistics, Value targets) {
  require_operand(builder, name, "statistics", statistics, {3, any}, builder.sum_type());
  const std::int64_t tokens = builder.tensor(statistics).shape[1];
  require_operand(builder, name, "targets", targets, {tokens * builder.micro_batch().parts()}, DataType::i32);
  const Value loss = builder.activation(name, {}, DataType::f64);
  const std::string full = builder.tensor(loss).name;
  const Attributes attributes = token_slice(builder, tokens);
  builder.op(
      {name, "head_loss", attributes, {statistics, targets}, {loss}, {}, {elements(builder, statistics), 0}},
      [=](GraphBuilder& b, const std::vector<Value>& gradients) {
        require(!gradients[0], full, "its gradient is taken as 1; make it the loss itself");
        const Value factors = b.gradient_like(statistics);
        b.op({full + ".backward",
              "head_loss_backward",
              attributes,
              {statistics, targets},
              {factors},
              {},
              {elements(b, statistics), 0}});
        b.add_gradient(statistics, factors, false);
      });
  return loss;
}

}  // namespace stowage::nn
