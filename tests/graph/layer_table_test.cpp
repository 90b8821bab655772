// The layer table of --dry-run, line by line.
#include "graph/network/layer_table.h"

#include <doctest/doctest.h>

namespace ada::graph::test {
namespace {

TEST_SUITE("cpu") {
  TEST_CASE("aligned columns, empty where a layer has nothing, totals") {
    const std::vector<LayerRow> rows = {
        {"conv1", "conv2d", {1, 32, 32, 16}, 432, 0.884736, kFp16, true},
        {"relu1", "relu", {1, 32, 32, 16}, 0, 0, kFp16, false},
        {"fc", "linear", {1, 1, 1, 10}, 650, 0.00128, kFp16, true}};
    const std::vector<LayerNotes> notes = {
        {{{"w", kFp16}, {"y", kFp16}, {"dw", kFp32}}, "", "-"},
        {{}, "", "-"},
        {{{"w", kFp16}, {"y", kFp32}, {"dw", kFp32}, {"s.q", kBf16}}, "ada_fp8", "fixed"}};
    CHECK(LayerTable(rows, notes) ==
          std::vector<std::string>{
              "layer  kind    output    parameters  MFLOP  y     w     dw    s.q   sums     policy",
              "conv1  conv2d  32x32x16         432  0.885  fp16  fp16  fp32                 -",
              "relu1  relu    32x32x16                                                      -",
              "fc     linear  10               650  0.001  fp32  fp16  fp32  bf16  ada_fp8  fixed",
              "total                          1082  0.886",
          });
    CHECK(LayerTable(rows, std::vector<LayerNotes>(3))[0] ==
          "layer  kind    output    parameters  MFLOP");
  }
}

}  // namespace
}  // namespace ada::graph::test
