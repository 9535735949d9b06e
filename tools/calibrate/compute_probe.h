// Measures the compute lane: products, device memory, and what a launch costs.
#pragma once

#include <vector>

#include "stowage/device.h"
#include "stowage/launch_table.h"
#include "stowage/machine.h"
#include "stowage/machine_file.h"
#include "tools/calibrate/stopwatch.h"

namespace stowage {

// Device and lane on which ops are measured.
struct OpProbeContext {
  Device& device;
  const LaunchTable& kernels;
  LaneId lane;       // compute
  Machine modelled;  // op times of a device that runs in virtual time
};

// An op with operands in device memory, to be launched again and again.
class OpProbe {
 public:
  // `op` without operands; `reads` and `writes` of it, unnamed. Every read holds numbers in [-1, 1).
  OpProbe(const OpProbeContext& context, Op op, std::vector<Tensor> reads, std::vector<Tensor> writes);
  // `op` reads what `source` writes, of at least one launch. `source` must outlive this probe.
  OpProbe(const OpProbeContext& context, Op op, const OpProbe& source, std::vector<Tensor> writes);
  OpProbe(const OpProbe&) = delete;
  OpProbe& operator=(const OpProbe&) = delete;

  void launch();
  // Returns the bytes of its operands, each counted once.
  Bytes bytes() const { return bytes_; }

 private:
  static void run(void* context);
  void own_operand(const Tensor& tensor, AccessMode mode);
  void add_operand(std::byte* data, const Tensor& tensor, AccessMode mode);
  void set_arguments();

  OpProbeContext context_;
  Op op_;
  std::vector<Tensor> tensors_;
  std::vector<DeviceMemory> memory_;
  std::vector<Operand> reads_;
  std::vector<Operand> writes_;
  std::vector<Access> accesses_;
  LaunchArguments arguments_;
  Kernel kernel_ = nullptr;
  Bytes bytes_ = 0;
  Drain drain_;  // declared last, since running work reads all members above
};

// Returns a tensor of these extents, for OpProbe.
Tensor probe_tensor(DataType type, std::vector<std::int64_t> shape);

// Returns the seconds of an op without its launch, but always more than 0.
double without_launch(double seconds, double launch_seconds);

// Returns the operations of a measured product.
double flops_of(const MatrixSample& sample);

struct ComputeProbeOptions {
  std::vector<DataType> types;   // data types of the measured products
  int repetitions = 5;           // runs of each product, of which the median counts
  double layer_seconds = 0.5;    // products grow while one layer's products would take at most this
  int most_stages = 4;           // most sizes of products that are measured
  Bytes stream_bytes = 256_MiB;  // size of each of the three operands that measure device memory
  int launches = 2000;           // number of tiny ops in a row
};

// Fills `matrix`, `device_bytes_per_second` and `launch_seconds` of `file`.
void measure_compute(const OpProbeContext& context, const ComputeProbeOptions& options, MachineFile& file);

}  // namespace stowage
