// The tokens that a branch keeps: their choice, and their rows taken out of the trunk and added back.
#include <limits>

#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {
namespace {

constexpr double comparisons_per_score = 34;  // as many as bits of a score, and two

void require_rows(const GraphBuilder& builder, const std::string& name, Value rows) {
  require_operand(builder, name, "kept rows", rows, {any}, DataType::i32);
}

double bytes_of(const GraphBuilder& builder, Value of) {
  return static_cast<double>(builder.tensor(of).bytes());
}

// The gradient of x from other uses, if there is any, takes the rows' gradients in one op.
void add_gradient_of_rows(GraphBuilder& b, const std::string& name, Value x, Value rows, Value dy) {
  const Value before = b.gradient_so_far(x);
  const bool in_place = before && b.is_fresh_so_far(x);
  const Value dx = b.gradient_like(x);
  if (!before) {
    b.op({name, "take_rows_backward", {}, {dy, rows}, {dx}, {}, {}});
    return b.add_gradient(x, dx, true);
  }
  b.op({name,
        "add_rows",
        {},
        {before, dy, rows},
        {dx},
        in_place ? std::vector<Alias>{{0, 0}} : std::vector<Alias>{},
        {elements(b, dy), 0}});
  b.set_gradient(x, dx);
}

}  // namespace

Value top_tokens(GraphBuilder& builder, std::string name, Value scores, Value seen, std::int64_t sequence,
                 std::int64_t keep) {
  require_operand(builder, name, "scores", scores, {any}, builder.sum_type());
  const std::int64_t tokens = builder.tensor(scores).shape[0];
  require(sequence > 0 && tokens % sequence == 0, name,
          "the tokens are no whole number of sequences; pad them");
  require(tokens <= std::numeric_limits<std::int32_t>::max(), name,
          "rows are numbers of 31 bits; split the batch into more micro-batches");
  require(keep > 0 && keep <= sequence, name, "a sample keeps 1 to all of its tokens; change their number");
  Attributes attributes{{"sequence", sequence}, {"keep", keep}};
  std::vector<Value> reads{scores};
  if (seen) {
    require_operand(builder, name, "padding", seen, {tokens * builder.micro_batch().parts()}, DataType::i32);
    attributes.merge(token_slice(builder, tokens));
    reads.push_back(seen);
  }
  const Value rows = builder.activation(name, {tokens / sequence * keep}, DataType::i32);
  builder.op({name,
              "top_tokens",
              std::move(attributes),
              std::move(reads),
              {rows},
              {},
              {comparisons_per_score * static_cast<double>(tokens), 0}});
  return rows;
}

Value take_rows(GraphBuilder& builder, std::string name, Value x, Value rows) {
  require_operand(builder, name, "input", x, {any, any}, builder.work_type());
  require_rows(builder, name, rows);
  const Value y = builder.activation(name, {builder.tensor(rows).shape[0], builder.tensor(x).shape[1]});
  const std::string full = builder.tensor(y).name;
  const auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    add_gradient_of_rows(b, full + ".backward", x, rows, gradients[0]);
  };
  const double bytes = 2 * bytes_of(builder, y) + bytes_of(builder, rows);
  builder.op({name, "take_rows", {}, {x, rows}, {y}, {}, {0, bytes}}, backward);
  return y;
}

// The forward op never overwrites x, so that it can be replayed from x and y alone.
Value add_rows(GraphBuilder& builder, std::string name, Value x, Value y, Value rows) {
  require_operand(builder, name, "input", x, {any, any}, builder.work_type());
  require_rows(builder, name, rows);
  require_operand(builder, name, "kept tokens", y,
                  {builder.tensor(rows).shape[0], builder.tensor(x).shape[1]}, builder.work_type());
  const Value sum = builder.activation(name, builder.tensor(x).shape);
  const std::string full = builder.tensor(sum).name;
  const auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    if (b.wants_gradient(y)) {
      const Value dy = b.gradient_like(y);
      const double bytes = 2 * bytes_of(b, dy) + bytes_of(b, rows);
      b.op({full + ".backward", "take_rows", {}, {gradients[0], rows}, {dy}, {}, {0, bytes}});
      b.add_gradient(y, dy, true);
    }
    // No op behind the one above reads the sum's gradient.
    if (b.wants_gradient(x)) b.add_gradient(x, gradients[0], b.may_overwrite(gradients[0]));
  };
  builder.op({name, "add_rows", {}, {x, y, rows}, {sum}, {}, {elements(builder, y), 0}}, backward);
  return sum;
}

}  // namespace stowage::nn
