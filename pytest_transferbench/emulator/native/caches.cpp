#include "caches.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>

namespace emulator {

void Footprint::Free::operator()(uint64_t* words) const { std::free(words); }

// calloc: pages of lines that nobody reads stay untouched.
Footprint::Footprint(const Allocation& allocation)
    : base(allocation.base),
      number(allocation.number),
      owner(allocation.owner),
      words_(allocation.size / (8 * LINE) + 1),
      marks_(static_cast<uint64_t*>(std::calloc(words_, sizeof(uint64_t)))) {}

void Footprint::mark(size_t offset, size_t nbytes) {
  if (!nbytes) return;
  const size_t first = offset >> LINE_SHIFT, last = (offset + nbytes - 1) >> LINE_SHIFT;
  std::memset(marks() + first, 1, last - first + 1);
}

namespace {

constexpr size_t WORDS_A_CHUNK = 64;  // marks are looked at 512 lines at a time

uint64_t lines_in(uint64_t marks) { return static_cast<uint64_t>(__builtin_popcountll(marks)); }

}  // namespace

// Least recently used lines of one physical GPU, kept in chunks that age together: within a chunk the order of reads
// is not known, because its lines are read by threads that run side by side on a real GPU.
class Cache {
 public:
  struct Lines {
    uint64_t read = 0, missed = 0;
  };

  Lines read(const Footprint& footprint) {
    Lines lines;
    for (size_t word = 0; word < footprint.words_; word += WORDS_A_CHUNK) {
      const size_t count = std::min(WORDS_A_CHUNK, footprint.words_ - word);
      const uint64_t* marks = footprint.marks_.get() + word;
      if (std::all_of(marks, marks + count, [](uint64_t eight) { return eight == 0; })) continue;
      touch({footprint.base, word}, marks, count, lines);
    }
    return lines;
  }

  void forget(uintptr_t base) {
    chunks_.remove_if([&](const Chunk& chunk) {
      if (chunk.where.first != base) return false;
      held_ -= chunk.lines;
      places_.erase(chunk.where);
      return true;
    });
  }

 private:
  using Where = std::pair<uintptr_t, size_t>;
  struct Chunk {
    Where where;
    uint64_t lines = 0;
    uint64_t marks[WORDS_A_CHUNK] = {};
  };

  void touch(const Where& where, const uint64_t* marks, size_t count, Lines& lines) {
    const auto known = places_.find(where);
    if (known == places_.end()) {
      chunks_.emplace_front();
      chunks_.front().where = where;
      places_[where] = chunks_.begin();
    } else {
      chunks_.splice(chunks_.begin(), chunks_, known->second);
    }
    Chunk& chunk = chunks_.front();
    for (size_t i = 0; i < count; ++i) {
      const uint64_t fresh = lines_in(marks[i] & ~chunk.marks[i]);
      lines.read += lines_in(marks[i]);
      lines.missed += fresh;
      chunk.lines += fresh;
      held_ += fresh;
      chunk.marks[i] |= marks[i];
    }
    while (held_ * LINE > model().cache_capacity) {
      held_ -= chunks_.back().lines;
      places_.erase(chunks_.back().where);
      chunks_.pop_back();
    }
  }

  std::list<Chunk> chunks_;  // the latest first
  std::map<Where, std::list<Chunk>::iterator> places_;
  uint64_t held_ = 0;  // lines
};

// The allocations whose translations one device still has, and the bytes it has read elsewhere since.
class Translations {
 public:
  // Returns whether the translation of another device's memory was lost.
  bool use(int device, const Traffic& traffic) {
    std::map<uintptr_t, uint64_t> read;
    uint64_t total = 0;
    bool lost = false;
    for (const auto& footprint : traffic.footprints) {
      uint64_t lines = 0;
      for (size_t word = 0; word < footprint->words_; ++word) lines += lines_in(footprint->marks_[word]);
      if (!lines) continue;
      total += lines * LINE;
      lost |= footprint->owner != device && footprint->owner != HOST && !ages_.count(footprint->base);
      read[footprint->base] = 0;
    }
    for (const auto& [base, age] : ages_) {
      if (age + total < model().translation_reach) read.emplace(base, age + total);
    }
    ages_ = std::move(read);
    return lost;
  }

  void forget(uintptr_t base) { ages_.erase(base); }

 private:
  std::map<uintptr_t, uint64_t> ages_;
};

namespace {

struct Memories {
  std::mutex mutex;
  std::map<int, Cache> caches;  // by physical GPU
  std::map<int, Translations> translations;  // by device
};

Memories& memories() {
  static Memories* instance = new Memories;
  return *instance;
}

}  // namespace

bool reads_are_looked_up() { return model().cache_capacity || model().translation_reach; }

Found look_up(int device, const Traffic& traffic, Caches caches) {
  const Model& m = model();
  Found found;
  for (const Way& way : traffic.read) found.missed.push_back(way.bytes);
  if (caches == Caches::Untouched || !reads_are_looked_up()) return found;
  std::lock_guard lock(memories().mutex);
  if (m.translation_reach) found.translation_lost = memories().translations[device].use(device, traffic);
  if (!m.cache_capacity) return found;
  std::map<int, Cache::Lines> by_owner;
  for (const auto& footprint : traffic.footprints) {
    // A cache on the memory's side holds the lines of its own GPU's memory, and only readers on that GPU come to it
    // before any link.
    if (footprint->owner == HOST || m.physical_gpu(footprint->owner) != m.physical_gpu(device)) continue;
    const Cache::Lines lines = memories().caches[m.physical_gpu(device)].read(*footprint);
    by_owner[footprint->owner].read += lines.read;
    by_owner[footprint->owner].missed += lines.missed;
  }
  for (const auto& [owner, lines] : by_owner) {
    if (!lines.read) continue;
    uint64_t& bytes = found.missed[static_cast<size_t>(owner + 1)];
    // What is read again in the same operation hits if everything it reads has room, and else was pushed out before.
    const uint64_t once = std::min(bytes, lines.read * LINE), again = bytes - once;
    const double share = static_cast<double>(lines.missed) / static_cast<double>(lines.read);
    bytes = static_cast<uint64_t>(static_cast<double>(once) * share);
    if (lines.read * LINE > m.cache_capacity) bytes += again;
  }
  return found;
}

void forget_reads(uintptr_t base) {
  std::lock_guard lock(memories().mutex);
  for (auto& [gpu, cache] : memories().caches) cache.forget(base);
  for (auto& [device, translations] : memories().translations) translations.forget(base);
}

}  // namespace emulator
