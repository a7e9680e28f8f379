#include "sharing.hpp"

#include <algorithm>
#include <limits>
#include <map>

namespace emulator {
namespace {

// What rounding may leave between two rates that are meant to be equal.
constexpr double AS_GOOD_AS = 1 + 1e-12;

struct Load {
  double capacity = 1;
  double taken = 0;       // by flows whose speed is settled
  double of_a_byte = 0;   // for each byte a second that all others get
  unsigned users = 0;     // those others

  double most() const {
    return users ? std::max(0.0, capacity - taken) / of_a_byte : std::numeric_limits<double>::infinity();
  }
};

}  // namespace

// The rates of all flows rise together. One that has its own rate stops there, and so do those with a resource that has
// no more to give.
std::vector<double> speeds(const std::vector<const Flow*>& flows, double (*duplex)(const Resource&)) {
  std::map<Resource, Load> loads;
  for (const Flow* flow : flows) {
    for (const Use& use : flow->uses) {
      loads[use.resource].of_a_byte += use.share / flow->rate;
      ++loads[use.resource].users;
    }
  }
  for (auto& [resource, load] : loads) {
    const Resource back{resource.kind, resource.to, resource.from};
    if (resource.kind == Resource::LINK && loads.count(back)) load.capacity = duplex(resource);
  }
  std::vector<double> found(flows.size(), 1);
  std::vector<bool> settled(flows.size(), false);
  for (size_t left = flows.size(); left > 0;) {
    double most = std::numeric_limits<double>::infinity(), wanted = most;
    for (const auto& [resource, load] : loads) most = std::min(most, load.most());
    for (size_t i = 0; i < flows.size(); ++i) {
      if (!settled[i]) wanted = std::min(wanted, flows[i]->rate);
    }
    const bool content = wanted <= most * AS_GOOD_AS;
    auto stops = [&](const Flow& flow) {
      if (content) return flow.rate <= wanted;
      return std::any_of(flow.uses.begin(), flow.uses.end(),
                         [&](const Use& use) { return loads[use.resource].most() <= most * AS_GOOD_AS; });
    };
    std::vector<size_t> stopping;
    for (size_t i = 0; i < flows.size(); ++i) {
      if (!settled[i] && stops(*flows[i])) stopping.push_back(i);
    }
    for (const size_t i : stopping) {
      settled[i] = true;
      --left;
      if (!content) found[i] = most / flows[i]->rate;
      for (const Use& use : flows[i]->uses) {
        Load& load = loads[use.resource];
        load.taken += found[i] * use.share;
        load.of_a_byte -= use.share / flows[i]->rate;
        --load.users;
      }
    }
  }
  return found;
}

}  // namespace emulator
