// --dry-run: the formats of every tensor, and what is wrong that a run would stumble over.
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "data/images/picture.h"
#include "study/tensor_file.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;

// A small run with a part of it replaced.
std::string Changed(const std::string& from, const std::string& to) {
  std::string text = SmallRun();
  return text.replace(text.find(from), from.size(), to);
}

// The row of `layer`, its words with one blank between.
std::string RowOf(const std::string& table, const std::string& layer) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, row;
    while (words >> word) row += (row.empty() ? "" : " ") + word;
    if (row.rfind(layer + " ", 0) == 0) return row;
  }
  return "";
}

TEST_SUITE("cpu") {
  TEST_CASE("rates: of each step, of the last too, with or without a data set") {
    const TempFolder folder;
    folder.Write("r.yaml", SmallRun());
    const Outcome constant = Run({"rates", "r.yaml", "--every", "20"}, folder.path());
    ADA_REQUIRE_EXIT(constant, 0);
    CHECK(constant.out == "step,epoch,lr\n1,1,0.02\n21,4,0.02\n41,7,0.02\n48,8,0.02\n");
    const Outcome linear =
        Run({"rates", "r.yaml", "--steps-per-epoch", "1", "--set", "schedule={kind: linear}",
             "--set", "optimizer.lr=0.5", "--set", "train.epochs=4"},
            folder.path());
    ADA_REQUIRE_EXIT(linear, 0);
    CHECK(linear.out == "step,epoch,lr\n1,1,0.5\n2,2,0.375\n3,3,0.25\n4,4,0.125\n");
    const Outcome long_run =
        Run({"rates", "r.yaml", "--steps-per-epoch", "1000000000000", "--every", "4000000000000"},
            folder.path());
    ADA_REQUIRE_EXIT(long_run, 0);
    CHECK(long_run.out == "step,epoch,lr\n1,1,0.02\n4000000000001,5,0.02\n8000000000000,8,0.02\n");
    ADA_CHECK_EXIT(
        Run({"rates", "r.yaml", "--steps-per-epoch", "9000000000000000000"}, folder.path()), 2);
    ADA_CHECK_EXIT(Run({"rates", "r.yaml", "--every", "0"}, folder.path()), 2);
    ADA_CHECK_EXIT(Run({"rates"}, folder.path()), 2);
  }

  TEST_CASE("--measure: three steps and an epoch's time, beside --dry-run alone") {
    const TempFolder folder;
    folder.Write("m.yaml", SmallRun());
    const Outcome o = Run({"--config", "m.yaml", "--dry-run", "--measure"}, folder.path());
    ADA_REQUIRE_EXIT(o, 0);
    CHECK(Contains(o.out, "\nmeasured  a step "));
    CHECK(Contains(o.out, "images/s; an epoch about "));
    CHECK(Contains(o.out, "loading, logs and evaluation are not in it"));
    ADA_CHECK_EXIT(Run({"--config", "m.yaml", "--measure"}, folder.path()), 2);
  }

  TEST_CASE("pictures are part of the memory that a run needs: those that are decoded at a time") {
    const TempFolder folder;
    for (const char* name :
         {"train/a/0.png", "train/a/1.png", "train/b/0.png", "val/a/0.png", "val/b/0.png"}) {
      std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
      data::WritePng(folder / name,
                     {2000, 3000, 1, std::vector<std::uint8_t>(std::size_t{2000} * 3000)});
    }
    folder.Write("c.yaml", R"(
data: {dataset: folder, path: ., resize: 8, center_crop: 8, batch_size: 2, workers: 2}
model: {zoo: mlp, hidden: [8]}
optimizer: {lr: 0.1}
train: {max_steps: 1}
)");
    const Arguments dry = {"train", "c.yaml", "--dry-run"};
    const Outcome two = Run(dry, folder.path());
    ADA_REQUIRE_EXIT(two, 0);
    CHECK(Contains(two.out, ", decoding 34.3 MiB, batches ahead "));
    const Outcome one =
        Run({"train", "c.yaml", "--dry-run", "--set", "data.workers=0"}, folder.path());
    CHECK(Contains(one.out, ", decoding 17.2 MiB, batches ahead "));
  }

  TEST_CASE("--dry-run shows the format of each tensor, as the log has it") {
    const TempFolder folder;
    const auto run = WriteConfig(
        folder, "run",
        Changed("precision: {format: fp16}",
                "precision: {format: fp8_e4m3, gradients: fp8_e5m2, weight_gradients: bf16, "
                "layers: [{match: fc, format: fp16}]}"));
    const Outcome dry = Run(With(run, {"--dry-run"}), folder.path());
    ADA_REQUIRE_EXIT(dry, 0);
    CHECK(RowOf(dry.out, "layer") == "layer kind output parameters MFLOP y w dy dx dw policy");
    CHECK(RowOf(dry.out, "input") == "input 12x12x3 fp8_e4m3 -");
    CHECK(Contains(RowOf(dry.out, "conv1"), " fp8_e4m3 fp8_e4m3 bf16 -"));  // no dx: it is first
    CHECK(Contains(RowOf(dry.out, "conv2"), " fp8_e4m3 fp8_e4m3 fp8_e5m2 bf16 adaptive: "));
    CHECK(RowOf(dry.out, "relu1") == "relu1 relu 12x12x8 fp8_e5m2 -");  // two branches meet: dy
    CHECK(RowOf(dry.out, "relu2") == "relu2 relu 12x12x8 -");
    CHECK(Contains(RowOf(dry.out, "fc"), " fp16 fp16 fp8_e5m2 bf16 adaptive: "));
    CHECK(RowOf(dry.out, "loss") == "loss 10 fp16 -");

    const Outcome real =
        Run(With(run, {"--set", "train.epochs=1", "--set", "log.statistics=[y, w, dy, dx, dw]"}),
            folder.path());
    ADA_REQUIRE_EXIT(real, 0);
    std::map<std::string, std::string> formats;  // of a layer's tensors, in the table's order
    for (const char* tensor : {"y", "w", "dy", "dx", "dw"})
      for (const auto& row : ReadCsv(folder / "run/underflow.csv"))
        if (row.at("step") == "1" && row.at("tensor") == tensor)
          formats[row.at("layer")] += " " + row.at("format");
    CHECK(formats.size() >= 8);
    for (const auto& [layer, row] : formats) {
      CAPTURE(layer);
      CHECK(Contains(RowOf(dry.out, layer), row + " "));
    }
  }

  TEST_CASE("globs that match nothing are warnings of the dry run and of the run, with the place") {
    const TempFolder folder;
    const auto run = WriteConfig(
        folder, "run",
        Changed("weight_decay: 1e-4}", "weight_decay: 1e-4, no_decay: [\"bn*\", \"*.biass\"]}"));
    const Arguments set = {"--set", "log.dump_every=3", "--set", "log.dump=[fc, convv*]",
                           "--set", "train.epochs=1"};
    const std::string slips[] = {
        "run.yaml:21:87: optimizer.no_decay: '*.biass' matches no parameter of this model (they "
        "are called conv1.weight, bn1.weight, bn1.bias ...)",
        "--set log.dump: 'convv*' matches no layer of this model (--dry-run lists them)"};
    const Outcome dry = Run(With(With(run, set), {"--dry-run"}), folder.path());
    ADA_REQUIRE_EXIT(dry, 0);
    const Outcome real = Run(With(run, set), folder.path());
    ADA_REQUIRE_EXIT(real, 0);
    for (const std::string& slip : slips) {
      CHECK_MESSAGE(Contains(dry.out, "warning   " + slip + "\n"), dry.out);
      CHECK_MESSAGE(Contains(real.err, "warning: " + slip + "\n"), real.err);
      CHECK(Contains(ReadBytes(folder / "run/log.txt"), slip));
    }
    CHECK(!Contains(dry.out, "'bn*'"));
    CHECK(!Contains(dry.out, "'fc'"));
  }

  TEST_CASE("a batch norm of single values is warned of, which PyTorch refuses") {
    const TempFolder folder;
    const auto network = [](const char* layers) {
      return std::string(R"(
data: {dataset: synthetic, batch_size: 8, drop_last: false, synthetic: {train: 17, test: 8}}
model:
  layers:
    - {name: pool, kind: global_avg_pool}
)") + layers +
             "    - {name: fc, kind: linear, features: 10}\ntrain: {epochs: 1}\n";
    };
    const Arguments run =
        WriteConfig(folder, "run", network("    - {name: bn, kind: batch_norm}\n"));
    const auto warnings = [&](const Arguments& more) {
      const Outcome o = Run(With(With(run, {"--dry-run"}), more), folder.path());
      ADA_REQUIRE_EXIT(o, 0);
      const auto at = o.out.find("warning   ");
      return at == std::string::npos ? "" : o.out.substr(at);
    };
    const std::string begin = "warning   batch norm bn sees a single value a channel in ";
    CHECK(warnings({}) ==
          begin + "the last micro-batch of an epoch, of one image: use data.drop_last: true\n");
    CHECK(warnings({"--set", "train.accumulate=8"}) ==
          begin + "each micro-batch of one image: use a smaller train.accumulate\n");
    CHECK(warnings({"--set", "data.drop_last=true"}).empty());
    CHECK(warnings({"--set", "data.batch_size=5"}).empty());
    const Outcome real = Run(run, folder.path());
    ADA_REQUIRE_EXIT(real, 0);
    CHECK(Contains(real.err, "batch norm bn sees a single value"));
    WriteConfig(folder, "run", network(""));
    CHECK(warnings({}).empty());
  }

  TEST_CASE("init.weights: a file that is missing, no safetensors, or for a part of the network") {
    const TempFolder folder;
    const auto run = WriteConfig(folder, "run", SmallRun());
    const auto with = [&](const std::string& file, const Arguments& more) {
      return With(With(run, {"--set", "model.init.weights=" + file, "--set", "train.epochs=1"}),
                  more);
    };
    folder.Write("text.safetensors", "no tensors are in here, only words");
    folder.Write("part.safetensors",
                 TensorFile({F32("fc.bias", {10}, std::vector<float>(10)), F32("old", {1}, {1})}));
    for (const Arguments& mode : {Arguments{"--dry-run"}, {}}) {
      const Outcome missing = Run(with("none.safetensors", mode), folder.path());
      ADA_CHECK_EXIT(missing, 3);
      CHECK(Contains(missing.err, "model.init.weights: none.safetensors: cannot be opened: "));
      CHECK(missing.out.empty());
      ADA_CHECK_EXIT(Run(with("text.safetensors", mode), folder.path()), 3);
      const Outcome unknown = Run(with("part.safetensors", mode), folder.path());
      ADA_CHECK_EXIT(unknown, 3);
      CHECK(Contains(unknown.err, "tensor old: the network has none of this name"));
      const Arguments ignoring =
          With({"--set", "model.init.ignore_unknown=true", "--overwrite"}, mode);
      const Outcome part = Run(with("part.safetensors", ignoring), folder.path());
      ADA_REQUIRE_EXIT(part, 0);
      const std::string said = part.out + part.err;
      CHECK(Contains(said, "part.safetensors: loaded 1 of 9 tensors; missing conv1.weight, "));
      CHECK(Contains(said, "left out 1 tensor that the network does not have: old"));
      const Outcome all =
          Run(with("part.safetensors", With(ignoring, {"--set", "model.init.require_all=true"})),
              folder.path());
      ADA_CHECK_EXIT(all, 3);
      CHECK(Contains(all.err, "(model.init.require_all: true)"));
    }
    // A resumed run has its weights from the checkpoint, and nothing to remark.
    const Outcome resumed = Run(with("part.safetensors", {"--set", "model.init.ignore_unknown=true",
                                                          "--resume", "--set", "train.epochs=2"}),
                                folder.path());
    ADA_REQUIRE_EXIT(resumed, 0);
    CHECK(!Contains(resumed.err, "missing"));
  }
}

}  // namespace
}  // namespace ada::testing
