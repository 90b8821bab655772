// Trains on the host executor as the program does on a GPU, for tests that compare whole runs:
//
//   train_on_kernels train CONFIG --output FOLDER [--overwrite] [--set KEY=VALUE]...
//
// Other options are of the program's output and change nothing here. A run that is there goes on.
// With device.compare each op runs on the CPU backend as well.
// Variables ADA_CUDA_... of the environment are the backend's switches.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "backend/compare/tolerances.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/switches.h"
#include "config/load.h"
#include "run/assemble/assemble.h"
#include "train/run_session.h"

namespace {

int Train(int argc, char** argv) {
  std::string output;
  ada::config::Overrides overrides;
  bool overwrite = false;
  for (int i = 3; i < argc; ++i) {
    const std::string option = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (option == "--output") output = value;
    if (option == "--set")
      overrides.emplace_back(value.substr(0, value.find('=')), value.substr(value.find('=') + 1));
    overwrite = overwrite || option == "--overwrite";
  }
  if (overwrite) std::filesystem::remove_all(output);
  ada::config::Config config = ada::config::Load(argv[2], overrides).config;
  ada::config::FillDefaults(config);
  config = ada::run::Completed(config, ada::run::InspectData(config));
  ada::backend::DeviceOptions options;
  options.switches.poison = true;
  options.switches = ada::backend::cuda::SwitchesOf(
      options.switches, [](const char* name) { return std::getenv(name); });
  std::unique_ptr<ada::backend::Backend> backend = ada::backend::MakeHostExecutedBackend(options);
  if (config.device.compare)
    backend = ada::backend::MakeCompareBackend(
        std::move(backend), ada::backend::cpu::MakeCpuBackend(1), {"kernels", "cpu", 1, {}});
  return ada::testing::RunSession(*backend, config, output);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc >= 3 && std::string(argv[1]) == "train") return Train(argc, argv);
    std::fputs("usage: train_on_kernels train CONFIG --output FOLDER\n", stderr);
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "train_on_kernels: %s\n", e.what());
    return 1;
  }
}
