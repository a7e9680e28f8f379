// Stacks that one OS thread switches between, so that a GPU thread can wait in the middle of a kernel.
#pragma once
#include <cstddef>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulator {

#if defined(__x86_64__)
using Context = void*;  // the stack pointer; everything else is on the stack
#else
using Context = ucontext_t;
#endif

// Makes `context` start in `entry` at its first switch. `entry` must never return.
void prepare(Context& context, char* stack, size_t size, void (*entry)());

// Saves the running context in `from` and continues `to`.
void switch_context(Context& from, Context& to);

// Fetches what continuing `context` will touch first. With thousands of waiting threads nothing of a stack is in a
// cache any more, and its page is unknown to the processor, when its turn comes.
inline void prefetch([[maybe_unused]] const Context& context) {
#if defined(__x86_64__)
  constexpr int lines = 8;
  for (int line = 0; line < lines; ++line) __builtin_prefetch(static_cast<const char*>(context) + 64 * line, 1);
#endif
}

// Hands out equal stacks and takes them back. Not shared between OS threads.
class StackPool {
 public:
  static constexpr size_t STACK = 64 << 10;
  ~StackPool();
  char* take();
  void give(char* stack) { free_.push_back(stack); }
  void trim();  // returns memory to the system when everything has been given back

 private:
  static constexpr size_t STACKS_A_SLAB = 64;
  std::vector<char*> slabs_, free_;
};

}  // namespace emulator
