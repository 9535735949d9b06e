#include "kernels/cuda/gemm.h"

#include <cublasLt.h>
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "kernels/cuda/scratch.h"
#include "src/base/mutex.h"
#include "src/device/cuda/check.h"
#include "src/device/cuda/lane_resources.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

cudaDataType_t library_type(DataType type) { return type == DataType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

// What tensors of `bytes` are sure to be aligned to (an arena aligns from 64 bytes on), if all of `most`.
std::uint32_t sure_alignment(std::int64_t elements, DataType type, std::int64_t most) {
  const auto size = static_cast<std::int64_t>(size_of(type));
  return static_cast<std::uint32_t>(elements * size < 64 ? size : std::min<std::int64_t>(most, 64));
}

struct Alignments {
  std::uint32_t a, b, c, bias, pre;
  auto operator<=>(const Alignments&) const = default;
};

Alignments alignments(const Product& of) {
  return {sure_alignment(of.m * of.k, of.a.type, of.a.alignment),
          sure_alignment(of.k * of.n, of.b.type, of.b.alignment),
          sure_alignment(of.m * of.n, of.c.type, of.c.alignment), sure_alignment(of.n, of.c.type, 64),
          sure_alignment(of.m * of.n, of.c.type, of.c.alignment)};
}

// The problem in the library's words, on the stack: column-major, so that A and B change places.
class Call {
 public:
  explicit Call(const Product& of) : of_(of) {
    ask(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, of.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, of.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue());
    if (of.epilogue == Epilogue::bias_gelu_tanh) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, of.n);
    layout(left, of.b, of.k, of.n);
    layout(right, of.a, of.m, of.k);
    layout(result, of.c, of.m, of.n);
  }

  void set_addresses(const void* bias, const void* pre) {
    if (of_.epilogue == Epilogue::none) return;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (of_.epilogue == Epilogue::bias_gelu_tanh) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pre);
  }

  void ask(cublasStatus_t status, const char* call) const { check(status, call, of_.name); }

  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t left, right, result;

 private:
  cublasLtEpilogue_t epilogue() const {
    if (of_.epilogue == Epilogue::none) return CUBLASLT_EPILOGUE_DEFAULT;
    return of_.epilogue == Epilogue::bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    ask(cublasLtMatmulDescSetAttribute(&operation, attribute, static_cast<const void*>(&value),
                                       sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
  }

  void layout(cublasLtMatrixLayoutOpaque_t& to, const Matrix& matrix, std::int64_t rows,
              std::int64_t columns) const {
    if (matrix.transposed) std::swap(rows, columns);
    ask(cublasLtMatrixLayoutInit(&to, library_type(matrix.type), static_cast<std::uint64_t>(columns),
                                 static_cast<std::uint64_t>(rows), columns),
        "cublasLtMatrixLayoutInit");
  }

  const Product& of_;
};

class Preference {
 public:
  Preference(const Alignments& sure, std::size_t workspace, const char* name) : name_(name) {
    check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit", name);
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, sure.b);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, sure.a);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, sure.c);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, sure.c);
    // Parts of a sum are added in f32; in the output's type they would be rounded to bf16 first.
    const auto in_workspace = static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, in_workspace);
  }

  cublasLtMatmulPreferenceOpaque_t preference;

 private:
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute", name_);
  }

  const char* name_;
};

using Algorithm = std::optional<cublasLtMatmulAlgo_t>;

Algorithm ask_heuristic(const Product& of, const LaneResources& lane, std::size_t workspace) {
  const Alignments sure = alignments(of);
  Call call(of);
  // These stand for their alignment, and are never followed.
  const auto aligned = [](std::uintptr_t to) {
    return reinterpret_cast<const std::byte*>(to);  // NOLINT(performance-no-int-to-ptr)
  };
  call.set_addresses(aligned(sure.bias), aligned(sure.pre));
  Preference wanted(sure, workspace, of.name);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      static_cast<cublasLtHandle_t>(lane.cublas_lt), &call.operation, &call.left, &call.right, &call.result,
      &call.result, &wanted.preference, 1, &found, &count);
  // An epilogue's operands may be too little aligned for it.
  const bool refused = status == CUBLAS_STATUS_INVALID_VALUE && of.epilogue == Epilogue::bias_gelu_tanh;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || refused) return {};
  call.ask(status, "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS) return {};
  return found.algo;
}

// Process-wide: an algorithm is plain data that any lane of the device may use.
class Algorithms {
 public:
  Algorithm of(const Product& product, const LaneResources& lane, std::size_t workspace)
      STOWAGE_EXCLUDES(mutex_) {
    const Key key{lane.ordinal,
                  workspace,
                  {product.m, product.n, product.k},
                  {product.a.type, product.b.type, product.c.type},
                  {product.a.transposed, product.b.transposed, product.add},
                  product.epilogue,
                  alignments(product)};
    const MutexLock lock(mutex_);
    const auto found = chosen_.find(key);
    if (found != chosen_.end()) return found->second;
    return chosen_[key] = ask_heuristic(product, lane, workspace);
  }

 private:
  using Key = std::tuple<int, std::size_t, std::tuple<std::int64_t, std::int64_t, std::int64_t>,
                         std::tuple<DataType, DataType, DataType>, std::tuple<bool, bool, bool>, Epilogue,
                         Alignments>;

  Mutex mutex_;
  std::map<Key, Algorithm> chosen_ STOWAGE_GUARDED_BY(mutex_);
};

Algorithms& algorithms() {
  static auto& all = *new Algorithms;  // used until the process has ended
  return all;
}

}  // namespace

bool can_multiply(const Product& product, void* stream) {
  const LaneResources& lane = lane_resources(stream);
  return algorithms().of(product, lane, usable_scratch(lane)).has_value();
}

void multiply(const Product& product, void* stream) {
  const LaneResources& lane = lane_resources(stream);
  const std::size_t workspace = usable_scratch(lane);
  const Algorithm algorithm = algorithms().of(product, lane, workspace);
  if (!algorithm) {
    throw InvalidInput(fmt::format(
        "{}: cuBLASLt has no algorithm for [{}, {}] = [{}, {}] x [{}, {}] in {} with {} bytes of workspace; "
        "raise CudaOptions::scratch",
        product.name, product.m, product.n, product.m, product.k, product.k, product.n,
        to_string(product.c.type), workspace));
  }
  Call call(product);
  call.set_addresses(product.bias, product.pre);
  const float one = 1;
  const float old = product.add ? 1 : 0;
  call.ask(cublasLtMatmul(static_cast<cublasLtHandle_t>(lane.cublas_lt), &call.operation, &one,
                          product.b.data, &call.left, product.a.data, &call.right, &old, product.c.data,
                          &call.result, const_cast<void*>(product.c.data), &call.result, &*algorithm,
                          lane.scratch, workspace, static_cast<cudaStream_t>(stream)),
           "cublasLtMatmul");
}

}  // namespace stowage::cuda
