#include "timing.hpp"

#include <algorithm>

namespace emulator {
namespace {

struct Counters {
  std::mutex mutex;
  std::map<std::pair<int, int>, uint64_t> bytes;
  std::map<int, CopyCounts> copies;
};

Counters& counters() {
  static Counters* instance = new Counters;
  return *instance;
}

// The way that takes longest, and what the first data over it costs.
struct Slowest {
  bool moves = false;
  double seconds = 0, first = 0;

  void consider(double seconds_, double first_) {
    if (moves && seconds_ <= seconds) return;
    moves = true;
    seconds = seconds_;
    first = first_;
  }
};

// A link goes no faster than the compute units that use it; what a unit does to its own GPU's memory is no limit.
double rate_of(const Link& link, const Way& way, double rate_of_a_unit) {
  if (!rate_of_a_unit || link.link_class == "local") return link.rate;
  return std::min(link.rate, std::min<int>(way.blocks, model().compute_units) * rate_of_a_unit);
}

Slowest slowest_read(int device, const Traffic& traffic, const Found& found) {
  Slowest slowest;
  for (int owner = HOST; owner < model().devices; ++owner) {
    const auto slot = static_cast<size_t>(owner + 1);
    const Way& way = traffic.read[slot];
    if (!way.bytes) continue;
    const Link& link = model().link(owner, device);
    const double missed = static_cast<double>(found.missed[slot]);
    const double from_link = missed / rate_of(link, way, model().remote_read_of_a_unit);
    const double from_cache = found.missed[slot] < way.bytes ? static_cast<double>(way.bytes) / model().cache_rate : 0;
    slowest.consider(std::max(from_link, from_cache), found.missed[slot] ? link.first : 0);
  }
  return slowest;
}

Slowest slowest_write(int device, const Traffic& traffic) {
  Slowest slowest;
  for (int owner = HOST; owner < model().devices; ++owner) {
    const Way& way = traffic.written[static_cast<size_t>(owner + 1)];
    if (!way.bytes) continue;
    const Link& link = model().link(device, owner);
    slowest.consider(static_cast<double>(way.bytes) / rate_of(link, way, model().remote_write_of_a_unit), link.first);
  }
  return slowest;
}

void count_all(int device, const Traffic& traffic) {
  for (int owner = HOST; owner < model().devices; ++owner) {
    const auto slot = static_cast<size_t>(owner + 1);
    count_moved(owner, device, traffic.read[slot].bytes);
    count_moved(device, owner, traffic.written[slot].bytes);
  }
}

}  // namespace

OperationEnd shader_end(const OperationStart& start, int device, const Traffic& traffic) {
  count_all(device, traffic);
  const Found found = look_up(device, traffic);
  const Slowest reading = slowest_read(device, traffic, found), writing = slowest_write(device, traffic);
  if (!reading.moves && !writing.moves) return {start.at + model().launch, OperationEnd::Data::None, hipSuccess};
  // A shader that reads waits for its first data; stores alone wait for nothing but the way they take.
  const double set_up = model().launch + (reading.moves ? reading.first : writing.first) +
                        (found.translation_lost ? model().cold_remote_read : 0);
  const double hidden = start.back_to_back ? model().overlap : 0;
  const double longest = std::max(reading.seconds, writing.seconds);
  return {start.at + std::max(set_up, set_up - hidden + longest), OperationEnd::Data::Moved, hipSuccess};
}

OperationEnd dma_end(const OperationStart& start, int from, int to, size_t nbytes) {
  const DmaEngine& engine = model().dma;
  const double rate = std::min(engine.rate, model().link(from, to).rate);
  return {start.at + engine.issue + static_cast<double>(nbytes) / rate, OperationEnd::Data::Moved, hipSuccess};
}

uint64_t moved_bytes(int from, int to) {
  std::lock_guard lock(counters().mutex);
  return counters().bytes[{from, to}];
}

void count_moved(int from, int to, uint64_t nbytes) {
  if (!nbytes) return;
  std::lock_guard lock(counters().mutex);
  counters().bytes[{from, to}] += nbytes;
}

CopyCounts copy_counts(int device) {
  std::lock_guard lock(counters().mutex);
  return counters().copies[device];
}

void count_copy(int device, bool dma) {
  std::lock_guard lock(counters().mutex);
  CopyCounts& counts = counters().copies[device];
  ++(dma ? counts.dma : counts.shader);
}

}  // namespace emulator
