// Tests kernels/cuda/fragments.h through fragment_kernels.cu, over the fakes and on a card. The layouts are
// written down here once more, from the PTX ISA ("Matrix Fragments for mma.m16n8k16 with floating point
// type"), element by element: what the header and the shim that stands for a card could both have misread
// shows.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <random>

#include "kernels/math/bfloat16.h"
#include "tests/kernels/cuda/fragment_kernels.h"

namespace stowage::test {
namespace {

using Matrix = std::array<std::array<float, 16>, 16>;

struct Place {
  unsigned row, column;
};

// Of a lane's elements a0 … a7, b0 … b3 and c0 … c3.
Place place_in_a(unsigned lane, unsigned i) {
  const unsigned group_id = lane >> 2U, thread_in_group = lane % 4;
  const bool upper_half = i < 2 || (4 <= i && i < 6);
  return {upper_half ? group_id : group_id + 8, thread_in_group * 2 + (i & 1U) + (i < 4 ? 0 : 8)};
}
Place place_in_b(unsigned lane, unsigned i) {
  const unsigned group_id = lane >> 2U, thread_in_group = lane % 4;
  return {thread_in_group * 2 + (i & 1U) + (i < 2 ? 0 : 8), group_id};
}
Place place_in_c(unsigned lane, unsigned i) {
  const unsigned group_id = lane >> 2U, thread_in_group = lane % 4;
  return {i < 2 ? group_id : group_id + 8, thread_in_group * 2 + (i & 1U)};
}

// Our blocks have 16 columns: those of two instructions, side by side.
Place place_in_right(unsigned lane, unsigned i) {
  const Place place = place_in_b(lane, i % 4);
  return {place.row, place.column + i / 4 * 8};
}
Place place_in_sums(unsigned lane, unsigned i) {
  const Place place = place_in_c(lane, i % 4);
  return {place.row, place.column + i / 4 * 8};
}

float at(const Matrix& matrix, const Place& place) { return matrix[place.row][place.column]; }

template <class T>
std::uint32_t word_of(float lower, float upper) {
  return T(lower).bits | static_cast<std::uint32_t>(T(upper).bits) << 16U;
}

// The words of all lanes, of elements that stand at place(lane, i) of the matrix.
template <class T, class Words>
void lay_out(const Matrix& matrix, Place (*place)(unsigned, unsigned), Words& words) {
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    for (unsigned word = 0; word < 4; ++word)
      words[lane][word] =
          word_of<T>(at(matrix, place(lane, 2 * word)), at(matrix, place(lane, 2 * word + 1)));
  }
}

template <class T, class Words>
void expect_laid_out(const Matrix& matrix, Place (*place)(unsigned, unsigned), const Words& words) {
  Words right = {};
  lay_out<T>(matrix, place, right);
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    for (unsigned word = 0; word < 4; ++word)
      EXPECT_EQ(words[lane][word], right[lane][word]) << "lane " << lane << ", word " << word;
  }
}

// Small whole numbers, so that every sum is exact in whatever order.
Matrix whole_numbers(unsigned seed) {
  std::mt19937 generator(seed);
  Matrix matrix;
  for (auto& row : matrix) {
    for (float& element : row) element = static_cast<float>(generator() % 17) - 8;
  }
  return matrix;
}

Matrix transposed(const Matrix& matrix) {
  Matrix result;
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned column = 0; column < 16; ++column) result[row][column] = matrix[column][row];
  }
  return result;
}

template <class T>
class Fragments : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return;
    if (std::getenv("STOWAGE_FAKE_CUDA_KERNELS") != nullptr) FAIL() << "the fakes show no device";
    GTEST_SKIP() << "no CUDA device";
  }

  static FragmentOutput run(const FragmentInput& input) {
    FragmentInput* in = nullptr;
    FragmentOutput* out = nullptr;
    FragmentOutput output{};
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&in), sizeof(*in)), cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&out), sizeof(*out)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(in, &input, sizeof(input), cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(launch_fragments<T>(in, out), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&output, out, sizeof(output), cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(cudaFree(in), cudaSuccess);
    EXPECT_EQ(cudaFree(out), cudaSuccess);
    return output;
  }
};

using ElementTypes = ::testing::Types<Bfloat16, Float16>;
TYPED_TEST_SUITE(Fragments, ElementTypes);

TYPED_TEST(Fragments, MultiplyBlocksAndAddThem) {
  const Matrix a = whole_numbers(1), b = whole_numbers(2), c = whole_numbers(3);
  FragmentInput input{};
  lay_out<TypeParam>(a, place_in_a, input.left);
  lay_out<TypeParam>(b, place_in_right, input.right);
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    for (unsigned i = 0; i < 8; ++i) input.sums[lane][i] = at(c, place_in_sums(lane, i));
  }
  const FragmentOutput output = TestFixture::run(input);
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    for (unsigned i = 0; i < 8; ++i) {
      const Place place = place_in_sums(lane, i);
      float right = at(c, place);
      for (unsigned k = 0; k < 16; ++k) right += a[place.row][k] * b[k][place.column];
      EXPECT_EQ(output.products[lane][i], right) << "lane " << lane << ", element " << i;
    }
  }
  expect_laid_out<TypeParam>(c, place_in_a,
                             output.rounded);  // a block of sums is the next product's left operand
}

TYPED_TEST(Fragments, AreReadFromSharedMemory) {
  const Matrix block = whole_numbers(4);
  FragmentInput input{};
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned column = 0; column < 16; ++column)
      input.tile[row][column] = TypeParam(block[row][column]).bits;
  }
  const FragmentOutput output = TestFixture::run(input);
  expect_laid_out<TypeParam>(block, place_in_a, output.left_block);
  expect_laid_out<TypeParam>(block, place_in_right, output.right_block);
  expect_laid_out<TypeParam>(transposed(block), place_in_right, output.right_transpose);
}

// As the type rounds: to the nearest, ties to even, beyond the largest to infinity.
TYPED_TEST(Fragments, RoundSumsToTheNearest) {
  const float cases[] = {1.00390625F, 1.01171875F, -1.00390625F, 1.0039063F, 3.4e38F,
                         -3.4e38F,    1e-40F,      0x1.fep-127F, -0.0F,      INFINITY};
  FragmentInput input{};
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    for (unsigned i = 0; i < 8; ++i) input.sums[lane][i] = cases[(lane * 8 + i) % std::size(cases)];
  }
  const FragmentOutput output = TestFixture::run(input);
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    for (unsigned word = 0; word < 4; ++word) {
      EXPECT_EQ(output.rounded[lane][word],
                word_of<TypeParam>(input.sums[lane][2 * word], input.sums[lane][2 * word + 1]))
          << "lane " << lane << ", word " << word;
    }
  }
}

}  // namespace
}  // namespace stowage::test
