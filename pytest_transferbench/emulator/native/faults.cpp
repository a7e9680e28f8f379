// Faults on demand: the n-th use of a HIP call fails with a chosen code, once or for good.
#include <map>
#include <sstream>

#include "runtime.hpp"

namespace emulator {
namespace {

constexpr int any_device = -1;

struct Fault {
  std::string call;
  uint64_t nth = 0;
  hipError_t code = hipSuccess;
  bool sticky = false;
  int device = any_device;
  uint64_t uses = 0;  // of the call, on the device it is for
};

struct Plan {
  std::mutex mutex;
  std::vector<Fault> faults;
  std::map<std::string_view, uint64_t> uses;  // the names are those the compiler wrote into this library
};

Plan& plan() {
  static Plan* instance = new Plan;
  return *instance;
}

}  // namespace

hipError_t planned_fault(std::string_view call, int device) {
  std::lock_guard lock(plan().mutex);
  ++plan().uses[call];
  hipError_t code = hipSuccess;
  for (Fault& fault : plan().faults) {
    if (fault.call != call || (fault.device != any_device && fault.device != device)) continue;
    if (++fault.uses != fault.nth || code != hipSuccess) continue;
    code = fault.code;
    if (fault.sticky && is_device(device)) runtime().devices[device]->sticky = code;
  }
  return code;
}

std::string plan_faults(const std::string& text) {
  std::vector<Fault> faults;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    Fault fault;
    if (!(in >> fault.call >> fault.nth >> fault.code >> fault.sticky >> fault.device)) {
      return "the emulated runtime cannot read the fault '" + line + "'";
    }
    faults.push_back(std::move(fault));
  }
  std::lock_guard lock(plan().mutex);
  plan().faults = std::move(faults);
  plan().uses.clear();
  return "";
}

std::string fault_uses() {
  std::lock_guard lock(plan().mutex);
  std::ostringstream text;
  for (const Fault& fault : plan().faults) text << fault.uses << '\n';
  return text.str();
}

std::string call_counts() {
  std::lock_guard lock(plan().mutex);
  std::ostringstream text;
  for (const auto& [call, uses] : plan().uses) text << call << ' ' << uses << '\n';
  return text.str();
}

}  // namespace emulator
