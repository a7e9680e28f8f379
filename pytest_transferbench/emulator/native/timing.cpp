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

}  // namespace

OperationEnd shader_end(const OperationStart& start, int device, const Traffic& traffic) {
  double longest = 0, first = 0;
  auto consider = [&](uint64_t nbytes, const Link& link) {
    const double seconds = static_cast<double>(nbytes) / link.rate;
    if (seconds > longest) {
      longest = seconds;
      first = link.first;
    }
  };
  for (int owner = HOST; owner < model().devices; ++owner) {
    const auto slot = static_cast<size_t>(owner + 1);
    if (traffic.read[slot]) consider(traffic.read[slot], model().link(owner, device));
    if (traffic.written[slot]) consider(traffic.written[slot], model().link(device, owner));
  }
  if (longest == 0) return {start.at + model().launch, OperationEnd::Data::None, hipSuccess};
  const double set_up = model().launch + first;
  const double hidden = start.back_to_back ? model().overlap : 0;
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

void count_moved(int device, const Traffic& traffic) {
  for (int owner = HOST; owner < model().devices; ++owner) {
    const auto slot = static_cast<size_t>(owner + 1);
    count_moved(owner, device, traffic.read[slot]);
    count_moved(device, owner, traffic.written[slot]);
  }
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
