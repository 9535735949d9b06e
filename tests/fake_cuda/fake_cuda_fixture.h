// A test on the fakes: a fresh card before it, nothing left alive after it.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"

namespace fake_cuda_test {

class FakeCuda : public testing::Test {
 protected:
  FakeCuda() {
    fake_cuda_reset();
    static_cast<void>(cudaGetLastError());  // of an earlier test, on this thread
  }
  ~FakeCuda() override { fake_cuda_reset(); }
  void TearDown() override {
    const fake_cuda_live_objects live = fake_cuda_live();
    EXPECT_EQ(
        live.device_allocations + live.pinned_allocations + live.reservations + live.physical_allocations,
        0U);
    EXPECT_EQ(live.streams + live.events + live.blas_objects, 0U);
  }
};

// Owns a stream that does not wait for the default stream.
class TestStream {
 public:
  TestStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  ~TestStream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }  // NOLINT(google-explicit-constructor)
  cudaError_t synchronise() const { return cudaStreamSynchronize(stream_); }

 private:
  cudaStream_t stream_ = nullptr;
};

class TestEvent {
 public:
  explicit TestEvent(unsigned flags = cudaEventDefault) {
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, flags), cudaSuccess);
  }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  ~TestEvent() { cudaEventDestroy(event_); }
  operator cudaEvent_t() const { return event_; }  // NOLINT(google-explicit-constructor)

 private:
  cudaEvent_t event_ = nullptr;
};

// `count` elements of device memory.
template <class T>
class TestBuffer {
 public:
  explicit TestBuffer(std::size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), cudaSuccess);
  }
  explicit TestBuffer(const std::vector<T>& values) : TestBuffer(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  TestBuffer(const TestBuffer&) = delete;
  TestBuffer& operator=(const TestBuffer&) = delete;
  ~TestBuffer() { cudaFree(data_); }
  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

// Holds a stream up until it is opened.
class Gate {
 public:
  void hold(cudaStream_t stream) {
    const auto wait = [](void* open) {
      while (!static_cast<std::atomic<bool>*>(open)->load(std::memory_order_acquire))
        std::this_thread::yield();
    };
    fake_cuda_enqueue_work(stream, wait, &open_);
  }
  void open() { open_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> open_ = false;
};

}  // namespace fake_cuda_test
