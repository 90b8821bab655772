// All recorded traces of the systems after the dynamic presets, from first to last row: scale,
// skipped, scale_after, steps, errors, and the systems' own counters.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "golden_table.h"
#include "scaling/policies/policies.h"
#include "scaling/policies/presets.h"
#include "scaling/rules/state_text.h"

namespace ada::scaling {
namespace {

// The systems' names for the parameters.
void Set(DynamicParameters& p, const std::string& name, const std::string& text) {
  static const std::map<std::string, double DynamicParameters::*> reals = {
      {"init_scale", &DynamicParameters::init_scale},
      {"initial_loss_scale", &DynamicParameters::init_scale},
      {"initial_scale", &DynamicParameters::init_scale},
      {"loss_scale", &DynamicParameters::init_scale},
      {"init_loss_scaling", &DynamicParameters::init_scale},
      {"init_loss_scale", &DynamicParameters::init_scale},
      {"scale", &DynamicParameters::init_scale},
      {"_loss_scale", &DynamicParameters::init_scale},
      {"growth_factor", &DynamicParameters::growth_factor},
      {"multiplier", &DynamicParameters::growth_factor},
      {"factor", &DynamicParameters::growth_factor},
      {"scale_factor", &DynamicParameters::growth_factor},
      {"scaling_factor", &DynamicParameters::growth_factor},
      {"step_factor", &DynamicParameters::growth_factor},
      {"incr_ratio", &DynamicParameters::growth_factor},
      {"backoff_factor", &DynamicParameters::backoff_factor},
      {"decr_ratio", &DynamicParameters::backoff_factor},
      {"min_loss_scale", &DynamicParameters::min_scale},
      {"min_scale", &DynamicParameters::min_scale},
      {"threshold", &DynamicParameters::min_scale},
      {"scale_min", &DynamicParameters::min_scale},
      {"minimum_scale", &DynamicParameters::min_scale},
      {"max_loss_scale", &DynamicParameters::max_scale},
      {"_max_loss_scale", &DynamicParameters::max_scale},
      {"_loss_scale_max", &DynamicParameters::max_scale},
      {"scale_max", &DynamicParameters::max_scale},
      {"tolerance", &DynamicParameters::tolerance},
      {"overflow_tolerance", &DynamicParameters::tolerance}};
  static const std::vector<std::string> windows = {"growth_interval",
                                                   "increment_period",
                                                   "dynamic_growth_steps",
                                                   "scale_window",
                                                   "step_window",
                                                   "incr_every_n_steps",
                                                   "period",
                                                   "_scale_seq_len",
                                                   "interval",
                                                   "N"};
  if (reals.count(name) > 0) {
    p.*reals.at(name) = std::stod(text);
  } else if (std::find(windows.begin(), windows.end(), name) != windows.end()) {
    p.growth_interval = std::stoll(text);
  } else if (name == "delayed_shift" || name == "hysteresis" || name == "decr_every_n_nan_or_inf") {
    p.hysteresis = std::stoll(text);
  } else if (name == "consecutive_hysteresis") {
    p.consecutive_hysteresis = text == "True";
  } else if (name == "raise_error_at_min_scale") {
    p.error_at_min_scale = text == "True";
  } else {
    FAIL("unknown parameter " << name);
  }
}

DynamicParameters ParametersOf(const std::string& preset, const testing::GoldenTable& table) {
  DynamicParameters p = FindDynamicPreset(preset).parameters;
  for (const std::string& comment : table.comments) {
    if (comment.rfind("params: ", 0) != 0) continue;
    for (const std::string& word : testing::Words(comment.substr(8))) {
      const std::size_t equals = word.find('=');
      Set(p, word.substr(0, equals), word.substr(equals + 1));
    }
  }
  return p;
}

// The systems' own counters that ours keep as well: column, key of the state.
std::map<std::string, std::string> CountersOf(const std::string& preset) {
  const std::map<std::string, std::map<std::string, std::string>> all = {
      {"pytorch", {{"growth_tracker", "growth_tracker"}}},
      {"tensorflow", {{"num_good_steps", "growth_tracker"}}},
      {"keras", {{"step_counter", "growth_tracker"}}},
      {"apex", {{"unskipped", "growth_tracker"}}},
      {"deepspeed", {{"cur_hysteresis", "overflows_left"}}},
      {"megatron", {{"growth_tracker", "growth_tracker"}}},
      {"fairseq", {{"overflows_since_rescale", "overflows_since_rescale"}}},
      {"nnabla", {{"counter", "growth_tracker"}}},
      {"cerebras",
       {{"steps_since_rescale", "attempts_since_rescale"},
        {"overflows_since_rescale", "overflows_since_rescale"}}},
      {"openseq2seq_backoff", {}},
      {"mindspore", {{"bad_step", "overflows_in_a_row"}}},
      {"paddle", {{"incr_count", "growth_tracker"}}},
      {"jmp", {{"counter", "growth_tracker"}}},
      {"flax", {{"fin_steps", "growth_tracker"}}},
      {"mxnet", {{"unskipped", "growth_tracker"}}},
      {"chainer", {{"isnan_ever", "overflowed"}}},
  };
  return all.at(preset);
}

// Plays a trace; returns its rows.
std::size_t Play(const std::string& preset, const std::string& path) {
  const testing::GoldenTable table = testing::ReadGolden(path);
  const auto policy = MakeDynamic(ParametersOf(preset, table));
  const auto counters = CountersOf(preset);
  RetryRule retry(FindDynamicPreset(preset).max_retries);
  std::int64_t step = 0;
  for (const testing::GoldenRow& row : table.rows) {
    CAPTURE(row.at("attempt"));
    REQUIRE(std::to_string(step) == row.at("step"));
    REQUIRE(policy->Scale() == testing::Number(row, "scale"));
    StepOutcome attempt;
    attempt.overflow = row.at("overflow") == "1";
    const ScaleUpdate verdict = policy->Update(attempt);
    REQUIRE(verdict.before == testing::Number(row, "scale"));
    REQUIRE(verdict.after == testing::Number(row, "scale_after"));
    REQUIRE(policy->Scale() == verdict.after);
    REQUIRE((verdict.action == Action::kSkip) == (row.at("skipped") == "1"));
    REQUIRE(verdict.reason.empty() == (verdict.before == verdict.after));
    REQUIRE(verdict.error.empty() == row.at("error").empty());
    if (!retry.Next(verdict.action == Action::kSkip)) ++step;
    if (!verdict.error.empty()) continue;  // the systems leave their counters half done
    const StateMap state = policy->SaveState();
    for (const auto& [column, key] : counters) {
      CAPTURE(column);
      REQUIRE(state.at(key) == row.at(column));
    }
    if (preset == "mxnet")
      REQUIRE(ReadHex(state, "next_scale") == testing::Number(row, "next_loss_scale"));
  }
  return table.rows.size();
}

TEST_SUITE("cpu") {
  TEST_CASE("dynamic presets: every row of every recorded trace") {
    const std::map<std::string, int> traces = {{"pytorch", 11},   {"tensorflow", 11},
                                               {"keras", 10},     {"apex", 12},
                                               {"deepspeed", 17}, {"megatron", 15},
                                               {"fairseq", 16},   {"nnabla", 11},
                                               {"cerebras", 16},  {"openseq2seq_backoff", 13},
                                               {"mindspore", 11}, {"paddle", 13},
                                               {"jmp", 12},       {"flax", 12},
                                               {"mxnet", 11},     {"chainer", 12}};
    std::size_t rows = 0;
    for (const auto& [preset, count] : traces) {
      CAPTURE(preset);
      int seen = 0;
      const std::string folder = std::string(ADA_SOURCE_DIR) + "/tests/golden/dynamic/" + preset;
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string file = entry.path().filename();
        CAPTURE(file);
        rows += Play(preset, "dynamic/" + preset + "/" + file);
        ++seen;
      }
      CHECK(seen == count);
    }
    CHECK(rows == 139372);
  }
}

}  // namespace
}  // namespace ada::scaling
