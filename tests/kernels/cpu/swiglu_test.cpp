#include "kernels/cpu/swiglu.h"

#include "tests/kernels/kernel_check.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

struct SwigluCase {
  std::int64_t count;
  bool in_place = false;

  template <class T>
  std::vector<T> gate() const {
    return numbers<T>(count, 1, 8);
  }
  template <class T>
  std::vector<T> up() const {
    return numbers<T>(count, 2, 4);
  }
  template <class T>
  std::vector<T> dy() const {
    return numbers<T>(count, 3);
  }

  // y, dgate, dup
  template <class T>
  std::vector<T> run() const {
    const std::vector<T> gates = gate<T>(), ups = up<T>(), flow = dy<T>();
    std::vector<T> y = unwritten<T>(count), dup = unwritten<T>(count);
    std::vector<T> dgate = in_place ? flow : unwritten<T>(count);
    swiglu(count, gates.data(), ups.data(), y.data());
    swiglu_backward(count, gates.data(), ups.data(), in_place ? dgate.data() : flow.data(), dgate.data(),
                    dup.data());
    return joined({y, dgate, dup});
  }

  std::vector<double> reference() const {
    const std::vector<double> gates = gate<double>(), ups = up<double>(), flow = dy<double>();
    std::vector<double> y, dgate, dup;
    for (std::size_t i = 0; i < gates.size(); ++i) {
      const double sigmoid = 1 / (1 + std::exp(-gates[i]));
      y.push_back(gates[i] * sigmoid * ups[i]);
      dgate.push_back(flow[i] * ups[i] * sigmoid * (1 + gates[i] * (1 - sigmoid)));
      dup.push_back(flow[i] * gates[i] * sigmoid);
    }
    return joined({y, dgate, dup});
  }
};

// One element, a block that is not full, several chunks.
constexpr std::int64_t swiglu_counts[] = {1, 700, 40'003};

TEST(Swiglu, AgreesWithTheDefinitionInPlaceToo) {
  for (const std::int64_t count : swiglu_counts)
    for (const bool in_place : {false, true})
      expect_close(SwigluCase{count, in_place}.run<double>(), SwigluCase{count, in_place}.reference(), 1e-13);
}

// Results are at most 32; the exponential is good to 2e-7, of which the sigmoid keeps at most as much.
TEST(Swiglu, WorkTypeAgrees) {
  for (const std::int64_t count : swiglu_counts)
    for (const bool in_place : {false, true}) expect_work_type_agrees(SwigluCase{count, in_place}, 32 * 3e-7);
}

TEST(Swiglu, MayReplaceItsInputs) {
  const SwigluCase of{700};
  const std::vector<float> right = of.run<float>();
  std::vector<float> gate = of.gate<float>(), up = of.up<float>();
  const std::vector<float> gates = gate, ups = up;
  swiglu(700, gate.data(), ups.data(), gate.data());
  swiglu(700, gates.data(), up.data(), up.data());
  EXPECT_EQ(gate, std::vector<float>(right.begin(), right.begin() + 700));
  EXPECT_EQ(up, gate);
}

TEST(Swiglu, HasTheSameBitsForAnyThreadCount) { expect_same_bits(SwigluCase{40'003}); }

// With the largest gates, and what they scale as large where they are below 0.
template <class T>
void expect_finite(float largest) {
  std::vector<T> gate, up, dy;
  for (const float g : {-largest, -1000.0F, -88.0F, -87.0F, -60.0F, 0.0F, 60.0F, 88.0F, largest})
    for (const float u : {-1.0F, 0.0F, 1.0F}) {
      gate.push_back(T(g));
      up.push_back(T(g < 0 ? u * largest : u));
      dy.push_back(T(1.0F));
    }
  const auto count = static_cast<std::int64_t>(gate.size());
  std::vector<T> y = unwritten<T>(count), dgate = y, dup = y;
  swiglu(count, gate.data(), up.data(), y.data());
  swiglu_backward(count, gate.data(), up.data(), dy.data(), dgate.data(), dup.data());
  const std::vector<double> found = widened(joined({y, dgate, dup}));
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(std::isfinite(found[i])) << "element " << i << " is " << found[i];
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(found[i], 0) << "element " << i;  // of gates of at most -1,000
}

TEST(Swiglu, IsFiniteForEveryFiniteGate) {
  expect_finite<Bfloat16>(0x1.fep127F);
  expect_finite<float>(0x1.fffffep127F);
  expect_finite<double>(0x1.fffffep127F);
  expect_finite<Float16>(65504);
}

}  // namespace
}  // namespace stowage::cpu
