#include "fibre.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace emulator {

#if defined(__x86_64__)

// Only what the calling convention preserves has to be kept: six registers and the stack pointer.
extern "C" void transferbench_switch_stacks(void** from, void* to);
asm(R"(
    .text
    .hidden transferbench_switch_stacks
    .globl transferbench_switch_stacks
    .type transferbench_switch_stacks, @function
transferbench_switch_stacks:
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
    .size transferbench_switch_stacks, . - transferbench_switch_stacks
)");

void prepare(Context& context, char* stack, size_t size, void (*entry)()) {
  auto top = reinterpret_cast<uintptr_t>(stack + size) & ~uintptr_t{15};
  auto* words = reinterpret_cast<void**>(top);
  *--words = nullptr;  // where `entry` would return to; also gives it the alignment of a called function
  *--words = reinterpret_cast<void*>(entry);
  for (int saved = 0; saved < 6; ++saved) *--words = nullptr;
  context = words;
}

void switch_context(Context& from, Context& to) { transferbench_switch_stacks(&from, to); }

#else

void prepare(Context& context, char* stack, size_t size, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = size;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}

void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }

#endif

StackPool::~StackPool() {
  for (char* slab : slabs_) munmap(slab, STACK * STACKS_A_SLAB);
}

char* StackPool::take() {
  if (free_.empty()) {
    void* slab = mmap(nullptr, STACK * STACKS_A_SLAB, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) {
      std::fprintf(stderr, "transferbench emulator: no memory for the stacks of GPU threads\n");
      std::abort();
    }
    madvise(slab, STACK * STACKS_A_SLAB, MADV_NOHUGEPAGE);  // most stacks touch a page or two
    slabs_.push_back(static_cast<char*>(slab));
    for (size_t i = STACKS_A_SLAB; i-- > 0;) free_.push_back(static_cast<char*>(slab) + i * STACK);
  }
  char* stack = free_.back();
  free_.pop_back();
  return stack;
}

void StackPool::trim() {
  if (slabs_.size() <= 1 || free_.size() != slabs_.size() * STACKS_A_SLAB) return;
  for (char* slab : slabs_) munmap(slab, STACK * STACKS_A_SLAB);
  slabs_.clear();
  free_.clear();
}

}  // namespace emulator
