#include "kernels/cuda/gemm.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gemm_problem.h"
#include "kernels/cuda/launch.h"
#include "src/base/mutex.h"
#include "src/device/cuda/check.h"
#include "src/device/cuda/lane_resources.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

constexpr int results_asked_for = 8;

using Algorithm = std::optional<cublasLtMatmulAlgo_t>;

Algorithm ask_heuristic(const Product& of, const LaneResources& lane, std::size_t workspace) {
  if (!suits_epilogue(of)) return {};
  ProblemDescription problem(of);
  problem.set_alignments(alignments(of));
  ProblemPreference wanted(of, workspace);
  std::array<cublasLtMatmulHeuristicResult_t, results_asked_for> results{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      static_cast<cublasLtHandle_t>(lane.cublas_lt), &problem.operation, &problem.left, &problem.right,
      &problem.result, &problem.result, &wanted.preference, results_asked_for, results.data(), &count);
  // cuBLASLt may also report an epilogue that it lacks as an invalid value.
  const bool refused = status == CUBLAS_STATUS_INVALID_VALUE && of.epilogue != Epilogue::none;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || refused) return {};
  check(status, "cublasLtMatmulAlgoGetHeuristic", of.name);
  const std::span found(results.data(), static_cast<std::size_t>(count));
  const auto usable = std::find_if(found.begin(), found.end(), [&](const auto& result) {
    return result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace;
  });
  return usable == found.end() ? Algorithm() : Algorithm(usable->algo);
}

// Tells the user that the product takes one more pass over its result.
void tell_missing_epilogue(const Product& of) {
  fmt::print(
      stderr,
      "stowage: {}: cuBLASLt has no algorithm for [{}, {}] x [{}, {}] with {}: it is a kernel of its own\n",
      of.name, of.m, of.k, of.k, of.n, of.epilogue == Epilogue::bias ? "its bias" : "its bias and GELU");
}

// The process's chosen algorithms: plain data that any lane of the device may use.
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
    Algorithm& chosen = chosen_[key] = ask_heuristic(product, lane, workspace);
    if (!chosen && product.epilogue != Epilogue::none) tell_missing_epilogue(product);
    return chosen;
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

void run(const Product& product, const cublasLtMatmulAlgo_t& algorithm, const LaneResources& lane,
         std::size_t workspace, void* stream) {
  ProblemDescription problem(product);
  problem.set_addresses(product.bias, product.pre);
  const float one = 1;
  const float old = product.add ? 1 : 0;
  check(cublasLtMatmul(static_cast<cublasLtHandle_t>(lane.cublas_lt), &problem.operation, &one,
                       product.b.data, &problem.left, product.a.data, &problem.right, &old, product.c.data,
                       &problem.result, const_cast<void*>(product.c.data), &problem.result, &algorithm,
                       lane.scratch, workspace, static_cast<cudaStream_t>(stream)),
        "cublasLtMatmul", product.name);
}

template <class T>
void finish(const Product& product, void* stream) {
  auto* c = static_cast<T*>(const_cast<void*>(product.c.data));
  if (product.epilogue == Epilogue::bias)
    add_bias(product.m, product.n, static_cast<const T*>(product.bias), c, stream);
  else
    gelu(GeluForm::tanh, product.m * product.n, static_cast<const T*>(product.pre), c, stream);
}

// Makes the product with one step less in its epilogue, and does that step by a kernel of ours.
void multiply_apart(const Product& product, void* stream) {
  Product first = product;
  if (product.epilogue == Epilogue::bias) {
    first.epilogue = Epilogue::none;
  } else {
    first.epilogue = Epilogue::bias;
    first.c = {product.pre, product.c.type};
  }
  multiply(first, stream);
  if (product.c.type == DataType::bf16) return finish<Bfloat16>(product, stream);
  if (product.c.type == DataType::f16) return finish<Float16>(product, stream);
  finish<float>(product, stream);
}

[[noreturn]] void refuse(const Product& product, std::size_t workspace) {
  throw InvalidInput(fmt::format(
      "{}: cuBLASLt has no algorithm for [{}, {}] = [{}, {}] x [{}, {}] in {} with {} bytes of workspace; "
      "raise CudaOptions::scratch",
      product.name, product.m, product.n, product.m, product.k, product.k, product.n,
      to_string(product.c.type), workspace));
}

}  // namespace

void multiply(const Product& product, void* stream) {
  const LaneResources& lane = lane_resources(stream);
  const std::size_t workspace = usable_scratch(lane);
  const Algorithm algorithm = algorithms().of(product, lane, workspace);
  if (algorithm) return run(product, *algorithm, lane, workspace, stream);
  if (product.epilogue == Epilogue::none) refuse(product, workspace);
  multiply_apart(product, stream);
}

}  // namespace stowage::cuda
