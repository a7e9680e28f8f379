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

// The way whose last data comes last, and what the first data over it costs.
struct Slowest {
  bool moves = false;
  double seconds = 0, first = 0;
  double longest = 0;  // what the data of any way takes once they flow

  void consider(double seconds_, double first_) {
    longest = std::max(longest, seconds_);
    if (moves && first_ + seconds_ <= first + seconds) return;
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

// `missed` is the share of the reads from each owner that no cache answered.
Slowest slowest_read(int device, const Ways& ways, const std::vector<double>& missed) {
  Slowest slowest;
  for (int owner = HOST; owner < model().devices; ++owner) {
    const auto slot = static_cast<size_t>(owner + 1);
    const Way& way = ways.read[slot];
    if (!way.bytes) continue;
    const Link& link = model().link(owner, device);
    const double bytes = static_cast<double>(way.bytes);
    const double from_link = missed[slot] * bytes / rate_of(link, way, model().remote_read_of_a_unit);
    const double from_cache = missed[slot] < 1 ? bytes / model().cache_rate : 0;
    slowest.consider(std::max(from_link, from_cache), missed[slot] > 0 ? link.first : 0);
  }
  return slowest;
}

Slowest slowest_write(int device, const Ways& ways, bool beside_reads) {
  Slowest slowest;
  for (int owner = HOST; owner < model().devices; ++owner) {
    const Way& way = ways.written[static_cast<size_t>(owner + 1)];
    if (!way.bytes) continue;
    const Link& link = model().link(device, owner);
    slowest.consider(static_cast<double>(way.bytes) / rate_of(link, way, model().remote_write_of_a_unit),
                     beside_reads ? link.first_store : link.first);
  }
  return slowest;
}

// The time of the way that takes longest, without what its first data costs.
double longest(int device, const Ways& ways, const std::vector<double>& missed) {
  return std::max(slowest_read(device, ways, missed).longest, slowest_write(device, ways, true).longest);
}

// Until the last of what was stored is seen where it was stored to.
double farthest(int device, const Ways& ways) {
  double one_way = 0;
  for (int owner = HOST; owner < model().devices; ++owner) {
    if (!ways.written[static_cast<size_t>(owner + 1)].bytes) continue;
    one_way = std::max(one_way, model().link(device, owner).one_way);
  }
  return one_way;
}

double lap_seconds(int device, const Lap& lap, const std::vector<double>& missed) {
  const double there_and_back = 2 * farthest(device, lap.ways), write_back = model().write_back;
  double behind_data = 0, last = 0;
  if (lap.drains) {
    behind_data += (lap.drains - 1) * there_and_back;
    last += there_and_back;
  }
  if (lap.write_backs) {
    behind_data += (lap.write_backs - 1) * write_back;
    last += write_back;
  }
  return std::max(longest(device, lap.ways, missed), behind_data) + last + there_and_back;
}

void add_bytes(std::vector<Way>& to, const std::vector<Way>& more) {
  for (size_t slot = 0; slot < to.size(); ++slot) to[slot].bytes += more[slot].bytes;
}

void count_all(int device, const Ways& ways) {
  for (int owner = HOST; owner < model().devices; ++owner) {
    const auto slot = static_cast<size_t>(owner + 1);
    count_moved(owner, device, ways.read[slot].bytes);
    count_moved(device, owner, ways.written[slot].bytes);
  }
}

std::vector<double> missed_share(const Found& found, const Traffic& traffic) {
  std::vector<double> shares;
  for (size_t slot = 0; slot < traffic.read.size(); ++slot) {
    const auto bytes = static_cast<double>(traffic.read[slot].bytes);
    shares.push_back(bytes > 0 ? static_cast<double>(found.missed[slot]) / bytes : 0);
  }
  return shares;
}

}  // namespace

OperationEnd shader_end(const OperationStart& start, int device, const Traffic& traffic) {
  count_all(device, traffic);
  const Found found = look_up(device, traffic);
  const Slowest reading = slowest_read(device, traffic, missed_share(found, traffic));
  const Slowest writing = slowest_write(device, traffic, reading.moves);
  if (!reading.moves && !writing.moves) return {start.at + model().launch, OperationEnd::Data::None, hipSuccess};
  // The stores of a shader that reads wait for its first data, and meanwhile for the way they take.
  const double set_up = model().launch + std::max(reading.first, writing.first) +
                        (found.translation_lost ? model().cold_remote_read : 0);
  const double hidden = start.back_to_back ? model().overlap : 0;
  const double longest = std::max(reading.seconds, writing.seconds);
  return {start.at + std::max(set_up, set_up - hidden + longest), OperationEnd::Data::Moved, hipSuccess};
}

std::vector<double> lap_ends(int device, const std::vector<Lap>& laps, Traffic rest) {
  const Ways after = rest;
  for (const Lap& lap : laps) {
    add_bytes(rest.read, lap.ways.read);
    add_bytes(rest.written, lap.ways.written);
  }
  count_all(device, rest);
  const std::vector<double> missed = missed_share(look_up(device, rest), rest);
  std::vector<double> ends;
  double at = 0;
  for (const Lap& lap : laps) ends.push_back(at += lap_seconds(device, lap, missed));
  ends.push_back(at + longest(device, after, missed));
  return ends;
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
