#include "model.hpp"

#include <sstream>

namespace emulator {

Model& model() {
  static Model* instance = new Model;  // never destroyed: worker threads outlive static destructors
  return *instance;
}

std::string Model::read(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream in(line);
    std::string key;
    if (!(in >> key)) continue;
    auto rest = [&] {  // the whole rest of the line: names and paths hold blanks
      std::string value;
      std::getline(in >> std::ws, value);
      return value;
    };
    if (key == "name") name = rest();
    else if (key == "device_name") device_name = rest();
    else if (key == "arch") arch = rest();
    else if (key == "compiler") compiler = rest();
    else if (key == "kernel_cache") kernel_cache = rest();
    else if (key == "include_folder") include_folder = rest();
    else if (key == "devices") in >> devices;
    else if (key == "compute_units") in >> compute_units;
    else if (key == "xccs") in >> xccs;
    else if (key == "wavefront") in >> wavefront;
    else if (key == "copy_engines") in >> copy_engines >> xgmi_copy_engines;
    else if (key == "pci_device_id") in >> pci_device_id;
    else if (key == "clock_khz") in >> clock_khz;
    else if (key == "memory_clock_khz") in >> memory_clock_khz;
    else if (key == "memory_bus_bits") in >> memory_bus_bits;
    else if (key == "wall_clock_khz") in >> wall_clock_khz;
    else if (key == "large_bar") in >> large_bar;
    else if (key == "memory") in >> memory;
    else if (key == "pool") in >> pool;
    else if (key == "l2_cache") in >> l2_cache;
    else if (key == "launch") in >> launch;
    else if (key == "overlap") in >> overlap;
    else if (key == "write_back") in >> write_back;
    else if (key == "enqueue") in >> enqueue;
    else if (key == "synchronize") in >> synchronize;
    else if (key == "cold_remote_read") in >> cold_remote_read;
    else if (key == "translation_reach") in >> translation_reach;
    else if (key == "remote_rates_of_a_unit") in >> remote_read_of_a_unit >> remote_write_of_a_unit;
    else if (key == "cache") in >> cache_capacity >> cache_rate;
    else if (key == "dma") in >> dma.issue >> dma.rate >> dma.peer_minimum;
    else if (key == "small_copies") in >> dma.small_max >> dma.small_rate >> dma.large_setup;
    else if (key == "batch") in >> batch.call >> batch.issue;
    else if (key == "cpu") {
      in >> cpu.threads >> cpu.local_rate >> cpu.to_device_rate >> cpu.from_device_rate >> cpu.memory_rate;
    } else if (key == "device") {
      std::string address;
      uint64_t unique_id = 0;
      int numa_node = 0, physical_gpu = 0;
      in >> address >> unique_id >> numa_node >> physical_gpu;
      physical_gpus_.push_back(physical_gpu);
      pci.push_back(address);
      unique_ids.push_back(unique_id);
      numa_nodes.push_back(numa_node);
    } else if (key == "link") {
      int from = 0, to = 0;
      Link link;
      in >> from >> to >> link.link_class >> link.rate >> link.first >> link.first_store >> link.one_way;
      in >> link.type >> link.hops >> link.dma_rate >> link.duplex;
      links_[{from, to}] = link;
    } else {
      return "the emulated runtime does not know the model key '" + key + "'";
    }
    if (in.fail()) return "the emulated runtime cannot read the model line '" + line + "'";
  }
  return "";
}

}  // namespace emulator
