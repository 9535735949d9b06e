// Around each test of the CUDA device over the fakes.
#pragma once

#include <gtest/gtest.h>

#include "tests/fake_cuda/fake_cuda.h"

namespace stowage {

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override { fake_cuda_reset(); }
  void TearDown() override {
    EXPECT_EQ(fake_cuda_misuses().calls_from_host_functions, 0u);
    EXPECT_EQ(fake_cuda_misuses().pageable_copies, 0u);
    EXPECT_EQ(fake_cuda_misuses().pages_pinned_unfaulted, 0u);
    EXPECT_EQ(fake_cuda_misuses().spinning_waits, 0u);
  }
};

}  // namespace stowage
