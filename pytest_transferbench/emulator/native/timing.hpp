// The arithmetic of the virtual clock, in one place.
#pragma once
#include "grid.hpp"
#include "stream.hpp"

namespace emulator {

// What a shader that moved these bytes takes; counts them, and looks its reads up in the caches. Alone: F + bytes /
// rate over the way that takes longest, with F = launch + the longer of first[class of the way whose data it waits for]
// and first_store[class of the way it stores over] + the walk for a lost translation. Right behind another one its
// set-up hides behind the data still moving: max(F, F - overlap + bytes / rate).
OperationEnd shader_end(const OperationStart& start, int device, const Traffic& traffic);

// When each lap of a shader that went `laps` was over, in seconds since the first began: by the formula in
// models/mi300x-8.toml. The last entry is the end of the shader itself, with what `rest` says it moved after its last
// lap. Counts all of it, and looks its reads up in the caches.
std::vector<double> lap_ends(int device, const std::vector<Lap>& laps, Traffic rest);

// What a DMA engine takes for one copy: issue + bytes / rate, at the slower of engine and link.
OperationEnd dma_end(const OperationStart& start, int from, int to, size_t nbytes);

// Bytes that have moved from one owner to another, all operations together; HOST is allowed.
uint64_t moved_bytes(int from, int to);
void count_moved(int from, int to, uint64_t nbytes);

// How many copies ran on each kind of engine.
struct CopyCounts {
  uint64_t dma = 0, shader = 0;
};
CopyCounts copy_counts(int device);
void count_copy(int device, bool dma);

}  // namespace emulator
