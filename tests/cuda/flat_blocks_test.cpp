// Launches over a run of values: room that is made for a whole batch must do for every part of it,
// though fewer values may be cut into more blocks than many are.
#ifndef ADA_CUDA_DEVICE
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/round_values.h"
#include "cuda/host/host_stream.h"

namespace ada::backend::test {
namespace {

// The most blocks that the first 1, 2, ... images of a batch make.
int MostBlocks(const Shape& shape) {
  int most = 0;
  for (std::int64_t rows = 1; rows <= shape.n; ++rows)
    most = std::max(most, cuda::FlatBlocksOf(rows * shape.per_image()).blocks);
  return most;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("flat blocks: the room for a batch does for every number of its images") {
    const Shape issue = {256, 56, 56, 64};
    CHECK(MostBlocks(issue) > cuda::FlatBlocksOf(issue.numel()).blocks);
    for (const Shape& shape :
         {issue, Shape{256, 112, 112, 64}, Shape{64, 224, 224, 64}, Shape{512, 32, 32, 16},
          Shape{1, 1, 1, 1}, Shape{9000, 1, 1, 1000}, Shape{128, 8, 8, 8}, Shape{33, 512, 512, 1}})
      CHECK(MostBlocks(shape) <= cuda::MostFlatBlocksOf(shape.numel()));
    for (std::int64_t values = 1; values < std::int64_t{1} << 28; values += values / 64 + 1)
      for (const std::int64_t part : {values, values - 1, values / 2, values * 143 / 256})
        CHECK(cuda::FlatBlocksOf(part).blocks <= cuda::MostFlatBlocksOf(values));
  }

  TEST_CASE("flat blocks: a partial batch that is counted writes nothing after its memory") {
    auto own = std::make_unique<cuda::HostStream>();
    cuda::HostStream& stream = *own;
    const auto backend = cuda::MakeBackendOn(std::move(own), {"host", "host"}, {});
    AddSpec spec;
    const Shape shape = {256, 56, 56, 64};
    const auto bytes = static_cast<std::size_t>(shape.numel()) * 2;
    spec.x = {{shape, kFp16, Storage::kF16, backend->Allocate(bytes)}};
    spec.y = spec.x[0];
    const SharedMemory stats = backend->AllocateShared(sizeof(TensorStats));
    spec.y_stats = reinterpret_cast<TensorStats*>(stats.backend);
    const auto op = backend->Make(spec);
    Pass pass;
    pass.rows = 143, pass.count = true;
    op->Forward(pass);
    backend->Fetch(stats);
    backend->Synchronize();
    CHECK(stream.guards_intact());
    const auto* counted = reinterpret_cast<const TensorStats*>(stats.host);
    CHECK(counted->numel == 143 * shape.per_image());
    CHECK(counted->zeros_before == counted->numel);
  }
}

}  // namespace ada::backend::test
#endif
