// Layers of the fake backend (fake_backend.h) that are more than their formula: joins, factors,
// norms of groups, casts.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "graph/fake_backend.h"

namespace ada::graph::test {

template <typename Spec>
std::unique_ptr<Op> FakeBackend::Join(const Spec& s) {
  concats.push_back(s);
  const std::string f = Formula(s);
  const auto forward = [s, f] {
    std::vector<Symbol> x;
    for (const Tensor& tensor : s.x) x.push_back(test::Read(tensor));
    Write(s.y, Hash(f, x));
    Count(s.y_stats, s.y, Hash(f, x));
  };
  const auto backward = [s, f] {
    const Symbol dy = ReadGradient(s.dy);
    for (std::size_t i = 0; i < s.dx.size(); ++i) {
      if (s.dx[i]) RequireSame(s.dx[i].tensor, s.dy.tensor);
      REQUIRE_FALSE(s.dx[i].stats);
      WriteGradient(s.dx[i], Hash(f + " dx", {dy, i}), *s.dy.scale);
    }
  };
  return MakeOp(forward, backward);
}

inline std::unique_ptr<Op> FakeBackend::OpOf(const backend::MultiplySpec& s) {
  const auto forward = [s] {
    const Symbol y = Hash("multiply", {test::Read(s.x[0]), test::Read(s.x[1])});
    Write(s.y, y);
    Count(s.y_stats, s.y, y);
  };
  const auto backward = [s] {
    const Symbol dy = ReadGradient(s.dy);
    for (std::size_t i = 0; i < s.dx.size(); ++i) {
      if (!s.dx[i]) continue;
      REQUIRE(s.dx[i].stats);
      WriteGradient(s.dx[i], Hash("multiply dx", {test::Read(s.x[1 - i]), dy}), *s.dy.scale);
    }
  };
  return MakeOp(forward, backward);
}

inline std::unique_ptr<Op> FakeBackend::OpOf(const backend::ChannelScaleSpec& s) {
  const auto forward = [s] {
    const Symbol y = Hash("channel_scale", {test::Read(s.x), test::Read(s.w)});
    Write(s.y, y);
    Count(s.y_stats, s.y, y);
  };
  const auto backward = [s] {
    const Symbol dy = ReadGradient(s.dy);
    Write(s.dw, Hash("channel_scale dw", {test::Read(s.x), dy}));
    WriteGradient(s.dx, Hash("channel_scale dx", {test::Read(s.w), dy}), *s.dy.scale);
  };
  return MakeOp(forward, backward);
}

inline std::unique_ptr<Op> FakeBackend::OpOf(const backend::PreluSpec& s) {
  const auto forward = [s] {
    const Symbol y = Hash("prelu", {test::Read(s.x), test::Read(s.w)});
    Write(s.y, y);
    Count(s.y_stats, s.y, y);
  };
  const auto backward = [s] {
    const Symbol x = test::Read(s.x), dy = ReadGradient(s.dy);
    Write(s.dw, Hash("prelu dw", {x, dy}));
    WriteGradient(s.dx, Hash("prelu dx", {x, test::Read(s.w), dy}), *s.dy.scale);
  };
  return MakeOp(forward, backward);
}

inline std::unique_ptr<Op> FakeBackend::OpOf(const backend::AffineSpec& s) {
  const auto forward = [s] {
    const Symbol y = Hash("affine", {test::Read(s.x), test::Read(s.factor), test::Read(s.offset)});
    Write(s.y, y);
    Count(s.y_stats, s.y, y);
  };
  const auto backward = [s] {
    WriteGradient(s.dx, Hash("affine dx", {test::Read(s.factor), ReadGradient(s.dy)}), *s.dy.scale);
  };
  return MakeOp(forward, backward);
}

template <typename Spec>
std::unique_ptr<Op> FakeBackend::GroupedNorm(const Spec& s) {
  const std::string f = Formula(s);
  const auto forward = [s, f] {
    const Symbol y = Hash(f, {test::Read(s.x), test::Read(s.gamma), test::Read(s.beta)});
    Write(s.y, y);
    Count(s.y_stats, s.y, y);
  };
  const auto backward = [s, f] {
    const Symbol x = test::Read(s.x), dy = ReadGradient(s.dy);
    Write(s.dgamma, Hash(f + " dgamma", {x, dy}));
    Write(s.dbeta, Hash(f + " dbeta", {dy}));
    WriteGradient(s.dx, Hash(f + " dx", {x, test::Read(s.gamma), dy}), *s.dy.scale);
  };
  return MakeOp(forward, backward);
}

inline std::unique_ptr<Op> FakeBackend::OpOf(const backend::ScaleSpec& s) {
  casts.push_back(s);
  auto op = Rounded(s);
  static_cast<CallOp<Op>&>(*op).backward = [s] {
    WriteScaledDx(s, Hash("scale dx", {ReadGradient(s.dy)}));
  };
  return op;
}

}  // namespace ada::graph::test
