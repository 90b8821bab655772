// The names of known units, and what a rule has to be.
#include "scaling/rules/accumulator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "number/number_grid.h"

namespace ada::scaling {
namespace {

using enum AccumulatorRounding;

// Eight bits of exponent as fp32 has, 13 bits of mantissa.
constexpr NumberFormat kE8M13{8, 13, 127};

constexpr char kMmaSim[] = "MMA-Sim (arXiv 2511.10909)";
constexpr char kFasi[] = "Fasi et al. 2021 (PeerJ CS 7:e330); MMA-Sim (arXiv 2511.10909)";
constexpr char kDeepSeek[] = "DeepSeek-V3 (arXiv 2412.19437), 3.3.2; MMA-Sim (arXiv 2511.10909)";

}  // namespace

const std::vector<NamedAccumulator>& NamedAccumulators() {
  static const std::vector<NamedAccumulator> kAccumulators = {
      {"volta_f32", {4, 23, kFp32, kTruncate}, "V100: fp16, fp32 sums", kFasi},
      {"volta_f16", {4, 23, kFp16, kNearest}, "V100: fp16, fp16 sums", kFasi},
      {"ampere_f32", {8, 24, kFp32, kTruncate}, "T4, A100, L40S: fp16 and bf16, fp32 sums", kFasi},
      {"ampere_f16", {8, 24, kFp16, kNearest}, "T4, A100, L40S: fp16, fp16 sums", kFasi},
      {"hopper_f32", {16, 25, kFp32, kTruncate}, "H100, B200: fp16 and bf16, fp32 sums", kMmaSim},
      {"hopper_f16", {16, 25, kFp16, kNearest}, "H100, B200: fp16, fp16 sums", kMmaSim},
      {"hopper_fp8",
       {32, 13, kE8M13, kTruncate},
       "H100 (wgmma): fp8, fast accumulation",
       kDeepSeek},
      {"hopper_fp8_promote128",
       {32, 13, kE8M13, kTruncate, 128},
       "H100 (wgmma): fp8, added to fp32 every 128 products (use_fast_accum off)",
       kDeepSeek},
      {"hopper_fp8_f16", {32, 13, kFp16, kNearest}, "H100 (wgmma): fp8, fp16 sums", kMmaSim},
      {"ada_fp8", {16, 13, kE8M13, kTruncate}, "L40S, RTX 4090: fp8", kMmaSim},
      {"blackwell_fp8", {32, 25, kFp32, kTruncate}, "B200 (tcgen05): fp8", kMmaSim},
      {"fma_fp16",
       {1, Accumulator::kExact, kFp16, kNearest},
       "no tensor core: fused multiply-adds in fp16, one after the other",
       "IEEE 754"},
      {"fma_bf16",
       {1, Accumulator::kExact, kBf16, kNearest},
       "no tensor core: fused multiply-adds in bf16, one after the other",
       "IEEE 754"},
      {"fma_fp32",
       {1, Accumulator::kExact, kFp32, kNearest},
       "a processor: fused multiply-adds in fp32, one after the other",
       "IEEE 754"},
  };
  return kAccumulators;
}

const Accumulator* AccumulatorNamed(std::string_view name) {
  for (const NamedAccumulator& named : NamedAccumulators())
    if (named.name == name) return &named.rule;
  return nullptr;
}

std::string AccumulatorFormatText(const NumberFormat& format) {
  const std::string name = FormatName(format);
  if (name.find('{') == std::string::npos) return name;
  return "e" + std::to_string(format.exponent_bits) + "m" + std::to_string(format.mantissa_bits);
}

std::string AccumulatorText(const Accumulator& rule) {
  for (const NamedAccumulator& named : NamedAccumulators())
    if (named.rule == rule) return std::string(named.name);
  return "{group: " + std::to_string(rule.group) +
         ", fraction_bits: " + (rule.cuts() ? std::to_string(rule.fraction_bits) : "exact") +
         ", accumulator: " + FormatName(rule.format) +
         ", rounding: " + (rule.rounding == kTruncate ? "truncate" : "nearest") +
         ", promote: " + std::to_string(rule.promote) + "}";
}

std::string RefuseAccumulator(const Accumulator& rule) {
  if (rule.promote % rule.group != 0)
    return "promote is " + std::to_string(rule.promote) + "; it has to be a multiple of group, " +
           std::to_string(rule.group);
  if (!rule.format.is_signed) return "accumulator has no sign; a sum needs one";
  return "";
}

void AccumulatorCounts::Add(const AccumulatorCounts& more) {
  sums += more.sums, products += more.products, swallowed += more.swallowed;
  lost += more.lost, overflow += more.overflow;
  signal += more.signal, noise += more.noise, pull += more.pull, magnitude += more.magnitude;
  max_rel = std::max(max_rel, more.max_rel);
}

void AccumulatorCounts::Take(float got, double exact, double magnitudes) {
  ++sums;
  const auto plain = static_cast<float>(exact);
  if (!std::isfinite(plain)) return;
  if (!std::isfinite(got)) {
    ++overflow;
    return;
  }
  if (got == 0 && plain != 0) ++lost;
  const auto wanted = static_cast<double>(plain);
  const double error = static_cast<double>(got) - wanted;
  signal += wanted * wanted, noise += error * error;
  pull += wanted > 0 ? error : wanted < 0 ? -error : 0;
  magnitude += std::abs(wanted);
  if (magnitudes > 0) max_rel = std::max(max_rel, std::abs(error) / magnitudes);
}

double AccumulatorCounts::swallowed_pct() const {
  return products == 0 ? 0 : 100.0 * static_cast<double>(swallowed) / static_cast<double>(products);
}

double AccumulatorCounts::sqnr_db() const {
  if (!(signal > 0)) return std::numeric_limits<double>::quiet_NaN();
  if (!(noise > 0)) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}

double AccumulatorCounts::bias() const { return magnitude > 0 ? pull / magnitude : 0; }

}  // namespace ada::scaling
