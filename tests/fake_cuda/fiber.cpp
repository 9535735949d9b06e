#include "tests/fake_cuda/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "fiber.cpp: write the stack switch for this processor"
#endif

extern "C" void fake_cuda_switch_stack(void** save, void* load);

// Saves what a call must keep on the old stack, and takes it from the new one.
__asm__(R"(
.text
.type fake_cuda_switch_stack, @function
.hidden fake_cuda_switch_stack
.globl fake_cuda_switch_stack
fake_cuda_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fake_cuda_switch_stack, .-fake_cuda_switch_stack

# The first switch to a fiber returns here, with the fiber in rbx and its function in r12.
.type fake_cuda_enter_fiber, @function
.hidden fake_cuda_enter_fiber
.globl fake_cuda_enter_fiber
fake_cuda_enter_fiber:
  movq %rbx, %rdi
  callq *%r12
  ud2
.size fake_cuda_enter_fiber, .-fake_cuda_enter_fiber
)");
extern "C" void fake_cuda_enter_fiber();

namespace fake_cuda {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t stack_bytes = std::size_t{256} << 10;

// Stacks that began at the same offset in a page would all want the same lines of the cache.
std::size_t next_offset() {
  static thread_local std::size_t count = 0;
  return count++ * 320 % page;
}

}  // namespace

Fiber::Fiber() = default;

Fiber::Fiber(void (*entry)(void*), void* argument) : entry_(entry), argument_(argument) {
  mapping_ = mmap(nullptr, page + stack_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(mapping_, page, PROT_NONE);
  bottom_ = static_cast<std::byte*>(mapping_) + page;
  bytes_ = stack_bytes;
  // As fake_cuda_switch_stack leaves a stack: r15, r14, r13, r12, rbx, rbp, the return address. Behind that
  // the stack must be 16-byte aligned, for the call in fake_cuda_enter_fiber.
  const std::uintptr_t top = reinterpret_cast<std::uintptr_t>(bottom_) + bytes_ - next_offset();
  auto* frame = reinterpret_cast<std::uintptr_t*>(top) - 9;  // NOLINT(performance-no-int-to-ptr)
  void (*const begin_function)(Fiber*) = &Fiber::begin;
  frame[3] = reinterpret_cast<std::uintptr_t>(begin_function);
  frame[4] = reinterpret_cast<std::uintptr_t>(this);
  frame[6] = reinterpret_cast<std::uintptr_t>(&fake_cuda_enter_fiber);
  stack_pointer_ = frame;
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
#ifdef __SANITIZE_ADDRESS__
  // What was on it was never left; whoever is given these addresses next must not find its guards.
  __asan_unpoison_memory_region(bottom_, bytes_);
#endif
  munmap(mapping_, page + stack_bytes);
}

void Fiber::begin(Fiber* fiber) {
  fiber->arrived();
  fiber->entry_(fiber->argument_);
  std::abort();
}

void Fiber::arrived() {
#ifdef __SANITIZE_ADDRESS__
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(sanitizer_stack_, &bottom, &bytes);
  if (from_->mapping_ == nullptr) {
    from_->bottom_ = bottom;
    from_->bytes_ = bytes;
  }
#endif
}

void Fiber::switch_to(Fiber& to) {
  to.from_ = this;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&sanitizer_stack_, to.bottom_, to.bytes_);
#endif
  fake_cuda_switch_stack(&stack_pointer_, to.stack_pointer_);
  arrived();
}

}  // namespace fake_cuda
