#include "kernels/cuda/cudnn_attention.h"

#include <array>
#include <map>
#include <memory>
#include <tuple>

#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"
#include "src/device/cuda/lane_resources.h"

namespace stowage::cuda {
namespace {

// A lane's state of attention: cuDNN's answers, by shape.
class LaneAttention {
 public:
  explicit LaneAttention(void* stream) : device_(stream) {}

  const CudnnAnswer& ask(const AttentionShape& shape, DataType type, bool backward, std::size_t workspace) {
    const Key key{{shape.samples, shape.heads, shape.group(), shape.sequence, shape.width, shape.window},
                  {shape.causal, shape.padded_at_end, backward},
                  type,
                  workspace};
    const auto found = answers_.find(key);
    if (found != answers_.end()) return found->second;
    return answers_[key] = ask_cudnn(shape, type, backward, workspace, device_);
  }

 private:
  using Key = std::tuple<std::array<std::int64_t, 6>, std::array<bool, 3>, DataType, std::size_t>;

  CudnnDevice device_;
  std::map<Key, CudnnAnswer> answers_;
};

LaneAttention& attention_of(LaneResources& lane) {
  if (!lane.attention) {
    lane.attention = {new LaneAttention(lane.stream), [](void* state) {
                        const std::unique_ptr<LaneAttention> owned(static_cast<LaneAttention*>(state));
                      }};
  }
  return *static_cast<LaneAttention*>(lane.attention.get());
}

// Returns why cuDNN is not even asked; empty if it is. Tensors of fewer than 16 bytes are not aligned to 16.
std::string_view not_asked(const AttentionShape& shape) {
  constexpr std::int64_t size = 2;  // bytes of an element
  constexpr auto statistic = static_cast<std::int64_t>(sizeof(float));
  if (shape.dropout != 0) return "dropout on the probabilities is drawn by our own kernels alone";
  if (shape.begins != nullptr) return "documents are told apart by our own kernels alone";
  if (shape.seen != nullptr && !shape.padded_at_end)
    return "padding may stand anywhere; cuDNN takes padding at the end (AttentionOptions::padding_at_end)";
  if (shape.head_width() * size % 16 != 0) return "rows of heads are not aligned to 16 bytes";
  if (shape.samples * shape.sequence * shape.key_width() * size < 16 ||
      shape.samples * shape.heads * shape.sequence * statistic < 16)
    return "a tensor has fewer than 16 bytes";
  return {};
}

// Places of the queries, keys and values of a slice that starts at this sample and query head.
template <class T>
std::array<void*, 3> parts(const T* qkv, const AttentionShape& shape, std::int64_t sample,
                           std::int64_t head) {
  T* const row = const_cast<T*>(qkv) + sample * shape.sequence * shape.packed_width();
  T* const keys = row + shape.width + head / shape.group() * shape.head_width();
  return {row + head * shape.head_width(), keys, keys + shape.key_width()};
}

// Counts the keys of the slice that starts at `sample`, in `lengths`, and names them as operands.
void place_lengths(CudnnGraph& graph, const AttentionShape& shape, std::int64_t sample, void* lengths,
                   void* stream) {
  if (!shape.padded_at_end) return;
  const std::int64_t samples = graph.slice().samples;
  auto* counts = static_cast<std::int32_t*>(lengths);
  // Both arrays start aligned to 16 bytes.
  std::int32_t* const of_keys = counts + (samples + 3) / 4 * 4;
  count_lengths({samples, shape.sequence}, shape.seen + sample * shape.sequence, counts, of_keys, stream);
  graph.places()[query_lengths] = counts;
  graph.places()[key_lengths] = of_keys;
}

template <class T>
void place(CudnnGraph& graph, const AttentionShape& shape, const AttentionGradient<T>& of,
           std::int64_t sample, std::int64_t head) {
  const std::int64_t at = sample * shape.sequence * shape.width + head * shape.head_width();
  auto& places = graph.places();
  const auto from = parts(of.qkv, shape, sample, head), to = parts(of.dqkv, shape, sample, head);
  for (std::size_t i = 0; i < 3; ++i) {
    places[queries + static_cast<std::int64_t>(i)] = from[i];
    places[dqueries + static_cast<std::int64_t>(i)] = to[i];
  }
  places[out] = const_cast<T*>(of.out + at);
  places[dout] = const_cast<T*>(of.dout + at);
  places[statistics] = const_cast<float*>(of.log_sum_exp + (sample * shape.heads + head) * shape.sequence);
}

void* behind(void* workspace, std::size_t bytes) { return static_cast<std::byte*>(workspace) + bytes; }

}  // namespace

template <class T>
std::string_view cudnn_attention(const AttentionShape& shape, const T* qkv, T* y, float* log_sum_exp,
                                 void* stream) {
  if (const std::string_view reason = not_asked(shape); !reason.empty()) return reason;
  LaneResources& lane = lane_resources(stream);
  LaneAttention& attention = attention_of(lane);
  const CudnnAnswer& answer = attention.ask(shape, data_type<T>, false, usable_scratch(lane));
  if (answer.graph == nullptr) return answer.refusal;
  CudnnGraph& graph = *answer.graph;
  place_lengths(graph, shape, 0, lane.scratch, stream);
  auto& places = graph.places();
  const auto from = parts(qkv, shape, 0, 0);
  for (std::size_t i = 0; i < 3; ++i) places[queries + static_cast<std::int64_t>(i)] = from[i];
  places[out] = y;
  places[statistics] = log_sum_exp;
  graph.execute(behind(lane.scratch, lengths_bytes(shape)), "attention");
  return {};
}

template <class T>
std::string_view cudnn_attention_backward(const AttentionShape& shape, const AttentionGradient<T>& of,
                                          void* stream) {
  if (const std::string_view reason = not_asked(shape); !reason.empty()) return reason;
  if (of.workspace == nullptr) return "the op has no workspace";
  LaneAttention& attention = attention_of(lane_resources(stream));
  const CudnnAnswer& answer = attention.ask(shape, data_type<T>, true, of.workspace_bytes);
  if (answer.graph == nullptr) return answer.refusal;
  CudnnGraph& graph = *answer.graph;
  const SliceStarts samples(shape.samples, graph.slice().samples);
  const SliceStarts groups(shape.heads / shape.group(), graph.slice().heads / shape.group());
  for (std::int64_t i = 0; i < samples.count(); ++i) {
    place_lengths(graph, shape, samples[i], of.workspace, stream);
    for (std::int64_t k = 0; k < groups.count(); ++k) {
      place(graph, shape, of, samples[i], groups[k] * shape.group());
      graph.execute(behind(of.workspace, lengths_bytes(shape)), "attention_backward");
    }
  }
  if (shape.padded_at_end) clear_padding(shape, of.dqkv, stream);
  return {};
}

template std::string_view cudnn_attention(const AttentionShape&, const Bfloat16*, Bfloat16*, float*, void*);
template std::string_view cudnn_attention_backward(const AttentionShape&, const AttentionGradient<Bfloat16>&,
                                                   void*);
template std::string_view cudnn_attention(const AttentionShape&, const Float16*, Float16*, float*, void*);
template std::string_view cudnn_attention_backward(const AttentionShape&, const AttentionGradient<Float16>&,
                                                   void*);

}  // namespace stowage::cuda
