// --dry-run's memory figure against what a run of the same configuration then takes.
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sanitizer.h"
#include "skip.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

// From the line "memory    184.6 MiB (network ...".
double ReportedMib(const std::string& table) {
  const std::size_t line = table.find("\nmemory ");
  REQUIRE(line != std::string::npos);
  std::istringstream words(table.substr(line + 8));
  double amount = 0;
  std::string unit;
  words >> amount >> unit;
  const std::map<std::string, double> units = {{"KiB", 1.0 / 1024}, {"MiB", 1}, {"GiB", 1024}};
  REQUIRE(units.contains(unit));
  return amount * units.at(unit);
}

struct Case {
  std::string name, text;
};
const Case kCases[] = {
    {"resnet20", R"(
data: {dataset: synthetic, batch_size: 128, synthetic: {train: 512, test: 256}}
model: {zoo: resnet20}
scaling: {policy: adaptive}
)"},
    {"vgg11", R"(
data: {dataset: synthetic, batch_size: 128, synthetic: {train: 256, test: 256}}
model: {zoo: vgg11}
scaling: {policy: dynamic}
)"},
    {"mlp", R"(
data: {dataset: synthetic, batch_size: 128,
       synthetic: {height: 28, width: 28, channels: 1, train: 1024, test: 256}}
model: {zoo: mlp}
scaling: {policy: none}
)"},
};

// A network whose first weight has 2.3 GiB.
constexpr char kLarge[] = R"(
data: {dataset: synthetic, batch_size: 8, synthetic: {train: 16, test: 8}}
model: {zoo: mlp, hidden: [200000]}
precision: {format: fp16}
scaling: {policy: adaptive}
)";

void LimitMemory(std::uint64_t bytes) {
  const rlimit limit = {bytes, bytes};
  setrlimit(RLIMIT_DATA, &limit);
}

TEST_SUITE("cpu") {
  TEST_CASE("a run that cannot fit into memory is refused at once, with its largest tensors") {
    if (kShadowMemory) ADA_SKIP("the sanitizer's own memory is larger than the program's");
    const TempFolder folder;
    const auto run = WriteConfig(folder, "large", kLarge);
    const Outcome o = Child(run, folder.path(), [] { LimitMemory(1u << 30); }).Wait();
    ADA_CHECK_EXIT(o, 4);
    for (const char* said : {"1.0 GiB", "ulimit -d", "fc1.weight 2.3 GiB"})
      CHECK(Contains(o.err, said));
    CHECK(o.peak_kib < 100 << 10);
    CHECK_FALSE(folder.Has("large/config.yaml"));
  }

  TEST_CASE("--dry-run touches no memory of the network") {
    if (kShadowMemory) ADA_SKIP("the sanitizer's own memory is larger than the program's");
    const TempFolder folder;
    for (const char* format : {"fp16", "fp32"}) {
      CAPTURE(format);
      const auto dry = With(WriteConfig(folder, "large", kLarge),
                            {"--dry-run", "--set", std::string("precision.format=") + format});
      const Outcome o = Run(dry, folder.path());
      CHECK((o.code == 0 || o.code == 4));  // 4: where the machine is too small for the run
      CHECK(ReportedMib(o.out) > 16 << 10);
      CHECK(o.peak_kib < 100 << 10);
    }
  }

  TEST_CASE("networks beyond all machines are refused by their shapes") {
    const TempFolder folder;
    const auto run = WriteConfig(folder, "large", kLarge);
    for (const auto& [set, said] : std::vector<std::pair<std::string, std::string>>{
             {"model.hidden=[1000000, 1000000, 1000000]", "fc2.weight with 3.6 TiB"},
             {"model={layers: [{name: a, kind: conv2d, channels: 1000000, padding: 1000, kernel: "
              "1}, {name: b, kind: linear, features: 10}]}",
              "layer a: its output would have"}}) {
      const Outcome o = Run(With(run, {"--dry-run", "--set", set}), folder.path());
      ADA_CHECK_EXIT(o, 2);
      CHECK(Contains(o.err, said));
      CHECK((kShadowMemory || o.peak_kib < 100 << 10));
    }
  }

  TEST_CASE("--dry-run tells the memory of a run within 20 %") {
    if (kShadowMemory) ADA_SKIP("the sanitizer's own memory is larger than the program's");
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      const TempFolder folder;
      const auto run = With(WriteConfig(folder, c.name,
                                        c.text + "precision: {format: fp16}\n"
                                                 "optimizer: {kind: sgd, lr: 0.01, momentum: 0.9}\n"
                                                 "train: {max_steps: 2}\n"),
                            {"--threads", "2"});
      const Outcome dry = Run(With(run, {"--dry-run"}), folder.path());
      ADA_REQUIRE_EXIT(dry, 0);
      const Outcome real = Run(run, folder.path());
      ADA_REQUIRE_EXIT(real, 0);
      const double told = ReportedMib(dry.out), taken = static_cast<double>(real.peak_kib) / 1024;
      MESSAGE(c.name, ": ", told, " MiB told, ", taken, " MiB taken");
      CHECK(std::abs(told / taken - 1) < 0.2);
    }
  }
}

}  // namespace
}  // namespace ada::testing
