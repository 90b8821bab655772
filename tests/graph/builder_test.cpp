// What ops are asked for: fusion, gradients that are not needed, scales, moments, channel sums,
// parameters and the rules' requests.
#include <doctest/doctest.h>

#include "error.h"
#include "graph/build_training.h"
#include "graph/networks.h"
#include "number/table_grid.h"
#include "number/tables/table_format.h"

namespace ada::graph::test {
namespace {

const Shape kCifar{128, 32, 32, 3};

TEST_SUITE("cpu") {
  TEST_CASE("resnet20 fuses every batch norm, its additions and relus") {
    for (const bool fuse : {true, false}) {
      const auto built = BuildTraining(Zoo("resnet20"), kCifar, fuse);
      int relu = 0, addend = 0, moments = 0;
      for (const auto& spec : built->backend.batch_norms) {
        relu += spec.relu;
        addend += static_cast<bool>(spec.addend);
        moments += spec.x_moments.mean != nullptr;
      }
      CHECK(built->backend.batch_norms.size() == 19);
      CHECK(relu == (fuse ? 19 : 0));
      CHECK(addend == (fuse ? 9 : 0));
      CHECK(moments == (fuse ? 19 : 0));
      CHECK(built->backend.relus.size() == (fuse ? 0 : 19));
      CHECK(built->backend.branch_sums.size() == 9);
    }
  }

  TEST_CASE("shortcut B: the block's own batch norm takes the addition") {
    config::ModelConfig model = Zoo("resnet20");
    model.shortcut = "B";
    const auto built = BuildTraining(model, kCifar);
    int plain = 0;
    for (const auto& spec : built->backend.batch_norms) plain += !spec.addend && !spec.relu;
    CHECK(built->backend.batch_norms.size() == 21);
    CHECK(plain == 2);
  }

  TEST_CASE("a relu whose output only an addition reads keeps its own op") {
    const auto built = BuildTraining(PreActivation(), {4, 8, 8, 3});
    // b1 r1: two readers of r1, fused. b2 r2: only `sum` reads r2. r3 belongs to no batch norm.
    REQUIRE(built->backend.batch_norms.size() == 2);
    CHECK(built->backend.batch_norms[0].relu);
    CHECK_FALSE(built->backend.batch_norms[1].relu);
    CHECK(built->backend.relus.size() == 2);
  }

  TEST_CASE("no product reads a gradient that was masked in place") {
    const auto built = BuildTraining(BareShortcut(), {4, 8, 8, 3});
    REQUIRE(built->backend.batch_norms.size() == 2);
    for (const auto& spec : built->backend.batch_norms) {
      CHECK(spec.addend);
      CHECK_FALSE(spec.relu);
    }
    for (const auto& spec : built->backend.convolutions) {
      CHECK((spec.dy.moments != nullptr) == (spec.scaler != nullptr));
    }
  }

  TEST_CASE("channel sums have one row for each block of images") {
    const auto built = BuildTraining(Zoo("resnet20"), {7, 32, 32, 3});  // blocks of 3 images
    const auto& conv = built->backend.convolutions[0];
    REQUIRE(conv.y_moments.mean);
    CHECK(conv.y_moments.m2 - conv.y_moments.mean == 3 * 16);
    CHECK(built->backend.batch_norms[0].x_moments.mean == conv.y_moments.mean);
    CHECK(built->backend.batch_norms[0].x_moments.m2 == conv.y_moments.m2);
  }

  TEST_CASE("the first layers compute no dx and have no scaler") {
    const auto built = BuildTraining(Zoo("resnet20"), kCifar);
    const auto& convolutions = built->backend.convolutions;
    CHECK_FALSE(convolutions[0].dx);
    CHECK(convolutions[0].scaler == nullptr);
    CHECK(convolutions[0].dy);
    for (std::size_t i = 1; i < convolutions.size(); ++i) {
      CHECK(convolutions[i].dx);
      CHECK(convolutions[i].dx.stats);
      CHECK(convolutions[i].scaler);
    }
    CHECK(built->requests.count("conv1") == 0);
    CHECK(built->graph->scales().size() == 18 + 1 + 9);

    const auto awkward = BuildTraining(Awkward(), {4, 10, 9, 3});  // relu and pool before a weight
    CHECK_FALSE(awkward->backend.relus[0].dx);
    CHECK_FALSE(awkward->backend.relus[0].dy);
    CHECK_FALSE(awkward->backend.max_pools[0].dx);
    CHECK(awkward->backend.max_pools[1].dx.stats);  // 3x3 windows at stride 1 overlap
  }

  TEST_CASE("max pooling without overlap and relu round nothing") {
    const auto built = BuildTraining(Zoo("lenet"), {4, 28, 28, 1});
    REQUIRE(built->backend.max_pools.size() == 2);
    for (const auto& spec : built->backend.max_pools) {
      CHECK(spec.dx);
      CHECK(spec.dx.stats == nullptr);
    }
    for (const auto& spec : built->backend.relus) CHECK(spec.dx.stats == nullptr);
  }

  TEST_CASE("moments only where a rule or a branch asks") {
    for (const LayerMethod method : {LayerMethod::kPass, LayerMethod::kApproxRange}) {
      const bool asks = method == LayerMethod::kApproxRange;
      const auto built = BuildTraining(Zoo("resnet20"), kCifar, true, method);
      const auto& convolutions = built->backend.convolutions;
      CHECK(convolutions[0].dy.moments == nullptr);  // no dx, no rule
      for (std::size_t i = 1; i < convolutions.size(); ++i) {
        CHECK((convolutions[i].dy.moments != nullptr) == asks);
      }
      // Counts branches whose scales differ and that are not rounded (two of nine are shortcuts).
      int exact = 0;
      for (const auto& spec : built->backend.branch_sums) {
        CHECK(spec.branches[0].moments == nullptr);  // of conv1's dx
        exact += spec.branches[1].moments != nullptr;
      }
      CHECK(exact == (asks ? 2 : 0));
    }
  }

  TEST_CASE("a stochastic rounding's branch has moments, of the size of its values") {
    const auto built =
        BuildTraining(Zoo("resnet20"), kCifar, true, LayerMethod::kFixed, /*stochastic=*/true);
    for (const auto& sum : built->backend.branch_sums) {
      CHECK(sum.branches[0].moments);
      CHECK_FALSE(sum.branches[0].all_moments);
    }
  }

  TEST_CASE("all moments only where more than their size is asked for") {
    for (const LayerMethod method : {LayerMethod::kApproxRange, LayerMethod::kAbsRange}) {
      const auto built = BuildTraining(Zoo("resnet20"), kCifar, true, method);
      const bool abs_range = method == LayerMethod::kAbsRange;
      for (const auto& spec : built->backend.convolutions) {
        if (spec.scaler) CHECK(spec.dy.all_moments == abs_range);
      }
      const auto casts = BuildTraining(WithCasts(), {4, 6, 6, 3}, true, method);
      for (const auto& spec : casts->backend.casts) {
        if (spec.scaler) CHECK(spec.dy.all_moments);
      }
    }
  }

  TEST_CASE("the last that reads its dy leaves dx there: batch norm and relu, value by value") {
    const auto in_place = [](const auto& s) { return s.dx.tensor.data == s.dy.tensor.data; };
    for (const bool fuse : {true, false}) {
      const auto built = BuildTraining(Zoo("resnet20"), kCifar, fuse);
      int norms = 0, relus = 0;
      for (const auto& spec : built->backend.batch_norms) {
        norms += in_place(spec);
        if (spec.addend) CHECK_FALSE(in_place(spec));
      }
      for (const auto& spec : built->backend.relus) relus += in_place(spec);
      // At the end of a block the addition's other input gets that dy too; two of them, shortcuts,
      // have read it before an unfused batch norm.
      CHECK(norms == (fuse ? 10 : 12));
      CHECK(relus == (fuse ? 0 : 19));
      for (const auto& spec : built->backend.convolutions) {
        CHECK(spec.dx.tensor.data != spec.dy.tensor.data);
      }
    }
    // Gradients of c1 are fp16, those of b1 fp32: no place for each other.
    Precision precision = Uniform(kFp16);
    precision.formats_of = [](const std::string& layer) {
      const NumberFormat gradients = layer == "b1" ? kFp32 : kFp16;
      return LayerFormats{kFp16, kFp16, gradients, kFp32};
    };
    FakeBackend backend;
    const config::ModelConfig model =
        Model({Conv("c1", 4), Layer("b1", "batch_norm"), Conv("c2", 4), Layer("b2", "batch_norm"),
               Linear("fc", 10)});
    GraphSpec spec;
    spec.model = &model;
    spec.precision = precision;
    spec.input = {4, 6, 6, 3};
    const auto graph = Graph::Build(spec, backend);
    REQUIRE(backend.batch_norms.size() == 2);
    CHECK_FALSE(in_place(backend.batch_norms[0]));
    CHECK(in_place(backend.batch_norms[1]));
  }

  TEST_CASE("`reference` reaches the loss and every branch sum") {
    const config::ModelConfig model = Zoo("resnet20");
    for (const bool reference : {false, true}) {
      FakeBackend backend;
      GraphSpec spec;
      spec.model = &model;
      spec.input = {2, 32, 32, 3};
      spec.reference = reference;
      const auto graph = Graph::Build(spec, backend);
      CHECK(std::get<backend::ClassLossSpec>(backend.losses[0]).reference == reference);
      for (const auto& sum : backend.branch_sums) CHECK(sum.reference == reference);
    }
  }

  TEST_CASE("refreshing passes on what is counted and drawn, to every op") {
    const auto built = BuildTraining(Zoo("lenet"), {4, 28, 28, 1});
    Pass pass;
    pass.count = true;
    pass.seed = 3;
    pass.draw = 5;
    built->graph->RefreshWeights(pass);
    CHECK(built->backend.refreshes.size() == built->graph->layers().size());
    for (const Pass& seen : built->backend.refreshes) {
      CHECK(seen.count);
      CHECK(seen.seed == 3);
      CHECK(seen.draw == 5);
    }
  }

  TEST_CASE("an output with more values than the backend numbers is the configuration's matter") {
    const config::ModelConfig model = Zoo("lenet");
    GraphSpec spec;
    spec.model = &model, spec.input = {4, 28, 28, 1}, spec.precision = Uniform(kFp32);
    FakeBackend backend;
    backend.most = 12000;
    CHECK_THROWS_WITH_AS(Graph::Build(spec, backend),
                         doctest::Contains("values in a batch, more than the 12000 that this "
                                           "device's kernels number; take a smaller"),
                         ConfigError);
    spec.input.n = 1;
    CHECK_NOTHROW(Graph::Build(spec, backend));
  }

  TEST_CASE("formats and modes of tables are refused by name where a backend has none") {
    const config::ModelConfig model = Zoo("lenet");
    for (const NumberFormat& format : {TableNumberFormatNamed("hifloat8").value(),
                                       WithModes(kFp16, {TableRounding::kTowardZero})}) {
      GraphSpec spec;
      spec.model = &model, spec.input = {4, 28, 28, 1}, spec.precision = Uniform(format);
      FakeBackend backend;
      CHECK_NOTHROW(Graph::Build(spec, backend));
      FakeBackend without;
      without.tables = false;
      const std::string name = FormatName(format);
      CHECK_THROWS_WITH_AS(Graph::Build(spec, without),
                           doctest::Contains((name + ", or its rounding mode").c_str()),
                           ConfigError);
    }
  }

  TEST_CASE("fans") {
    config::ModelConfig model = Zoo("resnet20");
    model.shortcut = "B";
    auto built = BuildTraining(model, kCifar);
    const auto& r = built->requests;
    CHECK(r.at("stage1.block1.conv1").fan_reference == 144);
    CHECK(r.at("stage1.block1.conv1").fan_exact == 144);
    CHECK(r.at("stage2.block1.conv1").fan_reference == 288);
    CHECK(r.at("stage2.block1.conv1").fan_exact == 72);
    CHECK(r.at("stage2.block1.shortcut.conv").fan_reference == 32);
    CHECK(r.at("stage2.block1.shortcut.conv").fan_exact == 8);
    CHECK(r.at("fc").fan_reference == 10);
    CHECK(r.at("fc").fan_exact == 10);
    CHECK(r.at("fc").gradient_format == kFp16);

    config::LayerConfig grouped = Conv("c2", 8);
    grouped.groups = 4;
    built = BuildTraining(Model({Conv("c1", 4), grouped, Linear("fc", 10)}), {4, 8, 8, 3});
    CHECK(built->requests.at("c2").fan_reference == 72);
    CHECK(built->requests.at("c2").fan_exact == 18);
  }

  TEST_CASE("parameters: PyTorch's names, order and dims; Shape's words beside them") {
    config::LayerConfig grouped = Conv("c", 6);
    grouped.groups = 3;
    grouped.kernel = {3, 1};
    grouped.padding = {1, 0};
    const auto built =
        BuildTraining(Model({grouped, Layer("b", "batch_norm"), Linear("f", 10)}), {4, 5, 4, 3});
    struct Expected {
      std::string name;
      std::vector<std::int64_t> dims;
      Shape shape;
      bool trained;
    };
    const std::vector<Expected> expected = {
        {"c.weight", {6, 1, 3, 1}, {6, 3, 1, 1}, true}, {"c.bias", {6}, {1, 1, 1, 6}, true},
        {"b.weight", {6}, {1, 1, 1, 6}, true},          {"b.bias", {6}, {1, 1, 1, 6}, true},
        {"b.running_mean", {6}, {1, 1, 1, 6}, false},   {"b.running_var", {6}, {1, 1, 1, 6}, false},
        {"f.weight", {10, 120}, {10, 5, 4, 6}, true},   {"f.bias", {10}, {1, 1, 1, 10}, true}};
    const auto& parameters = built->graph->parameters();
    REQUIRE(parameters.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK(parameters[i].name == expected[i].name);
      CHECK(parameters[i].dims == expected[i].dims);
      CHECK(parameters[i].value.shape == expected[i].shape);
      CHECK(parameters[i].value.storage == Storage::kF32);
      CHECK(static_cast<bool>(parameters[i].gradient) == expected[i].trained);
    }
    CHECK(built->backend.linears[0].x.shape == Shape{4, 5, 4, 6});
    CHECK(built->backend.linears[0].dx.tensor.shape == Shape{4, 5, 4, 6});
    CHECK(built->graph->classes() == 10);
  }

  TEST_CASE("layer rows") {
    const auto built = BuildTraining(Zoo("resnet20"), kCifar);
    const auto& rows = built->graph->layers();
    CHECK(rows[0].name == "conv1");
    CHECK(rows[0].kind == "conv2d");
    CHECK(rows[0].output == Shape{1, 32, 32, 16});
    CHECK(rows[0].parameters == 432);
    CHECK(rows[0].mflop == doctest::Approx(0.884736));
    CHECK(rows[0].format == kFp16);
    CHECK(rows[0].has_weight);
    CHECK_FALSE(rows[1].has_weight);
    CHECK(rows[1].parameters == 32);
  }

  TEST_CASE("gradients share memory: training needs little more than its activations") {
    const auto fused = BuildTraining(Zoo("resnet20"), kCifar);
    // x of each batch norm, and the output of every second one: the blocks' inner ones are
    // recomputed.
    const std::int64_t image = 32 * 32 * 3 + 11 * 32 * 32 * 16 + 9 * 16 * 16 * 32 + 9 * 8 * 8 * 64;
    std::size_t block = 0;
    for (const std::size_t bytes : fused->backend.allocations) block = std::max(block, bytes);
    CHECK(block >= 2 * 128 * image);
    CHECK(block < 2 * 128 * image * 1.03);
  }
}

}  // namespace
}  // namespace ada::graph::test
