// How far gradients of a GPT are from exact ones if backward of its attention gets coded values, in four
// ways:
//   anew        queries, keys and values are coded; attention runs again on them (with_coded_activations)
//   sums anew   they and the result are coded; the log-sum-exp is that of decoded queries and keys
//   values      values and the result are coded; queries, keys and the log-sum-exp are exact
//   stale sums  queries, keys, values and the result are coded; the log-sum-exp is exact
// The MLPs' values are exact in all of them. Prints the relative error of the gradient of all weights, and
// the largest sum of a row of probabilities, for weights of queries and keys that are so many times as large.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/cpu/codec.h"
#include "stowage/evaluate.h"
#include "stowage/models.h"

namespace stowage {
namespace {

constexpr ModelConfig sizes{
    .layers = 4, .width = 128, .heads = 4, .vocabulary = 256, .sequence = 128, .batch = 8};
constexpr std::int64_t width = 128;

enum class Way : std::uint8_t { exact, anew, sums_anew, values, stale_sums };
constexpr std::pair<Way, std::string_view> ways[] = {{Way::anew, "anew"},
                                                     {Way::sums_anew, "sums anew"},
                                                     {Way::values, "values"},
                                                     {Way::stale_sums, "stale sums"}};

Graph graph_of_gpt() {
  GraphBuilder builder;
  return builder.finish_without_update(gpt(builder, sizes).loss);
}

std::span<float> floats(std::vector<std::byte>& value) {
  return {reinterpret_cast<float*>(value.data()), value.size() / sizeof(float)};
}

void round(std::span<float> values, CodeBits bits) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> codes(coded_bytes(count, bits));
  cpu::encode(bits, count, values.data(), codes.data());
  cpu::decode(bits, count, codes.data(), values.data());
}

// Rounds the last third of each row.
void round_values(std::span<float> qkv, CodeBits bits) {
  std::vector<float> values;
  for (std::size_t row = 0; row < qkv.size(); row += 3 * width)
    values.insert(values.end(), qkv.begin() + static_cast<std::ptrdiff_t>(row + 2 * width),
                  qkv.begin() + static_cast<std::ptrdiff_t>(row + 3 * width));
  round(values, bits);
  for (std::size_t i = 0; i < values.size(); ++i)
    qkv[i / width * 3 * width + 2 * width + i % width] = values[i];
}

class Step {
 public:
  explicit Step(float scale) : evaluator_(graph_, table_, 3) {
    std::mt19937 random(7);
    std::uniform_int_distribution<std::int32_t> token(0, 255);
    for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.kind == TensorKind::input)
        for (float& place : floats(evaluator_.value(id))) place = std::bit_cast<float>(token(random));
      if (!tensor.name.ends_with("c_attn.weight")) continue;
      const std::span<float> weights = floats(evaluator_.value(id));
      for (std::size_t i = 0; i < weights.size(); ++i)
        if (i % (3 * width) < 2 * width) weights[i] *= scale;
    }
  }

  // Returns the gradients of all weights.
  std::vector<float> gradients(Way way, CodeBits bits) {
    for (const Op& op : graph_.ops) {
      if (op.phase == Phase::forward) run(op);
    }
    for (const Op& op : graph_.ops)
      if (op.kernel == "attention") change(op, way, bits);
    std::vector<float> all;
    for (const Op& op : graph_.ops)
      if (op.phase == Phase::backward) run(op);
    for (TensorId id = 0; id < graph_.tensors.size(); ++id)
      if (graph_.tensor(id).kind == TensorKind::gradient) {
        const std::span<float> some = floats(evaluator_.value(id));
        all.insert(all.end(), some.begin(), some.end());
      }
    return all;
  }
  double largest_row() const { return largest_row_; }

 private:
  Graph graph_ = graph_of_gpt();
  LaunchTable table_ = cpu_launch_table();
  Evaluator evaluator_;
  double largest_row_ = 0;

  void run(const Op& op) {
    std::vector<Operand> reads, writes;
    for (const TensorId id : op.reads) reads.push_back({evaluator_.value(id).data(), &graph_.tensor(id)});
    for (const TensorId id : op.writes) writes.push_back({evaluator_.value(id).data(), &graph_.tensor(id)});
    table_.find(op)({&op, reads, writes, {}, nullptr});
  }

  void change(const Op& op, Way way, CodeBits bits) {
    std::vector<std::byte>&qkv = evaluator_.value(op.reads[0]), &result = evaluator_.value(op.writes[0]);
    if (way == Way::values) round_values(floats(qkv), bits);
    if (way == Way::anew || way == Way::sums_anew || way == Way::stale_sums) round(floats(qkv), bits);
    std::vector<std::byte> exact = result;
    if (way == Way::anew || way == Way::sums_anew) run(op);
    if (way == Way::sums_anew) result = exact;
    if (way == Way::sums_anew || way == Way::values || way == Way::stale_sums) round(floats(result), bits);
    measure_rows(floats(qkv), floats(evaluator_.value(op.writes[1])));
  }

  // Of the first head of each sample.
  void measure_rows(std::span<const float> qkv, std::span<const float> sums) {
    constexpr std::size_t length = sizes.sequence, head = width / sizes.heads, row = 3 * width;
    for (std::size_t sample = 0; sample < static_cast<std::size_t>(sizes.batch); ++sample) {
      const std::span<const float> own = qkv.subspan(sample * length * row, length * row);
      for (std::size_t query = 0; query < length; ++query) {
        double sum = 0;
        for (std::size_t key = 0; key <= query; ++key) {
          double score = 0;
          for (std::size_t i = 0; i < head; ++i)
            score +=
                static_cast<double>(own[query * row + i]) * static_cast<double>(own[key * row + width + i]);
          const double log_sum = static_cast<double>(sums[sample * sizes.heads * length + query]);
          sum += std::exp(score / std::sqrt(static_cast<double>(head)) - log_sum);
        }
        largest_row_ = std::max(largest_row_, sum);
      }
    }
  }
};

double relative_error(const std::vector<float>& found, const std::vector<float>& exact) {
  double error = 0, sum = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double difference = static_cast<double>(found[i]) - static_cast<double>(exact[i]);
    error += difference * difference;
    sum += static_cast<double>(exact[i]) * static_cast<double>(exact[i]);
  }
  return std::sqrt(error / sum);
}

void compare() {
  fmt::print("{:>8} {:>5} {:<11} {:>10} {:>12}\n", "weights", "bits", "way", "error", "largest row");
  for (const float scale : {1.0F, 8.0F, 64.0F})
    for (const CodeBits bits : {CodeBits::eight, CodeBits::four})
      for (const auto& [way, name] : ways) {
        Step exact(scale), coded(scale);
        const double error = relative_error(coded.gradients(way, bits), exact.gradients(Way::exact, bits));
        fmt::print("{:>8} {:>5} {:<11} {:>10.5f} {:>12.4f}\n", scale, static_cast<int>(bits), name, error,
                   coded.largest_row());
      }
}

}  // namespace
}  // namespace stowage

int main() { stowage::compare(); }
