#include "kernels/cuda/cudnn_graph.h"

#include <cudnn_frontend.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "stowage/bytes.h"
#include "stowage/error.h"

// The library in which the frontend finds cuDNN's functions.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace stowage::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorPointer = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr std::size_t oldest_version = 90000;

std::string loader_error() {
  const char* const error = dlerror();
  return error == nullptr ? "the loader gives no reason" : error;
}

// Returns why cuDNN cannot be used; empty if it is open and new enough.
std::string open_library() {
  const char* name = std::getenv("STOWAGE_CUDNN");
  if (name == nullptr || *name == '\0') name = "libcudnn.so.9";
  // NOLINTNEXTLINE(clang-analyzer-optin.taint.GenericTaint): to name a file is what the variable is for
  fe::cudnn_dlhandle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (fe::cudnn_dlhandle == nullptr || dlsym(fe::cudnn_dlhandle, "cudnnGetVersion") == nullptr)
    return fmt::format(
        "{} does not open as cuDNN ({}): install cuDNN 9, name its folder in LD_LIBRARY_PATH or its file in "
        "STOWAGE_CUDNN",
        name, loader_error());
  // The frontend opens a CUDA runtime too: make it the one that is open already.
  setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", fmt::format("libcudart.so.{}", CUDART_VERSION / 1000).c_str(), 0);
  const std::size_t version = fe::detail::get_backend_version();
  if (version >= oldest_version) return {};
  return fmt::format("{} is cuDNN of version {}: install version {} or later", name, version, oldest_version);
}

const std::string& library_missing() {
  static const std::string missing = open_library();
  return missing;
}

// Returns "build_operation_graph: code 10: …" (cudnn_frontend::error_code_t), in one line; empty for no
// error. Throws DeviceError if the card failed, not the graph: that says nothing about the shapes that
// cuDNN computes.
std::string refusal_text(const char* step, fe::error_t error) {
  if (error.is_good()) return {};
  std::string text =
      fmt::format("{}: code {}: {}", step, static_cast<int>(error.get_code()), error.get_message());
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (error.get_code() == fe::error_code_t::CUDA_API_FAILED)
    throw DeviceError(fmt::format("cuDNN could not be asked: {}", text), step);
  return text;
}

// Returns the refusal of the first of `steps` that refuses; a step is a name and a function. The frontend
// throws if this cuDNN, or the CUDA runtime, lacks a function that it needs.
template <class... Steps>
std::string first_refusal(const Steps&... steps) {
  std::string refusal;
  try {
    static_cast<void>(((refusal = refusal_text(steps.first, steps.second()), refusal.empty()) && ...));
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
  return refusal;
}

// Converts a status to the error of a graph's step. Throws DeviceError if memory was short: the method for a
// shape must not depend on that.
fe::error_t checked(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    throw DeviceError(
        fmt::format("cuDNN has no memory for its handle ({}): plan for a smaller budget, or set "
                    "STOWAGE_ATTENTION=own",
                    fe::detail::get_error_string(status)),
        "cudnnCreate");
  return {fe::error_code_t::HANDLE_ERROR,
          fmt::format("{}: {}", fe::detail::get_error_string(status), fe::detail::get_last_error_string_())};
}

// Queries, keys and values in rows of qkv, and rows of out, as [samples, heads, sequence, head width].
class Describer {
 public:
  Describer(const AttentionShape& shape, const AttentionSlice& slice, DataType type, fe::graph::Graph& graph)
      : shape_(shape), slice_(slice), graph_(graph) {
    graph_.set_io_data_type(type == DataType::f16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  void forward() const {
    auto attributes = fe::graph::SDPA_attributes();
    attributes.set_name("attention").set_generate_stats(true);
    add_options(attributes);
    auto [y, log_sum_exp] = graph_.sdpa(heads(queries, of_queries()), heads(keys, of_keys()),
                                        heads(values, of_keys()), attributes);
    write_heads(y, out, of_out());
    write_rows(log_sum_exp, statistics);
  }

  void backward() const {
    auto attributes = fe::graph::SDPA_backward_attributes();
    attributes.set_name("attention_backward").set_deterministic_algorithm(true);
    add_options(attributes);
    auto [dq, dk, dv] =
        graph_.sdpa_backward(heads(queries, of_queries()), heads(keys, of_keys()), heads(values, of_keys()),
                             heads(out, of_out()), heads(dout, of_out()), rows(statistics), attributes);
    write_heads(dq, dqueries, of_queries());
    write_heads(dk, dkeys, of_keys());
    write_heads(dv, dvalues, of_keys());
  }

 private:
  using Sizes = std::vector<std::int64_t>;

  // A slice's heads in a tensor, and the elements from one of the tensor's rows to the next.
  struct Layout {
    std::int64_t heads, row;
  };
  Layout of_queries() const { return {slice_.heads, shape_.packed_width()}; }
  Layout of_keys() const { return {slice_.heads / shape_.group(), shape_.packed_width()}; }
  Layout of_out() const { return {slice_.heads, shape_.width}; }

  template <class Attributes>
  void add_options(Attributes& attributes) const {
    attributes.set_attn_scale(static_cast<float>(1 / std::sqrt(static_cast<double>(shape_.head_width()))));
    if (shape_.causal) attributes.set_causal_mask(true);
    // cuDNN's band is our window: key j counts for query i where j + bound > i.
    if (shape_.window > 0 && shape_.window < shape_.sequence)
      attributes.set_diagonal_band_left_bound(static_cast<int>(shape_.window));
    if (!shape_.padded_at_end) return;
    attributes.set_padding_mask(true)
        .set_seq_len_q(lengths(query_lengths))
        .set_seq_len_kv(lengths(key_lengths));
  }

  TensorPointer heads(AttentionOperand id, const Layout& layout) const {
    return graph_.tensor(
        fe::graph::Tensor_attributes().set_uid(id).set_dim(dimensions(layout)).set_stride(strides(layout)));
  }
  TensorPointer rows(AttentionOperand id) const {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(id)
                             .set_dim(row_dimensions())
                             .set_stride(row_strides())
                             .set_data_type(fe::DataType_t::FLOAT));
  }
  TensorPointer lengths(AttentionOperand id) const {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(id)
                             .set_dim({slice_.samples, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(fe::DataType_t::INT32));
  }
  void write_heads(const TensorPointer& tensor, AttentionOperand id, const Layout& layout) const {
    tensor->set_output(true).set_uid(id).set_dim(dimensions(layout)).set_stride(strides(layout));
  }
  void write_rows(const TensorPointer& tensor, AttentionOperand id) const {
    tensor->set_output(true)
        .set_uid(id)
        .set_dim(row_dimensions())
        .set_stride(row_strides())
        .set_data_type(fe::DataType_t::FLOAT);
  }

  Sizes dimensions(const Layout& layout) const {
    return {slice_.samples, layout.heads, shape_.sequence, shape_.head_width()};
  }
  Sizes strides(const Layout& layout) const {
    return {shape_.sequence * layout.row, shape_.head_width(), layout.row, 1};
  }
  Sizes row_dimensions() const { return {slice_.samples, slice_.heads, shape_.sequence, 1}; }
  // A slice has all heads or a single sample: its rows lie side by side.
  Sizes row_strides() const { return {slice_.heads * shape_.sequence, shape_.sequence, 1, 1}; }

  const AttentionShape& shape_;
  const AttentionSlice& slice_;
  fe::graph::Graph& graph_;
};

CudnnAnswer ask_for_slice(const AttentionShape& shape, const AttentionSlice& slice, DataType type,
                          bool backward, const CudnnDevice& device) {
  CudnnAnswer answer{std::make_unique<CudnnGraph>(slice, device), {}};
  answer.refusal = answer.graph->compile(shape, type, backward);
  if (!answer.refusal.empty()) answer.graph.reset();
  return answer;
}

CudnnAnswer too_large(std::int64_t wanted, std::int64_t limit, const char* what) {
  return {nullptr,
          fmt::format("its kernel wants {} bytes of workspace for {}, there are {}", wanted, what, limit)};
}

}  // namespace

struct CudnnDevice::Target {
  cudnnHandle_t handle = nullptr;  // handle of the card at hand; null: the card is only described
  std::shared_ptr<const fe::DeviceProperties> described;  // set if the card is only described
  int compute_capability = 0;

  Target() = default;
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target() {
    if (handle != nullptr) fe::detail::destroy_handle(handle);
  }
};

struct CudnnGraph::Graph {
  fe::graph::Graph graph;
};

CudnnDevice::CudnnDevice(void* stream) : target_(std::make_unique<Target>()), missing_(library_missing()) {
  if (!missing_.empty()) return;
  missing_ = first_refusal(
      std::pair{"cudnnCreate", [&] { return checked(fe::detail::create_handle(&target_->handle)); }},
      std::pair{"cudnnSetStream", [&] {
                  return checked(fe::detail::set_stream(target_->handle, static_cast<cudaStream_t>(stream)));
                }});
}

CudnnDevice::CudnnDevice(const std::string& description, int compute_capability)
    : target_(std::make_unique<Target>()), missing_(library_missing()) {
  if (!missing_.empty()) return;
  auto properties = std::make_shared<fe::DeviceProperties>();
  missing_ =
      first_refusal(std::pair{"device properties", [&] {
                                return properties->deserialize({description.begin(), description.end()});
                              }});
  target_->described = std::move(properties);
  target_->compute_capability = compute_capability;
}

CudnnDevice::~CudnnDevice() = default;

CudnnGraph::CudnnGraph(const AttentionSlice& slice, const CudnnDevice& device)
    : graph_(std::make_unique<Graph>()), device_(device), slice_(slice) {}

CudnnGraph::~CudnnGraph() = default;

std::string CudnnGraph::compile(const AttentionShape& shape, DataType type, bool backward) {
  if (!device_.missing().empty()) return device_.missing();
  fe::graph::Graph& graph = graph_->graph;
  const CudnnDevice::Target& target = *device_.target_;
  const auto describe = [&] {
    // The device comes first: each node copies the graph's properties of the device when it is added.
    if (target.described)
      graph.set_sm_version(target.compute_capability).set_device_properties(target.described);
    const Describer describer(shape, slice_, type, graph);
    backward ? describer.backward() : describer.forward();
    return fe::error_t();
  };
  const auto build = [&] {
    return target.described ? graph.build_operation_graph() : graph.build_operation_graph(target.handle);
  };
  return first_refusal(
      std::pair{"describe", describe}, std::pair{"validate", [&] { return graph.validate(); }},
      std::pair{"build_operation_graph", build},
      std::pair{"create_execution_plans", [&] { return graph.create_execution_plans({fe::HeurMode_t::A}); }},
      std::pair{"check_support", [&] { return graph.check_support(); }},
      std::pair{"build_plans", [&] { return graph.build_plans(); }},
      std::pair{"get_workspace_size", [&] { return graph.get_workspace_size(workspace_); }});
}

void CudnnGraph::execute(void* workspace, const char* name) {
  const std::string failure = first_refusal(std::pair{
      "execute", [&] { return graph_->graph.execute(device_.target_->handle, places_, workspace); }});
  if (failure.empty()) return;
  throw DeviceError(
      fmt::format("{}: cuDNN failed: {}; set STOWAGE_ATTENTION=own to run without it", name, failure),
      "launch", name);
}

std::size_t lengths_bytes(const AttentionShape& shape) {
  if (!shape.padded_at_end) return 0;
  const auto samples = static_cast<std::size_t>(shape.samples);
  return align_up(2 * align_up(samples * sizeof(std::int32_t), 16), 256);
}

CudnnAnswer ask_cudnn(const AttentionShape& shape, DataType type, bool backward, std::size_t workspace,
                      const CudnnDevice& device) {
  const std::size_t lengths = lengths_bytes(shape);
  const auto limit = static_cast<std::int64_t>(workspace > lengths ? workspace - lengths : 0);
  CudnnAnswer all = ask_for_slice(shape, {shape.samples, shape.heads}, type, backward, device);
  if (all.graph == nullptr || all.graph->workspace_bytes() <= limit) return all;
  const std::int64_t wanted = all.graph->workspace_bytes();
  if (!backward) return too_large(wanted, limit, "all heads");
  if (shape.sequence % 4 != 0)
    return too_large(wanted, limit, "all heads, and rows of statistics in a slice are not 16-byte aligned");
  const AttentionSlice slice = slice_that_fits(shape, wanted, limit);
  if (slice.heads == 0)
    return too_large(wanted / (shape.samples * shape.heads) * shape.group(), limit,
                     shape.group() > 1 ? "one group of heads" : "one head");
  CudnnAnswer some = ask_for_slice(shape, slice, type, backward, device);
  if (some.graph == nullptr || some.graph->workspace_bytes() <= limit) return some;
  return too_large(some.graph->workspace_bytes(), limit, "a slice");
}

}  // namespace stowage::cuda
