// All instruction sets give the same bits: kernels on runs of values and on parameters. Whether
// the bits are right is for the other tests.
#include <doctest/doctest.h>

#include "backend/cpu/update_args.h"
#include "backend/cpu/value_kernels.h"
#include "backend/isa_record.h"

namespace ada::backend::test {

TEST_SUITE("cpu") {
  TEST_CASE("sets agree: widen, round, inspect") {
    ADA_NEEDS_TWO_SETS();
    ForFlat([](const Style& kind, std::size_t n, bool wild) {
      const Values in = wild ? RandomBits(n, n) : Spread(kind.format, n, n);
      CHECK(Disagreement([&](const Kernels& k, Record& record) {
              Memory out(kind.storage, n), wide(Storage::kF32, n);
              BlockStats rounded, inspected;
              k.round(in.data(), 0.75f, out.piece(), Length(n), Rounds(kind, &rounded));
              k.inspect(out.piece(), Length(n), Rounds(kind, &inspected));
              k.widen(out.piece(), static_cast<float*>(wide.piece().data), Length(n));
              record.Add(out), record.Add(wide), record.Add(rounded), record.Add(inspected);
            }) == -1);
    });
  }

  TEST_CASE("sets agree: relu and its mask") {
    ADA_NEEDS_TWO_SETS();
    ForFlat([](const Style& kind, std::size_t n, bool wild) {
      CHECK(Disagreement([&](const Kernels& k, Record& record) {
              Memory x(kind.storage, Input(kind, n, 1, wild)), y(kind.storage, n);
              Memory dy(kind.storage, Input(kind, n, 2, wild)), dx(kind.storage, n);
              BlockStats stats;
              k.relu(x.piece(), y.piece(), Length(n));
              k.relu_backward(dy.piece(), y.piece(), dx.piece(), Length(n), Rounds(kind, &stats));
              record.Add(y), record.Add(dx), record.Add(stats);
            }) == -1);
    });
  }

  TEST_CASE("sets agree: sums of two and three tensors, with factors, of mixed storages") {
    ADA_NEEDS_TWO_SETS();
    ForFlat([](const Style& kind, std::size_t n, bool wild) {
      CHECK(Disagreement([&](const Kernels& k, Record& record) {
              Memory a(kind.storage, Input(kind, n, 1, wild)),
                  b(kind.storage, Input(kind, n, 2, 0));
              Memory c(Storage::kF32, Input(kind, n, 3, wild)), out(kind.storage, n);
              const TensorSpan in[] = {a.piece(), b.piece(), c.piece()};
              const float factors[] = {0.5f, 3.0f, 0.1f};
              for (const int count : {2, 3})
                for (const float* f : {static_cast<const float*>(nullptr), factors}) {
                  BlockStats stats;
                  k.sum(in, f, count, out.piece(), Length(n), Rounds(kind, &stats));
                  record.Add(out), record.Add(stats);
                }
            }) == -1);
    });
  }

  TEST_CASE("sets agree: dropout from any place of a tensor") {
    ADA_NEEDS_TWO_SETS();
    for (const std::size_t n : {1, 15, 16, 4133})
      for (const std::int64_t first : {0, 3, 16389})
        CHECK(Disagreement([&](const Kernels& k, Record& record) {
                Values x = Normal(n, 1, 1);
                cpu::FillArgs a;
                a.out = x.data(), a.values = Length(n), a.random = {11, 5, first};
                std::get<cpu::FillKernels<DropoutSpec>>(cpu::ValueKernelsOf(k))
                    .y(Keeping(0.3f, 0), a);
                record.Add(x);
              }) == -1);
  }

  TEST_CASE("sets agree: sums, unscaling and updates of parameters") {
    ADA_NEEDS_TWO_SETS();
    using Kind = UpdateRule::Kind;
    static constexpr Kind kKinds[] = {
        Kind::kSgd,   Kind::kAdam,     Kind::kAdamW,   Kind::kLion,       Kind::kRmsprop,
        Kind::kNadam, Kind::kRadam,    Kind::kAdagrad, Kind::kAdamax,     Kind::kScheduleFree,
        Kind::kAdopt, Kind::kAdemamix, Kind::kLamb,    Kind::kStableAdamW};
    UpdateRule rule;
    rule.momentum = 0.9, rule.weight_decay = 1e-4, rule.nesterov = true;
    UpdateStep step;
    step.lr = 0.1, step.gradient_factor = 0.3, step.count = 7;
    for (const std::size_t n : {1, 15, 16, 4097})
      for (const auto kind : kKinds) {
        rule.kind = kind;
        rule.nesterov = kind == Kind::kSgd;
        const NumberGrid bf16 = GridOf(kBf16);
        for (const NumberGrid* arithmetic : {static_cast<const NumberGrid*>(nullptr), &bf16})
          CHECK(Disagreement([&](const Kernels& k, Record& record) {
                  Values v[6] = {Normal(n, 1, 1), Normal(n, 1, 2), Normal(n, 1, 3),
                                 Normal(n, 1, 4), Normal(n, 1, 5), Values(n)};
                  for (float& square : v[3]) square *= square;
                  if (kind == Kind::kAdagrad || kind == Kind::kRmsprop)
                    for (float& square : v[2]) square *= square;
                  k.accumulate(v[0].data(), v[1].data(), Length(n));
                  k.unscale(v[1].data(), 3, true, v[2].data(), Length(n));
                  k.unscale(v[2].data(), 5, false, v[1].data(), Length(n));
                  record.values.push_back(k.sum_squares(v[1].data(), Length(n)));
                  cpu::UpdateArgs args;
                  args.kind = kind, args.scalars = MakeUpdateScalars(rule, step);
                  args.arithmetic = arithmetic, args.n = Length(n);
                  args.value = v[0].data(), args.gradient = v[1].data(), args.step = v[5].data();
                  const bool one =
                      kind == Kind::kSgd || kind == Kind::kLion || kind == Kind::kAdagrad;
                  args.states[0] = v[2].data(), args.states[1] = one ? nullptr : v[3].data();
                  args.states[2] =
                      kind == Kind::kRmsprop || kind == Kind::kAdemamix ? v[4].data() : nullptr;
                  k.update(args);
                  for (const Values& values : v) record.Add(values);
                }) == -1);
      }
  }
}

}  // namespace ada::backend::test
