#include "kernels/math/rotary.h"

#include <fmt/format.h>

#include <cmath>

#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {
namespace {

bool finite_at_least_1(double x) { return std::isfinite(x) && x >= 1; }

void require_rotary_heads(const std::string& name, const std::vector<std::int64_t>& shape,
                          const RotaryOptions& options) {
  const std::int64_t columns = shape[1];
  require(options.heads > 0 && options.key_heads > 0 && options.heads <= columns &&
              options.key_heads <= columns && columns % (options.heads + 2 * options.key_heads) == 0,
          name, "the width is not divisible by the heads of queries, keys and values; change one of them");
  const std::int64_t width = columns / (options.heads + 2 * options.key_heads);
  require(width % 2 == 0 && width <= most_rotary_width, name,
          fmt::format("heads of {} elements cannot be turned; give them an even width of at most {}", width,
                      most_rotary_width));
  require(options.sequence > 0 && shape[0] % options.sequence == 0, name,
          "the tokens are no whole number of sequences; pad them");
}

void require_rotary_angles(const std::string& name, const RotaryOptions& options) {
  require(finite_at_least_1(options.theta), name,
          fmt::format("theta is {}; give a finite number of at least 1", options.theta));
  if (!options.scaling) return;
  const RotaryScaling& scaling = *options.scaling;
  require(finite_at_least_1(scaling.factor), name,
          fmt::format("the scaling's factor is {}; give a finite number of at least 1", scaling.factor));
  require(scaling.low_frequency_factor > 0 && std::isfinite(scaling.high_frequency_factor) &&
              scaling.low_frequency_factor < scaling.high_frequency_factor,
          name,
          fmt::format("the scaling's frequency factors are {} and {}; give two positive ones, the low one "
                      "below the high one",
                      scaling.low_frequency_factor, scaling.high_frequency_factor));
  require(scaling.original_positions > 0, name,
          fmt::format("the scaling has {} original positions; give at least 1", scaling.original_positions));
}

void require_rotary_operands(const GraphBuilder& builder, const std::string& name, Value qkv,
                             const RotaryOptions& options) {
  require_operand(builder, name, "queries, keys and values", qkv, {any, any}, builder.work_type());
  const std::vector<std::int64_t>& shape = builder.tensor(qkv).shape;
  require_rotary_heads(name, shape, options);
  require_rotary_angles(name, options);
  require(static_cast<bool>(options.query_gain) == static_cast<bool>(options.key_gain), name,
          "one of the gains of queries and keys is missing; give both or none");
  if (options.query_gain) {
    const std::int64_t width = shape[1] / (options.heads + 2 * options.key_heads);
    require_operand(builder, name, "gain of queries", options.query_gain, {width}, builder.work_type());
    require_operand(builder, name, "gain of keys", options.key_gain, {width}, builder.work_type());
    require(std::isfinite(options.epsilon) && options.epsilon > 0, name,
            fmt::format("the norms' epsilon is {}; give a positive number", options.epsilon));
  }
  if (options.begins) {
    require_operand(builder, name, "documents' beginnings", options.begins,
                    {shape[0] * builder.micro_batch().parts()}, DataType::i32);
  }
}

Attributes rotary_attributes(const GraphBuilder& builder, std::int64_t tokens, const RotaryOptions& options) {
  Attributes attributes{{"heads", options.heads},
                        {"key_heads", options.key_heads},
                        {"sequence", options.sequence},
                        {"theta", options.theta}};
  if (options.scaling) {
    attributes["factor"] = options.scaling->factor;
    attributes["low_frequency_factor"] = options.scaling->low_frequency_factor;
    attributes["high_frequency_factor"] = options.scaling->high_frequency_factor;
    attributes["original_positions"] = options.scaling->original_positions;
  }
  if (options.query_gain) attributes["epsilon"] = options.epsilon;
  if (options.begins) attributes.merge(token_slice(builder, tokens));
  return attributes;
}

struct Rotary {
  std::string name;
  Attributes attributes;
  Value qkv, query_gain, key_gain, rstd, begins;
  double turning = 0;  // flops of the angles and the turns
  double norming = 0;  // flops of the norms' forward
};

void rotary_plain_backward(GraphBuilder& b, const Rotary& op, Value dy) {
  Value dqkv = b.gradient_like(op.qkv);
  std::vector<Value> reads{dy};
  if (op.begins) reads.push_back(op.begins);
  b.op({op.name + ".backward",
        "rotary_backward",
        op.attributes,
        std::move(reads),
        {dqkv},
        in_place(b, dy, 0),
        {op.turning, 0}});
  b.add_gradient(op.qkv, dqkv, true);
}

void rotary_normed_backward(GraphBuilder& b, const Rotary& op, Value dy) {
  Value dqkv = b.gradient_like(op.qkv);
  std::vector<Value> reads{op.qkv, op.query_gain, op.key_gain, op.rstd, dy};
  if (op.begins) reads.push_back(op.begins);
  std::vector<Value> writes{dqkv};
  const bool with_gains = b.wants_gradient(op.query_gain) || b.wants_gradient(op.key_gain);
  if (with_gains) writes.insert(writes.end(), {b.gradient_like(op.query_gain), b.gradient_like(op.key_gain)});
  b.op({op.name + ".backward",
        "rotary_backward",
        op.attributes,
        std::move(reads),
        writes,
        in_place(b, dy, 4),
        {op.turning + (with_gains ? 2.25 : 1.75) * op.norming, 0}});
  if (b.wants_gradient(op.qkv)) b.add_gradient(op.qkv, dqkv, true);
  if (b.wants_gradient(op.query_gain)) b.add_gradient(op.query_gain, writes[1], true);
  if (b.wants_gradient(op.key_gain)) b.add_gradient(op.key_gain, writes[2], true);
}

}  // namespace

Value rotary(GraphBuilder& builder, std::string name, Value qkv, const RotaryOptions& options) {
  require_rotary_operands(builder, name, qkv, options);
  const std::vector<std::int64_t> shape = builder.tensor(qkv).shape;
  const std::int64_t turned_heads = options.heads + options.key_heads;
  const std::int64_t width = shape[1] / (turned_heads + options.key_heads);
  const bool normed = static_cast<bool>(options.query_gain);
  Value y = builder.activation(name, shape);
  std::vector<Value> reads{qkv}, writes{y};
  Value rstd;
  if (normed) {
    rstd = builder.activation(name + ".rstd", {shape[0], turned_heads}, builder.sum_type());
    reads.insert(reads.end(), {options.query_gain, options.key_gain});
    writes.push_back(rstd);
  }
  if (options.begins) reads.push_back(options.begins);

  constexpr double flops_of_angle = 40;
  const std::int64_t half = width / 2;
  const double turned = static_cast<double>(shape[0] * turned_heads * width);
  const double turning = 3 * turned + flops_of_angle * static_cast<double>(shape[0] * half);
  const Rotary op{builder.tensor(y).name,
                  rotary_attributes(builder, shape[0], options),
                  qkv,
                  options.query_gain,
                  options.key_gain,
                  rstd,
                  options.begins,
                  turning,
                  4 * turned};
  builder.op({name,
              "rotary",
              op.attributes,
              std::move(reads),
              std::move(writes),
              {},
              {turning + (normed ? op.norming : 0), 0}},
             [op](GraphBuilder& b, const std::vector<Value>& gradients) {
               op.rstd ? rotary_normed_backward(b, op, gradients[0])
                       : rotary_plain_backward(b, op, gradients[0]);
             });
  return y;
}

}  // namespace stowage::nn
