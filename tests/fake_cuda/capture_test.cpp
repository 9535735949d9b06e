#include "tests/fake_cuda/capture.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fake_cuda/fake_cuda_fixture.h"

namespace fake_cuda_test {
namespace {

class CaptureTest : public FakeCuda {
 protected:
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) const {
    ASSERT_EQ(cudaStreamBeginCapture(captured, mode), cudaSuccess);
  }
  cudaError_t end() const {
    cudaGraph_t graph = nullptr;
    return cudaStreamEndCapture(captured, &graph);
  }
  static cudaStreamCaptureStatus status(cudaStream_t stream) {
    cudaStreamCaptureStatus found{};
    EXPECT_EQ(cudaStreamIsCapturing(stream, &found), cudaSuccess);
    return found;
  }
  void SetUp() override {
    EXPECT_EQ(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaStreamDestroy(captured), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    FakeCuda::TearDown();
  }
  cudaStream_t captured = nullptr, other = nullptr;
  cudaEvent_t event = nullptr;
};

// Calls that may wait or allocate; in a thread of relaxed mode they do what they should.
std::vector<std::pair<const char*, std::function<int()>>> unsafe_calls(cudaEvent_t event,
                                                                       cudaStream_t stream) {
  static void* memory = nullptr;
  static CUdeviceptr range = 0;
  return {{"cudaMalloc", [] { return cudaMalloc(&memory, 100); }},
          {"cudaFree", [] { return cudaFree(memory); }},
          {"cudaMallocHost", [] { return cudaMallocHost(&memory, 100); }},
          {"cudaFreeHost", [] { return cudaFreeHost(memory); }},
          {"cudaEventQuery", [=] { return cudaEventQuery(event); }},
          {"cudaEventSynchronize", [=] { return cudaEventSynchronize(event); }},
          {"cudaStreamSynchronize", [=] { return cudaStreamSynchronize(stream); }},
          {"cuMemAddressReserve", [] { return cuMemAddressReserve(&range, std::size_t{2} << 20, 0, 0, 0); }},
          {"cuMemAddressFree", [] { return cuMemAddressFree(range, std::size_t{2} << 20); }}};
}

TEST_F(CaptureTest, AnUnsafeCallIsRefusedAndEndsTheCapture) {
  for (const auto& [name, call] : unsafe_calls(event, other)) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, name);
    begin();
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(status(captured), cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(status(captured), cudaStreamCaptureStatusNone);
  }
}

TEST_F(CaptureTest, ARelaxedThreadMayDoAllOfIt) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  begin();
  for (const auto& [name, call] : unsafe_calls(event, other)) EXPECT_EQ(call(), 0) << name;
  EXPECT_EQ(end(), cudaSuccess);
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
}

TEST_F(CaptureTest, NobodyCanWaitForADeviceOrContextWhoseStreamIsCaptured) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  for (const auto& call :
       {std::function<int()>(cudaDeviceSynchronize), std::function<int()>(cuCtxSynchronize)}) {
    begin(cudaStreamCaptureModeRelaxed);
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(call(), 0);
  }
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
}

TEST_F(CaptureTest, OtherThreadsAreForbiddenByTheDefaultModeAlone) {
  for (const cudaStreamCaptureMode mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    begin(mode);
    const bool is_global = mode == cudaStreamCaptureModeGlobal;
    std::thread([&] {
      EXPECT_EQ(cudaEventQuery(event), is_global ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    }).join();
    EXPECT_EQ(end(), is_global ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
  }
}

TEST_F(CaptureTest, WorkIsTakenAndNotDone) {
  const TestBuffer<int> buffer(std::vector<int>{1});
  begin();
  EXPECT_EQ(cudaMemsetAsync(buffer.data(), 0, sizeof(int), captured), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(buffer.read(), std::vector<int>{1});
}

TEST_F(CaptureTest, AnEventOfACaptureCannotBeAsked) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  begin();
  ASSERT_EQ(cudaEventRecord(event, captured), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaEventRecord(event, captured), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
}

TEST_F(CaptureTest, WaitsStayWithinTheCapture) {
  ASSERT_EQ(cudaEventRecord(event, other), cudaSuccess);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(captured, event, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);

  begin();
  ASSERT_EQ(cudaEventRecord(event, captured), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  EXPECT_EQ(status(other), cudaStreamCaptureStatusActive);
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);

  const TestEvent back;
  begin();
  ASSERT_EQ(cudaEventRecord(event, captured), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(back, other), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(captured, back, 0), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(status(other), cudaStreamCaptureStatusNone);
}

TEST_F(CaptureTest, TheDefaultStreamHasPartInCapturesOfBlockingStreams) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  cudaStreamCaptureStatus found{};
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaStreamIsCapturing(cudaStreamLegacy, &found), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(status(blocking), cudaStreamCaptureStatusActive);
  EXPECT_EQ(cudaEventRecord(event, cudaStreamLegacy), cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

}  // namespace
}  // namespace fake_cuda_test
