// The arithmetic of the virtual clock, in one place: what an operation takes while nothing else is under way, and what
// it needs meanwhile.
#pragma once
#include "grid.hpp"
#include "timeline.hpp"

namespace emulator {

// A shader that moved these bytes. Alone: F + bytes / rate over the way that takes longest, with F = launch + the
// longer of first[class of the way whose data it waits for] and first_store[class of the way it stores over] + the walk
// for a lost translation. Right behind another one its set-up hides behind the data still moving:
// max(F, F - overlap + bytes / rate).
Price shader_price(const OperationStart& start, int device, const Traffic& traffic, Caches caches);

// When each lap of a shader that went `laps` was over, in seconds since the first began: by the formula in
// models/mi300x-8.toml. The last entry is the end of the shader itself, with what `rest` says it moved after its last
// lap; `all` is what it moved together.
std::vector<double> lap_ends(int device, const std::vector<Lap>& laps, const Ways& rest, const Traffic& all,
                             Caches caches);

// A copy that a DMA engine makes, or a shader where the engines' curve is its, too: issue + bytes / rate, at the slower
// of engine and link, or the two curves of models/mi300x-8.toml.
Price dma_price(const OperationStart& start, int from, int to, size_t nbytes, double issue);

// A copy by threads of the host, from the memory of these owners into that of those.
Price host_copy_price(const OperationStart& start, const std::vector<int>& from, const std::vector<int>& to,
                      size_t nbytes, int threads);

// Adds what a lap moved to what all moved.
void add_bytes(Ways& to, const Ways& more);

// Bytes that have moved from one owner to another, all operations together; HOST is allowed.
uint64_t moved_bytes(int from, int to);
void count_moved(int from, int to, uint64_t nbytes);
void count_moved(int device, const Ways& ways);

// The dies whose blocks have moved data from one owner to another since this was last asked, a bit each.
uint64_t take_xccs(int from, int to);

// How many copies ran on each kind of engine.
struct CopyCounts {
  uint64_t dma = 0, shader = 0;
};
CopyCounts copy_counts(int device);
void count_copy(int device, bool dma);

}  // namespace emulator
