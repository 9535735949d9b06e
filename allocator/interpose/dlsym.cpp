// dlsym, as programs see it: functions of the driver are replaced. The static CUDA runtime finds the driver
// this way.
//
// RTLD_DEFAULT and RTLD_NEXT mean the object that calls, which the loader's dlsym knows by its return
// address. Calls with these handles are passed on by a jump, with the caller's return address
// still on the stack.
#include <dlfcn.h>

#include "allocator/interpose/driver.h"

#ifndef __x86_64__
#error "the interposer is written for x86-64"
#endif

// Only the assembly below calls these two functions.
extern "C" {
__attribute__((visibility("hidden"), used)) void* stowage_dlsym(void* library, const char* symbol,
                                                                const void* caller) {
  using namespace stowage::interpose;  // NOLINT(google-build-using-namespace)
  void* const found = real_dlsym(library, symbol);
  if (found == nullptr || symbol == nullptr || in_driver(caller)) return found;
  return substitute_symbol(symbol, found);
}

__attribute__((visibility("hidden"), used)) void* stowage_loader_dlsym() {
  return stowage::interpose::loader_dlsym();
}
}

__asm__(R"(
  .text
  .globl dlsym
  .type dlsym, @function
dlsym:
  .cfi_startproc
  endbr64
  leaq 1(%rdi), %rax        # RTLD_NEXT is -1, RTLD_DEFAULT is 0
  cmpq $1, %rax
  jbe 1f
  movq (%rsp), %rdx         # who calls
  jmp stowage_dlsym
1:
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call stowage_loader_dlsym
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  jmp *%rax
  .cfi_endproc
  .size dlsym, .-dlsym
)");
