// See place_order.h.
#include "backend/cuda/ops/place_order.h"

namespace ada::backend::cuda {

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

}  // namespace ada::backend::cuda
