// The memory-side caches of the physical GPUs and the translations of each device: what decides whether a read is
// answered by the link or by something nearer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "memory.hpp"
#include "timeline.hpp"

namespace emulator {

constexpr unsigned LINE_SHIFT = 7;
constexpr size_t LINE = size_t{1} << LINE_SHIFT;

// The lines of one allocation that an operation reads, one byte a line: threads mark them without asking each other.
class Footprint {
 public:
  explicit Footprint(const Allocation& allocation);
  uint8_t* marks() { return reinterpret_cast<uint8_t*>(marks_.get()); }
  void mark(size_t offset, size_t nbytes);

  const uintptr_t base;
  const uint64_t number;  // of the allocation
  const int owner;

 private:
  friend class Cache;
  friend class Translations;
  // Eight lines a word; the first byte of a word is the line with the lowest address.
  struct Free { void operator()(uint64_t* words) const; };
  const size_t words_;
  std::unique_ptr<uint64_t[], Free> marks_;
};

// What one operation moved over the way between its device and the memory of one owner.
struct Way {
  uint64_t bytes = 0;
  unsigned blocks = 0;  // that moved something over it: each keeps one compute unit busy
  uint64_t xccs = 0;    // the dies that these blocks ran on, a bit each
};

// What one operation, or a part of one, moved. Index 0 is the host, index d + 1 is device d.
struct Ways {
  std::vector<Way> read, written;
  Ways() : read(model().devices + 1), written(model().devices + 1) {}
};

struct Traffic : Ways {
  // By number: what a cache keeps must not depend on which thread came first. Empty where the model has nothing to look
  // up.
  std::vector<std::unique_ptr<Footprint>> footprints;
};

// What the reads of one operation found.
struct Found {
  std::vector<uint64_t> missed;   // bytes that had to come from memory, by owner as in Traffic
  bool translation_lost = false;  // of another device's memory
};

// Whether reads have to be remembered line by line in this model.
bool reads_are_looked_up();

// Looks up what an operation of `device` has read, and remembers it for the operations after it; with the caches
// untouched all reads have missed.
Found look_up(int device, const Traffic& traffic, Caches caches);

// Forgets an allocation that is gone, or lies elsewhere now.
void forget_reads(uintptr_t base);

}  // namespace emulator
