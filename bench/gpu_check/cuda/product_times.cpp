#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "bench/gpu_check/device_numbers.h"
#include "bench/gpu_check/op_times.h"
#include "kernels/cuda/gemm_problem.h"
#include "src/device/cuda/check.h"
#include "stowage/models.h"
#include "tools/calibrate/stopwatch.h"

namespace stowage::bench {
namespace {

using cuda::Epilogue;
using cuda::Matrix;
using cuda::Product;

constexpr int algorithms = 8;
constexpr Bytes workspace_bytes = (32 << 20) - 256;  // as a compute lane has

struct Model {
  const char* name;
  std::int64_t tokens, width, vocabulary;
};

struct Named {
  std::string name;
  Product product;
};

Matrix of_type(DataType type, bool transposed = false) { return {nullptr, type, transposed}; }

// The three products of a layer y = x w with x [tokens, inputs], as kernels/cuda/linear.cpp makes them.
void add_layer(std::vector<Named>& to, const std::string& name, std::int64_t tokens, std::int64_t inputs,
               std::int64_t outputs, Epilogue epilogue) {
  const Matrix half = of_type(DataType::bf16), turned = of_type(DataType::bf16, true);
  to.push_back({name, {tokens, outputs, inputs, half, half, half, epilogue}});
  to.push_back({name + " to its input", {tokens, inputs, outputs, half, turned, half}});
  to.push_back({name + " to its weight", {inputs, outputs, tokens, turned, half, half}});
}

// The three products of one chunk of the head, with the table as its weight
// (kernels/cuda/linear_cross_entropy.cpp).
void add_head(std::vector<Named>& to, const Model& model) {
  const std::int64_t rows =
      std::min(model.tokens, default_head_tokens(DataType::bf16, model.width, model.tokens));
  const Matrix half = of_type(DataType::bf16), turned = of_type(DataType::bf16, true);
  to.push_back({"head", {rows, model.vocabulary, model.width, half, turned, half}});
  to.push_back({"head to its input", {rows, model.width, model.vocabulary, half, half, half}});
  const DataType sum = rows < model.tokens ? DataType::f32 : DataType::bf16;
  to.push_back({"head to its weight", {model.vocabulary, model.width, rows, turned, half, of_type(sum)}});
  to.back().product.add = rows < model.tokens;
}

std::vector<Named> products_of(const Model& model) {
  std::vector<Named> all;
  add_layer(all, "queries, keys, values", model.tokens, model.width, 3 * model.width, Epilogue::bias);
  add_layer(all, "attention's output", model.tokens, model.width, model.width, Epilogue::bias);
  add_layer(all, "up", model.tokens, model.width, 4 * model.width, Epilogue::bias_gelu_tanh);
  add_layer(all, "down", model.tokens, 4 * model.width, model.width, Epilogue::bias);
  add_head(all, model);
  return all;
}

class Offers {
 public:
  explicit Offers(Device& device)
      : device_(device),
        lane_(device, LaneRole::compute),
        stopwatch_(device, lane_.id()),
        workspace_(device, MemoryKind::device, workspace_bytes) {
    cublasLtHandle_t handle = nullptr;
    cuda::check(cublasLtCreate(&handle), "cublasLtCreate", "products");
    handle_.reset(handle);
  }

  nlohmann::ordered_json timed(const Model& model, Named named) {
    Product& product = named.product;
    product.name = "products";
    const DeviceMemory a = numbers(product.m * product.k, product.a.type);
    const DeviceMemory b = numbers(product.k * product.n, product.b.type);
    const DeviceMemory c = numbers(product.m * product.n, product.c.type);
    const DeviceMemory bias = numbers(product.n, product.c.type);
    const bool has_pre = product.epilogue == Epilogue::bias_gelu_tanh;
    const DeviceMemory pre = numbers(has_pre ? product.m * product.n : 1, product.c.type);
    product.a.data = a.data();
    product.b.data = b.data();
    product.c.data = c.data();
    product.bias = bias.data();
    product.pre = pre.data();
    nlohmann::ordered_json seconds = nlohmann::ordered_json::array();
    for (const auto& offer : offered(product)) {
      if (offer.state != CUBLAS_STATUS_SUCCESS || offer.workspaceSize > workspace_bytes) continue;
      seconds.push_back(stopwatch_.median_seconds(repetitions, [&] { run(product, offer.algo); }));
    }
    const double flops =
        2 * static_cast<double>(product.m) * static_cast<double>(product.n) * static_cast<double>(product.k);
    return {{"kind", "product"}, {"model", model.name}, {"name", named.name}, {"m", product.m},
            {"n", product.n},    {"k", product.k},      {"flops", flops},     {"seconds", seconds}};
  }

 private:
  DeviceMemory numbers(std::int64_t count, DataType type) {
    return normal_numbers(device_, static_cast<Bytes>(count) * size_of(type), 1, 0.5F);
  }

  std::vector<cublasLtMatmulHeuristicResult_t> offered(const Product& of) {
    cuda::ProblemDescription problem(of);
    problem.set_alignments(cuda::alignments(of));
    cuda::ProblemPreference wanted(of, workspace_bytes);
    std::vector<cublasLtMatmulHeuristicResult_t> results(algorithms);
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_.get(), &problem.operation, &problem.left, &problem.right, &problem.result, &problem.result,
        &wanted.preference, algorithms, results.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) count = 0;
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) cuda::check(status, "cublasLtMatmulAlgoGetHeuristic", of.name);
    results.resize(static_cast<std::size_t>(count));
    return results;
  }

  void run(const Product& product, const cublasLtMatmulAlgo_t& algorithm) {
    cuda::ProblemDescription problem(product);
    problem.set_addresses(product.bias, product.pre);
    const float one = 1;
    const float old = product.add ? 1 : 0;
    cuda::check(
        cublasLtMatmul(handle_.get(), &problem.operation, &one, product.b.data, &problem.left, product.a.data,
                       &problem.right, &old, product.c.data, &problem.result,
                       const_cast<void*>(product.c.data), &problem.result, &algorithm, workspace_.data(),
                       workspace_bytes, static_cast<cudaStream_t>(device_.native_stream(lane_.id()))),
        "cublasLtMatmul", product.name);
  }

  struct Destroy {
    void operator()(void* handle) const { cublasLtDestroy(static_cast<cublasLtHandle_t>(handle)); }
  };

  Device& device_;
  Lane lane_;
  Stopwatch stopwatch_;
  DeviceMemory workspace_;
  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy> handle_;
};

}  // namespace

void time_products(Device& device, bool small, const PrintTimes& print) {
  const std::vector<Model> models = small ? std::vector<Model>{{"tiny", 128, 64, 256}}
                                          : std::vector<Model>{{"gpt2", 65536, 768, 50304},
                                                               {"bert", 65536, 1024, 30528},
                                                               {"774M", 8192, 1280, 50304},
                                                               {"6.7b", 8192, 4096, 50304}};
  Offers offers(device);
  for (const Model& model : models) {
    for (const Named& named : products_of(model)) print(offers.timed(model, named));
  }
}

}  // namespace stowage::bench
