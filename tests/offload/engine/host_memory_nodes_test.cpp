// Host memory of an engine on a card that is at the first of two NUMA nodes (tests/device/two_nodes.xml),
// over the fakes.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>

#include "offload/engine/host_memory.h"
#include "stowage/cuda_device.h"

namespace stowage {
namespace {

constexpr unsigned long first_node = 1;   // a set of nodes, by bits
constexpr unsigned long most_nodes = 65;  // bits of a set, and one as the kernel counts them
constexpr int prefers = 1;                // MPOL_PREFERRED
constexpr unsigned long of_address = 2;   // MPOL_F_ADDR

// The nodes that pages at `address` go to before others; none where nothing was said.
unsigned long nodes_of(const std::byte* address) {
  int policy = 0;
  unsigned long nodes = 0;
  EXPECT_EQ(syscall(SYS_get_mempolicy, &policy, &nodes, most_nodes, address, of_address), 0);
  return policy == 0 ? 0 : nodes;
}

// Containers may forbid it.
bool may_bind() {
  constexpr Bytes bytes = 4_KiB;
  void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool may = syscall(SYS_mbind, page, bytes, prefers, &first_node, most_nodes, 0) == 0;
  munmap(page, bytes);
  return may;
}

TEST(HostMemoryNodes, AllOfItIsAtTheCardsNode) {
  if (!may_bind()) GTEST_SKIP() << "this process may not choose NUMA nodes";
  Plan plan;
  plan.undo_bytes = 1_MiB;
  plan.buckets.resize(2);
  for (const std::size_t id : {0U, 1U}) {
    plan.buckets[id].bytes = 1_MiB;
    plan.buckets[id].places = {{MemoryId::host, id == 1}};
  }
  const auto card = open_cuda_device();
  const HostMemory host(*card, plan);
  EXPECT_EQ(nodes_of(host.bucket(0)), first_node) << "pageable";
  EXPECT_EQ(nodes_of(host.bucket(1)), first_node) << "pinned";
  EXPECT_EQ(nodes_of(host.undo().data()), first_node);
  const auto elsewhere = std::make_unique<std::byte[]>(1);
  EXPECT_EQ(nodes_of(elsewhere.get()), 0U);
}

}  // namespace
}  // namespace stowage
