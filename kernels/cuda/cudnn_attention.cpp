#include "kernels/cuda/cudnn_attention.h"

#include <cudnn_frontend.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "kernels/cuda/attention_slices.h"
#include "kernels/cuda/scratch.h"
#include "src/device/cuda/lane_resources.h"
#include "stowage/error.h"

// The frontend finds cuDNN's functions in here.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace stowage::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorPointer = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr std::size_t oldest_version = 90000;

// Whether there is a cuDNN to use: the one that STOWAGE_CUDNN names (`off`: none), else the system's.
bool open_library() {
  const char* name = std::getenv("STOWAGE_CUDNN");
  if (name == nullptr || *name == '\0') name = "libcudnn.so.9";
  if (std::string_view(name) == "off") return false;
  fe::cudnn_dlhandle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (fe::cudnn_dlhandle == nullptr || dlsym(fe::cudnn_dlhandle, "cudnnGetVersion") == nullptr) return false;
  // The frontend opens a CUDA runtime too: let it be the one that is open already.
  setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", fmt::format("libcudart.so.{}", CUDART_VERSION / 1000).c_str(), 0);
  return fe::detail::get_backend_version() >= oldest_version;
}

bool library_is_usable() {
  static const bool usable = open_library();
  return usable;
}

enum Operand : std::int64_t { queries = 1, keys, values, out, statistics, dout, dqueries, dkeys, dvalues };

// A graph that cuDNN has taken, and where its operands are this time.
struct Compiled {
  fe::graph::Graph graph;
  AttentionSlice slice;
  std::int64_t workspace = 0;
  std::unordered_map<std::int64_t, void*> places;
};

// Null: refused.
using Answer = std::unique_ptr<Compiled>;

bool good(const fe::error_t& error) { return error.is_good(); }

// Builds what was described; false where cuDNN does not take it.
bool compile(Compiled& compiled, cudnnHandle_t handle) {
  fe::graph::Graph& graph = compiled.graph;
  return good(graph.validate()) && good(graph.build_operation_graph(handle)) &&
         good(graph.create_execution_plans({fe::HeurMode_t::A})) && good(graph.check_support(handle)) &&
         good(graph.build_plans(handle)) && good(graph.get_workspace_size(compiled.workspace));
}

// Heads of a [N, columns * width] tensor as [samples, heads, sequence, head width].
class Describer {
 public:
  Describer(const AttentionShape& shape, Compiled& compiled)
      : shape_(shape), slice_(compiled.slice), graph_(compiled.graph) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  TensorPointer heads(Operand id, std::int64_t columns) const {
    return graph_.tensor(
        fe::graph::Tensor_attributes().set_uid(id).set_dim(dimensions()).set_stride(strides(columns)));
  }
  TensorPointer rows(Operand id) const {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(id)
                             .set_dim(row_dimensions())
                             .set_stride(row_strides())
                             .set_data_type(fe::DataType_t::FLOAT));
  }
  void write_heads(const TensorPointer& tensor, Operand id, std::int64_t columns) const {
    tensor->set_output(true).set_uid(id).set_dim(dimensions()).set_stride(strides(columns));
  }
  void write_rows(const TensorPointer& tensor, Operand id) const {
    tensor->set_output(true)
        .set_uid(id)
        .set_dim(row_dimensions())
        .set_stride(row_strides())
        .set_data_type(fe::DataType_t::FLOAT);
  }
  float scale() const { return static_cast<float>(1 / std::sqrt(static_cast<double>(shape_.head_width()))); }

 private:
  using Sizes = std::vector<std::int64_t>;
  Sizes dimensions() const { return {slice_.samples, slice_.heads, shape_.sequence, shape_.head_width()}; }
  Sizes strides(std::int64_t columns) const {
    const std::int64_t row = columns * shape_.width;
    return {shape_.sequence * row, shape_.head_width(), row, 1};
  }
  Sizes row_dimensions() const { return {slice_.samples, slice_.heads, shape_.sequence, 1}; }
  // A slice has all heads or a single sample: its rows lie side by side.
  Sizes row_strides() const { return {slice_.heads * shape_.sequence, shape_.sequence, 1, 1}; }

  const AttentionShape& shape_;
  const AttentionSlice& slice_;
  fe::graph::Graph& graph_;
};

void describe_forward(const AttentionShape& shape, Compiled& compiled) {
  const Describer of(shape, compiled);
  auto attributes = fe::graph::SDPA_attributes();
  attributes.set_name("attention").set_generate_stats(true).set_attn_scale(of.scale());
  if (shape.causal) attributes.set_causal_mask(true);
  auto [y, log_sum_exp] =
      compiled.graph.sdpa(of.heads(queries, 3), of.heads(keys, 3), of.heads(values, 3), attributes);
  of.write_heads(y, out, 1);
  of.write_rows(log_sum_exp, statistics);
}

void describe_backward(const AttentionShape& shape, Compiled& compiled) {
  const Describer of(shape, compiled);
  auto attributes = fe::graph::SDPA_backward_attributes();
  attributes.set_name("attention_backward").set_attn_scale(of.scale()).set_deterministic_algorithm(true);
  if (shape.causal) attributes.set_causal_mask(true);
  auto [dq, dk, dv] =
      compiled.graph.sdpa_backward(of.heads(queries, 3), of.heads(keys, 3), of.heads(values, 3),
                                   of.heads(out, 1), of.heads(dout, 1), of.rows(statistics), attributes);
  of.write_heads(dq, dqueries, 3);
  of.write_heads(dk, dkeys, 3);
  of.write_heads(dv, dvalues, 3);
}

// What a lane keeps.
class LaneAttention {
 public:
  explicit LaneAttention(void* stream) {
    if (fe::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS) handle_ = nullptr;
    if (handle_ != nullptr) fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream));
  }
  LaneAttention(const LaneAttention&) = delete;
  LaneAttention& operator=(const LaneAttention&) = delete;
  ~LaneAttention() {
    graphs_.clear();
    if (handle_ != nullptr) fe::detail::destroy_handle(handle_);
  }

  // Null where cuDNN does not take the shape.
  Compiled* graph(const AttentionShape& shape, bool backward, std::size_t workspace) {
    const Key key{shape.samples, shape.heads, shape.sequence, shape.width, shape.causal, backward, workspace};
    const auto found = graphs_.find(key);
    if (found != graphs_.end()) return found->second.get();
    return (graphs_[key] = build(shape, backward, workspace)).get();
  }

  void run(Compiled& compiled, void* workspace, const char* name) const {
    fe::error_t error = compiled.graph.execute(handle_, compiled.places, workspace);
    if (error.is_good()) return;
    throw DeviceError(fmt::format("{}: cuDNN failed: {}; set STOWAGE_CUDNN=off to run without it", name,
                                  error.get_message()),
                      "launch", name);
  }

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool, bool, std::size_t>;

  // All at once where that fits; else in slices as large as do, judged by what all at once would take.
  Answer build(const AttentionShape& shape, bool backward, std::size_t workspace) const {
    const auto limit = static_cast<std::int64_t>(workspace);
    Answer all = build_slice(shape, {shape.samples, shape.heads}, backward);
    if (all == nullptr || all->workspace <= limit) return all;
    if (!backward) return nullptr;
    // Rows of statistics must start 16-byte aligned in every slice.
    if (shape.sequence % 4 != 0) return nullptr;
    const AttentionSlice slice = slice_that_fits(shape, all->workspace, limit);
    if (slice.heads == 0) return nullptr;
    Answer some = build_slice(shape, slice, backward);
    return some != nullptr && some->workspace <= limit ? std::move(some) : nullptr;
  }

  Answer build_slice(const AttentionShape& shape, const AttentionSlice& slice, bool backward) const {
    if (handle_ == nullptr) return nullptr;
    try {
      auto compiled = std::make_unique<Compiled>();
      compiled->slice = slice;
      backward ? describe_backward(shape, *compiled) : describe_forward(shape, *compiled);
      return compile(*compiled, handle_) ? std::move(compiled) : nullptr;
    } catch (const std::exception&) {
      return nullptr;  // the frontend throws where this cuDNN lacks a function that it wants
    }
  }

  cudnnHandle_t handle_ = nullptr;
  std::map<Key, Answer> graphs_;
};

LaneAttention& attention_of(LaneResources& lane) {
  if (!lane.attention) {
    lane.attention = {new LaneAttention(lane.stream), [](void* state) {
                        const std::unique_ptr<LaneAttention> owned(static_cast<LaneAttention*>(state));
                      }};
  }
  return *static_cast<LaneAttention*>(lane.attention.get());
}

// Tensors of fewer than 64 bytes may lie anywhere.
bool may_take(const AttentionShape& shape) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(Bfloat16));
  constexpr auto statistic = static_cast<std::int64_t>(sizeof(float));
  const bool aligned = shape.head_width() * size % 16 == 0 &&
                       shape.samples * shape.sequence * shape.width * size >= 64 &&
                       shape.samples * shape.heads * shape.sequence * statistic >= 64;
  return shape.dropout == 0 && aligned && library_is_usable();
}

void* part(const Bfloat16* qkv, const AttentionShape& shape, std::int64_t index) {
  return const_cast<Bfloat16*>(qkv) + index * shape.width;
}

void place(Compiled& compiled, const AttentionShape& shape, const AttentionGradient<Bfloat16>& of,
           std::int64_t sample, std::int64_t head) {
  const std::int64_t at = sample * shape.sequence * shape.width + head * shape.head_width();
  const std::int64_t packed_at = 3 * sample * shape.sequence * shape.width + head * shape.head_width();
  for (std::int64_t i = 0; i < 3; ++i) {
    compiled.places[queries + i] = part(of.qkv + packed_at, shape, i);
    compiled.places[dqueries + i] = part(of.dqkv + packed_at, shape, i);
  }
  compiled.places[out] = const_cast<Bfloat16*>(of.out + at);
  compiled.places[dout] = const_cast<Bfloat16*>(of.dout + at);
  compiled.places[statistics] =
      const_cast<float*>(of.log_sum_exp + (sample * shape.heads + head) * shape.sequence);
}

}  // namespace

bool cudnn_attention(const AttentionShape& shape, const Bfloat16* qkv, Bfloat16* y, float* log_sum_exp,
                     void* stream) {
  if (!may_take(shape)) return false;
  LaneResources& lane = lane_resources(stream);
  LaneAttention& attention = attention_of(lane);
  Compiled* compiled = attention.graph(shape, false, usable_scratch(lane));
  if (compiled == nullptr) return false;
  compiled->places[queries] = part(qkv, shape, 0);
  compiled->places[keys] = part(qkv, shape, 1);
  compiled->places[values] = part(qkv, shape, 2);
  compiled->places[out] = y;
  compiled->places[statistics] = log_sum_exp;
  attention.run(*compiled, lane.scratch, "attention");
  return true;
}

bool cudnn_attention_backward(const AttentionShape& shape, const AttentionGradient<Bfloat16>& of,
                              void* stream) {
  if (!may_take(shape) || of.workspace == nullptr) return false;
  LaneAttention& attention = attention_of(lane_resources(stream));
  Compiled* compiled = attention.graph(shape, true, of.workspace_bytes);
  if (compiled == nullptr) return false;
  const SliceStarts samples(shape.samples, compiled->slice.samples);
  const SliceStarts heads(shape.heads, compiled->slice.heads);
  for (std::int64_t i = 0; i < samples.count(); ++i) {
    for (std::int64_t k = 0; k < heads.count(); ++k) {
      place(*compiled, shape, of, samples[i], heads[k]);
      attention.run(*compiled, of.workspace, "attention_backward");
    }
  }
  return true;
}

}  // namespace stowage::cuda
