// Rows of batches that are sequences of tokens. From a text each epoch draws as many windows as fit
// in it one after the other, with replacement and from any place, as nanoGPT does; rows of an array
// are seen once each.
#include <algorithm>

#include "data/augment.h"
#include "data/labels.h"
#include "data/row_writer.h"
#include "error.h"
#include "number/random.h"

namespace ada::data {
namespace {

constexpr std::uint64_t kWindowStream = StreamId("window");

// The product of 64 bits by 64, in 128.
__extension__ typedef unsigned __int128 Wide;

// Uniform in 0 .. places - 1; the bias is below places / 2^64.
std::int64_t DrawWindow(std::uint64_t seed, std::int64_t epoch, std::int64_t sample,
                        std::int64_t places) {
  RandomStream random = StreamFor(seed, kWindowStream, epoch, sample);
  const std::uint64_t high = random.NextU32(), low = random.NextU32();
  const Wide product = static_cast<Wide>(high << 32 | low) * static_cast<Wide>(places);
  return static_cast<std::int64_t>(product >> 64);
}

class SequenceRows final : public RowWriter {
 public:
  SequenceRows(const Dataset& dataset, const LoaderSpec& spec)
      : tokens_(*dataset.tokens),
        seed_(spec.seed),
        places_(spec.shuffle ? dataset.tokens->places() : 0) {
    ADA_CHECK(!spec.as_bytes && !spec.mixing.any() && !spec.changes.any() && !spec.coder);
  }

  RowSizes sizes() const override {
    return {.tokens = tokens_.context(), .labels = tokens_.context()};
  }
  ImageShape shape() const override { return {tokens_.context(), 1, 1}; }
  bool draws() const override { return places_ > 0; }
  std::string NameOf(std::int64_t epoch, std::int64_t sample) const override {
    return draws() ? tokens_.NameAt(PlaceOf(epoch, sample)) : tokens_.NameOf(sample);
  }
  void CheckUnchanged() const override { tokens_.CheckUnchanged(); }
  void Write(std::int64_t epoch, std::int64_t sample, const RowPlace& out) const override {
    const SequencePlace place{out.tokens, out.labels};
    if (draws())
      tokens_.ReadAt(PlaceOf(epoch, sample), place);
    else
      tokens_.Read(sample, place);
  }
  std::int64_t TermsOf(const std::vector<std::int32_t>& labels) const override {
    return std::count_if(labels.begin(), labels.end(),
                         [](std::int32_t label) { return label != kNoLabel; });
  }

 private:
  std::int64_t PlaceOf(std::int64_t epoch, std::int64_t sample) const {
    return DrawWindow(seed_, epoch, sample, places_);
  }

  const TokenSet& tokens_;
  const std::uint64_t seed_;
  const std::int64_t places_;
};

}  // namespace

std::unique_ptr<RowWriter> MakeSequenceRows(const Dataset& dataset, const LoaderSpec& spec) {
  return std::make_unique<SequenceRows>(dataset, spec);
}

}  // namespace ada::data
