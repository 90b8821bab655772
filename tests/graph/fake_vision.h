// Layers of the fake backend (fake_backend.h) that networks of segmentation and detection have:
// unpooling by the positions that a pooling keeps, local response normalization, L2 normalization,
// boxes that are joined.
#pragma once
#include <memory>
#include <string>

#include "graph/fake_backend.h"

namespace ada::graph::test {

// y = f(x, what the pooling noted); dx = f(dy, the same): it has to stay until then.
inline std::unique_ptr<Op> FakeBackend::OpOf(const backend::MaxUnpoolSpec& s) {
  max_unpools.push_back(s);
  RequireExact(s);
  REQUIRE_FALSE(s.dx.stats);
  const std::string f = Formula(s);
  const Tensor positions = PositionsOf(s.positions, s.pooled, s.x.shape.n);
  return MakeOp(
      [s, f, positions] {
        Write(s.y, Hash(f, {test::Read(s.x), test::Read(positions)}));
      },
      [s, f, positions] {
        const Symbol dy = ReadGradient(s.dy);
        WriteGradient(s.dx, Hash(f + " dx", {test::Read(positions), dy}), *s.dy.scale);
      });
}

inline std::unique_ptr<Op> FakeBackend::OpOf(const backend::LrnSpec& s) { return ReadsInput(s); }

inline std::unique_ptr<Op> FakeBackend::OpOf(const backend::L2NormalizeSpec& s) {
  const std::string f = Formula(s);
  REQUIRE_FALSE(s.beta);
  const auto forward = [s, f] {
    const Symbol y = Hash(f, {test::Read(s.x), test::Read(s.gamma)});
    Write(s.y, y);
    Count(s.y_stats, s.y, y);
  };
  const auto backward = [s, f] {
    const Symbol x = test::Read(s.x), dy = ReadGradient(s.dy);
    Write(s.dgamma, Hash(f + " dgamma", {x, dy}));
    WriteGradient(s.dx, Hash(f + " dx", {x, test::Read(s.gamma), dy}), *s.dy.scale);
  };
  return MakeOp(forward, backward);
}

}  // namespace ada::graph::test
