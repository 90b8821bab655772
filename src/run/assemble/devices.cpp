// All processes compute the same assignment from the same gathered lists, so that no further
// message is needed.
#include <algorithm>

#include "io/text.h"
#include "run/assemble/assemble.h"

namespace ada::run {
namespace {

VisibleDevices DevicesHere() {
  VisibleDevices visible;
  const std::vector<backend::CudaDeviceId> ids = backend::VisibleCudaDevices();
  visible.count = std::min(static_cast<int>(ids.size()), VisibleDevices::kMost);
  std::copy_n(ids.begin(), visible.count, visible.ids.begin());
  return visible;
}

std::string NoneLeftText(const parallel::World& world, int seen, int first) {
  const int here = parallel::RanksOfNode(world);
  return "the " + std::to_string(here) +
         " processes of this host take a GPU each, and this one sees " + std::to_string(seen) +
         (first > 0 ? " (from cuda:" + std::to_string(first) + " on)" : "") +
         ", of which none is left; start fewer here (mpirun --map-by ppr:" +
         std::to_string(std::max(1, seen - first)) + ":node), or use device.kind: cpu";
}

}  // namespace

// Greedy in the order of ranks. Devices are compared by their ids, because one device may have
// different numbers in different processes.
std::vector<int> AssignDevices(const std::vector<VisibleDevices>& visible,
                               const std::vector<int>& nodes, int first) {
  std::vector<int> taken(visible.size(), -1);
  const auto is_free = [&](std::size_t rank, const backend::CudaDeviceId& id) {
    for (std::size_t lower = 0; lower < rank; ++lower)
      if (nodes[lower] == nodes[rank] && taken[lower] >= 0 &&
          visible[lower].ids[static_cast<std::size_t>(taken[lower])] == id)
        return false;
    return true;
  };
  for (std::size_t rank = 0; rank < visible.size(); ++rank)
    for (int index = first; index < visible[rank].count && taken[rank] < 0; ++index)
      if (is_free(rank, visible[rank].ids[static_cast<std::size_t>(index)])) taken[rank] = index;
  return taken;
}

// Every process takes part in both messages, also one that sees no device: none may leave early.
DeviceOfSeveral FindDevice(const config::DeviceConfig& device, step::Team& team) {
  const VisibleDevices mine = DevicesHere();
  const std::vector<VisibleDevices> all = parallel::GatherAll(team.all(), mine);
  DeviceOfSeveral found;
  found.index =
      AssignDevices(all, team.world().nodes(), device.index)[static_cast<std::size_t>(team.rank())];
  std::string why_not;
  if (mine.count == 0)
    why_not = backend::WhyNoCuda(device.index);
  else if (found.index < 0)
    why_not = NoneLeftText(team.world(), mine.count, device.index);
  else
    why_not = backend::WhyNoCuda(found.index);
  if (why_not.empty()) why_not = backend::WhyNoCudaLink();
  const std::vector<std::string> reasons = team.AllGatherText(why_not);
  for (std::size_t rank = 0; rank < reasons.size() && found.why_not.empty(); ++rank)
    if (!reasons[rank].empty())
      found.why_not = team.NameOf(static_cast<int>(rank)) + ": " + reasons[rank];
  return found;
}

}  // namespace ada::run
