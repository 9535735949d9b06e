#include "tests/kernels/cuda/cuda_kernel_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"

namespace stowage::test {
namespace {

constexpr Bytes guard_bytes = 256;
constexpr std::byte unwritten{0xff};  // NaN in every floating type

DataType type_of(Role role, DataType work) {
  switch (role) {
    case Role::work:
      return work;
    case Role::sums:
      return work == DataType::f64 ? DataType::f64 : DataType::f32;
    case Role::f64:
      return DataType::f64;
    case Role::i32:
      return DataType::i32;
    case Role::i16:
      return DataType::i16;
    case Role::u8:
      return DataType::u8;
    case Role::bf16:
      return DataType::bf16;
  }
  return work;
}

template <class T>
void append(Output& to, T value) {
  const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

double rounded_to(double value, DataType type) {
  if (type == DataType::f32) return static_cast<float>(value);
  if (type == DataType::bf16)
    return static_cast<double>(static_cast<float>(Bfloat16(static_cast<float>(value))));
  if (type == DataType::f16)
    return static_cast<double>(static_cast<float>(Float16(static_cast<float>(value))));
  return value;
}

Output encoded(const std::vector<double>& values, DataType type) {
  Output bytes;
  for (const double value : values) {
    if (type == DataType::f32) append(bytes, static_cast<float>(value));
    if (type == DataType::f64) append(bytes, value);
    if (type == DataType::bf16) append(bytes, Bfloat16(static_cast<float>(value)).bits);
    if (type == DataType::f16) append(bytes, Float16(static_cast<float>(value)).bits);
    if (type == DataType::i32) append(bytes, static_cast<std::int32_t>(value));
    if (type == DataType::i16) append(bytes, static_cast<std::int16_t>(value));
    if (type == DataType::u8) append(bytes, static_cast<std::uint8_t>(value));
  }
  return bytes;
}

template <class T>
T element(const Output& from, std::size_t index) {
  T value;
  std::memcpy(&value, from.data() + index * sizeof(T), sizeof(T));
  return value;
}

// The op of a case, its operands in the host's memory.
struct HostCase {
  Op op;
  std::vector<Tensor> tensors;  // reads, then writes
  std::vector<Output> data;
  std::size_t reads = 0;

  // `numbers`: what the inputs are rounded to before they become `type`.
  HostCase(const KernelCase& of, DataType type, DataType numbers) : reads(of.reads.size()) {
    op.name = op.kernel = of.kernel;
    op.attributes = of.attributes;
    for (const TestOperand& operand : of.reads) add(operand, type, numbers);
    for (const TestOperand& operand : of.writes) add(operand, type, numbers);
  }

  LaunchArguments arguments(std::vector<Operand>& operands, const StepContext& step) const {
    return {&op, {operands.data(), reads}, {operands.data() + reads, operands.size() - reads}, step, nullptr};
  }

 private:
  void add(const TestOperand& operand, DataType type, DataType numbers) {
    const DataType own = type_of(operand.role, type);
    Tensor tensor{"t" + std::to_string(tensors.size()), own, operand.shape, TensorKind::activation, {}};
    std::vector<double> values = operand.values;
    for (double& value : values) value = rounded_to(value, type_of(operand.role, numbers));
    Output bytes = encoded(values, own);
    if (bytes.empty()) bytes.assign(tensor.bytes(), unwritten);
    EXPECT_EQ(bytes.size(), tensor.bytes()) << op.name << ": operand " << tensor.name;
    tensors.push_back(tensor);
    data.push_back(bytes);
  }
};

// All operands in one range of device memory, with a copy on the host. Around each lie bytes that nobody may
// write. An operand's address is a multiple of what plans align it to, and of no more.
class Arena {
 public:
  // `offset`: elements between such an address and each operand.
  Arena(Device& device, const HostCase& host, std::int64_t offset) {
    Bytes end = guard_bytes;
    for (std::size_t i = 0; i < host.data.size(); ++i) {
      sizes_.push_back(host.data[i].size());
      const Bytes aligned = align_up(end, 2 * most_tensor_alignment) + tensor_alignment(sizes_[i]);
      begins_.push_back(aligned + static_cast<Bytes>(offset) * size_of(host.tensors[i].type));
      end = align_up(begins_[i] + sizes_[i], guard_bytes) + guard_bytes;
    }
    host_ = DeviceMemory(device, MemoryKind::pinned, end);
    device_ = DeviceMemory(device, MemoryKind::device, end);
    std::fill(host_.data(), host_.data() + end, unwritten);
    for (std::size_t i = 0; i < begins_.size(); ++i)
      std::copy(host.data[i].begin(), host.data[i].end(), host_.data() + begins_[i]);
  }

  void* address(std::size_t operand) const { return device_.data() + begins_[operand]; }

  void to_device(Device& device, const Lane& lane) const {
    device.copy(lane.id(), device_.data(), host_.data(), host_.bytes(), "in");
    device.synchronise_lane(lane.id());
  }
  void to_host(Device& device, const Lane& lane) const {
    device.copy(lane.id(), host_.data(), device_.data(), host_.bytes(), "out");
    device.synchronise_lane(lane.id());
    expect_guards();
  }
  Output read(std::size_t operand) const {
    const std::byte* const start = host_.data() + begins_[operand];
    return {start, start + sizes_[operand]};
  }

 private:
  void expect_guards() const {
    const std::byte* const all = host_.data();
    Bytes from = 0;
    for (std::size_t i = 0; i <= begins_.size(); ++i) {
      const Bytes to = i < begins_.size() ? begins_[i] : host_.bytes();
      EXPECT_TRUE(std::all_of(all + from, all + to, [](std::byte byte) { return byte == unwritten; }))
          << "written in front of operand " << i;
      if (i < begins_.size()) from = begins_[i] + sizes_[i];
    }
  }

  DeviceMemory host_, device_;
  std::vector<Bytes> begins_, sizes_;
};

struct Work {
  Kernel kernel;
  LaunchArguments arguments;
};

void launch_work(void* context) {
  const auto* work = static_cast<const Work*>(context);
  work->kernel(work->arguments);
}

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

double default_tolerance(DataType type) {
  if (type == DataType::bf16) return 0x1p-8;
  return type == DataType::f16 ? 0x1p-11 : 1e-5;
}

// `type`: of the output, whose roundings every element may be off by.
void expect_agrees(const TestOperand& output, DataType type, const std::vector<double>& found,
                   const std::vector<double>& right) {
  ASSERT_EQ(found.size(), right.size());
  const double rounding = default_tolerance(type);
  const double tolerance = output.tolerance > 0 || !output.slack.empty() ? output.tolerance : rounding;
  const double bound_of_all = tolerance * largest_of(right);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double own = output.slack.empty() ? 0 : output.slack[i] + rounding * std::abs(right[i]);
    const double bound = std::max(bound_of_all, own);
    ASSERT_TRUE(std::abs(found[i] - right[i]) <= bound)  // false for NaN
        << "element " << i << " is " << found[i] << ", not " << right[i] << "; bound " << bound;
  }
}

}  // namespace

std::unique_ptr<Device> CudaKernelTest::device_;

void CudaKernelTest::SetUpTestSuite() {
  if (cuda_status().available) device_ = open_cuda_device();
}

void CudaKernelTest::TearDownTestSuite() { device_.reset(); }

void CudaKernelTest::SetUp() {
  if (device_) return;
  // The fakes are always there.
  if (std::getenv("STOWAGE_FAKE_CUDA_KERNELS") != nullptr) FAIL() << cuda_status().reason;
  GTEST_SKIP() << cuda_status().reason;
}

std::vector<Output> CudaKernelTest::run_cuda(const KernelCase& of, DataType type, std::int64_t offset) {
  const HostCase host(of, type, type);
  const Lane compute(*device_, LaneRole::compute);
  const Lane up(*device_, LaneRole::h2d);
  const Lane down(*device_, LaneRole::d2h);
  const Arena arena(*device_, host, offset);
  arena.to_device(*device_, up);
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < host.data.size(); ++i) operands.push_back({arena.address(i), &host.tensors[i]});
  for (const auto& [write, read] : of.in_place) operands[host.reads + write].data = operands[read].data;

  Work work{cuda_launch_table().find(host.op), host.arguments(operands, of.step)};
  work.arguments.stream = device_->native_stream(compute.id());
  device_->launch(compute.id(), {of.kernel, launch_work, &work, {}, 0});
  device_->synchronise_lane(compute.id());

  arena.to_host(*device_, down);
  std::vector<std::size_t> from(of.writes.size());
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = host.reads + i;
  for (const auto& [write, read] : of.in_place) from[write] = read;
  std::vector<Output> outputs;
  for (const std::size_t index : from) outputs.push_back(arena.read(index));
  return outputs;
}

std::vector<Output> CudaKernelTest::run_cpu(const KernelCase& of, DataType type, DataType numbers) {
  HostCase host(of, type, numbers);
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < host.data.size(); ++i)
    operands.push_back({host.data[i].data(), &host.tensors[i]});
  for (const auto& [write, read] : of.in_place) operands[host.reads + write].data = operands[read].data;
  cpu_launch_table().find(host.op)(host.arguments(operands, of.step));
  for (const auto& [write, read] : of.in_place) host.data[host.reads + write] = host.data[read];
  return {host.data.begin() + static_cast<std::ptrdiff_t>(host.reads), host.data.end()};
}

void CudaKernelTest::expect_right_in(const KernelCase& of, DataType type, std::int64_t offset) {
  SCOPED_TRACE(of.kernel + " in " + std::string(to_string(type)));
  const std::vector<Output> found = run_cuda(of, type, offset);
  EXPECT_EQ(run_cuda(of, type, offset), found) << "another run wrote other bits";
  const std::vector<Output> right = run_cpu(of, DataType::f64, type);
  for (std::size_t i = 0; i < of.writes.size(); ++i) {
    SCOPED_TRACE("output " + std::to_string(i));
    if (of.writes[i].role == Role::i32) continue;  // a workspace
    const DataType own = type_of(of.writes[i].role, type);
    expect_agrees(of.writes[i], own, widened(found[i], own),
                  widened(right[i], type_of(of.writes[i].role, DataType::f64)));
  }
}

void CudaKernelTest::expect_right(const KernelCase& of, std::int64_t offset) {
  expect_right_in(of, DataType::f32, offset);
  expect_right_in(of, DataType::bf16, offset);
  expect_right_in(of, DataType::f16, offset);
}

std::vector<double> draws(std::int64_t count, unsigned seed, double range) {
  std::mt19937 generator(seed);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = (static_cast<double>(generator() >> 24U) / 128 - 1) * range;
  return values;
}

std::vector<double> whole_draws(std::int64_t count, unsigned seed, int limit) {
  std::mt19937 generator(seed);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = static_cast<double>(generator() % static_cast<unsigned>(limit));
  return values;
}

std::vector<double> widened(const Output& output, DataType type) {
  std::vector<double> values(output.size() / size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == DataType::f32) values[i] = static_cast<double>(element<float>(output, i));
    if (type == DataType::f64) values[i] = element<double>(output, i);
    if (type == DataType::bf16)
      values[i] = static_cast<double>(
          std::bit_cast<float>(static_cast<std::uint32_t>(element<std::uint16_t>(output, i)) << 16U));
    if (type == DataType::f16)
      values[i] = static_cast<double>(static_cast<float>(element<Float16>(output, i)));
    if (type == DataType::i32) values[i] = element<std::int32_t>(output, i);
    if (type == DataType::i16) values[i] = element<std::int16_t>(output, i);
  }
  return values;
}

}  // namespace stowage::test
