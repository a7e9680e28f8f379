// Running one kernel launch: what goes in, what comes out.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "caches.hpp"
#include "hip_abi.hpp"
#include "model.hpp"

namespace emulator {

constexpr unsigned MOST_PARAMETERS = 64;

struct Dim {
  unsigned x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// How a loaded module describes one kernel: see `transferbench::entry` in device.h.
struct KernelEntry {
  const char* name;
  void (*function)();
  void (*invoke)(void (*function)(), void** arguments);
  const unsigned* sizes;       // of the parameters, ended by 0
  const unsigned* alignments;  // of the parameters
};

struct Module {
  void* handle = nullptr;
  int device = 0;
  int file = -1;
  uintptr_t low = 0, high = 0;  // where its code and data lie
  size_t tls_id = 0, tls_size = 0;
  std::vector<void*> adopted;  // its writable data, known to Memory
};

struct Stamp {
  uint64_t* where;
  int stop;
};

// What all blocks together did in their lap of one number, for kernels that say where a lap ends.
struct Lap {
  Ways ways;
  unsigned drains = 0, write_backs = 0;  // the most that one thread made
  std::vector<uint64_t*> stamps;         // where the end of this lap is wanted
};

struct Launch {
  int device = 0;
  std::shared_ptr<Module> module;
  const KernelEntry* kernel = nullptr;
  std::vector<std::vector<char>> arguments;
  Dim grid, block;
};

struct GridOutcome {
  hipError_t error = hipSuccess;
  Traffic traffic;        // without that of `laps`
  std::vector<Lap> laps;  // none in most kernels
  std::vector<Stamp> stamps;
  uint64_t clock_reads = 0;  // the most that one thread which never polled made
  bool polled_host = false;
  double host_seen = 0;  // the host's virtual clock when host memory was polled last
};

// Runs all blocks and returns when the last has ended. `start_ticks` is what the kernel's clock shows at first.
GridOutcome run_grid(const Launch& launch, uint64_t start_ticks);

// While one of these lives, those who run blocks say when nothing of them can go on, having looked once more.
class Asking {
 public:
  Asking();
  ~Asking();
};

// Whether no block of a grid can go on: all look at words that are as they were when they were looked at last. That of
// one that looks at words which cannot be watched is believed only if it has `just` been asked.
bool is_stuck(Grid& grid, bool just_asked);

// Takes a grid that looks at memory again and again, and never rests, for one that waits.
void let_be(Grid& grid);

}  // namespace emulator
