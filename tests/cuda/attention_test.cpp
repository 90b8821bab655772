// Attention against the CPU's. Their sums have other orders, so that a value before its rounding
// may differ in its last bits, and a rounded one is then a neighbor.
#include <doctest/doctest.h>

#include <bit>

#include "cuda/attention_lab.h"

namespace ada::backend::test {
namespace {

// With so many scores in memory at a time: as on the CPU, and to the bits of all at once where
// products do not depend on their number.
void CheckChunks(const AttentionCase& c, int scores) {
  CAPTURE(scores);
  CudaSwitches switches, chunks;
  switches.poison = chunks.poison = true, chunks.scores = scores;
  switches.attention = chunks.attention = false;
  std::vector<Values> values[3];
  const auto run = [&](std::unique_ptr<Backend> backend, std::vector<Values>& stored) {
    Lab lab(std::move(backend));
    Findings findings;
    AttentionLab attention(lab, c);
    const auto op = lab->Make(attention.spec);
    for (int step = 0; step < 3; ++step) {
      attention.Step(*op, step, findings);
      stored.push_back(lab.Get(attention.spec.y));
      for (const Gradient& dx : attention.spec.dx) stored.push_back(lab.Get(dx.tensor));
    }
    return findings;
  };
  const Findings cpu = run(cpu::MakeCpuBackend(1), values[0]);
  CheckSame(cpu, run(MakeBackendUnderTest(chunks), values[1]));
#ifndef ADA_CUDA_DEVICE  // whose library may add up other numbers of products otherwise
  run(MakeBackendUnderTest(switches), values[2]);
  CHECK(values[1] == values[2]);
#endif
}

// The bits of all that three steps write, with these switches.
std::vector<std::uint64_t> Written(const AttentionCase& c, const CudaSwitches& switches) {
  Lab lab(MakeBackendUnderTest(switches));
  AttentionLab attention(lab, c);
  const auto op = lab->Make(attention.spec);
  std::vector<std::uint64_t> all;
  for (int step = 0; step < 3; ++step) {
    Findings findings;
    attention.Step(*op, step, findings);
    findings.Add("y", lab, attention.spec.y);
    for (const Gradient& dx : attention.spec.dx) findings.Add("dx", lab, dx);
    for (const Findings::Entry& entry : findings.entries())
      for (const double value : entry.values) all.push_back(std::bit_cast<std::uint64_t>(value));
  }
  return all;
}

void Check(const AttentionCase& c) {
  CAPTURE(FormatName(c.x));
  CAPTURE(FormatName(c.gradients));
  CAPTURE(static_cast<int>(c.method));
  CAPTURE(c.causal);
  CAPTURE(c.fused);
  CAPTURE(c.kv_heads);
  CAPTURE(c.queries);
  OnBoth([&](Lab& lab, Findings& findings) {
    AttentionLab attention(lab, c);
    const auto op = lab->Make(attention.spec);
    for (int step = 0; step < 3; ++step) attention.Step(*op, step, findings);
  });
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("attention in every format, causal and not, from one tensor and from three") {
    for (const auto& [x, gradients] : {std::pair{kFp32, kFp32},
                                       {kFp16, kFp16},
                                       {kBf16, kBf16},
                                       {kFp8E4M3, kFp8E5M2},
                                       {kFp16, kBf16},
                                       {kBf16, kFp32}})
      for (const bool causal : {false, true})
        for (const bool fused : {false, true}) {
          AttentionCase c;
          c.x = x, c.gradients = gradients, c.causal = causal, c.fused = fused;
          Check(c);
        }
  }

  TEST_CASE("attention of grouped heads, odd sizes, other keys than queries") {
    AttentionCase c;
    c.x = c.gradients = kFp16, c.heads = 6, c.causal = true;
    for (const int kv_heads : {1, 2, 3}) {
      c.kv_heads = kv_heads, c.fused = kv_heads == 2;
      Check(c);
    }
    c.fused = false, c.width = 5, c.kv_heads = 3;
    for (const auto& [queries, keys] : {std::pair{1, 1}, {1, 20}, {20, 1}, {17, 40}, {40, 17}})
      for (const bool causal : {false, true}) {
        c.queries = queries, c.keys = keys, c.causal = causal;
        Check(c);
      }
    c.heads = c.kv_heads = 1, c.width = 1, c.queries = 3, c.keys = 5;
    Check(c);
  }

  TEST_CASE("attention under every rule") {
    for (const LayerMethod method : kEveryMethod)
      for (const bool rounds_ds : {true, false}) {
        AttentionCase c;
        c.x = c.gradients = kFp16, c.method = method, c.causal = true, c.rounds_ds = rounds_ds;
        c.kv_heads = 2;
        Check(c);
      }
  }

  TEST_CASE("attention with dropout, kept and unrounded probabilities, random rounding, scales") {
    AttentionCase c;
    c.x = c.gradients = kFp16, c.causal = true, c.dropout = 0.3f;
    for (const bool keeps : {false, true}) {
      c.keeps = keeps, c.rounds_p = true;
      Check(c);
      c.rounds_p = false;
      Check(c);
    }
    c.rounds_p = true, c.width = 3, c.queries = c.keys = 19;  // chunks of no multiple of 4 values
    Check(c);
    c = {}, c.x = c.gradients = kBf16, c.sigma = 20;  // scores beyond fp32's probabilities
    Check(c);
    c = {}, c.x = c.gradients = kFp8E4M3, c.p_scale = 64, c.ds_scale = 512;
    Check(c);
  }

  TEST_CASE("attention in chunks of heads") {
    for (const LayerMethod method : {LayerMethod::kApproxRange, LayerMethod::kExactRange})
      for (const bool keeps : {false, true})
        for (const bool stochastic : {false, true}) {
          AttentionCase c;
          c.x = c.gradients = kFp16, c.method = method, c.causal = true, c.kv_heads = 2;
          c.dropout = 0.3f, c.keeps = keeps, c.stochastic = stochastic;
          for (const int heads : {1, 2, 3}) CheckChunks(c, heads * 2 * 37 * 37);
          c.queries = c.keys = 19, c.width = 3;
          CheckChunks(c, 1);
        }
  }

  TEST_CASE("attention by the library's products: kept probabilities are those computed anew") {
    for (const LayerMethod method : {LayerMethod::kPass, LayerMethod::kApproxRange}) {
      AttentionCase anew;
      anew.x = anew.gradients = kFp16, anew.method = method, anew.kv_heads = 2, anew.causal = true;
      AttentionCase kept = anew;
      kept.keeps = true;
      CudaSwitches switches;
      switches.attention = false;
      CHECK(Written(kept, switches) == Written(anew, switches));
    }
  }

  TEST_CASE("attention launched in parts writes the same bits") {
    for (const LayerMethod method :
         {LayerMethod::kPass, LayerMethod::kApproxRange, LayerMethod::kExactRange})
      for (const bool rounds_ds : {true, false})
        for (const int width : {8, 3}) {
          CAPTURE(static_cast<int>(method));
          AttentionCase c;
          c.x = c.gradients = kFp16, c.method = method, c.rounds_ds = rounds_ds, c.width = width;
          c.kv_heads = 2, c.fused = width == 8, c.causal = true;
          CudaSwitches parts;
          parts.attention = false;
          const auto whole = Written(c, parts);
          parts.fused = false;
          CHECK(Written(c, parts) == whole);
          parts.last_block = false;
          CHECK(Written(c, parts) == whole);
          parts.fused = true;
          CHECK(Written(c, parts) == whole);
        }
  }

  TEST_CASE("attention without some of its gradients") {
    for (const unsigned asked : {1u, 2u, 4u, 5u, 6u, 0u})
      OnBoth([&](Lab& lab, Findings& findings) {
        AttentionCase c;
        c.x = c.gradients = kFp16, c.method = LayerMethod::kApproxRange;
        AttentionLab attention(lab, c);
        for (unsigned i = 0; i < 3; ++i)
          if ((asked >> i & 1) == 0) attention.spec.dx[i] = {};
        const auto op = lab->Make(attention.spec);
        attention.Step(*op, 0, findings);
      });
  }
}

}  // namespace ada::backend::test
