// libhiprtc: compiles HIP source with the host's C++ compiler into a shared library that hipModuleLoad takes.
//
// Source is preprocessed first; then the kernels are found in the text, whatever macros they were written with, and a
// table of them is appended; then it is compiled with the access hooks. Finished code objects are kept by content.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "hip_abi.hpp"
#include "source_scan.hpp"

extern "C" {
const char* transferbench_emulator_arch();
int transferbench_emulator_wavefront();
const char* transferbench_emulator_compiler();
const char* transferbench_emulator_kernel_cache();
const char* transferbench_emulator_include_folder();
}
extern char** environ;

namespace {

namespace fs = std::filesystem;

enum : int {
  HIPRTC_SUCCESS = 0,
  HIPRTC_ERROR_INVALID_INPUT = 3,
  HIPRTC_ERROR_INVALID_PROGRAM = 4,
  HIPRTC_ERROR_COMPILATION = 6,
  HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10,
  HIPRTC_ERROR_INTERNAL_ERROR = 11,
};

struct Program {
  std::string source, name, log, code;
  std::map<std::string, std::string> headers;
  std::map<std::string, std::string> expressions;  // name expression -> lowered name
};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

void write_file(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// 128 bits of FNV-1a, from two starting points: enough to tell the sources of one cache apart.
std::string digest(const std::string& text) {
  uint64_t low = 0xcbf29ce484222325u, high = 0x84222325cbf29ce4u;
  for (const unsigned char byte : text) {
    low = (low ^ byte) * 0x100000001b3u;
    high = (high ^ (byte + 0x9eu)) * 0x100000001b3u;
  }
  char hex[33];
  std::snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return hex;
}

// A folder that is gone when the compilation is over.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = std::string(transferbench_emulator_kernel_cache()) + "/compile-XXXXXX";
    if (mkdtemp(pattern.data())) path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Runs the compiler without a shell; returns its exit status and appends what it printed to `log`.
int run_compiler(const std::vector<std::string>& arguments, const fs::path& output, std::string& log) {
  std::vector<char*> argv;
  const std::string compiler = transferbench_emulator_compiler();
  argv.push_back(const_cast<char*>(compiler.c_str()));
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment{const_cast<char*>("LC_ALL=C")};  // messages in plain ASCII, whoever reads them
  for (char** variable = environ; *variable; ++variable) {
    if (std::strncmp(*variable, "LC_ALL=", 7) != 0) environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 2, 1);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, compiler.c_str(), &actions, nullptr, argv.data(),
                                  environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed) {
    log += "cannot run " + compiler + ": " + std::strerror(failed) + "\n";
    return 127;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  log += read_file(output);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

bool begins_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

struct Options {
  std::vector<std::string> preprocess;  // for the host's compiler
  std::vector<std::string> compile;
  std::string arch;
  std::string warnings, errors;
};

// Takes what AMD's hiprtc takes and refuses what it refuses. Options that only mean something to its compiler are
// dropped.
Options translate(int count, const char* const* given) {
  Options options;
  options.arch = transferbench_emulator_arch();
  options.preprocess.push_back("-DTRANSFERBENCH_WAVEFRONT=" + std::to_string(transferbench_emulator_wavefront()));
  bool has_standard = false;
  for (int i = 0; i < count; ++i) {
    const std::string option = given[i];
    if (option == "-I" || option == "-D" || option == "-U" || option == "-include") {
      options.preprocess.push_back(option);
      if (i + 1 < count) options.preprocess.push_back(given[++i]);
    } else if (begins_with(option, "-D") || begins_with(option, "-U") || begins_with(option, "-I")) {
      options.preprocess.push_back(option);
    } else if (begins_with(option, "-std=") || begins_with(option, "--std=")) {
      has_standard = true;
      options.preprocess.push_back("-std=" + option.substr(option.find('=') + 1));
      options.compile.push_back(options.preprocess.back());
    } else if (begins_with(option, "--offload-arch=") || begins_with(option, "--gpu-architecture=")) {
      options.arch = option.substr(option.find('=') + 1);
    } else if (option == "-ffast-math") {
      options.compile.push_back(option);
    } else if (option == "-lineinfo" || option == "-default-device") {
      options.warnings += "warning: argument unused during compilation: '" + option + "'\n";
    } else if (begins_with(option, "-ftz") || begins_with(option, "-arch=")) {
      options.errors += "error: unknown argument: '" + option + "'\n";
    } else if (begins_with(option, "-f") || begins_with(option, "-O") || begins_with(option, "-W") ||
               begins_with(option, "-g") || begins_with(option, "-m") || begins_with(option, "-R") ||
               option == "-w") {
      continue;
    } else {
      options.errors += "error: unknown argument: '" + option + "'\n";
    }
  }
  if (!has_standard) {
    options.preprocess.push_back("-std=c++17");
    options.compile.push_back("-std=c++17");
  }
  return options;
}

const std::vector<std::string> code_generation = {
    "-O2", "-w", "-fPIC", "-fno-strict-aliasing", "-fno-exceptions", "-fno-asynchronous-unwind-tables",
    "-fno-semantic-interposition", "-fno-gnu-unique", "-fno-math-errno", "-fcf-protection=none",
    // A copy loop must stay a loop: as a call of memcpy it would pass the hooks by.
    "-fno-tree-loop-distribute-patterns",
    // A vector must stay one access: taken apart into its words it would cost four calls of the hooks.
    "-fno-tree-sra",
    // What AMD's compiler inlines must be inlined here too: a local variable that is handed to a function by reference
    // is in memory, and every access of it a call of the hooks.
    "--param", "max-inline-insns-single=2000", "-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0",
    "--param", "tsan-distinguish-volatile=1", "-fdiagnostics-color=never"};

// -nostdlib keeps the compiler from linking the sanitizer's own library; the hooks come from the runtime.
const std::vector<std::string> linking = {"-shared", "-nostdlib", "-Wl,-Bsymbolic"};

int compile(Program& program, const Options& options) {
  const fs::path cache = transferbench_emulator_kernel_cache();
  std::string key = program.source + '\0' + program.name + '\0' + options.arch;
  for (const std::string& option : options.preprocess) key += '\0' + option;
  for (const std::string& option : options.compile) key += '\0' + option;
  for (const auto& [expression, lowered] : program.expressions) key += '\0' + expression;
  const bool self_contained = program.source.find("#include") == std::string::npos &&
                              program.source.find("# include") == std::string::npos;
  if (self_contained) {
    program.code = read_file(cache / (digest(key) + ".so"));
    if (!program.code.empty()) return HIPRTC_SUCCESS;
  }
  const ScratchFolder scratch;
  if (scratch.path().empty()) {
    program.log += "cannot write to " + cache.string() + "\n";
    return HIPRTC_ERROR_INTERNAL_ERROR;
  }
  const fs::path source = scratch.path() / "program.hip", preprocessed = scratch.path() / "program.ii",
                 object = scratch.path() / "program.so", output = scratch.path() / "output";
  for (const auto& [name, content] : program.headers) {
    fs::create_directories((scratch.path() / name).parent_path());
    write_file(scratch.path() / name, content);
  }
  write_file(source, "#line 1 \"" + program.name + "\"\n" + program.source + "\n");
  std::vector<std::string> arguments = {"-E", "-x", "c++", "-w", "-fdiagnostics-color=never"};
  arguments.insert(arguments.end(), options.preprocess.begin(), options.preprocess.end());
  const fs::path include_folder = transferbench_emulator_include_folder();
  for (const std::string& more : {std::string("-include"), (include_folder / "device.h").string(), std::string("-I"),
                                  scratch.path().string(), std::string("-I"), include_folder.string(),
                                  std::string("-o"), preprocessed.string(), source.string()}) {
    arguments.push_back(more);
  }
  if (run_compiler(arguments, output, program.log) != 0) return HIPRTC_ERROR_COMPILATION;
  const std::string text = read_file(preprocessed);
  if (!self_contained) {
    key = text + key;
    program.code = read_file(cache / (digest(key) + ".so"));
    if (!program.code.empty()) return HIPRTC_SUCCESS;
  }
  emulator::ScannedSource scanned = emulator::scan(text);
  for (const auto& [expression, lowered] : program.expressions) scanned.kernels.push_back({lowered, expression});
  write_file(preprocessed, scanned.text + emulator::kernel_table(scanned, options.arch));
  arguments = {"-x", "c++-cpp-output"};
  for (const auto* part : {&code_generation, &options.compile, &linking}) {
    arguments.insert(arguments.end(), part->begin(), part->end());
  }
  const fs::path library = include_folder.parent_path() / "lib" / "libamdhip64.so.7";
  for (const std::string& more : {std::string("-o"), object.string(), preprocessed.string(), std::string("-x"),
                                  std::string("none"), library.string(), std::string("-lstdc++"), std::string("-lm"),
                                  std::string("-lc"), std::string("-lgcc")}) {
    arguments.push_back(more);
  }
  if (run_compiler(arguments, output, program.log) != 0) return HIPRTC_ERROR_COMPILATION;
  program.code = read_file(object);
  std::error_code ignored;  // a cache that cannot be written to costs time, nothing else
  fs::rename(object, cache / (digest(key) + ".so"), ignored);
  return HIPRTC_SUCCESS;
}

}  // namespace

HIP_API int hiprtcVersion(int* major, int* minor) {
  if (!major || !minor) return HIPRTC_ERROR_INVALID_INPUT;
  *major = 7;
  *minor = 0;
  return HIPRTC_SUCCESS;
}

HIP_API const char* hiprtcGetErrorString(int code) {
  switch (code) {
    case HIPRTC_SUCCESS: return "HIPRTC_SUCCESS";
    case HIPRTC_ERROR_INVALID_INPUT: return "HIPRTC_ERROR_INVALID_INPUT";
    case HIPRTC_ERROR_INVALID_PROGRAM: return "HIPRTC_ERROR_INVALID_PROGRAM";
    case HIPRTC_ERROR_COMPILATION: return "HIPRTC_ERROR_COMPILATION";
    case HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID: return "HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
    default: return "HIPRTC_ERROR_INTERNAL_ERROR";
  }
}

HIP_API int hiprtcCreateProgram(Program** program, const char* source, const char* name, int header_count,
                                const char* const* headers, const char* const* include_names) {
  if (!program || !source || header_count < 0 || (header_count && (!headers || !include_names))) {
    return HIPRTC_ERROR_INVALID_INPUT;
  }
  auto* made = new Program;
  made->source = source;
  made->name = name && *name ? name : "CompileSource";
  for (int i = 0; i < header_count; ++i) made->headers[include_names[i]] = headers[i];
  *program = made;
  return HIPRTC_SUCCESS;
}

HIP_API int hiprtcDestroyProgram(Program** program) {
  if (!program) return HIPRTC_ERROR_INVALID_INPUT;
  delete *program;
  *program = nullptr;
  return HIPRTC_SUCCESS;
}

HIP_API int hiprtcAddNameExpression(Program* program, const char* expression) {
  if (!program || !expression) return HIPRTC_ERROR_INVALID_INPUT;
  program->expressions[expression] = "transferbench_kernel_" + digest(expression);
  return HIPRTC_SUCCESS;
}

HIP_API int hiprtcGetLoweredName(Program* program, const char* expression, const char** lowered) {
  if (!program || !expression || !lowered) return HIPRTC_ERROR_INVALID_INPUT;
  const auto found = program->expressions.find(expression);
  if (found == program->expressions.end()) return HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
  *lowered = found->second.c_str();
  return HIPRTC_SUCCESS;
}

HIP_API int hiprtcCompileProgram(Program* program, int count, const char* const* given) {
  if (!program || count < 0 || (count && !given)) return HIPRTC_ERROR_INVALID_INPUT;
  const Options options = translate(count, given);
  program->log = options.warnings + options.errors;
  program->code.clear();
  if (!options.errors.empty()) return HIPRTC_ERROR_COMPILATION;
  return compile(*program, options);
}

HIP_API int hiprtcGetCodeSize(Program* program, size_t* size) {
  if (!program || !size) return HIPRTC_ERROR_INVALID_INPUT;
  *size = program->code.size();
  return HIPRTC_SUCCESS;
}
HIP_API int hiprtcGetCode(Program* program, char* code) {
  if (!program || !code) return HIPRTC_ERROR_INVALID_INPUT;
  std::memcpy(code, program->code.data(), program->code.size());
  return HIPRTC_SUCCESS;
}
HIP_API int hiprtcGetProgramLogSize(Program* program, size_t* size) {
  if (!program || !size) return HIPRTC_ERROR_INVALID_INPUT;
  *size = program->log.size() + 1;
  return HIPRTC_SUCCESS;
}
HIP_API int hiprtcGetProgramLog(Program* program, char* log) {
  if (!program || !log) return HIPRTC_ERROR_INVALID_INPUT;
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return HIPRTC_SUCCESS;
}
