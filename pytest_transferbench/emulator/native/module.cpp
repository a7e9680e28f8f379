// Code objects and kernel launches. A code object is a shared library that the emulated hiprtc made: every kernel is
// listed in its table `transferbench_kernels`.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "grid.hpp"
#include "memory.hpp"
#include "runtime.hpp"
#include "stream.hpp"
#include "timing.hpp"

namespace emulator {
namespace {

struct Function {
  std::shared_ptr<Module> module;
  const KernelEntry* kernel;
};

struct LoadedModule {
  std::shared_ptr<Module> module;
  std::vector<std::unique_ptr<Function>> functions;
};

// Handles given out; anything else is refused. Guarded by Runtime::mutex.
std::set<LoadedModule*>& modules() {
  static auto* instance = new std::set<LoadedModule*>;
  return *instance;
}
std::set<Function*>& functions() {
  static auto* instance = new std::set<Function*>;
  return *instance;
}

std::string target_of(const std::string& arch) { return arch.substr(0, arch.find(':')); }

// Finds where the library lies, its thread-local block, and its writable data, which memory copies may touch.
int inspect(dl_phdr_info* info, size_t, void* argument) {
  auto& module = *static_cast<Module*>(argument);
  const link_map* map = nullptr;
  dlinfo(module.handle, RTLD_DI_LINKMAP, &map);
  if (!map || info->dlpi_addr != map->l_addr) return 0;
  module.low = ~uintptr_t{0};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type == PT_TLS) module.tls_size = part.p_memsz;
    if (part.p_type != PT_LOAD) continue;
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    module.low = std::min(module.low, begin);
    module.high = std::max(module.high, begin + part.p_memsz);
    if (!(part.p_flags & PF_W)) continue;
    Allocation data;
    data.base = begin;
    data.size = part.p_memsz;
    data.owner = data.device = module.device;
    if (memory().adopt(data) == hipSuccess) module.adopted.push_back(reinterpret_cast<void*>(begin));
  }
  return 1;
}

// Every load gets a copy of its own: the loader would share the __device__ variables of one file between devices.
int copy_to_memory(const char* image, size_t nbytes) {
  constexpr unsigned executable = 0x10;  // MFD_EXEC: newer kernels ask for it, older ones refuse it
  int file = memfd_create("transferbench-kernels", MFD_CLOEXEC | executable);
  if (file < 0) file = memfd_create("transferbench-kernels", MFD_CLOEXEC);
  if (file < 0) return -1;
  for (size_t at = 0; at < nbytes;) {
    const ssize_t put = write(file, image + at, nbytes - at);
    if (put <= 0) {
      close(file);
      return -1;
    }
    at += static_cast<size_t>(put);
  }
  return file;
}

hipError_t load(void** handle, const char* image, size_t nbytes) {
  if (const hipError_t error = lost(current_device)) return error;
  if (nbytes < sizeof(Elf64_Ehdr) || std::memcmp(image, ELFMAG, SELFMAG) != 0) return hipErrorInvalidImage;
  auto module = std::make_shared<Module>();
  module->device = current_device;
  module->file = copy_to_memory(image, nbytes);
  if (module->file < 0) return hipErrorOutOfMemory;
  const std::string path = "/proc/self/fd/" + std::to_string(module->file);
  module->handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module->handle) {
    report_fault(std::string("the code object cannot be loaded: ") + dlerror());
    close(module->file);
    return hipErrorInvalidImage;
  }
  const auto* arch = static_cast<const char*>(dlsym(module->handle, "transferbench_kernels_arch"));
  if (!arch || target_of(arch) != target_of(model().arch)) {
    dlclose(module->handle);
    close(module->file);
    return arch ? hipErrorNoBinaryForGpu : hipErrorInvalidImage;
  }
  dlinfo(module->handle, RTLD_DI_TLS_MODID, &module->tls_id);
  dl_iterate_phdr(inspect, module.get());
  std::lock_guard lock(runtime().mutex);
  auto* loaded = new LoadedModule{std::move(module), {}};
  modules().insert(loaded);
  *handle = loaded;
  return hipSuccess;
}

// The entry of a kernel that a name or a function of the library stands for.
const KernelEntry* find_kernel(const Module& module, const char* name) {
  const auto* entry = static_cast<const KernelEntry*>(dlsym(module.handle, "transferbench_kernels"));
  void* function = dlsym(module.handle, name);
  for (; entry && entry->function; ++entry) {
    if (std::strcmp(entry->name, name) == 0 || reinterpret_cast<void*>(entry->function) == function) return entry;
  }
  return nullptr;
}

// Copies the arguments out of the caller's memory, which it may reuse at once: an array of pointers, or one packed
// buffer given through `extra`.
hipError_t collect(const KernelEntry& kernel, void** parameters, void** extra, std::vector<std::vector<char>>& into) {
  const char* packed = nullptr;
  size_t at = 0;
  if (extra) {
    const auto ends = reinterpret_cast<void*>(3), buffer = reinterpret_cast<void*>(1);
    for (void** item = extra; *item != ends; item += 2) {
      if (*item == buffer) packed = static_cast<const char*>(item[1]);
    }
  }
  for (unsigned i = 0; kernel.sizes[i]; ++i) {
    const size_t size = kernel.sizes[i], alignment = kernel.alignments[i];
    const char* from = nullptr;
    if (packed) {
      at = (at + alignment - 1) / alignment * alignment;
      from = packed + at;
      at += size;
    } else {
      if (!parameters || !parameters[i] || i >= MOST_PARAMETERS) return hipErrorInvalidValue;
      from = static_cast<const char*>(parameters[i]);
    }
    into.emplace_back(from, from + size);
  }
  return hipSuccess;
}

uint64_t to_ticks(double seconds) {
  return static_cast<uint64_t>(seconds * model().wall_clock_khz * 1e3 + 0.5);
}

// A grid that has run. One that went laps disturbs nothing and is not disturbed: it waits most of the time.
struct Ran {
  int device;
  GridOutcome outcome;
  Ways rest;                     // what it moved after its last lap, and...
  std::vector<double> lap_ends;  // when its laps are over, once it is priced

  explicit Ran(int device_, GridOutcome outcome_) : device(device_), outcome(std::move(outcome_)) {
    rest = outcome.traffic;
    for (const Lap& lap : outcome.laps) add_bytes(outcome.traffic, lap.ways);
    count_moved(device, outcome.traffic);
  }

  static double begins(double start) { return start + model().launch; }

  Price price(const OperationStart& start, Caches caches) {
    Price price;
    if (outcome.laps.empty()) {
      price = shader_price(start, device, outcome.traffic, caches);
    } else {
      lap_ends = emulator::lap_ends(device, outcome.laps, rest, outcome.traffic, caches);
      price.data_begin = price.data_end = price.at_least = begins(start.at) + lap_ends.back();
      price.data = Data::Moved;
    }
    const double tick = 1 / (model().wall_clock_khz * 1e3);
    auto no_sooner = [&](double moment) { price.at_least = std::max(price.at_least, moment); };
    if (outcome.clock_reads > 1) no_sooner(begins(start.at) + static_cast<double>(outcome.clock_reads) * tick);
    // Between two stamps passes a tick at least, however little a cache leaves to wait for.
    if (!outcome.stamps.empty()) no_sooner(begins(start.at) + tick);
    if (outcome.polled_host) no_sooner(outcome.host_seen);
    return price;
  }

  void stamp(double start, double end) const {
    const uint64_t started = to_ticks(begins(start)), stopped = std::max(started + 1, to_ticks(end));
    for (const Stamp& stamp : outcome.stamps) *stamp.where = stamp.stop ? stopped : started;
    for (size_t lap = 0; lap < outcome.laps.size(); ++lap) {
      // From the start stamp on they are the same in every run, wherever between two ticks the launch was over.
      for (uint64_t* stamp : outcome.laps[lap].stamps) *stamp = started + to_ticks(lap_ends[lap]);
    }
  }

  // Where stamps are wanted.
  Range stamps() const {
    uintptr_t low = ~uintptr_t{0}, high = 0;
    auto hold = [&](const uint64_t* stamp) {
      low = std::min(low, reinterpret_cast<uintptr_t>(stamp));
      high = std::max(high, reinterpret_cast<uintptr_t>(stamp + 1));
    };
    for (const Stamp& stamp : outcome.stamps) hold(stamp.where);
    for (const Lap& lap : outcome.laps) std::for_each(lap.stamps.begin(), lap.stamps.end(), hold);
    return high ? Range{low, high - low} : Range{};
  }
};

Outcome execute(const Launch& launch, double about) {
  GridOutcome outcome = run_grid(launch, to_ticks(Ran::begins(about)));
  Outcome made;
  made.error = outcome.error;
  if (made.error != hipSuccess) return made;
  const auto ran = std::make_shared<Ran>(launch.device, std::move(outcome));
  made.price = [ran](const OperationStart& start, Caches caches) { return ran->price(start, caches); };
  made.over = [ran](double start, double end) { ran->stamp(start, end); };
  made.written_by_over = ran->stamps();
  return made;
}

}  // namespace
}  // namespace emulator

using namespace emulator;

namespace {

hipError_t load_image(void** module, const void* image, const char* call = __builtin_FUNCTION()) {
  return api(
      [&]() -> hipError_t {
        if (!module || !image) return hipErrorInvalidValue;
        Elf64_Ehdr header;  // there is no length: the section table ends the file
        std::memcpy(&header, image, sizeof header);
        if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return hipErrorInvalidImage;
        const size_t nbytes = header.e_shoff + size_t{header.e_shentsize} * header.e_shnum;
        return load(module, static_cast<const char*>(image), nbytes);
      },
      call);
}

}  // namespace

HIP_API hipError_t hipModuleLoadData(void** module, const void* image) { return load_image(module, image); }
HIP_API hipError_t hipModuleLoadDataEx(void** module, const void* image, unsigned, void*, void*) {
  return load_image(module, image);
}
HIP_API hipError_t hipModuleLoad(void** module, const char* path) {
  return api([&]() -> hipError_t {
    if (!module || !path) return hipErrorInvalidValue;
    std::ifstream file(path, std::ios::binary);
    if (!file) return hipErrorFileNotFound;
    std::ostringstream content;
    content << file.rdbuf();
    const std::string image = content.str();
    return load(module, image.data(), image.size());
  });
}

HIP_API hipError_t hipModuleUnload(void* handle) {
  return api([&]() -> hipError_t {
    auto* loaded = static_cast<LoadedModule*>(handle);
    {
      std::lock_guard lock(runtime().mutex);
      if (!modules().erase(loaded)) return hipErrorInvalidHandle;
      for (const auto& function : loaded->functions) functions().erase(function.get());
    }
    wait_for_all_devices();
    for (void* data : loaded->module->adopted) memory().drop(data);
    dlclose(loaded->module->handle);
    close(loaded->module->file);
    delete loaded;
    return hipSuccess;
  });
}

HIP_API hipError_t hipModuleGetFunction(void** result, void* handle, const char* name) {
  return api([&]() -> hipError_t {
    if (!result || !name) return hipErrorInvalidValue;
    std::lock_guard lock(runtime().mutex);
    auto* loaded = static_cast<LoadedModule*>(handle);
    if (!modules().count(loaded)) return hipErrorInvalidHandle;
    const KernelEntry* kernel = find_kernel(*loaded->module, name);
    if (!kernel) return hipErrorNotFound;
    loaded->functions.push_back(std::make_unique<Function>(Function{loaded->module, kernel}));
    functions().insert(loaded->functions.back().get());
    *result = loaded->functions.back().get();
    return hipSuccess;
  });
}

HIP_API hipError_t hipModuleGetGlobal(void** pointer, size_t* nbytes, void* handle, const char* name) {
  return api([&]() -> hipError_t {
    if (!name) return hipErrorInvalidValue;
    std::lock_guard lock(runtime().mutex);
    auto* loaded = static_cast<LoadedModule*>(handle);
    if (!modules().count(loaded)) return hipErrorInvalidHandle;
    void* variable = dlsym(loaded->module->handle, name);
    if (!variable) return hipErrorNotFound;
    Dl_info info;
    const ElfW(Sym)* symbol = nullptr;
    if (!dladdr1(variable, &info, const_cast<void**>(reinterpret_cast<const void**>(&symbol)), RTLD_DL_SYMENT)) {
      return hipErrorNotFound;
    }
    if (pointer) *pointer = variable;
    if (nbytes) *nbytes = symbol ? symbol->st_size : 0;
    return hipSuccess;
  });
}

HIP_API hipError_t hipFuncGetAttribute(int* value, int attribute, void* handle) {
  return api([&]() -> hipError_t {
    std::lock_guard lock(runtime().mutex);
    if (!value || !functions().count(static_cast<Function*>(handle))) return hipErrorInvalidValue;
    constexpr int max_threads = 0, registers = 4;
    *value = attribute == max_threads ? 1024 : attribute == registers ? 32 : 0;
    return hipSuccess;
  });
}

HIP_API hipError_t hipModuleLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                         unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                         hipStream_t stream_handle, void** parameters, void** extra) {
  return api_on(stream_handle, [&]() -> hipError_t {
    std::lock_guard lock(runtime().mutex);
    auto* function = static_cast<Function*>(handle);
    if (!functions().count(function)) return hipErrorInvalidHandle;
    auto launch = std::make_shared<Launch>();
    launch->grid = {grid_x, grid_y, grid_z};
    launch->block = {block_x, block_y, block_z};
    if (!launch->grid.count() || !launch->block.count()) return hipErrorInvalidValue;
    if (launch->block.count() > 1024 || shared > (64u << 10)) return hipErrorInvalidValue;
    const auto stream = resolve(stream_handle);
    if (!stream || stream->device != function->module->device) return hipErrorInvalidHandle;
    launch->device = stream->device;
    launch->module = function->module;
    launch->kernel = function->kernel;
    if (const hipError_t error = collect(*function->kernel, parameters, extra, launch->arguments)) return error;
    Job job;
    job.execute = [launch](double about) { return execute(*launch, about); };
    return enqueue(stream, std::move(job));
  });
}

// CuPy's extension modules register device code of their own for AMD's instruction set. It is counted as present and
// refused when launched: only source that passes through hiprtc can run here.
HIP_API void** __hipRegisterFatBinary(const void*) {
  static void* registered = nullptr;
  return &registered;
}
HIP_API void __hipUnregisterFatBinary(void**) {}
HIP_API void __hipRegisterFunction(void**, const void*, char*, const char*, unsigned, void*, void*, void*, void*,
                                   int*) {}
HIP_API void __hipRegisterVar(void**, void*, char*, char*, int, size_t, int, int) {}
HIP_API hipError_t __hipPushCallConfiguration(Dim, Dim, size_t, hipStream_t) { return hipSuccess; }
HIP_API hipError_t __hipPopCallConfiguration(Dim* grid, Dim* block, size_t* shared, hipStream_t* stream) {
  *grid = *block = Dim{};
  *shared = 0;
  *stream = nullptr;
  return hipSuccess;
}
HIP_API hipError_t hipLaunchKernel(const void*, Dim, Dim, void**, size_t, hipStream_t) {
  return api([]() -> hipError_t {
    report_fault("code that was compiled for AMD's instruction set cannot run on an emulated node; only kernels "
                 "compiled at run time (RawKernel, RawModule) can");
    return hipErrorInvalidDeviceFunction;
  });
}
