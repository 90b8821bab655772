// Rows of events.csv against what the other files of the same run say.
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "train/small_run.h"

namespace ada::testing {
namespace {

using Places = std::vector<std::string>;  // "step layer tensor"

Table Train(const TempFolder& folder, const std::string& text,
            const std::vector<std::string>& more = {}) {
  const auto arguments = With(WriteConfig(folder, "run", kSmallNetwork + text), more);
  ADA_REQUIRE_EXIT(Run(arguments, folder.path()), 0);
  return ReadCsv(folder / "run/events.csv");
}
Table Rows(const TempFolder& folder, const std::string& file) {
  return ReadCsv(folder / ("run/" + file));
}
double Field(const GoldenRow& row, const std::string& name) { return std::stod(row.at(name)); }
std::string PlaceOf(const GoldenRow& row) {
  return row.at("step") + " " + row.at("layer") + " " + row.at("tensor");
}
Places PlacesOf(const Table& events, const std::string& event) {
  Places places;
  for (const GoldenRow& row : RowsWhere(events, "event", event)) places.push_back(PlaceOf(row));
  return places;
}

// The layers of a step that have a dx or dw without a value, in the order of the logs.
Places WithoutGradient(const Table& underflow, const std::string& step) {
  Places layers;
  for (const GoldenRow& row : RowsWhere(underflow, "step", step)) {
    const bool gradient = row.at("tensor") == "dx" || row.at("tensor") == "dw";
    if (gradient && row.at("zeros_after") == row.at("numel") &&
        (layers.empty() || layers.back() != step + " " + row.at("layer")))
      layers.push_back(step + " " + row.at("layer"));
  }
  return layers;
}

TEST_SUITE("cpu") {
  TEST_CASE("no_gradient: each layer once, with the place where the gradient died") {
    const TempFolder folder;
    const Table events = Train(folder,
                               "scaling: {policy: fixed, scale: 3e-7}\n"
                               "train: {epochs: 2}\nlog: {every: 4}\n");
    const Table rows = RowsWhere(events, "event", "no_gradient");
    Places places;
    for (const GoldenRow& row : rows) places.push_back(row.at("step") + " " + row.at("layer"));
    const Table underflow = Rows(folder, "underflow.csv");
    CHECK(places == WithoutGradient(underflow, "1"));  // and never again: they stay without
    REQUIRE(places.size() >= 3);
    for (const GoldenRow& row : rows) CHECK(row.at("value") == rows.front().at("value"));
    // The tensor that is named had values and lost all of them.
    const std::string died_at = rows.front().at("value");
    for (const GoldenRow& row : RowsWhere(underflow, "step", "1")) {
      if (row.at("layer") + "." + row.at("tensor") != died_at) continue;
      CHECK(row.at("zeros_before") != row.at("numel"));
      CHECK(row.at("zeros_after") == row.at("numel"));
    }
    CHECK(Contains(ReadBytes(folder / "run/log.txt"), "no gradient: it died at " + died_at));
  }

  TEST_CASE(
      "lr_change: every change of a schedule of steps, also to what nine digits do not hold") {
    for (const std::string gamma : {"0.5", "0.12345678901234"}) {
      CAPTURE(gamma);
      const TempFolder folder;
      const Table events =
          Train(folder, "schedule: {kind: multistep, milestones: [1, 3], gamma: " + gamma +
                            ", warmup: {epochs: 0.5, lr: 0.001}}\n"
                            "train: {epochs: 4}\n");
      Places expected;
      const Table steps = Rows(folder, "steps.csv");
      for (std::size_t i = 1; i < steps.size(); ++i)
        if (steps[i].at("lr") != steps[i - 1].at("lr"))
          expected.push_back(steps[i].at("step") + "  ");
      CHECK(expected.size() == 3);
      CHECK(PlacesOf(events, "lr_change") == expected);
    }
  }

  TEST_CASE("lr_change: of a schedule that moves with each step the first of an epoch") {
    const TempFolder folder;
    const Table events = Train(folder, "schedule: {kind: cosine}\ntrain: {epochs: 3}\n");
    CHECK(PlacesOf(events, "lr_change") == Places{"7  ", "13  "});
  }

  TEST_CASE("floor and ceiling of a global scale, when it comes there") {
    const std::vector<std::pair<std::string, std::string>> kRuns = {
        {"floor", "{policy: dynamic, init_scale: 1073741824, min_scale: 67108864}"},
        {"ceiling", "{policy: dynamic, init_scale: 64, max_scale: 512, growth_interval: 2}"}};
    for (const auto& [event, scaling] : kRuns) {
      CAPTURE(event);
      const TempFolder folder;
      const Table events = Train(folder, "scaling: " + scaling + "\ntrain: {epochs: 4}\n");
      const double bound = event == "floor" ? 67108864 : 512;
      Places expected;
      for (const GoldenRow& row : RowsWhere(events, "event", "scale_change"))
        if (Field(row, "value") == bound) expected.push_back(PlaceOf(row));
      CHECK(expected.size() == 1);
      CHECK(PlacesOf(events, event) == expected);
      CHECK(PlacesOf(events, event == "floor" ? "ceiling" : "floor") == Places{});
    }
  }

  TEST_CASE("ceiling of a layer: the first time that one of its upper bounds decides") {
    const TempFolder folder;
    const Table events = Train(folder, R"(
scaling: {policy: adaptive, init_scale: 0.001, scale_upper_bound: 4, accum_upper_bound: 16}
train: {epochs: 3}
log: {every: 1}
)");
    std::set<std::pair<std::string, std::string>> seen;
    Places expected;
    for (const GoldenRow& row : Rows(folder, "scales.csv"))
      if ((row.at("limit") == "SB" || row.at("limit") == "AB") &&
          seen.insert({row.at("layer"), row.at("limit")}).second)
        expected.push_back(row.at("step") + " " + row.at("layer") + " dx");
    CHECK(PlacesOf(events, "ceiling") == expected);
    CHECK(!expected.empty());
  }

  TEST_CASE("a layer's own state machine at its bounds") {
    const TempFolder folder;
    const Table events = Train(folder, R"(
scaling:
  policy: layerwise_dynamic
  init_scale: 64
  growth_interval: 2
  max_scale: 1024
  layers: [{match: fc, max_scale: 256}]
train: {epochs: 3}
log: {every: 1}
)");
    std::map<std::string, std::string> last;
    Places expected;
    for (const GoldenRow& row : Rows(folder, "scales.csv")) {
      if (row.at("limit") != "state") continue;
      const double bound = row.at("layer") == "fc" ? 256 : 1024;
      std::string& before = last[row.at("layer")];
      if (!before.empty() && before != row.at("scale_out") && Field(row, "scale_out") == bound)
        expected.push_back(row.at("step") + " " + row.at("layer") + " dx");
      before = row.at("scale_out");
    }
    CHECK(PlacesOf(events, "ceiling") == expected);
    CHECK(expected.size() >= 2);
  }

  TEST_CASE("underflow_alert: a tensor that passes the threshold from below") {
    const TempFolder folder;
    const Table events = Train(folder, R"(
scaling: {policy: fixed, scale: 0.001}
train: {epochs: 3}
log: {every: 1, alert_underflow_pct: 5}
)");
    std::map<std::string, double> last;
    Places expected;
    for (const GoldenRow& row : Rows(folder, "underflow.csv")) {
      const std::string& text = row.at("underflow_pct_nonzero");
      const double pct = text.empty() ? 0 : std::stod(text);
      double& before = last[row.at("layer") + "." + row.at("tensor")];
      if (pct > 5 && before <= 5) expected.push_back(PlaceOf(row));
      before = pct;
    }
    CHECK(PlacesOf(events, "underflow_alert") == expected);
    CHECK(expected.size() > 3);
    for (const GoldenRow& row : RowsWhere(events, "event", "underflow_alert"))
      CHECK(Field(row, "value") > 5);
  }

  TEST_CASE("loss_not_finite: the first of several steps in a row") {
    const TempFolder folder;
    const Table events =
        Train(folder, "train: {max_steps: 12, epochs: 2}\n", {"--set", "optimizer.lr=1e6"});
    Places expected;
    bool finite = true;
    for (const GoldenRow& row : Rows(folder, "steps.csv")) {
      const bool now = std::isfinite(Field(row, "loss"));
      if (finite && !now) expected.push_back(row.at("step") + " loss ");
      finite = now;
    }
    CHECK(PlacesOf(events, "loss_not_finite") == expected);
    CHECK(!expected.empty());
  }
}

}  // namespace
}  // namespace ada::testing
