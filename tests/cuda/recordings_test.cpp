// Backend::Run of the CUDA backend on the host executor: what is recorded, when it is replayed, and
// that recorded work sees the values of its own pass.
#ifndef ADA_CUDA_DEVICE
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ops/pass_ops.h"
#include "cuda/host/host_stream.h"
#include "cuda/host_context.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// An op that reads its pass's values: adds the draw to a sum in backend memory.
struct AddDraw {
  ADA_HOST_DEVICE void operator()(std::int64_t) const {
    *sum += pass->draw * static_cast<std::uint64_t>(factor);
  }
  const PassValues* pass;
  std::uint64_t* sum;
  int factor;
};
class SumOp final : public Op {
 public:
  SumOp(Stream& stream, const PassValues* pass, std::uint64_t* sum)
      : stream_(stream), pass_(pass), sum_(sum) {}
  void Forward(const Pass& pass) override { ForEach(stream_, 1, AddDraw{pass_, sum_, pass.rows}); }
  void Backward(const Pass&) override { ForEach(stream_, 1, AddDraw{pass_, sum_, 1000}); }

 private:
  Stream& stream_;
  const PassValues* pass_;
  std::uint64_t* sum_;
};

class NoMatmuls final : public Matmuls {
 public:
  std::unique_ptr<Matmul> Make(const MatmulRequest&) override { return nullptr; }
};

// What a backend has of all this.
struct Bench {
  NoMatmuls none;
  test::HostContext host{none};
  HostStream& stream = host.stream;
  PassStore store{stream, stream.AllocateZeroed(sizeof(PassValues))};
  std::uint64_t* sum = reinterpret_cast<std::uint64_t*>(stream.AllocateZeroed(8));
  std::unique_ptr<Op> op =
      InPass(store, host.side_stream, std::make_unique<SumOp>(stream, store.values(), sum), {});
  DiagnosticLines diagnostic_lines;
  Recordings recordings{stream, diagnostic_lines};
  int bodies = 0;

  void Run(std::uint64_t variant, const Pass& pass) {
    const PassStore::Scope held(store, pass);
    recordings.Run(variant, pass, [&] {
      ++bodies;
      op->Forward(pass);
      op->Backward(pass);
    });
  }
};

Pass At(std::uint64_t draw, int rows = 1) {
  Pass pass;
  pass.rows = rows;
  pass.draw = draw;
  return pass;
}

TEST_SUITE("cpu") {
  TEST_CASE("a variant is run, then recorded, then replayed, each time with its pass's values") {
    Bench bench;
    std::uint64_t sum = 0;
    for (std::uint64_t draw = 1; draw <= 6; ++draw) {
      bench.Run(7, At(draw));
      sum += draw * 1001;
      CHECK(*bench.sum == sum);
      CHECK(bench.bodies == static_cast<int>(std::min<std::uint64_t>(draw, 2)));
    }
  }

  TEST_CASE("a variant that cannot be recorded is done as it is, every time, and said once") {
    Bench bench;
    bool recording = false;
    int bodies = 0;
    std::uint64_t sum = 0;
    const auto run = [&](std::uint64_t variant, std::uint64_t draw) {
      const Pass pass = At(draw);
      const PassStore::Scope scope(bench.store, pass);
      bench.recordings.Run(variant, pass, [&] {
        ++bodies;
        bench.op->Forward(pass);
        // The second call of a variant is the one that is recorded.
        recording = bodies % 5 == 2;
        if (recording) throw DeviceError("the capture failed");
        bench.op->Backward(pass);
      });
      sum += draw * 1001;
    };
    for (const std::uint64_t variant : {1u, 2u})
      for (std::uint64_t draw = 1; draw <= 4; ++draw) {
        run(variant, draw);
        CHECK(*bench.sum == sum);
      }
    CHECK(bodies == 10);  // one more than calls in each variant
    REQUIRE(bench.diagnostic_lines.Warnings().size() == 1);
    CHECK(bench.diagnostic_lines.Warnings()[0] ==
          "steps, or parts of them, are launched kernel by kernel, which is slower: the device "
          "cannot record them: the capture failed");
    // What fails as it is ends the run.
    CHECK_THROWS_AS(bench.recordings.Run(3, At(1), [] { throw DeviceError("lost"); }), DeviceError);
  }

  TEST_CASE(
      "a Run within another is part of its recording; with another pass's values it is a bug") {
    Bench bench;
    bench.stream.KeepNames();
    std::uint64_t sum = 0;
    for (std::uint64_t draw = 1; draw <= 4; ++draw) {
      const Pass pass = At(draw);
      const PassStore::Scope held(bench.store, pass);
      bench.recordings.Run(1, pass, [&] {
        bench.Run(2, pass);
        bench.op->Forward(pass);
        bench.Run(3, pass);
      });
      sum += draw * (2 * 1001 + 1);
      CHECK(*bench.sum == sum);
      const std::vector<std::string> names = bench.stream.TakeNames();
      CHECK(std::count(names.begin(), names.end(), "replay") == (draw > 1 ? 1 : 0));
    }
    CHECK(bench.bodies == 4);  // of the first and the recorded one
    // By itself a part is a variant that was never seen.
    bench.Run(2, At(9));
    CHECK(bench.bodies == 5);
    const PassStore::Scope held(bench.store, At(1));
    CHECK_THROWS_AS(bench.Run(2, At(2)), InternalError);
  }

  TEST_CASE("where the whole cannot be recorded its parts are, one by one") {
    Bench bench;
    bench.stream.KeepNames();
    std::uint64_t sum = 0;
    int wholes = 0;
    for (std::uint64_t draw = 1; draw <= 6; ++draw) {
      const Pass pass = At(draw);
      const PassStore::Scope held(bench.store, pass);
      bench.recordings.Run(1, pass, [&] {
        const bool recording = ++wholes == 2;
        bench.Run(2, pass);
        if (recording) throw DeviceError("the capture failed");
        bench.Run(3, pass);
      });
      sum += draw * 2 * 1001;
      CHECK(*bench.sum == sum);
      // Done as a whole, then each part for the first time, then recorded and replayed.
      const std::vector<std::string> names = bench.stream.TakeNames();
      CHECK(std::count(names.begin(), names.end(), "replay") == (draw > 2 ? 2 : 0));
    }
    CHECK(wholes == 7);
    CHECK(bench.diagnostic_lines.Warnings().size() == 1);
  }

  TEST_CASE("variants, rows and flags are told apart; values are not") {
    Bench bench;
    std::uint64_t sum = 0;
    for (int round = 0; round < 3; ++round)
      for (const std::uint64_t variant : {1u, 2u})
        for (const int rows : {3, 8}) {
          const auto draw = static_cast<std::uint64_t>(round + rows);
          bench.Run(variant, At(draw, rows));
          sum += draw * static_cast<std::uint64_t>(1000 + rows);
        }
    CHECK(*bench.sum == sum);
    CHECK(bench.bodies == 8);
    for (bool Pass::*flag : {&Pass::training, &Pass::count, &Pass::accumulate, &Pass::bins}) {
      Pass pass = At(1, 3);
      pass.*flag = !(pass.*flag);
      const int before = bench.bodies;
      bench.Run(1, pass);
      CHECK(bench.bodies == before + 1);
    }
  }

  TEST_CASE("a replayed step launches what the plain one did, in its order") {
    Bench bench;
    bench.stream.KeepNames();
    bench.Run(1, At(1));
    const std::vector<std::string> plain = bench.stream.TakeNames();
    REQUIRE(plain.size() == 3);  // values, forward, backward
    for (std::uint64_t draw = 2; draw < 5; ++draw) {
      bench.Run(1, At(draw));
      std::vector<std::string> names = bench.stream.TakeNames();
      REQUIRE(names.size() == 4);
      CHECK(names[1] == "replay");
      names.erase(names.begin() + 1);
      CHECK(names == plain);
    }
  }

  TEST_CASE("ops called one by one see their pass; equal values are stored once") {
    Bench bench;
    bench.stream.KeepNames();
    bench.op->Forward(At(5));
    bench.op->Forward(At(5, 2));
    CHECK(bench.stream.TakeNames().size() == 3);
    bench.op->Forward(At(6));
    CHECK(bench.stream.TakeNames().size() == 2);
    CHECK(*bench.sum == 5 + 10 + 6);
  }

  TEST_CASE("recordings of a backend end before the streams whose work they hold") {
    auto stream = std::make_unique<HostStream>();
    std::vector<std::string> ends;
    stream->TellEnds([&](std::string_view what) { ends.emplace_back(what); });
    auto backend = MakeBackendOn(std::move(stream), {"test", "none"}, {});
    for (std::uint64_t draw = 1; draw <= 3; ++draw) backend->Run(1, At(draw), [] {});
    CHECK(ends.empty());
    backend.reset();
    CHECK(ends == std::vector<std::string>{"recording", "side"});
  }

  TEST_CASE("a body that fails leaves the variant as it was") {
    Bench bench;
    const Pass pass = At(1);
    for (int i = 0; i < 2; ++i) {
      CHECK_THROWS_AS(bench.recordings.Run(3, pass, [] { throw 1; }), int);
      bench.Run(3, pass);
    }
    bench.Run(3, pass);
    CHECK(*bench.sum == 3 * 1001);
  }
}

}  // namespace
}  // namespace ada::backend::cuda
#endif
