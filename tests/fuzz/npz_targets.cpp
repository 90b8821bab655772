// Arrays of an .npz file, as they come and with sums that are right, so that what lies after the
// check of these is reached as well.
#include <algorithm>
#include <array>
#include <cmath>

#include "data/batch_maker.h"
#include "data/made_zip.h"
#include "data/readers.h"
#include "data/tensors/tensor_file.h"
#include "fuzz/scratch.h"
#include "fuzz/targets.h"

namespace ada::fuzz {
namespace {

// Larger images are opened and then left alone.
constexpr std::int64_t kBatchedPixels = 1 << 14;

// The members of a data set; two bytes before each say how long it is, the last has the rest.
std::string ZippedMembers(std::string_view input, unsigned deflated) {
  constexpr std::array kNames = {"train.labels.npy", "test.labels.npy", "train.images.npy",
                                 "test.images.npy"};
  data::ZipFile zip;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    std::size_t length = TakeByte(&input);
    length |= std::size_t{TakeByte(&input)} << 8;
    const std::string_view content =
        i + 1 == kNames.size() ? input : input.substr(0, std::min(length, input.size()));
    input.remove_prefix(content.size());
    zip.Add(kNames[i], std::string(content), (deflated >> i & 1) != 0);
  }
  return zip.Finish();
}

void UseSplit(const data::Dataset& split) {
  for (const data::Label label : split.labels)
    Demand(label < split.classes, "a label that the data set has no class for");
  Demand(split.store->images() == split.images(), "images and labels do not belong together");
  if (split.per_image() > kBatchedPixels) return;
  data::LoaderSpec spec;
  spec.batch_size = 4;
  data::Batch batch;
  data::BatchMaker(split, spec).Make(0, &batch);
  Demand(std::all_of(batch.images.begin(), batch.images.end(),
                     [](float value) { return std::isfinite(value); }),
         "a batch with a value that is not finite");
}

}  // namespace

// The first byte chooses: the whole file, or members and which of them are deflated.
void Npz(std::string_view input) {
  static const Scratch scratch;
  const unsigned choice = TakeByte(&input);
  const std::string path = scratch.Write(
      "input.npz", choice % 2 == 1 ? ZippedMembers(input, choice >> 1) : std::string(input));
  Refusable([&] {
    const data::TensorFile file(path);
    for (const data::TensorInFile& tensor : file.tensors()) {
      Refusable([&] {
        data::ByteBlock unpacked;
        Demand(data::CheckedElements(tensor, &unpacked).size() == tensor.size(),
               "a tensor has not as many bytes as its shape says");
      });
    }
    const data::Splits splits = data::OpenTensors(path);
    UseSplit(splits.train);
    UseSplit(splits.test);
  });
}

}  // namespace ada::fuzz
