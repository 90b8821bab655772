// Every transition of every dynamic preset as a table, worked out from the systems' rules by hand.
#include <doctest/doctest.h>

#include <cfloat>
#include <cmath>
#include <string>
#include <vector>

#include "scaling/policies/policies.h"
#include "scaling/with.h"

namespace ada::scaling {
namespace {

using testing::Of;
using testing::With;

constexpr double kInf = INFINITY;

// "o" = overflow, "." = clean; `after`: the scale after each attempt. `ends`: the last attempt ends
// the run.
struct Transition {
  std::string what;
  With with;
  const char* attempts;
  std::vector<double> after;
  bool ends = false;
};

double F(double x) { return static_cast<float>(x); }

// Presets that count clean attempts and forgive nothing.
std::vector<Transition> PlainTransitions() {
  return {
      {"pytorch grows when the window is full", {"pytorch", 8, 3}, "....", {8, 8, 16, 16}},
      {"counts afresh after growth", {"pytorch", 8, 2}, ".....", {8, 16, 16, 32, 32}},
      {"overflow halves", {"pytorch", 8, 3}, "o", {4}},
      {"overflows in a row halve each time", {"pytorch", 8, 3}, "ooo", {4, 2, 1}},
      {"overflow empties the window", {"pytorch", 8, 3}, "..o...", {8, 8, 4, 4, 4, 8}},
      {"overflow right after growth", {"pytorch", 8, 2}, "..o..", {8, 16, 8, 8, 16}},
      {"overflow with an empty window", {"pytorch", 8, 2}, "o..", {4, 4, 8}},
      {"window of one", {"pytorch", 8, 1}, ".o..", {16, 8, 16, 32}},
      {"falls below one", {"pytorch", 1, 9}, "oo", {0.5, 0.25}},
      {"growth to inf is refused, the window starts again",
       {"pytorch", 0x1p127, 2},
       "....o..",
       {0x1p127, 0x1p127, 0x1p127, 0x1p127, 0x1p126, 0x1p126, 0x1p127}},
      {"reaches 0 and stays", {"pytorch", 0x1p-148, 1}, "oo..", {0x1p-149, 0, 0, 0}},
      {"factors are doubles, rounded once",
       With("pytorch", 1, 1).Factors(1.5, 0.7),
       ".o",
       {1.5, F(1.5 * 0.7)}},
      {"floor", With("pytorch", 4, 2).Bounds(1.5, 0), "ooo..", {2, 1.5, 1.5, 1.5, 3}},
      {"ceiling", With("pytorch", 16, 1).Bounds(0, 40), "...o", {32, 40, 40, 20}},
      {"a start above the ceiling holds until growth",
       With("pytorch", 1024, 1).Bounds(0, 256),
       ".o",
       {256, 128}},
      {"a start below the floor holds until overflow",
       With("pytorch", 1, 2).Bounds(8, 0),
       ".o",
       {1, 8}},
      {"error at the floor, where asked for",
       With("pytorch", 8, 2).Bounds(4, 0).ErrorAtMin(true),
       "oo",
       {4, 4},
       true},

      {"tensorflow has a floor of 1", {"tensorflow", 4, 2}, "ooo..", {2, 1, 1, 1, 2}},
      {"a start below it", {"tensorflow", 0.25, 2}, "o", {1}},
      {"growth to inf is refused", {"tensorflow", 0x1p127, 1}, "..", {0x1p127, 0x1p127}},
      {"one factor divides", With("tensorflow", 10, 1).Factors(3), "o.", {F(10.0 / 3), 10}},
      {"a reciprocal divides alike",
       With("tensorflow", 10, 1).Factors(3, 1.0 / 3),
       "o",
       {F(10.0 / 3)}},
      {"1 / 49 rounds, and still divides by 49",
       With("tensorflow", 2401, 1).Factors(49, 1.0 / 49),
       "oo",
       {49, 1}},
      {"a factor of its own divides by its reciprocal",
       With("tensorflow", 9, 1).Factors(3, 0.5),
       "o",
       {4.5}},

      {"keras grows to inf and stays", {"keras", 0x1p127, 2}, "..o.", {0x1p127, kInf, kInf, kInf}},
      {"keras falls to 0 and stays", {"keras", 0x1p-149, 1}, "o.", {0, 0}},

      {"apex has a ceiling", With("apex", 16, 1).Bounds(0, 40), "...", {32, 40, 40}},
      {"and a floor where asked for", With("apex", 8, 9).Bounds(3, 0), "ooo", {4, 3, 3}},

      {"openseq2seq_backoff grows within its window",
       With("openseq2seq_backoff", 0, 2).Bounds(1, 64),
       "o....",
       {32, 32, 64, 64, 64}},
      {"a start above its ceiling is cut by a fall",
       With("openseq2seq_backoff", 1024, 2).Bounds(1, 64),
       "o",
       {64}},
      {"a start below its floor is raised by growth",
       With("openseq2seq_backoff", 1, 1).Bounds(8, 64),
       ".",
       {8}},

      {"mindspore", {"mindspore", 16, 2}, "..o..", {16, 32, 16, 16, 32}},
      {"mindspore counts on over growths", {"mindspore", 2, 2}, "oo.....", {1, 1, 1, 2, 2, 4, 4}},
      {"its scale is a double", With("mindspore", 1, 1).Factors(3), ".o", {3, 1}},
      {"no ceiling, no inf in fp32", {"mindspore", 0x1p127, 1}, ".o", {0x1p128, 0x1p127}},

      {"jmp refuses inf", {"jmp", 0x1p127, 1}, ".o", {0x1p127, 0x1p126}},
      {"jmp has a floor of 1", {"jmp", 2, 3}, "oo...", {1, 1, 1, 1, 2}},
  };
}

// Presets whose windows, delays or counters differ.
std::vector<Transition> OtherTransitions() {
  const double root = std::pow(2.0, 0.5);
  return {
      {"flax grows every window + 1", {"flax", 16, 2}, "......", {16, 16, 32, 32, 32, 64}},
      {"flax: overflow at the brink", {"flax", 16, 2}, "..o...", {16, 16, 8, 8, 8, 16}},
      {"flax stays normal", {"flax", FLT_MIN, 9}, "o", {FLT_MIN}},
      {"flax stays finite", {"flax", 0x1p127, 1}, "....", {0x1p127, FLT_MAX, FLT_MAX, FLT_MAX}},

      {"nnabla grows after window + 2, then every window + 1",
       {"nnabla", 8, 2},
       ".......",
       {8, 8, 8, 16, 16, 16, 32}},
      {"nnabla: after an overflow", {"nnabla", 8, 2}, "o....", {4, 4, 4, 4, 8}},
      {"nnabla: no floor", {"nnabla", 0x1p-149, 2}, "o", {0x1p-150}},

      {"mxnet: a fall is in force one attempt late", {"mxnet", 16, 9}, "oo.", {16, 8, 4}},
      {"mxnet: growth as well", {"mxnet", 16, 2}, "....", {16, 16, 32, 32}},
      {"mxnet: ceiling", With("mxnet", 16, 1).Bounds(0, 24), "...", {16, 24, 24}},
      {"mxnet: clean after one overflow", {"mxnet", 16, 2}, "o...", {16, 8, 8, 16}},

      {"chainer doubles until the first overflow", {"chainer", 1, 2}, "...o", {2, 4, 8, 4}},
      {"and then creeps", {"chainer", 1, 2}, "..o..", {2, 4, 2, 2 * root, 2 * root * root}},
      {"chainer: ceiling", With("chainer", 1, 2).Bounds(1, 5), "...o", {2, 4, 5, 2.5}},
      {"chainer: floor", {"chainer", 1, 2}, "oo", {1, 1}},
      {"chainer: a start out of bounds is cut by any move",
       With("chainer", 100, 2).Bounds(1, 5),
       "o",
       {5}},

      {"marian skips above the floor, repairs at it",
       With("marian", 16, 9).Factors(2),
       "ooo",
       {8, 8, 8}},
      {"a repaired attempt counts as clean", With("marian", 8, 2).Factors(2), "o.", {8, 16}},
      {"a fall ends at the floor", With("marian", 10, 9).Factors(2), "o", {8}},
      {"marian's own factor is 1", {"marian", 8, 2}, "..o", {8, 8, 8}},
      {"marian: error instead of repair",
       With("marian", 8, 2).Factors(2).ErrorAtMin(true),
       "o",
       {8},
       true},
  };
}

// Hysteresis and tolerance.
std::vector<Transition> ForgivingTransitions() {
  return {
      {"deepspeed grows after window + 1, then each window",
       {"deepspeed", 16, 2},
       ".......",
       {16, 16, 32, 32, 64, 64, 128}},
      {"deepspeed forgives the first overflow alone", {"deepspeed", 16, 9}, "oooo", {16, 8, 4, 2}},
      {"neither clean attempts nor falls refill", {"deepspeed", 16, 9}, "oo.oo", {16, 8, 8, 4, 2}},
      {"growth refills", {"deepspeed", 16, 2}, "oo...oo", {16, 8, 8, 8, 16, 16, 8}},
      {"consecutive: each clean attempt refills",
       With("deepspeed", 16, 9).Hysteresis(2, true),
       "oo.oo",
       {16, 8, 8, 8, 4}},
      {"deepspeed without hysteresis", With("deepspeed", 16, 9).Hysteresis(1), "oo", {8, 4}},
      {"three", With("deepspeed", 16, 9).Hysteresis(3), "oooo", {16, 16, 8, 4}},
      {"an overflow at the floor ends the run",
       With("deepspeed", 3, 9).Hysteresis(1),
       "ooo",
       {1.5, 1, 1},
       true},
      {"a forgiven one does not", {"deepspeed", 1, 9}, "o.", {1, 1}},
      {"unless told so", With("deepspeed", 2, 9).Hysteresis(1).ErrorAtMin(false), "ooo", {1, 1, 1}},

      {"megatron forgives the first overflow", {"megatron", 16, 9}, "oo.oo", {16, 8, 8, 4, 2}},
      {"growth refills", {"megatron", 16, 2}, "oo..oo", {16, 8, 8, 16, 16, 8}},
      {"also what was used in part", {"megatron", 16, 2}, "o..oo", {16, 16, 32, 32, 16}},
      {"an overflow that is forgiven empties the window",
       {"megatron", 16, 2},
       ".o..",
       {16, 16, 16, 32}},
      {"megatron: floor", With("megatron", 2, 9).Hysteresis(1), "ooo", {1, 1, 1}},
      {"megatron: inf", {"megatron", 0x1p127, 1}, ".", {kInf}},

      {"paddle needs them in a row", With("paddle", 16, 9).Hysteresis(2), "o.oo", {16, 16, 16, 8}},
      {"paddle counts afresh after a fall",
       With("paddle", 16, 9).Hysteresis(2),
       "oooo",
       {16, 8, 8, 4}},
      {"paddle: an overflow that is forgiven empties the window",
       With("paddle", 16, 2).Hysteresis(2),
       ".o..",
       {16, 16, 16, 32}},
      {"paddle: factors are fp32",
       With("paddle", 3, 1).Factors(1.1, 0.7),
       "o.",
       {F(3 * F(0.7)), F(F(3 * F(0.7)) * F(1.1))}},

      {"fairseq", {"fairseq", 16, 2}, "..o..", {16, 32, 16, 16, 32}},
      {"tolerated: 1 of 3", With("fairseq", 16, 99).Tolerance(0.5), "..o", {16, 16, 16}},
      {"not tolerated: 2 of 4, then 1 of 1",
       With("fairseq", 16, 99).Tolerance(0.5),
       "..ooo",
       {16, 16, 16, 8, 4}},
      {"growth does not clear the overflows",
       With("fairseq", 16, 2).Tolerance(0.6),
       "...o...o",
       {16, 32, 32, 32, 32, 64, 64, 32}},
      {"fairseq: threshold", With("fairseq", 8, 9).Bounds(4, 0), "oo", {4, 4}},
      {"fairseq ends at 1e-4 and keeps the scale",
       {"fairseq", 0x1p-12, 9},
       "oo",
       {0x1p-13, 0x1p-13},
       true},
      {"unless told so",
       With("fairseq", 0x1p-12, 9).ErrorAtMin(false),
       "ooo",
       {0x1p-13, 0x1p-14, 0x1p-15}},

      {"cerebras: 1 of 4 is not above 0.25",
       With("cerebras", 16, 99).Tolerance(0.25),
       "...o",
       {16, 16, 16, 16}},
      {"1 of 3 is", With("cerebras", 16, 99).Tolerance(0.25), "..oo", {16, 16, 8, 4}},
      {"1 of 20 is not above 0.05, in fp32",
       {"cerebras", 16, 99},
       "...................o",
       std::vector<double>(20, 16)},
      {"growth counts from the last change",
       With("cerebras", 16, 3).Tolerance(0.5),
       "......",
       {16, 16, 32, 32, 32, 64}},
      {"tolerated overflows among them, even as the last",
       With("cerebras", 16, 2).Tolerance(0.5),
       ".o.o",
       {16, 32, 32, 64}},
      {"cerebras cuts to its bounds at once", {"cerebras", 0x1p17, 99}, ".", {0x1p15}},
      {"from below as well", With("cerebras", 2, 99).Bounds(8, 64), ".", {8}},
      {"cerebras: floor", With("cerebras", 16, 99).Bounds(8, 64), "oo", {8, 8}},
      {"cerebras: ceiling", With("cerebras", 48, 1).Bounds(8, 64), "..", {64, 64}},
  };
}

void CheckTransition(const Transition& t) {
  CAPTURE(t.what);
  const auto policy = MakeDynamic(t.with.p);
  const std::string attempts = t.attempts;
  REQUIRE(attempts.size() == t.after.size());
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    CAPTURE(i);
    const double before = policy->Scale();
    const Action on_overflow = policy->OnOverflow();
    const ScaleUpdate verdict = policy->Update(Of(attempts[i]));
    if (attempts[i] == 'o') CHECK(verdict.action == on_overflow);
    CHECK(policy->Scale() == t.after[i]);
    CHECK(verdict.before == before);
    CHECK(verdict.after == t.after[i]);
    CHECK(verdict.reason.empty() == (before == t.after[i]));
    CHECK(verdict.error.empty() == !(t.ends && i + 1 == attempts.size()));
    const bool repaired = verdict.action == Action::kSanitize;
    CHECK((verdict.action == Action::kUpdate) == (attempts[i] == '.'));
    CHECK(repaired ==
          (attempts[i] == 'o' && t.with.p.preset == "marian" && before <= 8 && !t.ends));
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("every transition") {
    for (const auto& table : {PlainTransitions(), OtherTransitions(), ForgivingTransitions()})
      for (const Transition& t : table) CheckTransition(t);
  }
}

}  // namespace
}  // namespace ada::scaling
