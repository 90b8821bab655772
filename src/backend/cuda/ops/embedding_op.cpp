// Embeddings: rows of a weight by token, and the sums of their gradients, for which places of a
// batch are sorted by token.
#include <cstdint>
#include <limits>
#include <optional>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/values.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/cuda/side_stream.h"
#include "error.h"
#include "number/host_device.h"

namespace ada::backend::cuda {
namespace {

// Places of a batch by their token, and places of one token in their order: whole numbers alone, so
// that every run gives the same. Keys of 8 bits at a time, from the lowest up; each time places are
// counted by block and key, the counts are added up, and each place goes after those before it. The
// data that are sorted: tokens, with the position of each.
struct SortedPlaces {
  std::int32_t *tokens, *places;
};

// What both kernels of a turn share: `count` items, a thread each.
// One turn sorts by eight bits: count keys, sum the counts, move. It is stable, so that turns from
// the lowest bits up sort whole tokens.
struct SortTurn {
  static constexpr int kThreads = 256, kKeys = 256, kBits = 8;
  static int Blocks(std::int64_t count) {
    return static_cast<int>((count + kThreads - 1) / kThreads);
  }
  ADA_HOST_DEVICE int KeyOf(std::int64_t i) const { return tokens[i] >> shift & (kKeys - 1); }
  // How many items of a block have a key; later, where the first of them goes.
  ADA_HOST_DEVICE std::uint32_t& Of(int key, const ThreadIndex& at) const {
    return numbers[static_cast<std::int64_t>(key) * at.blocks + at.block];
  }

  const std::int32_t* tokens;
  std::int64_t count;
  int shift;
  std::uint32_t* numbers;  // [kKeys, blocks]
};

struct CountKeysKernel : SortTurn {
  static constexpr int kPhases = 3;
  struct Shared {
    std::uint32_t counts[kKeys];
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0) shared.counts[at.thread] = 0;
    if constexpr (kPhase == 1) {
      const std::int64_t i = std::int64_t{at.block} * kThreads + at.thread;
      if (i < count) AtomicAdd(&shared.counts[KeyOf(i)], 1u);
    }
    if constexpr (kPhase == 2) Of(at.thread, at) = shared.counts[at.thread];
  }
};

// Each number becomes the sum of those before it. One block.
// Numbers are in the order of keys, and of blocks within a key: their sums are where each block's
// items of a key go.
struct SumsBeforeKernel {
  static constexpr int kThreads = 1024, kPhases = 3;
  struct Shared {
    std::uint32_t sums[kThreads];
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t each = (count + kThreads - 1) / kThreads, begin = at.thread * each;
    const std::int64_t end = begin + each < count ? begin + each : count;
    if constexpr (kPhase == 0) {
      std::uint32_t sum = 0;
      for (std::int64_t i = begin; i < end; ++i) sum += numbers[i];
      shared.sums[at.thread] = sum;
    } else if constexpr (kPhase == 1) {
      if (at.thread != 0) return;
      std::uint32_t sum = 0;
      for (std::uint32_t& of_thread : shared.sums) {
        const std::uint32_t before = sum;
        sum += of_thread;
        of_thread = before;
      }
    } else {
      std::uint32_t sum = shared.sums[at.thread];
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint32_t before = sum;
        sum += numbers[i];
        numbers[i] = before;
      }
    }
  }
  std::uint32_t* numbers;
  std::int64_t count;
};

// places: of the items, null: item i is at place i.
// An item counts the items of its block before it that have its key: no atomic addition, so that
// the order is the items' own.
struct MovePlacesKernel : SortTurn {
  static constexpr int kPhases = 2;
  struct Shared {
    std::int32_t keys[kThreads];
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t i = std::int64_t{at.block} * kThreads + at.thread;
    if constexpr (kPhase == 0) {
      shared.keys[at.thread] = i < count ? KeyOf(i) : -1;
    } else if (i < count) {
      const int key = shared.keys[at.thread];
      std::uint32_t target = Of(key, at);
      for (int t = 0; t < at.thread; ++t) target += shared.keys[t] == key;
      to.tokens[target] = tokens[i];
      to.places[target] = places == nullptr ? static_cast<std::int32_t>(i) : places[i];
    }
  }
  const std::int32_t* places;
  SortedPlaces to;
};

// first[token]: how many of the sorted tokens lie below it. For all tokens and one more.
// A binary search by each thread; the places of token t are first[t] to before first[t + 1].
struct FirstPlaces {
  ADA_HOST_DEVICE void operator()(std::int64_t token) const {
    std::int64_t low = 0, high = count;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (tokens[middle] < token)
        low = middle + 1;
      else
        high = middle;
    }
    first[token] = static_cast<std::int32_t>(low);
  }
  const std::int32_t* tokens;
  std::int64_t count;
  std::int32_t* first;
};

// --- Sorting ---

// Belongs to an embedding op, whose dw adds the places of a token in their order. A radix sort by
// the token, which keeps the order of equal ones; two buffers are read and written in turns.
class PlaceOrder {
 public:
  // most: places of a batch.
  PlaceOrder(const Context& context, std::int64_t most, std::int64_t vocabulary);
  // Launches the sorting of `count` tokens.
  void Sort(const std::int32_t* tokens, std::int64_t count);
  // After Sort: the places of token t are places()[first()[t]] .. places()[first()[t + 1]].
  const std::int32_t* first() const { return first_; }
  const std::int32_t* places() const { return sorted_[turns_ % 2].places; }

 private:
  Stream& stream_;
  std::int64_t vocabulary_;
  // As many as a token below the vocabulary's size has digits of SortTurn::kBits bits.
  int turns_ = 1;
  SortedPlaces sorted_[2];
  std::uint32_t* numbers_;
  std::int32_t* first_;
};

PlaceOrder::PlaceOrder(const Context& context, std::int64_t most, std::int64_t vocabulary)
    : stream_(context.stream), vocabulary_(vocabulary) {
  while ((vocabulary - 1) >> (turns_ * SortTurn::kBits) > 0) ++turns_;
  for (SortedPlaces& sorted : sorted_)
    sorted = {context.Allocate<std::int32_t>(most), context.Allocate<std::int32_t>(most)};
  numbers_ =
      context.Allocate<std::uint32_t>(std::int64_t{SortTurn::kKeys} * SortTurn::Blocks(most));
  first_ = context.Allocate<std::int32_t>(vocabulary + 1);
}

void PlaceOrder::Sort(const std::int32_t* tokens, std::int64_t count) {
  const int blocks = SortTurn::Blocks(count);
  // The first turn reads the batch's tokens, whose places are their indices: null stands for these.
  const std::int32_t* places = nullptr;
  for (int turn = 0; turn < turns_; ++turn) {
    const SortTurn now{tokens, count, turn * SortTurn::kBits, numbers_};
    const SortedPlaces& to = sorted_[(turn + 1) % 2];
    Launch(stream_, CountKeysKernel{now}, blocks);
    Launch(stream_, SumsBeforeKernel{numbers_, std::int64_t{SortTurn::kKeys} * blocks}, 1);
    Launch(stream_, MovePlacesKernel{now, places, to}, blocks);
    tokens = to.tokens, places = to.places;
  }
  // One more than there are tokens: the end of the last one.
  ForEach(stream_, vocabulary_ + 1, FirstPlaces{tokens, count, first_});
}

// --- The op ---

// dw goes where those of products are made, on the side stream: one whose part this adds to
// (adds_dw) was asked for there.
class CudaEmbedding final : public Op {
 public:
  CudaEmbedding(const Context& context, const EmbeddingSpec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        dw_stats_(RoundingStats::OfParameter(Side(), spec.dw_format, Storage::kF32,
                                             spec.w.shape.numel(), spec.dw_style, spec.dw_stats)) {
    // Kernels count the values of dw with 32 bits.
    ADA_CHECK(spec.w.shape.numel() <= std::numeric_limits<std::uint32_t>::max());
    if (spec.dw) order_.emplace(Side(), spec.x.shape.numel(), spec.w.shape.n);
  }
  void Forward(const Pass& pass) override {
    y_stats_.Round(pass, SpanOf(spec_.y), GatheredValue{spec_.w.f32(), Tokens(), Channels()});
  }
  void Backward(const Pass& pass) override {
    // Nothing in the backward pass waits for dw, and whoever writes dy's memory waits until it was
    // read.
    if (spec_.dw) context_.side_stream.Run({RangeOf(spec_.dy.tensor)}, [&] { SumPlaces(pass); });
  }
  void FinishGradients(const Pass& pass) override {
    if (spec_.dw) context_.side_stream.Run({}, [&] { RoundSums(pass); });
  }

 private:
  const Context& Side() const { return context_.side_stream.context(); }
  const std::int32_t* Tokens() const { return reinterpret_cast<const std::int32_t*>(spec_.x.data); }
  std::uint32_t Channels() const { return static_cast<std::uint32_t>(spec_.w.shape.c); }
  // Each value of dw is one thread's sum over the places of its token, in their order; a part of a
  // sum over processes is rounded in FinishGradients.
  void SumPlaces(const Pass& pass) {
    order_->Sort(Tokens(), pass.rows * spec_.x.shape.per_image());
    ForEach(Side().stream, spec_.w.shape.numel(),
            PlacesSum{order_->first(), order_->places(), SpanOf(spec_.dy.tensor), Channels(),
                      spec_.dy.scale, spec_.dw.f32(), pass.accumulate || spec_.adds_dw});
    if (!pass.part) RoundSums(pass);
  }
  // Rounds dw in place, or only measures it where it stays fp32.
  void RoundSums(const Pass& pass) {
    const TensorSpan dw = SpanOf(spec_.dw);
    if (dw_stats_.rounds())
      dw_stats_.Round(pass, dw, StoredValues{dw});
    else if (dw_stats_.wanted())
      dw_stats_.Count(pass, dw);
  }

  Context context_;
  EmbeddingSpec spec_;
  RoundingStats y_stats_, dw_stats_;
  std::optional<PlaceOrder> order_;  // with dw
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const EmbeddingSpec& s) {
  return std::make_unique<CudaEmbedding>(c, s);
}

}  // namespace ada::backend::cuda
