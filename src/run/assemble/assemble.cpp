// From the section `device` to a backend. What concerns data is in run_data.cpp.
#include "run/assemble/assemble.h"

#include <algorithm>
#include <utility>

#include "backend/compare/compare_backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "error.h"
#include "io/cores.h"

namespace ada::run {
// Decides in this order: how many threads, which GPU in a run of several processes, whether there
// is a usable GPU at all, and what device.fp8 needs; then makes the backend. Under `auto` a missing
// GPU means that the CPU is used, under `cuda` it is an error.
ChosenBackend MakeBackend(const config::DeviceConfig& device, step::Team& team) {
  using config::DeviceKind;
  const bool several = team.ranks() > 1;
  if (device.compare && several)
    throw ConfigError(
        "device.compare: true compares the ops of one process; start it alone, without mpirun");
  ChosenBackend chosen;
  chosen.threads = device.threads > 0 ? device.threads
                   : several          ? parallel::CoresOf(team.world())
                                      : UsableCores();
  const bool is_auto = device.kind == DeviceKind::kAuto;
  int index = device.index;
  std::string why_not;
  if (several && device.kind != DeviceKind::kCpu) {
    const DeviceOfSeveral own = FindDevice(device, team);
    index = own.index, why_not = own.why_not;
    if (!is_auto && !why_not.empty()) throw DeviceError("device.kind: cuda: " + why_not);
  } else if (is_auto) {
    why_not = backend::WhyNoCuda(index);
  }
  const bool cuda = device.kind == DeviceKind::kCuda || (is_auto && why_not.empty());
  const bool fp8_hardware = device.fp8 == config::Fp8Products::kHardware;
  if (fp8_hardware && !cuda)
    throw DeviceError("device.fp8: hardware: the CPU has no units for fp8; use device.kind: cuda" +
                      (is_auto ? " (auto took the CPU: " + why_not + ")" : "") +
                      " or device.fp8: emulated");
  if (cuda)
    chosen.backend = backend::MakeCudaBackend(
        index, {device.autotune, device.deterministic, fp8_hardware}, team.communicators());
  else
    chosen.backend = backend::cpu::MakeCpuBackend(chosen.threads, team.communicators());
  chosen.has_own_memory = cuda;
  // The second backend computes each op on the CPU as well; in this mode a run stops where the two
  // differ (backend/compare).
  if (device.compare) {
    backend::CompareOptions options{cuda ? "cuda" : "cpu", "cpu", 1, nullptr, fp8_hardware};
    if (cuda) options.slack = 8;  // tensor cores cut off low bits of products that they add
    chosen.backend = backend::MakeCompareBackend(
        std::move(chosen.backend), backend::cpu::MakeCpuBackend(chosen.threads), options);
  }
  chosen.reason = chosen.backend->Describe();
  if (is_auto)  // the reason matters only to users who ask for cuda
    chosen.reason +=
        ": device auto, and " + (cuda ? "it works" : why_not.substr(0, why_not.find(';')));
  return chosen;
}

}  // namespace ada::run
