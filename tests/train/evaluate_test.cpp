// What evaluate takes its weights from: a run's folder, a checkpoint, a file of weights alone.
#include <filesystem>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;

// The parameters of a checkpoint as PyTorch would write them, in another file; without the one
// named `but`.
void WriteWeights(const std::string& checkpoint, const std::string& to, const std::string& but) {
  const SafetensorsFile file = SafetensorsFile::Open(checkpoint);
  std::vector<std::vector<float>> values;
  for (const TensorEntry& entry : file.entries()) values.push_back(file.ReadF32(entry.name));
  const std::vector<float> batches = {48};
  SafetensorsWriter writer;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const TensorEntry& entry = file.entries()[i];
    if (entry.name == but || entry.name.starts_with("optimizer.")) continue;
    writer.Add(entry.name, entry.shape, values[i]);
  }
  writer.Add("bn1.num_batches_tracked", {1}, batches);
  writer.WriteAtomically(to);
}

TEST_SUITE("cpu") {
  TEST_CASE("a run's folder: its newest checkpoint, or its best") {
    const TempFolder folder;
    ADA_REQUIRE_EXIT(Run(WriteConfig(folder, "run", SmallRun()), folder.path()), 0);
    const auto evaluate = [&](const Arguments& more) {
      Outcome o = Run(With({"evaluate"}, more), folder.path());
      ADA_CHECK_EXIT(o, 0);
      return o;
    };
    const Outcome newest = evaluate({"run"});
    CHECK(Contains(newest.err, "evaluating run/checkpoints/step-00000048.safetensors"));
    CHECK(newest.out == evaluate({"--checkpoint", "run/checkpoints/step-00000048.json"}).out);
    CHECK(newest.out == evaluate({"--set", "device.threads=1", "run/"}).out);
    const Outcome best = evaluate({"run", "--best"});
    CHECK(best.out == evaluate({"run/checkpoints/best.safetensors"}).out);
    CHECK(Contains(best.err, "evaluating run/checkpoints/best.safetensors"));
    std::filesystem::remove(folder / "run/checkpoints/best.safetensors");
    const Outcome none = Run({"evaluate", "run", "--best"}, folder.path());
    ADA_CHECK_EXIT(none, 3);
    CHECK(Contains(none.err, "run/checkpoints/best.safetensors: missing"));
    const Outcome empty = Run({"evaluate", "."}, folder.path());
    ADA_CHECK_EXIT(empty, 3);
    CHECK(Contains(empty.err, "./checkpoints: holds no checkpoint"));
  }

  TEST_CASE("weights alone, with a configuration") {
    const TempFolder folder;
    ADA_REQUIRE_EXIT(Run(WriteConfig(folder, "run", SmallRun()), folder.path()), 0);
    const std::string newest = NewestCheckpoint(folder / "run");
    WriteWeights(newest, folder / "w.safetensors", "");
    const Outcome told = Run({"evaluate", "run"}, folder.path());
    const Outcome o = Run({"evaluate", "w.safetensors", "-c", "run.yaml"}, folder.path());
    ADA_CHECK_EXIT(o, 0);
    CHECK(o.out == told.out);
    CHECK(!Contains(o.err, "warning"));

    for (const Arguments& more : {Arguments{}, {"-c", "run.yaml"}}) {
      const Outcome none = Run(With({"evaluate", "no.safetensors"}, more), folder.path());
      ADA_CHECK_EXIT(none, 3);
      CHECK(Contains(none.err, "no.safetensors: missing"));
    }
    const Outcome alone = Run({"evaluate", "w.safetensors"}, folder.path());
    ADA_CHECK_EXIT(alone, 3);
    CHECK(Contains(alone.err, "w.safetensors: holds weights alone"));
    CHECK(Contains(alone.err, "--config FILE"));
    WriteWeights(newest, folder / "less.safetensors", "fc.bias");
    const Outcome less = Run({"evaluate", "less.safetensors", "-c", "run.yaml"}, folder.path());
    ADA_CHECK_EXIT(less, 3);
    CHECK(Contains(less.err, "less.safetensors: "));
    CHECK(Contains(less.err, "no tensor fc.bias"));

    // A checkpoint's tensors without their JSON hold the optimizer's state as well.
    std::filesystem::copy(newest, folder / "more.safetensors");
    const Outcome more = Run({"evaluate", "more.safetensors", "-c", "run.yaml"}, folder.path());
    ADA_CHECK_EXIT(more, 0);
    CHECK(more.out == told.out);
    CHECK(Contains(more.err, "warning: more.safetensors: "));
    CHECK(Contains(more.err, " tensors not used"));
    const Outcome scales = Run({"evaluate", "w.safetensors", "-c", "run.yaml", "--set",
                                "precision.tensor_scaling=delayed"},
                               folder.path());
    ADA_CHECK_EXIT(scales, 3);
    CHECK(Contains(scales.err, "--set precision.tensor_scaling=none"));
  }
}

}  // namespace
}  // namespace ada::testing
