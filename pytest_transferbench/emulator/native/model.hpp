// The node being emulated, as the Python side hands it over: facts a program can ask for, and the physical parameters
// of the virtual clock. Times are seconds, rates bytes a second.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace emulator {

constexpr int LINK_TYPE_PCIE = 2;  // of hsa_amd_link_info_type_t

constexpr int HOST = -1;  // the host's index wherever a device index is expected

struct Link {
  std::string link_class;  // "local", "xgmi", "host"
  double rate = 0;         // of a shader
  double dma_rate = 0;     // of a copy engine
  double duplex = 1;       // what is left of either while data flow the other way, too
  double first = 0;        // what the first copy over it costs on top, hidden by nothing
  double first_store = 0;  // until the stores of a shader that also reads flow; its first data come meanwhile
  double one_way = 0;      // until a store is seen at the far end
  int type = 0;  // hsa_amd_link_info_type_t: 2 PCIe, 4 xGMI
  int hops = 0;
};

struct DmaEngine {
  double issue = 0;
  double rate = 0;
  // Copies of up to small_max bytes have a curve and a rate of their own, larger ones this set-up. 0: all are alike.
  size_t small_max = 0;
  double small_rate = 0, large_setup = 0;
  size_t peer_minimum = 0;  // copies between GPUs up to this size run as a shader unless the kind forbids it
};

struct Batch {
  double call = 0;   // before the first copy of a batch
  double issue = 0;  // of each, in the place of the engine's
};

struct Cpu {
  int threads = 1;
  double local_rate = 0, to_device_rate = 0, from_device_rate = 0;  // of one thread
  double memory_rate = 0;  // of its memory, for all readers and again for all writers; 0: no limit
};

struct Model {
  std::string name, device_name, arch, compiler, kernel_cache, include_folder;
  int devices = 0, compute_units = 0, xccs = 1, wavefront = 64, pci_device_id = 0;
  int copy_engines = 0, xgmi_copy_engines = 0;  // of one device; without engines for xGMI the others serve it
  int clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0, wall_clock_khz = 0;
  bool large_bar = false;
  size_t memory = 0;       // bytes a device reports
  size_t pool = 0;         // bytes that all devices and pinned host memory share
  size_t l2_cache = 0;
  double launch = 0, overlap = 0, enqueue = 0, synchronize = 0;
  double write_back = 0;        // of caches by a fence at system scope
  double cold_remote_read = 0;  // a read of another device's memory after its translation was lost
  size_t translation_reach = 0;  // bytes read elsewhere that push a translation out; 0: they are never lost
  double remote_read_of_a_unit = 0, remote_write_of_a_unit = 0;  // of one compute unit; 0: no limit
  size_t cache_capacity = 0;  // of the cache before one physical GPU's memory; 0: not modelled
  double cache_rate = 0;
  DmaEngine dma;
  Batch batch;
  Cpu cpu;
  std::vector<std::string> pci;
  std::vector<uint64_t> unique_ids;
  std::vector<int> numa_nodes;

  // The way from one end to another; both may be HOST or the same device.
  const Link& link(int from, int to) const { return links_.at({from, to}); }

  // The first device of the physical GPU of which `device` is a partition.
  int physical_gpu(int device) const { return physical_gpus_[static_cast<size_t>(device)]; }

  // Fills the model from "key value..." lines. Returns an empty string, or what is wrong in one line.
  std::string read(const std::string& text);

 private:
  std::map<std::pair<int, int>, Link> links_;
  std::vector<int> physical_gpus_;
};

// The one model of this process. It has no devices until the loader has opened it.
Model& model();

}  // namespace emulator
