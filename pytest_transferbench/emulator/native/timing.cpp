#include "timing.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

namespace emulator {
namespace {

struct Counters {
  std::mutex mutex;
  std::map<std::pair<int, int>, uint64_t> bytes;
  std::map<std::pair<int, int>, uint64_t> xccs;
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

// The compute units that move data over a way: one a block, and no more than there are on the dies of these blocks.
int busy_units(const Way& way) {
  const int there = model().compute_units * __builtin_popcountll(way.xccs) / model().xccs;
  return std::min(static_cast<int>(way.blocks), there);
}

// A link goes no faster than the compute units that use it; what a unit does to its own GPU's memory is no limit.
double rate_of(const Link& link, const Way& way, double rate_of_a_unit) {
  if (!rate_of_a_unit || link.link_class == "local") return link.rate;
  return std::min(link.rate, busy_units(way) * rate_of_a_unit);
}

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

// The share of the reads from each owner that no cache answered.
std::vector<double> missed_share(const Found& found, const Traffic& traffic) {
  std::vector<double> shares;
  for (size_t slot = 0; slot < traffic.read.size(); ++slot) {
    const auto bytes = static_cast<double>(traffic.read[slot].bytes);
    shares.push_back(bytes > 0 ? static_cast<double>(found.missed[slot]) / bytes : 0);
  }
  return shares;
}

// What the data of one operation need of each resource, as seconds in which nothing else could use it.
class Needs {
 public:
  void of_cache(int gpu, double bytes) { of({Resource::CACHE, gpu, 0}, bytes / model().cache_rate); }
  void of_cpu(double share, double seconds) { of({Resource::CPU, HOST, 0}, share * seconds); }
  void of_reading(int owner, double bytes) { of_memory(Resource::MEMORY_READ, owner, bytes); }
  void of_writing(int owner, double bytes) { of_memory(Resource::MEMORY_WRITE, owner, bytes); }

  // Nothing where both ends are the same. From GPU to GPU, PCIe leads over the host links of both.
  void of_link(int from, int to, double bytes, double Link::* rate) {
    if (from == to) return;
    const Model& m = model();
    const Link& link = m.link(from, to);
    of({Resource::LINK, from, to}, bytes / link.*rate);
    if (from == HOST || to == HOST || link.type != LINK_TYPE_PCIE) return;
    of({Resource::LINK, from, HOST}, bytes / m.link(from, HOST).*rate);
    of({Resource::LINK, HOST, to}, bytes / m.link(HOST, to).*rate);
  }

  Flow flow(double bytes, double seconds) const {
    Flow made;
    made.rate = bytes / seconds;
    for (const auto& [resource, busy] : seconds_) made.uses.push_back({resource, std::min(1.0, busy / seconds)});
    return made;
  }

 private:
  void of(const Resource& resource, double seconds) {
    if (seconds > 0) seconds_[resource] += seconds;
  }

  void of_memory(Resource::Kind kind, int owner, double bytes) {
    const double rate = owner == HOST ? model().cpu.memory_rate : model().link(owner, owner).rate;
    if (rate > 0) of({kind, owner, 0}, bytes / rate);
  }

  std::map<Resource, double> seconds_;
};

}  // namespace

Price shader_price(const OperationStart& start, int device, const Traffic& traffic, Caches caches) {
  const Found found = look_up(device, traffic, caches);
  const std::vector<double> missed = missed_share(found, traffic);
  const Slowest reading = slowest_read(device, traffic, missed);
  const Slowest writing = slowest_write(device, traffic, reading.moves);
  Price price;
  if (!reading.moves && !writing.moves) {
    price.data_begin = price.data_end = price.at_least = start.at + model().launch;
    return price;
  }
  // The stores of a shader that reads wait for its first data, and meanwhile for the way they take.
  const double set_up = model().launch + std::max(reading.first, writing.first) +
                        (found.translation_lost ? model().cold_remote_read : 0);
  const double hidden = start.back_to_back ? model().overlap : 0;
  const double longest = std::max(reading.seconds, writing.seconds);
  price.data_begin = start.at + (set_up - hidden);
  price.data_end = start.at + (set_up - hidden + longest);
  price.at_least = start.at + set_up;
  price.data = Data::Moved;
  Needs needs;
  double most = 0;  // over any way
  for (int owner = HOST; owner < model().devices; ++owner) {
    const auto slot = static_cast<size_t>(owner + 1);
    const auto read = static_cast<double>(traffic.read[slot].bytes);
    if (read > 0 && missed[slot] < 1) needs.of_cache(model().physical_gpu(device), read);
    needs.of_reading(owner, missed[slot] * read);
    needs.of_link(owner, device, missed[slot] * read, &Link::rate);
    const auto written = static_cast<double>(traffic.written[slot].bytes);
    needs.of_link(device, owner, written, &Link::rate);
    needs.of_writing(owner, written);
    most = std::max({most, read, written});
  }
  price.flow = needs.flow(most, longest);
  return price;
}

std::vector<double> lap_ends(int device, const std::vector<Lap>& laps, const Ways& rest, const Traffic& all,
                             Caches caches) {
  const std::vector<double> missed = missed_share(look_up(device, all, caches), all);
  std::vector<double> ends;
  double at = 0;
  for (const Lap& lap : laps) ends.push_back(at += lap_seconds(device, lap, missed));
  ends.push_back(at + longest(device, rest, missed));
  return ends;
}

Price dma_price(const OperationStart& start, int from, int to, size_t nbytes, double issue) {
  const DmaEngine& engine = model().dma;
  const double link = model().link(from, to).dma_rate, bytes = static_cast<double>(nbytes);
  const bool small = nbytes <= engine.small_max;
  const double seconds = bytes / std::min(small ? engine.small_rate : engine.rate, link);
  Price price;
  if (small) {
    price.data_end = start.at + std::sqrt(issue * issue + seconds * seconds);
    price.data_begin = price.data_end - seconds;
  } else {
    price.data_begin = start.at + (engine.small_max ? engine.large_setup : issue);
    price.data_end = price.data_begin + seconds;
  }
  price.at_least = price.data_end;
  price.data = Data::Moved;
  Needs needs;
  needs.of_reading(from, bytes);
  needs.of_link(from, to, bytes, &Link::dma_rate);
  needs.of_writing(to, bytes);
  price.flow = needs.flow(bytes, seconds);
  return price;
}

// Every thread has its rate, for all that it reads and for all that it writes; together they go no faster than the link
// they share, or than all of the CPU.
Price host_copy_price(const OperationStart& start, const std::vector<int>& from, const std::vector<int>& to,
                      size_t nbytes, int threads) {
  const Model& m = model();
  const int working = std::min(threads, m.cpu.threads);
  const auto bytes = static_cast<double>(nbytes);
  double reading = 0, writing = 0, crossing = bytes / (working * m.cpu.local_rate);
  Needs needs;
  for (const int owner : from) {
    reading += bytes / (working * (owner == HOST ? m.cpu.local_rate : m.cpu.from_device_rate));
    if (owner != HOST) crossing = std::max(crossing, bytes / m.link(owner, HOST).rate);
    needs.of_reading(owner, bytes);
    needs.of_link(owner, HOST, bytes, &Link::rate);
  }
  for (const int owner : to) {
    writing += bytes / (working * (owner == HOST ? m.cpu.local_rate : m.cpu.to_device_rate));
    if (owner != HOST) crossing = std::max(crossing, bytes / m.link(HOST, owner).rate);
    needs.of_link(HOST, owner, bytes, &Link::rate);
    needs.of_writing(owner, bytes);
  }
  const double seconds = std::max({reading, writing, crossing});
  needs.of_cpu(static_cast<double>(working) / m.cpu.threads, seconds);
  Price price;
  price.data_begin = start.at;
  price.data_end = price.at_least = start.at + seconds;
  price.data = Data::Moved;
  price.flow = needs.flow(bytes, seconds);
  return price;
}

void add_bytes(Ways& to, const Ways& more) {
  for (size_t slot = 0; slot < to.read.size(); ++slot) {
    to.read[slot].bytes += more.read[slot].bytes;
    to.written[slot].bytes += more.written[slot].bytes;
    to.read[slot].xccs |= more.read[slot].xccs;
    to.written[slot].xccs |= more.written[slot].xccs;
  }
}

void count_moved(int device, const Ways& ways) {
  for (int owner = HOST; owner < model().devices; ++owner) {
    const auto slot = static_cast<size_t>(owner + 1);
    count_moved(owner, device, ways.read[slot].bytes);
    count_moved(device, owner, ways.written[slot].bytes);
    std::lock_guard lock(counters().mutex);
    counters().xccs[{owner, device}] |= ways.read[slot].xccs;
    counters().xccs[{device, owner}] |= ways.written[slot].xccs;
  }
}

uint64_t take_xccs(int from, int to) {
  std::lock_guard lock(counters().mutex);
  return std::exchange(counters().xccs[{from, to}], 0);
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
