// See weight_refresh.h.
#include "backend/cuda/matmul/weight_refresh.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "backend/cuda/launch.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {

void WeightRefresh::Refresh(const RefreshedWeights& weights, const Pass& pass) {
  if (in_one_launch_)
    waiting_.push_back(&weights);
  else
    Launch({&weights}, pass);
}

void WeightRefresh::InOneLaunch(const Pass& pass, const std::function<void()>& body) {
  in_one_launch_ = true;
  try {
    body();
  } catch (...) {
    in_one_launch_ = false;
    waiting_.clear();
    throw;
  }
  in_one_launch_ = false;
  const std::vector<const RefreshedWeights*> all = std::exchange(waiting_, {});
  Launch(all, pass);
}

// The kernel is compiled for each level; the launch takes the most that one of its tensors asks
// for.
void WeightRefresh::Launch(const std::vector<const RefreshedWeights*>& all, const Pass& pass) {
  std::vector<std::int64_t> numbers;
  for (const RefreshedWeights* weights : all) numbers.push_back(weights->number());
  const Key key{numbers, pass.training, pass.count, pass.bins};
  auto found = tables_.find(key);
  if (found == tables_.end()) found = tables_.emplace(key, Make(all, pass)).first;
  const Table& table = found->second;
  AtStatsLevel(table.level, [&](auto level) {
    using Kernel = RefreshWeightsKernel<decltype(level)::value>;
    cuda::Launch(stream_, Kernel{table.tensors, table.tensor_of_block}, table.blocks);
  });
  for (const RefreshedWeights* weights : all) weights->RefreshOperands(pass);
}

// Blocks are numbered through all tensors; one that is neither rounded, packed nor measured has
// none.
WeightRefresh::Table WeightRefresh::Make(const std::vector<const RefreshedWeights*>& all,
                                         const Pass& pass) {
  Table table;
  std::vector<WeightTensor> tensors;
  std::vector<std::int32_t> tensor_of_block;
  for (const RefreshedWeights* weights : all) {
    WeightTensor tensor = weights->Describe(pass);
    const bool idle = tensor.rounded == nullptr && tensor.copy_count == 0;
    if (idle && tensor.how.totals == nullptr) continue;
    const FlatBlocks flat = FlatBlocksOf(tensor.values);
    tensor.size = flat.size, tensor.blocks = flat.blocks;
    tensor.first_block = static_cast<int>(tensor_of_block.size());
    tensor_of_block.insert(tensor_of_block.end(), static_cast<std::size_t>(flat.blocks),
                           static_cast<std::int32_t>(tensors.size()));
    table.level = std::max(table.level, weights->Level(pass));
    tensors.push_back(tensor);
  }
  table.blocks = static_cast<int>(tensor_of_block.size());
  table.tensors = Keep(tensors), table.tensor_of_block = Keep(tensor_of_block);
  return table;
}

template <class T>
const T* WeightRefresh::Keep(const std::vector<T>& host) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (host.empty()) return nullptr;
  const std::size_t bytes = host.size() * sizeof(T);
  std::byte* kept = memory_.Allocate(bytes);
  stream_.CopyToDevice(kept, host.data(), bytes);
  return reinterpret_cast<const T*>(kept);
}

}  // namespace ada::backend::cuda
