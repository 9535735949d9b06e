#include <algorithm>

#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {

Value embedding(GraphBuilder& builder, std::string name, Value tokens, Value table, Value positions,
                std::int64_t sequence) {
  require_operand(builder, name, "tokens", tokens, {any}, DataType::i32);
  require_operand(builder, name, "table", table, {any, any}, builder.work_type());
  std::int64_t count = tokens_of_micro_batch(builder, name, tokens);
  std::int64_t width = builder.tensor(table).shape[1];
  require(sequence > 0 && count % sequence == 0, name,
          "the tokens are no whole number of sequences; pad them");
  if (positions)
    require_operand(builder, name, "positions", positions, {sequence, width}, builder.work_type());

  Value y = builder.activation(name, {count, width});
  std::string full = builder.tensor(y).name;
  double touched = elements(builder, y) * static_cast<double>(size_of(builder.work_type()));
  double token_bytes = 4.0 * static_cast<double>(count);
  std::vector<Value> reads{tokens, table};
  if (positions) reads.push_back(positions);
  Attributes slice = token_slice(builder, count);
  Attributes attributes = slice;
  attributes["sequence"] = sequence;

  auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    Value dy = gradients[0];
    double additions = elements(b, dy);
    if (b.wants_gradient(table)) {
      Value dtable = b.gradient_like(table);
      b.op({full + ".backward", "embedding_backward", slice, {tokens, dy}, {dtable}, {}, {additions, 0}});
      b.add_gradient(table, dtable, true);
    }
    if (positions && b.wants_gradient(positions)) {
      Value dpositions = b.gradient_like(positions);
      b.op({full + ".backward_positions",
            "position_backward",
            {{"sequence", sequence}},
            {dy},
            {dpositions},
            {},
            {additions, 0}});
      b.add_gradient(positions, dpositions, true);
    }
  };
  // An embedding reads the rows of the tokens, not the whole table.
  OpCost cost{positions ? elements(builder, y) : 0.0, token_bytes + touched * (positions ? 3 : 2)};
  builder.op({name, "embedding", std::move(attributes), std::move(reads), {y}, {}, cost}, backward);
  return y;
}

Value embedding_rows(GraphBuilder& builder, std::string name, Value tokens, const TableBlock& block,
                     Value before) {
  require_operand(builder, name, "tokens", tokens, {any}, DataType::i32);
  const std::int64_t count = tokens_of_micro_batch(builder, name, tokens);
  const std::int64_t width = require_block(builder, name, block, any);
  if (before) require_operand(builder, name, "result before", before, {count, width}, builder.work_type());

  const Value y = builder.activation(name, {count, width});
  const std::string full = builder.tensor(y).name;
  const Attributes attributes = attributes_of_block(token_slice(builder, count), block);
  std::vector<Value> reads{tokens, block.rows};
  if (before) reads.push_back(before);
  // Rows that are in the block are read, and written; in place, the others are not touched.
  const double share = elements(builder, block.rows) / static_cast<double>(block.tokens * width);
  const double moved = 2 * elements(builder, y) * static_cast<double>(size_of(builder.work_type()));
  const OpCost cost{0, 4.0 * static_cast<double>(count) + (before ? std::min(share, 1.0) : 1.0) * moved};
  const auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    const Value dy = gradients[0];
    if (b.wants_gradient(block.rows)) {
      const Value drows = b.gradient_like(block.rows);
      b.op({full + ".backward",
            "embedding_backward",
            attributes,
            {tokens, dy},
            {drows},
            {},
            {elements(b, dy), 0}});
      b.add_gradient(block.rows, drows, true);
    }
    // The rows of other blocks have the gradient of the same rows of the result.
    if (before && b.wants_gradient(before)) b.add_gradient(before, dy, false);
  };
  builder.op({name,
              "embedding",
              attributes,
              std::move(reads),
              {y},
              before ? std::vector<Alias>{{0, 2}} : std::vector<Alias>{},
              cost},
             backward);
  return y;
}

Value first_token(GraphBuilder& builder, std::string name, Value x, std::int64_t sequence) {
  require_operand(builder, name, "input", x, {any, any}, builder.work_type());
  const std::int64_t tokens = builder.tensor(x).shape[0];
  require(sequence > 0 && tokens % sequence == 0, name,
          "the tokens are no whole number of sequences; pad them");
  Value y = builder.activation(name, {tokens / sequence, builder.tensor(x).shape[1]});
  const std::string full = builder.tensor(y).name;
  const Attributes attributes{{"sequence", sequence}};
  // The op reads only the rows of x that it takes.
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
