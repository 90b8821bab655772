// Images that go to the device as bytes: the table's values, batch by batch, however late the
// copies are; and who waits for whom.
#include <doctest/doctest.h>

#include <cstring>

#include "data/augment.h"
#include "error.h"
#include "on_both.h"
#ifndef ADA_CUDA_DEVICE
#include "backend/cuda/ops/image_feed.h"
#include "cuda/host_context.h"
#endif

namespace ada::backend::test {
namespace {

std::vector<std::uint8_t> SomeBytes(std::int64_t count, int seed) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t i = 0; i < count; ++i)
    bytes.push_back(static_cast<std::uint8_t>(seed * 37 + i * 11 + i / 200));
  return bytes;
}
Values ValuesOf(const std::vector<std::uint8_t>& bytes, const Values& table,
                std::int64_t channels) {
  Values values;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    values.push_back(table[i % static_cast<std::size_t>(channels) * 256 + bytes[i]]);
  return values;
}
Values TableOf(std::int64_t channels) {
  const std::vector<double> mean = {0.5, 0.4, 0.3, 0.2, 0.1}, std = {0.2, 0.3, 0.4, 0.5, 0.6};
  return data::NormalizeTable(static_cast<int>(channels), {mean.begin(), mean.begin() + channels},
                              {std.begin(), std.begin() + channels});
}

struct Input {
  Input(Lab& lab, const Shape& shape) {
    InputSpec spec;
    spec.y = lab.Make(shape, kFp32);
    y = spec.y;
    op = lab->MakeInput(spec);
    REQUIRE(op->byte_feed() != nullptr);
  }
  // What a pass over `rows` images sees.
  Values Seen(Lab& lab, int rows) const {
    Pass pass;
    pass.rows = rows;
    op->Forward(pass);
    Values seen(static_cast<std::size_t>(rows * y.shape.per_image()));
    lab->Read(y, rows, seen.data());
    return seen;
  }
  Tensor y;
  std::unique_ptr<InputOp> op;
};

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("images as bytes become the table's values, of whole batches and of parts") {
    Lab lab(MakeBackendUnderTest());
    CHECK(lab->takes_bytes());
    for (const Shape& shape : {Shape{4, 1, 1, 1}, Shape{5, 3, 3, 1}, Shape{3, 5, 7, 3},
                               Shape{3, 2, 3, 5}, Shape{2, 70, 71, 3}}) {
      CAPTURE(shape.c);
      const Input input(lab, shape);
      ByteFeed& feed = *input.op->byte_feed();
      const Values table = TableOf(shape.c);
      for (int step = 0; step < 5; ++step) {
        const int rows = step % 2 == 0 ? static_cast<int>(shape.n) : 1;
        std::vector<std::uint8_t> bytes = SomeBytes(rows * shape.per_image(), step);
        const Values expected = ValuesOf(bytes, table, shape.c);
        Values sent_table = table;
        const std::int64_t number = feed.Send({bytes.data(), sent_table.data(), rows});
        bytes.assign(bytes.size(), 0), sent_table.assign(table.size(), -1);
        feed.Take(number);
        CHECK(input.Seen(lab, rows) == expected);
      }
    }
  }

  TEST_CASE("a batch that was sent ahead waits for its turn, or is passed over") {
    Lab lab(MakeBackendUnderTest());
    const Shape shape{3, 5, 7, 3};
    const Input input(lab, shape);
    ByteFeed& feed = *input.op->byte_feed();
    const Values table = TableOf(3);
    const auto send = [&](int seed) {
      const std::vector<std::uint8_t> bytes = SomeBytes(shape.numel(), seed);
      return feed.Send({bytes.data(), table.data(), 3});
    };
    const auto expected = [&](int seed) {
      return ValuesOf(SomeBytes(shape.numel(), seed), table, 3);
    };
    feed.Take(send(1));
    std::int64_t ahead = send(2);
    CHECK(input.Seen(lab, 3) == expected(1));
    for (int seed = 3; seed < 8; ++seed) {
      feed.Take(ahead);
      ahead = send(seed);
      CHECK(input.Seen(lab, 3) == expected(seed - 1));
    }
    const std::int64_t other = send(20);  // `ahead` (7) stays, and is not taken
    CHECK(input.Seen(lab, 3) == expected(6));
    feed.Take(other);
    CHECK(input.Seen(lab, 3) == expected(20));
    // Images in fp32 come between, and what waits is still there.
    const std::int64_t waiting = send(30);
    const Values plain(static_cast<std::size_t>(shape.numel()), 0.25f);
    input.op->SetImages(plain.data(), 3);
    CHECK(input.Seen(lab, 3) == plain);
    feed.Take(waiting);
    CHECK(input.Seen(lab, 3) == expected(30));
    send(31), send(32);
    CHECK_THROWS_AS(feed.Take(waiting), InternalError);  // its memory has been written again
    CHECK_THROWS_AS(feed.Take(waiting + 3), InternalError);
    const std::vector<std::uint8_t> many(static_cast<std::size_t>(2 * shape.numel()));
    CHECK_THROWS_AS(feed.Send({many.data(), table.data(), 4}), InternalError);
  }
}

#ifndef ADA_CUDA_DEVICE
TEST_SUITE("cpu") {
  TEST_CASE("the host executor's lane copies as late as a device may") {
    cuda::HostStream stream;
    std::byte* const device = stream.AllocateZeroed(2);
    std::byte* const host = stream.AllocateOnHost(2);
    const std::unique_ptr<cuda::CopyStream> copy_stream = stream.MakeCopyStream();
    const std::unique_ptr<cuda::Event> first = copy_stream->MakeEvent(),
                                       second = copy_stream->MakeEvent();
    first->Wait();  // never marked
    copy_stream->CopyToDevice(device, host, 1);
    first->Mark();
    copy_stream->CopyToDevice(device + 1, host + 1, 1);
    second->Mark();
    host[0] = std::byte{1}, host[1] = std::byte{2};
    stream.Synchronize();  // of the stream alone
    CHECK(device[0] == std::byte{0});
    stream.WaitFor(*first);
    CHECK(device[0] == std::byte{1});
    CHECK(device[1] == std::byte{0});
    second->Wait();
    CHECK(device[1] == std::byte{2});
    std::byte own{3};
    CHECK_THROWS_AS(copy_stream->CopyToDevice(device, &own, 1), InternalError);
  }

  TEST_CASE(
      "a block of the device is written when the stream has read it, and read when it is full") {
    cuda::HostStream idle;
    const auto matmuls = cuda::MakeMatmuls(idle, {});
    HostContext host(*matmuls);
    host.stream.KeepNames();
    float* const x = host.context.AllocateZeroed<float>(12);
    cuda::ImageFeed feed(host.context, {2, 1, 2, 3}, x);
    const Values table = TableOf(3);
    const std::vector<std::uint8_t> bytes = SomeBytes(12, 1);
    const auto names = [&] {
      std::string all;
      for (const std::string& name : host.stream.TakeNames()) all += name + "; ";
      return all;
    };
    names();
    for (int i = 0; i < 3; ++i) {
      const std::int64_t number = feed.Send({bytes.data(), table.data(), 2});
      CHECK(names() == "lane: waits; lane: to device; ");
      feed.Take(number);
      CHECK(names().starts_with("waits; ForEachKernel<"));
    }
    CHECK(host.stream.guards_intact());
  }
}
#endif

}  // namespace ada::backend::test
