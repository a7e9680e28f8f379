// Finding kernels and block-wide variables in preprocessed C++, without a compiler.
#pragma once
#include <string>
#include <vector>

namespace emulator {

struct ScannedSource {
  struct Kernel {
    std::string name;        // what hipModuleGetFunction is given
    std::string expression;  // what it is called in C++
  };
  std::string text;  // with the two marker words of device.h replaced
  std::vector<Kernel> kernels;
  bool dynamic_shared = false;
};

ScannedSource scan(const std::string& preprocessed);

// The C++ to append: the table of kernels, the architecture, and the memory behind `extern __shared__` arrays.
std::string kernel_table(const ScannedSource& source, const std::string& arch);

}  // namespace emulator
