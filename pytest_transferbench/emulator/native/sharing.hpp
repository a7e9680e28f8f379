// How what is under way at the same time shares what it needs.
#pragma once
#include <tuple>
#include <vector>

namespace emulator {

// Something that carries data at a rate of its own, however many use it.
struct Resource {
  enum Kind { LINK, MEMORY_READ, MEMORY_WRITE, CACHE, CPU } kind = LINK;
  int from = 0, to = 0;  // of a link; of the others the owner is `from`

  bool operator<(const Resource& other) const {
    return std::tie(kind, from, to) < std::tie(other.kind, other.from, other.to);
  }
};

// The part of a resource's time that the data of one operation take while nothing else wants it.
struct Use {
  Resource resource;
  double share = 0;  // more than 0, at most 1
};

// The data of one operation, as they flow while nothing else is under way.
struct Flow {
  double rate = 0;  // bytes a second
  std::vector<Use> uses;
};

// The speeds of these flows together: 1 is that of each alone. A resource that cannot serve all is shared equally: all
// get the same rate, but for those that cannot use it. `duplex` tells what is left of a link's time while data flow the
// other way, too.
std::vector<double> speeds(const std::vector<const Flow*>& flows, double (*duplex)(const Resource&));

}  // namespace emulator
