// The way of S through networks: who chooses, who hands on, where branches meet.
#include "judge/scale_path.h"

#include <doctest/doctest.h>

namespace ada::judge {
namespace {

TEST_SUITE_BEGIN("cpu");

// Each chooser multiplies by 2; sums take the largest.
ScalePath::Scales Doubled(const ScalePath& path) {
  ScalePath::Choice choose;
  choose.layer = [](const std::string&, const std::string&, float scale_in) {
    return 2 * scale_in;
  };
  choose.sum = [](const std::string&, const std::vector<float>& branches) {
    float largest = 0;
    for (const float b : branches) largest = std::max(largest, b);
    return largest;
  };
  return path.Walk(1, choose);
}

TEST_CASE("resnet20: every product but the first chooses") {
  config::ModelConfig model;
  model.zoo = "resnet20";
  const ScalePath path(model);
  REQUIRE(path.choosers().size() == 19);  // 18 convolutions of 9 blocks, fc
  CHECK(path.choosers().front() == "stage1.block1.conv1");
  CHECK(path.choosers().back() == "fc");
  const ScalePath::Scales scales = Doubled(path);
  CHECK(scales.at({"loss", "dx"}) == 1);
  CHECK(scales.at({"fc", "dx"}) == 2);
  CHECK(scales.at({"pool", "dx"}) == 2);
  CHECK(scales.at({"stage3.block3.bn2", "dx"}) == 2);
  CHECK(scales.at({"stage3.block3.conv2", "dx"}) == 4);
  CHECK(scales.at({"stage3.block3.bn1", "dx"}) == 4);
  CHECK(scales.at({"stage3.block3.conv1", "dx"}) == 8);
  CHECK(scales.at({"stage3.block2.relu2", "dy"}) == 8);  // of 8 and the shortcut's 2
  CHECK(scales.at({"stage3.block2.bn2", "dx"}) == 8);
  CHECK(scales.at({"relu1", "dy"}) == 2 * 262144);  // 2^19
  CHECK(scales.at({"bn1", "dx"}) == 2 * 262144);
  CHECK(scales.count({"conv1", "dx"}) == 0);
  CHECK(scales.count({"stage3.block3.relu2", "dy"}) == 0);  // one reader
}

TEST_CASE("resnet20: batch norms choose too where the policy says so") {
  config::ModelConfig model;
  model.zoo = "resnet20";
  const ScalePath path(model, /*scales_batch_norms=*/true);
  REQUIRE(path.choosers().size() == 19 + 19);
  CHECK(path.choosers().front() == "bn1");
  const ScalePath::Scales scales = Doubled(path);
  CHECK(scales.at({"pool", "dx"}) == 2);
  CHECK(scales.at({"stage3.block3.bn2", "dx"}) == 4);
  CHECK(scales.at({"stage3.block3.conv2", "dx"}) == 8);
  CHECK(scales.at({"stage3.block3.bn1", "dx"}) == 16);
}

TEST_CASE("ssd300: the gradients of both outputs carry S, and meet where two heads read a layer") {
  config::ModelConfig model;
  model.zoo = "ssd300";
  const ScalePath path(model);
  const ScalePath::Scales scales = Doubled(path);
  CHECK(scales.at({"loss", "dx"}) == 1);
  CHECK(scales.at({"loss", "dx2"}) == 1);
  CHECK(scales.at({"locations", "dx"}) == 1);
  CHECK(scales.at({"multibox.loc.5", "dx"}) == 2);
  CHECK(scales.at({"relu11_2", "dy"}) == 2);
  CHECK(scales.at({"conv11_2", "dx"}) == 4);
  CHECK(scales.at({"relu10_2", "dy"}) == 8);  // of 8 from conv11_1 and the heads' 2
  CHECK(path.FormatOwner("loss", "dx") == "locations");
  CHECK(path.FormatOwner("loss", "dx2") == "scores");
  model.cast = true;
  const ScalePath cast(model);
  CHECK(Doubled(cast).at({"cast.scores", "dx"}) == 2);
  CHECK(cast.FormatOwner("loss", "dx") == "cast.locations");
}

// Products, attention over them and one more product: of one input, or of three.
config::ModelConfig WithAttention(bool fused) {
  config::ModelConfig model;
  const auto add = [&](const char* name, const char* kind, std::vector<std::string> inputs) {
    config::LayerConfig& layer = model.layers.emplace_back();
    layer.name = name, layer.kind = kind, layer.inputs = std::move(inputs);
  };
  add("first", "linear", {});
  for (const char* name : {"q", "k", "v"}) add(name, "linear", {"first"});
  add("att", "attention",
      fused ? std::vector<std::string>{"q"} : std::vector<std::string>{"q", "k", "v"});
  add("out", "linear", {});
  return model;
}

// src/scaling/README.md: S_in of dv and ds is S, that of dq and dk is S of ds.
TEST_CASE("attention: each gradient within chooses, and what it hands on arrives at its input") {
  const ScalePath path(WithAttention(false));
  CHECK(path.choosers() ==
        std::vector<std::string>{"q", "k", "v", "att.dk", "att.dq", "att.ds", "att.dv", "out"});
  CHECK(path.choosers().back() == "out");
  const ScalePath::Scales scales = Doubled(path);
  CHECK(scales.at({"out", "dx"}) == 2);
  CHECK(scales.at({"att", "dv"}) == 4);
  CHECK(scales.at({"att", "ds"}) == 4);
  CHECK(scales.at({"att", "dq"}) == 8);
  CHECK(scales.at({"att", "dk"}) == 8);
  CHECK(scales.at({"q", "dx"}) == 16);
  CHECK(scales.at({"v", "dx"}) == 8);
  CHECK(scales.at({"first", "dy"}) == 16);
  for (const char* tensor : {"dq", "dk", "dv", "ds"})
    CHECK(path.FormatOwner("att", tensor) == "att");
}

TEST_CASE("attention of one input: its three gradients meet there; where none chooses S goes on") {
  const ScalePath::Scales scales = Doubled(ScalePath(WithAttention(true)));
  CHECK(scales.at({"q", "dy"}) == 8);
  const ScalePath still(WithAttention(true), false, /*scales_attention=*/false);
  CHECK(still.choosers() == std::vector<std::string>{"q", "k", "v", "out"});
  for (const char* tensor : {"dq", "dk", "dv", "ds"})
    CHECK(Doubled(still).at({"att", tensor}) == 2);
  config::ModelConfig wide = WithAttention(true);
  wide.layers[4].score_gradients = "fp32";
  CHECK(Doubled(ScalePath(wide)).at({"att", "dq"}) == 4);  // from S itself
  wide.layers.pop_back();
  CHECK(ScalePath(wide).choosers().back() == "att.dv");
}

TEST_CASE("a gradient has the format of the layer that made the value") {
  config::ModelConfig model;
  model.zoo = "resnet20";
  const ScalePath path(model);
  CHECK(path.FormatOwner("loss", "dx") == "fc");
  CHECK(path.FormatOwner("fc", "dx") == "pool");
  CHECK(path.FormatOwner("stage1.block1.conv2", "dx") == "stage1.block1.bn1");  // after the relu
  CHECK(path.FormatOwner("stage1.block1.bn2", "dx") == "stage1.block1.conv2");
  CHECK(path.FormatOwner("relu1", "dy") == "bn1");
  CHECK(path.FormatOwner("stage1.block1.relu2", "dy") == "stage1.block1.add");
  CHECK(path.FormatOwner("conv1", "dx") == "");
}

TEST_SUITE_END();

}  // namespace
}  // namespace ada::judge
