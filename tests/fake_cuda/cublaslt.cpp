// libcublasLt: descriptors, one algorithm, the product as work of a stream.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <set>

#include "tests/fake_cuda/cublaslt_problem.h"
#include "tests/fake_cuda/state.h"
#include "tests/fake_cuda/stream.h"

using fake_cuda::AddressAlignments;
using fake_cuda::Algorithm;
using fake_cuda::algorithm_magic;
using fake_cuda::are_aligned;
using fake_cuda::are_inside;
using fake_cuda::inside;
using fake_cuda::is_inside;
using fake_cuda::Layout;
using fake_cuda::needed_alignments;
using fake_cuda::Operands;
using fake_cuda::Operation;
using fake_cuda::Preference;
using fake_cuda::product_of;
using fake_cuda::State;
using fake_cuda::wanted_workspace;

namespace {

// What there is. So a leak checker takes nothing for lost that a call which failed did not destroy; tests
// count.
class Objects {
 public:
  void add(void* object) {
    const std::lock_guard lock(mutex_);
    all_.insert(object);
  }
  void remove(void* object) {
    const std::lock_guard lock(mutex_);
    all_.erase(object);
  }
  static Objects& get() {
    static auto* objects = new Objects;
    return *objects;
  }

 private:
  std::mutex mutex_;
  std::set<void*> all_;
};

template <class Body>
cublasStatus_t call(const char* name, Body body) {
  if (fake_cuda::in_host_function) {
    ++State::get().calls_from_host_functions;
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const int planned = State::get().begin_call(name, CUBLAS_STATUS_INTERNAL_ERROR);
  if (planned != 0) return static_cast<cublasStatus_t>(planned);
  if (State::get().settings().driver != fake_cuda_driver_present) return CUBLAS_STATUS_NOT_INITIALIZED;
  return body();
}

// Creates what Init then fills.
template <class Opaque>
cublasStatus_t create(Opaque** to) {
  if (to == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *to = new Opaque{};
  Objects::get().add(*to);
  ++State::get().blas_objects;
  return CUBLAS_STATUS_SUCCESS;
}

template <class Opaque>
cublasStatus_t destroy(Opaque* object) {
  if (object == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  Objects::get().remove(object);
  delete object;
  --State::get().blas_objects;
  return CUBLAS_STATUS_SUCCESS;
}

cublasLtMatmulHeuristicResult_t result_with(const Algorithm& algorithm, cublasStatus_t state) {
  cublasLtMatmulHeuristicResult_t result{};
  inside<Algorithm>(&result.algo) = algorithm;
  if (state != CUBLAS_STATUS_SUCCESS) inside<Algorithm>(&result.algo).magic = 0;
  result.workspaceSize = algorithm.workspace;
  result.state = state;
  result.wavesCount = 1;
  return result;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return call(__func__, [&] {
    if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *handle = reinterpret_cast<cublasLtHandle_t>(new char(0));
    Objects::get().add(*handle);
    ++State::get().blas_objects;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return call(__func__, [&] {
    if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    Objects::get().remove(handle);
    delete reinterpret_cast<char*>(handle);
    --State::get().blas_objects;
    return CUBLAS_STATUS_SUCCESS;
  });
}

std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
std::size_t cublasLtGetCudartVersion() { return CUDART_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "<unknown>";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, std::size_t,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  return call("cublasLtMatmulDescInit", [&] {
    init(inside<Operation>(desc), compute, scale);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return call(__func__, [&] {
    const cublasStatus_t status = create(desc);
    if (status == CUBLAS_STATUS_SUCCESS) init(inside<Operation>(*desc), compute, scale);
    return status;
  });
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return call(__func__, [&] { return destroy(desc); });
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  return call(__func__, [&] { return set(inside<Operation>(desc), attribute, value, bytes); });
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, std::size_t,
                                                 cudaDataType type, std::uint64_t rows, std::uint64_t columns,
                                                 std::int64_t leading) {
  return call("cublasLtMatrixLayoutInit", [&] {
    init(inside<Layout>(layout), type, rows, columns, leading);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
  return call(__func__, [&] {
    const cublasStatus_t status = create(layout);
    if (status == CUBLAS_STATUS_SUCCESS) init(inside<Layout>(*layout), type, rows, columns, leading);
    return status;
  });
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return call(__func__, [&] { return destroy(layout); });
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  return call(__func__, [&] { return set(inside<Layout>(layout), attribute, value, bytes); });
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, std::size_t) {
  return call("cublasLtMatmulPreferenceInit", [&] {
    inside<Preference>(preference) = {};
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return call(__func__, [&] { return create(preference); });
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return call(__func__, [&] { return destroy(preference); });
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  return call(__func__, [&] { return set(inside<Preference>(preference), attribute, value, bytes); });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  return call(__func__, [&] {
    if (handle == nullptr || results == nullptr || found == nullptr || wanted < 1)
      return CUBLAS_STATUS_INVALID_VALUE;
    *found = 0;
    const auto product = product_of(inside<Operation>(desc), {&inside<Layout>(a), &inside<Layout>(b),
                                                              &inside<Layout>(c), &inside<Layout>(d)});
    if (!product) return CUBLAS_STATUS_NOT_SUPPORTED;
    const auto& wishes = inside<Preference>(preference);
    const auto needs = needed_alignments(inside<Operation>(desc), *product, wishes);
    if (!needs) return CUBLAS_STATUS_NOT_SUPPORTED;
    // As the real one may: results that cannot be used come before the one that can.
    const std::array<cublasLtMatmulHeuristicResult_t, 3> all{
        result_with({algorithm_magic, 0, *needs}, CUBLAS_STATUS_NOT_SUPPORTED),
        result_with({algorithm_magic, wishes.workspace + 1, *needs}, CUBLAS_STATUS_SUCCESS),
        result_with({algorithm_magic, std::min(wanted_workspace, wishes.workspace), *needs},
                    CUBLAS_STATUS_SUCCESS)};
    *found = std::min(wanted, static_cast<int>(all.size()));
    std::copy_n(all.begin(), *found, results);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  return call(__func__, [&] {
    if (State::get().lost() != 0) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (handle == nullptr || alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    const auto& operation = inside<Operation>(desc);
    const auto product = product_of(operation, {&inside<Layout>(a_layout), &inside<Layout>(b_layout),
                                                &inside<Layout>(c_layout), &inside<Layout>(d_layout)});
    if (!product) return CUBLAS_STATUS_NOT_SUPPORTED;
    const Operands with{a,
                        b,
                        c,
                        d,
                        operation.bias,
                        operation.aux,
                        *static_cast<const float*>(alpha),
                        *static_cast<const float*>(beta)};
    std::uint64_t needed = 0;
    AddressAlignments alignments;
    if (algorithm != nullptr) {
      const auto& chosen = inside<const Algorithm>(algorithm);
      if (chosen.magic != algorithm_magic) return CUBLAS_STATUS_INVALID_VALUE;
      needed = chosen.workspace;
      alignments = chosen.needs;
    }
    const bool has_workspace = needed <= workspace_bytes && (needed == 0 || is_inside(workspace, needed));
    if (!has_workspace || !are_inside(*product, with) || !are_aligned(*product, with, alignments))
      return CUBLAS_STATUS_INVALID_VALUE;
    const auto work = [product = *product, with, workspace, needed] {
      if (!State::get().kernel_may_start()) return;
      if (needed > 0) std::memset(workspace, 0xff, needed);  // as a split of K would
      fake_cuda::multiply(product, with);
    };
    const bool done = fake_cuda::Streams::get().enqueue(stream, work).has_value();
    return done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  });
}
}
