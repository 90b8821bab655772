// recommend on runs made by hand: the ends of the safe range against counting values one by one,
// and fragments that a configuration takes.
#include <doctest/doctest.h>

#include <sstream>

#include "study/advise/run_record.h"
#include "study/commands.h"
#include "study/made_run.h"

namespace ada::study {
namespace {

using testing::MadeRun;
using testing::Values;

constexpr char kMark[] = "# Lay this over the run's configuration (train --with FILE):\n";

std::string Advice(const MadeRun& run, double target = 1e-3, double headroom = 2) {
  std::ostringstream out;
  RecommendOptions options;
  options.folder = run.path();
  options.underflow_target = target;
  options.headroom_bits = headroom;
  Recommend(options, out);
  return out.str();
}

std::string Fragment(const std::string& advice) {
  const std::size_t at = advice.find(kMark);
  REQUIRE(at != std::string::npos);
  return advice.substr(at + sizeof kMark - 1);
}

// The run's configuration with the fragment laid over it, as --with does.
config::Config Merged(const MadeRun& run, const std::string& fragment) {
  const ada::testing::TempFolder folder;
  folder.Write("f.yaml", fragment);
  return config::LoadText(run.config(), "made", config::OverridesFrom(folder / "f.yaml")).config;
}

// What advise decides, as it writes it.
std::string Decided(const MadeRun& run) {
  const ada::testing::TempFolder folder;
  std::ostringstream out;
  Advise({run.path(), folder / "a.yaml"}, out);
  return folder.Read("a.yaml");
}

double WorstPct(const std::vector<Values>& tensors, double scale) {
  double worst = 0;
  for (const Values& values : tensors) {
    const TensorStats s = testing::CountedOneByOne(values, kFp16, scale);
    worst = std::max(worst, 100.0 * static_cast<double>(s.underflow) /
                                static_cast<double>(s.numel - s.zeros_before));
  }
  return worst;
}
float Largest(const std::vector<Values>& tensors) {
  float largest = 0;
  for (const Values& values : tensors)
    for (const float x : values) largest = std::max(largest, std::fabs(x));
  return largest;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
std::string PowerText(double scale) { return "2^" + std::to_string(std::ilogb(scale)); }

TEST_SUITE_BEGIN("cpu");

TEST_CASE("one fixed scale serves all: its ends are those that counting gives") {
  MadeRun run("precision: {format: fp16}\nscaling: {policy: none}");
  std::vector<Values> tensors;
  for (const int step : {1, 5, 10, 20}) {
    const auto seed = static_cast<unsigned>(step);
    tensors.push_back(testing::Normal(-14, 5000, seed));
    run.Add(step, "loss", "dx", tensors.back());
    tensors.push_back(testing::Normal(-20, 5000, seed + 50));
    run.Add(step, "fc", "dx", tensors.back());
    tensors.push_back(testing::Normal(-21 - step / 10, 5000, seed + 99));
    run.Add(step, "conv2", "dx", tensors.back());
  }
  run.Finish();
  double low = 1, high = 1;
  while (WorstPct(tensors, low) <= 0.1) low /= 2;
  while (WorstPct(tensors, low) > 0.1) low *= 2;
  while (2 * high * static_cast<double>(Largest(tensors)) * 4 <= 65504) high *= 2;

  const std::string advice = Advice(run);
  INFO(advice);
  CHECK(Has(advice, "One fixed scale: from " + PowerText(low) + " (conv2.dx) to " +
                        PowerText(high) + " (loss.dx) serves all gradients."));
  CHECK(Has(advice,
            "How sure: little. 4 steps with histograms (1 to 20, epochs 1 to 2 of 2), 32 "
            "images each"));
  CHECK(Has(advice, "run made (synthetic)"));
  CHECK(Fragment(advice) == Decided(run));
  const config::Config merged = Merged(run, Fragment(advice));
  CHECK(merged.scaling.policy == "fixed");
  // Much was lost: three quarters of the way up.
  const int width = std::ilogb(high / low);
  CHECK(merged.scaling.scale == std::ldexp(low, width - width / 4));
  CHECK(merged.scaling.scale <= high);
  CHECK(merged.precision.format == kFp16);
  // What it promises holds for the values themselves.
  CHECK(WorstPct(tensors, merged.scaling.scale) <= 0.1);
  for (std::size_t at = 0; at < advice.size();) {
    const std::size_t end = advice.find('\n', at);
    CHECK(end - at <= 100);
    at = end + 1;
  }
}

TEST_CASE("a run that lost little: a margin above the smallest scale") {
  MadeRun run("precision: {format: fp16}\nscaling: {policy: fixed, scale: 8}");
  for (int step = 1; step <= 3; ++step)
    run.Add(step, "loss", "dx", testing::Normal(-20, 5000, static_cast<unsigned>(step)), kFp16, 8);
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  std::vector<Values> tensors;
  for (unsigned step = 1; step <= 3; ++step) tensors.push_back(testing::Normal(-20, 5000, step));
  double low = 1;
  while (WorstPct(tensors, low) > 0.1) low *= 2;
  CHECK(Merged(run, Fragment(advice)).scaling.scale == low * 256);
}

TEST_CASE("keep what you have where S = 1 does") {
  MadeRun run("precision: {format: fp16}\nscaling: {policy: fixed, scale: 1}");
  for (unsigned step = 2; step <= 20; step += 2) {
    run.Add(step, "loss", "dx", testing::Normal(-2, 1000, step));
    run.Add(step, "fc", "dx", testing::Normal(-1, 1000, step + 1));
  }
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  CHECK(Has(advice, "Fine as they are (2 of 2 tensors):\n  loss.dx, fc.dx\n"));
  CHECK(Has(advice,
            "Recommended: keep what you have: the loss and the gradients are finite; no value"));
  CHECK(Has(advice, "How sure: well. 10 steps "));
  CHECK(!Has(advice, kMark));
  CHECK(Decided(run).starts_with("# keep what you have: "));
}

TEST_CASE("a tensor whose S lay outside its own range is not fine") {
  // No value is lost at either; 2^17 leaves the headroom no room, 2^-3 the smallest values.
  for (const double scale : {1.0, 131072.0}) {
    MadeRun run("precision: {format: fp16}\nscaling: {policy: fixed, scale: " +
                std::to_string(static_cast<int>(scale)) + "}");
    for (const int step : {1, 10, 20}) {
      run.Add(step, "loss", "dx", Values(1000, 0.25f), kFp16, scale);
      run.Add(step, "fc", "dx", Values(1000, 0x1p-10f), kFp16, scale);
    }
    run.Finish();
    const std::string advice = Advice(run);
    INFO(advice);
    const bool fine = scale == 1;
    CHECK(Has(advice, "S was too large") == !fine);
    CHECK(Has(advice, fine ? "Fine as they are (2 of 2 tensors)"
                           : "Fine as they are (1 of 2 tensors):\n  fc.dx"));
    CHECK(Has(advice, "Recommended: keep what you have"));
  }
}

TEST_CASE("layers that pull in opposite directions get scales of their own") {
  MadeRun run("precision: {format: fp16}");
  for (const int step : {1, 10, 20}) {
    const auto seed = static_cast<unsigned>(step);
    run.Add(step, "loss", "dx", testing::Normal(4, 3000, seed));      // bears 2^7 or so
    run.Add(step, "fc", "dx", testing::Normal(-30, 3000, seed + 1));  // needs 2^15 or so
    run.Add(step, "bn2", "dx", testing::Normal(-28, 3000, seed + 2));
    run.Add(step, "conv2", "dx", testing::Normal(-33, 3000, seed + 3));
  }
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  CHECK(Has(advice, "One fixed scale: none serves all gradients."));
  const std::size_t more = advice.find("need at least:"), less = advice.find("bear at most:");
  const std::size_t best = advice.find("Best compromise with one scale");
  REQUIRE(less != std::string::npos);
  CHECK(advice.substr(more, less - more).find("fc.dx 2^") != std::string::npos);
  CHECK(advice.substr(less, best - less).find("loss.dx 2^") != std::string::npos);
  CHECK(advice.substr(less, best - less).find("fc.dx") == std::string::npos);
  CHECK(Has(advice, "nothing overflows."));
  const config::Config merged = Merged(run, Fragment(advice));
  CHECK(merged.scaling.policy == "adaptive");
  CHECK(merged.scaling.adaptive.method == scaling::LayerMethod::kExactRange);
  CHECK(merged.scaling.adaptive.underflow_target == doctest::Approx(0.001));
  CHECK(Has(advice, "at most 0.1 % of"));
  CHECK(Has(Advice(run, 0.25), "at most 25 % of"));
  CHECK(merged.scaling.adaptive.headroom_bits == 2);
  CHECK(merged.precision.layers.empty());
}

TEST_CASE("the keys of any policy go where another one is recommended") {
  for (const char* scaling :
       {"{policy: none, init_scale: 1024}", "{policy: fixed, scale: 64}",
        "{policy: dynamic, growth_interval: 7}", "{policy: logmax}", "{policy: histogram}",
        "{policy: layerwise_dynamic, layers: [{match: fc, init_scale: 4}]}",
        "{policy: adaptive, reference: true, fan: reference, init_scale: 9}",
        "{policy: adaptive, method: fixed, scale: 2, batch_norm: true, attention: false, "
        "layers: "
        "[{match: fc, scale: 3}]}"}) {
    CAPTURE(scaling);
    const std::string sections = "precision: {format: fp16}\nscaling: " + std::string(scaling);
    MadeRun apart(sections), fine(sections), between(sections);
    apart.Add(1, "loss", "dx", testing::Normal(4, 3000, 1));
    apart.Add(1, "fc", "dx", testing::Normal(-30, 3000, 2));
    fine.Add(1, "loss", "dx", testing::Normal(-2, 1000, 1));
    between.Add(1, "loss", "dx", testing::Normal(-26, 1000, 1));
    for (MadeRun* run : {&apart, &fine, &between}) run->Finish();
    const config::Config adaptive = Merged(apart, Fragment(Advice(apart)));
    CHECK(adaptive.scaling.policy == "adaptive");
    CHECK(adaptive.scaling.adaptive.method == scaling::LayerMethod::kExactRange);
    CHECK(adaptive.scaling.layers.empty());
    CHECK(!adaptive.scaling.reference);
    CHECK(Has(Advice(fine), "Recommended: keep what you have"));
    CHECK(Fragment(Advice(apart)) == Decided(apart));
    CHECK(Merged(between, Fragment(Advice(between))).scaling.policy == "fixed");
  }
}

// Half of the values are 2^-30 each, which 2^5 takes to half of fp16's smallest number.
TEST_CASE("a scale at which ties are lost is not recommended where another serves") {
  MadeRun run("precision: {format: fp16}\nscaling: {policy: fixed, scale: 16}");
  Values values(1000, std::ldexp(1.0f, -30));
  values.insert(values.end(), 1000, 128.0f);
  for (int step = 1; step <= 3; ++step) run.Add(step, "loss", "dx", values, kFp16, 16);
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  CHECK(Has(advice, "from 2^5 (loss.dx) to 2^6 (loss.dx)"));
  CHECK(Merged(run, Fragment(advice)).scaling.scale == 64);
  CHECK(Has(advice, "nothing underflows"));
}

TEST_CASE("stochastic rounding may lose all below the smallest number") {
  const auto low = [](const char* rounding) {
    MadeRun run("precision: {format: fp16, rounding: " + std::string(rounding) + "}");
    run.Add(1, "loss", "dx", testing::Normal(-20, 5000, 1));
    run.Finish();
    const std::string advice = Advice(run), begin = "One fixed scale: from 2^";
    CHECK(Has(advice, "rounds stochastically") == (std::string(rounding) == "stochastic"));
    REQUIRE(Has(advice, begin));
    return std::stoi(advice.substr(advice.find(begin) + begin.size()));
  };
  CHECK(low("stochastic") == low("nearest") + 1);
}

TEST_CASE("formats that precision.schedule changes are judged step by step") {
  MadeRun run("precision: {format: fp8_e4m3, schedule: [{from_step: 11, format: fp16}]}");
  Values wide = testing::Normal(-40, 1000, 1);
  const Values big = testing::Normal(5, 1000, 2);
  wide.insert(wide.end(), big.begin(), big.end());
  for (const int step : {1, 11, 20}) {
    const NumberFormat format = step < 11 ? kFp8E4M3 : kFp16;
    run.Add(step, "loss", "dx", testing::Normal(-12, 1000, 3), format);
    run.Add(step, "fc", "dx", step == 20 ? wide : testing::Normal(-2, 1000, 4), format);
    run.Add(step, "conv2", "dx", testing::Normal(-2, 1000, 5), format);
  }
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  // It lost much in fp8_e4m3, in step 1, and nothing since.
  CHECK(Has(advice, "Fine as they are (2 of 3 tensors):\n  loss.dx, conv2.dx\n"));
  CHECK(Has(advice, "  bn2: gradients in bf16, for fc.dx\n"));
  const config::Config merged = Merged(run, Fragment(advice));
  for (const std::int64_t step : {1, 20}) {
    const config::PrecisionConfig at = config::PrecisionAt(merged.precision, step);
    REQUIRE(!at.layers.empty());
    CHECK(at.layers.back().match == "bn2");
    CHECK(at.layers.back().gradients == kBf16);
    CHECK(at.format == (step < 11 ? kFp8E4M3 : kFp16));
  }
}

TEST_CASE("gradients with per-tensor scales ask for no S") {
  MadeRun run("precision: {format: fp8_e5m2, tensor_scaling: delayed}");
  run.Add(1, "loss", "dx", testing::Normal(-9, 1000, 1), kFp8E5M2, 1024);
  Values wide = testing::Normal(-40, 1000, 2);
  const Values big = testing::Normal(5, 1000, 3);
  wide.insert(wide.end(), big.begin(), big.end());
  run.Add(1, "conv2", "dx", wide, kFp8E5M2, 512);
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  CHECK(Has(advice, "no\nS changes what is lost."));
  CHECK(Has(advice, "conv2.dx (fp8_e5m2, scaled by itself) 5"));
  CHECK(Has(advice, "gradients in bf16, for conv2.dx\n"));
  CHECK(!Has(advice, "One fixed scale"));
  CHECK(!Has(Fragment(advice), "scaling:\n"));
}

TEST_CASE("a batch norm that loses at another layer's choice chooses for itself") {
  MadeRun run("precision: {format: fp16}");
  run.Add(1, "loss", "dx", testing::Normal(4, 3000, 1));
  run.Add(1, "fc", "dx", testing::Normal(-24, 3000, 2));
  run.Add(1, "bn2", "dx", testing::Normal(-34, 3000, 3));  // would carry the S of fc.dx
  run.Add(1, "conv2", "dx", testing::Normal(-33, 3000, 4));
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  CHECK(Has(advice, "policy adaptive, method exact_range, with an alpha for batch norms too"));
  CHECK(Has(advice, "nothing overflows."));
  CHECK(Has(Fragment(advice), "  batch_norm: true\n"));
  const config::Config merged = Merged(run, Fragment(advice));
  CHECK(merged.scaling.adaptive.batch_norm);
  CHECK(merged.precision.layers.empty());
}

TEST_CASE("a gradient that carries another layer's choice and loses at it gets a wider format") {
  MadeRun run("precision: {format: fp16}", "{name: bn2, kind: avg_pool, kernel: 2}");
  run.Add(1, "loss", "dx", testing::Normal(4, 3000, 1));
  run.Add(1, "fc", "dx", testing::Normal(-24, 3000, 2));
  run.Add(1, "bn2", "dx", testing::Normal(-34, 3000, 3));  // carries the S of fc.dx
  run.Add(1, "conv2", "dx", testing::Normal(-33, 3000, 4));
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  CHECK(Has(advice, "speak for policy adaptive, method exact_range, which finds"));
  CHECK(Has(advice, "  conv2: gradients in bf16, for bn2.dx\n"));
  CHECK(Has(advice, "nothing overflows."));
  const config::Config merged = Merged(run, Fragment(advice));
  REQUIRE(merged.precision.layers.size() == 1);
  CHECK(merged.precision.layers[0].gradients == kBf16);
}

TEST_CASE("a gradient that no scale can hold gets a wider format, at the layer that sets it") {
  MadeRun run("precision: {format: fp16, layers: [{match: 'fc', weights: bf16}]}");
  Values wide = testing::Normal(-40, 3000, 1);
  const Values big = testing::Normal(5, 3000, 2);
  wide.insert(wide.end(), big.begin(), big.end());
  run.Add(1, "loss", "dx", testing::Normal(-10, 3000, 3));
  run.Add(1, "fc", "dx", wide);  // the gradient of relu2's output, whose format bn2 sets
  run.Add(1, "conv2", "dx", testing::Normal(-12, 3000, 4));
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  CHECK(Has(advice, "no scale fits"));
  CHECK(Has(advice, "  bn2: gradients in bf16, for fc.dx\n"));
  const config::Config merged = Merged(run, Fragment(advice));
  REQUIRE(merged.precision.layers.size() == 2);
  CHECK(merged.precision.layers[0].match == "fc");
  CHECK(merged.precision.layers[1].match == "bn2");
  CHECK(merged.precision.layers[1].gradients == kBf16);
  CHECK(!merged.precision.layers[1].format);
  CHECK((merged.scaling.policy == "fixed" || merged.scaling.policy == "none"));
}

TEST_CASE("y, w and dw carry no scale: another format is all that helps") {
  MadeRun run("precision: {format: fp8_e4m3, weight_gradients: fp16}");
  run.Add(1, "conv1", "w", testing::Normal(-6, 2000, 1), kFp8E4M3);
  run.Add(1, "conv1", "y", {1, 500, 2}, kFp8E4M3);  // 448 is the largest
  run.Add(1, "loss", "dx", testing::Normal(-4, 2000, 2), kFp16);
  run.Add(1, "conv1", "dw", testing::Normal(-30, 2000, 3), kFp16);
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  CHECK(Has(advice, "No S helps these, which lose more than the target or are not finite:"));
  CHECK(Has(advice, "conv1.y (fp8_e4m3) 33.3 % and overflow"));
  CHECK(Has(advice, "  conv1: weights in fp8_e5m2, for conv1.w\n"));
  CHECK(Has(advice, "  conv1: activations in fp8_e5m2, for conv1.y\n"));
  CHECK(Has(advice, "  conv1: weight_gradients in bf16, for conv1.dw\n"));
  const config::Config merged = Merged(run, Fragment(advice));
  REQUIRE(merged.precision.layers.size() == 1);
  CHECK(merged.precision.layers[0].activations == kFp8E5M2);
  CHECK(merged.precision.layers[0].weights == kFp8E5M2);
  CHECK(merged.precision.layers[0].weight_gradients == kBf16);
}

TEST_CASE("where all gradients change, the role's own key says it") {
  MadeRun run("precision: {format: fp16, gradients: fp8_e4m3}");
  const auto wide = [](double low, double high, unsigned seed) {
    Values values = testing::Normal(low, 1000, seed);
    const Values more = testing::Normal(high, 1000, seed + 1);
    values.insert(values.end(), more.begin(), more.end());
    return values;
  };
  run.Add(1, "loss", "dx", wide(-110, -4, 1), kFp8E4M3);  // 2^-126 upwards: bf16
  run.Add(1, "fc", "dx", wide(-17, 0, 3), kFp8E4M3);      // fp8_e5m2
  run.Add(1, "conv2", "dx", wide(-19, -2, 5), kFp8E4M3);
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  CHECK(Has(advice, "Best compromise with one scale and the formats as they are: S = 2^"));
  CHECK(Has(advice, "once the formats below are changed"));
  const config::Config merged = Merged(run, Fragment(advice));
  CHECK(merged.precision.gradients == kFp8E5M2);
  CHECK(merged.precision.format == kFp16);
  REQUIRE(merged.precision.layers.size() == 1);
  CHECK(merged.precision.layers[0].match == "fc");
  CHECK(merged.precision.layers[0].gradients == kBf16);
}

TEST_CASE("where a preset decides the role, entries of layers say it, and the fragment is read") {
  MadeRun run("precision: {format: fp16, preset: autocast}");
  for (const char* layer : {"loss", "fc", "bn2", "conv2"}) {
    Values values = testing::Normal(-30, 1000, 1);
    const Values more = testing::Normal(14, 1000, 2);
    values.insert(values.end(), more.begin(), more.end());
    run.Add(1, layer, "dx", values);
  }
  run.Finish();
  const config::Config merged = Merged(run, Fragment(Advice(run)));
  CHECK(merged.precision.preset == config::PrecisionPreset::kAutocast);
  CHECK_FALSE(merged.precision.gradients.has_value());
  CHECK(merged.precision.layers.size() > 1);
  for (const config::LayerPrecisionConfig& entry : merged.precision.layers)
    CHECK(entry.gradients == kBf16);
}

TEST_CASE("probabilities of attention are activations") {
  CHECK(RoleOf("p") == "activations");
  CHECK(RoleOf("ds") == "gradients");
}

TEST_CASE("a training that is told in steps is judged in steps, and of sequences") {
  RunRecord record;
  record.config.task = Task::kLanguage;
  record.config.train.epochs = 0, record.config.train.max_steps = 1000;
  record.config.data.batch_size = 8;
  RunNeeds& needs = record.needs;
  needs.tensors.emplace_back();
  needs.steps = 10, needs.first_epoch = needs.last_epoch = 1;
  const auto grade = [&](std::int64_t first, std::int64_t last) {
    needs.first_step = first, needs.last_step = last;
    return std::string(GradeOf(record));
  };
  CHECK(grade(100, 1000) == "well");
  CHECK(grade(1, 901) == "well");       // every 100 steps
  CHECK(grade(100, 550) == "fairly");   // half of them
  CHECK(grade(500, 1000) == "fairly");  // nothing of the beginning
  CHECK(grade(1, 499) == "little");
  grade(1, 901);
  std::ostringstream out;
  PrintConfidence(RecommendOptions(), record, Recommendation(), ProbedLoss(), out);
  CHECK(Has(out.str(), "10 steps with histograms (1 to 901 of 1000), 8 sequences each;"));
  CHECK_FALSE(Has(out.str(), "epoch"));
}

TEST_CASE("a training that is told in epochs is judged in the steps that it takes") {
  RunRecord record;
  config::TrainConfig& train = record.config.train;
  train.epochs = 10;
  RunNeeds& needs = record.needs;
  needs.tensors.emplace_back();
  needs.steps = 12, needs.first_epoch = needs.last_epoch = 1;
  needs.first_step = 1, needs.last_step = 12;
  telemetry::StepRow last;
  last.step = 12;
  record.run.Add(last);
  const auto grade = [&] { return std::string(GradeOf(record)); };
  CHECK(grade() == "little");  // its first epoch is not over: how long that is nobody knows
  train.epochs = 1;
  CHECK(grade() == "little");
  record.finished = true;
  CHECK(grade() == "well");
  record.finished = false, record.epoch_steps = 5;
  CHECK(grade() == "well");
  train.epochs = 10;  // 50 steps
  CHECK(grade() == "little");
  train.max_steps = 12;
  CHECK(grade() == "well");
}

TEST_CASE("histograms of what an overflow left over count for nothing") {
  MadeRun run("precision: {format: fp16}");
  Values broken = testing::Normal(-60, 100, 1);
  broken.push_back(INFINITY);
  run.Add(1, "loss", "dx", testing::Normal(-2, 1000, 2));
  run.Add(1, "fc", "dx", broken);
  run.Add(2, "fc", "dx", testing::Normal(-2, 1000, 3));
  run.Finish();
  const std::string advice = Advice(run);
  CHECK(Has(advice, "1 histogram with inf or NaN"));
  CHECK(Has(advice, "One fixed scale: from 2^-"));
  // The counts know of the step, and advise says what they speak for.
  CHECK(Fragment(advice) == Decided(run));
}

TEST_CASE("gradients that never arrived are not fine: nothing is known of them") {
  MadeRun run("");
  const Values some = testing::Normal(-10, 100, 1), none(100, 0.0f);
  for (const std::int64_t step : {1, 10, 20}) {
    run.Add(step, "loss", "dx", some);
    run.Add(step, "fc", "dx", testing::Normal(-60, 100, 2));  // all of it underflows
    run.Add(step, "conv2", "dx", none);
    run.Add(step, "conv1", "dw", none);
  }
  run.Finish();
  const std::string advice = Advice(run);
  CHECK(Has(advice, "No gradient arrived in any step: nothing is known of\n  conv2.dx\n"));
  CHECK(Has(advice, "no gradient: it died at fc.dx (all of its values underflowed in fp16 at "));
  const std::string fine = advice.substr(advice.find("Fine as they are"));
  CHECK(!Has(fine.substr(0, fine.find("\n\n")), "conv2.dx"));
  CHECK(!Has(advice, "conv2.dx 0 %"));
}

TEST_CASE("where no gradient arrived nothing is said of scales") {
  MadeRun run("precision: {format: fp16}");
  const Values none(100, 0.0f);
  for (const std::int64_t step : {1, 10}) {
    run.Add(step, "loss", "dx", none);
    run.Add(step, "fc", "dx", none);
  }
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  CHECK(Has(advice, "No gradient arrived in any step with a histogram"));
  for (const char* word : {"One fixed scale", "speak for", "Predicted", "()"})
    CHECK(!Has(advice, word));
  CHECK(Fragment(advice) == Decided(run));
}

TEST_CASE("the lost column of a tensor that is not finite has no zero") {
  MadeRun run("precision: {format: fp16}");
  run.Add(1, "loss", "dx", testing::Normal(-2, 1000, 2));
  run.Add(1, "fc", "dx", testing::Normal(-2, 1000, 3));
  run.Add(2, "fc", "dx", {1, INFINITY});
  run.Add(1, "conv2", "dx", {1, INFINITY});
  run.Finish();
  const std::string advice = Advice(run);
  INFO(advice);
  const std::string row = advice.substr(advice.find("  fc.dx"));
  CHECK(Has(row.substr(0, row.find('\n')), "not finite"));
  CHECK(!Has(row.substr(0, row.find('\n')), "0 %"));
  CHECK(Has(advice, "Never finite in a step with a histogram: nothing is known of\n  conv2.dx\n"));
}

TEST_CASE("tensors without a histogram that lose much are listed: the network's input") {
  MadeRun run("precision: {format: fp16}");
  run.Add(1, "loss", "dx", testing::Normal(-2, 1000, 2));
  run.Count(1, "input", "y", testing::Normal(-30, 1000, 3));
  run.Finish();
  CHECK(Has(Advice(run), "  input.y (fp16) 100 %\n"));
}

TEST_CASE("the scale to start with is bound by what is narrow, where the last layer is fp32") {
  MadeRun run("");
  for (const std::int64_t step : {1, 10, 20}) {
    run.Add(step, "loss", "dx", testing::Normal(-5, 200, 1), kFp32);
    // No scale serves both: exact_range is recommended.
    run.Add(step, "fc", "dx", testing::Normal(-38, 200, 2));
    run.Add(step, "conv2", "dx", testing::Normal(4, 200, 3));
  }
  run.Finish();
  const config::Config merged = Merged(run, Fragment(Advice(run)));
  REQUIRE(merged.scaling.policy == "adaptive");
  const double scale = merged.scaling.init_scale.value();
  // Step 1 carries it everywhere: the largest value of any gradient stays in fp16.
  CHECK(scale * std::exp2(4) * 5 < 65504);
  CHECK(scale > 0);
}

TEST_CASE("a run without gradients in its histograms") {
  MadeRun run("precision: {format: fp16}");
  run.Add(1, "conv1", "w", {1, 2});
  run.Finish();
  const std::string said = Advice(run);
  CHECK(Has(said, "the run has no histogram of a"));
  CHECK(Has(said, "a run with dx and dy"));
  CHECK(Has(said, "Recommended: keep what you have"));
  CHECK_FALSE(Has(said, "One fixed scale"));
}

TEST_SUITE_END();

}  // namespace
}  // namespace ada::study
