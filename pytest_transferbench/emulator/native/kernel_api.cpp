// The functions that kernels call: who they are, barriers, votes, clocks. Declared in device.h and, for the plugin's
// own kernels, in hipkernels/portability.h.
#include <time.h>

#include <cstring>

#include "block.hpp"
#include "runtime.hpp"

using namespace emulator;

HIP_API Dim transferbench_emulator_thread_index() { return thread_state.fibre->index; }
HIP_API Dim transferbench_emulator_block_index() { return thread_state.block->index; }
HIP_API Dim transferbench_emulator_block_dim() { return thread_state.block->block_dim; }
HIP_API Dim transferbench_emulator_grid_dim() { return thread_state.block->grid_dim; }
// Blocks are dealt out to the dies in turn, as Instinct GPUs do.
HIP_API unsigned transferbench_emulator_xcc() {
  const Dim index = thread_state.block->index, grid = thread_state.block->grid_dim;
  const unsigned place = (index.z * grid.y + index.y) * grid.x + index.x;
  return place % static_cast<unsigned>(model().xccs);
}

HIP_API unsigned transferbench_emulator_thread() { return thread_state.fibre->thread; }

HIP_API unsigned transferbench_emulator_barrier(int predicate) {
  thread_state.block->barrier(predicate != 0);
  return thread_state.block->barrier_result;
}

HIP_API uint64_t transferbench_emulator_ballot(int predicate, int line) {
  thread_state.block->vote(predicate != 0, line);
  return thread_state.block->wave_of(thread_state.fibre->thread).ballot;
}

// The value that lane `from` of this wavefront brought, or the caller's own when that lane did not take part.
HIP_API uint64_t transferbench_emulator_lane(uint64_t value, int from, int line) {
  thread_state.block->vote(value, line);
  const Block& block = *thread_state.block;
  const Wave& wave = thread_state.block->wave_of(thread_state.fibre->thread);
  const bool there = from >= 0 && from < static_cast<int>(block.width) && (wave.present >> from & 1);
  return there ? wave.snapshot[from] : value;
}

HIP_API void transferbench_emulator_pause() { thread_state.block->yield(); }

HIP_API unsigned long long transferbench_emulator_ticks() { return thread_state.block->grid->start_ticks; }

// A thread that reads the clock in a loop must see it move: every read is one tick later than the one before.
HIP_API unsigned long long transferbench_emulator_running_ticks() {
  return thread_state.block->grid->start_ticks + thread_state.fibre->clock_reads++;
}

HIP_API unsigned long long transferbench_emulator_real_ticks() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<unsigned long long>(now.tv_sec) * 100'000'000 + static_cast<unsigned long long>(now.tv_nsec) / 10;
}

// The virtual end of a launch is known when all its blocks have ended, so stamps are written then. They are a
// measuring device, not traffic: checked like a store, but not counted.
HIP_API void transferbench_emulator_stamp(unsigned long long* where, int stop) {
  thread_state.worker->locate(WRITE, reinterpret_cast<uintptr_t>(where), sizeof *where);
  thread_state.block->stamps.push_back({reinterpret_cast<uint64_t*>(where), stop});
}

// Thread 0 of every block calls this at the end of each of its laps, `where` being null in blocks that stamp nothing.
// By then all threads of the block have moved what belongs to the lap, and none goes on to the next before it: what a
// lap takes is computed from the laps of this number of all blocks.
HIP_API void transferbench_emulator_lap(unsigned long long* where) {
  if (where) thread_state.worker->locate(WRITE, reinterpret_cast<uintptr_t>(where), sizeof *where);
  thread_state.block->end_lap(reinterpret_cast<uint64_t*>(where));
}

// Waits until this thread's stores are acknowledged; with `writes_back` it is a fence at system scope, which waits as
// well and writes caches back. On the virtual clock only: stores here are in order anyhow.
HIP_API void transferbench_emulator_drain(int writes_back) {
  __atomic_thread_fence(writes_back ? __ATOMIC_SEQ_CST : __ATOMIC_RELEASE);
  thread_state.block->drain(writes_back != 0);
}

namespace {

void check(Direction direction, const void* pointer, size_t nbytes) {
  if (!thread_state.fibre || !nbytes) return;
  AccessRange* range = thread_state.worker->locate(direction, reinterpret_cast<uintptr_t>(pointer), nbytes);
  if (range) thread_state.worker->count(direction, *range, nbytes);
}

}  // namespace

HIP_API void* transferbench_emulator_memcpy(void* destination, const void* source, size_t nbytes) {
  check(READ, source, nbytes);
  check(WRITE, destination, nbytes);
  return std::memmove(destination, source, nbytes);
}

HIP_API void* transferbench_emulator_memset(void* destination, int value, size_t nbytes) {
  check(WRITE, destination, nbytes);
  return std::memset(destination, value, nbytes);
}
